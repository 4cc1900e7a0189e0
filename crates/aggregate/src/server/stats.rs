//! Counters of a server.

use thalweg_core::counters;

use super::memory::BudgetError;

counters! {
    /// Counters, of one job or of all. They only grow.
    pub struct Stats {
        /// Gradient packets that came in.
        pub gradients: u64,
        /// Bytes that gradient packets occupied of the link.
        pub gradient_bytes: u64,
        /// Gradient packets added to a sum: what the switches left over.
        pub added: u64,
        /// Gradient packets that took the place of the less that was there.
        pub replaced: u64,
        /// Gradient packets dropped because a part of them was there already.
        pub overlaps: u64,
        /// Gradient packets for fragments that were complete.
        pub late: u64,
        /// Gradient packets that had met a collision at a switch.
        pub collisions: u64,
        /// Fragments completed.
        pub completed: u64,
        /// Contributions that fragments were completed without.
        pub left_out: u64,
        /// Queries for sums that could have been completed without somebody, and waited for what is missing, which is taken
        /// for important.
        pub important_awaited: u64,
        /// Fragments whose result a worker supplied.
        pub adopted: u64,
        /// Fragments that overflowed, so that floats were asked for.
        pub repeats: u64,
        /// Number of times that the scale of fixed point was lowered.
        pub rescaled: u64,
        /// Parameter packets sent, with those sent again.
        pub parameters: u64,
        /// Parameter packets sent again.
        pub parameters_again: u64,
        /// Parameter packets sent again to a switch that waited for them, for all below it.
        pub parameters_awaited: u64,
        /// Results not sent to a node that asked: the packets of the job have not paid for them.
        pub withheld: u64,
        /// Packets sent that ask for floats.
        pub repeats_sent: u64,
        /// Queries that came in.
        pub queries: u64,
        /// Requests sent for what is missing.
        pub requests: u64,
        /// Notices that came in from switches that did not know the job.
        pub notices: u64,
        /// Announcements sent to switches.
        pub announcements: u64,
        /// Probes of paths that were answered. Counted for all jobs together.
        pub path_probes: u64,
        /// Packets of another epoch, or about a fragment below the job watermark.
        pub stale: u64,
        /// Packets further ahead than any worker may be.
        pub beyond: u64,
        /// Packets from nobody in the job, or for another server.
        pub foreign: u64,
        /// Packets whose numbers, scale or length are not the fragment's.
        pub mismatched: u64,
        /// Gradient packets of another operation than the fragment's.
        pub differing: u64,
        /// Packets whose tag is not the job's.
        pub forged: u64,
        /// Packets dropped: of a job that is not known. Counted for all jobs together.
        pub unknown: u64,
        /// Packets dropped: not for a server, or not readable. Counted for all jobs together.
        pub malformed: u64,
        /// Packets dropped: of another version of the wire format. Counted for all jobs together.
        pub other_version: u64,
    }
}

counters! {
    /// Jobs that were not adopted, by the budget that they do not fit.
    pub struct Refusals {
        /// Jobs beyond the largest number of jobs.
        pub jobs: u64,
        /// Jobs that need more memory than one job may take.
        pub job_memory: u64,
        /// Jobs that need more memory than other jobs have left.
        pub memory: u64,
        /// Jobs that need more memory than other jobs of their token have left. Counted by programs that know tokens.
        pub token_memory: u64,
    }
}

impl Refusals {
    /// Counts a job that was refused.
    pub fn note(&mut self, reason: BudgetError) {
        *match reason {
            BudgetError::Jobs(_) => &mut self.jobs,
            BudgetError::JobMemory { .. } => &mut self.job_memory,
            BudgetError::Memory { .. } => &mut self.memory,
            BudgetError::TokenMemory { .. } => &mut self.token_memory,
        } += 1;
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
