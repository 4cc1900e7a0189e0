//! Priorities of the packets of a connection, as a program in the kernel sees them.
//!
//! The program at a host's interface does the same in a few hundred instructions; tests compare the two packet by
//! packet.

use thalweg_core::{Bytes, Span, Time};

use super::qclimb::Qclimb;
use super::thresholds::Thresholds;
use crate::bounds::Bounds;

/// Rule for the priorities of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketRule {
    /// Edges of the priorities.
    pub thresholds: Thresholds,
    /// Bytes that a flow may send at the highest priority beyond its lower bound.
    pub slack: Bytes,
    /// A connection that sends data after a pause of at least this length begins another flow.
    pub idle_after: Span,
}

/// The flow that a connection carries now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CarriedFlow {
    /// Bytes of it that were sent.
    pub sent: Bytes,
    /// Sequence number of the byte after them.
    pub next_sequence: u32,
    /// Moment of its last packet with data.
    pub last_at: Time,
    /// Bounds on its size, which never change.
    pub bounds: Option<Bounds>,
}

/// A packet of TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Number of its first byte.
    pub sequence: u32,
    /// Bytes of data.
    pub payload_bytes: u32,
    /// True if the packet opens a connection.
    pub opens: bool,
}

impl PacketRule {
    /// The priority of a packet that leaves now. `carried` is the state of its connection, `next` the bounds of the next
    /// flow between these ends.
    ///
    /// Packets without data, and data that was sent before, have the highest priority; the first packet of a connection
    /// forgets what was known of another one between the same ports.
    // spec
    pub fn priority(
        &self,
        carried: &mut Option<CarriedFlow>,
        now: Time,
        segment: Segment,
        next: Option<Bounds>,
    ) -> u8 {
        let Segment { sequence, payload_bytes, opens } = segment;
        if opens {
            *carried = None;
            return 0;
        }
        if payload_bytes == 0 {
            return 0;
        }
        let after = sequence.wrapping_add(payload_bytes);
        let begin = || CarriedFlow {
            sent: Bytes::ZERO,
            next_sequence: sequence,
            last_at: now,
            bounds: next,
        };
        let flow = carried.get_or_insert_with(begin);
        let ahead = sequence.wrapping_sub(flow.next_sequence);
        if ahead >> 31 != 0 {
            flow.last_at = now;
            return 0;
        }
        if now >= flow.last_at + self.idle_after {
            *flow = begin();
        }
        // Bytes in between went another way, or were sent while nobody looked.
        let ahead = sequence.wrapping_sub(flow.next_sequence);
        let before = flow.sent + Bytes::new(u64::from(ahead));
        flow.sent = before + Bytes::new(u64::from(payload_bytes));
        (flow.next_sequence, flow.last_at) = (after, now);
        match flow.bounds {
            Some(bounds) => {
                Qclimb { thresholds: self.thresholds, bounds, slack: self.slack }.priority(before)
            }
            None => self.thresholds.priority_of(before),
        }
    }
}
