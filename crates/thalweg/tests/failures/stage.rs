//! The processes of a cluster on loopback.

use std::time::Duration;

use crate::process::Process;

/// How long the ranks of these tests wait for each other.
pub const PATIENCE: Duration = Duration::from_secs(4);

/// When a failure has to be known everywhere.
pub const KNOWN: Duration = PATIENCE.saturating_add(Duration::from_secs(2));

/// What goes well takes no longer.
pub const LIMIT: Duration = Duration::from_secs(25);

/// A switch and a server.
pub struct Stage {
    pub switch: Option<Process>,
    pub server: Option<Process>,
    switch_at: String,
    server_at: String,
}

impl Stage {
    pub fn new() -> Stage {
        let switch = Process::start("switch 127.0.0.1:0");
        let switch_at = switch.expect("at", LIMIT);
        let server = Process::start(&format!("server 127.0.0.1:0 {switch_at}"));
        let server_at = server.expect("at", LIMIT);
        Stage { switch: Some(switch), server: Some(server), switch_at, server_at }
    }

    /// Where the server is, or was.
    pub fn server_at(&self) -> &str {
        &self.server_at
    }

    /// The ranks of a job, all of them joined.
    pub fn job(&self, name: &str, ranks: u32) -> Vec<Process> {
        let Stage { server_at, switch_at, .. } = self;
        let patience_ms = PATIENCE.as_millis();
        let start = |rank| {
            let role = format!("rank {server_at} {switch_at} {name} {rank} {ranks} {patience_ms}");
            Process::start(&role)
        };
        let processes: Vec<Process> = (0..ranks).map(start).collect();
        for process in &processes {
            process.expect("joined", LIMIT);
        }
        processes
    }

    pub fn kill_switch(&mut self) {
        self.switch.take().expect("there is one").kill();
    }

    pub fn start_switch(&mut self) {
        let switch = Process::start(&format!("switch {}", self.switch_at));
        assert_eq!(switch.expect("at", LIMIT), self.switch_at);
        self.switch = Some(switch);
    }

    pub fn kill_server(&mut self) {
        self.server.take().expect("there is one").kill();
    }

    pub fn start_server(&mut self) {
        let server = Process::start(&format!("server {} {}", self.server_at, self.switch_at));
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
