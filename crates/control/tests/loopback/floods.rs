//! Callers that ask as much as they can, beside a job that goes on.
// spec: E-12 sockets

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thalweg_control::{CallRate, FromRank, Progress, Settings, inquiry, v1};
use thalweg_core::Span;

use super::raw::{block_on, connect, raw, request};
use super::stage::{Stage, attend_config, pair, stage};

const JOBS: u32 = 4_090;
const CALLERS: usize = 40;

/// A service whose budgets let an attacker do its worst.
fn generous() -> Stage {
    stage(|config| {
        let endless = CallRate { per_s: 1_000_000, burst: 1_000_000 };
        config.budgets.jobs.jobs = 10_000;
        config.budgets.jobs.unattended = 10_000;
        config.budgets.calls.calls = endless;
        config.budgets.calls.listings = endless;
        config.budgets.calls.calls_in_total = endless;
    })
}

/// Redteam: statistics of thousands of jobs, asked for by many at once, delayed heartbeats until healthy jobs failed.
/// Here nothing but the snapshots is in between, and the data plane is slow as well.
// spec: E-01 sockets
#[test]
fn statistics_of_thousands_of_jobs_do_not_delay_a_job_beside_them() {
    let stage = generous();
    let address = stage.service.local_address();
    *stage.plane.counts_for.lock().unwrap() = Some(Duration::from_millis(150));
    let settings = Settings {
        failure_after: Span::from_s(2),
        operation_timeout: Span::from_s(60),
        ..Settings::default()
    };
    let victims = pair(address, &settings);
    raw(address, None, async |mut client| {
        for number in 0..JOBS {
            client.register(request(&number.to_string(), 1)).await.expect("budgets are generous");
        }
    });
    let access = attend_config(address, 1, 0, "a").access;
    let (is_over, began) = (AtomicBool::new(false), Instant::now());
    let slowest = std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            let is_over = &is_over;
            scope.spawn(move || {
                block_on(async {
                    let mut client = connect(address, None).await;
                    while !is_over.load(Ordering::Relaxed) {
                        let asked = client.statistics(v1::StatisticsRequest { job: None }).await;
                        assert!(asked.expect("it is answered").into_inner().jobs.len() > 1);
                    }
                });
            });
        }
        let mut slowest = Duration::ZERO;
        while began.elapsed() < Duration::from_secs(5) {
            let asked = Instant::now();
            inquiry::health(&access).expect("it is well");
            slowest = slowest.max(asked.elapsed());
            let progress = Progress { operation: 7, fragment: 7, since: Span::ZERO };
            victims[0].attendance.send(FromRank::Progress(progress));
        }
        is_over.store(true, Ordering::Relaxed);
        slowest
    });
    println!("the slowest call of health took {slowest:?}");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    victims.iter().for_each(|rank| rank.assert_undisturbed(Duration::ZERO));
}

/// A rank that sends nothing for longer than failure_after, on a connection that is open, is alive.
// spec: E-01 sockets
#[test]
fn a_slow_control_channel_fails_no_job() {
    let stage = stage(|_| {});
    let settings = Settings { failure_after: Span::from_ms(500), ..Settings::default() };
    let ranks = pair(stage.service.local_address(), &settings);
    // The function that takes events holds the thread of rank 1 up: it sends no heartbeats meanwhile.
    ranks[1].pause(Duration::from_secs(3));
    stage.service.reporter().operations_differ(stage.service.listing().jobs[0].id);
    ranks[0].assert_undisturbed(Duration::from_millis(3_500));
    ranks[1].assert_undisturbed(Duration::ZERO);
    let access = attend_config(stage.service.local_address(), 1, 0, "a").access;
    assert_eq!(inquiry::health(&access).unwrap().jobs, 1);
}
