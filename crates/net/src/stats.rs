//! What a driver counts.

use std::io;

/// Counts since the driver was made. Packets are datagrams; super-packets are what one send or
/// receive carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Packets handed to the machine.
    pub received_packets: u64,
    /// Super-packets that the kernel handed over, good or bad.
    pub received_batches: u64,
    /// Super-packets from addresses that no peer has.
    pub dropped_strangers: u64,
    /// Packets without room for a header.
    pub dropped_short: u64,
    /// Super-packets to be cut by a length that cannot be.
    pub dropped_bad_segment: u64,
    /// Super-packets that were longer than the buffer.
    pub dropped_truncated: u64,
    /// Errors that the kernel reported instead of a packet and that passed.
    pub receive_errors: u64,

    /// Packets that the machine forwarded, or a copy of one for each multicast destination.
    pub forwarded_packets: u64,
    /// Packets that the machine sent itself.
    pub lent_packets: u64,
    /// Packets that the kernel took.
    pub sent_packets: u64,
    /// Super-packets that the kernel took.
    pub sent_batches: u64,
    /// Times the kernel had no room, and the driver kept what it had to send.
    pub sends_deferred: u64,
    /// Packets given up because the kernel had no room for too long.
    pub dropped_deferred: u64,
    /// Packets to a node without an address.
    pub dropped_unroutable: u64,
    /// Packets that the kernel refused for good, such as for want of a route or of permission.
    pub dropped_refused: u64,
    /// Why it last did.
    pub last_refusal: Option<io::ErrorKind>,
}

impl Stats {
    /// Packets that were to be sent and will not be.
    pub fn lost_sends(&self) -> u64 {
        self.dropped_deferred + self.dropped_unroutable + self.dropped_refused
    }
}
