//! The processes of a cluster on loopback, or in a lab.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use thalweg_lab::{Lab, Place};

use crate::process::Process;

/// Deadlines of a job.
#[derive(Clone, Copy)]
pub struct Times {
    pub failure_after: Duration,
    pub stall_after: Duration,
    pub operation_timeout: Duration,
    pub join_timeout: Duration,
}

/// Short ones, but for the deadline of operations: what is noticed sooner is noticed for another reason.
pub const SHORT: Times = Times {
    failure_after: Duration::from_secs(2),
    stall_after: Duration::from_millis(500),
    operation_timeout: Duration::from_secs(60),
    join_timeout: Duration::from_secs(60),
};

/// Deadlines of a session whose program sets none.
pub const DEFAULT: Times = Times {
    failure_after: Duration::from_secs(10),
    stall_after: Duration::from_secs(5),
    operation_timeout: Duration::from_secs(300),
    join_timeout: Duration::from_secs(300),
};

impl Times {
    /// When a death has to be known everywhere.
    pub const fn known(self) -> Duration {
        self.failure_after.saturating_add(Duration::from_secs(2))
    }
}

/// When a death has to be known everywhere, with short times.
pub const KNOWN: Duration = SHORT.known();

/// Longest time of anything that goes well.
pub const LIMIT: Duration = Duration::from_secs(25);

/// In place of the address of a switch.
pub const NO_SWITCH: &str = "none";

/// Token that ranks of a lab show.
pub const TOKEN: &str = "ranks-of-this-test";

/// Port at which training scripts meet, on host 0 of their lab.
const MASTER_PORT: u16 = 29_500;

/// A switch and a server.
pub struct Stage {
    pub switch: Option<Process>,
    pub server: Option<Process>,
    pub times: Times,
    /// Sending threads that each rank offers.
    pub threads: u32,
    /// The interpreter of ranks that are training scripts. Other ranks are sessions.
    pub python: Option<PathBuf>,
    lab: Option<Lab>,
    switch_at: String,
    server_at: String,
}

impl Stage {
    pub fn new() -> Stage {
        Stage::with(SHORT)
    }

    pub fn with(times: Times) -> Stage {
        Stage::in_lab(times, None)
    }

    pub fn in_lab(times: Times, lab: Option<Lab>) -> Stage {
        let rack = lab.as_ref().map(|lab| lab.rack(0));
        let bind = |place: Option<&Place>| {
            place.map_or("127.0.0.1:0".to_owned(), |place| format!("{}:0", place.address()))
        };
        let switch = Process::start_in(&format!("switch {}", bind(rack)), rack);
        let switch_at = switch.expect("at", LIMIT);
        let place = lab.as_ref().map(|lab| lab.server(0));
        let server = Process::start_in(&format!("server {} {switch_at}", bind(place)), place);
        let server_at = server.expect("at", LIMIT);
        let (switch, server, python) = (Some(switch), Some(server), None);
        Stage { switch, server, times, threads: 1, python, lab, switch_at, server_at }
    }

    /// Address of the server, also after its end.
    pub fn server_at(&self) -> &str {
        &self.server_at
    }

    /// Address of the switch, also after its end.
    pub fn switch_at(&self) -> &str {
        &self.switch_at
    }

    /// Longest time of something that goes well here.
    pub fn limit(&self) -> Duration {
        // Many interpreters at once need long to load PyTorch.
        if self.python.is_some() { 6 * LIMIT } else { LIMIT }
    }

    pub fn lab(&self) -> Option<&Lab> {
        self.lab.as_ref()
    }

    /// One rank of a job, which joins.
    pub fn rank(&self, name: &str, rank: u32, ranks: u32) -> Process {
        match &self.python {
            Some(python) => self.script(python, name, rank, ranks),
            None => self.session(name, rank, ranks, &self.switch_at),
        }
    }

    /// The ranks of a job that never had a switch, all of them joined.
    pub fn job_without_switch(&self, name: &str, ranks: u32) -> Vec<Process> {
        joined((0..ranks).map(|rank| self.session(name, rank, ranks, NO_SWITCH)).collect(), LIMIT)
    }

    fn session(&self, name: &str, rank: u32, ranks: u32, switch_at: &str) -> Process {
        let Stage { server_at, times, threads, .. } = self;
        let Times { failure_after, stall_after, operation_timeout, join_timeout } = times;
        let times = [failure_after, stall_after, operation_timeout, join_timeout];
        let [failure, stall, operation, join] = times.map(Duration::as_millis);
        let role = format!(
            "rank {server_at} {switch_at} {name} {rank} {ranks} {failure} {stall} {operation} {join} \
             {threads}"
        );
        Process::start_in(&role, self.lab.as_ref().map(|lab| lab.host(rank)))
    }

    /// A rank of a lab with two ranks on every host, which share memory.
    pub fn sharing(&self, name: &str, rank: u32, ranks: u32) -> Process {
        let Stage { server_at, switch_at, threads, lab, .. } = self;
        let role = format!("sharing {server_at} {switch_at} {name} {rank} {ranks} {threads}");
        Process::start_in(&role, lab.as_ref().map(|lab| lab.host(rank / 2)))
    }

    /// A rank that trains with PyTorch. Its settings are in its environment, where users have them.
    fn script(&self, python: &Path, name: &str, rank: u32, ranks: u32) -> Process {
        let lab = self.lab.as_ref().expect("scripts run in labs");
        let seconds = |span: Duration| span.as_secs_f64().to_string();
        let Times { failure_after, stall_after, operation_timeout, join_timeout } = self.times;
        let mut command = Command::new(python);
        command
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/tests/commanded_script.py"))
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", ranks.to_string())
            .env("MASTER_ADDR", lab.host(0).address().to_string())
            .env("MASTER_PORT", MASTER_PORT.to_string())
            .env("THALWEG_JOB", name)
            .env("THALWEG_SERVER", &self.server_at)
            .env("THALWEG_SWITCH", &self.switch_at)
            .env("THALWEG_TOKEN", TOKEN)
            .env("THALWEG_SHARE_MEMORY", "0")
            .env("THALWEG_FAILURE_AFTER", seconds(failure_after))
            .env("THALWEG_STALL_AFTER", seconds(stall_after))
            .env("THALWEG_OPERATION_TIMEOUT", seconds(operation_timeout))
            .env("THALWEG_JOIN_TIMEOUT", seconds(join_timeout));
        Process::spawn(&format!("script {name} {rank}"), command, Some(lab.host(rank)))
    }

    /// The ranks of a job, all of them joined.
    pub fn job(&self, name: &str, ranks: u32) -> Vec<Process> {
        joined((0..ranks).map(|rank| self.rank(name, rank, ranks)).collect(), self.limit())
    }

    pub fn kill_switch(&mut self) {
        self.switch.take().expect("there is one").kill();
    }

    pub fn start_switch(&mut self) {
        let rack = self.lab.as_ref().map(|lab| lab.rack(0));
        let switch = Process::start_in(&format!("switch {}", self.switch_at), rack);
        assert_eq!(switch.expect("at", LIMIT), self.switch_at);
        self.switch = Some(switch);
    }

    pub fn kill_server(&mut self) {
        self.server.take().expect("there is one").kill();
    }

    pub fn start_server(&mut self) {
        let place = self.lab.as_ref().map(|lab| lab.server(0));
        let role = format!("server {} {}", self.server_at, self.switch_at);
        let server = Process::start_in(&role, place);
        assert_eq!(server.expect("at", LIMIT), self.server_at);
        self.server = Some(server);
    }
}

/// Ranks that have all joined.
fn joined(ranks: Vec<Process>, within: Duration) -> Vec<Process> {
    expect(&ranks, "joined", within);
    ranks
}

/// Tells all ranks the same.
pub fn say(ranks: &mut [Process], line: &str) {
    ranks.iter_mut().for_each(|rank| rank.say(line));
}

/// Waits for the same line of all ranks.
pub fn expect(ranks: &[Process], start: &str, within: Duration) -> Vec<String> {
    ranks.iter().map(|rank| rank.expect(start, within)).collect()
}
