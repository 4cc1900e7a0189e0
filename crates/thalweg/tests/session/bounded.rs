//! Sums by switches that may lack something, and say what.

use std::time::Duration;

use thalweg::{
    Collective, Coverage, Policy, Priority, Reduce, ReduceOptions, Reduced, Reliability, Session,
};

use crate::Cluster;

pub const RANKS: u32 = 4;
pub const VALUES: usize = 352 * 300;

/// A power of two for each rank: a sum tells who is in it.
pub fn contribution(rank: u32) -> Vec<f32> {
    vec![(1 << rank) as f32; VALUES]
}

pub fn bounded(loss: f64, collective: Collective) -> Policy {
    let reliability = Reliability::bounded(loss).expect("a share");
    let priority = Priority::Layer { index: 1, of: 3 };
    Policy::default().collective(collective).reliability(reliability).priority(priority)
}

pub fn reduce(session: &Session, how: Reduce, policy: Policy) -> Reduced<Vec<f32>> {
    let values = contribution(session.rank());
    let options = ReduceOptions::new(how).policy(policy);
    session.all_reduce(values, options).wait().expect("it ends")
}

/// The ranks that are in every value, one bit each, by what is reported missing.
pub fn present(coverage: &Coverage) -> Vec<u32> {
    let mut present = vec![(1 << RANKS) - 1; VALUES];
    for part in coverage.missing().expect("it is reported") {
        let absent: u32 = part.ranks.iter().map(|rank| 1 << rank).sum();
        present[part.values.start as usize..part.values.end as usize]
            .iter_mut()
            .for_each(|ranks| *ranks &= !absent);
    }
    present
}

/// The bound holds for every rank, and what is reported missing is what is missing.
pub fn check(reduced: &Reduced<Vec<f32>>, loss: f64) {
    for rank in 0..RANKS {
        let missed = reduced.coverage.missing_of(rank).expect("it is reported") as f64;
        assert!(missed <= loss * VALUES as f64, "rank {rank} misses {missed} of {VALUES}");
    }
    let expected: Vec<f32> = present(&reduced.coverage).iter().map(|ranks| *ranks as f32).collect();
    assert!(reduced.values == expected, "{:?}", reduced.coverage);
}

// spec: T-02, T-11 sockets
#[test]
fn a_sum_says_truly_what_it_lacks() {
    let cluster = Cluster::losing(0.05);
    let results = cluster.run(
        RANKS,
        |_| {},
        |session| {
            let policy = bounded(0.1, Collective::Aggregate);
            (0..6).map(|_| reduce(session, Reduce::Sum, policy)).collect::<Vec<_>>()
        },
    );
    assert!(results.iter().all(|rounds| *rounds == results[0]), "all ranks have the same");
    results[0].iter().for_each(|reduced| check(reduced, 0.1));
    let lacking = results[0].iter().filter(|reduced| !reduced.coverage.is_exact()).count();
    assert!(lacking > 0, "with 5% lost, some sum comes without somebody");
}

// spec: T-02 sockets
#[test]
#[expect(clippy::disallowed_methods, reason = "a rank is late on purpose")]
fn a_late_rank_is_left_out_within_its_bound_and_the_mean_is_that_of_the_others() {
    let cluster = Cluster::losing(0.0);
    let results = cluster.run(
        RANKS,
        |_| {},
        |session| {
            if session.rank() == 2 {
                std::thread::sleep(Duration::from_millis(300));
            }
            let policy = bounded(0.25, Collective::Aggregate);
            reduce(session, Reduce::Mean, policy)
        },
    );
    assert!(results.iter().all(|reduced| *reduced == results[0]));
    let Reduced { values, coverage, .. } = &results[0];
    let missing_of = |rank| coverage.missing_of(rank).expect("it is reported");
    assert!(missing_of(2) > 0, "{coverage:?}");
    for rank in 0..RANKS {
        assert!(missing_of(rank) <= VALUES as u64 / 4, "rank {rank}: {coverage:?}");
    }
    let mean = |ranks: &u32| *ranks as f32 / ranks.count_ones() as f32;
    assert!(*values == present(coverage).iter().map(mean).collect::<Vec<_>>());
}

// spec: T-02, T-11 sockets
#[test]
fn ranks_of_one_host_hear_what_is_missing_too() {
    let cluster = Cluster::losing(0.05);
    let hosts = |config: &mut thalweg::SessionConfig| config.share_memory = config.rank < 2;
    let results = cluster.run(RANKS, hosts, |session| {
        assert_eq!(session.hosts(), 3);
        let policy = bounded(0.1, Collective::Aggregate);
        (0..4).map(|_| reduce(session, Reduce::Sum, policy)).collect::<Vec<_>>()
    });
    assert!(results.iter().all(|rounds| *rounds == results[0]), "all ranks have the same");
    for reduced in &results[0] {
        check(reduced, 0.1);
        let missing = |rank| reduced.coverage.missing_of(rank);
        assert_eq!(missing(0), missing(1), "they come as one");
    }
}

// spec: M-12 sockets
#[test]
fn shards_of_gradients_may_lack_something_and_gathered_parameters_do_not() {
    let cluster = Cluster::losing(0.03);
    let counts = [VALUES / 4; 4];
    let results = cluster.run(
        RANKS,
        |_| {},
        |session| {
            let policy = bounded(0.1, Collective::Aggregate);
            let values = contribution(session.rank());
            let options = ReduceOptions::new(Reduce::Sum).policy(policy);
            let shard = session.reduce_scatter(values, &counts, options).wait().unwrap();
            let Reduced { values, coverage, .. } = shard;
            let whole = session.all_gather(values.clone()).wait().unwrap();
            (values, coverage, whole)
        },
    );
    for (rank, (shard, coverage, whole)) in results.iter().enumerate() {
        assert_eq!(whole, &results[0].2, "parameters are exact");
        assert_eq!(&whole[rank], shard);
        let parts = coverage.missing().expect("it is reported");
        let lacks = |at: usize| parts.iter().find(|part| part.values.contains(&(at as u64)));
        for (at, sum) in shard.iter().enumerate() {
            let absent = lacks(at).map_or(0, |part| part.ranks.iter().map(|rank| 1 << rank).sum());
            assert_eq!(*sum as u32, 15 & !absent);
        }
    }
    let wrong = cluster.run(
        2,
        |_| {},
        |session| {
            let policy = bounded(0.1, Collective::Aggregate);
            let options = ReduceOptions::new(Reduce::Sum).policy(policy);
            let call = session.reduce_scatter(vec![1.0_f32; 3], &[1, 1], options);
            call.wait().expect_err("3 values, 2 wanted").to_string()
        },
    );
    assert!(wrong[0].contains("add up"), "{}", wrong[0]);
}

// spec: T-08 sockets
#[test]
fn what_does_not_ask_for_less_is_exact() {
    let cluster = Cluster::losing(0.05);
    let results = cluster.run(
        RANKS,
        |config| config.policy = Policy::default(),
        |session| {
            let lossy = ReduceOptions::new(Reduce::Sum).policy(bounded(0.2, Collective::Aggregate));
            let lossy = session.all_reduce(contribution(session.rank()), lossy);
            let exact = session.all_reduce(contribution(session.rank()), Reduce::Sum);
            lossy.wait().expect("it ends");
            exact.wait().expect("it ends").values
        },
    );
    assert!(results.iter().all(|sums| sums.iter().all(|sum| *sum == 15.0)));
}
