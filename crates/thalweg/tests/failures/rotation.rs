//! A secret that is replaced while jobs run.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use thalweg::daemon::{
    Secret, Secrets, ServerDaemon, ServerDaemonConfig, SwitchDaemon, SwitchDaemonConfig,
};
use thalweg::{Reduce, Session};

use crate::stage::LIMIT;

const OLD: Secret = Secret([4; 16]);
const NEW: Secret = Secret([5; 16]);
const RANKS: u32 = 2;
const VALUES: usize = 5_000;

/// A job that sums until it is over.
#[derive(Default)]
struct Job {
    is_over: AtomicBool,
    /// Sums of rank 0.
    sums: AtomicU64,
}

impl Job {
    fn run(&self, server: SocketAddr, switch: SocketAddr, name: &str, rank: u32) {
        let config = Session::builder(server.to_string(), name)
            .rank(rank, RANKS)
            .switch(switch)
            .share_memory(false)
            .operation_timeout(LIMIT)
            .config();
        let session = Session::join(config).expect("both are there");
        loop {
            let sum = self.sums.load(Ordering::Relaxed);
            // All ranks end after the sum in which the first one has seen that it is over.
            let is_over = self.is_over.load(Ordering::Relaxed);
            let mut values = vec![(rank + 1) as f32; VALUES];
            values[0] = f32::from(u8::from(is_over));
            let result = session.all_reduce(values, Reduce::Sum).wait().expect("no sum fails");
            let expected = (1..=RANKS).sum::<u32>() as f32;
            assert!(result.values[1..].iter().all(|value| *value == expected), "{name}: sum {sum}");
            if rank == 0 {
                self.sums.fetch_add(1, Ordering::Relaxed);
            }
            if result.values[0] > 0.0 {
                break;
            }
        }
        session.leave().expect("everything has ended");
    }

    /// Waits for some more sums.
    fn advance(&self) {
        let (from, end) = (self.sums.load(Ordering::Relaxed), Instant::now() + LIMIT);
        while self.sums.load(Ordering::Relaxed) < from + 10 {
            assert!(Instant::now() < end, "no sums within {LIMIT:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn start<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    (server, switch): (SocketAddr, SocketAddr),
    name: &'static str,
    job: &'env Job,
) -> Vec<ScopedJoinHandle<'scope, ()>> {
    let ranks = (0..RANKS).map(|rank| scope.spawn(move || job.run(server, switch, name, rank)));
    ranks.collect()
}

fn end(job: &Job, ranks: Vec<ScopedJoinHandle<'_, ()>>) {
    job.is_over.store(true, Ordering::Relaxed);
    ranks.into_iter().for_each(|rank| rank.join().expect("no rank fails"));
}

fn start_switch(bind: SocketAddr, secrets: impl Into<Secrets>) -> SwitchDaemon {
    SwitchDaemon::start(&SwitchDaemonConfig::new(bind, secrets)).expect("its port is free")
}

fn start_server(bind: SocketAddr, switch: SocketAddr, secrets: impl Into<Secrets>) -> ServerDaemon {
    let mut config = ServerDaemonConfig::new(bind, secrets);
    config.switch = Some(switch);
    ServerDaemon::start(&config).expect("its port is free")
}

// spec: T-06, T-10 sockets
#[test]
fn a_secret_is_replaced_while_jobs_run() {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let switch = start_switch(loopback, OLD);
    let switch_at = switch.address();
    let server = start_server(loopback, switch_at, OLD);
    let at = (server.address(), switch_at);
    let jobs = [Job::default(), Job::default(), Job::default()];
    let [first, second, third] = &jobs;
    std::thread::scope(|scope| {
        // Also if something panics here.
        let _ends = Ends(&jobs);
        let ranks = [start(scope, at, "first", first), start(scope, at, "second", second)];
        first.advance();
        second.advance();

        switch.stop().expect("it ran");
        let switch = start_switch(switch_at, Secrets::both(OLD, NEW).expect("even and odd"));
        first.advance();
        second.advance();

        server.stop().expect("it ran");
        let server = start_server(at.0, switch_at, Secrets::both(NEW, OLD).expect("even and odd"));
        first.advance();
        second.advance();
        let new = start(scope, at, "third", third);
        third.advance();
        let snapshot = switch.snapshot().expect("it runs");
        assert_eq!(snapshot.switch.forged, 0, "{snapshot:?}");
        for (job, ranks) in [first, second].into_iter().zip(ranks) {
            end(job, ranks);
        }

        // The job that has begun since then does not need the old one.
        switch.stop().expect("it ran");
        let switch = start_switch(switch_at, NEW);
        third.advance();
        third.advance();
        end(third, new);
        let stats = switch.snapshot().expect("it runs").switch;
        assert!(stats.forged == 0 && stats.completed > 0, "{stats:?}");
        server.stop().expect("it ran");
    });
}

/// Ends all jobs.
struct Ends<'a>(&'a [Job]);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|job| job.is_over.store(true, Ordering::Relaxed));
    }
}
