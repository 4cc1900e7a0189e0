//! Ordinary flows as tensors of which a bounded part may be lost.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use thalweg_core::{
    Bytes, Check, Dscp, Machine, NodeId, Operation, Outbox, Packet, Reports, Rng, Time, Verdict,
};
use thalweg_deliver::{
    Completion, Config, ConfigError, Endpoint, LossBound, Lost, Name, ReceiveCall, SendCall,
};
use thalweg_flow::{Event, FlowId, Message, Received, Sent, StartError};
use thalweg_values::Tensor;
use thalweg_wire::Prefix;
use thalweg_workload::LayerOf;

use crate::job::VALUE_BYTES;

/// The commands and events of a flow endpoint over deliveries: a flow is a tensor that nobody reads.
///
/// Sizes and bounds are agreed on before a training begins. A receiver that knows them posts the buffer with
/// [`expect`](Deliveries::expect); where nobody did, it is posted when the tensor is offered. Packets have
/// the class of their layer and take paths of their own, so that a message's tagger and its entropy mean
/// nothing here; and its bytes, if it has any, do not travel.
pub(crate) struct Deliveries {
    endpoint: Endpoint,
    loss: LossBound,
    next_number: u64,
    /// Length of every message in flight.
    lengths: BTreeMap<u64, Bytes>,
    lost: Bytes,
    events: VecDeque<Event>,
}

impl Deliveries {
    /// An endpoint that numbers its messages from `first_message` on and allows this loss of every one.
    pub(crate) fn new(
        config: Config,
        loss: LossBound,
        first_message: u64,
        rng: Rng,
    ) -> Result<Deliveries, ConfigError> {
        Ok(Deliveries {
            endpoint: Endpoint::new(config, rng)?,
            loss,
            next_number: first_message,
            lengths: BTreeMap::new(),
            lost: Bytes::ZERO,
            events: VecDeque::new(),
        })
    }

    /// Begins to send a message, that of a model with one layer where no other is given.
    pub(crate) fn start(
        &mut self,
        now: Time,
        message: &Message,
        layer: Option<LayerOf>,
    ) -> Result<FlowId, StartError> {
        let LayerOf { layer, layers } = layer.unwrap_or(LayerOf { layer: 0, layers: 1 });
        let (number, bytes) = (self.next_number, message.body.bytes());
        let name = name(message.dst, number);
        let loss = self.loss;
        let call = SendCall { layer, layers, loss, ..SendCall::new(name, Arc::new(tensor(bytes))) };
        self.endpoint.post_send(now, call).map_err(|_| StartError::TooLong(bytes))?;
        self.next_number += 1;
        self.lengths.insert(number, bytes);
        Ok(FlowId::new(number, 0))
    }

    /// Has a buffer ready for a message that another node sends.
    pub(crate) fn expect(&mut self, now: Time, src: NodeId, flow: FlowId, bytes: Bytes) {
        self.post(now, name(src, flow.number()), bytes);
    }

    /// Number of retransmissions so far.
    pub(crate) fn retransmissions(&self) -> u64 {
        self.endpoint.stats().resent
    }

    /// Bytes that did not arrive, of messages that were complete without them.
    pub(crate) fn lost(&self) -> Bytes {
        self.lost
    }

    fn post(&mut self, now: Time, name: Name, bytes: Bytes) {
        let (loss, lost) = (self.loss, Lost::ReadsZero);
        let call = ReceiveCall { name, buffer: tensor(bytes), loss, lost };
        // A buffer that is there already is one more reason to expect it.
        let _ = self.endpoint.post_receive(now, call);
    }

    fn settle(&mut self, now: Time) {
        while let Some(offer) = self.endpoint.poll_offer() {
            self.post(now, offer.name, Bytes::new(offer.tensor_bytes));
        }
        while let Some(completion) = self.endpoint.poll_completion() {
            self.end(now, completion);
        }
    }

    fn end(&mut self, now: Time, completion: Completion) {
        let event = match completion {
            Completion::Sent(sent) => {
                let event = self.sent(sent.name, (sent.started, sent.finished));
                let retransmissions = u32::try_from(sent.resent).unwrap_or(u32::MAX);
                let timeouts = u32::try_from(sent.unanswered).unwrap_or(u32::MAX);
                event.map(|event| Event::Sent(Sent { retransmissions, timeouts, ..event }))
            }
            Completion::Received(received) => {
                self.lost += Bytes::new(received.lost_bytes);
                let Name { peer: src, operation, .. } = received.name;
                Some(Event::Received(Received {
                    src,
                    flow: FlowId::new(operation.0, 0),
                    bytes: Bytes::new(received.buffer.len() * VALUE_BYTES),
                    finished: received.finished,
                    dscp: Dscp::default(),
                    body: None,
                }))
            }
            // Who was to receive it learns nothing, as with flows.
            Completion::Failed(failed) if failed.buffer.is_some() => None,
            Completion::Failed(failed) => self.sent(failed.name, (now, now)).map(Event::Failed),
        };
        self.events.extend(event);
    }

    fn sent(&mut self, name: Name, (started, finished): (Time, Time)) -> Option<Sent> {
        let bytes = self.lengths.remove(&name.operation.0)?;
        let flow = FlowId::new(name.operation.0, 0);
        let dst = name.peer;
        Some(Sent {
            flow,
            dst,
            bytes,
            started,
            finished,
            retransmissions: 0,
            detections: 0,
            timeouts: 0,
        })
    }
}

fn name(peer: NodeId, number: u64) -> Name {
    Name { peer, operation: Operation(number), tensor: 0 }
}

/// The tensor that stands for a message of this size.
fn tensor(bytes: Bytes) -> Tensor {
    Tensor::Length(bytes.as_u64().div_ceil(VALUE_BYTES))
}

impl Check for Deliveries {
    fn check(&self) {
        self.endpoint.check();
        let (lengths, live) = (self.lengths.len(), self.endpoint.outgoing());
        assert_eq!(lengths, live, "every message in flight has a length");
    }
}

impl Deliveries {
    /// Takes in a packet whose prefix the host has read.
    #[inline]
    pub(super) fn handle_checked(&mut self, now: Time, prefix: Prefix, packet: &Packet<'_>) {
        self.endpoint.handle_checked(now, prefix, packet);
        self.settle(now);
    }
}

impl Machine for Deliveries {
    #[inline]
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        self.endpoint.handle_packet(now, packet);
        self.settle(now);
        Verdict::Consume
    }

    fn handle_timeout(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
        self.settle(now);
    }

    #[inline]
    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        self.endpoint.poll_transmit(now, outbox);
    }

    #[inline]
    fn has_backlog(&self) -> bool {
        self.endpoint.has_backlog()
    }

    #[inline]
    fn poll_timeout(&self) -> Time {
        self.endpoint.poll_timeout()
    }
}

impl Reports for Deliveries {
    type Event = Event;

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}
