//! Contributions of workers, and the bounds that their sum must keep.

use thalweg_aggregate::{Numeric, Reliability};
use thalweg_core::{Element, Rng};
use thalweg_values::{Coverage, Fixed, Half, Part, Tensor};

use crate::plan::{Contents, JobPlan, Way};

/// The tensor of one worker for one operation. Always the same one, as if computed again.
pub fn tensor(seed: u64, job: usize, plan: &JobPlan, rank: usize, operation: usize) -> Tensor {
    let label = format!("tensor {job} {operation}");
    let mut draw = Rng::new(seed).substream(&label, rank as u64);
    let values = plan.values(rank, operation);
    let wide: Vec<f32> = (0..values).map(|_| plan.contents.value(&mut draw)).collect();
    let mut tensor = match plan.elements[operation] {
        Element::F16 => Tensor::F16(vec![Default::default(); values as usize].into()),
        Element::Bf16 => Tensor::Bf16(vec![Default::default(); values as usize].into()),
        _ => return wide.into(),
    };
    tensor.slice_mut(0..values).round(&wide);
    tensor
}

/// The values of a tensor in single precision.
pub fn widened(tensor: &Tensor) -> Vec<f32> {
    let mut wide = vec![0.0; tensor.len() as usize];
    tensor.slice(0..tensor.len()).widen(&mut wide);
    wide
}

impl Contents {
    fn value(self, draw: &mut Rng) -> f32 {
        let small = (draw.uniform() - 0.5) as f32 * 0.2;
        match self {
            Contents::Small => small,
            Contents::Large if draw.chance(0.02) => small * 150.0,
            Contents::Strange if draw.chance(0.005) => {
                [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30][draw.below(4) as usize]
            }
            Contents::Large | Contents::Strange => small,
        }
    }
}

/// The contributions to one operation, and the laws that its sum has to keep.
pub struct Oracle {
    tensors: Vec<Vec<f32>>,
    values: usize,
    /// True if a worker calls another operation: then there is no sum.
    differs: bool,
    numeric: Numeric,
    contents: Contents,
    fragment_values: usize,
    /// Roundings of a contribution, with the cost of each. None where values have 32 bits.
    rounding: Option<Rounding>,
    servers: u32,
    reliability: Reliability,
    /// Result at each worker that still lives.
    held: Vec<Option<Held>>,
}

/// Cost of rounding to 16 bits.
#[derive(Clone, Copy)]
struct Rounding {
    /// Most roundings that a contribution meets: one at each level, and one at the server.
    count: f64,
    /// The largest relative error of one.
    unit: f64,
    /// The largest error of one where values are subnormal.
    least: f64,
}

impl Rounding {
    fn of(plan: &JobPlan, operation: usize) -> Option<Rounding> {
        let half = Half::of(plan.elements[operation])?;
        let levels = match plan.way {
            Way::Rack => 1,
            Way::TwoLevels => 2,
            Way::ThreeLevels => 3,
            _ => 0,
        };
        let levels = if plan.is_narrow(operation) { levels } else { 0 };
        let (unit, least) = match half {
            Half::F16 => (2_f64.powi(-11), 2_f64.powi(-25)),
            Half::Bf16 => (2_f64.powi(-8), 2_f64.powi(-134)),
        };
        Some(Rounding { count: f64::from(levels + 1), unit, least })
    }
}

struct Held {
    /// From which value on it has sums.
    from: usize,
    sum: Vec<f32>,
    /// Ranks that are missing in the fragment of each value.
    missing: Vec<Vec<u32>>,
}

impl Oracle {
    pub fn new(seed: u64, job: usize, plan: &JobPlan, operation: usize) -> Oracle {
        let ranks = 0..plan.workers.len();
        Oracle {
            tensors: ranks.map(|rank| widened(&tensor(seed, job, plan, rank, operation))).collect(),
            values: plan.operations[operation] as usize,
            differs: plan.difference.is_some_and(|it| it.operation == operation),
            numeric: plan.numeric,
            contents: plan.contents,
            fragment_values: plan.fragment_values(operation) as usize,
            rounding: Rounding::of(plan, operation),
            servers: plan.servers.len() as u32,
            reliability: plan.reliabilities[operation],
            held: plan.workers.iter().map(|_| None).collect(),
        }
    }

    /// Checks a worker's sum. A part at its beginning that lacks every rank has no result.
    pub fn check(&mut self, rank: usize, sum: &[f32], coverage: &Coverage) -> Result<(), String> {
        // spec: E-11 simulator
        if self.differs {
            return Err("it has a result, although ranks differ".to_owned());
        }
        let values = self.values;
        if sum.len() != values {
            return Err(format!("{} values instead of {values}", sum.len()));
        }
        // spec: T-11 simulator
        let parts = coverage.missing().ok_or("aggregation reports what is missing")?;
        let lacks_all =
            |part: &&Part| part.values.start == 0 && part.ranks.len() == self.tensors.len();
        let without_result = parts.first().filter(lacks_all);
        let from = without_result.map_or(0, |part| part.values.end as usize);
        let parts = &parts[usize::from(without_result.is_some())..];
        self.check_bound(parts)?;
        let mut missing = vec![Vec::new(); values.div_ceil(self.fragment_values)];
        for Part { values: range, ranks, .. } in parts {
            let fragment = range.start as usize / self.fragment_values;
            let first = fragment * self.fragment_values;
            let end = values.min(first + self.fragment_values);
            if *range != (first as u64..end as u64) {
                return Err(format!("{range:?} is no fragment"));
            }
            missing[fragment].clone_from(ranks);
        }
        for (at, &value) in sum.iter().enumerate().skip(from) {
            self.check_value(at, value, &missing[at / self.fragment_values])?;
        }
        for other in self.held.iter().flatten() {
            let from = from.max(other.from);
            let mut pairs = sum.iter().zip(&other.sum).skip(from);
            if let Some((own, other)) = pairs.find(|(a, b)| a.to_bits() != b.to_bits()) {
                return Err(format!("a value is {own}, another worker has {other}"));
            }
            let from = from.div_ceil(self.fragment_values);
            if missing[from..] != other.missing[from..] {
                return Err("two workers have reports of different contributors".to_owned());
            }
        }
        self.held[rank] = Some(Held { from, sum: sum.to_vec(), missing });
        Ok(())
    }

    /// Nobody misses more than its share, and nobody anything of what is exact.
    fn check_bound(&self, parts: &[Part]) -> Result<(), String> {
        let fragments = self.values.div_ceil(self.fragment_values) as u32;
        let (each, more) = (fragments / self.servers, fragments % self.servers);
        let allowed = match self.reliability {
            Reliability::Exact => 0,
            Reliability::Bounded(share) => {
                share.of(each + 1) * more + share.of(each) * (self.servers - more)
            }
        };
        let missed = |rank| parts.iter().filter(|part| part.ranks.contains(&rank)).count() as u64;
        match (0..self.tensors.len() as u32).find(|&rank| missed(rank) > u64::from(allowed)) {
            None => Ok(()),
            Some(rank) => Err(format!("rank {rank} misses {}, not {allowed}", missed(rank))),
        }
    }

    /// A worker crashed. What it alone had seen, nobody knows any more, and may be summed anew in
    /// another order.
    pub fn forget(&mut self, rank: usize) {
        self.held[rank] = None;
    }

    /// The sum is that of the ranks that are reported to be in it.
    fn check_value(&self, at: usize, value: f32, missing: &[u32]) -> Result<(), String> {
        let is_there = |(rank, _): &(u32, _)| !missing.contains(rank);
        let parts = || {
            let there = (0..).zip(&self.tensors).filter(is_there);
            there.map(|(_, tensor): (u32, &Vec<f32>)| tensor[at])
        };
        let exact: f64 = parts().map(f64::from).sum();
        if !exact.is_finite() {
            let right = if exact.is_nan() { value.is_nan() } else { f64::from(value) == exact };
            return if right { Ok(()) } else { Err(format!("value {at} is {value}, not {exact}")) };
        }
        if let (Numeric::Fixed { scale, .. }, Contents::Small, None) =
            (self.numeric, self.contents, self.rounding)
        {
            let expected = fixed_sum(scale.value(), parts());
            if expected.to_bits() == value.to_bits() {
                return Ok(());
            }
            return Err(format!("value {at} is {value}, exactly it is {expected}"));
        }
        let magnitude: f64 = parts().map(|part| f64::from(part.abs())).sum();
        // spec: F-02 simulator
        let rounded = self.rounding.map_or(0.0, |Rounding { count, unit, least }| {
            count * unit * magnitude + 2.0 * self.tensors.len() as f64 * least
        });
        let wide = magnitude * self.tensors.len() as f64 * f64::from(f32::EPSILON);
        let allowed = wide + rounded + self.step();
        if (f64::from(value) - exact).abs() <= allowed {
            return Ok(());
        }
        Err(format!("value {at} is {value}, not within {allowed} of {exact}"))
    }

    /// Error bound of rounding every contribution to fixed point, with the smallest scale that can be
    /// chosen.
    fn step(&self) -> f64 {
        let workers = self.tensors.len() as f64;
        match self.numeric {
            Numeric::Float => 0.0,
            Numeric::Fixed { scale, dynamic: false } => workers / f64::from(scale.value()),
            // What is too large even for the least scale goes in floats and harms nobody.
            Numeric::Fixed { dynamic: true, .. } if self.contents == Contents::Strange => {
                workers / 65_536.0
            }
            Numeric::Fixed { dynamic: true, .. } => {
                let largest = f64::from(1_u32 << 31) / (workers * 32.0) / 2.0;
                workers / largest
            }
        }
    }
}

fn fixed_sum(scale: f32, parts: impl Iterator<Item = f32>) -> f32 {
    let fixed = Fixed::new(scale).expect("a scale");
    let mut sum = 0;
    for part in parts {
        let mut integer = [0];
        let _ = fixed.encode(&[part], &mut integer);
        sum += integer[0];
    }
    let mut value = [0.0];
    fixed.decode(&[sum], &mut value);
    value[0]
}
