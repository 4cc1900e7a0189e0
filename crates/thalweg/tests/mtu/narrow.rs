//! Paths that become narrow while a session goes on, on loopback.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use thalweg::internal::PacketLimit;
use thalweg::{Collective, Error, ErrorKind, Handle, Reduce, ReduceOptions, Reduced, Session};
use thalweg_core::Rng;

use super::cluster::{Cluster, Ground, Racks, TOKEN};
use super::{RANKS, VALUES, has, lines_of};

/// Operation before which a path becomes narrow.
pub const FIRST_FAILED: u32 = 5;

/// Operations that a rank has under way at a time.
const IN_FLIGHT: u32 = 4;

/// Operations of a rank.
const OPERATIONS: u32 = 14;

/// The rank that calls nothing more until the others have had an error.
const LATE: u32 = 3;

/// Time after which a rank counts as dead that went away while ranks meet.
const FAILURE_AFTER: Duration = Duration::from_secs(3);

/// An error of an operation, by its number.
pub type Failed = (u32, Error);

/// Small integers, whose sums are exact, and which differ between operations.
fn values(rank: u32, operation: u32) -> Vec<f32> {
    let first = rank * 1_000 + operation;
    (0..VALUES as u32).map(|at| ((first + at * 7) % 101) as f32).collect()
}

fn expected(operation: u32) -> Vec<f32> {
    let mut sum = vec![0.0; VALUES];
    for rank in 0..RANKS {
        sum.iter_mut().zip(values(rank, operation)).for_each(|(sum, value)| *sum += value);
    }
    sum
}

/// Has a rank sum one tensor after the other, some at a time, and returns the errors. Results have to be right. The late rank
/// calls those that fail only when others know that they did.
pub fn operations(
    session: &Session,
    collective: Collective,
    before: impl Fn(u32, u32),
) -> Vec<Failed> {
    // Nothing is under way when the path becomes narrow.
    let room = |operation| if operation == FIRST_FAILED { 0 } else { IN_FLIGHT - 1 };
    operations_of(session, collective, room, before)
}

/// Does so with room for a number of operations under way when another one begins.
fn operations_of(
    session: &Session,
    collective: Collective,
    room: impl Fn(u32) -> u32,
    before: impl Fn(u32, u32),
) -> Vec<Failed> {
    let rank = session.rank();
    let options = ReduceOptions::new(Reduce::Sum).collective(collective);
    let mut errors: Vec<Failed> = Vec::new();
    let mut under_way: VecDeque<(u32, Handle<Reduced<Vec<f32>>>)> = VecDeque::new();
    for operation in 0..=OPERATIONS {
        let room = if operation == OPERATIONS { 0 } else { room(operation) };
        while under_way.len() as u32 > room {
            let Some((number, handle)) = under_way.pop_front() else { break };
            match handle.wait() {
                Ok(sum) => assert_eq!(sum.values, expected(number), "operation {number}"),
                Err(error) => errors.push((number, error)),
            }
        }
        if operation == OPERATIONS {
            break;
        }
        before(rank, operation);
        under_way.push_back((operation, session.all_reduce(values(rank, operation), options)));
    }
    errors
}

/// Checks that some operations failed, at all ranks below the same one, for a path with both sizes.
pub fn assert_named(errors: &[Vec<Failed>]) {
    let first_good = errors.iter().flatten().map(|(number, _)| number + 1).max();
    assert!(first_good.is_some_and(|first| first < OPERATIONS), "{errors:?}");
    for (number, error) in errors.iter().flatten() {
        assert!(*number >= FIRST_FAILED, "{errors:?}");
        assert_eq!(error.kind(), ErrorKind::Path, "{error}");
        let text = error.to_string();
        assert!(text.contains("the path between rank"), "{text}");
        assert!(text.contains("carries packets of 1500 bytes"), "{text}");
        assert!(text.contains("9000"), "{text}");
    }
}

/// Runs a program at all ranks of a job, with a path to rank 1 that becomes narrow when the limit is set.
fn run<R: Send>(
    cluster: &Cluster,
    job: &str,
    ranks: u32,
    program: impl Fn(Session, &PacketLimit) -> R + Sync,
) -> Vec<R> {
    let (limit, program) = (&PacketLimit::default(), &program);
    std::thread::scope(|scope| {
        let start = |rank| {
            let mut config = Session::builder(cluster.server.address().to_string(), job)
                .rank(rank, ranks)
                .switch(cluster.switch.address())
                .token(TOKEN)
                .share_memory(false)
                .threads(2)
                .stall_after(Duration::from_secs(1))
                .failure_after(FAILURE_AFTER)
                .operation_timeout(Duration::from_secs(30))
                .config();
            if rank == 1 {
                config.packet_limit = limit.clone();
            }
            scope.spawn(move || program(Session::join(config).expect("all ranks are there"), limit))
        };
        let threads: Vec<_> = (0..ranks).map(start).collect();
        threads.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    })
}

/// A rank that has not called what fails at the others gets the error when it calls it: the next operation is the same at all.
// spec: F-01 sockets
#[test]
fn what_any_rank_has_called_fails_at_all_and_the_session_goes_on() {
    let cluster = Cluster::of_mtu(Ground::Loopback, 0.0, Racks::ONE, None);
    let lines = lines_of(&cluster);
    let of = |collective: Collective, job: &str| {
        let is_known = AtomicBool::new(false);
        let errors = run(&cluster, job, RANKS, |session, limit| {
            let errors = operations(&session, collective, |rank, operation| match operation {
                FIRST_FAILED if rank == 1 => limit.set_mtu(1_500),
                FIRST_FAILED if rank == LATE => {
                    while !is_known.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
                // The first error is there when there is room for another operation.
                9 => is_known.store(true, Ordering::SeqCst),
                _ => {}
            });
            session.leave().expect("the session has gone on");
            errors
        });
        assert_named(&errors);
        for errors in &errors {
            let numbers: Vec<u32> = errors.iter().map(|(number, _)| *number).collect();
            assert_eq!(numbers, [5, 6, 7, 8], "{job}: {errors:?}");
        }
    };
    std::thread::scope(|scope| {
        let jobs = [
            (Collective::Aggregate, "aggregate"),
            (Collective::Ring, "ring"),
            (Collective::Server, "server"),
        ];
        for (collective, job) in jobs {
            let of = &of;
            scope.spawn(move || of(collective, job));
        }
    });
    assert!(has(&lines, "fragments of 2224 values"), "{lines:?}");
    assert!(has(&lines, "fragments of 352 values"), "{lines:?}");
}

/// A path that becomes narrower once or twice while operations are under way, as a seed says.
#[derive(Debug)]
struct Narrowing {
    collective: Collective,
    in_flight: u32,
    /// Operations before which the path to rank 1 gets an MTU.
    steps: Vec<(u32, u16)>,
}

impl Narrowing {
    fn draw(seed: u64) -> Narrowing {
        let mut rng = Rng::new(seed).stream("narrowing");
        let collectives = [Collective::Aggregate, Collective::Ring, Collective::Server];
        let mtu_bytes = [6_000, 4_000, 3_000][rng.below(3) as usize];
        let mut steps = vec![(1 + rng.below(4) as u32, mtu_bytes)];
        if rng.chance(0.5) {
            steps.push((5 + rng.below(4) as u32, [2_000, 1_500][rng.below(2) as usize]));
        }
        let in_flight = 1 + rng.below(IN_FLIGHT.into()) as u32;
        Narrowing { collective: collectives[rng.below(3) as usize], in_flight, steps }
    }

    /// Runs a job, whose results are checked, and checks its errors.
    fn run(&self, cluster: &Cluster, job: &str) {
        let errors = run(cluster, job, RANKS, |session, limit| {
            let room = |_| self.in_flight - 1;
            let errors = operations_of(&session, self.collective, room, |rank, operation| {
                let step = self.steps.iter().find(|(at, _)| rank == 1 && *at == operation);
                step.iter().for_each(|(_, mtu_bytes)| limit.set_mtu(*mtu_bytes));
            });
            session.leave().expect("the session has gone on");
            errors
        });
        // What a rank had received before its path became narrow may end well, also there.
        assert!(errors.iter().flatten().next().is_some(), "{job} of {self:?}: nothing has failed");
        let sizes = self.steps.iter().map(|(_, mtu_bytes)| format!("packets of {mtu_bytes} bytes"));
        let sizes: Vec<String> = sizes.collect();
        for (rank, errors) in errors.iter().enumerate() {
            let context = format!("{job} of {self:?}, rank {rank}: {errors:?}");
            assert!(errors.iter().all(|(number, _)| number + 1 < OPERATIONS), "{context}");
            for (_, error) in errors {
                let text = error.to_string();
                assert_eq!(error.kind(), ErrorKind::Path, "{context}");
                assert!(text.contains("the path between rank"), "{context}");
                assert!(sizes.iter().any(|size| text.contains(size)), "{context}");
            }
        }
    }
}

/// Results are right, everything else fails with the path and a size, and all ranks go on.
// spec: F-01 sockets
#[test]
fn paths_become_narrow_when_and_how_the_seed_says() {
    let variable = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = variable("THALWEG_SEED").unwrap_or(0);
    let end = first + variable("THALWEG_SEEDS").unwrap_or(3);
    let cluster = Cluster::of_mtu(Ground::Loopback, 0.0, Racks::ONE, None);
    let next = AtomicU64::new(first);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let seed = next.fetch_add(1, Ordering::SeqCst)
                    && seed < end
                {
                    Narrowing::draw(seed).run(&cluster, &format!("seed-{seed}"));
                }
            });
        }
    });
}

/// Transfers between two ranks have no numbers by which their ends could agree.
// spec: F-01 sockets
#[test]
fn a_session_with_transfers_is_over_at_all_ranks() {
    let cluster = Cluster::of_mtu(Ground::Loopback, 0.0, Racks::ONE, None);
    let both = &Barrier::new(2);
    let errors = run(&cluster, "transfers", 2, |session, limit| {
        if session.rank() == 0 {
            session.send(1, 7, vec![1.0_f32]).wait().expect("it is received");
        } else {
            session.receive::<f32>(0, 7).wait().expect("it is sent");
            limit.set_mtu(1_500);
        }
        both.wait();
        let first = session.all_reduce(vec![1.0; VALUES], Reduce::Sum).wait().expect_err("narrow");
        assert_eq!(first.kind(), ErrorKind::Path, "{first}");
        let next = session.all_reduce(vec![1.0; VALUES], Reduce::Sum).wait();
        (next.expect_err("it is over"), session.leave().expect_err("it is over"))
    });
    for (next, left) in errors {
        assert_eq!((next.kind(), left.kind()), (ErrorKind::Network, ErrorKind::Network), "{next}");
        assert!(next.to_string().contains("values were sent from rank to rank"), "{next}");
    }
}

/// One rank goes away while ranks meet, and one ends the job: nobody waits for long.
// spec: E-03, F-01 sockets
#[test]
fn a_meeting_ends_when_a_rank_drops_its_session_or_aborts() {
    let cluster = Cluster::of_mtu(Ground::Loopback, 0.0, Racks::ONE, None);
    let calls = &Arc::new(AtomicU32::new(0));
    let outcomes = run(&cluster, "ends", 3, |session, limit| {
        let sum = |session: &Session| session.all_reduce(vec![1.0; VALUES], Reduce::Sum);
        sum(&session).wait().expect("nothing has happened");
        if session.rank() == 1 {
            limit.set_mtu(1_500);
        }
        sum(&session).wait().expect_err("the path is narrow");
        let began = Instant::now();
        if session.rank() == 2 {
            drop(session);
            return (None, began.elapsed());
        }
        let next = sum(&session);
        calls.fetch_add(1, Ordering::SeqCst);
        if session.rank() == 0 {
            while calls.load(Ordering::SeqCst) < 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            session.abort("enough");
        }
        (Some(next.wait().expect_err("rank 2 is gone").kind()), began.elapsed())
    });
    for (kind, time) in outcomes {
        // A rank that begins to meet after the others have gone finds nobody until its deadline for joining.
        let kinds = [ErrorKind::Aborted, ErrorKind::Peer, ErrorKind::Timeout].map(Some);
        let kinds = [None].into_iter().chain(kinds).collect::<Vec<_>>();
        assert!(kinds.contains(&kind), "{kind:?}");
        assert!(time < 2 * FAILURE_AFTER + Duration::from_secs(2), "{kind:?} after {time:?}");
    }
}
