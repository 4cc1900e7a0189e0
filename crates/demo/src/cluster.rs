//! A switch and a server, each a process, as the demo sees them.

use std::fs::File;
use std::io::Read;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};
use thalweg::daemon::SwitchSnapshot;
use thalweg_console::{Failure, files};
use thalweg_control::{Access, inquiry};
use thalweg_lab::{Lab, Place};

use super::group::{Group, own_program};

/// Token of all jobs: only processes of the demo know where the server is, for less than a minute.
pub(super) const TOKEN: &str = "demo";

/// Source of randomness that nobody can guess.
const ENTROPY: &str = "/dev/urandom";

/// A switch and a server, on loopback or in a lab.
pub(super) struct Cluster<'a> {
    pub(super) switch: String,
    pub(super) server: String,
    switch_process: usize,
    lab: Option<&'a Lab>,
}

/// Counters of a switch.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct SwitchCounters {
    /// Packets that it lost on purpose.
    pub(super) lost_on_purpose: u64,
    /// Packets that came to it.
    pub(super) packets: u64,
    /// Sums that became full there.
    pub(super) completed: u64,
}

/// Counters of a server for one job.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct JobCounters {
    /// Fragments whose sum is complete.
    pub(super) completed: u64,
    /// Packets whose values the server itself put into a sum.
    pub(super) added: u64,
}

impl<'a> Cluster<'a> {
    /// Starts both. The switch loses this share of all packets.
    pub(super) fn start(
        group: &mut Group,
        lab: Option<&'a Lab>,
        loss: f64,
        seed: u64,
    ) -> Result<Cluster<'a>, Failure> {
        let secret = secret()?;
        let options = [format!("--loss={loss}"), format!("--seed={seed}")];
        let place = lab.map(|lab| lab.rack(0));
        let (switch_process, switch) = start(group, place, "switch", &options, &secret)?;
        let (place, options) = (lab.map(|lab| lab.server(0)), [format!("--switch={switch}")]);
        let (_, server) = start(group, place, "server", &options, &secret)?;
        Ok(Cluster { switch, server, switch_process, lab })
    }

    /// Makes the command of a worker run on a host of its own, if the cluster is in a lab.
    pub(super) fn enter(&self, rank: u32, command: &mut Command) {
        if let Some(lab) = self.lab {
            lab.host(rank).enter(command);
        }
    }

    pub(super) fn switch_counters(&self, group: &mut Group) -> Result<SwitchCounters, Failure> {
        let line = group.ask(self.switch_process, "counters")?;
        serde_json::from_str(&line).map_err(|_| Failure::Ran(format!("the switch says: {line}")))
    }

    /// Asks the server's control channel, as operators do. Jobs that were left are forgotten there.
    pub(super) fn job_counters(&self, job: &str) -> Result<JobCounters, Failure> {
        let access =
            Access { endpoint: self.server.clone(), token: Some(TOKEN.to_owned()), tls_ca: None };
        let answer = inquiry::statistics(&access, None).map_err(Failure::ran)?;
        let found = answer.jobs.into_iter().find(|found| found.name == job);
        let found =
            found.ok_or_else(|| Failure::Ran(format!("the server has no job \"{job}\"")))?;
        let count = |name: &str| {
            let counter = found.counters.iter().find(|counter| counter.name == name);
            counter.map_or(0, |counter| counter.value)
        };
        Ok(JobCounters { completed: count("completed"), added: count("added") })
    }
}

impl SwitchCounters {
    pub(super) fn of(snapshot: &SwitchSnapshot) -> SwitchCounters {
        SwitchCounters {
            lost_on_purpose: snapshot.lost_on_purpose,
            packets: snapshot.net.received_packets,
            completed: snapshot.switch.completed,
        }
    }
}

/// Starts a daemon and waits until it says where it is.
fn start(
    group: &mut Group,
    place: Option<&Place>,
    which: &str,
    options: &[String],
    secret: &str,
) -> Result<(usize, String), Failure> {
    let mut command = own_program()?;
    let address = place.map_or(Ipv4Addr::LOCALHOST, Place::address);
    command.args(["demo-daemon", which, &format!("--bind={address}:0")]).args(options);
    if let Some(place) = place {
        place.enter(&mut command);
    }
    let process = group.start(&format!("the {which}"), &mut command)?;
    let line = group.ask(process, secret)?;
    match line.strip_prefix(&format!("{which} ready at ")) {
        Some(address) => Ok((process, address.to_owned())),
        None => Err(Failure::Ran(format!("the {which} says: {line}"))),
    }
}

/// A secret for the daemons of one run, in hexadecimal digits.
fn secret() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    let read = File::open(ENTROPY).and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| files::unreadable(Path::new(ENTROPY), &error))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}
