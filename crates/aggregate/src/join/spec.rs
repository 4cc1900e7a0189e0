//! What a job is registered with.

use thalweg_core::NodeId;
use thalweg_wire::aggregate::AGGREGATORS_MAX;
use thiserror::Error;

use crate::setup::{Indexing, Numeric, Recovery, Setup};

/// Most workers of a job: four times what two full levels of switches hold.
pub const WORKERS_MAX: u32 = 4_096;

/// Most servers of a job.
pub const SERVERS_MAX: usize = 1_024;

/// Most values of a fragment: what fits a UDP packet beside the header.
pub const FRAGMENT_VALUES_MAX: u16 = 16_360;

/// The specification of a job. [`JobSpec::new`] has the defaults.
#[derive(Clone, PartialEq, Debug)]
pub struct JobSpec {
    /// How many workers there are to be.
    pub workers: u32,
    /// The servers. Fragments are dealt to them in turn.
    pub servers: Vec<NodeId>,
    /// Values of a fragment. Default 352: fills an Ethernet frame.
    pub fragment_values: u16,
    /// What bodies hold. Default floats: no range to overflow.
    pub numeric: Numeric,
    /// How losses are repaired.
    pub recovery: Recovery,
    /// How fragments are spread over aggregators.
    pub indexing: Indexing,
    /// How many aggregators the switches have. Default 16,384: 23 MB of fragments of 352 values.
    pub aggregators: u32,
    /// How far the highest fragment that a worker has sent may be above its watermark. Default 4,096:
    /// what 100 Gbps carry in 460 µs.
    pub span_fragments: u16,
    /// What a packet occupies of a link beside its body. Default 130: Ethernet with preamble and gap,
    /// IPv4, UDP, and the header area.
    pub overhead_bytes: u32,
}

/// Why a specification is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SpecError {
    /// None, or too many.
    #[error("workers is {0}, must be 1 to {WORKERS_MAX}")]
    Workers(u32),
    /// None, or too many.
    #[error("{0} servers are named, must be 1 to {SERVERS_MAX}")]
    Servers(usize),
    /// A server is there twice.
    #[error("server {0} is named twice: name it once")]
    SameServer(NodeId),
    /// None, or more than a packet holds.
    #[error("fragment_values is {0}, must be 1 to {FRAGMENT_VALUES_MAX}")]
    FragmentValues(u16),
    /// None, or more than headers can number.
    #[error("aggregators is {0}, must be 1 to {AGGREGATORS_MAX}")]
    Aggregators(u32),
    /// Outside of what headers can express.
    #[error("span_fragments is {0}, must be 1 to {max}", max = Setup::SPAN_MAX)]
    Span(u16),
    /// More than a packet can be.
    #[error("overhead_bytes is {0}, must be at most 65535")]
    Overhead(u32),
}

impl JobSpec {
    /// A job with default settings.
    pub fn new(workers: u32, servers: Vec<NodeId>) -> JobSpec {
        JobSpec {
            workers,
            servers,
            fragment_values: 352,
            numeric: Numeric::Float,
            recovery: Recovery::default(),
            indexing: Indexing::default(),
            aggregators: 16_384,
            span_fragments: 4_096,
            overhead_bytes: 130,
        }
    }

    /// Whether a job can be like that.
    pub fn check(&self) -> Result<(), SpecError> {
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            return Err(SpecError::Workers(self.workers));
        }
        if !(1..=SERVERS_MAX).contains(&self.servers.len()) {
            return Err(SpecError::Servers(self.servers.len()));
        }
        let mut servers = self.servers.clone();
        servers.sort_unstable();
        if let Some(same) = servers.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(SpecError::SameServer(same[0]));
        }
        if !(1..=FRAGMENT_VALUES_MAX).contains(&self.fragment_values) {
            return Err(SpecError::FragmentValues(self.fragment_values));
        }
        if !(1..=AGGREGATORS_MAX).contains(&self.aggregators) {
            return Err(SpecError::Aggregators(self.aggregators));
        }
        if !(1..=Setup::SPAN_MAX).contains(&self.span_fragments) {
            return Err(SpecError::Span(self.span_fragments));
        }
        if self.overhead_bytes > 65_535 {
            return Err(SpecError::Overhead(self.overhead_bytes));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl Fn(&mut JobSpec)) -> Result<(), SpecError> {
        let mut spec = JobSpec::new(4, vec![NodeId(8), NodeId(9)]);
        change(&mut spec);
        spec.check()
    }

    #[test]
    fn defaults_are_right_and_contradictions_are_refused() {
        assert_eq!(check(|_| {}), Ok(()));
        assert_eq!(check(|spec| spec.workers = 4_096), Ok(()));
        assert_eq!(check(|spec| spec.workers = 0), Err(SpecError::Workers(0)));
        assert_eq!(check(|spec| spec.workers = 4_097), Err(SpecError::Workers(4_097)));
        assert_eq!(check(|spec| spec.servers.clear()), Err(SpecError::Servers(0)));
        let same = check(|spec| spec.servers.push(NodeId(8)));
        assert_eq!(same, Err(SpecError::SameServer(NodeId(8))));
        let none = check(|spec| spec.fragment_values = 0);
        assert_eq!(none, Err(SpecError::FragmentValues(0)));
        assert_eq!(check(|spec| spec.aggregators = 1 << 24), Ok(()));
        for aggregators in [0, (1 << 24) + 1] {
            let refused = check(|spec| spec.aggregators = aggregators);
            assert_eq!(refused, Err(SpecError::Aggregators(aggregators)));
        }
        assert_eq!(check(|spec| spec.span_fragments = 0), Err(SpecError::Span(0)));
        let span = check(|spec| spec.span_fragments = 32_768);
        assert_eq!(span, Err(SpecError::Span(32_768)));
        let overhead = check(|spec| spec.overhead_bytes = 65_536);
        assert_eq!(overhead, Err(SpecError::Overhead(65_536)));
    }

    #[test]
    fn a_default_fragment_fills_a_frame() {
        let spec = JobSpec::new(1, vec![NodeId(0)]);
        assert_eq!(u32::from(spec.fragment_values) * 4 + spec.overhead_bytes, 1_500 + 38);
    }
}
