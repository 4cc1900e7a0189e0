//! Teams of threads.

#![allow(dead_code, reason = "every test program uses its own part of it")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use thalweg_shared::{Config, Team};

/// Small, so that short data has many chunks.
pub const CHUNK_BYTES: usize = 2_048;

/// Longer than any member of a test is late by itself.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A name that no other team has.
pub fn fresh_name(test: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("test-{test}-{}-{count}", std::process::id())
}

/// File in which a team of this name meets.
pub fn path(name: &str) -> PathBuf {
    PathBuf::from(format!("/dev/shm/thalweg-{name}"))
}

pub fn config(name: &str, members: u32, me: u32) -> Config {
    Config { patience: PATIENCE, chunk_bytes: CHUNK_BYTES, ..Config::new(name, members, me) }
}

/// Runs every member as a thread, and gives back what each returned.
pub fn with_team<T: Send>(members: u32, body: impl Fn(Team) -> T + Sync) -> Vec<T> {
    with_patience(members, PATIENCE, body)
}

/// The same with another patience.
pub fn with_patience<T: Send>(
    members: u32,
    patience: Duration,
    body: impl Fn(Team) -> T + Sync,
) -> Vec<T> {
    run(members, |config| config.patience = patience, body)
}

/// The same with a flag that stops each member.
pub fn with_stops<T: Send>(
    members: u32,
    stop: impl Fn(u32) -> Arc<AtomicBool>,
    body: impl Fn(Team) -> T + Sync,
) -> Vec<T> {
    run(members, |config| config.stop = Some(stop(config.me)), body)
}

fn run<T: Send>(
    members: u32,
    change: impl Fn(&mut Config),
    body: impl Fn(Team) -> T + Sync,
) -> Vec<T> {
    let name = fresh_name("threads");
    let (name, body) = (&name, &body);
    thread::scope(|scope| {
        let start = |me| {
            let mut config = config(name, members, me);
            change(&mut config);
            scope.spawn(move || body(Team::join(config).unwrap()))
        };
        let started: Vec<_> = (0..members).map(start).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[expect(clippy::disallowed_methods, reason = "tests of waiting take real time")]
pub fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "tests of waiting take real time")]
pub fn sleep(time: Duration) {
    thread::sleep(time);
}
