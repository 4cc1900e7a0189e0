//! Where the ranks run: processes of this host, or on the hosts of a lab.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde::Deserialize;
use serde_json::Value;
use thalweg_console::Failure;
use thalweg_lab::{Lab, Spec};

use super::{AllReduceArguments, Outcome, Way, values};
use crate::embedded::{Daemons, TOKEN};
use crate::tools::{output_of, own_program};

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
        if !arguments.lab {
            return Ok(Stage { daemons: Daemons::on_loopback(arguments.loss)?, lab: None, jobs });
        }
        let lab = Lab::build(&Spec {
            hosts: arguments.hosts,
            rate: arguments.rate,
            loss: arguments.loss,
            lossy_hosts: arguments.lossy_hosts,
            per_packet: arguments.per_packet,
            racks: arguments.racks,
            servers: 1,
        })?;
        Ok(Stage { daemons: Daemons::in_lab(&lab)?, lab: Some(lab), jobs })
    }

    /// Runs all ranks of all jobs with one collective.
    pub fn run(&self, arguments: &AllReduceArguments, way: Way) -> Result<Vec<Outcome>, Failure> {
        let jobs: Result<Vec<_>, Failure> =
            (0..arguments.jobs).map(|_| self.start_job(arguments, way)).collect();
        let mut outcomes = Vec::new();
        for (job, ranks) in (0..).zip(jobs?) {
            let reports: Vec<Value> =
                ranks.into_iter().map(Rank::report).collect::<Result<_, Failure>>()?;
            if arguments.details {
                self.tell_details(&reports);
            }
            outcomes.push(outcome(way, job, &reports)?);
        }
        Ok(outcomes)
    }

    fn start_job(&self, arguments: &AllReduceArguments, way: Way) -> Result<Vec<Rank>, Failure> {
        let job = format!("bench-{}", self.jobs.fetch_add(1, Ordering::Relaxed));
        let mut ranks = Vec::new();
        for rank in 0..arguments.hosts {
            let mut command = self.command(arguments, way, &job, rank)?;
            if let Some(lab) = &self.lab {
                lab.host(rank).enter(&mut command);
            }
            command.arg("--with-parent").stdin(Stdio::piped()).stdout(Stdio::piped());
            let child = command.spawn();
            ranks.push(Rank(child.map_err(|error| {
                Failure::Ran(format!("rank {rank} cannot be started: {error}"))
            })?));
        }
        Ok(ranks)
    }

    /// The switch of a rank's rack.
    fn switch_of(&self, rank: u32) -> SocketAddr {
        match &self.lab {
            Some(lab) => self.daemons.switch_of(lab.host(rank)),
            None => self.daemons.switches[0].address(),
        }
    }

    /// What everybody has counted.
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
            .args(["--iterations", &arguments.iterations.to_string()])
            .args(["--bound", &arguments.bound.to_string()])
            .args(["--window", arguments.window.name()]);
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

/// Of every all-reduce the slowest rank's time.
fn outcome(way: Way, job: u32, reports: &[Value]) -> Result<Outcome, Failure> {
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
    Ok(Outcome { way, job, share: 1.0, spans_ms, times_ms, exact, missing })
}
