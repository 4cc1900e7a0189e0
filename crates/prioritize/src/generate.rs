//! Features for workloads that have sizes and nothing else.
//!
//! A flow's hint is ln(size) + u, with u uniform between −w and w; with probability ε it is the hint of
//! some other flow. The forest gets it in the place of the sizes of the last five flows, e^hint bytes
//! in each. Width w = 0 is precise knowledge; a large w tells nothing, and QCLIMB becomes PIAS with a
//! slack.

use thalweg_core::{Bytes, Rng, Time};

use crate::features::{FiveTuple, LAST_FLOWS, NewFlow};

/// How much the features tell.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hints {
    /// How far a hint is from ln(size) at most. Default 1.2.
    pub width: f64,
    /// How likely a hint is another flow's. Default 0.01.
    pub swapped: f64,
}

impl Default for Hints {
    /// With 10 trees of depth 10 these come near to what QCLIMB reports of K-Means.
    fn default() -> Hints {
        Hints { width: 1.2, swapped: 0.01 }
    }
}

/// Where all generated flows go.
const TUPLE: FiveTuple = FiveTuple { src: 1, dst: 2, src_port: 0, dst_port: 80, protocol: 6 };

/// Gives every size the features of a flow that hint at it.
pub fn describe(sizes: &[Bytes], hints: Hints, rng: &Rng) -> Vec<(NewFlow, Bytes)> {
    let (mut noise, mut swaps) = (rng.stream("noise"), rng.stream("swaps"));
    let mut hinted = |size: Bytes| {
        let hint =
            libm::log(size.as_u64().max(1) as f64) + hints.width * (2.0 * noise.uniform() - 1.0);
        Bytes::new(libm::rint(libm::exp(hint)) as u64)
    };
    let own: Vec<Bytes> = sizes.iter().copied().map(&mut hinted).collect();
    let mut flow = |number: usize| {
        let other = swaps.below(own.len() as u64) as usize;
        let hint = if swaps.chance(hints.swapped) { own[other] } else { own[number] };
        let last_bytes = [hint; LAST_FLOWS];
        let flow = NewFlow { tuple: TUPLE, start: Time::ZERO, gap: None, last_bytes };
        (flow, sizes[number])
    };
    (0..sizes.len()).map(&mut flow).collect()
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
    fn some_hints_are_swapped() {
        let wrong = factors(Hints { width: 0.0, swapped: 0.1 });
        let wrong = wrong.iter().filter(|&&factor| factor != 1.0).count();
        assert!((400..600).contains(&wrong), "{wrong} of 5,000");
    }
}
