//! What a server has counted.

use std::ops::AddAssign;

/// Counters, of one job or of all. They only grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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

impl Stats {
    /// All counters with their names.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("gradients", self.gradients),
            ("gradient_bytes", self.gradient_bytes),
            ("added", self.added),
            ("replaced", self.replaced),
            ("overlaps", self.overlaps),
            ("late", self.late),
            ("collisions", self.collisions),
            ("completed", self.completed),
            ("left_out", self.left_out),
            ("adopted", self.adopted),
            ("repeats", self.repeats),
            ("rescaled", self.rescaled),
            ("parameters", self.parameters),
            ("parameters_again", self.parameters_again),
            ("repeats_sent", self.repeats_sent),
            ("queries", self.queries),
            ("requests", self.requests),
            ("notices", self.notices),
            ("announcements", self.announcements),
            ("stale", self.stale),
            ("beyond", self.beyond),
            ("foreign", self.foreign),
            ("mismatched", self.mismatched),
            ("differing", self.differing),
            ("forged", self.forged),
            ("unknown", self.unknown),
            ("malformed", self.malformed),
        ]
    }
}

impl AddAssign<&Stats> for Stats {
    fn add_assign(&mut self, other: &Stats) {
        self.gradients += other.gradients;
        self.gradient_bytes += other.gradient_bytes;
        self.added += other.added;
        self.replaced += other.replaced;
        self.overlaps += other.overlaps;
        self.late += other.late;
        self.collisions += other.collisions;
        self.completed += other.completed;
        self.left_out += other.left_out;
        self.adopted += other.adopted;
        self.repeats += other.repeats;
        self.rescaled += other.rescaled;
        self.parameters += other.parameters;
        self.parameters_again += other.parameters_again;
        self.repeats_sent += other.repeats_sent;
        self.queries += other.queries;
        self.requests += other.requests;
        self.notices += other.notices;
        self.announcements += other.announcements;
        self.stale += other.stale;
        self.beyond += other.beyond;
        self.foreign += other.foreign;
        self.mismatched += other.mismatched;
        self.differing += other.differing;
        self.forged += other.forged;
        self.unknown += other.unknown;
        self.malformed += other.malformed;
    }
}
