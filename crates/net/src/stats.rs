//! Counters of a driver.

use std::io;

/// Counts since the driver was made. Packets are datagrams; GSO batches are what one send or
/// receive carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Packets handed to the machine.
    pub received_packets: u64,
    /// GSO batches that the kernel handed over, good or bad.
    pub received_batches: u64,
    /// GSO batches from addresses that no peer has.
    pub dropped_strangers: u64,
    /// Packets without room for a header.
    pub dropped_short: u64,
    /// GSO batches with an invalid segment length.
    pub dropped_bad_segment: u64,
    /// GSO batches that were longer than the buffer.
    pub dropped_truncated: u64,
    /// Errors that the kernel reported instead of a packet and that passed.
    pub receive_errors: u64,

    /// Packets that the machine forwarded, or a copy of one for each multicast destination.
    pub forwarded_packets: u64,
    /// Packets that the machine sent itself.
    pub lent_packets: u64,
    /// Packets that the kernel took.
    pub sent_packets: u64,
    /// GSO batches that the kernel took.
    pub sent_batches: u64,
    /// Times the kernel had no room, and the driver kept what it had to send.
    pub sends_deferred: u64,
    /// Packets given up because the kernel had no room for too long.
    pub dropped_deferred: u64,
    /// Packets to a node without an address.
    pub dropped_unroutable: u64,
    /// Packets that exceed the MTU of the interface.
    pub dropped_oversize: u64,
    /// Packets that the kernel refused for good, such as for want of a route or of permission.
    pub dropped_refused: u64,
    /// Why it last did.
    pub last_refusal: Option<io::ErrorKind>,
}

impl Stats {
    /// Packets that were to be sent and will not be.
    pub fn lost_sends(&self) -> u64 {
        self.dropped_deferred
            + self.dropped_unroutable
            + self.dropped_oversize
            + self.dropped_refused
    }
}

impl std::ops::AddAssign<&Stats> for Stats {
    fn add_assign(&mut self, other: &Stats) {
        let Stats {
            received_packets,
            received_batches,
            dropped_strangers,
            dropped_short,
            dropped_bad_segment,
            dropped_truncated,
            receive_errors,
            forwarded_packets,
            lent_packets,
            sent_packets,
            sent_batches,
            sends_deferred,
            dropped_deferred,
            dropped_unroutable,
            dropped_oversize,
            dropped_refused,
            last_refusal,
        } = other;
        self.received_packets += received_packets;
        self.received_batches += received_batches;
        self.dropped_strangers += dropped_strangers;
        self.dropped_short += dropped_short;
        self.dropped_bad_segment += dropped_bad_segment;
        self.dropped_truncated += dropped_truncated;
        self.receive_errors += receive_errors;
        self.forwarded_packets += forwarded_packets;
        self.lent_packets += lent_packets;
        self.sent_packets += sent_packets;
        self.sent_batches += sent_batches;
        self.sends_deferred += sends_deferred;
        self.dropped_deferred += dropped_deferred;
        self.dropped_unroutable += dropped_unroutable;
        self.dropped_oversize += dropped_oversize;
        self.dropped_refused += dropped_refused;
        self.last_refusal = last_refusal.or(self.last_refusal);
    }
}
