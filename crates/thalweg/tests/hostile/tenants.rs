//! A tenant with a token of its own at the control channel, while the job of another sums.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use thalweg::{Reduce, Session, SessionConfig};
use thalweg_control::token::{Pattern, Role, Token};
use thalweg_control::{Access, AttendConfig, Attendance, ControlEvent, Settings, inquiry};
use thalweg_core::NodeId;

use crate::cluster::{Cluster, Ground, Racks, SECRET, TOKEN};
use crate::sockets::{End, RANKS, sums};

/// Names that the attacker's token covers where it has jobs of its own.
pub const OWN: &str = "mallory*";

/// Names of all jobs: the attacker may register and join the victim's, as far as its ranks are free.
const ALL: &str = "*";

/// The attacker's token.
fn token(jobs: &str) -> String {
    let jobs = Pattern::new(jobs).expect("a pattern");
    let (role, expires) = (Role::Tenant, u64::MAX);
    Token { id: 66, role, jobs, ranks_max: 4, expires }.sign(&SECRET)
}

fn access(server: SocketAddr, jobs: &str) -> Access {
    Access { endpoint: server.to_string(), token: Some(token(jobs)), tls_ca: None }
}

/// Counters of a server by reason.
fn refused(cluster: &Cluster) -> impl Fn(&str) -> u64 + use<> {
    let refused = cluster.server.snapshot().expect("it runs").refused;
    println!("refused: {refused:?}");
    move |reason| refused.iter().find(|(name, _)| *name == reason).expect("a reason").1
}

// spec: E-04, E-12 sockets
#[test]
fn a_tenant_at_the_control_channel_changes_no_sum() {
    beside_a_tenant(Cluster::start(Ground::Loopback, 0.0), 1);
}

/// The same with a job of several sending threads on several cores.
// spec: E-04, E-12 sockets
#[test]
fn a_tenant_at_the_control_channel_changes_no_sum_of_several_threads() {
    beside_a_tenant(Cluster::on_cores(Ground::Loopback, Racks::ONE, 2), 3);
}

fn beside_a_tenant(cluster: Cluster, threads: u32) {
    let server = cluster.server.address();
    let (is_over, calls, seen) =
        (AtomicBool::new(false), AtomicU64::new(0), Mutex::new(Vec::new()));
    let cluster = std::thread::scope(|scope| {
        let (is_over, calls, seen) = (&is_over, &calls, &seen);
        for _ in 0..4 {
            scope.spawn(move || list(server, is_over, calls, seen));
        }
        for number in 0..4 {
            scope.spawn(move || {
                squat(server, (OWN, number), &["job-0", "job-1"], is_over, calls);
            });
        }
        // Also if a rank panics.
        let _end = End(is_over);
        let change = |config: &mut SessionConfig| config.threads = Some(threads);
        cluster.run(RANKS, change, sums, |cluster| cluster).0
    });
    let calls = calls.load(Ordering::Relaxed);
    let count = refused(&cluster);
    assert!(calls > 50 && count("rights") > 0, "{calls} calls");
    let seen = seen.into_inner().expect("no thread panicked");
    assert!(seen.iter().all(|name: &String| name.starts_with("mallory")), "{seen:?}");
}

/// The attacker's token covers the name of the victim's job, as a shared one does. Ranks belong to the processes that took them:
/// it neither takes one nor changes a sum.
// spec: E-04 sockets
#[test]
fn a_token_that_covers_a_running_job_takes_no_rank_of_it() {
    let cluster = Cluster::start(Ground::Loopback, 0.0);
    let server = cluster.server.address();
    let (is_over, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    let (is_over, calls) = (&is_over, &calls);
    let sums_until_over = |session: &Session| {
        loop {
            let is_last = f32::from(u8::from(is_over.load(Ordering::Relaxed)));
            let values = vec![is_last, 1.0, 2.0];
            let result = session.all_reduce(values, Reduce::Sum).wait().expect("it ends well");
            assert_eq!(result.values[1..], [RANKS as f32, 2.0 * RANKS as f32]);
            if result.values[0] > 0.0 {
                return;
            }
        }
    };
    let attack = |cluster: Cluster| {
        let _end = End(is_over);
        let (name, is_enough) = (running(&cluster), AtomicBool::new(false));
        let is_enough = &is_enough;
        std::thread::scope(|scope| {
            for number in 0..RANKS {
                let names = [name.as_str()];
                scope.spawn(move || squat(server, (ALL, number), &names, is_enough, calls));
            }
            let end = Instant::now() + Duration::from_secs(20);
            while calls.load(Ordering::Relaxed) < 40 {
                assert!(Instant::now() < end, "calls are answered");
                std::thread::sleep(Duration::from_millis(10));
            }
            is_enough.store(true, Ordering::Relaxed);
        });
        let count = refused(&cluster);
        assert!(count("rank") > 0, "ranks that are taken stay so");
        let jobs = cluster.server.snapshot().expect("it runs").jobs;
        assert!(!jobs.is_empty(), "the job goes on");
        cluster
    };
    // As the attacker has them: a job with other settings would be refused for those.
    let defaults = |config: &mut SessionConfig| {
        config.stall_after = Duration::from_secs(5);
        config.operation_timeout = Duration::from_secs(300);
    };
    cluster.run(RANKS, defaults, sums_until_over, attack);
}

/// The name of a job that sums.
fn running(cluster: &Cluster) -> String {
    let endpoint = cluster.server.address().to_string();
    let access = Access { endpoint, token: Some(TOKEN.into()), tls_ca: None };
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let is_summing = |cluster: &Cluster| {
            let jobs = cluster.server.snapshot().expect("it runs").jobs;
            jobs.iter().any(|(_, stats)| stats.parameters > 0)
        };
        if is_summing(cluster) {
            let jobs = inquiry::topology(&access).expect("it is answered").jobs;
            return jobs[0].name.clone();
        }
        assert!(Instant::now() < end, "nobody sums");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Asks for everything that there is to see.
pub fn list(
    server: SocketAddr,
    is_over: &AtomicBool,
    calls: &AtomicU64,
    seen: &Mutex<Vec<String>>,
) {
    while !is_over.load(Ordering::Relaxed) {
        let (topology, statistics) = (
            inquiry::topology(&access(server, OWN)),
            inquiry::statistics(&access(server, OWN), None),
        );
        calls.fetch_add(2, Ordering::Relaxed);
        let mut seen = seen.lock().expect("no thread panicked");
        seen.extend(topology.into_iter().flat_map(|all| all.jobs).map(|job| job.name));
        seen.extend(statistics.into_iter().flat_map(|all| all.jobs).map(|job| job.name));
        seen.dedup();
    }
}

/// Joins jobs of a victim as one of their ranks, and registers jobs of its own that never begin. Without names, it does only
/// the latter.
pub fn squat(
    server: SocketAddr,
    (jobs, number): (&str, u32),
    names: &[&str],
    is_over: &AtomicBool,
    calls: &AtomicU64,
) {
    for round in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let victims = round % 2 == 0 && !names.is_empty();
        let config = AttendConfig {
            access: access(server, jobs),
            name: if victims {
                names[number as usize % names.len()].to_owned()
            } else {
                format!("mallory-{number}-{round}")
            },
            workers: RANKS,
            rank: number % RANKS,
            node: NodeId(0x0001_f000 + 8 * number),
            life: u64::from(number) << 32 | round,
            host: "evil".into(),
            switch: None,
            // Sending threads that it does not have.
            more_nodes: (2..6)
                .map(|thread| NodeId((thread << 16) | (0xf000 + 8 * number)))
                .collect(),
            mtu_bytes: None,
            ticket: None,
            settings: Settings::default(),
        };
        let (sender, events) = std::sync::mpsc::channel();
        let attendance = Attendance::start(config, move |_, event| drop(sender.send(event)));
        let first = events.recv_timeout(Duration::from_secs(5));
        calls.fetch_add(1, Ordering::Relaxed);
        if victims && let Ok(event) = first {
            let is_refused = matches!(
                event,
                ControlEvent::GaveUp { is_refused: true, .. } | ControlEvent::Disconnected { .. }
            );
            assert!(is_refused, "{event:?}");
        }
        drop(attendance);
    }
}
