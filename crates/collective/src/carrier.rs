//! Transport of a member's messages.

use std::ops::Range;
use thalweg_core::{Check, Machine, NodeId, Outbox, Packet, Reports, Tag, Time};
use thalweg_deliver::{LossBound, Offered};
use thalweg_flow::{Endpoint, FlowTagger, JobClass, Message, Payload, Received, StartError};
use thalweg_values::{Coverage, Part as Lacks, Tensor};
use thalweg_wire::Prefix;
use thalweg_wire::frame::SumFrame;

use crate::block::{Block, Form};
use crate::call::Care;
use crate::config::ConfigError;
use crate::delivery::SumDelivery;
use crate::delivery_carrier::DeliveryCarrier;

/// A numbered message.
#[derive(Clone)]
pub struct NumberedMessage {
    /// Number of the message, by which its sender and its receiver know it.
    pub(crate) index: u64,
    pub(crate) care: Care,
    /// Phase of the sum that the message belongs to. Only its sender uses it.
    pub(crate) phase: Phase,
    /// The operation of the message, or why its sender has stopped. `None` if only the length of the values is known.
    pub(crate) frame: Option<SumFrame>,
    pub(crate) block: Block,
    /// Coverage of the values as they left. Flows carry none: nothing is missing there.
    pub(crate) coverage: Coverage,
    /// Ranges of values that were lost between its sender and this node.
    pub(crate) lost: Vec<Range<u64>>,
}

impl NumberedMessage {
    /// A message of a flow, of which nothing is missing.
    pub(crate) fn new(index: u64, block: Block) -> NumberedMessage {
        let (care, phase) = (Care::default(), Phase::Gradient);
        let (coverage, lost) = (Coverage::Exact, Vec::new());
        NumberedMessage { index, care, phase, frame: None, block, coverage, lost }
    }

    /// Coverage of the values as they arrived: values that were lost lack all contributors to them.
    // spec: T-11
    pub(crate) fn arrived_coverage(&self, contributors: &[u32]) -> Coverage {
        let lost = |values: &Range<u64>| Lacks::new(values.clone(), contributors.to_vec());
        self.coverage.clone().and(Coverage::lacking(self.lost.iter().map(lost)))
    }
}

/// Phase of a sum: values go into it, or come out of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Gradient,
    Result,
}

/// Older values of a result.
pub struct Older {
    /// Values that those which are lost keep.
    pub values: Tensor,
    /// The largest share of them that may be kept. Without it, what the settings say.
    pub loss: Option<LossBound>,
}

/// Answer of a part to a message that is offered to it.
pub enum Want {
    /// A contribution that it waits for.
    Gradient,
    /// A result that it waits for, and what it has in place of it, if anything.
    Result(Option<Older>),
    /// It will want it, but knows nothing of it yet.
    Later,
    /// Nobody waits for it.
    Never,
}

/// Event of a carrier.
pub(crate) enum CarrierEvent {
    /// A message is here.
    Received { src: NodeId, message: NumberedMessage },
    /// A message with a number that no member gives.
    Unnumbered,
    /// A message has arrived.
    Sent { index: u64 },
    /// Somebody has a message and waits for a buffer.
    Offered(Offered),
    /// A node does not answer.
    Lost(NodeId),
    /// A node has something else in mind.
    Disagrees(NodeId),
}

/// Transport that messages use.
pub(crate) enum Carrier {
    /// Reliable flows, whose messages need no buffer.
    Flow(Box<Flows>),
    /// Tensors of which a part may be lost.
    Deliver(Box<DeliveryCarrier>),
}

/// A flow endpoint with numbered messages.
pub(crate) struct Flows {
    endpoint: Endpoint,
    first_message: u64,
    tag: Tag,
}

/// A call of the endpoint that there is.
macro_rules! of_endpoint {
    ($carrier:ident.$method:ident($($argument:expr),*)) => {
        match $carrier {
            Carrier::Flow(flows) => flows.endpoint.$method($($argument),*),
            Carrier::Deliver(carrier) => carrier.endpoint.$method($($argument),*),
        }
    };
}

impl Carrier {
    pub fn new(
        flow: thalweg_flow::Config,
        tag: Tag,
        delivery: Option<SumDelivery>,
    ) -> Result<Carrier, ConfigError> {
        if let Some(delivery) = delivery {
            return Ok(Carrier::Deliver(Box::new(DeliveryCarrier::new(delivery)?)));
        }
        let first_message = flow.messages.first_message;
        let endpoint = Endpoint::new(flow)?;
        Ok(Carrier::Flow(Box::new(Flows { endpoint, first_message, tag })))
    }

    /// Sets the payload of the packets of messages that begin from now on.
    // spec: F-01
    pub fn set_segment_bytes(&mut self, segment_bytes: u16) {
        match self {
            Carrier::Flow(flows) => {
                flows.endpoint.protocol_mut().set_segment_bytes(segment_bytes.into());
            }
            Carrier::Deliver(carrier) => carrier.endpoint.set_segment_bytes(segment_bytes),
        }
    }

    /// Has all packets travel in a class from now on.
    // spec: C-16
    pub fn set_class(&mut self, now: Time, class: JobClass) {
        match self {
            Carrier::Flow(flows) => flows.endpoint.protocol_mut().set_class(now, class),
            Carrier::Deliver(carrier) => carrier.endpoint.set_class(class.dscp()),
        }
    }

    pub fn send(
        &mut self,
        now: Time,
        dst: NodeId,
        message: NumberedMessage,
    ) -> Result<(), StartError> {
        match self {
            Carrier::Flow(flows) => flows.send(now, dst, message),
            Carrier::Deliver(carrier) => {
                carrier.send(now, dst, message);
                Ok(())
            }
        }
    }

    #[inline]
    pub fn poll(&mut self) -> Option<CarrierEvent> {
        match self {
            Carrier::Flow(flows) => flows.poll(),
            Carrier::Deliver(carrier) => carrier.poll(),
        }
    }

    /// The form of the blocks that it carries.
    pub fn form(&self) -> Form {
        match self {
            Carrier::Flow(_) => Form::Bytes,
            Carrier::Deliver(_) => Form::Tensor,
        }
    }

    pub fn check(&self) {
        of_endpoint!(self.check());
    }

    /// Number of messages that are being sent.
    pub fn outgoing(&self) -> usize {
        of_endpoint!(self.outgoing())
    }

    /// Number of packets that were sent again.
    pub fn retransmissions(&self) -> u64 {
        match self {
            Carrier::Flow(flows) => flows.endpoint.retransmissions(),
            Carrier::Deliver(carrier) => carrier.endpoint.stats().resent,
        }
    }

    /// Counts of deliveries, where messages travel on them.
    pub fn delivery_stats(&self) -> Option<thalweg_deliver::Stats> {
        match self {
            Carrier::Flow(_) => None,
            Carrier::Deliver(carrier) => Some(carrier.endpoint.stats()),
        }
    }

    #[inline]
    pub fn handle_checked(&mut self, now: Time, prefix: Prefix, packet: &Packet<'_>) {
        of_endpoint!(self.handle_checked(now, prefix, packet));
    }

    #[inline]
    pub fn handle_packet(&mut self, now: Time, packet: Packet<'_>) {
        of_endpoint!(self.handle_packet(now, packet));
    }

    pub fn handle_timeout(&mut self, now: Time) {
        of_endpoint!(self.handle_timeout(now));
    }

    #[inline]
    pub fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        of_endpoint!(self.poll_transmit(now, outbox));
    }

    #[inline]
    pub fn has_backlog(&self) -> bool {
        of_endpoint!(self.has_backlog())
    }

    #[inline]
    pub fn poll_timeout(&self) -> Time {
        of_endpoint!(self.poll_timeout())
    }
}

impl Flows {
    fn send(&mut self, now: Time, dst: NodeId, message: NumberedMessage) -> Result<(), StartError> {
        let NumberedMessage { index, block, frame, care, .. } = message;
        let Block::Bytes(mut body) = block else { unreachable!("blocks of flows are bytes") };
        if let (Some(frame), Payload::Bytes(bytes)) = (frame, &mut body) {
            frame.frame(bytes);
        }
        // Every message may take another path, as parallel connections do.
        let tag = Tag { dscp: care.dscp.unwrap_or(self.tag.dscp), ..self.tag };
        let message = Message { dst, body, tagger: FlowTagger::Fixed(tag), entropy: index as u16 };
        let number = self.first_message + index;
        self.endpoint.start_numbered(now, number, message).map(|_| ())
    }

    #[inline]
    fn poll(&mut self) -> Option<CarrierEvent> {
        let index = |number: u64| number.checked_sub(self.first_message);
        loop {
            return Some(match self.endpoint.poll_event()? {
                thalweg_flow::Event::Received(Received {
                    src, flow, bytes, body, dscp, ..
                }) => {
                    let payload = body.map_or(Payload::Length(bytes), Payload::Bytes);
                    match index(flow.number()) {
                        Some(index) => {
                            let frame = frame_of(&payload);
                            let message = NumberedMessage::new(index, Block::Bytes(payload));
                            // The sum of what has come goes back in the same class.
                            // spec: M-03
                            let care = Care { dscp: Some(dscp), ..message.care };
                            let message = NumberedMessage { frame, care, ..message };
                            CarrierEvent::Received { src, message }
                        }
                        None => CarrierEvent::Unnumbered,
                    }
                }
                thalweg_flow::Event::Sent(sent) => match index(sent.flow.number()) {
                    Some(index) => CarrierEvent::Sent { index },
                    None => continue,
                },
                thalweg_flow::Event::Failed(sent) => CarrierEvent::Lost(sent.dst),
            });
        }
    }
}

/// Reads the frame at the end of a message. `None` if it has no frame.
fn frame_of(payload: &Payload) -> Option<SumFrame> {
    match payload {
        Payload::Bytes(bytes) => SumFrame::unframe(bytes).ok(),
        Payload::Length(_) => None,
    }
}
