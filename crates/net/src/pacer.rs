//! Departure times of all packets of a driver.

use thalweg_core::{Bytes, Header, NodeId, Time};

/// A packet that leaves.
#[derive(Clone, Copy, Debug)]
pub struct Departure<'a> {
    /// The node that it goes to.
    pub to: NodeId,
    /// Header, as the machine wrote it.
    pub header: &'a Header,
    /// Bytes that it occupies of a link.
    pub wire_bytes: Bytes,
}

/// With a pacer that spaces packets, the number of packets that leave together: a wake-up takes longer than a packet.
pub const PACED_BURST_PACKETS: usize = 8;

/// Decides when the next packets of a driver may leave, and knows where they go.
pub trait HostPacer {
    /// The earliest moment for the next packet: `now` or before if it may go at once.
    fn next_send(&self, now: Time) -> Time;

    /// Notes that a packet leaves.
    fn on_send(&mut self, now: Time, departure: &Departure<'_>);

    /// True if packets do not wait for it at present: it only counts them.
    fn is_open(&self) -> bool {
        false
    }

    /// Most packets that leave between two looks at [`next_send`](HostPacer::next_send).
    fn burst_packets(&self) -> usize {
        PACED_BURST_PACKETS
    }
}
