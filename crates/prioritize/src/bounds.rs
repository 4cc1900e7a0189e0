//! Bounds of a flow's size.

use thalweg_core::Bytes;
use thiserror::Error;

use crate::features::{FiveTuple, NewFlow};
use crate::forest::{self, Forest, Scratch, Settings, SettingsError, TrainingSet, Watch};

/// A flow has at least the lower and at most the upper bound, most likely.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// The fewest bytes.
    pub lower: Bytes,
    /// The most bytes, not below the fewest.
    pub upper: Bytes,
}

impl Bounds {
    /// True if a size lies within.
    pub fn contain(&self, bytes: Bytes) -> bool {
        (self.lower..=self.upper).contains(&bytes)
    }
}

/// Options by which a model reads flows and its forest.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// True if the start of a flow is a feature. Default false: it is informative only within the trace
    /// that was learned from (QCLIMB §4.1).
    pub uses_start: bool,
    /// The share of flows like this one that shall lie between the bounds. Default 1: all of them.
    pub beta: f64,
}

impl Default for Options {
    fn default() -> Options {
        Options { uses_start: false, beta: 1.0 }
    }
}

/// Why there is no model.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
pub enum ModelError {
    /// An invalid share.
    #[error("a share of {0} is none: take beta from 0 to 1")]
    Beta(f64),
    /// The forest cannot be trained.
    #[error(transparent)]
    Training(#[from] SettingsError),
}

/// A trained model: a forest, and the destinations of the flows that it was trained on.
#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    pub(crate) forest: Forest,
    /// Ascending, see [`destination`].
    pub(crate) known: Vec<u64>,
    pub(crate) options: Options,
}

impl Model {
    /// Learns from flows that have ended.
    pub fn train(
        flows: &[(NewFlow, Bytes)],
        settings: &Settings,
        options: Options,
        watch: &Watch<'_>,
    ) -> Result<Model, ModelError> {
        options.check()?;
        let mut set = TrainingSet::default();
        let mut known = Vec::with_capacity(flows.len());
        for (flow, bytes) in flows {
            set.push(&flow.row(options.uses_start), *bytes);
            known.push(destination(&flow.tuple));
        }
        known.sort_unstable();
        known.dedup();
        Ok(Model { forest: forest::train(&set, settings, watch)?, known, options })
    }

    /// Bounds of the flow's size. `None` when no flow to its destination and port was learned
    /// from: such flows are for [PIAS](crate::tagger::Pias).
    // spec
    pub fn bounds(&self, flow: &NewFlow, scratch: &mut Scratch) -> Option<Bounds> {
        if !self.knows(&flow.tuple) {
            return None;
        }
        let row = flow.row(self.options.uses_start);
        let beta = self.options.beta;
        let (lower, upper) = if beta == 1.0 {
            self.forest.range(&row)
        } else {
            self.forest.quantiles(&row, (1.0 - beta) / 2.0, (1.0 + beta) / 2.0, scratch)
        };
        Some(Bounds { lower, upper })
    }

    /// Estimate of the flow's size, as one number: the mean of flows like it. At least one byte.
    pub fn estimate(&self, flow: &NewFlow) -> Option<Bytes> {
        let row = flow.row(self.options.uses_start);
        let mean = self.knows(&flow.tuple).then(|| self.forest.mean(&row))?;
        Some(Bytes::new((libm::rint(mean) as u64).max(1)))
    }

    /// True if a flow to that destination and port was learned from.
    // spec: Q-05
    pub fn knows(&self, tuple: &FiveTuple) -> bool {
        self.known.binary_search(&destination(tuple)).is_ok()
    }

    /// Addresses and ports that it has learned flows to, ascending.
    pub fn destinations(&self) -> impl Iterator<Item = (u32, u16)> {
        self.known.iter().map(|known| ((known >> 16) as u32, *known as u16))
    }

    /// The trees.
    pub fn forest(&self) -> &Forest {
        &self.forest
    }

    /// Options by which it reads flows and its trees.
    pub fn options(&self) -> Options {
        self.options
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), ModelError> {
        if (0.0..=1.0).contains(&self.beta) { Ok(()) } else { Err(ModelError::Beta(self.beta)) }
    }
}

/// Address and port in one number.
fn destination(tuple: &FiveTuple) -> u64 {
    u64::from(tuple.dst) << 16 | u64::from(tuple.dst_port)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::ops::ControlFlow;

    use thalweg_core::{Rng, Time};

    use super::*;
    use crate::features::History;

    pub(crate) fn flow(src: u32, dst: u32, dst_port: u16) -> NewFlow {
        let tuple = FiveTuple { src, dst, src_port: 7, dst_port, protocol: 6 };
        History::default().describe(tuple, Time::ZERO)
    }

    /// Flows to two hosts, small ones and large ones.
    pub(crate) fn flows(count: u64, seed: u64) -> Vec<(NewFlow, Bytes)> {
        let mut rng = Rng::new(seed);
        let mut one = |number: u64| {
            let (dst, base) = if number.is_multiple_of(2) { (1, 1_000) } else { (2, 1_000_000) };
            (flow(9, dst, 80), Bytes::new(base + rng.below(100)))
        };
        (0..count).map(&mut one).collect()
    }

    pub(crate) fn model(count: u64, seed: u64, options: Options) -> Model {
        let watch = |_| ControlFlow::Continue(());
        Model::train(&flows(count, seed), &Settings::default(), options, &watch).unwrap()
    }

    // spec: Q-02 machine
    #[test]
    fn bounds_are_all_of_it_or_a_share() {
        let all = model(400, 1, Options::default());
        let most = model(400, 1, Options { beta: 0.5, ..Options::default() });
        let scratch = &mut Scratch::default();
        let wide = all.bounds(&flow(9, 1, 80), scratch).unwrap();
        let narrow = most.bounds(&flow(9, 1, 80), scratch).unwrap();
        assert!(wide.lower.as_u64() < 1_005 && wide.upper.as_u64() > 1_094, "{wide:?}");
        assert!((1_015..=1_035).contains(&narrow.lower.as_u64()), "{narrow:?}");
        assert!((1_065..=1_085).contains(&narrow.upper.as_u64()), "{narrow:?}");
        assert!(wide.contain(wide.lower) && wide.contain(wide.upper));
        assert!(!wide.contain(Bytes::new(wide.upper.as_u64() + 1)));
        let large = all.estimate(&flow(9, 2, 80)).unwrap().as_u64();
        assert!((1_000_030..=1_000_070).contains(&large), "{large}");
    }

    // spec: Q-05 machine
    #[test]
    fn what_was_never_sent_to_has_no_bounds() {
        let model = model(50, 1, Options::default());
        let scratch = &mut Scratch::default();
        assert!(model.bounds(&flow(3, 1, 80), scratch).is_some(), "any sender will do");
        for stranger in [flow(9, 1, 81), flow(9, 3, 80), flow(9, 0x1_0001, 80)] {
            assert_eq!(model.bounds(&stranger, scratch), None);
            assert_eq!(model.estimate(&stranger), None);
        }
    }

    #[test]
    fn a_share_is_from_0_to_1() {
        let watch = |_| ControlFlow::Continue(());
        for beta in [-0.1, 1.1, f64::NAN] {
            let options = Options { beta, ..Options::default() };
            let result = Model::train(&flows(5, 1), &Settings::default(), options, &watch);
            assert!(matches!(result, Err(ModelError::Beta(_))));
        }
    }
}
