//! Sums of hosts that have no switch.

use thalweg::{Collective, Coverage, ErrorKind, Reduce, ReduceOptions, Session};

use crate::Cluster;

/// Values of a rank whose sums round, so that another order would give other bits.
fn values(rank: u32, count: usize) -> Vec<f32> {
    let value = |at: usize| 1.0 / (1 + at % 1_009) as f32 * (rank * rank + 1) as f32;
    (0..count).map(value).collect()
}

/// Sums of the ranks' values, which differ from the exact ones by rounding alone.
fn assert_sums(sums: &[f32], ranks: u32) {
    let exact =
        |at: usize| -> f64 { (0..ranks).map(|rank| f64::from(values(rank, at + 1)[at])).sum() };
    // Their period.
    let expected: Vec<f64> = (0..sums.len().min(1_009)).map(exact).collect();
    for (at, sum) in sums.iter().enumerate() {
        let expected = expected[at % 1_009];
        assert!((f64::from(*sum) - expected).abs() < expected * 1e-6, "value {at}");
    }
}

/// Lengths on both sides of every choice: less than a chunk for each host, more, and enough for a ring.
fn lengths(ranks: u32) -> Vec<usize> {
    let ring = ranks as usize * (64 << 10) * 8 / 4;
    vec![1, 2, 255, 256, 1_024, 5_003, 100_003, ring - 1, ring, ring + 7]
}

// spec: F-07 sockets
#[test]
fn every_length_and_number_of_ranks_gives_the_same_bits_everywhere() {
    let cluster = Cluster::without_switch();
    for ranks in [2, 3, 5] {
        let program = |session: &Session| -> Vec<Vec<u32>> {
            let sums = lengths(ranks).into_iter().map(|count| {
                let sum = session.all_reduce(values(session.rank(), count), Reduce::Sum);
                let sum = sum.wait().expect("all ranks are there");
                assert_eq!(sum.coverage, Coverage::Exact);
                assert_sums(&sum.values, ranks);
                sum.values.iter().map(|value| value.to_bits()).collect()
            });
            let sums = sums.collect();
            let counters = session.counters().expect("it runs");
            assert_eq!(counters.worker.fragments_sent, 0, "nothing goes through the server");
            sums
        };
        let ends = cluster.run(ranks, |_| (), program);
        for (rank, end) in ends.iter().enumerate() {
            assert!(*end == ends[0], "rank {rank} of {ranks} has the same bits as rank 0");
        }
    }
}

// spec: F-07 sockets
#[test]
fn a_switch_that_one_rank_names_is_used_by_all() {
    let cluster = Cluster::without_switch();
    let switch = cluster.switch.address().to_string();
    let change = |config: &mut thalweg::SessionConfig| {
        if config.rank == 1 {
            config.switch = Some(switch.clone());
        }
    };
    let sent = cluster.run(3, change, |session| {
        let sum = session.all_reduce(vec![1.0f32; 5_000], Reduce::Sum).wait();
        assert_eq!(sum.expect("all ranks are there").values, [3.0; 5_000]);
        session.counters().expect("it runs").worker.fragments_sent
    });
    assert!(sent.iter().all(|&sent| sent > 0), "{sent:?}");
}

// spec: E-11 sockets
#[test]
fn ranks_that_choose_other_algorithms_for_other_lengths_get_an_error() {
    let cluster = Cluster::without_switch();
    let ends = cluster.run(
        2,
        |_| (),
        |session| {
            let count = if session.rank() == 0 { 1_000 } else { 1 << 20 };
            session.all_reduce(vec![1.0f32; count], Reduce::Sum).wait().map(|_| ())
        },
    );
    for end in ends {
        let error = end.expect_err("their lengths differ");
        assert_eq!(
            (error.kind(), error.ranks()),
            (ErrorKind::Disagreement, &[0, 1][..]),
            "{error}"
        );
        assert!(error.to_string().contains("1,048,576 values"), "{error}");
    }
}

// spec: E-11 sockets
#[test]
fn a_rank_that_asks_for_a_ring_differs_from_one_that_leaves_the_choice() {
    let cluster = Cluster::without_switch();
    let ends = cluster.run(
        2,
        |_| (),
        |session| {
            let ring = ReduceOptions::new(Reduce::Sum).collective(Collective::Ring);
            let options = if session.rank() == 0 { ring } else { Reduce::Sum.into() };
            session.all_reduce(vec![1.0f32; 1 << 19], options).wait().map(|_| ())
        },
    );
    for end in ends {
        let error = end.expect_err("their policies differ");
        assert_eq!(error.kind(), ErrorKind::Disagreement, "{error}");
        assert!(error.to_string().contains("by the hosts themselves"), "{error}");
    }
}
