//! Flows of a real host, made from what its kernel reports of connections.
//!
//! A connection carries one flow after another: data after a pause of [`ObserverConfig::idle_after`] begins the next. The
//! features of a flow are the history of its [`Service`], the address of the other end and the port that tells what is
//! asked for. So the bounds of the next flow of a service are known before it begins, and change only when a flow of it
//! ends, when time passes, or when a new model takes over.
//!
//! The driver lists all connections every few milliseconds: [`Observer::handle_seen`] for each of them, then
//! [`Observer::handle_listed`]. It passes reports of connections that end at once to [`Observer::handle_closed`], drains
//! [`Observer::poll_next`] after every list, and trains what [`Observer::take_due`] hands out. Memory is bounded: of two
//! tables the least recently used entry makes place for a new one.
// spec: Q-13

mod table;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use thalweg_core::{Bytes, Span, Time};

use crate::bounds::{Bounds, Model};
use crate::features::{FiveTuple, History, NewFlow};
use crate::forest::Scratch;
use crate::online::{Learner, Newest, Reader};

use table::Table;

/// Training gets at most this share of one core, as its inverse.
const TRAINING_SHARE: u64 = 10;
/// Shorter pauses are all alike.
const SHORTEST_GAP: Span = Span::from_ms(1);

/// Settings of an [`Observer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObserverConfig {
    /// Most connections that are followed. Default 65,536.
    pub connections: usize,
    /// Most services with a history. Default 4,096.
    pub services: usize,
    /// Pause after which data of a connection begins another flow. Default 100 ms.
    pub idle_after: Span,
    /// Number of finished flows, the latest, that a forest learns from. Default 20,000.
    pub learns_from: usize,
    /// Number of finished flows after which another forest is due. Default 200.
    pub due_after: usize,
}

impl Default for ObserverConfig {
    fn default() -> ObserverConfig {
        ObserverConfig {
            connections: 65_536,
            services: 4_096,
            idle_after: Span::from_ms(100),
            learns_from: 20_000,
            due_after: 200,
        }
    }
}

/// The other end of connections, and the port that tells what is asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Service {
    /// Address of the other end.
    pub peer: IpAddr,
    /// The lower of both ports: the other is one of those that the system hands out.
    pub port: u16,
    /// The port is that of this end, so that the other end asks.
    pub is_answer: bool,
}

impl Service {
    /// The service of a connection.
    pub fn of(peer: IpAddr, own_port: u16, peer_port: u16) -> Service {
        Service { peer, port: own_port.min(peer_port), is_answer: own_port <= peer_port }
    }

    /// The ends as features: the port that the system has handed out tells nothing and is zero.
    fn tuple(&self, own: IpAddr) -> FiveTuple {
        FiveTuple {
            src: folded(own),
            dst: folded(self.peer),
            src_port: if self.is_answer { self.port } else { 0 },
            dst_port: self.port,
            protocol: 6,
        }
    }
}

/// State of a connection, as its kernel reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The kernel's number for it, which is never used again.
    pub id: u64,
    /// Address of this end.
    pub own: IpAddr,
    /// The service.
    pub service: Service,
    /// Bytes that were sent, without those that were sent again.
    pub sent: Bytes,
    /// Nothing waits to be sent or acknowledged.
    pub is_quiet: bool,
}

/// Counters of an [`Observer`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ObserverCounts {
    /// Flows that have finished.
    pub flows: u64,
    /// Flows among these that were not the first of their connection.
    pub later_flows: u64,
    /// Bytes of finished flows.
    pub bytes: u64,
    /// Finished flows that had bounds, and were within them.
    pub within: u64,
    /// Finished flows that were smaller than their lower bound.
    pub below: u64,
    /// Finished flows that were larger than their upper bound.
    pub above: u64,
    /// Connections that made place for others before they ended.
    pub evicted_connections: u64,
    /// Services whose history made place for others.
    pub evicted_services: u64,
    /// Forests that were trained.
    pub forests: u64,
}

/// Follows the connections of one host.
#[derive(Debug)]
pub struct Observer {
    config: ObserverConfig,
    connections: Table<u64, Connection>,
    services: Table<Service, Known>,
    /// Services whose bounds have to be found again.
    stale: BTreeSet<Service>,
    /// Services that were evicted.
    gone: Vec<Service>,
    learner: Learner,
    newest: Arc<Newest>,
    reader: Reader,
    scratch: Scratch,
    /// Number of the current list; connections of the first one began before anybody looked.
    list: u64,
    is_training: bool,
    may_train_at: Time,
    counts: ObserverCounts,
}

#[derive(Debug)]
struct Connection {
    own: IpAddr,
    service: Service,
    /// The last list that had it.
    list: u64,
    sent: Bytes,
    /// Bytes before the current flow.
    before: Bytes,
    /// Moment at which bytes were last seen to leave.
    last_at: Time,
    flow: Option<Flow>,
    has_finished: bool,
}

/// A flow that has begun.
#[derive(Clone, Copy, Debug)]
struct Flow {
    features: NewFlow,
    bounds: Option<Bounds>,
}

/// A service that had a flow.
#[derive(Debug)]
struct Known {
    own: IpAddr,
    history: History,
    /// Bounds of the next flow.
    next: Option<Bounds>,
    /// Moment at which the next flow's gap has another size.
    stale_at: Time,
}

impl Observer {
    /// An observer with a model that was learned before.
    pub fn with_model(config: ObserverConfig, model: Model) -> Observer {
        let observer = Observer::new(config);
        observer.newest.publish(model);
        observer
    }

    /// An observer that has seen nothing.
    pub fn new(config: ObserverConfig) -> Observer {
        let newest = Newest::new();
        Observer {
            config,
            connections: Table::new(config.connections),
            services: Table::new(config.services),
            stale: BTreeSet::new(),
            gone: Vec::new(),
            learner: Learner::new(config.learns_from, config.due_after),
            reader: newest.reader(),
            newest,
            scratch: Scratch::default(),
            list: 0,
            is_training: false,
            may_train_at: Time::ZERO,
            counts: ObserverCounts::default(),
        }
    }

    /// The place for new models.
    pub fn newest(&self) -> Arc<Newest> {
        Arc::clone(&self.newest)
    }

    /// Counters until now.
    pub fn counts(&self) -> ObserverCounts {
        self.counts
    }

    /// Number of connections that are followed now.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Number of services with a history.
    pub fn services(&self) -> usize {
        self.services.len()
    }

    /// The flows that the next forest learns from, oldest first.
    pub fn flows(&self) -> impl Iterator<Item = &(NewFlow, Bytes)> {
        self.learner.flows()
    }

    /// Takes in a connection of the current list.
    pub fn handle_seen(&mut self, now: Time, seen: &Seen) {
        if !self.connections.contains(&seen.id) {
            // What was sent before anybody looked is part of a flow of unknown size.
            let before = if self.list == 0 { seen.sent } else { Bytes::ZERO };
            self.follow(now, seen, before);
        }
        let list = self.list;
        let Some(connection) = self.connections.find(&seen.id) else { return };
        connection.list = list;
        if seen.sent > connection.sent {
            self.advance(now, seen);
            self.connections.touch(&seen.id);
            return;
        }
        let is_over = now.since(connection.last_at) >= self.config.idle_after;
        if connection.flow.is_some() && seen.is_quiet && is_over {
            self.finish(seen.id);
        }
    }

    /// Takes in the report that a connection has closed.
    pub fn handle_closed(&mut self, now: Time, seen: &Seen) {
        if !self.connections.contains(&seen.id) {
            if self.list == 0 || seen.sent == Bytes::ZERO {
                return;
            }
            self.follow(now, seen, Bytes::ZERO);
        }
        if self.connections.find(&seen.id).is_some_and(|known| seen.sent > known.sent) {
            self.advance(now, seen);
        }
        self.finish(seen.id);
        self.connections.remove(&seen.id);
    }

    /// Ends a list: connections that two lists in a row did not have, and of which no report came, have ended.
    pub fn handle_listed(&mut self, now: Time) {
        let oldest = self.list.saturating_sub(1);
        for id in self.connections.keys_where(|connection| connection.list < oldest) {
            self.finish(id);
            self.connections.remove(&id);
        }
        self.list += 1;
        let aged = self.services.keys_where(|known| known.stale_at <= now);
        self.stale.extend(aged);
    }

    /// Flows to learn from, when another forest is due and training has used no more than its share.
    pub fn take_due(&mut self, now: Time) -> Option<Vec<(NewFlow, Bytes)>> {
        if self.is_training || now < self.may_train_at {
            return None;
        }
        let due = self.learner.take_due()?;
        self.is_training = true;
        Some(due)
    }

    /// Takes in that training has ended after this time on one core, and whether a new model is in place.
    pub fn handle_trained(&mut self, now: Time, took: Span, is_new: bool) {
        self.is_training = false;
        self.may_train_at = now + Span::from_ps(took.as_ps().saturating_mul(TRAINING_SHARE - 1));
        if is_new {
            self.counts.forests += 1;
            self.handle_model();
        }
    }

    /// Takes in that a new model is in place.
    pub fn handle_model(&mut self) {
        self.stale.extend(self.services.keys_where(|_| true));
    }

    /// The next change of the bounds of a service's next flow; `None` of bounds removes them.
    pub fn poll_next(&mut self, now: Time) -> Option<(Service, Option<Bounds>)> {
        if let Some(gone) = self.gone.pop() {
            return Some((gone, None));
        }
        while let Some(service) = self.stale.pop_first() {
            let Some(known) = self.services.find(&service) else { continue };
            let flow = known.describe(&service, now);
            known.stale_at = flow.gap.map_or(Time::NEVER, |gap| {
                let end = known.history.last_end().unwrap_or(now);
                // The octave after this one; never the same moment again.
                (end + gap + gap).max(now + SHORTEST_GAP)
            });
            let model = self.reader.model();
            let model = model.filter(|_| flow.has_history());
            let next = model.and_then(|model| model.bounds(&flow, &mut self.scratch));
            if next != known.next {
                known.next = next;
                return Some((service, next));
            }
        }
        None
    }

    /// Begins to follow a connection.
    fn follow(&mut self, now: Time, seen: &Seen, before: Bytes) {
        let connection = Connection {
            own: seen.own,
            service: seen.service,
            list: self.list,
            sent: before,
            before,
            last_at: now,
            flow: None,
            has_finished: false,
        };
        if self.connections.insert(seen.id, connection).is_some() {
            self.counts.evicted_connections += 1;
        }
    }

    /// Takes in that a connection has sent more.
    fn advance(&mut self, now: Time, seen: &Seen) {
        let Some(connection) = self.connections.find(&seen.id) else { return };
        (connection.sent, connection.last_at) = (seen.sent, now);
        if connection.flow.is_some() {
            return;
        }
        let (own, service) = (connection.own, connection.service);
        if !self.services.contains(&service) {
            let history = History::default();
            let known = Known { own, history, next: None, stale_at: Time::NEVER };
            if let Some(evicted) = self.services.insert(service, known) {
                self.counts.evicted_services += 1;
                self.stale.remove(&evicted);
                self.gone.push(evicted);
            }
        }
        let Some(known) = self.services.find(&service) else { return };
        let flow = Flow { features: known.describe(&service, now), bounds: known.next };
        self.services.touch(&service);
        if let Some(connection) = self.connections.find(&seen.id) {
            connection.flow = Some(flow);
        }
    }

    /// Ends the flow of a connection, if it has one.
    fn finish(&mut self, id: u64) {
        let Some(connection) = self.connections.find(&id) else { return };
        let Some(flow) = connection.flow.take() else { return };
        let bytes = connection.sent - connection.before;
        let (service, end) = (connection.service, connection.last_at);
        connection.before = connection.sent;
        let is_later = std::mem::replace(&mut connection.has_finished, true);
        self.counts.flows += 1;
        self.counts.later_flows += u64::from(is_later);
        self.counts.bytes += bytes.as_u64();
        if let Some(bounds) = flow.bounds {
            self.counts.below += u64::from(bytes < bounds.lower);
            self.counts.above += u64::from(bytes > bounds.upper);
            self.counts.within += u64::from(bounds.contain(bytes));
        }
        // Before a service has a full history its flows look like those of any other.
        if flow.features.has_history() {
            self.learner.finished(flow.features, bytes);
        }
        if let Some(known) = self.services.find(&service) {
            known.history.finished(bytes, end);
            self.stale.insert(service);
        }
    }
}

impl Known {
    /// The features of a flow that begins now.
    fn describe(&self, service: &Service, now: Time) -> NewFlow {
        let mut flow = self.history.describe(service.tuple(self.own), now);
        flow.gap = flow.gap.map(octave);
        flow
    }
}

/// The gap rounded down to a power of two of the shortest one.
fn octave(gap: Span) -> Span {
    let times = (gap.as_ps() / SHORTEST_GAP.as_ps()).max(1);
    Span::from_ps(SHORTEST_GAP.as_ps() << times.ilog2())
}

/// An address as a number. Two addresses of IPv6 may share one, and then their flows share their features.
fn folded(address: IpAddr) -> u32 {
    match address.to_canonical() {
        IpAddr::V4(address) => u32::from(address),
        IpAddr::V6(address) => {
            let number = u128::from(address);
            let mixed = (number as u64 ^ (number >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed >> 32) as u32
        }
    }
}

#[cfg(test)]
mod tests;
