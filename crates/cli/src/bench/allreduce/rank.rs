//! One rank of the benchmark: a process that the benchmark starts.

use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use serde_json::json;
use thalweg::{Policy, Reduce, Session, SessionConfig};

use super::Way;
use crate::failure::Failure;
use crate::files;

/// What a rank is told.
#[derive(Args)]
pub(crate) struct RankArguments {
    #[arg(long)]
    server: String,
    #[arg(long)]
    switch: String,
    #[arg(long)]
    token: String,
    #[arg(long)]
    job: String,
    #[arg(long)]
    rank: u32,
    #[arg(long)]
    ranks: u32,
    #[arg(long)]
    values: usize,
    #[arg(long)]
    iterations: u32,
    #[arg(long)]
    collective: Way,
    #[arg(long)]
    shared_memory: bool,
}

/// Runs it, and prints what it measured as one line.
pub(crate) fn rank(arguments: &RankArguments) -> Result<(), Failure> {
    let failed = |error: thalweg::Error| Failure::Ran(error.to_string());
    let config = SessionConfig {
        switch: Some(arguments.switch.clone()),
        token: Some(arguments.token.clone()),
        share_memory: arguments.shared_memory,
        patience: Duration::from_secs(20),
        policy: Policy { collective: arguments.collective.collective(), ..Policy::default() },
        ..SessionConfig::new(&arguments.server, &arguments.job, arguments.rank, arguments.ranks)
    };
    let session = Session::join(config).map_err(failed)?;
    let mut times_ms = Vec::new();
    let mut spans_ms = Vec::new();
    let mut exact = true;
    for round in 0..=arguments.iterations as usize {
        let values: Vec<f32> =
            (0..arguments.values).map(|at| value(arguments.rank, round, at)).collect();
        session.barrier().and_then(|barrier| barrier.wait()).map_err(failed)?;
        let started = now();
        let sums =
            session.all_reduce(values, Reduce::Sum).and_then(|sums| sums.wait()).map_err(failed)?;
        let time_ms = started.elapsed().as_secs_f64() * 1e3;
        let ended_ms = clock_ms();
        exact &= is_right(&sums, arguments.ranks, round);
        // The first one finds out how much fits.
        if round > 0 {
            times_ms.push(time_ms);
            spans_ms.push([ended_ms - time_ms, ended_ms]);
        }
    }
    let counters = session.counters().map_err(failed)?;
    session.leave().map_err(failed)?;
    let worker = counters.worker;
    let line = json!({
        "rank": arguments.rank,
        "times_ms": times_ms,
        "spans_ms": spans_ms,
        "exact": exact,
        "window_bytes": counters.window_bytes,
        "queries": worker.queries,
        "repairs": worker.repairs,
        "timeouts": worker.timeouts,
        "probes": worker.probes,
        "losses": worker.losses,
        "duplicates": worker.duplicates,
        "sends_deferred": counters.net.sends_deferred,
    });
    files::print(&format!("{line}\n"))
}

/// What a rank contributes: whole numbers, so that sums are exact in any order.
fn value(rank: u32, round: usize, at: usize) -> f32 {
    ((at as u32).wrapping_mul(7).wrapping_add(rank * 13 + round as u32) & 1_023) as f32
}

fn is_right(sums: &[f32], ranks: u32, round: usize) -> bool {
    let sum = |at: usize| (0..ranks).map(|rank| value(rank, round, at)).sum::<f32>();
    sums.iter().enumerate().all(|(at, found)| *found == sum(at))
}

#[expect(clippy::disallowed_methods, reason = "a benchmark takes the time")]
fn now() -> Instant {
    Instant::now()
}

/// What all jobs of this machine can be compared by.
#[expect(clippy::disallowed_methods, reason = "a benchmark takes the time")]
fn clock_ms() -> f64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since_epoch.unwrap_or_default().as_secs_f64() * 1e3
}
