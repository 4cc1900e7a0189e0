//! The switch: sums gradients on their way to the server.

mod aggregator;
mod answers;
mod asks;
mod config;
mod gradients;
mod groups;
mod key;
mod outgoing;
mod stats;
mod sweep;
mod table;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::marker::PhantomData;

use thalweg_core::{JobId, Machine, NodeId, Outbox, Packet, Time, Verdict};
use thalweg_wire::Kind;
use thalweg_wire::aggregate::FAN_IN_MAX;

use self::aggregator::{Aggregator, Array};
pub use self::config::{Config, ConfigError};
use self::groups::Groups;
use self::key::Fragment;
use self::outgoing::Outgoing;
pub use self::stats::Stats;
use self::sweep::Sweep;

/// The machine of an aggregating switch.
///
/// It takes packets that are addressed to it and leaves all others alone. What it does with a
/// gradient stands in one table, the first of `docs/aggregation.md`: take an aggregator, add to one,
/// pass on. It knows no jobs: what it has to know of one, it reads from the packets, or is told by an
/// announcement, and forgets again. All memory is reserved when it is made; a step allocates nothing.
///
/// It has nothing to tell: `E` is whatever the machines beside it report.
// spec
#[derive(Debug)]
pub struct Switch<E = Infallible> {
    config: Config,
    array: Array,
    sweep: Sweep,
    groups: Groups,
    outgoing: Outgoing,
    /// The children that are asked next; kept for its memory.
    listed: Vec<NodeId>,
    stats: Stats,
    events: PhantomData<fn() -> E>,
}

impl<E> Switch<E> {
    /// A switch that has just started.
    pub fn new(config: Config) -> Result<Switch<E>, ConfigError> {
        config.check()?;
        Ok(Switch {
            config,
            array: Array::new(config.aggregators, config.values_max, config.stale_after),
            sweep: Sweep::new(config.aggregators, config.sweep_steps, config.stale_after),
            groups: Groups::new(config.groups_max),
            outgoing: Outgoing::new(),
            listed: Vec::with_capacity(usize::from(FAN_IN_MAX)),
            stats: Stats::default(),
            events: PhantomData,
        })
    }

    /// What it has done.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// How many aggregators are taken.
    pub fn occupied(&self) -> u32 {
        self.array.occupied()
    }

    /// How many aggregators a job has taken. Looks at all of them.
    pub fn occupied_by(&self, job: JobId) -> u32 {
        let of_job = |slot: &&Aggregator| slot.key.fragment().identity.job == job;
        self.array.taken().filter(of_job).count() as u32
    }

    /// Where packets of a fragment go from a station here, and their level there: to the parent, or
    /// straight to the server, whose level is `end`.
    fn above(&mut self, now: Time, fragment: &Fragment, end: u8) -> (NodeId, u8) {
        let Fragment { identity, server, level, .. } = *fragment;
        match self.groups.find(identity.job, identity.epoch, server) {
            Some(group) if group.level == level && group.parent != server => {
                (group.parent, level + 1)
            }
            Some(_) => (server, end),
            None => {
                self.notice(now, identity.job, identity.epoch, server);
                (server, end)
            }
        }
    }

    fn drop_malformed<'a>(&mut self) -> Verdict<'a> {
        self.stats.malformed += 1;
        Verdict::Consume
    }
}

impl<E> Machine for Switch<E> {
    type Event = E;

    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        if packet.meta.dst != self.config.me {
            return Verdict::Forward;
        }
        match Kind::from_u8(packet.header[KIND_AT]) {
            Some(Kind::AggregateGradient) => self.handle_gradient(now, packet),
            Some(Kind::AggregateParameter) => self.handle_parameter(now, packet),
            Some(Kind::AggregateQuery) => self.handle_query(now, packet),
            Some(Kind::AggregateRequest) => self.handle_request(now, packet),
            Some(Kind::AggregateAnnouncement) => self.handle_announcement(&packet),
            _ => self.drop_malformed(),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.sweep_due(now);
    }

    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        self.transmit(now, outbox);
    }

    fn has_backlog(&self) -> bool {
        !self.outgoing.is_empty()
    }

    fn poll_timeout(&self) -> Time {
        if self.array.occupied() == 0 { Time::NEVER } else { self.sweep.due() }
    }

    fn poll_event(&mut self) -> Option<E> {
        None
    }
}

/// Where a header says how to read it. The decoders check the rest of the prefix.
const KIND_AT: usize = 3;
