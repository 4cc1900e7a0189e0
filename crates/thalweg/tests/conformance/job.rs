//! Values to sum, and the sums that have to result.

use thalweg::Numeric;
use thalweg_aggregate::Recovery;
use thalweg_core::{Element, Rng};
use thalweg_values::{Float, Tensor};

use crate::cluster::Racks;

/// The operations of a job, all begun at once, and what happens meanwhile.
pub struct Job {
    pub numeric: Numeric,
    pub recovery: Recovery,
    /// On sockets; the other arms have one rack.
    pub racks: Racks,
    /// Type of the values.
    pub element: Element,
    /// By operation, then by rank, each value as its type has it.
    pub tensors: Vec<Vec<Vec<f32>>>,
    pub trouble: Trouble,
}

/// Roundings of a contribution: at the switch of its rack and at the server.
const ROUNDINGS: f64 = 2.0;

/// Largest error of one rounding.
struct Rounding {
    /// Relative to the value.
    unit: f64,
    /// Of a subnormal value.
    least: f64,
}

/// Disturbance while the job runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    Nothing,
    /// Packets are lost; where the arm can, they are doubled and overtake each other too.
    Loss,
    /// The switch is killed in the middle, and another one started in its place.
    SwitchRestart,
}

impl Job {
    /// Sums of small integers, which every type holds exactly.
    pub fn of_integers(ranks: u32, lengths: &[usize]) -> Job {
        Job::of(ranks, lengths, |draw| draw.below(201) as f32 - 100.0)
    }

    /// Sums of whatever is drawn. The same at every arm.
    pub fn of(ranks: u32, lengths: &[usize], value: impl Fn(&mut Rng) -> f32) -> Job {
        let rng = Rng::new(3);
        let tensor = |(operation, length): (usize, usize), rank: u32| {
            let mut draw = rng.substream(&format!("operation {operation}"), rank.into());
            (0..length).map(|_| value(&mut draw)).collect()
        };
        let operation = |(operation, length): (usize, &usize)| {
            (0..ranks).map(|rank| tensor((operation, *length), rank)).collect()
        };
        let tensors = lengths.iter().enumerate().map(operation).collect();
        Job {
            numeric: Numeric::Float,
            recovery: Recovery::Selective,
            racks: Racks::ONE,
            element: Element::F32,
            tensors,
            trouble: Trouble::Nothing,
        }
    }

    /// The same with values of 16 bits, rounded to their type.
    pub fn of_halves<T: Float>(
        ranks: u32,
        lengths: &[usize],
        value: impl Fn(&mut Rng) -> f32,
    ) -> Job {
        let rounded = |draw: &mut Rng| T::round(value(draw)).widen();
        Job { element: T::ELEMENT, ..Job::of(ranks, lengths, rounded) }
    }

    pub fn ranks(&self) -> u32 {
        self.tensors[0].len() as u32
    }

    /// The number of packets that each rank's values fill: twice as many of 16 bits fit as of 32.
    pub fn fragments(&self) -> u64 {
        let values = if self.rounding().is_some() { 704 } else { 352 };
        self.tensors.iter().map(|operation| operation[0].len().div_ceil(values) as u64).sum()
    }

    /// Checks the packets that a rank has sent for the first time, where values have 16 bits: two bytes each.
    pub fn check_sent(&self, fragments_sent: u64) {
        let expected = self.rounding().map(|_| self.fragments());
        assert!(expected.is_none_or(|expected| fragments_sent == expected), "{fragments_sent}");
    }

    /// The tensors of one rank, by operation.
    pub fn tensors_of(&self, rank: u32) -> impl Iterator<Item = Vec<f32>> + '_ {
        self.tensors.iter().map(move |operation| operation[rank as usize].clone())
    }

    /// The same as machines take them.
    pub fn typed_tensors_of(&self, rank: u32) -> impl Iterator<Item = Tensor> + '_ {
        self.tensors_of(rank).map(|wide| {
            let mut tensor = match self.element {
                Element::F16 => Tensor::F16(vec![Default::default(); wide.len()].into()),
                Element::Bf16 => Tensor::Bf16(vec![Default::default(); wide.len()].into()),
                _ => return wide.into(),
            };
            tensor.slice_mut(0..wide.len() as u64).round(&wide);
            tensor
        })
    }

    /// Checks all sums, by rank and then by operation: right, and the same bits at every rank.
    pub fn check(&self, sums: &[Vec<Vec<f32>>]) {
        assert_eq!(sums.len(), self.ranks() as usize);
        let bits = |sum: &[f32]| sum.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        for (operation, tensors) in self.tensors.iter().enumerate() {
            let first = &sums[0][operation];
            assert_eq!(first.len(), tensors[0].len(), "operation {operation}");
            for (at, value) in first.iter().enumerate() {
                let parts = tensors.iter().map(|tensor| tensor[at]);
                self.check_value(&format!("value {at} of operation {operation}"), *value, parts);
            }
            let expected = bits(first);
            for (rank, sums) in sums.iter().enumerate() {
                assert!(bits(&sums[operation]) == expected, "operation {operation}, rank {rank}");
            }
        }
    }

    fn check_value(&self, place: &str, value: f32, parts: impl Iterator<Item = f32> + Clone) {
        let exact: f64 = parts.clone().map(f64::from).sum();
        if !exact.is_finite() {
            let is_right = if exact.is_nan() { value.is_nan() } else { f64::from(value) == exact };
            assert!(is_right, "{place} is {value}, not {exact}");
            return;
        }
        let is_whole = |part: f32| part.fract() == 0.0 && part.abs() < 1e4;
        let magnitude: f64 = parts.clone().map(|part| f64::from(part.abs())).sum();
        let wide = f64::from(self.ranks()) * (magnitude * f64::from(f32::EPSILON) + self.step());
        let allowed = match self.rounding() {
            Some(Rounding { unit, least }) => wide + ROUNDINGS * (unit * magnitude + least),
            None if parts.clone().all(is_whole) && self.step() < 0.1 => 0.0,
            None => wide,
        };
        let error = (f64::from(value) - exact).abs();
        assert!(error <= allowed, "{place} is {value}, not {exact} within {allowed}");
    }

    /// Cost of rounding to 16 bits. `None` where values have 32.
    fn rounding(&self) -> Option<Rounding> {
        match self.element {
            Element::F16 => Some(Rounding { unit: 2_f64.powi(-11), least: 2_f64.powi(-25) }),
            Element::Bf16 => Some(Rounding { unit: 2_f64.powi(-8), least: 2_f64.powi(-134) }),
            _ => None,
        }
    }

    /// Error that rounding a contribution to fixed point may cost, with the least scale.
    fn step(&self) -> f64 {
        match self.numeric {
            Numeric::Auto | Numeric::Float => 0.0,
            Numeric::Fixed { scale, dynamic: false } => 1.0 / f64::from(scale),
            Numeric::Fixed { dynamic: true, .. } => 1.0 / 65_536.0,
            other => panic!("{other:?} is new"),
        }
    }
}
