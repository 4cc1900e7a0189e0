//! Packets from the server: parameter packets, announcements and probes.

use thalweg_core::{Body, JobId, NodeId, Packet, Time, Verdict};
use thalweg_transport::path;
use thalweg_wire::aggregate::{
    Announcement, Description, Identity, Parameter, ParameterView, Probe,
};
use thalweg_wire::{Prefix, tag};

use super::Switch;
use super::groups::Station;
use super::key::Fragment;
use super::keyring::Scope;
use crate::index;
use crate::keys::Receiver;

impl Switch {
    /// Frees what the parameter packet answers, and passes it down.
    // spec: A-06
    pub(super) fn handle_parameter(
        &mut self,
        now: Time,
        prefix: Prefix,
        packet: Packet<'_>,
    ) -> Verdict<'_> {
        let Ok((view, parameter)) = ParameterView::check_mut(prefix, packet.header) else {
            return self.drop_malformed();
        };
        let Parameter { identity, server, aggregator, .. } = parameter;
        self.stats.parameters += 1;
        let Identity { job, epoch, .. } = identity;
        let Some(index) = self.groups.index(job, epoch, server) else {
            self.servers.name(server);
            self.notice(now, Scope::of(&prefix), server);
            return Verdict::Consume;
        };
        // What does not come from above would go round for ever.
        if parameter.level <= self.groups.at(index).level {
            return self.drop_malformed();
        }
        let group = self.groups.at(index);
        let (level, stations, generation) =
            (group.level, group.stations().len(), prefix.generation());
        view.level = level;
        let summed_at = |switch: &Switch, at: usize| {
            let Station { upper_places, .. } = switch.groups.at(index).stations()[at];
            let fragment = Fragment { identity, server, level, upper_places, generation };
            (index::place(aggregator, level, upper_places, switch.array.len()), fragment)
        };
        for at in 0..stations {
            let (place, fragment) = summed_at(self, at);
            if let Some(slot) = self.array.find_fragment(place, &fragment) {
                let is_sent_on = slot.missing() == 0;
                self.earn_absorbed(index, place, is_sent_on);
            }
        }
        let group = self.groups.at_mut(index);
        let is_paid = parameter.paid || group.pay_copies(packet.meta.wire_bytes);
        // A wish for floats has no values.
        let is_kept = is_paid && group.tell(identity.sequence, now) && !parameter.repeat;
        for at in 0..stations {
            let (place, fragment) = summed_at(self, at);
            if self.array.find_fragment(place, &fragment).is_some() {
                self.stats.freed_by_parameter += 1;
                if is_kept {
                    self.array.keep(now, place, packet.header, &packet.body);
                }
                self.free(place);
            } else if self.array.is_stale(now, place) {
                // spec: A-09
                self.stats.freed_stale += 1;
                self.free(place);
            }
        }
        if !is_paid {
            self.stats.withheld += 1;
            return Verdict::Consume;
        }
        self.send_down(index, prefix, server, packet)
    }

    /// Contributions to a sum that is about to be freed pay for copies of results, as far as they have not left the switch.
    // spec: E-13
    pub(super) fn earn_absorbed(&mut self, group: usize, place: u32, is_sent_on: bool) {
        let bytes = self.array.absorbed_bytes(place, is_sent_on, self.config.overhead_bytes);
        let group = self.groups.at_mut(group);
        group.account.earn(bytes * u64::from(group.fan_out()));
    }

    /// Sends a result to all nodes below, sealed for them. Where these are workers and switches, the switches get copies.
    // spec: E-13
    fn send_down(
        &mut self,
        index: usize,
        prefix: Prefix,
        server: NodeId,
        packet: Packet<'_>,
    ) -> Verdict<'_> {
        let Packet { meta, header, body } = packet;
        let group = self.groups.at(index);
        let (has_workers, has_switches) =
            (!group.workers().is_empty(), !group.switches().is_empty());
        let keys = self.keyring.as_mut().and_then(|keyring| keyring.keys(Scope::of(&prefix)));
        if let Some(keys) = keys {
            let mut seal = |receiver| {
                tag::seal_packet(header, &body, prefix.covers_body(), keys.to(receiver));
                *header
            };
            if has_switches {
                let sealed = seal(Receiver::Switch);
                let tree: (JobId, u32, NodeId) = (prefix.job, prefix.epoch(), server);
                if has_workers && !self.results.push(tree, *meta, sealed, &body) {
                    self.stats.queue_full += 1;
                }
            }
            if has_workers {
                seal(Receiver::Worker);
            }
        }
        let group = self.groups.at(index);
        Verdict::Multicast(if has_workers { group.workers() } else { group.switches() })
    }

    /// Learns a group.
    pub(super) fn handle_announcement(
        &mut self,
        prefix: Prefix,
        packet: &Packet<'_>,
    ) -> Verdict<'_> {
        let (Ok(announcement), Body::Bytes(body)) =
            (Announcement::decode_checked(prefix, packet.header), &packet.body)
        else {
            return self.drop_malformed();
        };
        let Ok(stations) = announcement.stations(body) else { return self.drop_malformed() };
        let me = self.config.me;
        let below = stations.iter().flat_map(|station| station.children());
        // What it sends to itself would go round for ever.
        let mut sent_to = [announcement.parent, announcement.server].into_iter().chain(below);
        if sent_to.any(|node| node == me) {
            return self.drop_malformed();
        }
        self.stats.announcements += 1;
        self.servers.name(announcement.server);
        self.groups.announce(&announcement, stations);
        Verdict::Consume
    }

    /// Answers with the limits of the switch, or sends a probe on to the switch that it is for. The packet itself becomes
    /// the answer: who asks too often gets no more packets than it sends, none of them is longer, and nothing waits.
    // spec: E-06, F-01
    pub(super) fn handle_probe(&mut self, prefix: Prefix, packet: Packet<'_>) -> Verdict<'_> {
        let me = self.config.me;
        let probe = Probe::decode_checked(prefix, packet.header);
        let Some(Probe { server, switch, via }) = probe.ok().filter(|probe| probe.server != me)
        else {
            return self.drop_malformed();
        };
        self.servers.name(server);
        if via == Some(me) {
            if switch == me {
                return self.drop_malformed();
            }
            self.stats.path_probes += 1;
            packet.meta.dst = switch;
            return Verdict::Forward;
        }
        self.stats.probes += 1;
        Description { server, switch, via, limits: self.config.limits() }.encode(packet.header);
        packet.meta.dst = via.unwrap_or(server);
        Verdict::Forward
    }

    /// Sends the answer of another switch on to the server whose probe came by here.
    // spec: F-01
    pub(super) fn handle_description(&mut self, prefix: Prefix, packet: Packet<'_>) -> Verdict<'_> {
        let me = self.config.me;
        let description = Description::decode_checked(prefix, packet.header).ok();
        let is_passing = |it: &Description| it.via == Some(me) && it.server != me;
        let Some(description) = description.filter(is_passing) else {
            return self.drop_malformed();
        };
        packet.meta.dst = description.server;
        Verdict::Forward
    }

    /// Answers the probe of a worker's path, to where it came from.
    // spec: F-01
    pub(super) fn handle_path_probe(
        &mut self,
        prefix: Prefix,
        mut packet: Packet<'_>,
    ) -> Verdict<'_> {
        // Headers are sealed again when the packet leaves.
        if packet.meta.src == self.config.me || !path::answer(prefix, &mut packet, None) {
            return self.drop_malformed();
        }
        self.stats.path_probes += 1;
        Verdict::Forward
    }
}
