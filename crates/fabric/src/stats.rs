//! Counters.

/// Counters of one direction of a cable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkStats {
    /// Packets that it sent.
    pub sent_packets: u64,
    /// Bytes that it sent.
    pub sent_bytes: u64,
    /// Packets that its queue turned away.
    pub dropped_packets: u64,
    /// Packets that its queue marked.
    pub marked_packets: u64,
    /// Packets that its queue cut to their headers.
    pub trimmed_packets: u64,
    /// Packets that were sent back to their sender as headers: there was no room even for these.
    pub returned_packets: u64,
    /// Packets that a fault doubled.
    pub duplicated_packets: u64,
    /// Packets that a fault lost on the wire.
    pub lost_packets: u64,
    /// The most that ever waited.
    pub peak_queue_bytes: u64,
}

/// Why a packet ended before its destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DropReason {
    /// The queue was full.
    QueueFull,
    /// The queue was above its threshold and the packet could not be marked.
    Unmarkable,
    /// A fault rule lost it on the wire.
    Fault,
    /// It came to a node that was down, or waited in one that went down.
    NodeDown,
    /// There was no way to its destination, or nobody there.
    NoRoute,
}

impl DropReason {
    /// All of them, in order.
    pub const ALL: [DropReason; 5] = [
        DropReason::QueueFull,
        DropReason::Unmarkable,
        DropReason::Fault,
        DropReason::NodeDown,
        DropReason::NoRoute,
    ];

    /// A name for tables and traces.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::QueueFull => "queue full",
            DropReason::Unmarkable => "not markable",
            DropReason::Fault => "fault",
            DropReason::NodeDown => "node down",
            DropReason::NoRoute => "no route",
        }
    }
}

/// Counters of the whole fabric.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FabricStats {
    /// Turns of the event loop.
    pub events: u64,
    /// Packets that crossed a link.
    pub packet_hops: u64,
    /// Packets that machines made.
    pub created_packets: u64,
    /// Packets that multicast and faults made.
    pub copied_packets: u64,
    /// Packets that machines took in.
    pub consumed_packets: u64,
    /// Packets that ended early, in the order of [`DropReason::ALL`].
    pub dropped_packets: [u64; DropReason::ALL.len()],
}

impl FabricStats {
    /// Packets that ended early.
    pub fn dropped(&self) -> u64 {
        self.dropped_packets.iter().sum()
    }
}
