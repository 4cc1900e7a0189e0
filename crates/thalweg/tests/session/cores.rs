//! Sums that are spread over sending threads, and over the cores of a switch and of a server.

use std::time::{Duration, Instant};

use thalweg::{ErrorKind, LossBound, Reduce, ReduceOptions};

use super::Cluster;

const CORES: u16 = 3;

/// More than a part for each thread, and no multiple of anything.
const VALUES: usize = 700_001;

/// The contribution of a rank: whole numbers, so that sums are exact in any order.
fn contribution(rank: u32) -> Vec<f32> {
    (0..VALUES).map(|at| ((at * 7 + rank as usize * 13) & 1_023) as f32).collect()
}

fn sum_of(ranks: u32) -> Vec<f32> {
    let mut sum = vec![0.0; VALUES];
    for rank in 0..ranks {
        sum.iter_mut().zip(contribution(rank)).for_each(|(sum, value)| *sum += value);
    }
    sum
}

// spec: F-03, F-04 sockets
#[test]
fn a_long_sum_is_exact_on_all_cores_while_packets_are_lost() {
    let cluster = Cluster::on_cores(CORES, 0.01);
    let results = cluster.run(
        3,
        |config| config.threads = Some(u32::from(CORES)),
        |session| {
            let sum = session.all_reduce(contribution(session.rank()), Reduce::Sum).wait();
            let short = session.all_reduce(vec![1.5_f32; 10], Reduce::Mean).wait();
            let sent = |thread| session.counters_of(thread).unwrap().worker.fragments_sent;
            (sum.expect("it ends"), short.expect("it ends").values, [0, 1, 2].map(sent))
        },
    );
    let expected = sum_of(3);
    for (sum, short, sent) in &results {
        assert!(sum.values == expected && sum.coverage.is_exact());
        assert_eq!(*short, [1.5; 10]);
        assert!(sent.iter().all(|sent| *sent >= 600), "every thread has its part: {sent:?}");
    }
    let switch = cluster.switch.snapshot().expect("it runs");
    assert_eq!((switch.cores, switch.received_by_core.len()), (CORES, usize::from(CORES)));
    assert!(switch.received_by_core.iter().all(|packets| *packets >= 1_800), "{switch:?}");
    assert_eq!(cluster.server.snapshot().expect("it runs").jobs.len(), 0, "all have left");
}

// spec: F-04 sockets
#[test]
fn ranks_use_as_many_threads_as_all_of_them_can() {
    let cluster = Cluster::on_cores(2, 0.0);
    let results = cluster.run(
        2,
        |config| config.threads = Some(if config.rank == 0 { 4 } else { 2 }),
        |session| {
            let sum = session.all_reduce(contribution(session.rank()), Reduce::Sum).wait();
            (
                sum.expect("it ends").values,
                session.counters_of(1).is_ok(),
                session.counters_of(2).is_err() && session.threads() == 2,
            )
        },
    );
    let expected = sum_of(2);
    assert!(results.iter().all(|(sum, second, no_third)| *sum == expected && *second && *no_third));
}

// spec: F-04 sockets
#[test]
fn a_rank_with_a_slow_link_has_all_ranks_use_one_thread() {
    let cluster = Cluster::on_cores(2, 0.0);
    let results = cluster.run(
        2,
        |config| match config.rank {
            0 => config.threads = Some(3),
            _ => config.link_rate_mbps = Some(1_000),
        },
        |session| {
            let sum = session.all_reduce(contribution(session.rank()), Reduce::Sum).wait();
            (sum.expect("it ends").values, session.threads())
        },
    );
    let expected = sum_of(2);
    assert!(results.iter().all(|(sum, threads)| *sum == expected && *threads == 1));
}

// spec: F-04, T-11 sockets
#[test]
fn a_bounded_sum_in_parts_reports_what_all_parts_lack() {
    let cluster = Cluster::on_cores(CORES, 0.05);
    let bound = LossBound::new(0.2).expect("from 0 to less than 1");
    let results = cluster.run(
        3,
        |config| config.threads = Some(u32::from(CORES)),
        |session| {
            let options = ReduceOptions::new(Reduce::Sum).missing_at_most(bound);
            session.all_reduce(contribution(session.rank()), options).wait().expect("it ends")
        },
    );
    let contributions = [0, 1, 2].map(contribution);
    for reduced in &results {
        assert_eq!(reduced, &results[0], "the same bits, and the same report");
        let missing = reduced.coverage.missing().expect("a sum by switches reports");
        let lacks = |rank: u32, at: usize| {
            let is_it = |part: &&thalweg::Part| part.values.contains(&(at as u64));
            missing.iter().find(is_it).is_some_and(|part| part.ranks.contains(&rank))
        };
        for at in (0..VALUES).step_by(97) {
            let present = (0..3).filter(|rank| !lacks(*rank, at));
            let sum: f32 = present.map(|rank| contributions[rank as usize][at]).sum();
            assert_eq!(reduced.values[at], sum, "value {at}");
        }
    }
}

// spec: E-11, F-04 sockets
#[test]
#[expect(clippy::disallowed_methods, reason = "the errors must not wait for a real deadline")]
fn ranks_that_differ_get_one_error_from_all_threads_at_once() {
    let cluster = Cluster::on_cores(2, 0.0);
    let began = Instant::now();
    let job = "differing";
    let errors = std::thread::scope(|scope| {
        let rank = |rank: u32| {
            let mut config = cluster.config(job, rank, 2);
            config.threads = Some(2);
            scope.spawn(move || {
                let session = thalweg::Session::join(config).expect("both ranks are there");
                let values = if rank == 0 { VALUES } else { 10 };
                let long = session.all_reduce(vec![1.0_f32; values], Reduce::Sum).wait();
                let later = session.all_reduce(vec![1.0_f32; VALUES], Reduce::Sum).wait();
                (long.expect_err("they differ"), later.expect_err("the job has failed"))
            })
        };
        [rank(0), rank(1)].map(|rank| rank.join().expect("no rank panics"))
    });
    for (error, later) in errors {
        assert_eq!(error.kind(), ErrorKind::Disagreement, "{error}");
        assert!(
            error.to_string().contains("700,001") && error.to_string().contains("10"),
            "{error}"
        );
        assert_eq!(later.kind(), ErrorKind::Disagreement, "{later}");
    }
    assert!(began.elapsed() < Duration::from_secs(15), "before the deadline of the operation");
}
