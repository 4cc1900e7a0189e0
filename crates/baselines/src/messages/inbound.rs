//! Incoming messages and the answers to their packets.

use std::collections::VecDeque;

use thalweg_core::{BodySize, Dscp, Ecn, Header, NodeId, Outbox, Packet, Purpose, Tag, Time};
use thalweg_flow::{Config, Event, FlowId, Incoming};
use thalweg_transport::{Credentials, Envelope, Replies};
use thalweg_wire::flow::{Ack, Credit, Data};

/// Sender and flow of a message that arrives.
pub(crate) type Name = (NodeId, FlowId);

/// How many messages whose senders are gone are never looked for.
const SPARE_MESSAGES: usize = 64;

/// Puts messages together and answers every packet by itself.
pub(crate) struct Inbound {
    incoming: Incoming,
    /// Answers that wait for room.
    answers: Replies<Answer>,
}

/// A packet that was taken in.
pub(crate) struct Taken {
    pub(crate) data: Data,
    /// What is to be said about it.
    pub(crate) ack: Ack,
    /// It came without its payload.
    pub(crate) is_header: bool,
}

struct Answer {
    dst: NodeId,
    entropy: u16,
    ack: Ack,
}

impl Inbound {
    pub(crate) fn new(config: &Config) -> Inbound {
        Inbound { incoming: Incoming::new(config), answers: Replies::new(config.max_waiting_acks) }
    }

    /// Takes in a packet of a message and answers it. Says what it is; `None` if it was dropped.
    pub(crate) fn take_in(
        &mut self,
        config: &Config,
        now: Time,
        packet: &Packet<'_>,
        events: &mut VecDeque<Event>,
    ) -> Option<Data> {
        let Taken { data, ack, .. } = self.accept(config, now, packet, events)?;
        self.answer((packet.meta.src, packet.meta.entropy), ack);
        Some(data)
    }

    /// Takes in a packet of a message, whole or without its payload, and leaves it to the caller whether
    /// to answer. `None` if it was dropped.
    pub(crate) fn accept(
        &mut self,
        config: &Config,
        now: Time,
        packet: &Packet<'_>,
        events: &mut VecDeque<Event>,
    ) -> Option<Taken> {
        let data = Data::decode(packet.header).ok()?;
        let (meta, body) = (&*packet.meta, &packet.body);
        let is_header = body.is_empty() && data.payload_bytes() > 0;
        let answer = if is_header {
            self.incoming.on_header(config, now, meta, &data, body)
        } else {
            self.incoming.on_data(config, now, meta, &data, body, events)
        };
        Some(Taken { data, ack: answer.ok()?, is_header })
    }

    /// Puts an answer behind those that wait, if there is room for it.
    pub(crate) fn answer(&mut self, (dst, entropy): (NodeId, u16), ack: Ack) {
        self.answers.push(Answer { dst, entropy, ack });
    }

    /// How many packets of a message have not arrived; `None` if it is complete.
    pub(crate) fn missing(&self, src: NodeId, flow: FlowId) -> Option<u32> {
        self.incoming.missing(src, flow)
    }

    /// How many messages are arriving.
    pub(crate) fn live(&self) -> usize {
        self.incoming.live()
    }

    /// Whether somebody who remembers so many of the messages should forget those that are over, or
    /// whose senders are gone. Only at twice as many as arrive: so looking at all of them costs each
    /// arrival next to nothing.
    pub(crate) fn is_outgrown_by(&self, remembered: usize) -> bool {
        remembered > 2 * self.live() + SPARE_MESSAGES
    }

    /// Whether an answer waits.
    pub(crate) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Sends the answer that waits longest. `None` if none waits, or there is no room.
    pub(crate) fn send_answer(&mut self, config: &Config, outbox: &mut dyn Outbox) -> Option<()> {
        let Answer { dst, entropy, ack } = self.answers.front()?;
        send_urgent(config, *dst, *entropy, outbox, |header| ack.encode(header))?;
        self.answers.pop();
        Some(())
    }
}

/// Sends leave to send: so many transmissions of a message since its beginning, with that priority. `None`
/// without room.
pub(crate) fn send_credit(
    config: &Config,
    (src, flow): Name,
    entropy: u16,
    (transmissions, priority): (u32, u8),
    outbox: &mut dyn Outbox,
) -> Option<()> {
    let Credentials { job, epoch, .. } = config.credentials;
    let credit = Credit { job, epoch, flow: flow.0, transmissions, priority };
    send_urgent(config, src, entropy, outbox, |header| credit.encode(header))
}

/// Sends a packet without a body at the highest priority. `None` without room.
fn send_urgent(
    config: &Config,
    dst: NodeId,
    entropy: u16,
    outbox: &mut dyn Outbox,
    encode: impl FnOnce(&mut Header),
) -> Option<()> {
    let mut packet = outbox.lend(BodySize::Length(0), Purpose::Control)?;
    let envelope = Envelope {
        dst,
        tag: Tag { dscp: Dscp::of_priority(0), ecn: Ecn::NotCapable, rank: 0 },
        entropy,
        overhead_bytes: config.ack_wire_bytes,
        key: config.credentials.key.as_ref(),
    };
    envelope.fill(&mut packet, encode);
    Some(())
}
