//! Connections that are taken in: as many as there is room for, and only those that are used.
// spec: E-12

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use socket2::SockRef;
use thalweg_core::{Span, Time};
use thalweg_net::descriptors;
use thalweg_net::fork::KeptFromChildren;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{self, MissedTickBehavior};

use super::TICK;
use super::meter::SharedMeter;
use crate::budget::{ConnectionBudgets, Reason, Refused};
use crate::clock::Clock;
use crate::connection::{Connection, Watch};
use crate::settings::Settings;

/// Shortest time between two lines about connections that were refused.
const NOTE_EVERY: Span = Span::from_s(10);

/// Time for which a connection stays open that comes from an address which was refused too often. Who opens the next one when
/// this one ends costs the service less the longer it waits.
const HELD_FOR: Span = Span::from_ms(500);

/// Most such connections. Beyond it the oldest is closed.
const HELD_MAX: usize = 64;

/// Counts of open connections.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    budgets: ConnectionBudgets,
    /// Descriptors that this process may have.
    descriptors: u64,
    counts: Arc<Mutex<Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    addresses: BTreeMap<IpAddr, Address>,
}

#[derive(Debug, Default)]
struct Address {
    open: usize,
    /// Those of them on which no call has passed yet.
    unproven: usize,
}

/// A connection that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    pub(crate) address: IpAddr,
    is_proven: AtomicBool,
    counts: Arc<Mutex<Counts>>,
}

impl Connections {
    pub(crate) fn new(budgets: ConnectionBudgets) -> Connections {
        let descriptors = descriptors::limit().unwrap_or(u64::MAX);
        Connections { budgets, descriptors, counts: Arc::default() }
    }

    /// Takes down a connection, or says why there is no room for it. The system gives the lowest number that is free, so
    /// the number of a descriptor says how many there are.
    fn admit(&self, address: IpAddr, descriptor: u64) -> Result<Permit, Reason> {
        let reserved = self.budgets.descriptors_reserved.min(self.descriptors / 4);
        if descriptor >= self.descriptors - reserved {
            return Err(Reason::Descriptors);
        }
        let mut counts = lock(&self.counts);
        if counts.total >= self.budgets.total {
            return Err(Reason::Connections);
        }
        let from = counts.addresses.entry(address).or_default();
        let is_full = from.open >= self.budgets.per_address
            || from.unproven >= self.budgets.unproven_per_address;
        if is_full {
            return Err(Reason::Connections);
        }
        from.open += 1;
        from.unproven += 1;
        counts.total += 1;
        let counts = Arc::clone(&self.counts);
        Ok(Permit { address, is_proven: AtomicBool::new(false), counts })
    }
}

impl Permit {
    /// A call has passed on the connection.
    pub(crate) fn prove(&self) {
        if !self.is_proven.swap(true, Ordering::Relaxed) {
            let mut counts = lock(&self.counts);
            if let Some(from) = counts.addresses.get_mut(&self.address) {
                from.unproven = from.unproven.saturating_sub(1);
            }
        }
    }

    pub(crate) fn is_proven(&self) -> bool {
        self.is_proven.load(Ordering::Relaxed)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.prove();
        let mut counts = lock(&self.counts);
        counts.total = counts.total.saturating_sub(1);
        if let Some(from) = counts.addresses.get_mut(&self.address) {
            from.open = from.open.saturating_sub(1);
            if from.open == 0 {
                counts.addresses.remove(&self.address);
            }
        }
    }
}

fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    // Every change leaves the counts whole.
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes in the connections of a listener.
pub(crate) struct Acceptor<N> {
    pub(crate) connections: Connections,
    pub(crate) meter: SharedMeter,
    pub(crate) refused: Refused,
    /// Gets lines for the operator.
    pub(crate) note: N,
    pub(crate) clock: Clock,
    /// When the last one was refused that was noted.
    pub(crate) noted: Option<Time>,
    /// Connections that nobody reads, from addresses that were refused too often, and when they came.
    pub(crate) held: VecDeque<(Time, TcpStream)>,
}

impl<N: Fn(String)> Acceptor<N> {
    /// Passes on connections until nobody takes them. Where the system has no room for one, it may have later.
    pub(crate) async fn run(
        mut self,
        listener: TcpListener,
        accepted: mpsc::Sender<Result<Connection, io::Error>>,
    ) {
        // Nobody would take in connections that a child keeps a queue for.
        let _kept = KeptFromChildren::new(&listener);
        let mut ticks = time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let taken = tokio::select! {
                taken = listener.accept() => taken,
                _ = ticks.tick(), if !self.held.is_empty() => {
                    self.close_held();
                    continue;
                }
            };
            match taken {
                Ok((stream, from)) => {
                    let Some(connection) = self.take_in(stream, from.ip()) else { continue };
                    if accepted.send(Ok(connection)).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    self.note(|| format!("a connection could not be taken: {error}"));
                    time::sleep(TICK).await;
                }
            }
        }
    }

    fn take_in(&mut self, stream: TcpStream, from: IpAddr) -> Option<Connection> {
        match self.admit(&stream, from) {
            Ok(permit) => {
                let connection = Connection::admitted(stream, permit);
                let watch = connection.watch();
                // Until it is known which job it is for, if it ever is.
                watch.set_failure_after(Settings::default().failure_after);
                let within = self.connections.budgets.first_call_within;
                tokio::spawn(close_if_mute(watch, within, self.refused.clone()));
                Some(connection)
            }
            Err(reason) => {
                self.refused.count(reason);
                // Without it the system would wait for the rest of each.
                let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                if reason == Reason::Denials {
                    self.held.push_back((self.clock.now(), stream));
                    self.close_held();
                }
                let why = match reason {
                    Reason::Descriptors => "descriptors are scarce: raise `ulimit -n`",
                    Reason::Denials => "too many calls from there had no valid token",
                    _ => "there are too many from there, or in total",
                };
                self.note(|| format!("a connection from {from} was closed: {why}"));
                None
            }
        }
    }

    /// Closes connections that were held for long enough, or that are too many.
    fn close_held(&mut self) {
        let now = self.clock.now();
        let is_over = |(came, _): &(Time, TcpStream)| now.since(*came) >= HELD_FOR;
        while self.held.len() > HELD_MAX || self.held.front().is_some_and(is_over) {
            self.held.pop_front();
        }
    }

    /// Takes down a connection, unless there is no room for it or its address has been refused too often.
    fn admit(&self, stream: &TcpStream, from: IpAddr) -> Result<Permit, Reason> {
        if !self.meter.may_deny(self.clock.now(), from) {
            return Err(Reason::Denials);
        }
        self.connections.admit(from, stream.as_raw_fd().unsigned_abs().into())
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        let now = self.clock.now();
        if self.noted.is_none_or(|noted| now.since(noted) >= NOTE_EVERY) {
            self.noted = Some(now);
            (self.note)(text());
        }
    }
}

/// Closes a connection on which no call has passed in time. That takes the TLS handshake and the first bytes of HTTP/2.
async fn close_if_mute(watch: Watch, within: Duration, refused: Refused) {
    time::sleep(within).await;
    if watch.close_if_unproven() {
        refused.count(Reason::Mute);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn connections(descriptors: u64) -> Connections {
        let budgets = ConnectionBudgets {
            total: 6,
            per_address: 4,
            unproven_per_address: 2,
            descriptors_reserved: 8,
            ..ConnectionBudgets::default()
        };
        Connections { descriptors, ..Connections::new(budgets) }
    }

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    // spec: E-12 machine
    #[test]
    fn one_address_cannot_take_the_connections_of_another() {
        let connections = connections(1_000);
        let admit = |last| connections.admit(address(last), 9);
        let (first, second) = (admit(1).unwrap(), admit(1).unwrap());
        assert_eq!(admit(1).unwrap_err(), Reason::Connections, "two have not proved anything");
        first.prove();
        first.prove();
        second.prove();
        let more = [admit(1).unwrap(), admit(1).unwrap()];
        more.iter().for_each(Permit::prove);
        assert_eq!(admit(1).unwrap_err(), Reason::Connections, "four are open");
        let others = [admit(2).unwrap(), admit(3).unwrap()];
        assert_eq!(admit(4).unwrap_err(), Reason::Connections, "six are open");
        drop((first, others));
        assert!(admit(1).is_ok() && admit(4).is_ok());
        drop((second, more));
        let counts = lock(&connections.counts);
        assert!(counts.total == 0 && counts.addresses.is_empty(), "{counts:?}");
    }

    // spec: E-12 machine
    #[test]
    fn some_descriptors_stay_free() {
        let code = |limit, descriptor| connections(limit).admit(address(1), descriptor).map(drop);
        assert_eq!(code(100, 91), Ok(()));
        assert_eq!(code(100, 92), Err(Reason::Descriptors));
        assert_eq!(code(16, 11), Ok(()), "at most a quarter is reserved");
        assert_eq!(code(16, 12), Err(Reason::Descriptors));
        assert_eq!(code(u64::MAX, 1 << 40), Ok(()));
    }
}
