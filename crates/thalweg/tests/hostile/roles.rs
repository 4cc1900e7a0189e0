//! Child processes: daemons whose memory and counters can be read, and a tenant that attacks others.

use std::io::{self, Write};

use std::sync::Arc;

use thalweg::daemon::{ServerDaemon, ServerDaemonConfig, SwitchDaemon, SwitchDaemonConfig};
use thalweg::metrics::Endpoint;

use crate::attacks;
use crate::cluster::SECRET;
use crate::process::{MARK, ROLE};
use crate::sealed;

const BIND: &str = "127.0.0.1:0";

#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    match role.split(' ').collect::<Vec<_>>()[..] {
        ["server", job_bytes, total_bytes, cores] => server(job_bytes, total_bytes, cores),
        ["switch", aggregators, values, cores] => switch(aggregators, values, cores),
        ["tenant", server, switch, token, seed] => sealed::attack(server, switch, token, seed),
        ["attack", ref words @ ..] => attacks::child(words),
        _ => panic!("no role {role}"),
    }
}

fn server(job_bytes: &str, total_bytes: &str, cores: &str) {
    let mut config = ServerDaemonConfig::new(BIND.parse().expect("an address"), SECRET);
    config.memory.of_job_bytes = job_bytes.parse().expect("a number");
    config.require_token = true;
    config.cores = cores.parse().expect("a number");
    config.memory.total_bytes = total_bytes.parse().expect("a number");
    let server = Arc::new(ServerDaemon::start(&config).expect("a server starts"));
    let source = Arc::clone(&server);
    let about = "a server".to_owned();
    let metrics =
        Endpoint::start(BIND.parse().expect("an address"), about, move || source.metrics());
    let metrics = metrics.expect("a free port");
    tell(&format!("at {} {}", server.address(), metrics.local_address()));
    for line in io::stdin().lines().map_while(Result::ok) {
        let snapshot = server.snapshot().expect("it runs");
        let memory = &snapshot.memory;
        if line == "counts" {
            let refused = memory.refused.named().into_iter();
            let dropped = snapshot.server.named().into_iter();
            let dropped = dropped
                .filter(|(name, _)| ["forged", "unknown", "malformed", "beyond"].contains(name));
            let closed =
                metrics.closed().map(|(reason, count)| (format!("metrics_{reason}"), count));
            let counts = snapshot.refused.iter().copied().chain(refused).chain(dropped);
            let counts = counts.map(|(name, count)| (name.to_owned(), count));
            tell_counts(counts.chain(closed));
        } else {
            let refused = memory.refused.memory + memory.refused.token_memory;
            tell(&format!("reserved {} {refused}", memory.reserved_bytes));
        }
    }
}

fn switch(aggregators: &str, values: &str, cores: &str) {
    let mut config = SwitchDaemonConfig::new(BIND.parse().expect("an address"), SECRET);
    config.cores = cores.parse().expect("a number");
    config.aggregators = Some(aggregators.parse().expect("a number"));
    config.values_max = Some(values.parse().expect("a number"));
    let switch = SwitchDaemon::start(&config).expect("a switch starts");
    tell(&format!("at {}", switch.address()));
    for _ in io::stdin().lines().map_while(Result::ok) {
        let counts = switch.snapshot().expect("it runs").switch.named().into_iter();
        let names = ["forged", "malformed", "unknown_server", "other_version", "notices"];
        let counts = counts.filter(|(name, _)| names.contains(name));
        tell_counts(counts.map(|(name, count)| (name.to_owned(), count)));
    }
}

/// Counters, as `name=count` each.
fn tell_counts(counts: impl Iterator<Item = (String, u64)>) {
    let counts: Vec<String> = counts.map(|(name, count)| format!("{name}={count}")).collect();
    tell(&format!("counts {}", counts.join(" ")));
}

pub fn tell(line: &str) {
    let mut out = io::stdout().lock();
    // A parent that is gone needs nothing.
    let _ = writeln!(out, "\n{MARK}{line}").and_then(|()| out.flush());
}
