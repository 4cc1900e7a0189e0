//! The connections of a program, as far as they leave the host.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use super::foreign::{Connection, Process, SocketFile, UNLIMITED};
use super::group::Group;

/// What all connections to one host come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Total {
    /// Bytes that were written to them.
    pub(super) ready: u64,
    /// Of those, bytes that have left.
    pub(super) sent: u64,
    /// How many of them have something to send.
    busy: u64,
}

/// The connections of a program.
pub(super) struct Sockets {
    group: Group,
    processes: BTreeMap<u32, Process>,
    /// By the kernel's number: processes that share a socket share it.
    known: BTreeMap<u64, Known>,
    /// What closed connections had sent.
    closed: BTreeMap<Ipv4Addr, u64>,
}

struct Known {
    process: u32,
    file: SocketFile,
    seen: Connection,
    /// Bytes a second.
    limit: u64,
}

impl Sockets {
    pub(super) fn new(group: Group) -> Sockets {
        let (processes, known, closed) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Sockets { group, processes, known, closed }
    }

    /// Finds new connections. What cannot be looked at, such as what has just ended, is passed over.
    pub(super) fn scan(&mut self) {
        let members = self.group.members();
        self.processes.retain(|number, _| members.contains(number));
        for number in members {
            if !self.processes.contains_key(&number)
                && let Ok(process) = Process::open(number)
            {
                self.processes.insert(number, process);
            }
        }
        for (&number, process) in &self.processes {
            for file in process.sockets().unwrap_or_default() {
                if self.known.contains_key(&file.inode) {
                    continue;
                }
                if let Ok(Some(seen)) = process.visit(file, None) {
                    let known = Known { process: number, file, seen, limit: UNLIMITED };
                    self.known.insert(file.inode, known);
                }
            }
        }
    }

    /// Reads how far all known connections are.
    pub(super) fn look(&mut self) {
        let (processes, closed) = (&self.processes, &mut self.closed);
        self.known.retain(|_, known| {
            let process = processes.get(&known.process);
            let seen = process.and_then(|process| process.visit(known.file, None).ok().flatten());
            match seen {
                Some(seen) => known.seen = seen,
                None => *closed.entry(known.seen.peer).or_default() += net(&known.seen),
            }
            seen.is_some()
        });
    }

    /// What it comes to, host by host.
    pub(super) fn totals(&self) -> BTreeMap<Ipv4Addr, Total> {
        let closed =
            |(&peer, &sent): (&Ipv4Addr, &u64)| (peer, Total { ready: sent, sent, busy: 0 });
        let mut totals: BTreeMap<Ipv4Addr, Total> = self.closed.iter().map(closed).collect();
        for known in self.known.values() {
            let total = totals.entry(known.seen.peer).or_default();
            total.sent += net(&known.seen);
            total.ready += net(&known.seen) + known.seen.waiting_bytes;
            total.busy += u64::from(known.seen.waiting_bytes > 0);
        }
        totals
    }

    // spec: C-09
    /// Limits the connections to a host, together to that rate: those that have something to send share
    /// it. How many could not be limited, and why not.
    pub(super) fn limit(&mut self, peer: Ipv4Addr, total: &Total, bps: u64) -> Option<String> {
        let limit = if bps == u64::MAX { UNLIMITED } else { bps / 8 / total.busy.max(1) };
        let mut problem = None;
        for known in self.known.values_mut().filter(|known| known.seen.peer == peer) {
            if known.limit == limit {
                continue;
            }
            let Some(process) = self.processes.get(&known.process) else { continue };
            match process.visit(known.file, Some(limit)) {
                Ok(_) => known.limit = limit,
                Err(error) => problem = Some(error.to_string()),
            }
        }
        problem
    }

    /// Asks all processes to end, with `SIGTERM`.
    pub(super) fn ask_to_end(&self) {
        let numbers = self.group.members().into_iter().map(|number| number.to_string());
        let _ = Command::new("kill").args(numbers).stderr(Stdio::null()).status();
    }

    /// Lifts all limits.
    pub(super) fn free(&mut self) {
        for (peer, total) in self.totals() {
            let _ = self.limit(peer, &total, u64::MAX);
        }
    }
}

/// What has left for the first time: what is sent again is no progress.
fn net(seen: &Connection) -> u64 {
    seen.sent_bytes.saturating_sub(seen.resent_bytes)
}
