//! Counts of an endpoint.

/// Counts of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Data packets sent.
    pub packets: u64,
    /// Packets among them that were sent again.
    pub resent: u64,
    /// Packets among them that were important.
    pub important: u64,
    /// Offers and probes sent, repeated ones too.
    pub questions: u64,
    /// Probes among them.
    pub probes: u64,
    /// Bitmaps received.
    pub bitmaps: u64,
    /// Offers and probes that were not answered in time.
    pub unanswered: u64,
    /// Echoes that came back.
    pub echoes: u64,
    /// Segments that arrived, each once.
    pub arrived: u64,
    /// Segments that arrived again.
    pub duplicates: u64,
    /// Packets that belong to no call, or to one that has ended.
    pub late: u64,
    /// Packets that are not of this plane, this job or this epoch, or not sealed with the key.
    pub foreign: u64,
    /// Packets such as no honest endpoint sends.
    pub malformed: u64,
    /// Answers for which there was no room.
    pub no_room: u64,
    /// Paths that are hardly used now, because they lose more than the others, over all peers.
    // spec: M-21
    pub left_paths: u64,
}
