//! Connections that are taken in: as many as there is room for, and only those that are used.
//!
//! Descriptors are what runs out first. Some stay free for everything but connections. Of the others an eighth is kept for ranks
//! that come back: a connection that takes one of these stays only if a rank joins on it that its job knows. Of the rest, those
//! of one address have at most half, and so have those of one token.
// spec: E-12

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
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
use crate::caller::Holder;
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

/// Share of the descriptors for connections that is kept for ranks that come back.
const KEPT_SHARE: u64 = 8;

/// Share of the others that one address may have, and one token.
const OWN_SHARE: u64 = 2;

/// Time that a rank that comes back has to join on a descriptor that is kept for it, and connections of one address that may use
/// this time at once.
const RETURN_WITHIN: Duration = Duration::from_secs(3);
const RETURNING_MAX: usize = 16;

/// Counts of open connections.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    limits: Limits,
    first_call_within: Duration,
    counts: Arc<Mutex<Counts>>,
}

/// Limits that follow from the budgets and from the number of descriptors of this process.
#[derive(Clone, Copy, Debug)]
struct Limits {
    budgets: ConnectionBudgets,
    /// Descriptors from this number on are for ranks that come back, and from the next one on for no connection.
    kept_from: u64,
    end: u64,
    per_address: usize,
    per_token: usize,
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    addresses: BTreeMap<IpAddr, Address>,
    /// Connections by who has shown a credential on them first.
    holders: BTreeMap<Holder, usize>,
}

#[derive(Debug, Default)]
struct Address {
    open: usize,
    /// Number of these on which no call has passed yet.
    unproven: usize,
    /// Number of these with a descriptor that is kept for ranks that come back.
    returning: usize,
}

/// A connection that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    pub(crate) address: IpAddr,
    /// True for a descriptor that is kept for ranks that come back.
    is_kept: bool,
    /// The holder that the connection counts for, once a call has passed that lets it stay.
    holder: OnceLock<Holder>,
    per_token: usize,
    counts: Arc<Mutex<Counts>>,
}

impl Limits {
    fn new(budgets: ConnectionBudgets, descriptors: u64) -> Limits {
        let end = descriptors - budgets.descriptors_reserved.min(descriptors / 4);
        let kept_from = end - end / KEPT_SHARE;
        let own = usize::try_from(kept_from / OWN_SHARE).unwrap_or(usize::MAX);
        let (per_address, per_token) = (budgets.per_address.min(own), budgets.per_token.min(own));
        Limits { budgets, kept_from, end, per_address, per_token }
    }
}

impl Connections {
    pub(crate) fn new(budgets: ConnectionBudgets) -> Connections {
        Connections::of(budgets, descriptors::limit().unwrap_or(u64::MAX))
    }

    fn of(budgets: ConnectionBudgets, descriptors: u64) -> Connections {
        let (limits, first_call_within) =
            (Limits::new(budgets, descriptors), budgets.first_call_within);
        Connections { limits, first_call_within, counts: Arc::default() }
    }

    /// Takes down a connection, or says why there is no room for it. The system gives the lowest number that is free, so
    /// the number of a descriptor says how many there are.
    fn admit(&self, address: IpAddr, descriptor: u64) -> Result<Permit, Reason> {
        let Limits { budgets, kept_from, end, per_address, per_token } = self.limits;
        let is_kept = descriptor >= kept_from;
        if descriptor >= end {
            return Err(Reason::Descriptors);
        }
        let mut counts = lock(&self.counts);
        if counts.total >= budgets.total {
            return Err(Reason::Connections);
        }
        let from = counts.addresses.entry(address).or_default();
        if from.open >= per_address || from.unproven >= budgets.unproven_per_address {
            return Err(Reason::Connections);
        }
        if is_kept && from.returning >= RETURNING_MAX {
            return Err(Reason::Descriptors);
        }
        from.open += 1;
        from.unproven += 1;
        from.returning += usize::from(is_kept);
        counts.total += 1;
        let (holder, counts) = (OnceLock::new(), Arc::clone(&self.counts));
        Ok(Permit { address, is_kept, holder, per_token, counts })
    }
}

impl Permit {
    /// Takes down that a call has passed on the connection, which counts for its caller from then on. Returns false if that has as
    /// many as it may have. On a descriptor that is kept for ranks that come back, only the call of such a rank lets it stay.
    pub(crate) fn prove(&self, holder: Holder, is_back: bool) -> bool {
        if self.is_proven() {
            return true;
        }
        let mut counts = lock(&self.counts);
        let own = counts.holders.get(&holder).copied().unwrap_or(0);
        if own >= self.per_token {
            return false;
        }
        if (is_back || !self.is_kept) && self.holder.set(holder).is_ok() {
            counts.holders.insert(holder, own + 1);
            counts.settle(self);
        }
        true
    }

    pub(crate) fn is_proven(&self) -> bool {
        self.holder.get().is_some()
    }

    /// Returns whether the descriptor is kept for ranks that come back, and none has come.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept && !self.is_proven()
    }

    /// Most connections of one holder.
    pub(crate) fn per_token(&self) -> usize {
        self.per_token
    }

    /// Time until the connection is closed if it may not stay.
    fn first_call_within(&self, within: Duration) -> Duration {
        if self.is_kept { within.min(RETURN_WITHIN) } else { within }
    }
}

impl Counts {
    /// Takes down that a connection is no longer without a call.
    fn settle(&mut self, permit: &Permit) {
        if let Some(from) = self.addresses.get_mut(&permit.address) {
            from.unproven = from.unproven.saturating_sub(1);
            from.returning = from.returning.saturating_sub(usize::from(permit.is_kept));
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        match self.holder.get() {
            None => counts.settle(self),
            Some(holder) => {
                if let Some(own) = counts.holders.get_mut(holder) {
                    *own = own.saturating_sub(1);
                    if *own == 0 {
                        counts.holders.remove(holder);
                    }
                }
            }
        }
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
                let within = permit.first_call_within(self.connections.first_call_within);
                let connection = Connection::admitted(stream, permit);
                let watch = connection.watch();
                // Until it is known which job it is for, if it ever is.
                watch.set_failure_after(Settings::default().failure_after);
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
            per_token: 3,
            unproven_per_address: 2,
            descriptors_reserved: 8,
            ..ConnectionBudgets::default()
        };
        Connections::of(budgets, descriptors)
    }

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    fn prove(permit: &Permit) -> bool {
        permit.prove(Holder::Address(permit.address), false)
    }

    // spec: E-12 machine
    #[test]
    fn one_address_cannot_take_the_connections_of_another() {
        let connections = connections(1_000);
        let admit = |last| connections.admit(address(last), 9);
        let (first, second) = (admit(1).unwrap(), admit(1).unwrap());
        assert_eq!(admit(1).unwrap_err(), Reason::Connections, "two have not proved anything");
        assert!(prove(&first) && prove(&first) && prove(&second));
        let more = [admit(1).unwrap(), admit(1).unwrap()];
        more.iter().zip(1..).for_each(|(one, id)| assert!(one.prove(Holder::Token(id), false)));
        assert_eq!(admit(1).unwrap_err(), Reason::Connections, "four are open");
        let others = [admit(2).unwrap(), admit(3).unwrap()];
        assert_eq!(admit(4).unwrap_err(), Reason::Connections, "six are open");
        drop((first, others));
        assert!(admit(1).is_ok() && admit(4).is_ok());
        drop((second, more));
        let counts = lock(&connections.counts);
        assert!(counts.total == 0 && counts.addresses.is_empty(), "{counts:?}");
        assert!(counts.holders.is_empty(), "{counts:?}");
    }

    // spec: E-12 machine
    #[test]
    fn a_token_has_no_more_connections_than_its_own_from_whatever_address() {
        let connections = connections(1_000);
        let admit = |last| connections.admit(address(last), 9).unwrap();
        let own: Vec<Permit> = (1..4).map(admit).collect();
        assert!(own.iter().all(|one| one.prove(Holder::Token(1), false)));
        let fourth = admit(4);
        assert!(!fourth.prove(Holder::Token(1), true) && !fourth.is_proven());
        assert!(own[0].prove(Holder::Token(1), false), "calls pass on those that are there");
        assert!(fourth.prove(Holder::Token(2), false), "another token has its own");
        drop(own);
        assert!(admit(5).prove(Holder::Token(1), false), "they are there again");
    }

    /// The limits that follow from `ulimit -n 1024`.
    // spec: E-12 machine
    #[test]
    fn one_address_and_one_token_leave_half_of_the_descriptors() {
        let connections = Connections::of(ConnectionBudgets::default(), 1_024);
        let Limits { kept_from, end, per_address, per_token, .. } = connections.limits;
        assert_eq!((kept_from, end, per_address, per_token), (728, 832, 364, 364));
        let prove = |permit: Permit, token| {
            assert!(permit.prove(Holder::Token(token), false));
            permit
        };
        let admit = |last, descriptor| connections.admit(address(last), descriptor);
        let taken: Vec<Permit> =
            (0..).map_while(|at| Some(prove(admit(1, at).ok()?, at % 5))).collect();
        assert_eq!(taken.len(), per_address, "whatever tokens it has");
        assert!(admit(2, 364).is_ok());
        drop(taken);
        let taken: Vec<Permit> =
            (0..364).map(|at| prove(admit((at % 7) as u8, at).unwrap(), 1)).collect();
        assert!(!admit(8, 364).unwrap().prove(Holder::Token(1), false), "from whatever addresses");
        assert_eq!(taken.len(), per_token);
        // Where there are many, the budgets are what limits them.
        let Limits { per_address, per_token, .. } =
            Connections::of(ConnectionBudgets::default(), 1 << 20).limits;
        assert_eq!((per_address, per_token), (4_096, 16_384));
    }

    // spec: E-12 machine
    #[test]
    fn the_last_descriptors_are_for_ranks_that_come_back() {
        let connections = Connections::of(ConnectionBudgets::default(), 1_024);
        let admit = |last, descriptor| connections.admit(address(last), descriptor);
        let (new, back) = (admit(1, 728).unwrap(), admit(1, 729).unwrap());
        assert!(new.prove(Holder::Token(1), false) && !new.is_proven(), "it may say who it is");
        assert!(back.prove(Holder::Token(1), true) && back.is_proven());
        let within = Duration::from_secs(60);
        assert_eq!(new.first_call_within(within), RETURN_WITHIN);
        assert_eq!(admit(1, 727).unwrap().first_call_within(within), within);
        // Few of one address wait there at a time.
        let rest: Vec<Permit> = (0..).map_while(|_| admit(1, 730).ok()).collect();
        assert_eq!(rest.len(), RETURNING_MAX - 1);
        assert_eq!(admit(1, 730).unwrap_err(), Reason::Descriptors);
        assert!(admit(2, 730).is_ok() && admit(1, 9).is_ok());
        assert!(rest[0].prove(Holder::Token(1), true), "it joins");
        assert!(admit(1, 730).is_ok());
        drop((new, rest));
        assert_eq!(lock(&connections.counts).addresses[&address(1)].returning, 0);
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
