//! Random groups whose sums may lack a part, over links that lose, double and reorder packets.
//!
//! Worker r contributes 2^r everywhere, so that the bits of a sum say whose values are in it.

use thalweg_collective::{Delivery, Results, SumCall, ring, server};
use thalweg_core::Rng;
use thalweg_deliver::{LossBound, SegmentOrder, Start};
use thalweg_transport::control::{DelayRate, RateFloor, RateStart, SampledClasses};
use thalweg_values::{Coverage, Tensor};

use crate::delivered::{check_coverage, missing};
use crate::group::{Collective, rings, servers};
use crate::shuttle::{Shuttle, Sums};

/// Seeds of the default run.
const SEEDS: u64 = 1_000;

/// Values of the round before, which no sum has.
const OLDER: f32 = -5.0;

/// Steps after which a group counts as stuck.
const STEPS: u64 = 20_000_000;

/// Collective of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Summing {
    Ring,
    /// Servers: the node of the first, and their number.
    Servers(u32, u32),
}

/// One tensor.
#[derive(Clone, Copy, Debug)]
struct Sum {
    values: u64,
    layer: u16,
    /// Bound of the call, if it has one.
    bound: Option<f64>,
    /// True if workers have older values.
    has_older: bool,
}

/// A group, bounds, a network and tensors, drawn from a seed.
#[derive(Debug)]
struct Plan {
    summing: Summing,
    workers: u32,
    /// Bound of the settings.
    bound: f64,
    results: Results,
    chunk_values: u64,
    start: Start,
    segments: SegmentOrder,
    rate: DelayRate,
    layers: u16,
    sums: Vec<Sum>,
    loss: f64,
    duplication: f64,
    /// Steps between the calls of one worker and those of the next.
    gap_steps: u64,
}

/// Events over all seeds: each must have happened.
#[derive(Debug, Default)]
struct Met {
    rings: u64,
    served: u64,
    /// Rings that divide a bound among several hops and use it.
    divided: u64,
    exact: u64,
    partial: u64,
    /// Bounds of calls below those of the settings, of which something is missing.
    bounds_of_calls: u64,
    older: u64,
    at_once: u64,
    important_first: u64,
    most_urgent: u64,
    by_arrivals: u64,
    shared: u64,
}

impl Met {
    fn counts(&self) -> [u64; 12] {
        [
            self.rings,
            self.served,
            self.divided,
            self.exact,
            self.partial,
            self.bounds_of_calls,
            self.older,
            self.at_once,
            self.important_first,
            self.most_urgent,
            self.by_arrivals,
            self.shared,
        ]
    }
}

impl Plan {
    fn draw(seed: u64) -> Plan {
        let mut rng = Rng::new(seed).stream("sums");
        let workers = 2 + rng.below(5) as u32;
        let place = rng.below(u64::from(workers) + 1) as u32;
        let summing = match rng.chance(0.5) {
            true => Summing::Ring,
            false => Summing::Servers(place, 1 + rng.below(3) as u32),
        };
        let may_be_lost = summing != Summing::Ring && rng.chance(0.5);
        let layers = 1 + rng.below(4) as u16;
        Plan {
            summing,
            workers,
            bound: share(&mut rng),
            results: if may_be_lost { Results::MayBeLost } else { Results::Exact },
            chunk_values: 20 + rng.below(1_500),
            start: pick(&mut rng, Start::AtOnce, Start::AfterAccept),
            segments: pick(&mut rng, SegmentOrder::ImportantFirst, SegmentOrder::AsTheyLie),
            rate: DelayRate {
                classes: pick(&mut rng, SampledClasses::MostUrgent, SampledClasses::All),
                cuts_to: pick(&mut rng, RateFloor::Arrivals, RateFloor::Least),
                starts_at: pick(&mut rng, RateStart::Shared, RateStart::LineRate),
                ..DelayRate::default()
            },
            layers,
            sums: [2_500, 100, 1, 700].map(|most| Sum::draw(&mut rng, most, layers)).to_vec(),
            loss: 0.4 * rng.uniform(),
            duplication: 0.2 * rng.uniform(),
            gap_steps: rng.below(100),
        }
    }

    fn delivery(&self, node: u32) -> Delivery {
        let mut delivery = Delivery::new(Rng::new(u64::from(node)));
        delivery.endpoint.segment_bytes = 64;
        delivery.endpoint.start = self.start;
        delivery.endpoint.segments = self.segments;
        delivery.endpoint.control = self.rate.into();
        delivery.loss = bound(self.bound);
        Delivery { layers: self.layers, results: self.results, ..delivery }
    }

    fn ring(&self) -> Vec<ring::Ring> {
        rings(self.workers, |config| {
            config.delivery = Some(self.delivery(config.rank));
            config.chunk_bytes = 4 * self.chunk_values;
        })
    }

    fn servers(&self, place: u32, count: u32) -> Vec<server::Node> {
        servers(self.workers, place, count, |config| {
            config.delivery = Some(self.delivery(0));
            config.chunk_bytes = 4 * self.chunk_values;
        })
    }

    /// The bound that holds for a sum: the smaller one of the call and the settings.
    fn bound_of(&self, sum: Sum) -> f64 {
        sum.bound.map_or(self.bound, |own| own.min(self.bound))
    }

    /// True if values of a result may be older ones.
    fn keeps_older(&self, sum: Sum) -> bool {
        sum.has_older && self.results == Results::MayBeLost
    }

    /// Has all workers sum the tensors, and checks what they get.
    fn play<M: Collective>(&self, seed: u64, machines: Vec<M>, met: &mut Met) {
        let mut shuttle = Shuttle::new(machines, seed);
        (shuttle.loss, shuttle.duplication) = (self.loss, self.duplication);
        for worker in 0..self.workers {
            shuttle.run(self.gap_steps);
            for sum in &self.sums {
                let call = sum.call((1 << worker) as f32);
                let machine = worker as usize;
                let submitted = shuttle.command(machine, |own, now| own.submit_call(now, call));
                submitted.expect("it is a worker");
            }
        }
        assert!(!shuttle.run(STEPS), "seed {seed}: it ends");
        let first = shuttle.results(0);
        for worker in 0..self.workers as usize {
            let results = shuttle.results(worker);
            assert_eq!(results.len(), self.sums.len(), "seed {seed}");
            for ((sum, (_, own, coverage)), (_, of_first, first_coverage)) in
                self.sums.iter().zip(&results).zip(&first)
            {
                if self.keeps_older(*sum) {
                    met.older += self.check_kept(seed, *sum, own, coverage);
                } else {
                    assert_eq!(own, of_first, "seed {seed}: sums are the same everywhere");
                    assert_eq!(coverage, first_coverage, "seed {seed}: so are coverages");
                    self.check(seed, *sum, own, coverage, met);
                }
            }
        }
    }

    /// A sum is what its coverage says, and lacks no more of each worker than its bound.
    fn check(&self, seed: u64, sum: Sum, result: &Tensor, coverage: &Coverage, met: &mut Met) {
        assert_eq!(result.len(), sum.values, "seed {seed}");
        check_coverage(result, coverage, self.workers);
        let allowed = self.bound_of(sum) * sum.values as f64;
        let missing = missing(result, self.workers);
        for (rank, missing) in missing.iter().enumerate() {
            let missing = *missing as f64;
            assert!(missing <= allowed, "seed {seed}: rank {rank} misses {missing} of {allowed}");
        }
        let is_partial = missing.iter().sum::<u64>() > 0;
        met.exact += u64::from(allowed == 0.0 && sum.values > 0);
        met.partial += u64::from(is_partial);
        met.divided += u64::from(is_partial && self.summing == Summing::Ring && self.workers > 2);
        met.bounds_of_calls += u64::from(is_partial && self.bound_of(sum) < self.bound);
    }

    /// A sum of which the worker may have older values. Returns the number of these.
    fn check_kept(&self, seed: u64, sum: Sum, result: &Tensor, coverage: &Coverage) -> u64 {
        let values = result.values().expect("values went in");
        assert_eq!(values.len() as u64, sum.values, "seed {seed}");
        let mut present = vec![(1_u32 << self.workers) - 1; values.len()];
        for part in coverage.missing().expect("it is reported") {
            let absent: u32 = part.ranks.iter().map(|rank| 1 << rank).sum();
            let part = part.values.start as usize..part.values.end as usize;
            present[part].iter_mut().for_each(|ranks| *ranks &= !absent);
        }
        let mut missing = vec![0_u64; self.workers as usize];
        let mut kept = 0;
        for (value, ranks) in values.iter().zip(&present) {
            if *value == OLDER {
                assert_eq!(*ranks, 0, "seed {seed}: nobody is in an older value");
                kept += 1;
                continue;
            }
            assert_eq!(*value, *ranks as f32, "seed {seed}: {coverage:?}");
            for (rank, missing) in missing.iter_mut().enumerate() {
                *missing += u64::from(ranks >> rank & 1 == 0);
            }
        }
        let allowed = self.bound_of(sum) * sum.values as f64;
        for missing in missing.into_iter().chain([kept]) {
            assert!(missing as f64 <= allowed, "seed {seed}: {missing} of {allowed} are missing");
        }
        kept
    }
}

impl Sum {
    fn draw(rng: &mut Rng, most: u64, layers: u16) -> Sum {
        Sum {
            values: rng.below(most),
            layer: rng.below(u64::from(layers)) as u16,
            bound: rng.chance(0.4).then(|| share(rng)),
            has_older: rng.chance(0.5),
        }
    }

    fn call(&self, value: f32) -> SumCall {
        let values = self.values as usize;
        SumCall {
            layer: self.layer,
            loss: self.bound.map(bound),
            older: self.has_older.then(|| Tensor::from(vec![OLDER; values])),
            ..Tensor::from(vec![value; values]).into()
        }
    }
}

fn share(rng: &mut Rng) -> f64 {
    [0.0, 0.02, 0.1, 0.1, 0.3, 0.7][rng.below(6) as usize]
}

fn bound(share: f64) -> LossBound {
    LossBound::new(share).expect("a share")
}

fn pick<T>(rng: &mut Rng, one: T, other: T) -> T {
    if rng.chance(0.5) { one } else { other }
}

/// Plays seeds. Every failure names its seed.
fn run(seeds: std::ops::Range<u64>) -> Met {
    let mut met = Met::default();
    for seed in seeds {
        let plan = Plan::draw(seed);
        match plan.summing {
            Summing::Ring => plan.play(seed, plan.ring(), &mut met),
            Summing::Servers(place, count) => {
                plan.play(seed, plan.servers(place, count), &mut met);
            }
        }
        met.rings += u64::from(plan.summing == Summing::Ring);
        met.served += u64::from(plan.summing != Summing::Ring);
        met.at_once += u64::from(plan.start == Start::AtOnce);
        met.important_first += u64::from(plan.segments == SegmentOrder::ImportantFirst);
        let has_classes = plan.layers > 1;
        met.most_urgent +=
            u64::from(has_classes && plan.rate.classes == SampledClasses::MostUrgent);
        met.by_arrivals += u64::from(plan.rate.cuts_to == RateFloor::Arrivals);
        met.shared += u64::from(plan.rate.starts_at == RateStart::Shared);
    }
    met
}

/// The bits of every sum say who is in it, and that is what is reported, at every worker, whatever is lost, in
/// whatever order packets come; and nobody misses more than the bound of the tensor.
// spec: M-06, M-07, T-02, T-11 machine
#[test]
fn sums_lack_what_they_report_and_no_more_than_their_bound() {
    let met = run(0..SEEDS);
    println!("{met:?}");
    assert!(met.counts().iter().all(|&count| count > 0), "not everything was met: {met:?}");
}

/// A number from the environment.
#[expect(clippy::disallowed_methods, reason = "the caller chooses the seeds")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
#[ignore = "runs the number of seeds in THALWEG_SEEDS, from THALWEG_SEED on"]
fn many() {
    let first = number("THALWEG_SEED").unwrap_or(0);
    let count = number("THALWEG_SEEDS").expect("set THALWEG_SEEDS to a number");
    println!("{:?}", run(first..first + count));
}
