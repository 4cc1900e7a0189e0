//! One outgoing message: which packets wait, travel, or must be sent again.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_core::{Body, Dscp, Ecn, LAST_PRIORITY, NodeId, Outbox, Packet, Purpose, Tag, Time};
use thalweg_transport::messages::{FlowId, Message, Payload, Sent, StartError, packets_of};
use thalweg_transport::{Envelope, LossDetector, MessageConfig, Transmission};
use thalweg_wire::flow::{Ack, Data};

/// An outgoing message.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) flow: FlowId,
    pub(crate) dst: NodeId,
    pub(crate) entropy: u16,
    pub(crate) timeouts: u32,
    /// When something came from its receiver last, or it began.
    pub(crate) received_at: Time,
    /// When a packet of it was last sent, or it began.
    sent_at: Time,
    started: Time,
    body: Payload,
    packets: u32,
    /// No packet from here on was ever sent.
    next_unsent: u32,
    /// The packets without an answer, and when they were last sent.
    in_flight: BTreeMap<u32, Time>,
    /// Their transmissions, in the order of sending: packet and time.
    in_order: LossDetector<(u32, Time)>,
    /// Packets that are known to be missing.
    again: BTreeSet<u32>,
    transmissions: u32,
}

/// Label of a packet for the network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label {
    pub(crate) rank: u32,
    pub(crate) priority: u8,
    pub(crate) entropy: u16,
}

impl Label {
    /// Of data that waits behind all answers, where queues look at that.
    pub(crate) fn behind_answers(rank: u32, entropy: u16) -> Label {
        Label { rank, priority: LAST_PRIORITY, entropy }
    }
}

impl Transfer {
    pub(crate) fn new(
        config: &MessageConfig,
        now: Time,
        flow: FlowId,
        message: Message,
    ) -> Result<Transfer, StartError> {
        let bytes = message.body.bytes();
        let packets = packets_of(bytes, config.segment_bytes).ok_or(StartError::TooLong(bytes))?;
        Ok(Transfer {
            flow,
            dst: message.dst,
            entropy: message.entropy,
            timeouts: 0,
            received_at: now,
            sent_at: now,
            started: now,
            body: message.body,
            packets,
            next_unsent: 0,
            in_flight: BTreeMap::new(),
            in_order: LossDetector::by_time(),
            again: BTreeSet::new(),
            transmissions: 0,
        })
    }

    /// The packet to send next: one that is missing, or the next that was never sent.
    pub(crate) fn next(&self) -> Option<u32> {
        let unsent = (self.next_unsent < self.packets).then_some(self.next_unsent);
        self.again.first().copied().or(unsent)
    }

    /// Number of its packets.
    pub(crate) fn packets(&self) -> u32 {
        self.packets
    }

    /// Number of packets that were sent, not counting those that must be sent again.
    pub(crate) fn sent(&self) -> u32 {
        self.next_unsent - self.again.len() as u32
    }

    /// Number of transmissions.
    pub(crate) fn transmissions(&self) -> u32 {
        self.transmissions
    }

    /// Time since which nothing was sent, and nothing received.
    pub(crate) fn silent_since(&self) -> Time {
        self.sent_at.max(self.received_at)
    }

    /// Packets that nothing says have arrived.
    pub(crate) fn unanswered(&self) -> u32 {
        let unsent = self.packets - self.next_unsent;
        unsent + self.in_flight() + self.again.len() as u32
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.len() as u32
    }

    /// When the packet that is longest in flight was sent.
    pub(crate) fn oldest(&self) -> Option<Time> {
        let mut in_order = self.in_order.iter();
        in_order.find(|sent| is_awaited(&self.in_flight, sent)).map(|sent| sent.item.1)
    }

    /// Sends the next packet, and says whether it was sent before. `None` without a packet to send, or without room.
    pub(crate) fn send(
        &mut self,
        config: &MessageConfig,
        now: Time,
        label: Label,
        outbox: &mut dyn Outbox,
    ) -> Option<bool> {
        let index = self.next()?;
        let data = self.data(config, now, index, label);
        let payload_bytes = data.payload_bytes();
        let is_resend = self.again.contains(&index);
        let body_size = self.body.body_size(payload_bytes);
        let packet = outbox.lend(body_size, Purpose::of_data(is_resend))?;
        let body = self.address(config, config.overhead_bytes, &data, label, packet);
        self.body.fill(data.offset(), body);
        self.transmissions += 1;
        self.sent_at = now;
        self.in_flight.insert(index, now);
        self.in_order.on_sent(self.transmissions.into(), (index, now));
        if !self.again.remove(&index) {
            self.next_unsent += 1;
        }
        Some(is_resend)
    }

    /// Sends the header of the first packet without an answer, for an answer to it. `None` without
    /// room.
    pub(crate) fn probe(
        &self,
        config: &MessageConfig,
        now: Time,
        label: Label,
        outbox: &mut dyn Outbox,
    ) -> Option<()> {
        let travels = self.in_flight.first_key_value().map(|(index, _)| *index);
        let index = [self.next(), travels].into_iter().flatten().min()?;
        let packet = outbox.lend(self.body.body_size(0), Purpose::Control)?;
        let data = self.data(config, now, index, label);
        self.address(config, config.ack_wire_bytes, &data, label, packet);
        Some(())
    }

    /// Takes in an answer and says how many packets it newly says have arrived. `None` if it makes
    /// no sense.
    pub(crate) fn on_answer(&mut self, now: Time, src: NodeId, ack: &Ack) -> Option<u32> {
        let is_sound =
            src == self.dst && ack.index < self.packets && ack.cumulative <= self.packets;
        if !is_sound {
            return None;
        }
        self.received_at = now;
        let before = self.unanswered();
        self.arrived_below(ack.cumulative);
        for bit in (0..64).filter(|bit| ack.sack >> bit & 1 == 1) {
            self.arrived(ack.cumulative.saturating_add(1 + bit));
        }
        if !ack.resend {
            self.arrived(ack.index);
        } else if self.in_flight.get(&ack.index) == Some(&ack.sent_at) {
            // An answer to an earlier transmission says nothing about the last one.
            self.in_flight.remove(&ack.index);
            self.again.insert(ack.index);
        }
        self.in_order.pass_over(|sent| is_awaited(&self.in_flight, sent));
        Some(before - self.unanswered())
    }

    /// Notes that a packet has not arrived, whose header came back. `false` if that is known, or it was sent since.
    pub(crate) fn on_return(&mut self, index: u32, sent_at: Time) -> bool {
        let is_awaited = self.in_flight.get(&index) == Some(&sent_at);
        if is_awaited {
            self.in_flight.remove(&index);
            self.again.insert(index);
            self.in_order.pass_over(|sent| self::is_awaited(&self.in_flight, sent));
        }
        is_awaited
    }

    /// Takes everything for lost that was sent at `before` or earlier, and says how much that is.
    pub(crate) fn expire(&mut self, before: Time) -> u32 {
        self.expire_below(u32::MAX, before)
    }

    /// The same of packets below a number.
    pub(crate) fn expire_below(&mut self, end: u32, before: Time) -> u32 {
        let before_count = self.in_flight();
        for sent in self.in_order.iter().take_while(|sent| sent.item.1 <= before) {
            let (index, _) = sent.item;
            if index < end && is_awaited(&self.in_flight, sent) {
                self.in_flight.remove(&index);
                self.again.insert(index);
            }
        }
        self.in_order.pass_over(|sent| is_awaited(&self.in_flight, sent));
        before_count - self.in_flight()
    }

    /// Report on its transfer.
    pub(crate) fn end(&self, now: Time) -> Sent {
        // Every packet that was sent at all was sent once.
        let retransmissions = self.transmissions - self.next_unsent;
        Sent {
            flow: self.flow,
            dst: self.dst,
            bytes: self.body.bytes(),
            started: self.started,
            finished: now,
            retransmissions,
            timeouts: self.timeouts,
            // Receivers tell of losses, or timers do.
            detections: 0,
        }
    }

    fn arrived(&mut self, index: u32) {
        if self.in_flight.remove(&index).is_none() {
            self.again.remove(&index);
        }
    }

    fn arrived_below(&mut self, end: u32) {
        if self.in_flight.first_key_value().is_some_and(|(first, _)| *first < end) {
            self.in_flight = self.in_flight.split_off(&end);
        }
        if self.again.first().is_some_and(|first| *first < end) {
            self.again = self.again.split_off(&end);
        }
    }

    fn data(&self, config: &MessageConfig, now: Time, index: u32, label: Label) -> Data {
        Data {
            job: config.credentials.job,
            epoch: config.credentials.epoch,
            flow: self.flow.0,
            message_bytes: self.body.bytes(),
            sent_at: now,
            index,
            transmission: self.transmissions,
            segment_bytes: config.segment_bytes,
            priority: label.priority,
            wants_ack: false,
        }
    }

    /// Fills in all but the body, which it hands back.
    fn address<'a>(
        &self,
        config: &MessageConfig,
        overhead_bytes: u32,
        data: &Data,
        label: Label,
        mut packet: Packet<'a>,
    ) -> Body<'a> {
        let dscp = Dscp::of_priority(label.priority);
        let envelope = Envelope {
            dst: self.dst,
            tag: Tag { dscp, ecn: Ecn::Capable, rank: label.rank },
            entropy: label.entropy,
            overhead_bytes,
            key: config.credentials.key.as_ref(),
        };
        envelope.fill(&mut packet, |header| data.encode(header));
        packet.body
    }
}

/// Returns whether a transmission has no answer, and its packet was not sent since.
fn is_awaited(in_flight: &BTreeMap<u32, Time>, sent: &Transmission<(u32, Time)>) -> bool {
    let (index, sent_at) = sent.item;
    in_flight.get(&index) == Some(&sent_at)
}
