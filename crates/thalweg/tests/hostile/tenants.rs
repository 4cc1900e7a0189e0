//! A tenant with a token of its own at the control channel, while the job of another sums.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use thalweg_control::token::{Pattern, Role, Token};
use thalweg_control::{Access, AttendConfig, Attendance, ControlEvent, Settings, inquiry};
use thalweg_core::NodeId;

use crate::cluster::{Cluster, Ground, SECRET};
use crate::sockets::{End, RANKS, sums};

/// The attacker's token, which covers its own jobs.
fn token() -> String {
    let jobs = Pattern::new("mallory*").expect("a pattern");
    let (role, expires) = (Role::Tenant, u64::MAX);
    Token { id: 66, role, jobs, ranks_max: 4, expires }.sign(&SECRET)
}

fn access(server: SocketAddr) -> Access {
    Access { endpoint: server.to_string(), token: Some(token()), tls_ca: None }
}

// spec: E-04, E-12 sockets
#[test]
fn a_tenant_at_the_control_channel_changes_no_sum() {
    let cluster = Cluster::start(Ground::Loopback, 0.0);
    let server = cluster.server.address();
    let (is_over, calls, seen) =
        (AtomicBool::new(false), AtomicU64::new(0), Mutex::new(Vec::new()));
    let cluster = std::thread::scope(|scope| {
        let (is_over, calls, seen) = (&is_over, &calls, &seen);
        for _ in 0..4 {
            scope.spawn(move || list(server, is_over, calls, seen));
        }
        for number in 0..4 {
            scope.spawn(move || squat(server, number, &["job-0", "job-1"], is_over, calls));
        }
        // Also if a rank panics.
        let _end = End(is_over);
        cluster.run(RANKS, |_| {}, sums, |cluster| cluster).0
    });
    let calls = calls.load(Ordering::Relaxed);
    let snapshot = cluster.server.snapshot().expect("it runs");
    let count = |reason: &str| {
        let found = snapshot.refused.iter().find(|(name, _)| *name == reason);
        found.expect("a reason").1
    };
    println!("{calls} calls; refused: {:?}", snapshot.refused);
    assert!(calls > 50 && count("rights") > 0, "{calls} calls: {:?}", snapshot.refused);
    let seen = seen.into_inner().expect("no thread panicked");
    assert!(seen.iter().all(|name: &String| name.starts_with("mallory")), "{seen:?}");
}

/// Asks for everything that there is to see.
pub fn list(
    server: SocketAddr,
    is_over: &AtomicBool,
    calls: &AtomicU64,
    seen: &Mutex<Vec<String>>,
) {
    while !is_over.load(Ordering::Relaxed) {
        let (topology, statistics) =
            (inquiry::topology(&access(server)), inquiry::statistics(&access(server), None));
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
    number: u32,
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
            access: access(server),
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
            threads: 1,
            mtu_bytes: None,
            ticket: None,
            settings: Settings::default(),
        };
        let (sender, events) = std::sync::mpsc::channel();
        let attendance = Attendance::start(config, move |event| drop(sender.send(event)));
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
