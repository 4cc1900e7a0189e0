//! One rank of the benchmark: a process that the benchmark starts.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use thalweg::{Coverage, Policy, Reduce, Reliability, Session, Value, Window, bf16, f16};
use thalweg_console::{Failure, files, parent};
use thalweg_control::pacing::since_epoch;
use thalweg_values::Float;

use super::{Dtype, Way, wait_by};
use crate::tools::{now, thread_times};

/// Arguments of a rank's process.
#[derive(Args)]
pub struct RankArguments {
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
    #[arg(long, value_enum, default_value_t)]
    dtype: Dtype,
    #[arg(long)]
    iterations: u32,
    #[arg(long, default_value_t = 0.0)]
    bound: f64,
    #[arg(long)]
    collective: Way,
    #[arg(long, default_value_t)]
    window: Window,
    #[arg(long)]
    threads: Option<u32>,
    #[arg(long)]
    link_rate_mbps: Option<u32>,
    #[arg(long)]
    spin: bool,
    #[arg(long)]
    shared_memory: bool,
    /// End when standard input ends, which the benchmark holds open
    #[arg(long)]
    with_parent: bool,
}

/// Runs it, and prints what it measured as one line.
pub fn rank(arguments: &RankArguments) -> Result<(), Failure> {
    if arguments.with_parent {
        parent::end_with_it();
    }
    let builder = Session::builder(&arguments.server, &arguments.job)
        .rank(arguments.rank, arguments.ranks)
        .switch(&arguments.switch)
        .token(&arguments.token)
        .share_memory(arguments.shared_memory)
        .operation_timeout(Duration::from_secs(20))
        .policy(policy(arguments)?)
        .window(arguments.window)
        .wait(wait_by(arguments.spin));
    let builder = match arguments.threads {
        Some(threads) => builder.threads(threads),
        None => builder,
    };
    let builder = match arguments.link_rate_mbps {
        Some(mbps) => builder.link_rate_mbps(mbps),
        None => builder,
    };
    let session = builder.join().map_err(Failure::ran)?;
    match arguments.dtype {
        Dtype::F32 => measure::<f32>(session, arguments),
        Dtype::Bf16 => measure::<bf16>(session, arguments),
        Dtype::F16 => measure::<f16>(session, arguments),
    }
}

fn measure<T: Value + Float>(session: Session, arguments: &RankArguments) -> Result<(), Failure> {
    let mut times_ms = Vec::new();
    let mut spans_ms = Vec::new();
    let mut exact = true;
    let mut missing = Missed::default();
    for round in 0..=arguments.iterations as usize {
        let own = |at| T::round(value(arguments, arguments.rank, round, at));
        let values: Vec<T> = (0..arguments.values).map(own).collect();
        session.barrier().wait().map_err(Failure::ran)?;
        let started = now();
        let reduced = session.all_reduce(values, Reduce::Sum).wait().map_err(Failure::ran)?;
        let time_ms = started.elapsed().as_secs_f64() * 1e3;
        let ended_ms = since_epoch().as_secs_f64() * 1e3;
        exact &= is_right(&reduced.values, &reduced.coverage, arguments, round);
        missing.add(&reduced.coverage);
        // The first one finds out how much fits.
        if round > 0 {
            times_ms.push(time_ms);
            spans_ms.push([ended_ms - time_ms, ended_ms]);
        }
    }
    let counters = session.counters().map_err(Failure::ran)?;
    let threads = thread_times();
    let session_threads = session.threads();
    session.leave().map_err(Failure::ran)?;
    let worker = counters.worker;
    let line = json!({
        "rank": arguments.rank,
        "sending_threads": session_threads,
        "times_ms": times_ms,
        "spans_ms": spans_ms,
        "exact": exact,
        "missing": missing.largest(arguments),
        "window": arguments.window.name(),
        "window_bytes": counters.window_bytes,
        "queries": worker.queries,
        "repairs": worker.repairs,
        "timeouts": worker.timeouts,
        "probes": worker.probes,
        "losses": worker.losses,
        "duplicates": worker.duplicates,
        "sends_deferred": counters.net.sends_deferred,
        "threads": threads,
    });
    files::print(&format!("{line}\n"))
}

/// A value that a rank contributes: whole numbers, so that sums of single precision are exact in any order. Those of 16
/// bits are small enough to be exact before they are summed.
fn value(arguments: &RankArguments, rank: u32, round: usize, at: usize) -> f32 {
    let most = if arguments.dtype == Dtype::F32 { 1_023 } else { 127 };
    ((at as u32).wrapping_mul(7).wrapping_add(rank * 13 + round as u32) & most) as f32
}

/// Share of a sum that rounding may cost: once at every level of switches, of which labs have two, at the server, and
/// where ranks of one host combine.
fn tolerance(dtype: Dtype) -> f32 {
    const ROUNDINGS: f32 = 4.0;
    match dtype {
        Dtype::F32 => 0.0,
        Dtype::Bf16 => ROUNDINGS / 256.0,
        Dtype::F16 => ROUNDINGS / 2_048.0,
    }
}

/// Returns whether sums are those of the ranks that they cover. Where coverage is unreported, a sum may be
/// less, and not more.
fn is_right<T: Float>(
    sums: &[T],
    coverage: &Coverage,
    arguments: &RankArguments,
    round: usize,
) -> bool {
    let tolerance = tolerance(arguments.dtype);
    let may_be_less = *coverage == Coverage::Unreported;
    let mut parts = coverage.missing().unwrap_or_default().iter().peekable();
    sums.iter().enumerate().all(|(at, found)| {
        while parts.next_if(|part| part.values.end <= at as u64).is_some() {}
        let lacking = parts.peek().filter(|part| part.values.contains(&(at as u64)));
        let is_in = |rank: &u32| lacking.is_none_or(|part| !part.ranks.contains(rank));
        let of_rank = |rank| value(arguments, rank, round, at);
        let sum: f32 = (0..arguments.ranks).filter(is_in).map(of_rank).sum();
        let found = found.widen();
        (found - sum).abs() <= tolerance * sum || may_be_less && found < sum
    })
}

fn policy(arguments: &RankArguments) -> Result<Policy, Failure> {
    let reliability = Reliability::bounded(arguments.bound);
    let wrong = || Failure::Usage(format!("--bound is {}: choose 0 to below 1", arguments.bound));
    let collective = arguments.collective.collective();
    Ok(Policy::default().collective(collective).reliability(reliability.ok_or_else(wrong)?))
}

/// Number of missing values, by rank.
#[derive(Default)]
struct Missed {
    by_rank: BTreeMap<u32, u64>,
    sums: u64,
    is_unreported: bool,
}

impl Missed {
    fn add(&mut self, coverage: &Coverage) {
        self.sums += 1;
        self.is_unreported |= *coverage == Coverage::Unreported;
        for part in coverage.missing().unwrap_or_default() {
            for rank in &part.ranks {
                *self.by_rank.entry(*rank).or_default() += part.values.end - part.values.start;
            }
        }
    }

    /// The largest share of all ranks. `None` where a sum did not report it.
    fn largest(&self, arguments: &RankArguments) -> Option<f64> {
        let all = self.sums.max(1) * arguments.values.max(1) as u64;
        let largest = self.by_rank.values().max().map_or(0.0, |most| *most as f64 / all as f64);
        (!self.is_unreported).then_some(largest)
    }
}
