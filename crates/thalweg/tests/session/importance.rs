//! Sums by switches that leave out contributions which are not important before the others, over sockets.
//!
//! Fragments have magnitudes of 1 to 16, the same ones at every rank, as gradients are large in the same places.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use thalweg::internal::{Fate, Tap};
use thalweg::{Collective, Coverage, Policy, Reduce, ReduceOptions, Reduced, Session};
use thalweg_core::{Ecn, fibonacci};
use thalweg_wire::aggregate::{Gradient, SumImportance};
use thalweg_wire::peek;

use crate::Cluster;
use crate::bounded::{RANKS, VALUES, bounded, present};

/// Share of any rank's values that may be missing.
const BOUND: f64 = 0.1;

/// Values of a fragment: those of a packet of 1,500 bytes.
const FRAGMENT: usize = 352;

/// Contribution of a rank: a multiple of 16 that all ranks share, and a power of two of its own.
fn contribution(rank: u32) -> Vec<f32> {
    let magnitude = |at: usize| 16 * (1 + (fibonacci((at / FRAGMENT) as u64) >> 60));
    (0..VALUES).map(|at| magnitude(at) as f32 + (1 << rank) as f32).collect()
}

fn reduce(session: &Session, policy: Policy) -> Reduced<Vec<f32>> {
    let options = ReduceOptions::new(Reduce::Sum).policy(policy);
    session.all_reduce(contribution(session.rank()), options).wait().expect("it ends")
}

/// Contributions that a tap has seen, and those of them that it lost.
#[derive(Clone, Default)]
struct Losses {
    seen: Arc<AtomicU64>,
    lost: Arc<AtomicU64>,
    /// Contributions that a queue may drop first, which the kernel cannot carry in one batch with the others.
    droppable: Arc<AtomicU64>,
}

impl Losses {
    /// Loses this share of the contributions that the rule selects by their importance.
    fn tap(&self, share: f64, selects: fn(SumImportance) -> bool) -> Tap {
        let Losses { seen, lost, droppable } = self.clone();
        let limit = (share * u64::MAX as f64) as u64;
        Arc::new(move |meta, header| {
            let gradient = peek(header).ok().map(|prefix| Gradient::decode_checked(prefix, header));
            let Some(Ok(gradient)) = gradient else { return Fate::Arrives };
            droppable.fetch_add(u64::from(meta.ecn == Ecn::NotCapable), Ordering::Relaxed);
            if !selects(gradient.importance) {
                return Fate::Arrives;
            }
            // Spread evenly over the contributions.
            if fibonacci(seen.fetch_add(1, Ordering::Relaxed)) >= limit {
                return Fate::Arrives;
            }
            lost.fetch_add(1, Ordering::Relaxed);
            Fate::Lost
        })
    }

    fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Shares of all contributions: what is missing of their values, and what is there of their squared norm.
fn shares(coverage: &Coverage) -> (f64, f64) {
    let (mut missing, mut lost, mut norm) = (0, 0.0, 0.0);
    let contributions: Vec<_> = (0..RANKS).map(contribution).collect();
    for (at, ranks) in present(coverage).into_iter().enumerate() {
        for (rank, own) in contributions.iter().enumerate() {
            let square = f64::from(own[at]) * f64::from(own[at]);
            let is_missing = ranks >> rank & 1 == 0;
            missing += u64::from(is_missing);
            lost += if is_missing { square } else { 0.0 };
            norm += square;
        }
    }
    (missing as f64 / (VALUES * RANKS as usize) as f64, 1.0 - lost / norm)
}

/// Every sum is that of the ranks which its coverage says are in it, and no rank is missing from too much.
fn check(reduced: &Reduced<Vec<f32>>) {
    for rank in 0..RANKS {
        let missed = reduced.coverage.missing_of(rank).expect("it is reported") as f64;
        assert!(missed <= BOUND * VALUES as f64, "rank {rank} misses {missed} of {VALUES}");
    }
    let contributions: Vec<_> = (0..RANKS).map(contribution).collect();
    let sum = |(at, ranks): (usize, u32)| -> f32 {
        (0..RANKS as usize)
            .filter(|rank| ranks >> rank & 1 == 1)
            .map(|r| contributions[r][at])
            .sum()
    };
    let expected: Vec<f32> = present(&reduced.coverage).into_iter().enumerate().map(sum).collect();
    assert!(reduced.values == expected, "{:?}", reduced.coverage);
}

/// Means over a few bounded sums: shares that are missing, and that are there of the squared norm.
fn play(cluster: &Cluster) -> (f64, f64) {
    let results = cluster.run(
        RANKS,
        |_| {},
        |session| {
            let policy = bounded(BOUND, Collective::Aggregate);
            (0..4).map(|_| reduce(session, policy)).collect::<Vec<_>>()
        },
    );
    assert!(results.iter().all(|rounds| *rounds == results[0]), "the same at every rank");
    results[0].iter().for_each(check);
    let all: Vec<_> = results[0].iter().map(|reduced| shares(&reduced.coverage)).collect();
    let mean = |of: fn(&(f64, f64)) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
    (mean(|own| own.0), mean(|own| own.1))
}

/// Contributions to exact sums report no importance. Those of a bounded sum which are not important and get lost stay out.
// spec: M-20 sockets
#[test]
fn losses_of_what_is_not_important_cost_little_of_the_norm_and_nothing_of_exact_sums() {
    let losses = Losses::default();
    let cluster = Cluster::tapped(losses.tap(0.5, |its| its == SumImportance::NONE));
    let policy = Policy::default().collective(Collective::Aggregate);
    let exact = cluster.run(RANKS, |_| {}, |session| reduce(session, policy));
    assert!(exact.iter().all(|reduced| reduced.coverage == Coverage::Exact));
    exact.iter().for_each(check);
    assert_eq!(losses.lost(), 0, "contributions to an exact sum report nothing");
    let (missing, norm) = play(&cluster);
    println!("{missing:.3} missing, {norm:.3} of the norm, {} lost", losses.lost());
    assert!(losses.lost() > 0 && missing > 0.0);
    assert_eq!(losses.droppable.load(Ordering::Relaxed), 0, "batches are whole");
    // At random, what is missing has its share of the norm.
    assert!(1.0 - norm < 0.5 * missing, "{norm} of the norm with {missing} missing");
}

/// If any contribution may get lost, those that are not important stay out, and the others are asked for.
// spec: M-20 sockets
#[test]
fn important_contributions_that_a_switch_loses_are_asked_for_first() {
    let losses = Losses::default();
    let cluster = Cluster::tapped(losses.tap(0.1, |_| true));
    let (missing, norm) = play(&cluster);
    println!("{missing:.3} missing, {norm:.3} of the norm, {} lost", losses.lost());
    assert!(losses.lost() > 0 && missing > 0.0);
    // Important ones may be left out if they are lost twice.
    assert!(1.0 - norm < 0.8 * missing, "{norm} of the norm with {missing} missing");
}
