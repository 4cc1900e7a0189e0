//! A child process that is a server, whose memory can be measured.

use std::io::{self, Write};

use thalweg::daemon::{ServerDaemon, ServerDaemonConfig};

use crate::cluster::SECRET;
use crate::process::{MARK, ROLE};

#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let ["server", job_bytes, total_bytes] = role.split(' ').collect::<Vec<_>>()[..] else {
        panic!("no role {role}")
    };
    let bind = "127.0.0.1:0".parse().expect("an address");
    let mut config = ServerDaemonConfig::new(bind, SECRET);
    config.memory.of_job_bytes = job_bytes.parse().expect("a number");
    config.memory.total_bytes = total_bytes.parse().expect("a number");
    let server = ServerDaemon::start(&config).expect("a server starts");
    tell(&format!("at {}", server.address()));
    for _ in io::stdin().lines().map_while(Result::ok) {
        let memory = server.snapshot().expect("it runs").memory;
        tell(&format!("reserved {} {}", memory.reserved_bytes, memory.refused.memory));
    }
}

fn tell(line: &str) {
    let mut out = io::stdout().lock();
    // A parent that is gone needs nothing.
    let _ = writeln!(out, "\n{MARK}{line}").and_then(|()| out.flush());
}
