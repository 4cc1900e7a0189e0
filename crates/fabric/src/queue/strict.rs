//! Eight queues, the most urgent first.

use thalweg_core::{LAST_PRIORITY, Meta, PRIORITIES};

use super::{Admission, Lane, Marking, Queue, Waiting};
use crate::pool::PacketRef;

/// The last of the queues.
const LAST: usize = LAST_PRIORITY as usize;

/// Strict priorities by the packet's class, in one buffer.
#[derive(Debug)]
pub struct Strict {
    queues: [Lane; PRIORITIES],
    /// A bit for each queue that is not empty.
    occupied: u8,
    bytes: u64,
    marking: StrictMarking,
    queue_limit: QueueLimit,
    last: LastShare,
}

/// The most that one of several queues of a port may hold, however much room the port has.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum QueueLimit {
    /// As much, whatever waits in the others.
    Bytes(u64),
    /// This many times the free memory of the port: a long queue leaves room for the others.
    OfFree(f64),
}

impl QueueLimit {
    /// No limit but that of the port.
    pub const NONE: QueueLimit = QueueLimit::Bytes(u64::MAX);

    /// The limit, with this many free bytes of the port's memory.
    #[inline]
    fn bytes(self, free_bytes: u64) -> u64 {
        match self {
            QueueLimit::Bytes(bytes) => bytes,
            QueueLimit::OfFree(alpha) => (free_bytes as f64 * alpha) as u64,
        }
    }
}

/// Share of the link that the last priority has while more urgent ones are waiting.
///
/// Without one it could starve: who waits in the last priority because it is another's turn must at least go on
/// answering.
// spec: C-16
#[derive(Clone, Copy, Debug, Default)]
struct LastShare {
    per_mille: u64,
    /// Bytes that the others have sent since it had its share, times that share.
    owed: u64,
}

/// Bytes that the marking threshold of strict priorities is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StrictMarking {
    /// Bytes that wait in the packet's own queue, each with a threshold of its own.
    PerQueue([Marking; PRIORITIES]),
    /// Bytes that wait in all of them, each with a threshold of its own.
    PerPort([Marking; PRIORITIES]),
}

impl Strict {
    /// Empty queues that mark in this way, none of which ever holds more than its limit.
    pub fn new(marking: StrictMarking, queue_limit: QueueLimit) -> Strict {
        let last = LastShare::default();
        Strict { queues: Default::default(), occupied: 0, bytes: 0, marking, queue_limit, last }
    }

    /// The same queues, of which the last has this share of the link, in thousandths, while others are waiting.
    #[must_use]
    pub fn with_last_share(self, per_mille: u32) -> Strict {
        let per_mille = u64::from(per_mille.min(LastShare::WHOLE as u32 - 1));
        Strict { last: LastShare { per_mille, owed: 0 }, ..self }
    }

    /// The priority of the next packet to leave.
    #[inline]
    fn next_class(&self) -> usize {
        if self.last.per_mille > 0
            && let Some(next) = self.queues[LAST].waiting.front()
            && self.last.is_due(next.bytes)
        {
            return LAST;
        }
        self.occupied.trailing_zeros() as usize
    }

    /// The size of the next packet to leave.
    pub(super) fn next_bytes(&self) -> Option<u32> {
        let queue = self.queues.get(self.next_class())?;
        queue.waiting.front().map(|next| next.bytes)
    }
}

impl LastShare {
    /// A whole link.
    const WHOLE: u64 = 1_000;

    /// True if the last priority may send a packet although others are waiting.
    fn is_due(&self, bytes: u32) -> bool {
        self.owed >= u64::from(bytes) * (LastShare::WHOLE - self.per_mille)
    }

    fn on_departure(&mut self, is_last: bool, is_waiting: bool, bytes: u32) {
        let bytes = u64::from(bytes);
        self.owed = match (is_last, is_waiting) {
            // Who has nothing to send saves nothing up.
            (_, false) => 0,
            (true, true) => self.owed.saturating_sub(bytes * (LastShare::WHOLE - self.per_mille)),
            (false, true) => self.owed + bytes * self.per_mille,
        };
    }
}

impl Queue for Strict {
    fn enqueue(&mut self, packet: PacketRef, meta: &mut Meta, limit_bytes: u64) -> Admission {
        let wire_bytes = u64::from(meta.wire_bytes);
        let class = usize::from(meta.dscp.priority());
        let queue = &mut self.queues[class];
        let queue_limit_bytes = self.queue_limit.bytes(limit_bytes.saturating_sub(self.bytes));
        if self.bytes + wire_bytes > limit_bytes
            || !queue.has_room(meta.wire_bytes, queue_limit_bytes)
        {
            return Admission::Full;
        }
        let admitted = match &self.marking {
            StrictMarking::PerQueue(markings) => markings[class].apply(meta, queue.bytes),
            StrictMarking::PerPort(markings) => markings[class].apply(meta, self.bytes),
        };
        if !admitted {
            return Admission::Unmarkable;
        }
        self.bytes += wire_bytes;
        self.occupied |= 1 << class;
        queue.push(Waiting { packet, bytes: meta.wire_bytes });
        Admission::Queued
    }

    fn dequeue(&mut self) -> Option<(PacketRef, u32)> {
        let class = self.next_class();
        let queue = self.queues.get_mut(class)?;
        let (packet, bytes) = queue.pop_front()?;
        if self.last.per_mille > 0 {
            let is_waiting = !self.queues[LAST].waiting.is_empty();
            self.last.on_departure(class == LAST, is_waiting, bytes);
        }
        let queue = &self.queues[class];
        if queue.waiting.is_empty() {
            self.occupied &= !(1 << class);
        }
        self.bytes -= u64::from(bytes);
        Some((packet, bytes))
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn packets(&self) -> usize {
        self.queues.iter().map(|queue| queue.waiting.len()).sum()
    }
}
