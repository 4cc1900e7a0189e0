//! One incoming message: what has arrived of it, and where it is put together.

use thalweg_core::{Body, Bytes, NodeId, Time};
use thalweg_wire::flow::Data;

use crate::bits::Arrivals;
use crate::message::{FlowId, Received};

/// An incoming message, or the place where one was.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    pub src: NodeId,
    pub flow: u64,
    /// When its last packet came. Tells messages whose sender is gone.
    pub heard_at: Time,
    message_bytes: Bytes,
    segment_bytes: u32,
    packets: u32,
    arrivals: Arrivals,
    /// The message as far as it is there. None if only lengths are carried.
    body: Option<Box<[u8]>>,
}

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Intake {
    /// It contradicts what came before and was not taken in.
    Contradiction,
    /// It lies further ahead than there is room for.
    TooFarAhead,
    /// It was taken in, now or when it came the first time.
    Taken,
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
        self.heard_at = now;
        self.flow = data.flow;
        self.message_bytes = data.message_bytes;
        self.segment_bytes = data.segment_bytes;
        self.packets = packets;
        self.arrivals.reset();
        self.body = body;
    }

    /// Gives up the message and what it held. Returns how many real bytes that were.
    pub fn abandon(&mut self) -> u64 {
        self.body.take().map_or(0, |body| body.len() as u64)
    }

    /// Hands out the complete message.
    pub fn finish(&mut self, now: Time) -> Received {
        Received {
            src: self.src,
            flow: FlowId(self.flow),
            bytes: self.message_bytes,
            finished: now,
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

    /// Takes in a packet whose body is as long as its header says.
    #[inline]
    pub fn take_in(&mut self, now: Time, data: &Data, body: &Body<'_>, span: u32) -> Intake {
        if !self.agrees(data, body) {
            return Intake::Contradiction;
        }
        if data.index >= self.arrivals.cumulative().saturating_add(span) {
            return Intake::TooFarAhead;
        }
        self.heard_at = now;
        if self.arrivals.insert(data.index) {
            self.write(data, body);
        }
        if self.arrivals.cumulative() == self.packets { Intake::Complete } else { Intake::Taken }
    }

    /// How many packets have not arrived.
    pub fn missing(&self) -> u32 {
        self.packets - self.arrivals.total()
    }

    /// Hears of a packet that has lost its payload. Says whether it is missing, and nothing if it
    /// contradicts what came before.
    pub fn hear_of(&mut self, now: Time, data: &Data, body: &Body<'_>) -> Option<bool> {
        if !self.agrees(data, body) {
            return None;
        }
        self.heard_at = now;
        Some(!self.arrivals.contains(data.index))
    }

    /// Whether it can be of the same message.
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
