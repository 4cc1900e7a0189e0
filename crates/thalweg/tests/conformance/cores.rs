//! Sessions with several sending threads over daemons on several cores, in a lab whose links lose packets.

use std::time::{Duration, Instant};

use thalweg::{Reduce, Session};
use thalweg_lab::Spec;
use thalweg_lab::testing::build_or_skip;

use crate::cluster::{Cluster, Ground, Racks};

const RANKS: u32 = 4;
const THREADS: u32 = 3;
const CORES: u16 = 2;

/// More than a part for each thread, and no multiple of anything.
const VALUES: usize = 450_001;

/// Small integers, whose sums are exact in any order.
fn value(rank: u32, at: usize) -> f32 {
    ((at as u64 * 7 + u64::from(rank) * 13) % 101) as f32 - 50.0
}

/// Sums a long tensor on all threads, and short ones, which threads take in turns.
fn sums(session: &Session) -> Vec<u64> {
    let own = (0..VALUES).map(|at| value(session.rank(), at)).collect::<Vec<f32>>();
    let short: Vec<_> =
        (0..6).map(|_| session.all_reduce(own[..1_000].to_vec(), Reduce::Sum)).collect();
    let long = session.all_reduce(own, Reduce::Sum).wait().expect("it ends");
    assert!(long.coverage.is_exact() && session.threads() == THREADS);
    let short = short.into_iter().map(|handle| handle.wait().expect("it ends").values);
    for sum in short.chain([long.values]) {
        for (at, sum) in sum.iter().enumerate() {
            let expected: f32 = (0..RANKS).map(|rank| value(rank, at)).sum();
            assert_eq!(*sum, expected, "value {at}");
        }
    }
    let sent = |thread| session.counters_of(thread).expect("it runs").worker.fragments_sent;
    (0..THREADS as usize).map(sent).collect()
}

/// Waits until the job is there, and returns how often it is registered and for how many jobs memory is reserved.
fn registered(cluster: Cluster, seen: &mut Vec<(usize, usize, u32)>) -> Cluster {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(20) && seen.len() < 5 {
        let snapshot = cluster.server.snapshot().expect("it runs");
        if !snapshot.memory.reserved_by_job.is_empty() {
            let connected = snapshot.registered.iter().map(|job| job.connected).sum();
            seen.push((
                snapshot.registered.len(),
                snapshot.memory.reserved_by_job.len(),
                connected,
            ));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    cluster
}

// spec: F-03, F-04 lab
#[test]
fn sums_of_several_threads_are_exact_over_daemons_on_several_cores() {
    let racks = Racks::Shared(2);
    let (hosts, loss) = (RANKS, 0.01);
    let spec = Spec { hosts, racks: 2, servers: 1, loss, per_packet: true, ..Spec::default() };
    let Some(lab) = build_or_skip(&spec) else { return };
    let cluster = Cluster::on_cores(Ground::Lab(lab), racks, CORES);
    let mut seen = Vec::new();
    let change = |config: &mut thalweg::SessionConfig| config.threads = Some(THREADS);
    let (cluster, sent) =
        cluster.run(RANKS, change, sums, |cluster| registered(cluster, &mut seen));
    for sent in sent {
        assert!(sent.iter().all(|sent| *sent >= 300), "every thread has its part: {sent:?}");
    }
    assert!(!seen.is_empty() && seen.iter().all(|seen| *seen == (1, 1, RANKS)), "{seen:?}");
    for switch in cluster.switches() {
        let snapshot = switch.snapshot().expect("it runs");
        let by_core = &snapshot.received_by_core;
        assert_eq!(by_core.len(), usize::from(CORES));
        assert!(by_core.iter().all(|packets| *packets >= 600), "{by_core:?}");
    }
    let server = cluster.server.snapshot().expect("it runs");
    assert_eq!((server.registered.len(), server.jobs.len()), (0, 0), "all have left");
}
