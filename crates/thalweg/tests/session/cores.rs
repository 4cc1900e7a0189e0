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

// spec: F-04, E-12 sockets
#[test]
fn a_session_of_four_threads_is_registered_and_counted_once() {
    let cluster = Cluster::on_cores(2, 0.0);
    let results = cluster.run(
        2,
        |config| config.threads = Some(4),
        |session| {
            session.all_reduce(contribution(session.rank()), Reduce::Sum).wait().expect("it ends");
            let seen = (session.rank() == 0).then(|| {
                let snapshot = cluster.server.snapshot().expect("it runs");
                (snapshot, cluster.server.metrics().expect("it runs"))
            });
            session.barrier().wait().expect("it ends");
            (seen, session.threads())
        },
    );
    assert!(results.iter().all(|(_, threads)| *threads == 4));
    let (snapshot, metrics) = results[0].0.as_ref().expect("rank 0 has looked");
    assert!(metrics.contains("\nthalweg_server_jobs 1\n"), "{metrics}");
    let [job] = &snapshot.registered[..] else { panic!("{:?}", snapshot.registered) };
    assert_eq!((job.ranks, job.connected), (2, 2));
    let [(counted, stats)] = &snapshot.jobs[..] else { panic!("{:?}", snapshot.jobs) };
    assert_eq!(*counted, job.id);
    // All fragments of the sum, of all threads and cores.
    assert!(stats.completed >= VALUES as u64 / 352, "{stats:?}");
    let [(reserved_for, reserved)] = snapshot.memory.reserved_by_job[..] else {
        panic!("{:?}", snapshot.memory)
    };
    assert_eq!((reserved_for, reserved), (job.id, snapshot.memory.reserved_bytes));
    let [(_, of_address)] = &snapshot.memory.reserved_by_token[..] else {
        panic!("{:?}", snapshot.memory)
    };
    assert_eq!(*of_address, reserved, "the budget of the address counts all threads");
}

// spec: F-04, E-03 sockets
#[test]
#[expect(clippy::disallowed_methods, reason = "a rank aborts while another one waits")]
fn an_abort_is_named_once_and_ends_all_threads() {
    let cluster = Cluster::on_cores(2, 0.0);
    let errors = std::thread::scope(|scope| {
        let rank = |rank: u32| {
            let mut config = cluster.config("aborted", rank, 2);
            config.threads = Some(4);
            scope.spawn(move || {
                let session = thalweg::Session::join(config).expect("both ranks are there");
                // Rank 0 takes no part: a short sum for each thread, and one on all of them.
                let lengths = [10, 20, 30, 40, VALUES];
                let sum = |values| session.all_reduce(vec![1.0_f32; values], Reduce::Sum);
                let waiting: Vec<_> = lengths.into_iter().filter(|_| rank == 1).map(sum).collect();
                if rank == 0 {
                    std::thread::sleep(Duration::from_millis(300));
                    session.abort("enough");
                }
                let later = session.all_reduce(vec![1.0_f32; VALUES], Reduce::Sum);
                let all = waiting.into_iter().chain([later]);
                all.map(|handle| handle.wait().expect_err("it was aborted")).collect::<Vec<_>>()
            })
        };
        [rank(0), rank(1)].map(|rank| rank.join().expect("no rank panics"))
    });
    assert_eq!((errors[0].len(), errors[1].len()), (1, 6));
    for error in errors.iter().flatten() {
        assert_eq!((error.kind(), error.ranks()), (ErrorKind::Aborted, &[0][..]), "{error}");
        assert_eq!(error.to_string(), errors[0][0].to_string());
    }
    let named = cluster.notes().iter().filter(|line| line.contains("aborted by rank 0")).count();
    assert_eq!(named, 1, "{:?}", cluster.notes());
}

// spec: F-04, E-04 sockets
#[test]
fn a_wrong_token_is_refused_once_for_all_threads() {
    use thalweg::daemon::{ServerDaemon, ServerDaemonConfig};
    let mut config = ServerDaemonConfig::new(([127, 0, 0, 1], 0).into(), super::cluster::SECRET);
    (config.cores, config.token) = (2, Some("right".into()));
    let server = ServerDaemon::start(&config).expect("it starts");
    let error = thalweg::Session::builder(server.address().to_string(), "closed")
        .rank(0, 2)
        .share_memory(false)
        .token("wrong")
        .threads(4)
        .join()
        .map(|_| ())
        .expect_err("the token is wrong");
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    let refused = server.snapshot().expect("it runs").refused;
    let of_tokens = refused.iter().find(|(reason, _)| *reason == "token");
    assert_eq!(of_tokens.map(|(_, count)| *count), Some(1), "{refused:?}");
}
