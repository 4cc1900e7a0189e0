//! Features for workloads that have sizes and nothing else.
//!
//! A flow's hint is ln(size) + u, with u uniform between −w and w; with probability ε it is the hint of
//! some other flow. The forest gets it in the place of the sizes of the last five flows, e^hint bytes
//! in each. Width w = 0 is precise knowledge; a large w tells nothing, and QCLIMB becomes PIAS with a
//! slack.
//!
//! A hint is made from the size that it hints at. [`types`] has features that are not.

pub mod types;

use thalweg_core::{Bytes, Rng, Time};

use crate::features::{FiveTuple, LAST_FLOWS, NewFlow};

/// Accuracy of the features.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hints {
    /// Largest distance of a hint from ln(size). Default 1.2.
    pub width: f64,
    /// Probability that a hint is another flow's. Default 0.01.
    pub swapped: f64,
}

impl Default for Hints {
    /// With 10 trees of depth 10 these come near to what QCLIMB reports of K-Means.
    fn default() -> Hints {
        Hints { width: 1.2, swapped: 0.01 }
    }
}

/// Destination of all generated flows.
const TUPLE: FiveTuple = FiveTuple { src: 1, dst: 2, src_port: 0, dst_port: 80, protocol: 6 };

/// Destination of flows that nobody learns from.
const UNSEEN: FiveTuple = FiveTuple { dst_port: 81, ..TUPLE };

/// Gives every size the features of a flow that hint at it.
pub fn describe(sizes: &[Bytes], hints: Hints, rng: &Rng) -> Vec<(NewFlow, Bytes)> {
    let (mut noise, mut swaps) = (rng.stream("noise"), rng.stream("swaps"));
    let own: Vec<Bytes> = sizes.iter().map(|&size| hints.at(size, &mut noise)).collect();
    let mut flow = |number: usize| {
        let other = swaps.below(own.len() as u64) as usize;
        let hint = if swaps.chance(hints.swapped) { own[other] } else { own[number] };
        (features(TUPLE, hint), sizes[number])
    };
    (0..sizes.len()).map(&mut flow).collect()
}

/// Gives flows the features that hint at their sizes as they start.
#[derive(Clone, Debug)]
pub struct Describer {
    hints: Hints,
    /// The hints of other flows.
    others: Vec<Bytes>,
    noise: Rng,
    swaps: Rng,
}

impl Describer {
    /// For flows like these, which ended before. Hints that are swapped are theirs.
    pub fn new(ended: &[(NewFlow, Bytes)], hints: Hints, rng: &Rng) -> Describer {
        let others = ended.iter().map(|(flow, _)| flow.last_bytes[0]).collect();
        Describer { hints, others, noise: rng.stream("noise"), swaps: rng.stream("swaps") }
    }

    /// A flow of `size` bytes starts. One that is not seen goes where none went before.
    pub fn describe(&mut self, size: Bytes, is_seen: bool) -> NewFlow {
        let own = self.hints.at(size, &mut self.noise);
        let other = self.swaps.below(self.others.len() as u64) as usize;
        let is_swapped = self.swaps.chance(self.hints.swapped) && !self.others.is_empty();
        let hint = if is_swapped { self.others[other] } else { own };
        features(if is_seen { TUPLE } else { UNSEEN }, hint)
    }
}

impl Hints {
    /// A hint at a size.
    fn at(&self, size: Bytes, noise: &mut Rng) -> Bytes {
        let about = self.width * (2.0 * noise.uniform() - 1.0);
        let hint = libm::log(size.as_u64().max(1) as f64) + about;
        Bytes::new(libm::rint(libm::exp(hint)) as u64)
    }
}

fn features(tuple: FiveTuple, hint: Bytes) -> NewFlow {
    NewFlow { tuple, start: Time::ZERO, gap: None, last_bytes: [hint; LAST_FLOWS] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes() -> Vec<Bytes> {
        let mut rng = Rng::new(5);
        (0..5_000).map(|_| Bytes::new(libm::exp(5.0 + 12.0 * rng.uniform()) as u64)).collect()
    }

    /// e^hint over size, of every flow.
    fn factors(hints: Hints) -> Vec<f64> {
        let described = describe(&sizes(), hints, &Rng::new(1));
        assert!(described.iter().all(|(flow, _)| flow.last_bytes == [flow.last_bytes[0]; 5]));
        let factor = |(flow, size): &(NewFlow, Bytes)| {
            flow.last_bytes[0].as_u64() as f64 / size.as_u64() as f64
        };
        described.iter().map(factor).collect()
    }

    #[test]
    fn hints_are_as_far_as_the_width() {
        let factors = factors(Hints { width: 1.2, swapped: 0.0 });
        let least = factors.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = factors.iter().copied().fold(0.0, f64::max);
        let edge = libm::exp(1.2);
        assert!((1.0 / edge..1.05 / edge).contains(&(least + 0.003)), "{least}");
        assert!((0.95 * edge..edge + 0.01).contains(&greatest), "{greatest}");
    }

    #[test]
    fn no_width_is_precise() {
        assert!(factors(Hints { width: 0.0, swapped: 0.0 }).iter().all(|&factor| factor == 1.0));
    }

    #[test]
    fn flows_that_start_are_described_like_those_that_ended() {
        let (hints, rng) = (Hints { width: 1.2, swapped: 0.1 }, Rng::new(1));
        let ended = describe(&sizes(), hints, &rng);
        let mut describer = Describer::new(&ended, hints, &rng.stream("new"));
        let mut far = 0;
        for (_, size) in &ended {
            let flow = describer.describe(*size, true);
            assert_eq!(flow.tuple, ended[0].0.tuple);
            let factor = flow.last_bytes[0].as_u64() as f64 / size.as_u64() as f64;
            far += u32::from(libm::fabs(libm::log(factor)) > 1.21);
        }
        assert!((250..600).contains(&far), "{far} of 5,000 have a hint of another flow");
        assert_ne!(describer.describe(Bytes::new(1), false).tuple, ended[0].0.tuple);
    }

    #[test]
    fn some_hints_are_swapped() {
        let wrong = factors(Hints { width: 0.0, swapped: 0.1 });
        let wrong = wrong.iter().filter(|&&factor| factor != 1.0).count();
        assert!((400..600).contains(&wrong), "{wrong} of 5,000");
    }
}
