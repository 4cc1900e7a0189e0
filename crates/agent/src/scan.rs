//! The connections of a program, as far as they leave the host.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use super::foreign::{Connection, Process, SocketFile, UNLIMITED};
use super::group::{Group, Members};
use super::written::WrittenLimits;

/// Sums over all connections to one host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Total {
    /// Bytes that were written to them.
    pub(super) ready: u64,
    /// Of those, bytes that have left.
    pub(super) sent: u64,
    /// Number of connections that have something to send.
    busy: u64,
}

/// The connections of a program.
pub(super) struct Sockets {
    group: Group,
    processes: BTreeMap<u32, Process>,
    /// By the kernel's number: processes that share a socket share it.
    known: BTreeMap<u64, Known>,
    /// Bytes that closed connections had sent.
    closed: BTreeMap<Ipv4Addr, u64>,
    /// Limits that connections have of their own, by the kernel's number. A socket that passes from one
    /// process to another is found twice, the second time with a limit of this process.
    originals: BTreeMap<u64, u64>,
    /// The part of [`Sockets::originals`] that was not reported.
    new_originals: Vec<(u64, u64)>,
    /// Limits that this process sets. `None` if they cannot be written down.
    written: Option<WrittenLimits>,
}

/// With more originals than this, those of connections that are gone are forgotten.
const ORIGINALS_MAX: usize = 10_000;

struct Known {
    process: u32,
    file: SocketFile,
    seen: Connection,
    /// Bytes a second, as set by us; the original before that.
    limit: u64,
    /// The limit that it had when it was found, or that its program has set since.
    original: u64,
}

impl Sockets {
    pub(super) fn new(group: Group, written: Option<WrittenLimits>) -> Sockets {
        let (processes, known, closed) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (originals, new_originals) = (BTreeMap::new(), Vec::new());
        Sockets { group, processes, known, closed, originals, new_originals, written }
    }

    /// The processes whose connections these are.
    pub(super) fn members(&self) -> &Members {
        self.group.members()
    }

    /// Limits that connections have of their own, by the kernel's number of the socket: of all, or of those that
    /// were found since the last call.
    pub(super) fn originals(&mut self, of_all: bool) -> Vec<(u64, u64)> {
        let new = std::mem::take(&mut self.new_originals);
        if !of_all {
            return new;
        }
        let own = self.originals.iter().filter(|(_, limit)| **limit != UNLIMITED);
        own.map(|(inode, limit)| (*inode, *limit)).collect()
    }

    /// Takes in that somebody else has lifted all limits: they have to be set again.
    pub(super) fn handle_lifted(&mut self) {
        self.known.values_mut().for_each(|known| known.limit = known.original);
    }

    /// Finds new connections. What cannot be looked at, such as what has just ended, is passed over.
    pub(super) fn scan(&mut self) {
        let members = self.group.members().numbers();
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
                    let original = *self.originals.entry(file.inode).or_insert_with(|| {
                        if seen.limit != UNLIMITED {
                            self.new_originals.push((file.inode, seen.limit));
                        }
                        seen.limit
                    });
                    let limit = seen.limit;
                    let known = Known { process: number, file, seen, limit, original };
                    self.known.insert(file.inode, known);
                }
            }
        }
        if self.originals.len() > ORIGINALS_MAX {
            self.originals.retain(|inode, _| self.known.contains_key(inode));
        }
    }

    /// Reads how far all known connections are.
    pub(super) fn look(&mut self) {
        let (processes, closed) = (&self.processes, &mut self.closed);
        self.known.retain(|_, known| {
            let process = processes.get(&known.process);
            let seen = process.and_then(|process| process.visit(known.file, None).ok().flatten());
            match seen {
                Some(seen) => {
                    known.seen = seen;
                    if known.adopt(seen.limit) {
                        self.originals.insert(known.file.inode, known.original);
                        self.new_originals.push((known.file.inode, known.original));
                    }
                }
                None => *closed.entry(known.seen.peer).or_default() += net(&known.seen),
            }
            seen.is_some()
        });
        if let Some(written) = &mut self.written {
            written.keep_only(|inode| self.known.contains_key(&inode));
        }
    }

    /// Sums over its connections, host by host.
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
            // A limit that the program has set itself stays.
            let limit = limit.min(known.original);
            if known.limit == limit {
                continue;
            }
            let Some(process) = self.processes.get(&known.process) else { continue };
            if let Some(written) = &mut self.written
                && let Err(error) = written.write(known.file.inode, known.limit, limit)
                && limit < known.original
            {
                problem = Some(error.to_string());
                continue;
            }
            match process.visit(known.file, Some(limit)) {
                Ok(_) => known.limit = limit,
                Err(error) => problem = Some(error.to_string()),
            }
        }
        problem
    }

    /// Asks all processes to end, with `SIGTERM`.
    pub(super) fn ask_to_end(&self) {
        let numbers = self.group.members().numbers().into_iter().map(|number| number.to_string());
        let _ = Command::new("kill").args(numbers).stderr(Stdio::null()).status();
    }

    /// Lifts all limits: connections get those that they had.
    pub(super) fn free(&mut self) {
        for (peer, total) in self.totals() {
            let _ = self.limit(peer, &total, u64::MAX);
        }
    }
}

impl Known {
    /// Takes in the limit that the connection has. Returns true if this process has not set it: the program has, and it is the
    /// original from now on.
    fn adopt(&mut self, limit: u64) -> bool {
        let is_new = limit != self.limit;
        if is_new {
            (self.limit, self.original) = (limit, limit);
        }
        is_new
    }
}

/// Bytes that have left for the first time: what is sent again is no progress.
fn net(seen: &Connection) -> u64 {
    seen.sent_bytes.saturating_sub(seen.resent_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: E-14 machine
    #[test]
    fn a_limit_that_a_program_sets_while_it_is_limited_is_its_original() {
        let own = Ipv4Addr::new(10, 0, 0, 1);
        let seen = Connection {
            peer: own,
            own,
            sent_bytes: 0,
            resent_bytes: 0,
            waiting_bytes: 0,
            limit: UNLIMITED,
        };
        let file = SocketFile { place: 3, inode: 9 };
        let mut known = Known { process: 1, file, seen, limit: 1_000, original: UNLIMITED };
        assert!(!known.adopt(1_000), "this process has set it");
        assert_eq!(known.original, UNLIMITED);
        assert!(known.adopt(700), "the program has");
        assert_eq!((known.limit, known.original), (700, 700));
        assert!(known.adopt(UNLIMITED), "it can lift its own");
        assert_eq!(known.original, UNLIMITED);
    }
}
