//! Fragments fill the MTU: on loopback, and for root in labs with links of any MTU.
#![allow(clippy::disallowed_methods, reason = "real networks take real time")]

#[path = "../common/cluster.rs"]
mod cluster;
mod narrow;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use thalweg::internal::listen;
use thalweg::{Collective, Reduce, Session};
use thalweg_lab::Spec;
use thalweg_lab::testing::build_or_skip;

use cluster::{Cluster, Ground, Racks};

const RANKS: u32 = 4;
const VALUES: usize = 100_000;

/// Lines of all servers about all jobs, and the values of fragments of all set-ups.
type Lines = Arc<Mutex<Vec<String>>>;

fn lines_of(cluster: &Cluster) -> Lines {
    let lines: Lines = Arc::default();
    let (kept, address) = (Arc::clone(&lines), cluster.server.address().to_string());
    listen(move |event| {
        if event.target == "thalweg::server" && event.field("address") == Some(&address) {
            kept.lock().expect("nobody panics with it").push(event.text.clone());
        }
    });
    lines
}

fn has(lines: &Lines, part: &str) -> bool {
    lines.lock().expect("nobody panics with it").iter().any(|line| line.contains(part))
}

/// Small integers, whose sums are exact.
fn value(rank: u32, at: usize) -> f32 {
    ((at as u64 * 7 + u64::from(rank) * 13) % 101) as f32 - 50.0
}

/// Sums a tensor by a collective, and checks every value.
fn sum(session: &Session) {
    let own: Vec<f32> = (0..VALUES).map(|at| value(session.rank(), at)).collect();
    let sum = session.all_reduce(own, Reduce::Sum).wait().expect("it ends").values;
    for (at, sum) in sum.iter().enumerate() {
        let expected: f32 = (0..RANKS).map(|rank| value(rank, at)).sum();
        assert_eq!(*sum, expected, "value {at}");
    }
}

/// Runs a job that sums through the switch, by flows and by deliveries, and returns the cluster.
fn sums(cluster: Cluster, mtu_of_first: Option<u16>) -> Cluster {
    let mut cluster = cluster;
    for collective in [Collective::Aggregate, Collective::Ring, Collective::Server] {
        let change = |config: &mut thalweg::SessionConfig| {
            config.policy.collective = collective;
            config.threads = Some(1);
            if config.rank == 0 {
                config.mtu_bytes = mtu_of_first;
            }
        };
        let program = |session: &Session| (0..3).for_each(|_| sum(session));
        cluster = cluster.run(RANKS, change, program, |cluster| cluster).0;
    }
    cluster
}

fn in_lab(spec: &Spec) -> Option<Cluster> {
    let lab = build_or_skip(spec)?;
    Some(Cluster::in_racks(Ground::Lab(lab), 0.0, Racks::Shared(spec.racks)))
}

// spec: F-01 sockets
#[test]
fn fragments_fill_the_packets_of_loopback() {
    let cluster = Cluster::of_mtu(Ground::Loopback, 0.0, Racks::ONE, None);
    let lines = lines_of(&cluster);
    let cluster = sums(cluster, None);
    assert!(has(&lines, "fragments of 2224 values"), "{lines:?}");
    let stats = cluster.switch.snapshot().expect("it runs");
    assert!(stats.switch.completed > 0 && stats.switch.path_probes > 0, "{:?}", stats.switch);
    assert_eq!((stats.mtu_bytes, stats.values_max), (9_000, 2_224));
    assert_eq!(stats.switch.malformed + stats.switch.forged, 0, "{:?}", stats.switch);
}

// spec: F-01 sockets
#[test]
fn the_least_mtu_that_anybody_announces_counts() {
    let cluster = Cluster::of_mtu(Ground::Loopback, 0.0, Racks::ONE, None);
    let lines = lines_of(&cluster);
    sums(cluster, Some(1_500));
    assert!(has(&lines, "fragments of 352 values"), "{lines:?}");
    assert!(!has(&lines, "fragments of 2224 values"), "{lines:?}");
    assert!(!has(&lines, "carries packets of"), "nothing is wrong: {lines:?}");
}

// spec: F-01 lab
#[test]
fn sums_are_exact_with_jumbo_frames() {
    let spec = Spec { hosts: RANKS, servers: 1, mtu_bytes: 9_000, ..Spec::default() };
    let Some(cluster) = in_lab(&spec) else { return };
    let lines = lines_of(&cluster);
    let cluster = sums(cluster, None);
    assert!(has(&lines, "fragments of 2224 values"), "{lines:?}");
    assert_eq!(cluster.switch.snapshot().expect("it runs").net.dropped_oversize, 0);
}

// spec: F-01 lab
#[test]
fn a_link_in_the_middle_that_carries_less_than_announced_is_found_and_named() {
    let spec = Spec {
        hosts: RANKS,
        servers: 1,
        racks: 2,
        mtu_bytes: 9_000,
        core_mtu_bytes: Some(1_500),
        ..Spec::default()
    };
    let Some(cluster) = in_lab(&spec) else { return };
    let lines = lines_of(&cluster);
    sums(cluster, None);
    assert!(has(&lines, "carries packets of 1500 bytes and not of 9000"), "{lines:?}");
    assert!(has(&lines, "the path between"), "{lines:?}");
    assert!(has(&lines, "fragments of 352 values"), "{lines:?}");
    assert!(!has(&lines, "fragments of 2224 values"), "{lines:?}");
}

/// The link of a host becomes narrow while a job sums: operations that are under way fail with the path and both sizes, and
/// the next ones of the same session have shorter fragments.
// spec: F-01 lab
#[test]
fn a_path_that_becomes_narrow_fails_the_operation_and_the_next_one_has_shorter_packets() {
    let spec = Spec { hosts: RANKS, servers: 1, mtu_bytes: 9_000, ..Spec::default() };
    let Some(lab) = build_or_skip(&spec) else { return };
    let host = lab.host(1).clone();
    let cluster = Cluster::start(Ground::Lab(lab), 0.0);
    let lines = lines_of(&cluster);
    let change = |config: &mut thalweg::SessionConfig| {
        config.threads = Some(2);
        config.stall_after = Duration::from_secs(1);
    };
    let program = |session: &Session| {
        narrow::operations(session, Collective::Aggregate, |rank, operation| {
            if (rank, operation) == (1, narrow::FIRST_FAILED) {
                host.set_mtu(1_500).expect("a place");
            }
        })
    };
    let (_, errors) = cluster.run(RANKS, change, program, |cluster| cluster);
    narrow::assert_named(&errors);
    assert!(has(&lines, "fragments of 2224 values"), "{lines:?}");
    assert!(has(&lines, "fragments of 352 values"), "{lines:?}");
}
