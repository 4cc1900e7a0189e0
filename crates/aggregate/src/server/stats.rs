//! What a server has counted.

use thalweg_core::counters;

counters! {
    /// Counters, of one job or of all. They only grow.
    pub struct Stats {
        /// Gradient packets that came in.
        pub gradients: u64,
        /// What they occupied of the link.
        pub gradient_bytes: u64,
        /// Gradient packets whose values went into a sum: the aggregations that the switches left over.
        pub added: u64,
        /// Gradient packets that took the place of the less that was there.
        pub replaced: u64,
        /// Gradient packets dropped whole, because a part of them was there already.
        pub overlaps: u64,
        /// Gradient packets for fragments that were complete.
        pub late: u64,
        /// Gradient packets that had met a collision.
        pub collisions: u64,
        /// Fragments completed.
        pub completed: u64,
        /// Contributions that fragments were completed without (T-02).
        pub left_out: u64,
        /// Fragments whose result a worker supplied.
        pub adopted: u64,
        /// Fragments that overflowed, so that floats were asked for.
        pub repeats: u64,
        /// How often the scale was lowered.
        pub rescaled: u64,
        /// Parameter packets sent, with those sent again.
        pub parameters: u64,
        /// Parameter packets sent again.
        pub parameters_again: u64,
        /// Packets sent that ask for floats.
        pub repeats_sent: u64,
        /// Queries that came in.
        pub queries: u64,
        /// Requests sent.
        pub requests: u64,
        /// Notices that came in.
        pub notices: u64,
        /// Announcements sent.
        pub announcements: u64,
        /// Packets dropped: of another epoch, or about a fragment that everyone has.
        pub stale: u64,
        /// Packets dropped: further ahead than any worker may be.
        pub beyond: u64,
        /// Packets dropped: from nobody in the tree, or for another server.
        pub foreign: u64,
        /// Packets dropped: numbers, scale or length are not those of the fragment.
        pub mismatched: u64,
        /// Packets dropped: of another operation than what came before of the fragment (E-11).
        pub differing: u64,
        /// Packets dropped: the tag is not the job's.
        pub forged: u64,
        /// Packets dropped: of a job that is not known. Counted for all jobs together.
        pub unknown: u64,
        /// Packets dropped: not for a server, or not readable. Counted for all jobs together.
        pub malformed: u64,
    }
}

/// Why a packet was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    Stale,
    Beyond,
    Foreign,
    Mismatched,
    Differs,
}

impl Stats {
    pub(super) fn refuse(&mut self, why: Refusal) {
        *match why {
            Refusal::Stale => &mut self.stale,
            Refusal::Beyond => &mut self.beyond,
            Refusal::Foreign => &mut self.foreign,
            Refusal::Mismatched => &mut self.mismatched,
            Refusal::Differs => &mut self.differing,
        } += 1;
    }
}
