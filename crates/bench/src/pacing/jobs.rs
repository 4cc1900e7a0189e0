//! Two jobs on two hosts whose bytes meet on the link to a third, without agents and with them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use thalweg_console::Failure;
use thalweg_control::pacing::since_epoch;
use thalweg_lab::Lab;

use super::rates::Program;
use super::sink::Sink;
use super::{PacingArguments, enforcer, lab};
use crate::tools::{output_of, own_program, round, sleep};

/// Port of the tables of the lab's switch.
const TABLES_PORT: u16 = 4_900;
/// For programs to start, before jobs begin at the same moment.
const START_AFTER: Duration = Duration::from_millis(1_500);

/// Report of a job that has ended.
#[derive(Deserialize)]
pub(super) struct Report {
    pub(super) total_ms: u64,
    times_ms: Vec<u64>,
}

pub(super) fn run(arguments: &PacingArguments) -> Result<Value, Failure> {
    let PacingArguments { iterations, mb, compute_ms, .. } = arguments;
    eprintln!("jobs: 2 jobs, {iterations} iterations of {mb} MB after {compute_ms} ms, 1 Gbps …");
    let lab = lab(3, "1gbit")?;
    let alone = measure(arguments, &lab, 1, None)?;
    let free = measure(arguments, &lab, 2, None)?;
    let agents = Agents::start(&lab, &[0, 2], "rate", arguments.details)?;
    let paced = measure(arguments, &lab, 2, Some(&agents))?;
    let slots: Vec<Value> = [0, 2].iter().flat_map(|host| agents.records(*host)).collect();
    drop(agents);
    let last =
        |reports: &[Report]| reports.iter().map(|report| report.total_ms).max().unwrap_or(0) as f64;
    let mean = |reports: &[Report]| {
        reports.iter().map(|report| report.total_ms).sum::<u64>() as f64 / reports.len() as f64
    };
    let times = |reports: &[Report]| {
        reports.iter().map(|report| json!(report.times_ms)).collect::<Vec<Value>>()
    };
    Ok(json!({
        "one_job_alone_s": round(last(&alone) / 1e3, 3),
        "unpaced_last_ends_after_s": round(last(&free) / 1e3, 3),
        "paced_last_ends_after_s": round(last(&paced) / 1e3, 3),
        "sooner_by": round(1.0 - last(&paced) / last(&free), 4),
        "mean_sooner_by": round(1.0 - mean(&paced) / mean(&free), 4),
        "unpaced_times_ms": times(&free),
        "paced_times_ms": times(&paced),
        "paced_slots": slots,
    }))
}

/// Runs jobs from hosts 0 and 2 to host 1.
fn measure(
    arguments: &PacingArguments,
    lab: &Lab,
    jobs: u32,
    agents: Option<&Agents>,
) -> Result<Vec<Report>, Failure> {
    let at_ms = (since_epoch() + START_AFTER).as_millis().to_string();
    let bytes = (arguments.mb * 1_000_000).to_string();
    let (compute, iterations) =
        (arguments.compute_ms.to_string(), arguments.iterations.to_string());
    let mut programs = Vec::new();
    let mut sinks = Vec::new();
    for job in 0..jobs {
        let host = job * 2;
        let sink = Sink::start(lab.host(1))?;
        let to = sink.address().to_string();
        let words = [
            ["--to", &to],
            ["--bytes", &bytes],
            ["--compute-ms", &compute],
            ["--iterations", &iterations],
            ["--at-ms", &at_ms],
        ];
        let (name, socket) = (format!("job{job}"), agents.map(|agents| agents.socket(host)));
        let (words_before, details) = (enforcer(&name, socket.as_ref()), arguments.details);
        programs.push(Program::with(lab.host(host), &words_before, words.as_flattened(), details)?);
        sinks.push(sink);
    }
    programs.iter_mut().map(report_of).collect()
}

pub(super) fn report_of(program: &mut Program) -> Result<Report, Failure> {
    serde_json::from_str(&output_of(&mut program.0)?)
        .map_err(|_| Failure::ran("a job did not end well"))
}

/// An agent on some hosts, and the tables of the switch between them.
pub(super) struct Agents {
    programs: Vec<Program>,
    scratch: Scratch,
}

/// A folder that goes with the benchmark.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Agents {
    pub(super) fn start(
        lab: &Lab,
        hosts: &[u32],
        enforce: &str,
        details: bool,
    ) -> Result<Agents, Failure> {
        let folder = std::env::temp_dir().join(format!("thalweg-bench-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(Failure::ran)?;
        let mut agents = Agents { programs: Vec::new(), scratch: Scratch(folder) };
        let token = agents.path("token");
        fs::write(&token, "bench").map_err(Failure::ran)?;
        let tables = format!("{}:{TABLES_PORT}", lab.rack(0).address());
        let own = own_program()?;
        let mut switch = Command::new(&own);
        switch.args(["switch", "--emulate", "--pacing", &tables]);
        switch.args(["--hosts", "10.77.0.0/24=1gbit", "--token-file"]).arg(&token);
        agents.programs.push(Program::spawn(lab.rack(0), switch, details)?);
        for &host in hosts {
            let mut agent = Command::new(&own);
            agent.args(["agent", "--rate", "1gbit", "--switch", &tables, "--enforce", enforce]);
            agent.args(["--address", &lab.host(host).address().to_string()]);
            agent.arg("--token-file").arg(&token).arg("--socket").arg(agents.socket(host));
            agent.arg("--log").arg(agents.path(&format!("log{host}")));
            agents.programs.push(Program::spawn(lab.host(host), agent, details)?);
        }
        let is_ready = || hosts.iter().all(|host| Path::new(&agents.socket(*host)).exists());
        for _ in 0..500 {
            if is_ready() {
                return Ok(agents);
            }
            sleep(Duration::from_millis(10));
        }
        Err(Failure::Ran("the agents do not start: see --details".into()))
    }

    /// Path of the socket of a host's agent.
    pub(super) fn socket(&self, host: u32) -> String {
        self.path(&format!("agent{host}")).display().to_string()
    }

    /// Records that the agent of a host has written.
    fn records(&self, host: u32) -> Vec<Value> {
        let text = fs::read_to_string(self.path(&format!("log{host}"))).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.0.join(name)
    }
}
