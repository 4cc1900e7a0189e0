//! The switch: sums gradients that travel towards the server.

mod aggregator;
mod answers;
mod asks;
mod check;
mod config;
mod gradients;
mod groups;
mod halves;
mod kept;
mod key;
mod keyring;
mod outgoing;
mod results;
mod servers;
mod shares;
mod stats;
mod sweep;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::convert::Infallible;

use thalweg_core::{Body, JobId, Machine, NodeId, Outbox, Packet, Reports, Time, Verdict};
use thalweg_wire::aggregate::{FAN_IN_MAX, VALUE_BYTES};
use thalweg_wire::tag::Secrets;
use thalweg_wire::{Kind, Prefix, PrefixError, peek, tag};

use self::aggregator::{Aggregator, Array};
pub use self::config::{Config, ConfigError};
use self::groups::{Groups, Limits};
use self::key::Fragment;
use self::keyring::{Keyring, Scope};
use self::outgoing::Outgoing;
use self::results::Results;
use self::servers::Servers;
use self::shares::Shares;
pub use self::stats::Stats;
use self::sweep::Sweep;

/// The machine of an aggregating switch.
///
/// It takes packets that are addressed to it and leaves all others alone. What it does with a
/// gradient stands in one table, the first of `docs/aggregation.md`: take an aggregator, add to one,
/// pass on. It knows no jobs: what it needs of one, it reads from the packets or from an announcement, and forgets
/// again. All memory is reserved when it is made; a step allocates nothing.
// spec
#[derive(Debug)]
pub struct Switch {
    config: Config,
    array: Array,
    sweep: Sweep,
    groups: Groups,
    outgoing: Outgoing,
    results: Results,
    /// Means something only where headers are sealed.
    servers: Servers,
    /// `None` where headers are not sealed.
    keyring: Option<Keyring>,
    /// `None` where no job is held to its share.
    shares: Option<Shares>,
    /// The children that are asked next, workers before switches; kept for its memory.
    listed: Vec<NodeId>,
    /// Number of workers among them.
    listed_workers: usize,
    stats: Stats,
}

impl Switch {
    /// A switch that has just started.
    pub fn new(config: Config) -> Result<Switch, ConfigError> {
        config.check()?;
        let has_seals = config.secrets.is_some();
        Ok(Switch {
            config,
            array: Array::new(config.aggregators, config.values_max, config.stale_after),
            sweep: Sweep::new(config.aggregators, config.sweep_steps, config.stale_after),
            groups: Groups::new(Limits {
                groups_max: config.groups_max as usize,
                has_seals,
                longest_wire_bytes: longest_wire_bytes(&config),
            }),
            outgoing: Outgoing::new(),
            results: Results::new(usize::from(config.values_max) * VALUE_BYTES, has_seals),
            // A tree has a server, and the servers of other trees probe.
            servers: Servers::new(config.groups_max.saturating_mul(2)),
            keyring: config.secrets.map(Keyring::new),
            shares: shares(&config),
            listed: Vec::with_capacity(usize::from(FAN_IN_MAX)),
            listed_workers: 0,
            stats: Stats::default(),
        })
    }

    /// Replaces the secrets of the cluster while jobs go on: those whose secret is still there keep their keys. A switch
    /// without secrets stays as it is.
    // spec: T-06
    pub fn replace_secrets(&mut self, secrets: Secrets) {
        if let Some(keyring) = &mut self.keyring {
            keyring.replace(secrets);
        }
    }

    /// Counters of the switch.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Number of aggregators that are taken.
    pub fn occupied(&self) -> u32 {
        self.array.occupied()
    }

    /// Number of aggregators that a job has taken. Looks at all of them.
    pub fn occupied_by(&self, job: JobId) -> u32 {
        let of_job = |slot: &&Aggregator| slot.key.job() == job;
        self.array.taken().filter(of_job).count() as u32
    }

    /// Number of aggregators that each job has taken, by job. Looks at all of them.
    pub fn occupancy(&self) -> BTreeMap<JobId, u32> {
        let mut taken = BTreeMap::new();
        for slot in self.array.taken() {
            *taken.entry(slot.key.job()).or_insert(0) += 1;
        }
        taken
    }

    /// Next hop of a fragment's packets from a station here, and their level there: the parent, or
    /// the server directly, whose level is `end`.
    fn above(&mut self, now: Time, fragment: &Fragment, end: u8) -> (NodeId, u8) {
        let Fragment { identity, server, level, .. } = *fragment;
        let scope = fragment.scope();
        match self.groups.find(identity.job, identity.epoch, server) {
            Some(group) if group.level == level && group.parent != server => {
                (group.parent, level + 1)
            }
            Some(_) => (server, end),
            None => {
                self.notice(now, scope, server);
                (server, end)
            }
        }
    }

    #[inline]
    fn dispatch(&mut self, now: Time, prefix: Prefix, packet: Packet<'_>) -> Verdict<'_> {
        match prefix.kind() {
            Kind::AggregateGradient => self.handle_gradient(now, prefix, packet),
            Kind::AggregateParameter => self.handle_parameter(now, prefix, packet),
            Kind::AggregateQuery => self.handle_query(now, prefix, packet),
            Kind::AggregateRequest => self.handle_request(now, prefix, packet),
            Kind::AggregateAnnouncement => self.handle_announcement(prefix, &packet),
            Kind::AggregateProbe => self.handle_probe(prefix, packet),
            Kind::AggregateDescription => self.handle_description(prefix, packet),
            Kind::PathProbe => self.handle_path_probe(prefix, packet),
            _ => self.drop_malformed(),
        }
    }

    /// Returns whether packets of workers may go to a server: a server has named it. If not, they are dropped. The node gets
    /// a notice, in case that it is one and the switch has just started; there are few of these.
    // spec: E-13
    #[inline]
    fn knows_server(&mut self, now: Time, prefix: &Prefix, server: NodeId) -> bool {
        let is_known = self.keyring.is_none() || self.servers.contains(server);
        if !is_known {
            self.refuse_stranger(now, Scope::of(prefix), server);
        }
        is_known
    }

    #[cold]
    fn refuse_stranger(&mut self, now: Time, scope: Scope, server: NodeId) {
        self.stats.unknown_server += 1;
        self.notice_stranger(now, scope, server);
    }

    /// True if a job holds as many aggregators as it may, now that others want some.
    #[inline]
    fn has_its_share(&self, now: Time, job: JobId) -> bool {
        self.shares.as_ref().is_some_and(|shares| shares.is_exhausted(now, job))
    }

    /// When an aggregator counts as touched: not now, if its job has more than its share.
    fn touch(&self, now: Time, place: u32) -> Time {
        let slot = self.array.slot(place);
        if self.has_its_share(now, slot.key.job()) { slot.touched } else { now }
    }

    /// Frees an aggregator.
    #[inline]
    fn free(&mut self, place: u32) {
        let job = self.array.free(place);
        if let (Some(shares), Some(job)) = (&mut self.shares, job) {
            shares.free(job);
        }
    }

    fn drop_malformed<'a>(&mut self) -> Verdict<'a> {
        self.stats.malformed += 1;
        Verdict::Consume
    }
}

impl Machine for Switch {
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        if packet.meta.dst != self.config.me {
            return Verdict::Forward;
        }
        let prefix = match peek(packet.header) {
            Ok(prefix) => prefix,
            // spec: E-05
            Err(PrefixError::Version { .. }) => {
                self.stats.other_version += 1;
                return Verdict::Consume;
            }
            Err(_) => return self.drop_malformed(),
        };
        let Some(keyring) = &mut self.keyring else { return self.dispatch(now, prefix, packet) };
        // spec: T-06
        let Packet { meta, header, mut body } = packet;
        let Some(key) = keyring.verify(&prefix, header, &body) else {
            self.stats.forged += 1;
            return Verdict::Consume;
        };
        let lent = match &mut body {
            Body::Bytes(bytes) => Body::Bytes(bytes),
            Body::Length(bytes) => Body::Length(*bytes),
        };
        let verdict = self.dispatch(now, prefix, Packet { meta, header: &mut *header, body: lent });
        // What goes down to many is sealed where it is known who they are.
        if verdict == Verdict::Forward {
            tag::seal_packet(header, &body, prefix.covers_body(), &key);
        }
        verdict
    }

    fn handle_timeout(&mut self, now: Time) {
        self.sweep_due(now);
    }

    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        self.transmit(now, outbox);
        self.transmit_results(outbox);
    }

    fn has_backlog(&self) -> bool {
        !self.outgoing.is_empty() || !self.results.is_empty()
    }

    fn poll_timeout(&self) -> Time {
        if self.array.occupied() == 0 { Time::NEVER } else { self.sweep.due() }
    }
}

impl Reports for Switch {
    type Event = Infallible;

    fn poll_event(&mut self) -> Option<Infallible> {
        None
    }
}

/// Length of the longest packet that is summed.
fn longest_wire_bytes(config: &Config) -> u32 {
    u32::from(config.values_max) * VALUE_BYTES as u32 + config.overhead_bytes
}

fn shares(config: &Config) -> Option<Shares> {
    config.holds_to_share.then(|| Shares::new(config.aggregators, config.stale_after))
}
