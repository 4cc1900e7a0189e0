//! The trees that a switch knows, as soft state.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use thalweg_core::{JobId, NodeId, Time};
use thalweg_wire::aggregate::{Announcement, CHILDREN_MAX, LEVELS, STATIONS_MAX, StationBytes};

use crate::account::Account;

/// Job and server: one tree in each epoch.
type Name = (JobId, NodeId);

/// State of a tree, from its announcement.
#[derive(Clone, Debug)]
pub(super) struct Group {
    name: Name,
    epoch: u32,
    /// Next hop of sums.
    pub(super) parent: NodeId,
    pub(super) level: u8,
    stations: [Station; STATIONS_MAX],
    station_count: usize,
    /// The children of all stations, one station after the other.
    children: [NodeId; CHILDREN_MAX],
    /// The same nodes, each once: a switch below may be several children. Where headers are sealed, workers stand
    /// before switches.
    targets: [NodeId; CHILDREN_MAX],
    target_count: usize,
    /// Number of targets at the front that are sealed for alike: the workers, or all where headers are not sealed.
    worker_count: usize,
    /// When it was last needed, in a count of lookups.
    used: u64,
    /// Number of results that are kept from now on.
    keeping: u32,
    pub(super) recent: Recent,
    /// Bytes that contributions of the tree have paid for here.
    // spec: E-13
    pub(super) account: Account,
}

/// Number of results that are kept after a query. Queries show that packets are lost; where none are, nothing is copied.
const RESULTS_KEPT: u32 = 4_096;

/// Results that were sent to all children last, and when.
#[derive(Clone, Debug)]
pub(super) struct Recent {
    sent: [(u64, Time); RECENT],
    next: usize,
}

/// Number of results whose times are known: more than are in flight to a worker at 1 Gbps. Where there are more, a query
/// that has crossed a result is answered, and the result comes twice.
const RECENT: usize = 128;

impl Recent {
    fn note(&mut self, sequence: u64, now: Time) {
        self.sent[self.next] = (sequence, now);
        self.next = (self.next + 1) % RECENT;
    }

    /// Time at which a result was sent to all children for the last time, if that is known.
    pub(super) fn sent_at(&self, sequence: u64) -> Option<Time> {
        let (before, since) = self.sent.split_at(self.next);
        let mut latest_first = before.iter().rev().chain(since.iter().rev());
        latest_first.find(|sent| sent.0 == sequence).map(|sent| sent.1)
    }

    /// Forgets a result: a child gets it at another time.
    pub(super) fn forget(&mut self, sequence: u64) {
        for sent in self.sent.iter_mut().filter(|sent| sent.0 == sequence) {
            sent.0 = u64::MAX;
        }
    }
}

/// One of the switch's stations in a tree.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Station {
    pub(super) upper_places: [u8; LEVELS],
    /// Bitmap of the children that are switches. None where headers are not sealed.
    pub(super) switches: u32,
    first_child: usize,
    child_count: usize,
}

impl Station {
    /// The bitmap that names all of its children.
    pub(super) fn full(&self) -> u32 {
        ((1_u64 << self.child_count) - 1) as u32
    }

    /// Number of children.
    pub(super) fn fan_in(&self) -> u8 {
        self.child_count as u8
    }
}

impl Group {
    fn new(
        announcement: &Announcement,
        stations: &[StationBytes],
        Limits { has_seals, longest_wire_bytes, .. }: Limits,
        used: u64,
    ) -> Group {
        let switches = if has_seals { announcement.switches } else { [0; STATIONS_MAX] };
        let mut group = Group {
            name: (announcement.job, announcement.server),
            epoch: announcement.epoch,
            parent: announcement.parent,
            level: announcement.level,
            stations: [Station::default(); STATIONS_MAX],
            station_count: 0,
            children: [NodeId(0); CHILDREN_MAX],
            targets: [NodeId(0); CHILDREN_MAX],
            target_count: 0,
            worker_count: 0,
            used,
            keeping: 0,
            recent: Recent { sent: [(u64::MAX, Time::ZERO); RECENT], next: 0 },
            account: Account::new(0, 0),
        };
        let mut next_child = 0;
        for (station, switches) in stations.iter().zip(switches) {
            let first_child = next_child;
            for child in station.children() {
                group.children[next_child] = child;
                next_child += 1;
            }
            group.stations[group.station_count] = Station {
                upper_places: station.places,
                switches,
                first_child,
                child_count: next_child - first_child,
            };
            group.station_count += 1;
        }
        group.list_targets(|switches| !switches);
        group.worker_count = group.target_count;
        group.list_targets(|switches| switches);
        let copies_bytes = group.copies_bytes(longest_wire_bytes);
        group.account = Account::new(copies_bytes, copies_bytes * u64::from(RESULTS_KEPT));
        group
    }

    /// Adds the children that some bits of each station name to the targets, unless they are there.
    fn list_targets(&mut self, bits: impl Fn(u32) -> u32) {
        for at in 0..self.station_count {
            let Station { switches, first_child, child_count, .. } = self.stations[at];
            for place in (0..child_count).filter(|place| bits(switches) >> place & 1 == 1) {
                let child = self.children[first_child + place];
                if !self.targets[..self.target_count].contains(&child) {
                    self.targets[self.target_count] = child;
                    self.target_count += 1;
                }
            }
        }
    }

    /// The workers below, each once; all nodes below where headers are not sealed.
    pub(super) fn workers(&self) -> &[NodeId] {
        &self.targets[..self.worker_count]
    }

    /// The switches below, each once. None where headers are not sealed.
    pub(super) fn switches(&self) -> &[NodeId] {
        &self.targets[self.worker_count..self.target_count]
    }

    /// Number of nodes below, each of which gets every result.
    pub(super) fn fan_out(&self) -> u32 {
        self.target_count as u32
    }

    /// Bytes that the switch adds where it sends a packet from above to all nodes below.
    #[inline]
    fn copies_bytes(&self, wire_bytes: u32) -> u64 {
        u64::from(wire_bytes) * u64::from(self.fan_out().saturating_sub(1))
    }

    /// Pays for the copies of a result. Returns false if nobody has paid for them.
    // spec: E-13
    #[inline]
    pub(super) fn pay_copies(&mut self, wire_bytes: u32) -> bool {
        let bytes = self.copies_bytes(wire_bytes);
        let is_paid = self.account.covers(bytes);
        if is_paid {
            self.account.spend(bytes);
        }
        is_paid
    }

    /// Keeps results from now on: somebody asks.
    pub(super) fn keep(&mut self) {
        self.keeping = RESULTS_KEPT;
    }

    /// Notes that a result is sent to all children. Returns whether it is kept.
    #[inline]
    pub(super) fn tell(&mut self, sequence: u64, now: Time) -> bool {
        let keeps = self.keeping > 0;
        if keeps {
            self.keeping -= 1;
            self.recent.note(sequence, now);
        }
        keeps
    }

    pub(super) fn stations(&self) -> &[Station] {
        &self.stations[..self.station_count]
    }

    /// The nodes below a station that `bitmap` names, in the order of their places.
    pub(super) fn named(&self, station: &Station, bitmap: u32) -> impl Iterator<Item = NodeId> {
        let children = &self.children[station.first_child..][..station.child_count];
        let is_named = move |place: &usize| bitmap >> place & 1 == 1;
        (0..children.len()).filter(is_named).map(|place| children[place])
    }
}

/// All groups, in memory that is reserved at start.
#[derive(Debug)]
pub(super) struct Groups {
    /// Never iterated.
    by_name: HashMap<Name, u32, FixedState>,
    groups: Vec<Group>,
    limits: Limits,
    lookups: u64,
}

/// Limits of a switch, and its longest packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Most groups.
    pub(super) groups_max: usize,
    /// True if workers and switches below are kept apart.
    pub(super) has_seals: bool,
    /// Length of the longest packet with a sum. A new group has paid for the copies of one.
    pub(super) longest_wire_bytes: u32,
}

impl Groups {
    /// Room for as many groups as the limits say.
    pub(super) fn new(limits: Limits) -> Groups {
        let groups_max = limits.groups_max;
        Groups {
            limits,
            // A table that is never more than half full cleans itself up where it is.
            by_name: HashMap::with_capacity_and_hasher(2 * groups_max, FixedState::default()),
            groups: Vec::with_capacity(groups_max),
            lookups: 0,
        }
    }

    /// The group of a tree, if it is known.
    pub(super) fn find(&mut self, job: JobId, epoch: u32, server: NodeId) -> Option<&Group> {
        let index = self.index(job, epoch, server)?;
        Some(self.at(index))
    }

    /// The same, for a caller that has to do something before it looks at the group.
    pub(super) fn index(&mut self, job: JobId, epoch: u32, server: NodeId) -> Option<usize> {
        let index = *self.by_name.get(&(job, server))? as usize;
        let group = &mut self.groups[index];
        if group.epoch != epoch {
            return None;
        }
        self.lookups += 1;
        group.used = self.lookups;
        Some(index)
    }

    /// The group with this index.
    pub(super) fn at(&self, index: usize) -> &Group {
        &self.groups[index]
    }

    /// The same, for a change.
    #[inline]
    pub(super) fn at_mut(&mut self, index: usize) -> &mut Group {
        &mut self.groups[index]
    }

    /// Takes in what is announced, unless something newer is known of the tree. The least recently
    /// used group goes where there is no room. What was paid for, or was not, stays so: an epoch begins whenever a rank asks
    /// for one.
    pub(super) fn announce(&mut self, announcement: &Announcement, stations: &[StationBytes]) {
        self.lookups += 1;
        let mut group = Group::new(announcement, stations, self.limits, self.lookups);
        if let Some(&index) = self.by_name.get(&group.name) {
            let known = &mut self.groups[index as usize];
            if known.epoch <= group.epoch {
                group.account = known.account;
                *known = group;
            }
            return;
        }
        let index = self.groups.len();
        if index < self.limits.groups_max {
            self.by_name.insert(group.name, index as u32);
            self.groups.push(group);
            return;
        }
        let oldest = (0..index).min_by_key(|&index| self.groups[index].used);
        let oldest = oldest.expect("there is room for at least one group");
        self.by_name.remove(&self.groups[oldest].name);
        self.by_name.insert(group.name, oldest as u32);
        self.groups[oldest] = group;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: NodeId = NodeId(9);

    fn room(groups_max: usize, has_seals: bool) -> Groups {
        Groups::new(Limits { groups_max, has_seals, longest_wire_bytes: 1_000 })
    }

    fn announce(groups: &mut Groups, job: u64, epoch: u32, children: &[&[u32]]) {
        announce_switches(groups, (job, epoch), children, [0; STATIONS_MAX]);
    }

    fn announce_switches(
        groups: &mut Groups,
        (job, epoch): (u64, u32),
        children: &[&[u32]],
        switches: [u32; STATIONS_MAX],
    ) {
        let announcement = Announcement {
            job: JobId(job),
            epoch,
            server: SERVER,
            parent: NodeId(8),
            level: 0,
            stations: children.len() as u8,
            switches,
        };
        let station = |(place, children): (u8, &&[u32])| {
            let children: Vec<NodeId> = children.iter().copied().map(NodeId).collect();
            StationBytes::new([0, place, 0, 0], &children)
        };
        let stations: Vec<StationBytes> = (0..).zip(children).map(station).collect();
        groups.announce(&announcement, &stations);
    }

    fn knows(groups: &mut Groups, job: u64, epoch: u32) -> bool {
        groups.find(JobId(job), epoch, SERVER).is_some()
    }

    #[test]
    fn a_group_knows_its_stations_and_names_every_node_once() {
        let mut groups = room(4, true);
        announce(&mut groups, 1, 1, &[&[5, 6, 6], &[6, 7]]);
        let group = groups.find(JobId(1), 1, SERVER).unwrap();
        assert_eq!(group.workers(), [NodeId(5), NodeId(6), NodeId(7)]);
        assert!(group.switches().is_empty());
        let [first, second] = *group.stations() else { panic!("two stations") };
        assert_eq!((first.full(), second.full()), (0b111, 0b11));
        assert_eq!(second.upper_places, [0, 1, 0, 0]);
        assert_eq!(group.named(&first, 0b101).collect::<Vec<_>>(), [NodeId(5), NodeId(6)]);
        assert_eq!(group.named(&second, 0b10).collect::<Vec<_>>(), [NodeId(7)]);
        assert_eq!(group.named(&second, 0b100).count(), 0);
    }

    // spec: E-13 machine
    #[test]
    fn workers_and_switches_are_kept_apart_where_headers_are_sealed() {
        for has_seals in [true, false] {
            let mut groups = room(4, has_seals);
            let children: [&[u32]; 2] = [&[8, 5, 9], &[8, 6]];
            announce_switches(&mut groups, (1, 1), &children, [0b101, 0b01, 0, 0]);
            let group = groups.find(JobId(1), 1, SERVER).unwrap();
            let (workers, switches): (&[u32], &[u32]) =
                if has_seals { (&[5, 6], &[8, 9]) } else { (&[8, 5, 9, 6], &[]) };
            let nodes = |nodes: &[u32]| nodes.iter().copied().map(NodeId).collect::<Vec<_>>();
            assert_eq!(group.workers(), nodes(workers));
            assert_eq!(group.switches(), nodes(switches));
        }
    }

    // spec: E-13 machine
    #[test]
    fn copies_are_paid_for_and_a_new_epoch_pays_for_none() {
        let mut groups = room(4, true);
        announce(&mut groups, 1, 1, &[&[5, 6, 7]]);
        let pay = |groups: &mut Groups, epoch, wire_bytes| {
            let index = groups.index(JobId(1), epoch, SERVER).unwrap();
            groups.at_mut(index).pay_copies(wire_bytes)
        };
        assert!(!pay(&mut groups, 1, 1_001), "it begins with two copies of the longest packet");
        assert!(pay(&mut groups, 1, 900));
        assert!(!pay(&mut groups, 1, 200));
        announce(&mut groups, 1, 2, &[&[5, 6, 7]]);
        assert!(!pay(&mut groups, 2, 200));
        assert!(pay(&mut groups, 2, 100));
        announce(&mut groups, 2, 1, &[&[5]]);
        let index = groups.index(JobId(2), 1, SERVER).unwrap();
        assert!(groups.at_mut(index).pay_copies(1_000), "one node below gets what comes");
    }

    #[test]
    fn a_new_epoch_replaces_the_old_one_and_not_the_other_way_round() {
        let mut groups = room(4, false);
        announce(&mut groups, 1, 5, &[&[5]]);
        announce(&mut groups, 1, 4, &[&[6]]);
        assert!(knows(&mut groups, 1, 5) && !knows(&mut groups, 1, 4));
        announce(&mut groups, 1, 6, &[&[7]]);
        assert!(knows(&mut groups, 1, 6) && !knows(&mut groups, 1, 5));
        assert!(groups.find(JobId(1), 6, NodeId(10)).is_none(), "another server's tree");
    }

    #[test]
    fn the_least_recently_used_goes_where_there_is_no_room() {
        let mut groups = room(2, false);
        announce(&mut groups, 1, 1, &[&[5]]);
        announce(&mut groups, 2, 1, &[&[5]]);
        assert!(knows(&mut groups, 1, 1));
        announce(&mut groups, 3, 1, &[&[5]]);
        assert!(!knows(&mut groups, 2, 1));
        assert!(knows(&mut groups, 1, 1) && knows(&mut groups, 3, 1));
    }
}
