//! A rank of a training as the network sees it: a session that computes, and then sums.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use thalweg::{Collective, Pacing, Policy, Reduce, Session};
use thalweg_console::{Failure, files};
use thalweg_control::pacing::since_epoch;

use crate::embedded::TOKEN;
use crate::tools::{now, sleep};

/// Arguments of `thalweg bench-train`.
#[derive(Args)]
pub struct TrainArguments {
    /// The server of the job
    #[arg(long)]
    server: String,
    /// Name of the job
    #[arg(long)]
    job: String,
    /// This rank
    #[arg(long)]
    rank: u32,
    /// Ranks of the job
    #[arg(long)]
    ranks: u32,
    /// Values of an iteration
    #[arg(long)]
    values: usize,
    /// Milliseconds before each iteration's sum
    #[arg(long)]
    compute_ms: u64,
    /// Number of iterations
    #[arg(long)]
    iterations: u32,
    /// When to begin, in milliseconds since 1970
    #[arg(long)]
    at_ms: u64,
    /// Socket of the agent to obey
    #[arg(long)]
    agent: Option<PathBuf>,
}

/// Runs it; prints how long each iteration's sum took.
pub fn train(arguments: &TrainArguments) -> Result<(), Failure> {
    let pacing = match &arguments.agent {
        Some(agent) => Pacing::Scheduled { agent: agent.clone() },
        None => Pacing::Off,
    };
    let session = Session::builder(&arguments.server, &arguments.job)
        .rank(arguments.rank, arguments.ranks)
        .token(TOKEN)
        .share_memory(false)
        .threads(1)
        .policy(Policy::default().collective(Collective::Ring))
        .pacing(pacing)
        .join()
        .map_err(Failure::ran)?;
    let mut values = vec![1.0_f32; arguments.values];
    sleep(Duration::from_millis(arguments.at_ms).saturating_sub(since_epoch()));
    let (begin, mut times_ms) = (now(), Vec::new());
    for _ in 0..arguments.iterations {
        sleep(Duration::from_millis(arguments.compute_ms));
        let sending = now();
        values = session.all_reduce(values, Reduce::Mean).wait().map_err(Failure::ran)?.values;
        times_ms.push(sending.elapsed().as_millis() as u64);
    }
    let total_ms = begin.elapsed().as_millis() as u64;
    session.leave().map_err(Failure::ran)?;
    if values.iter().any(|value| *value != 1.0) {
        return Err(Failure::Ran("a sum is wrong".into()));
    }
    files::print(&format!("{}\n", json!({ "total_ms": total_ms, "times_ms": times_ms })))
}
