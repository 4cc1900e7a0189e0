//! The parameters that the workers, switches and servers of a job share.

use std::ops::Deref;

use thalweg_core::{FRAME_BODY_BYTES, FRAME_OVERHEAD_BYTES};
use thalweg_wire::aggregate::{AGGREGATORS_MAX, VALUE_BYTES};
use thalweg_wire::tag::Generation;
use thiserror::Error;

use crate::setup::{Indexing, Numeric, Recovery};

/// Default number of values of a fragment: they fill an Ethernet frame.
pub const FRAGMENT_VALUES: u16 = FRAME_BODY_BYTES / 4;

/// Most values of a fragment: what fits a UDP packet beside the header.
pub const FRAGMENT_VALUES_MAX: u16 = 16_360;

/// Span of jobs on real networks, in fragments of 352 values; of longer ones a span has as many bytes. Their aggregators take
/// 0.7 MB of a core of the switch, and their sums as much of a core of the server: they stay in its cache. One sending thread
/// has 1.5 ms at 4 Gbps in flight with it. With the span of simulations aggregators collide more often, and come from memory.
// spec: F-03
pub const SPAN_FRAGMENTS: u16 = 512;

/// Default number of aggregators of a switch: with full frames 22 MiB, what a data-plane switch has of memory.
pub const AGGREGATORS: u32 = 16_384;

/// Parameters of a job that nobody has checked yet. [`check`](JobParameters::check) makes
/// [`CheckedParameters`] of them, and nothing else does: a [`Setup`](crate::Setup) has only those.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct JobParameters {
    /// Values of a fragment, of 32 bits each. Fragments of 16-bit values have as many bytes. Default
    /// [`FRAGMENT_VALUES`].
    pub fragment_values: u16,
    /// Numbers that bodies hold. Default floats: no range to overflow.
    pub numeric: Numeric,
    /// The repair of losses. Default selective.
    pub recovery: Recovery,
    /// The way in which fragments are spread over aggregators. Default hashed.
    pub indexing: Indexing,
    /// Number of aggregators of a switch. Default [`AGGREGATORS`].
    pub aggregators: u32,
    /// Most fragments between the watermark of a worker and the highest fragment that it has sent. Default
    /// 4,096: what 100 Gbps carry in 460 µs. Jobs on real networks have [`SPAN_FRAGMENTS`].
    pub span_fragments: u16,
    /// Bytes that a packet occupies of a link beside its body. Default [`FRAME_OVERHEAD_BYTES`].
    pub overhead_bytes: u32,
    /// Generation of the secret that the keys of the job follow from. Default none: that of the server's current one.
    pub generation: Option<Generation>,
    /// True if tags also cover bodies. Default false: nobody changes packets in flight.
    pub seals_bodies: bool,
    /// True if values of 16 bits travel in single precision: partial sums are then not rounded, and a packet has half as
    /// many values. Default false. Means nothing in fixed point, which carries 32 bits for each value.
    pub widens_halves: bool,
}

/// Parameters that a job can have.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CheckedParameters(JobParameters);

/// The reason why no job can have these parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ParameterError {
    /// None, or more than a packet holds.
    #[error("fragment_values is {0}, must be 1 to {FRAGMENT_VALUES_MAX}")]
    FragmentValues(u16),
    /// None, or more than headers can number.
    #[error("aggregators is {0}, must be 1 to {AGGREGATORS_MAX}")]
    Aggregators(u32),
    /// Outside of what headers can express.
    #[error("span_fragments is {0}, must be 1 to {max}", max = JobParameters::SPAN_MAX)]
    Span(u16),
    /// More than a packet can be.
    #[error("overhead_bytes is {0}, must be at most 65535")]
    Overhead(u32),
}

impl Default for JobParameters {
    fn default() -> JobParameters {
        JobParameters {
            fragment_values: FRAGMENT_VALUES,
            numeric: Numeric::Float,
            recovery: Recovery::default(),
            indexing: Indexing::default(),
            aggregators: AGGREGATORS,
            span_fragments: 4_096,
            overhead_bytes: FRAME_OVERHEAD_BYTES,
            generation: None,
            seals_bodies: false,
            widens_halves: false,
        }
    }
}

impl JobParameters {
    /// The most that a span can be: twice as much still fits the distances in headers.
    pub const SPAN_MAX: u16 = 32_767;

    /// Checks that a job can have them.
    pub fn check(self) -> Result<CheckedParameters, ParameterError> {
        if !(1..=FRAGMENT_VALUES_MAX).contains(&self.fragment_values) {
            return Err(ParameterError::FragmentValues(self.fragment_values));
        }
        if !(1..=AGGREGATORS_MAX).contains(&self.aggregators) {
            return Err(ParameterError::Aggregators(self.aggregators));
        }
        if !(1..=JobParameters::SPAN_MAX).contains(&self.span_fragments) {
            return Err(ParameterError::Span(self.span_fragments));
        }
        if self.overhead_bytes > 65_535 {
            return Err(ParameterError::Overhead(self.overhead_bytes));
        }
        Ok(CheckedParameters(self))
    }

    /// Returns whether values of 16 bits travel as such.
    // spec: F-02
    pub fn sends_halves(&self) -> bool {
        self.numeric == Numeric::Float && !self.widens_halves
    }

    /// Most bytes of a body.
    pub fn body_bytes(&self) -> usize {
        usize::from(self.fragment_values) * VALUE_BYTES
    }

    /// Most bytes of the sum of a fragment in memory: one of 16-bit values takes twice the bytes of a body.
    pub fn sum_bytes(&self) -> usize {
        self.body_bytes() * if self.sends_halves() { 2 } else { 1 }
    }

    /// Bytes that a full packet occupies of a link.
    pub fn packet_bytes(&self) -> u32 {
        u32::from(self.fragment_values) * 4 + self.overhead_bytes
    }
}

impl CheckedParameters {
    /// The same with a smaller span.
    pub(crate) fn with_span(self, span_fragments: u16) -> CheckedParameters {
        assert!((1..=self.span_fragments).contains(&span_fragments), "a span only shrinks");
        CheckedParameters(JobParameters { span_fragments, ..self.0 })
    }
}

impl Deref for CheckedParameters {
    type Target = JobParameters;

    fn deref(&self) -> &JobParameters {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::FULL_FRAME_BYTES;
    use thalweg_wire::aggregate::Scale;

    use super::*;

    fn check(change: impl Fn(&mut JobParameters)) -> Result<(), ParameterError> {
        let mut parameters = JobParameters::default();
        change(&mut parameters);
        parameters.check().map(|checked| assert_eq!(*checked, parameters))
    }

    #[test]
    fn defaults_are_right_and_contradictions_are_refused() {
        assert_eq!(check(|_| {}), Ok(()));
        for values in [0, 16_361] {
            let refused = check(|parameters| parameters.fragment_values = values);
            assert_eq!(refused, Err(ParameterError::FragmentValues(values)));
        }
        assert_eq!(check(|parameters| parameters.aggregators = 1 << 24), Ok(()));
        for aggregators in [0, (1 << 24) + 1] {
            let refused = check(|parameters| parameters.aggregators = aggregators);
            assert_eq!(refused, Err(ParameterError::Aggregators(aggregators)));
        }
        assert_eq!(check(|parameters| parameters.span_fragments = 32_767), Ok(()));
        for span in [0, 32_768] {
            let refused = check(|parameters| parameters.span_fragments = span);
            assert_eq!(refused, Err(ParameterError::Span(span)));
        }
        assert_eq!(check(|parameters| parameters.overhead_bytes = 65_535), Ok(()));
        let overhead = check(|parameters| parameters.overhead_bytes = 65_536);
        assert_eq!(overhead, Err(ParameterError::Overhead(65_536)));
    }

    // spec: F-02 machine
    #[test]
    fn halves_stay_halves_unless_they_are_widened() {
        let floats = JobParameters::default();
        let wide = JobParameters { widens_halves: true, ..floats };
        let numeric = Numeric::Fixed { scale: Scale::new(1e8).unwrap(), dynamic: false };
        let fixed = JobParameters { numeric, ..floats };
        let sends_halves = [floats, wide, fixed].map(|parameters| parameters.sends_halves());
        assert_eq!(sends_halves, [true, false, false]);
        assert_eq!([floats, wide, fixed].map(|it| it.sum_bytes()), [2 * 1_408, 1_408, 1_408]);
    }

    #[test]
    fn a_default_fragment_fills_a_frame() {
        assert_eq!(JobParameters::default().packet_bytes(), FULL_FRAME_BYTES);
        assert_eq!(FULL_FRAME_BYTES, 1_500 + 38);
    }
}
