//! The pacing plane on real machines: rates that are kept, jobs that take turns, others that are left
//! their share. In a lab.

mod flows;
mod jobs;
mod others;
mod rates;
mod sink;
mod stream;
mod train;
mod turns;

pub use self::stream::{StreamArguments, stream};
pub use self::train::{TrainArguments, train};
use thalweg_console::{Failure, files};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use thalweg_lab::{Lab, Spec};

use crate::tools::round;

/// Arguments of `thalweg bench pacing`.
#[derive(Args)]
pub struct PacingArguments {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Only this one; all of them without it
    #[arg(long)]
    only: Option<Experiment>,
    /// Seconds that rates, flows and others are measured for
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(2..=600))]
    seconds: u64,
    /// Iterations of each of the two jobs
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    iterations: u32,
    /// MB that each job sends in an iteration
    #[arg(long, default_value_t = 25)]
    mb: u64,
    /// Milliseconds that each job computes in an iteration
    #[arg(long, default_value_t = 200)]
    compute_ms: u64,
    /// Pairs of runs of `turns` for each share
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pairs: u32,
    /// Shares of an iteration that the jobs of `turns` communicate for, alone on the link
    #[arg(long, value_delimiter = ',', default_value = "0.3,0.45,0.6", value_parser = share)]
    shares: Vec<f64>,
    /// Jobs of `turns`; both kinds without it
    #[arg(long)]
    jobs_of: Option<JobsOf>,
    /// With `turns`: runs beside a TCP connection that nobody paces as well
    #[arg(long)]
    beside: bool,
    /// Send what programs print to standard error
    #[arg(long)]
    details: bool,
}

/// Experiments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Experiment {
    /// Two TCP programs follow rates that change every slot
    Rates,
    /// A Thalweg flow does
    Flows,
    /// Two jobs share a link, without agents and with them
    Jobs,
    /// A paced job beside a TCP connection that nobody paces
    Others,
    /// Two jobs on the same hosts, without agents and with agents that order classes; only where it is asked for
    Turns,
}

/// Programs that the jobs of `turns` are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum JobsOf {
    /// Sessions that sum in a ring
    Sessions,
    /// TCP programs under `thalweg agent run`
    Tcp,
}

impl JobsOf {
    fn is_tcp(self) -> bool {
        self == JobsOf::Tcp
    }
}

/// Parses a share.
fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.05..=0.95).contains(share));
    share.ok_or_else(|| format!("{text} is no share from 0.05 to 0.95"))
}

pub(super) fn pacing(arguments: &PacingArguments) -> Result<(), Failure> {
    // Turns take minutes.
    let all = match arguments.only {
        None => vec![Experiment::Rates, Experiment::Flows, Experiment::Jobs, Experiment::Others],
        Some(only) => vec![only],
    };
    let mut document = serde_json::Map::new();
    document.insert("schema".to_owned(), "thalweg.bench-pacing/1".into());
    for experiment in all {
        let (name, found) = match experiment {
            Experiment::Rates => ("rates", rates::run(arguments)?),
            Experiment::Flows => ("flows", flows::run(arguments)?),
            Experiment::Jobs => ("jobs", jobs::run(arguments)?),
            Experiment::Others => ("others", others::run(arguments)?),
            Experiment::Turns => ("turns", turns::run(arguments)?),
        };
        if !arguments.json {
            files::print(&format!("{name}:\n{}", table(&found)))?;
        }
        document.insert(name.to_owned(), found);
    }
    if arguments.json {
        files::print(&format!("{}\n", Value::from(document)))?;
    }
    Ok(())
}

/// Numbers and words line by line; traces are for programs.
fn table(found: &Value) -> String {
    let entries = found.as_object().into_iter().flatten();
    let plain = entries.filter(|(_, value)| !value.is_array() && !value.is_object());
    plain.map(|(key, value)| format!("  {key:<34} {value}\n")).collect()
}

/// Hosts with links of that rate, in one rack.
fn lab(hosts: u32, rate: &str) -> Result<Lab, Failure> {
    let rate = rate.parse().map_err(|_| Failure::Usage(format!("{rate} is no rate")))?;
    Ok(Lab::build(&Spec { hosts, rate, ..Spec::default() })?)
}

/// Bytes that one slot holds of a Mbps.
const BYTES_OF_MBPS: u64 = 7_500;

/// Returns the words that put a program under the agent at a socket, if there is one.
fn enforcer<'a>(job: &'a str, socket: Option<&'a String>) -> Vec<&'a str> {
    socket.map_or(Vec::new(), |socket| vec!["agent", "run", "--job", job, "--socket", socket, "--"])
}

/// Compares what came with rates in Mbps, slot by slot from `first` on and over again. Every key of the
/// result begins with `name`; a window of ten slots is good if it is off by at most `percent`.
fn compared(
    name: &str,
    rates: &[u64],
    first: u64,
    came: &[u64],
    percent: u32,
) -> [(String, Value); 5] {
    let rate = |slot: u64| rates[(slot % rates.len() as u64) as usize] * BYTES_OF_MBPS;
    let asked: Vec<u64> = (first..).take(came.len()).map(rate).collect();
    let errors = errors_of_ten(&asked, came);
    let is_good = |error: &&f64| error.abs() <= f64::from(percent) / 100.0;
    let good = errors.iter().filter(is_good).count() as f64 / errors.len().max(1) as f64;
    let [all_came, all_asked] = [came, &asked].map(|slots| slots.iter().sum::<u64>() as f64);
    [
        ("mean_error".to_owned(), json!(round(all_came / all_asked - 1.0, 4))),
        ("largest_error_of_ten_slots".to_owned(), json!(round(largest(&errors), 4))),
        (format!("windows_within_{percent}_percent"), json!(round(good, 4))),
        ("asked_bytes".to_owned(), json!(asked)),
        ("came_bytes".to_owned(), json!(came)),
    ]
    .map(|(key, value)| (format!("{name}{key}"), value))
}

/// Errors of means over ten slots, given what was asked and what came, slot by slot.
fn errors_of_ten(asked: &[u64], came: &[u64]) -> Vec<f64> {
    let windows = asked.windows(10).zip(came.windows(10));
    let error = |(asked, came): (&[u64], &[u64])| {
        let [asked, came] = [asked, came].map(|slots| slots.iter().sum::<u64>() as f64);
        came / asked - 1.0
    };
    windows.map(error).collect()
}

fn largest(errors: &[f64]) -> f64 {
    errors.iter().fold(0.0, |largest: f64, error| largest.max(error.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_over_ten_slots_are_compared() {
        let asked = [100; 12];
        let mut came = [100; 12];
        came[0] = 150;
        assert_eq!(errors_of_ten(&asked, &came).len(), 3);
        assert!((largest(&errors_of_ten(&asked, &came)) - 0.05).abs() < 1e-9);
        assert_eq!(largest(&errors_of_ten(&asked[..5], &came[..5])), 0.0);
    }
}
