//! Messages of types: sizes that repeat, and features that say the type.
//!
//! Programs send the same things again and again: a tensor of every iteration, a partition of every shuffle. So a
//! type has one size, give or take a little, and the features of its messages are those of its type: the port of its
//! application, the time since the message before it, and the sizes of those before it, in the order in which its
//! application sends. Some flows are strangers: they look like a type and have any size. No feature is computed from
//! the size of the same flow.

use thalweg_core::{Bytes, Rng, Span, Time};
use thiserror::Error;

use crate::features::{FiveTuple, LAST_FLOWS, NewFlow};

/// Settings of message types.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TypeSettings {
    /// Number of types. Default 80.
    pub types: u32,
    /// Exponent of their popularity: the k-th has a share in proportion to 1/k^s, the smallest first. Default 1.
    pub popularity: f64,
    /// Share by which a size may be off its type's: by all of it, to either side, or not at all. Default 0.001.
    pub jitter: f64,
    /// Share of flows that look like a type and have any size. Default 0.0005.
    pub strangers: f64,
}

impl Default for TypeSettings {
    fn default() -> TypeSettings {
        TypeSettings { types: 80, popularity: 1.0, jitter: 0.001, strangers: 0.000_5 }
    }
}

/// Most types.
const MAX_TYPES: u32 = 10_000;

/// Reason why there are no such types.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
pub enum TypesError {
    /// A number of types.
    #[error("{0} types are none: give 1 to {MAX_TYPES}")]
    Types(u32),
    /// An exponent.
    #[error("popularity {0} is no exponent: give a number from 0 to 4")]
    Popularity(f64),
    /// A share.
    #[error("{name} is {value}: give a share from 0 to less than 1")]
    Share {
        /// The setting.
        name: &'static str,
        /// The value.
        value: f64,
    },
}

impl TypeSettings {
    /// Checks the settings.
    pub fn check(&self) -> Result<(), TypesError> {
        if !(1..=MAX_TYPES).contains(&self.types) {
            return Err(TypesError::Types(self.types));
        }
        if !(0.0..=4.0).contains(&self.popularity) {
            return Err(TypesError::Popularity(self.popularity));
        }
        for (name, value) in [("jitter", self.jitter), ("strangers", self.strangers)] {
            if !(0.0..1.0).contains(&value) {
                return Err(TypesError::Share { name, value });
            }
        }
        Ok(())
    }
}

/// Messages that an application sends in turn.
const SCRIPT_TYPES: usize = 8;

/// The first port of applications.
const FIRST_PORT: u16 = 5_000;

/// The port of messages that nobody learns from.
const UNSEEN_PORT: u16 = 81;

/// A type of messages.
#[derive(Clone, Copy, PartialEq, Debug)]
struct MessageType {
    bytes: Bytes,
    share: f64,
    port: u16,
    gap: Span,
    /// The types that its application sends before it, the latest first.
    before: [u32; LAST_FLOWS],
}

/// All types of messages of some traffic.
#[derive(Clone, PartialEq, Debug)]
pub struct MessageTypes {
    /// By size, rising: no two have the same.
    types: Vec<MessageType>,
    settings: TypeSettings,
}

/// The ends of all messages, but for the port.
const TUPLE: FiveTuple = FiveTuple { src: 1, dst: 2, src_port: 0, dst_port: 0, protocol: 6 };

impl MessageTypes {
    /// Types whose sizes follow a curve: each has as much of it as its popularity says, and the size in the middle of
    /// that. `quantile` is the size below which a share of flows is.
    pub fn new(
        settings: TypeSettings,
        quantile: impl Fn(f64) -> f64,
    ) -> Result<MessageTypes, TypesError> {
        settings.check()?;
        let weight = |rank: u32| libm::pow(f64::from(rank), -settings.popularity);
        let whole: f64 = (1..=settings.types).map(weight).sum();
        let mut sizes: Vec<(Bytes, f64)> = Vec::new();
        let mut below = 0.0;
        for rank in 1..=settings.types {
            let share = weight(rank) / whole;
            let bytes = Bytes::new((libm::rint(quantile(below + share / 2.0)) as u64).max(1));
            below += share;
            match sizes.last_mut() {
                Some((last, of_last)) if *last >= bytes => *of_last += share,
                _ => sizes.push((bytes, share)),
            }
        }
        Ok(MessageTypes { types: in_applications(&sizes), settings })
    }

    /// The sizes of types with their shares of the flows.
    pub fn shares(&self) -> Vec<(Bytes, f64)> {
        self.types.iter().map(|kind| (kind.bytes, kind.share)).collect()
    }

    /// The type of a size, which [`MessageTypes::shares`] has.
    pub fn kind_of(&self, bytes: Bytes) -> u32 {
        self.types.partition_point(|kind| kind.bytes < bytes).min(self.types.len() - 1) as u32
    }

    /// Draws a type by its popularity.
    pub fn draw(&self, rng: &mut Rng) -> u32 {
        let mut left = rng.uniform();
        for (number, kind) in (0..).zip(&self.types) {
            left -= kind.share;
            if left < 0.0 {
                return number;
            }
        }
        self.types.len() as u32 - 1
    }

    /// The size of a message of a type. `any` draws that of a stranger.
    pub fn size(&self, kind: u32, rng: &mut Rng, any: impl FnOnce(&mut Rng) -> Bytes) -> Bytes {
        let (is_stranger, step) = (rng.chance(self.settings.strangers), rng.below(3));
        if is_stranger { any(rng) } else { self.jittered(kind, step) }
    }

    fn jittered(&self, kind: u32, step: u64) -> Bytes {
        let bytes = self.types[kind as usize].bytes.as_u64() as f64;
        let off = bytes * self.settings.jitter * (step as f64 - 1.0);
        Bytes::new((libm::rint(bytes + off) as u64).max(1))
    }

    /// Features of a message of a type. One that is not seen goes where none went before.
    pub fn describe(&self, kind: u32, is_seen: bool, rng: &mut Rng) -> NewFlow {
        let own = &self.types[kind as usize];
        let gap = own.gap.as_us_f64() * (0.9 + 0.2 * rng.uniform());
        let last_bytes = own.before.map(|before| self.jittered(before, rng.below(3)));
        let dst_port = if is_seen { own.port } else { UNSEEN_PORT };
        NewFlow {
            tuple: FiveTuple { dst_port, ..TUPLE },
            start: Time::ZERO,
            gap: Some(Span::from_ns((gap * 1e3) as u64)),
            last_bytes,
        }
    }

    /// Messages that ended before. `any` draws the size of a stranger.
    pub fn ended(
        &self,
        count: u32,
        rng: &Rng,
        any: impl Fn(&mut Rng) -> Bytes,
    ) -> Vec<(NewFlow, Bytes)> {
        let (mut kinds, mut sizes) = (rng.stream("kinds"), rng.stream("sizes"));
        let mut features = rng.stream("features");
        let message = |_| {
            let kind = self.draw(&mut kinds);
            let bytes = self.size(kind, &mut sizes, &any);
            (self.describe(kind, true, &mut features), bytes)
        };
        (0..count).map(message).collect()
    }
}

/// Deals sizes to applications, each of which sends its messages in turn, after pauses of their own.
fn in_applications(sizes: &[(Bytes, f64)]) -> Vec<MessageType> {
    // The same for every seed, as applications are.
    let mut rng = Rng::new(0).stream("applications");
    let mut order: Vec<u32> = (0..sizes.len() as u32).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, rng.below(last as u64 + 1) as usize);
    }
    let mut types: Vec<MessageType> = sizes
        .iter()
        .map(|&(bytes, share)| MessageType {
            bytes,
            share,
            port: 0,
            gap: Span::ZERO,
            before: [0; LAST_FLOWS],
        })
        .collect();
    for (application, script) in (0..).zip(order.chunks(SCRIPT_TYPES)) {
        for (place, &kind) in script.iter().enumerate() {
            let earlier =
                |back: usize| script[(place + (back + 1) * (script.len() - 1)) % script.len()];
            let own = &mut types[kind as usize];
            own.port = FIRST_PORT + application;
            // From 10 µs to 10 ms.
            own.gap = Span::from_ns((libm::pow(10.0, 4.0 + 3.0 * rng.uniform())) as u64);
            own.before = std::array::from_fn(earlier);
        }
    }
    types
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ops::ControlFlow;

    use super::*;
    use crate::evaluate::{Class, Summary, judge};
    use crate::{Model, Options, Settings};

    /// From 100 bytes to 20 MB, most of them small.
    fn quantile(share: f64) -> f64 {
        100.0 * libm::exp(12.2 * share * share)
    }

    fn any(rng: &mut Rng) -> Bytes {
        Bytes::new(quantile(rng.uniform()) as u64)
    }

    fn types(settings: TypeSettings) -> MessageTypes {
        MessageTypes::new(settings, quantile).unwrap()
    }

    #[test]
    fn sizes_follow_the_curve_and_small_ones_are_popular() {
        let types = types(TypeSettings::default());
        let shares = types.shares();
        assert!(shares.is_sorted_by(|one, other| one.0 < other.0 && one.1 >= other.1));
        let mean: f64 = shares.iter().map(|(bytes, share)| bytes.as_u64() as f64 * share).sum();
        let of_curve =
            (0..10_000).map(|place| quantile((f64::from(place) + 0.5) / 1e4)).sum::<f64>() / 1e4;
        assert!((mean / of_curve - 1.0).abs() < 0.05, "{mean} against {of_curve}");
        for (kind, &(bytes, _)) in (0..).zip(&shares) {
            assert_eq!(types.kind_of(bytes), kind);
        }
    }

    #[test]
    fn a_size_repeats_within_its_jitter() {
        let types = types(TypeSettings { strangers: 0.0, ..TypeSettings::default() });
        let mut rng = Rng::new(3);
        let kind = types.types.len() as u32 - 1;
        let of_type = types.types[kind as usize].bytes.as_u64();
        let sizes: BTreeSet<u64> =
            (0..50).map(|_| types.size(kind, &mut rng, any).as_u64()).collect();
        assert_eq!(sizes.len(), 3, "{sizes:?}");
        assert!(sizes.iter().all(|&bytes| bytes.abs_diff(of_type) <= of_type / 999));
    }

    // spec: Q-01 machine
    #[test]
    fn features_say_the_type_and_nothing_of_the_size() {
        let types = types(TypeSettings::default());
        for kind in 0..types.types.len() as u32 {
            let [one, other] = [1, 2].map(|seed| types.describe(kind, true, &mut Rng::new(seed)));
            assert_eq!(one.tuple, other.tuple);
            // Its own size is not among those before it.
            let own = types.types[kind as usize].bytes.as_u64() as f64;
            let is_own = |bytes: &Bytes| (bytes.as_u64() as f64 / own - 1.0).abs() < 1e-3;
            assert!(one.last_bytes.iter().all(|bytes| !is_own(bytes)), "type {kind}: {one:?}");
        }
        let unseen = types.describe(0, false, &mut Rng::new(1));
        assert!(types.types.iter().all(|kind| kind.port != unseen.tuple.dst_port));
    }

    /// Judges messages by a forest that learned from others.
    fn judged(settings: TypeSettings) -> Summary {
        let types = types(settings);
        let learned = types.ended(8_000, &Rng::new(1), any);
        let tested = types.ended(8_000, &Rng::new(2), any);
        let never_stopped = |_| ControlFlow::Continue(());
        let model =
            Model::train(&learned, &Settings::default(), Options::default(), &never_stopped);
        Summary::of(&judge(&model.unwrap(), &tested))
    }

    #[test]
    fn only_strangers_are_out_of_their_bounds() {
        let summary = judged(TypeSettings { strangers: 0.0, ..TypeSettings::default() });
        assert!(summary.bounded_share().unwrap() > 0.999, "{summary:?}");
        let large = summary.class(Class::Large);
        assert!(large.mean_gap().unwrap() < 0.01 * large.mean_lower().unwrap(), "{large:?}");
        let strange = judged(TypeSettings { strangers: 0.02, ..TypeSettings::default() });
        assert!(strange.bounded_share().unwrap() < summary.bounded_share().unwrap());
        let of_strange = strange.class(Class::Large).mean_lower().unwrap();
        assert!(of_strange < 0.7 * large.mean_lower().unwrap(), "a stray flow makes a bound loose");
    }

    #[test]
    fn settings_are_checked() {
        let settings = TypeSettings::default();
        for wrong in [
            TypeSettings { types: 0, ..settings },
            TypeSettings { popularity: -1.0, ..settings },
            TypeSettings { jitter: 1.0, ..settings },
            TypeSettings { strangers: f64::NAN, ..settings },
        ] {
            assert!(MessageTypes::new(wrong, quantile).is_err(), "{wrong:?}");
        }
    }
}
