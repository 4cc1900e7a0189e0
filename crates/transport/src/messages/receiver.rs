//! One incoming message: what has arrived of it, and where it is put together.

use thalweg_core::{Body, Bytes, Dscp, NodeId, Time};
use thalweg_wire::flow::Data;

use super::bits::Arrivals;
use super::config::MessageConfig;
use super::held::Sequence;
use super::message::{FlowId, Received};
use super::reordering::Reordering;

/// An incoming message, or the place where one was.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    pub src: NodeId,
    pub flow: u64,
    /// When its last packet came. Tells messages whose sender is gone.
    pub last_arrival_at: Time,
    message_bytes: Bytes,
    segment_bytes: u32,
    packets: u32,
    arrivals: Arrivals,
    /// Kept only where losses are found by priority.
    reordering: Reordering,
    sequence: Sequence,
    /// The message as far as it is there. None if only lengths are carried.
    body: Option<Box<[u8]>>,
}

/// The outcome of taking in a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Intake {
    /// It contradicts what came before and was not taken in.
    Contradiction,
    /// It lies further ahead than there is room for.
    TooFarAhead,
    /// It was taken in.
    Taken,
    /// It had come before.
    Copy,
    /// It was the last one missing.
    Complete,
}

impl Receiver {
    /// Begins the message that a first packet belongs to, in a vacant place, whose memory it uses.
    pub fn begin(
        &mut self,
        now: Time,
        src: NodeId,
        data: &Data,
        packets: u32,
        body: Option<Box<[u8]>>,
    ) {
        self.src = src;
        self.last_arrival_at = now;
        self.flow = data.flow;
        self.message_bytes = data.message_bytes;
        self.segment_bytes = data.segment_bytes;
        self.packets = packets;
        self.arrivals.reset();
        self.reordering.reset();
        self.sequence = Sequence::default();
        self.body = body;
    }

    /// Gives up the message and what it held. Returns how many real bytes that were.
    pub fn abandon(&mut self) -> u64 {
        self.body.take().map_or(0, |body| body.len() as u64)
    }

    /// Real bytes of the message that are held here.
    pub fn body_bytes(&self) -> u64 {
        self.body.as_ref().map_or(0, |body| body.len() as u64)
    }

    /// Panics where the accounts of a message that is arriving are wrong.
    pub fn check(&self) {
        self.arrivals.check();
        let (arrived, packets) = (self.arrivals.total(), self.packets);
        assert!(arrived < packets, "{arrived} of {packets} packets have arrived, and it goes on");
    }

    /// Hands out the complete message.
    pub fn finish(&mut self, now: Time, dscp: Dscp) -> Received {
        Received {
            src: self.src,
            flow: FlowId(self.flow),
            bytes: self.message_bytes,
            finished: now,
            dscp,
            body: self.body.take(),
        }
    }

    #[inline]
    pub fn cumulative(&self) -> u32 {
        self.arrivals.cumulative()
    }

    #[inline]
    pub fn sack(&self) -> u64 {
        self.arrivals.sack()
    }

    /// Returns whether the first missing packet is lost for sure.
    #[inline]
    pub fn shows_loss(&self) -> bool {
        self.reordering.shows_loss()
    }

    /// Returns whether packets came in order for a while, up to the last one.
    #[inline]
    pub fn is_calm(&self) -> bool {
        self.sequence.is_calm()
    }

    /// Number of packets that came one by one right before the last one, which is `index`.
    #[inline]
    pub fn run(&self, index: u32) -> u16 {
        self.sequence.run(index)
    }

    /// Bytes of packets that wait for others before them, each counted as a full one.
    #[inline]
    pub fn held_bytes(&self) -> u64 {
        let packets = self.arrivals.total() - self.arrivals.cumulative();
        u64::from(packets) * u64::from(self.segment_bytes)
    }

    /// Takes in a packet whose body is as long as its header says.
    #[inline]
    pub fn take_in(
        &mut self,
        config: &MessageConfig,
        compares_priorities: bool,
        now: Time,
        data: &Data,
        body: &Body<'_>,
    ) -> Intake {
        if !self.agrees(data, body) {
            return Intake::Contradiction;
        }
        let missing = self.arrivals.cumulative();
        if data.index >= missing.saturating_add(config.span_packets) {
            return Intake::TooFarAhead;
        }
        self.last_arrival_at = now;
        self.sequence.note(data.index);
        if !self.arrivals.insert(data.index) {
            return Intake::Copy;
        }
        if compares_priorities {
            self.reordering.on_arrival(data.index - missing, data.priority);
        }
        self.write(data, body);
        if self.arrivals.cumulative() == self.packets { Intake::Complete } else { Intake::Taken }
    }

    /// Number of packets that have not arrived.
    pub fn missing(&self) -> u32 {
        self.packets - self.arrivals.total()
    }

    /// Hears of a packet that has lost its payload. Says whether it is missing, and nothing if it
    /// contradicts what came before.
    pub fn hear_of(&mut self, now: Time, data: &Data, body: &Body<'_>) -> Option<bool> {
        if !self.agrees(data, body) {
            return None;
        }
        self.last_arrival_at = now;
        Some(!self.arrivals.contains(data.index))
    }

    /// Returns whether a packet can be of the same message.
    #[inline]
    fn agrees(&self, data: &Data, body: &Body<'_>) -> bool {
        data.message_bytes == self.message_bytes
            && data.segment_bytes == self.segment_bytes
            && matches!(body, Body::Bytes(_)) == self.body.is_some()
    }

    #[inline]
    fn write(&mut self, data: &Data, body: &Body<'_>) {
        if let (Some(message), Body::Bytes(bytes)) = (&mut self.body, body) {
            let start = data.offset().as_u64() as usize;
            message[start..start + bytes.len()].copy_from_slice(bytes);
        }
    }
}
