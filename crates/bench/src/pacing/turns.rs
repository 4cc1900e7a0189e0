//! Two jobs on the same two hosts, without agents and with agents that order classes, in pairs, beside pairs of equal runs.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use thalweg_console::Failure;
use thalweg_control::pacing::since_epoch;
use thalweg_lab::{Lab, Queues, Spec};

use super::PacingArguments;
use super::jobs::{Agents, Report, report_of};
use super::rates::Program;
use super::sink::Sink;
use crate::embedded::{Daemons, Threads};
use crate::tools::{own_program, percentile, round};

/// For programs to start, before jobs begin at the same moment.
const START_AFTER: Duration = Duration::from_millis(2_500);
/// Number of jobs, and hosts of each.
const JOBS: u32 = 2;
const RANKS: u32 = 2;
/// Values that a link carries, in bits a second: 1 Gbps less headers and gaps.
const GOODPUT_BPS: f64 = 0.92e9;

/// Programs that jobs are made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Sessions that sum in a ring, whose packets have classes by their code points.
    Sessions,
    /// TCP programs under `thalweg agent run`, which have classes at the interface of their host.
    Tcp,
}

/// The lab and what does not change between runs.
struct Stage<'a> {
    arguments: &'a PacingArguments,
    kind: Kind,
    lab: Lab,
    daemons: Option<Daemons>,
    runs: u32,
}

/// A run of both jobs.
struct Run {
    /// Mean over both jobs, in seconds.
    mean_s: f64,
    /// Mbps of a connection of nobody's beside them, if there was one.
    other_mbps: Option<f64>,
}

pub(super) fn run(arguments: &PacingArguments) -> Result<Value, Failure> {
    let mut found = serde_json::Map::new();
    for (kind, name) in [(Kind::Sessions, "sessions"), (Kind::Tcp, "tcp")] {
        if arguments.jobs_of.is_some_and(|only| only.is_tcp() != (kind == Kind::Tcp)) {
            continue;
        }
        let mut stage = Stage::build(arguments, kind)?;
        let mut all = Vec::new();
        for &share in &arguments.shares {
            let compared = stage.compare(share)?;
            for gain in compared["gains"].as_array().into_iter().flatten() {
                all.extend(gain.as_f64());
            }
            found.insert(format!("{name}_share_{share}"), compared);
        }
        found.insert(format!("{name}_median_gain"), json!(round(percentile(&all, 50.0), 4)));
    }
    Ok(Value::from(found))
}

impl Stage<'_> {
    fn build(arguments: &PacingArguments, kind: Kind) -> Result<Stage<'_>, Failure> {
        let has_sessions = kind == Kind::Sessions;
        let lab = Lab::build(&Spec {
            hosts: 3,
            rate: "1gbit".parse().map_err(|_| Failure::usage("no rate"))?,
            servers: u32::from(has_sessions),
            queues: has_sessions.then(Queues::default),
            ..Spec::default()
        })?;
        let daemons =
            has_sessions.then(|| Daemons::in_lab(&lab, Threads::default())).transpose()?;
        Ok(Stage { arguments, kind, lab, daemons, runs: 0 })
    }

    /// Pairs of runs for jobs that communicate for this share of an iteration, alone on the link.
    fn compare(&mut self, share: f64) -> Result<Value, Failure> {
        let burst_s = self.arguments.mb as f64 * 8e6 / GOODPUT_BPS;
        let compute_ms = (burst_s * (1.0 - share) / share * 1e3).round() as u64;
        let name = if self.kind == Kind::Tcp { "tcp" } else { "sessions" };
        let (mut gains, mut noise, mut seconds) = (Vec::new(), Vec::new(), Vec::new());
        for pair in 0..self.arguments.pairs {
            eprintln!("turns: {name}, share {share}, pair {} …", pair + 1);
            // Either goes first in every other pair.
            let is_first = pair % 2 == 1;
            let one = self.once(compute_ms, is_first, false)?.mean_s;
            let other = self.once(compute_ms, !is_first, false)?.mean_s;
            let (without, with) = if is_first { (other, one) } else { (one, other) };
            let again = self.once(compute_ms, false, false)?.mean_s;
            gains.push(round(1.0 - with / without, 4));
            noise.push(round(1.0 - again / without, 4));
            seconds.push(json!({ "without": without, "with": with, "without_again": again }));
        }
        let others = self.arguments.beside.then(|| {
            let [without, with] = [false, true].map(|is_paced| {
                Ok::<_, Failure>(self.once(compute_ms, is_paced, true)?.other_mbps.unwrap_or(0.0))
            });
            Ok::<_, Failure>((without?, with?))
        });
        let (without, with) = others.transpose()?.unwrap_or_default();
        let median = |values: &[f64]| round(percentile(values, 50.0), 4);
        Ok(json!({
            "compute_ms": compute_ms,
            "median_gain": median(&gains),
            "median_noise": median(&noise),
            "gains": gains,
            "noise": noise,
            "seconds": seconds,
            "other_mbps_beside_jobs": without,
            "other_mbps_beside_paced_jobs": with,
        }))
    }

    /// Runs both jobs once.
    fn once(&mut self, compute_ms: u64, is_paced: bool, has_other: bool) -> Result<Run, Failure> {
        let details = self.arguments.details;
        let hosts: &[u32] = if self.kind == Kind::Tcp { &[0] } else { &[0, 1] };
        let agents = is_paced.then(|| Agents::start(&self.lab, hosts, "class", details));
        let agents = agents.transpose()?;
        self.runs += 1;
        let at_ms = (since_epoch() + START_AFTER).as_millis().to_string();
        let other = has_other.then(|| self.other()).transpose()?;
        let mut sinks = Vec::new();
        let mut programs = Vec::new();
        for job in 0..JOBS {
            let words = (compute_ms.to_string(), at_ms.clone());
            match self.kind {
                Kind::Tcp => {
                    let sink = Sink::start(self.lab.host(1))?;
                    programs.push(self.sender(job, &sink, words, agents.as_ref())?);
                    sinks.push(sink);
                }
                Kind::Sessions => {
                    for rank in 0..RANKS {
                        programs.push(self.rank((job, rank), words.clone(), agents.as_ref())?);
                    }
                }
            }
        }
        let before = other.as_ref().map(|(_, sink)| sink.counter());
        let reports =
            programs.iter_mut().map(report_of).collect::<Result<Vec<Report>, Failure>>()?;
        let total_s = |report: &Report| report.total_ms as f64 / 1e3;
        let longest_s = reports.iter().map(total_s).fold(0.0, f64::max);
        let mean_s = round(reports.iter().map(total_s).sum::<f64>() / reports.len() as f64, 3);
        let came = before.map(|came| came.load(std::sync::atomic::Ordering::Relaxed) as f64);
        // It began with the programs.
        let other_s = longest_s + START_AFTER.as_secs_f64();
        let other_mbps = came.map(|bytes| round(bytes * 8.0 / other_s / 1e6, 1));
        Ok(Run { mean_s, other_mbps })
    }

    /// A connection of nobody's that always has something to send, on the link that both jobs use.
    fn other(&self) -> Result<(Program, Sink), Failure> {
        let sink = Sink::start(self.lab.host(1))?;
        let program =
            Program::start(self.lab.host(0), &[], &sink, 1 << 40, self.arguments.details)?;
        Ok((program, sink))
    }

    fn sender(
        &self,
        job: u32,
        sink: &Sink,
        (compute_ms, at_ms): (String, String),
        agents: Option<&Agents>,
    ) -> Result<Program, Failure> {
        let PacingArguments { mb, iterations, details, .. } = self.arguments;
        let (name, socket) = (format!("job{job}"), agents.map(|agents| agents.socket(0)));
        let (to, bytes) = (sink.address().to_string(), (mb * 1_000_000).to_string());
        let iterations = iterations.to_string();
        let words = [
            ["--to", &to],
            ["--bytes", &bytes],
            ["--compute-ms", &compute_ms],
            ["--iterations", &iterations],
            ["--at-ms", &at_ms],
        ];
        let before = super::enforcer(&name, socket.as_ref());
        Program::with(self.lab.host(0), &before, words.as_flattened(), *details)
    }

    fn rank(
        &self,
        (job, rank): (u32, u32),
        (compute_ms, at_ms): (String, String),
        agents: Option<&Agents>,
    ) -> Result<Program, Failure> {
        let PacingArguments { mb, iterations, details, .. } = self.arguments;
        let server = self.daemons.as_ref().map(|daemons| daemons.server.address());
        let server = server.ok_or_else(|| Failure::usage("there is no server"))?.to_string();
        // A ring of two sends as many bytes as a tensor has.
        let values = (mb * 1_000_000 / 4).to_string();
        let mut command = Command::new(own_program()?);
        command
            .arg("bench-train")
            .args(["--server", &server, "--job", &format!("turns-{}-{job}", self.runs)])
            .args(["--rank", &rank.to_string(), "--ranks", &RANKS.to_string()])
            .args(["--values", &values, "--compute-ms", &compute_ms])
            .args(["--iterations", &iterations.to_string(), "--at-ms", &at_ms]);
        if let Some(agents) = agents {
            command.args(["--agent", &agents.socket(rank)]);
        }
        Program::spawn(self.lab.host(rank), command, *details)
    }
}
