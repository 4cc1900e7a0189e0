//! The processes of a cluster on loopback, or in a lab.

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

/// When a death has to be known everywhere.
pub const KNOWN: Duration = SHORT.failure_after.saturating_add(Duration::from_secs(2));

/// What goes well takes no longer.
pub const LIMIT: Duration = Duration::from_secs(25);

/// A switch and a server.
pub struct Stage {
    pub switch: Option<Process>,
    pub server: Option<Process>,
    pub times: Times,
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
        Stage { switch: Some(switch), server: Some(server), times, lab, switch_at, server_at }
    }

    /// Where the server is, or was.
    pub fn server_at(&self) -> &str {
        &self.server_at
    }

    pub fn lab(&self) -> Option<&Lab> {
        self.lab.as_ref()
    }

    /// One rank of a job, which joins.
    pub fn rank(&self, name: &str, rank: u32, ranks: u32) -> Process {
        let Stage { server_at, switch_at, times, .. } = self;
        let Times { failure_after, stall_after, operation_timeout, join_timeout } = times;
        let times = [failure_after, stall_after, operation_timeout, join_timeout];
        let [failure, stall, operation, join] = times.map(Duration::as_millis);
        let role = format!(
            "rank {server_at} {switch_at} {name} {rank} {ranks} {failure} {stall} {operation} {join}"
        );
        Process::start_in(&role, self.lab.as_ref().map(|lab| lab.host(rank)))
    }

    /// The ranks of a job, all of them joined.
    pub fn job(&self, name: &str, ranks: u32) -> Vec<Process> {
        let processes: Vec<Process> = (0..ranks).map(|rank| self.rank(name, rank, ranks)).collect();
        for process in &processes {
            process.expect("joined", LIMIT);
        }
        processes
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

/// Tells all ranks the same.
pub fn say(ranks: &mut [Process], line: &str) {
    ranks.iter_mut().for_each(|rank| rank.say(line));
}

/// Waits for the same line of all ranks.
pub fn expect(ranks: &[Process], start: &str, within: Duration) -> Vec<String> {
    ranks.iter().map(|rank| rank.expect(start, within)).collect()
}
