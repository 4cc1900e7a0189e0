//! Settings of a worker, and what it counts.

use thalweg_core::{Ecn, Span, Tag, counters};
use thalweg_transport::control::Aimd;
use thalweg_transport::{Control, ControlError, PathSettings};
use thalweg_values::Importance;
use thiserror::Error;

/// Settings of a [`Worker`](super::Worker). They may differ between the workers of a job.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Config {
    /// Congestion control. Default that of ATP, [`Aimd`].
    pub control: Control,
    /// Least time that a fragment may be unanswered before something is done about it: longer where
    /// round trips are. Default 1 ms, the paper's.
    pub timeout_after: Span,
    /// Number of round trips to wait after something was done about a fragment before more is done.
    /// Default 2: the question and its answer. Where links are slow, the answer to a question may be
    /// another question, and twice as many save asking twice.
    pub patience_round_trips: u32,
    /// Least time to wait after the last answer before the oldest fragment alone is asked for,
    /// and at least two round trips: cheaper than a timeout, and sooner where it is set. Default never.
    pub probe_after: Option<Span>,
    /// Longest such time, however often it was doubled because nothing came, and the longest round trip that is learned
    /// from. Default 64 ms: six doublings, since another worker may just be late.
    pub timeout_max: Span,
    /// A fragment is lost when this number of later ones were answered. Default 3. 0 where
    /// packets are sprayed or prioritised and overtaking means nothing: then by time only.
    pub loss_threshold: u32,
    /// Number of queries in vain after which the next ones bypass the switches; after as many resends, every other
    /// one becomes such a query. Default 3 (T-10).
    pub queries_before_bypass: u32,
    /// The time that a clock that all hosts share showed at [`Time::ZERO`](thalweg_core::Time::ZERO), modulo
    /// one second: it makes all workers probe the base round trip at the same moments, which
    /// a control by delay needs to share a link fairly with other jobs. Default `None`: no clock is shared.
    /// Then the worker never probes, since alone it would only measure the queues of the others, and a job
    /// that began beside another one may get a larger share than that one.
    pub shared_phase: Option<Span>,
    /// Paths of packets with values. Where they are several, packets of different batches may overtake each other: a fragment is lost
    /// when a batch more was answered. Default one path.
    // spec: M-21
    pub paths: PathSettings,
    /// Tag of packets. Default: training, the least urgent, ECN-capable.
    pub tag: Tag,
    /// Rule that tells important fragments of bounded operations apart. Those that are not important are the first to be
    /// left out. Default [`Importance::All`]: all are alike.
    // spec: M-20
    pub importance: Importance,
    /// ECN of fragments that are not important and may be left out. Default not ECN-capable: queues that drop by
    /// importance drop them first. A kernel sends packets in one batch only if they have the same ECN.
    // spec: M-20
    pub droppable_ecn: Ecn,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            control: Aimd::default().into(),
            timeout_after: Span::from_ms(1),
            patience_round_trips: 2,
            probe_after: None,
            timeout_max: Span::from_ms(64),
            loss_threshold: 3,
            queries_before_bypass: 3,
            shared_phase: None,
            paths: PathSettings { count: 1, batch_packets: 16, leaves_lossy: true },
            tag: Tag::training(),
            importance: Importance::All,
            droppable_ecn: Ecn::NotCapable,
        }
    }
}

/// The largest [`Config::loss_threshold`]: as many numbers are remembered for each server.
pub const LOSS_THRESHOLD_MAX: u32 = 1_024;

/// Why settings cannot work. The configuration is at fault.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
pub enum ConfigError {
    /// Everything would count as lost at once.
    #[error("timeout_after is zero: set it to at least a round trip")]
    NoTimeout,
    /// No path.
    #[error("paths.count and paths.batch_packets are at least 1")]
    NoPath,
    /// The limits of the timeout contradict each other.
    #[error("timeout_max is {max}, below timeout_after, {after}: raise it")]
    TimeoutMax {
        /// The largest timeout.
        max: Span,
        /// The timeout to begin with.
        after: Span,
    },
    /// More than is remembered.
    #[error("loss_threshold is {0}, at most {LOSS_THRESHOLD_MAX} fit; 0 means by time only")]
    LossThreshold(u32),
    /// Invalid settings of the congestion control.
    #[error(transparent)]
    Control(#[from] ControlError),
}

impl Config {
    /// Refuses settings that a worker cannot work with.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.timeout_after == Span::ZERO {
            return Err(ConfigError::NoTimeout);
        }
        if self.paths.count == 0 || self.paths.batch_packets == 0 {
            return Err(ConfigError::NoPath);
        }
        if self.timeout_max < self.timeout_after {
            let (max, after) = (self.timeout_max, self.timeout_after);
            return Err(ConfigError::TimeoutMax { max, after });
        }
        if self.loss_threshold > LOSS_THRESHOLD_MAX {
            return Err(ConfigError::LossThreshold(self.loss_threshold));
        }
        Ok(self.control.check()?)
    }

    /// Later answers that show a fragment to be lost.
    // spec: A-33, M-21
    pub(super) fn overtaken_by(&self) -> u32 {
        match (self.loss_threshold, self.paths.count) {
            (0, _) => 0,
            (threshold, 1) => threshold,
            (threshold, _) => threshold.saturating_add(self.paths.batch_packets),
        }
    }
}

counters! {
    /// Counters of a worker, over all epochs.
    pub struct Stats {
        /// Fragments sent for the first time in their epoch.
        pub fragments_sent: u64,
        /// Contributions sent again because they seemed lost.
        pub resent: u64,
        /// Queries sent (T-10).
        pub queries: u64,
        /// Contributions sent because they were asked for (T-10).
        pub repairs: u64,
        /// Results sent because a server had lost them.
        pub results: u64,
        /// Contributions sent in floats because a sum left the range.
        pub repeats: u64,
        /// Fragments that nothing came for in time.
        pub timeouts: u64,
        /// Times that the oldest fragment was asked for because nothing came.
        pub probes: u64,
        /// Fragments that were overtaken.
        pub losses: u64,
        /// First answers to a fragment that carried a congestion mark, in the header or of the network.
        pub marked: u64,
        /// Number of times that a congestion mark halved the window.
        pub mark_halvings: u64,
        /// Number of times that a loss halved the window.
        pub loss_halvings: u64,
        /// Parameter packets of this set-up that arrived.
        pub parameters: u64,
        /// Number of them for fragments that were complete already.
        pub duplicates: u64,
        /// Packets that were not for this worker, this set-up or any fragment.
        pub ignored: u64,
        /// Values that are not zero and were sent as zero, since they are at most half a step of fixed point
        /// (T-09). Counted when a fragment is sent for the first time; where its sum then left the range, it
        /// was repeated in floats with all of its values.
        pub underflowed_values: u64,
        /// Paths that are hardly used now, because they lose more than the others (M-21).
        pub left_paths: u64,
        /// Bytes of values for which the sum is there.
        pub completed_bytes: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_work_and_contradictions_are_refused() {
        let config = Config::default();
        assert_eq!(config.check(), Ok(()));
        let check = |config: Config| config.check().unwrap_err();
        assert_eq!(check(Config { timeout_after: Span::ZERO, ..config }), ConfigError::NoTimeout);
        let (max, after) = (Span::from_us(1), config.timeout_after);
        let error = ConfigError::TimeoutMax { max, after };
        assert_eq!(check(Config { timeout_max: max, ..config }), error);
        let paths = PathSettings { batch_packets: 0, ..config.paths };
        assert_eq!(check(Config { paths, ..config }), ConfigError::NoPath);
        let error = ConfigError::LossThreshold(1_025);
        assert_eq!(check(Config { loss_threshold: 1_025, ..config }), error);
    }
}
