//! Every collective, against what it has to be.

use half::{bf16, f16};
use thalweg::{Collective, Numeric, Policy, Reduce, Session, Value};

use crate::Cluster;

fn all_reduced<T: Value>(session: &Session, values: Vec<T>, how: Reduce) -> Vec<T> {
    session.all_reduce(values, how).wait().expect("it ends").values
}

/// Values that a rank contributes: small integers, whose sums every type holds.
fn contribution(rank: u32, values: usize) -> Vec<f32> {
    (0..values).map(|at| value(rank, at)).collect()
}

fn value(rank: u32, at: usize) -> f32 {
    ((at * 7 + rank as usize * 13) % 101) as f32 - 50.0
}

fn sum(ranks: u32, values: usize) -> Vec<f32> {
    (0..values).map(|at| (0..ranks).map(|rank| value(rank, at)).sum()).collect()
}

#[test]
fn sums_go_through_the_switch_and_are_exact() {
    let cluster = Cluster::losing(0.0);
    for values in [1, 352, 353, 10_000] {
        let sums = cluster.run(
            4,
            |_| {},
            |session| all_reduced(session, contribution(session.rank(), values), Reduce::Sum),
        );
        let expected = sum(4, values);
        assert!(sums.iter().all(|sums| *sums == expected), "{values} values");
    }
    let snapshot = cluster.switch.snapshot().expect("it runs");
    assert!(snapshot.switch.completed > 0, "{snapshot:?}");
    assert_eq!(snapshot.switch.forged + snapshot.switch.malformed, 0);
    let registered = cluster.server.snapshot().expect("it runs").registered;
    assert!(registered.is_empty(), "all ranks have left: {registered:?}");
}

// spec: T-08 sockets
#[test]
fn loss_changes_nothing() {
    let cluster = Cluster::losing(0.02);
    let sums = cluster.run(
        3,
        |_| {},
        |session| {
            let rounds = (0..5).map(|_| contribution(session.rank(), 50_000));
            let handles: Vec<_> =
                rounds.map(|values| session.all_reduce(values, Reduce::Sum)).collect();
            let sums = handles.into_iter().map(|handle| handle.wait().expect("it ends").values);
            sums.collect::<Vec<_>>()
        },
    );
    let expected = sum(3, 50_000);
    assert!(sums.iter().flatten().all(|sums| *sums == expected));
    assert!(cluster.switch.snapshot().expect("it runs").lost_on_purpose > 0);
}

// spec: sockets
#[test]
fn other_collectives_sum_the_same() {
    let cluster = Cluster::losing(0.0);
    for collective in [Collective::Ring, Collective::Server] {
        let policy = Policy::default().collective(collective);
        let sums = cluster.run(
            3,
            |config| config.policy = policy,
            |session| all_reduced(session, contribution(session.rank(), 20_000), Reduce::Sum),
        );
        let expected = sum(3, 20_000);
        assert!(sums.iter().all(|sums| *sums == expected), "{collective:?}");
    }
}

#[test]
fn fixed_point_and_values_out_of_its_range() {
    let cluster = Cluster::losing(0.0);
    let numeric = Numeric::Fixed { scale: 1e6, dynamic: false };
    let policy = Policy::default().numeric(numeric);
    let sums = cluster.run(
        2,
        |config| config.policy = policy,
        |session| {
            let mut values = vec![0.5; 1_000];
            values[500] = 1e20;
            values[900] = f32::INFINITY;
            all_reduced(session, values, Reduce::Sum)
        },
    );
    assert_eq!(sums[0], sums[1]);
    let right = |(at, value): (usize, &f32)| match at {
        500 => *value == 2e20,
        900 => *value == f32::INFINITY,
        _ => *value == 1.0,
    };
    assert!(sums[0].iter().enumerate().all(right));
}

/// One type: sums, means, extremes and products over two ranks.
fn check_type<T: Value + PartialEq + std::fmt::Debug>(cluster: &Cluster, of: fn(f64) -> T) {
    let results = cluster.run(
        2,
        |_| {},
        |session| {
            let own = if session.rank() == 0 { 6.0 } else { 4.0 };
            let values = || vec![of(own); 3];
            [Reduce::Sum, Reduce::Mean, Reduce::Min, Reduce::Max, Reduce::Product]
                .map(|how| all_reduced(session, values(), how)[2])
        },
    );
    let expected = [10.0, 5.0, 4.0, 6.0, 24.0].map(of);
    assert_eq!(results, [expected; 2], "{}", T::ELEMENT.name());
}

#[test]
fn every_type_can_be_reduced() {
    let cluster = Cluster::losing(0.0);
    check_type::<f32>(&cluster, |value| value as f32);
    check_type::<f64>(&cluster, |value| value);
    check_type::<f16>(&cluster, f16::from_f64);
    check_type::<bf16>(&cluster, bf16::from_f64);
    check_type::<i8>(&cluster, |value| value as i8);
    check_type::<i16>(&cluster, |value| value as i16);
    check_type::<i32>(&cluster, |value| value as i32);
    check_type::<i64>(&cluster, |value| value as i64);
    check_type::<u8>(&cluster, |value| value as u8);
    check_type::<u16>(&cluster, |value| value as u16);
    check_type::<u32>(&cluster, |value| value as u32);
    check_type::<u64>(&cluster, |value| value as u64);
}

#[test]
fn everything_else_goes_straight_between_ranks() {
    let cluster = Cluster::losing(0.0);
    let results = cluster.run(
        3,
        |_| {},
        |session| {
            let (rank, ranks) = (session.rank(), session.ranks());
            session.barrier().wait().unwrap();
            let gathered = session.all_gather(vec![rank; rank as usize]).wait().unwrap();
            assert_eq!(gathered, [vec![], vec![1], vec![2, 2]]);
            let scattered = session
                .reduce_scatter(vec![f64::from(rank); 6], &[1, 2, 3], Reduce::Sum)
                .wait()
                .unwrap();
            assert_eq!(scattered.values, vec![3.0; rank as usize + 1]);
            let told = session.broadcast(1, vec![7u16 * rank as u16; 5]).wait().unwrap();
            assert_eq!(told, [7; 5]);
            let parts = (0..ranks).map(|to| vec![10 * rank + to]).collect();
            let exchanged = session.all_to_all(parts).wait().unwrap();
            assert_eq!(exchanged, [vec![rank], vec![10 + rank], vec![20 + rank]]);
            let next = (rank + 1) % ranks;
            let sent = session.send(next, 9, vec![rank; 1_000]);
            let before = (rank + ranks - 1) % ranks;
            let received = session.receive::<u32>(before, 9).wait().unwrap();
            sent.wait().unwrap();
            received == vec![before; 1_000]
        },
    );
    assert_eq!(results, [true; 3]);
}

#[test]
fn ranks_of_one_host_share_memory_first() {
    let cluster = Cluster::losing(0.0);
    let sums = cluster.run(
        4,
        |config| config.share_memory = true,
        |session| {
            assert_eq!(session.hosts(), 1);
            (
                all_reduced(session, contribution(session.rank(), 100_000), Reduce::Sum),
                all_reduced(session, vec![session.rank() as i64; 10], Reduce::Max),
                all_reduced(session, vec![2.0 * session.rank() as f32; 10], Reduce::Mean),
            )
        },
    );
    let expected = sum(4, 100_000);
    assert!(sums.iter().all(|(sums, ..)| *sums == expected));
    assert!(sums.iter().all(|(_, most, mean)| *most == [3; 10] && *mean == [3.0; 10]));
    assert_eq!(cluster.switch.snapshot().expect("it runs").switch.gradients, 0, "no network");
}

// spec: A-35 sockets
#[test]
fn sums_go_to_the_least_loaded_thread() {
    let cluster = Cluster::losing(0.0);
    // Two long ones, one on each thread; then short ones, which balance them.
    let lengths = [90_000, 60_000, 10_000, 10_000, 10_000, 50_000];
    let sums = cluster.run(
        3,
        |config| config.threads = Some(2),
        |session| {
            let begin =
                |values| session.all_reduce(contribution(session.rank(), values), Reduce::Sum);
            let handles: Vec<_> = lengths.map(begin).into();
            let sums = handles.into_iter().map(|handle| handle.wait().expect("it ends").values);
            let sums: Vec<_> = sums.collect();
            let fragments = |thread| session.counters_of(thread).unwrap().worker.fragments_sent;
            assert!(session.counters_of(2).is_err());
            (sums, fragments(0), fragments(1))
        },
    );
    for (sums, first, second) in sums {
        assert!(lengths.iter().zip(&sums).all(|(&values, sums)| *sums == sum(3, values)));
        let packets =
            |lengths: &[u64]| lengths.iter().map(|values| values.div_ceil(352)).sum::<u64>();
        assert_eq!(
            (first, second),
            (packets(&[90_000, 50_000]), packets(&[60_000, 10_000, 10_000, 10_000]))
        );
    }
}

/// Sums end in another order than they began, and every rank sees other ones ended when it begins the next:
/// they use the same threads all the same, or they would wait for each other for ever.
// spec: A-35 sockets
#[test]
fn ranks_choose_the_same_threads_whatever_has_ended_where() {
    const ROUNDS: usize = 12;
    let cluster = Cluster::losing(0.0);
    let length = |round: usize| if round.is_multiple_of(3) { 120_000 } else { 3_000 + round };
    let results = cluster.run(
        3,
        |config| config.threads = Some(3),
        |session| {
            let rank = session.rank() as usize;
            let (mut open, mut sums) = (Vec::new(), vec![Vec::new(); ROUNDS]);
            for round in 0..ROUNDS {
                let values = contribution(session.rank(), length(round));
                open.push((round, session.all_reduce(values, Reduce::Sum)));
                // The first rank waits for each sum, the second for the last of three, the third for none.
                while rank < 2 && open.len() > 2 * rank {
                    let (round, handle) = open.pop().expect("there is one");
                    sums[round] = handle.wait().expect("it ends").values;
                }
            }
            for (round, handle) in open {
                sums[round] = handle.wait().expect("it ends").values;
            }
            let fragments = |thread| session.counters_of(thread).unwrap().worker.fragments_sent;
            (sums, [0, 1, 2].map(fragments))
        },
    );
    for (sums, threads) in &results {
        assert!(sums.iter().enumerate().all(|(round, sums)| *sums == sum(3, length(round))));
        assert_eq!(*threads, results[0].1, "the same threads carried the same sums");
        assert!(threads.iter().all(|&fragments| fragments > 0), "{threads:?}");
    }
}
