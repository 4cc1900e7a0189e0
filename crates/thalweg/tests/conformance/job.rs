//! What is to be summed, and what the sums have to be.

use thalweg::Numeric;
use thalweg_aggregate::Recovery;
use thalweg_core::Rng;

use crate::cluster::Racks;

/// The operations of a job, all begun at once, and what happens meanwhile.
pub struct Job {
    pub numeric: Numeric,
    pub recovery: Recovery,
    /// On sockets; the other arms have one rack.
    pub racks: Racks,
    /// By operation, then by rank.
    pub tensors: Vec<Vec<Vec<f32>>>,
    pub trouble: Trouble,
}

/// What happens while the job runs.
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
            tensors,
            trouble: Trouble::Nothing,
        }
    }

    pub fn ranks(&self) -> u32 {
        self.tensors[0].len() as u32
    }

    /// The number of packets that each rank's values fill.
    pub fn fragments(&self) -> u64 {
        self.tensors.iter().map(|operation| operation[0].len().div_ceil(352) as u64).sum()
    }

    /// The tensors of one rank, by operation.
    pub fn tensors_of(&self, rank: u32) -> impl Iterator<Item = Vec<f32>> + '_ {
        self.tensors.iter().map(move |operation| operation[rank as usize].clone())
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
        let allowed = if parts.clone().all(is_whole) && self.step() < 0.1 {
            0.0
        } else {
            f64::from(self.ranks()) * (magnitude * f64::from(f32::EPSILON) + self.step())
        };
        let error = (f64::from(value) - exact).abs();
        assert!(error <= allowed, "{place} is {value}, not {exact} within {allowed}");
    }

    /// What rounding a contribution to fixed point may cost, with the least scale.
    fn step(&self) -> f64 {
        match self.numeric {
            Numeric::Auto | Numeric::Float => 0.0,
            Numeric::Fixed { scale, dynamic: false } => 1.0 / f64::from(scale),
            Numeric::Fixed { dynamic: true, .. } => 1.0 / 65_536.0,
            other => panic!("{other:?} is new"),
        }
    }
}
