//! Hosts of the ranks: processes of this host, or of the hosts of a lab.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde::Deserialize;
use serde_json::Value;
use thalweg_console::Failure;
use thalweg_lab::{Lab, Spec};

use super::{AllReduceArguments, Outcome, Way, gloo, values, wait_by};
use crate::embedded::{Daemons, TOKEN, Threads};
use crate::tools::{output_of, own_program, round, thread_times};

/// The daemons, and the lab that they are in.
pub(super) struct Stage {
    // Dropped before the lab that they are in.
    daemons: Daemons,
    lab: Option<Lab>,
    jobs: AtomicU32,
}

impl Stage {
    pub fn build(arguments: &AllReduceArguments) -> Result<Stage, Failure> {
        let jobs = AtomicU32::new(0);
        let threads = Threads { cores: arguments.cores, wait: wait_by(arguments.spin) };
        let queues = arguments.queues.queues()?;
        if !arguments.lab {
            if queues.is_some() {
                return Err(Failure::usage("--queues is for links of a lab: give --lab as well"));
            }
            return Ok(Stage {
                daemons: Daemons::on_loopback(arguments.loss, threads)?,
                lab: None,
                jobs,
            });
        }
        let lab = Lab::build(&Spec {
            hosts: arguments.hosts,
            rate: arguments.rate,
            loss: arguments.loss,
            lossy_hosts: arguments.lossy_hosts,
            per_packet: arguments.per_packet,
            racks: arguments.racks,
            servers: 1,
            mtu_bytes: arguments.mtu,
            core_mtu_bytes: None,
            routed_links: None,
            queues,
        })?;
        Ok(Stage { daemons: Daemons::in_lab(&lab, threads)?, lab: Some(lab), jobs })
    }

    /// Runs all ranks of all jobs with one collective.
    pub fn run(&self, arguments: &AllReduceArguments, way: Way) -> Result<Vec<Outcome>, Failure> {
        let before = thread_times();
        let jobs: Result<Vec<_>, Failure> =
            (0..arguments.jobs).map(|_| self.start_job(arguments, way)).collect();
        let mut outcomes = Vec::new();
        for (job, ranks) in (0..).zip(jobs?) {
            let reports = reports(ranks)?;
            if arguments.details {
                self.tell_details(&reports);
            }
            outcomes.push(outcome(way.name(), job, &reports)?);
        }
        let daemon_threads = Value::from_iter(spent(&before, &thread_times()));
        for outcome in &mut outcomes {
            outcome.daemon_threads = daemon_threads.clone();
        }
        Ok(outcomes)
    }

    /// Runs all ranks with Gloo.
    pub fn run_gloo(
        &self,
        arguments: &AllReduceArguments,
        python: &Path,
    ) -> Result<Outcome, Failure> {
        let commands = gloo::ranks(arguments, python, self.lab.as_ref())?;
        let ranks = (0..).zip(commands).map(|(rank, command)| self.start_rank(rank, command));
        let reports = reports(ranks.collect::<Result<_, Failure>>()?)?;
        if arguments.details {
            reports.iter().for_each(|report| eprintln!("{report}"));
        }
        outcome("gloo", 0, &reports)
    }

    fn start_job(&self, arguments: &AllReduceArguments, way: Way) -> Result<Vec<Rank>, Failure> {
        let job = format!("bench-{}", self.jobs.fetch_add(1, Ordering::Relaxed));
        let start = |rank: u32| {
            let mut command = self.command(arguments, way, &job, rank)?;
            command.arg("--with-parent");
            self.start_rank(rank, command)
        };
        (0..arguments.hosts).map(start).collect()
    }

    /// Starts a rank on its host. Its input stays open for as long as the benchmark runs.
    fn start_rank(&self, rank: u32, mut command: Command) -> Result<Rank, Failure> {
        if let Some(lab) = &self.lab {
            lab.host(rank).enter(&mut command);
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let cannot = |error| Failure::Ran(format!("rank {rank} cannot be started: {error}"));
        Ok(Rank(child.map_err(cannot)?))
    }

    /// The switch of a rank's rack.
    fn switch_of(&self, rank: u32) -> SocketAddr {
        match &self.lab {
            Some(lab) => self.daemons.switch_of(lab.host(rank)),
            None => self.daemons.switches[0].address(),
        }
    }

    /// Prints the counters of all ranks and daemons.
    fn tell_details(&self, reports: &[Value]) {
        reports.iter().for_each(|report| eprintln!("{report}"));
        let Daemons { switches, server } = &self.daemons;
        for (rack, switch) in switches.iter().enumerate() {
            if let Some(switch) = switch.snapshot() {
                eprintln!("switch {rack}: {:?}\n{:?}", switch.switch, switch.net);
            }
        }
        if let Some(server) = server.snapshot() {
            eprintln!("server: {:?}\n{:?}", server.server, server.net);
        }
        eprintln!("threads of switch and server: {:?}", thread_times());
    }

    fn command(
        &self,
        arguments: &AllReduceArguments,
        way: Way,
        job: &str,
        rank: u32,
    ) -> Result<Command, Failure> {
        let mut command = Command::new(own_program()?);
        command
            .arg("bench-rank")
            .args(["--server", &self.daemons.server.address().to_string()])
            .args(["--switch", &self.switch_of(rank).to_string()])
            .args(["--token", TOKEN, "--job", job, "--collective", way.name()])
            .args(["--rank", &rank.to_string(), "--ranks", &arguments.hosts.to_string()])
            .args(["--values", &values(arguments.mb).to_string()])
            .args(["--dtype", arguments.dtype.name()])
            .args(["--iterations", &arguments.iterations.to_string()])
            .args(["--bound", &arguments.bound.to_string()])
            .args(["--window", arguments.window.name()]);
        if let Some(cores) = arguments.cores {
            command.args(["--threads", &cores.to_string()]);
        }
        if arguments.lab {
            let mbps = arguments.rate.as_bps().div_ceil(1_000_000);
            command.args(["--link-rate-mbps", &mbps.to_string()]);
        }
        if arguments.spin {
            command.arg("--spin");
        }
        if !arguments.lab && !arguments.no_shared_memory {
            command.arg("--shared-memory");
        }
        Ok(command)
    }
}

/// A rank's process. It ends with the benchmark: its input ends then, however that happens.
struct Rank(Child);

impl Rank {
    fn report(mut self) -> Result<Value, Failure> {
        let text = output_of(&mut self.0)?;
        let status = self.0.wait().map_err(Failure::ran)?;
        let report = serde_json::from_str(&text).ok().filter(|_| status.success());
        report.ok_or_else(|| Failure::Ran(format!("a rank failed: {status}")))
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn reports(ranks: Vec<Rank>) -> Result<Vec<Value>, Failure> {
    ranks.into_iter().map(Rank::report).collect()
}

/// Processor time that threads have spent since an earlier reading, by name, of those that spent some.
fn spent(before: &[(String, f64)], after: &[(String, f64)]) -> Vec<Value> {
    fn total_s(times: &[(String, f64)], name: &str) -> f64 {
        times.iter().filter(|thread| thread.0 == name).map(|thread| thread.1).sum()
    }
    let mut names: Vec<&str> = after.iter().map(|thread| thread.0.as_str()).collect();
    names.dedup();
    let spent = names
        .into_iter()
        .map(|name| (name, round(total_s(after, name) - total_s(before, name), 3)));
    spent.filter(|(_, time_s)| *time_s > 0.0).map(|thread| serde_json::json!(thread)).collect()
}

/// Of every all-reduce the slowest rank's time.
fn outcome(name: &'static str, job: u32, reports: &[Value]) -> Result<Outcome, Failure> {
    let times = |report: &Value| -> Option<Vec<f64>> {
        report["times_ms"].as_array()?.iter().map(Value::as_f64).collect()
    };
    let all: Option<Vec<Vec<f64>>> = reports.iter().map(times).collect();
    let all = all.filter(|all| !all.is_empty());
    let all = all.ok_or_else(|| Failure::Ran("a rank measured nothing".to_owned()))?;
    let rounds = all.iter().map(Vec::len).min().unwrap_or(0);
    let slowest = |round: usize| all.iter().map(|times| times[round]).fold(0.0, f64::max);
    let exact = reports.iter().all(|report| report["exact"] == Value::Bool(true));
    let times_ms = (0..rounds).map(slowest).collect();
    let spans_ms = reports.first().and_then(|report| Vec::deserialize(&report["spans_ms"]).ok());
    let spans_ms = spans_ms.unwrap_or_default();
    // Unknown where one rank does not know it.
    let missing: Option<Vec<f64>> =
        reports.iter().map(|report| report["missing"].as_f64()).collect();
    let missing = missing.map(|shares| shares.into_iter().fold(0.0, f64::max));
    let rank_threads = reports.first().map_or(Value::Null, |report| report["threads"].clone());
    let daemon_threads = Value::Null;
    let share = 1.0;
    Ok(Outcome {
        name,
        job,
        share,
        spans_ms,
        times_ms,
        exact,
        missing,
        rank_threads,
        daemon_threads,
    })
}
