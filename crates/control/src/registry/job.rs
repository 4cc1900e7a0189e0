//! One job: its ranks, from registration to the end.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thalweg_aggregate::join::Process;
use thalweg_core::{JobId, MTU_BYTES, NodeId, Time};
use thalweg_wire::tag::{Key, Secrets};

use super::amounts::Amount;
use super::cluster::Cluster;
use super::operations::Operations;
use super::plan::Plan;
use super::stall::Stalls;
use super::{
    Action, Ending, LinkId, NAMED_MAX, Refusal, Registration, UNATTENDED_FOR, WAITING_EVERY,
};
use crate::caller::Holder;
use crate::message::{
    JobTree, Join, Place, Progress, Resume, Stall, Ticket, ToRank, Waits, Welcome, node_of,
};
use crate::settings::Settings;

/// A job between registration and end.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: JobId,
    pub(super) name: String,
    pub(super) workers: u32,
    pub(super) settings: Settings,
    /// Caller that has registered it, whose budget it counts for.
    pub(super) owner: Holder,
    /// True once tickets of it are out.
    pub(super) has_tickets: bool,
    /// True if its members know it from before this registry.
    pub(super) is_resumed: bool,
    pub(super) created: Time,
    /// Before the job is gathered, those that are connected; afterwards all.
    pub(super) ranks: BTreeMap<u32, Attendee>,
    /// Their nodes, all of which are compared with those of every rank that joins.
    // spec: E-12
    nodes: BTreeMap<NodeId, u32>,
    /// Ranks without a stream that have not left.
    gone: BTreeSet<u32>,
    /// Number of ranks that have left.
    departed: usize,
    /// Part of the job in the sums of all.
    pub(super) counted: Amount,
    /// Facts about all ranks, until one of them changes.
    facts: OnceCell<Facts>,
    /// The leader of every host, by host number. Empty until the job is gathered.
    pub(super) hosts: Vec<u32>,
    /// `None` until all ranks are there, and again when one is another process, until all are.
    pub(super) welcome: Option<Arc<Welcome>>,
    pub(super) stalls: Stalls,
    pub(super) operations: Operations,
    /// Plans of its trees: one for every sending thread of its ranks. A single one until the job is gathered.
    // spec: F-04
    pub(super) trees: Vec<Plan>,
    /// The last reason for which a process that named the job was refused.
    pub(super) refusal: Option<String>,
    /// When the ranks that wait were last sent the missing ones.
    waiting_told: Time,
    /// When the last one was gone. Means something only while nobody is there.
    deserted: Time,
}

/// Facts about the ranks of a job, which every tree asks for.
// spec: E-12
#[derive(Clone, Debug)]
struct Facts {
    /// Switches of the ranks that send. Before all ranks are there, any of them may send.
    switches: BTreeSet<NodeId>,
    /// The least MTU that ranks announce. `None` if one of them announces none: it answers no probes.
    announced_mtu: Option<u16>,
    /// The rank with the least MTU, where those that announce none have the usual one.
    narrowest: Option<(u32, u16)>,
}

/// Process that attends as a rank.
#[derive(Clone, Debug)]
pub(super) struct Attendee {
    pub(super) process: Process,
    pub(super) host: String,
    pub(super) switch: Option<NodeId>,
    /// Nodes of its sending threads after the first one.
    pub(super) more_nodes: Vec<NodeId>,
    /// MTU of its interface, if it says it.
    pub(super) mtu_bytes: Option<u16>,
    /// Knowledge of each tree that it came with.
    pub(super) resumes: Vec<Resume>,
    pub(super) link: Option<LinkId>,
    /// The last moment at which its connection, or its kernel, was there, and how that ended. Valid only without a
    /// link.
    pub(super) broke: (Time, Ending),
    pub(super) heard: Time,
    /// Last progress in each tree, and its time.
    pub(super) progress: BTreeMap<u32, (Time, Progress)>,
    /// Number of operations that it had called when it left.
    pub(super) left: Option<u64>,
}

impl Attendee {
    pub(super) fn has_left(&self) -> bool {
        self.left.is_some()
    }

    /// Node of its sending thread of a tree.
    pub(super) fn node_of(&self, tree: u32) -> Option<NodeId> {
        node_of(self.process.node, &self.more_nodes, tree)
    }

    /// The process, as the registrar of a tree knows it.
    pub(super) fn process_in(&self, tree: u32) -> Option<Process> {
        Some(Process { node: self.node_of(tree)?, ..self.process })
    }

    /// Number of sending threads that it can use.
    fn threads(&self) -> usize {
        1 + self.more_nodes.len()
    }

    /// Nodes of all its sending threads.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::once(self.process.node).chain(self.more_nodes.iter().copied())
    }

    /// Last progress in a tree, and its time. Operations are counted for all trees together, in the first one.
    pub(super) fn progress_in(&self, tree: u32) -> Option<(Time, Progress)> {
        let (at, progress) = *self.progress.get(&tree)?;
        let first = self.progress.get(&0).map_or(progress, |(_, first)| *first);
        Some((at, Progress { operation: first.operation, ..progress }))
    }
}

/// Memory of the leaders of a resumed job about a tree.
pub(super) struct Past {
    pub(super) round: u32,
    pub(super) roster: Vec<Process>,
    pub(super) watermark: u64,
    /// Values of a fragment. `None` if nobody has been set up.
    pub(super) fragment_values: Option<u16>,
    /// Span in fragments. `None` if nobody has been set up.
    pub(super) span_fragments: Option<u16>,
    /// True if values of 16 bits travel in single precision. `None` if nobody has been set up.
    pub(super) widens_halves: Option<bool>,
}

impl Job {
    pub(super) fn new(
        now: Time,
        id: JobId,
        owner: Holder,
        wanted: Registration,
        is_resumed: bool,
    ) -> Job {
        Job {
            id,
            name: wanted.name,
            workers: wanted.workers,
            settings: wanted.settings,
            owner,
            has_tickets: is_resumed,
            is_resumed,
            created: now,
            ranks: BTreeMap::new(),
            nodes: BTreeMap::new(),
            gone: BTreeSet::new(),
            departed: 0,
            counted: Amount::default(),
            facts: OnceCell::new(),
            hosts: Vec::new(),
            welcome: None,
            stalls: Stalls::default(),
            operations: Operations::default(),
            trees: vec![Plan::default()],
            refusal: None,
            waiting_told: now,
            deserted: now,
        }
    }

    /// The trees of the job.
    pub(super) fn all_trees(&self) -> impl Iterator<Item = JobTree> + use<> {
        let job = self.id;
        (0..self.trees.len() as u32).map(move |tree| JobTree { job, tree })
    }

    /// Plan of a tree.
    pub(super) fn plan(&self, tree: u32) -> Option<&Plan> {
        self.trees.get(tree as usize)
    }

    pub(super) fn plan_mut(&mut self, tree: u32) -> Option<&mut Plan> {
        self.trees.get_mut(tree as usize)
    }

    /// Returns whether a tree is planned with a switch.
    pub(super) fn has_switch(&self, tree: u32, switch: NodeId) -> bool {
        self.plan(tree).is_some_and(|plan| plan.has(switch))
    }

    /// Bytes of the data plane that all its trees can come to.
    // spec: E-12, F-04
    pub(super) fn memory_bytes(&self) -> u64 {
        self.trees.iter().map(|tree| tree.memory_bytes).fold(0, u64::saturating_add)
    }

    /// The switches that one of its trees is planned without.
    pub(super) fn left_out(&self) -> BTreeSet<NodeId> {
        self.trees.iter().flat_map(Plan::left_out).collect()
    }

    /// Checks that somebody who registers it means the same.
    pub(super) fn agree(&self, wanted: &Registration) -> Result<(), Refusal> {
        let mut differences = self.settings.differences(&wanted.settings);
        if self.workers != wanted.workers {
            let (own, others) = (self.workers, wanted.workers);
            differences.insert(0, format!("workers is {own} in the job, {others} here"));
        }
        if self.name != wanted.name {
            differences.insert(0, format!("its name was {:?}", wanted.name));
        }
        let name = self.name.clone();
        if differences.is_empty() { Ok(()) } else { Err(Refusal::Differs { name, differences }) }
    }

    /// Checks that a process may have a rank. `is_proven` says that its ticket is a real one.
    // spec: E-04
    pub(super) fn check_join(
        &self,
        now: Time,
        join: &Join,
        cluster: &Cluster,
        is_proven: bool,
    ) -> Result<(), Refusal> {
        let (rank, workers) = (join.rank, self.workers);
        if rank >= workers {
            return Err(Refusal::UnknownRank { rank, workers });
        }
        for node in join.nodes() {
            if let Some(&rank) = self.nodes.get(&node).filter(|other| **other != rank) {
                return Err(Refusal::SameNode { address: cluster.address(node), rank });
            }
        }
        // spec: F-04
        let (offered, trees) = (1 + join.more_nodes.len(), self.trees.len());
        if offered < trees {
            return Err(Refusal::Threads { rank, offered, trees });
        }
        let ticket =
            join.ticket.filter(|ticket| is_proven && (ticket.job, ticket.rank) == (self.id, rank));
        let Some(before) = self.ranks.get(&rank) else {
            // A rank of a job that was forgotten had joined it before.
            let is_free = !self.is_resumed || ticket.is_some();
            return if is_free { Ok(()) } else { Err(Refusal::NotYours { rank, since: None }) };
        };
        if before.has_left() {
            return Err(Refusal::Ending);
        }
        if before.process != join.process {
            // However long nothing came from it: only its kernel can say that it is gone.
            if before.link.is_some() {
                let address = cluster.address(before.process.node);
                let heard = now.since(before.heard);
                return Err(Refusal::Taken { rank, address, heard });
            }
            if self.has_departed() {
                return Err(Refusal::Ending);
            }
            if !self.is_replaceable(before) && ticket.map(|own| own.process) != Some(before.process)
            {
                return Err(Refusal::NotYours { rank, since: Some(now.since(before.broke.0)) });
            }
        }
        if self.fits(join, before) {
            return Ok(());
        }
        Err(Refusal::Moved { rank, before: before.host.clone() })
    }

    /// Returns whether nothing is lost with a process that is gone: the job has not begun, and its kernel has closed the
    /// connection.
    fn is_replaceable(&self, gone: &Attendee) -> bool {
        self.hosts.is_empty() && !self.is_resumed && gone.broke.1 == Ending::Closed
    }

    /// Returns whether the hosts stay what they are.
    fn fits(&self, join: &Join, before: &Attendee) -> bool {
        let on = |host: &str| self.ranks.values().filter(|other| other.host == host).count();
        let is_same = join.host == before.host;
        is_same || self.hosts.is_empty() || (on(&before.host) == 1 && on(&join.host) == 0)
    }

    /// Takes in a rank that may join. Returns who had it before.
    pub(super) fn take_in(&mut self, now: Time, link: LinkId, join: Join) -> Option<Attendee> {
        let before = self.remove(join.rank);
        let same = before.as_ref().filter(|before| before.process == join.process);
        let progress = same.map(|same| same.progress.clone()).unwrap_or_default();
        if same.is_none() {
            self.stalls.forget(join.rank);
        }
        let attendee = Attendee {
            process: join.process,
            host: join.host,
            switch: join.switch,
            more_nodes: join.more_nodes,
            mtu_bytes: join.mtu_bytes,
            resumes: join.resumes,
            link: Some(link),
            broke: (now, Ending::Closed),
            heard: now,
            progress,
            left: None,
        };
        self.nodes.extend(attendee.nodes().map(|node| (node, join.rank)));
        self.ranks.insert(join.rank, attendee);
        self.facts.take();
        self.has_tickets = true;
        before
    }

    fn remove(&mut self, rank: u32) -> Option<Attendee> {
        let attendee = self.ranks.remove(&rank)?;
        self.facts.take();
        self.gone.remove(&rank);
        self.departed -= usize::from(attendee.has_left());
        for node in attendee.nodes() {
            self.nodes.remove(&node);
        }
        Some(attendee)
    }

    /// All are there: finds the hosts, and at first the number of trees, of which it may have this number.
    pub(super) fn gather(&mut self, most_trees: usize) {
        let is_first = self.hosts.is_empty();
        let (leaders, _) = self.places();
        self.hosts = leaders;
        self.facts.take();
        if is_first {
            self.trees.resize_with(self.count_trees(most_trees), Plan::default);
        }
    }

    /// Number of trees: as many as all ranks have sending threads, and one where all ranks are on one host, which send
    /// nothing. A job that was set up before keeps its number.
    // spec: F-04, E-12
    fn count_trees(&self, most: usize) -> usize {
        let known = self.ranks.values().map(|attendee| attendee.resumes.len()).max();
        if let Some(known) = known.filter(|known| self.is_resumed && *known > 0) {
            return known;
        }
        let least = self.ranks.values().map(Attendee::threads).min();
        if self.hosts.len() == 1 { 1 } else { least.unwrap_or(1).min(most).max(1) }
    }

    /// A rank that has fewer sending threads than the job has trees, which it had before the registry forgot it.
    pub(super) fn narrower_rank(&self) -> Option<u32> {
        let is_narrow = |(_, attendee): &(&u32, &Attendee)| attendee.threads() < self.trees.len();
        self.ranks.iter().find(is_narrow).map(|(rank, _)| *rank)
    }

    /// Makes the welcome.
    pub(super) fn invite(
        &mut self,
        secrets: &Secrets,
        (ticket, rounds): (Ticket, Vec<u32>),
        own_switch: Option<NodeId>,
    ) {
        let secret = secrets.of_job(self.settings.parameters.generation);
        let (_, roster) = self.places();
        // An id is a random name: the one after the largest is the smallest.
        let lane = |tree: JobId, at: usize| JobId(tree.0.wrapping_add(at as u64 + 1));
        let keys =
            |tree: JobTree| std::array::from_fn(|at| Key::derive(secret, lane(tree.id(), at), 1));
        let lane_keys = self.all_trees().map(keys).collect();
        let names_switch = |attendee: &Attendee| attendee.switch.is_some();
        let has_switch = own_switch.is_some() || self.ranks.values().any(names_switch);
        let probes_paths = self.probes_paths();
        let welcome = Welcome { ticket, lane_keys, roster, rounds, has_switch, probes_paths };
        self.welcome = Some(Arc::new(welcome));
    }

    /// The leaders, and where everybody is.
    fn places(&self) -> (Vec<u32>, Vec<Place>) {
        let mut hosts: BTreeMap<&str, u32> = BTreeMap::new();
        let mut leaders = Vec::new();
        let mut roster = Vec::new();
        for (&rank, attendee) in &self.ranks {
            let host = *hosts.entry(&attendee.host).or_insert_with(|| {
                leaders.push(rank);
                leaders.len() as u32 - 1
            });
            let more = attendee.more_nodes.iter().take(self.trees.len() - 1);
            roster.push(Place {
                node: attendee.process.node,
                more_nodes: more.copied().collect(),
                host,
            });
        }
        (leaders, roster)
    }

    /// Memory of a tree's set-ups before this registry. `None` if nobody knows of them.
    ///
    /// Every set-up takes all leaders, and a welcome tells of those before it. So a leader that was
    /// welcomed before knows of every set-up; where all of them are new, epochs could be used twice.
    pub(super) fn past(&self, tree: u32) -> Option<Past> {
        let leaders = self.hosts.iter().filter_map(|leader| self.ranks.get(leader));
        let known = leaders.filter_map(|leader| {
            Some((leader.process_in(tree)?, *leader.resumes.get(tree as usize)?))
        });
        let round = known.clone().map(|(_, resume)| resume.round).max()?;
        let fragment_values = known.clone().find_map(|(_, resume)| resume.fragment_values);
        let span_fragments = known.clone().find_map(|(_, resume)| resume.span_fragments);
        // Ranks that were set up and do not say it are of a version that widens.
        let sends_halves = known.clone().find_map(|(_, resume)| resume.sends_halves);
        let widens_halves = fragment_values.map(|_| sends_halves != Some(true));
        let memory = known.filter_map(|(process, resume)| Some((process, resume.watermark?)));
        let (roster, watermarks): (Vec<Process>, Vec<u64>) = memory.unzip();
        let watermark = watermarks.into_iter().min().unwrap_or(0);
        Some(Past { round, roster, watermark, fragment_values, span_fragments, widens_halves })
    }

    /// The host number of a leader.
    pub(super) fn seat_of(&self, rank: u32) -> Option<u32> {
        self.hosts.binary_search(&rank).ok().map(|seat| seat as u32)
    }

    /// Notes that a rank has no stream. Returns whether it is missed.
    pub(super) fn lose_link(&mut self, now: Time, rank: u32, ending: Ending) -> bool {
        let Some(attendee) = self.ranks.get_mut(&rank) else { return false };
        let there = Time::from_ps(now.as_ps().saturating_sub(ending.silence().as_ps()));
        (attendee.link, attendee.broke) = (None, (there, ending));
        if !attendee.has_left() {
            self.gone.insert(rank);
        }
        self.deserted = now;
        true
    }

    pub(super) fn leave(&mut self, now: Time, rank: u32, operations: u64) {
        self.stalls.forget(rank);
        if self.hosts.is_empty() {
            self.remove(rank);
            self.deserted = now;
        } else if let Some(attendee) = self.ranks.get_mut(&rank) {
            self.departed += usize::from(!attendee.has_left());
            (attendee.link, attendee.left) = (None, Some(operations));
            self.gone.remove(&rank);
        }
    }

    /// Begins to gather again: those that were there are gone, and others come.
    pub(super) fn gather_again(&mut self, now: Time) {
        self.ranks.clear();
        self.nodes.clear();
        self.gone.clear();
        self.departed = 0;
        self.facts.take();
        self.deserted = now;
        // Members of a job that was forgotten have a deadline of their own.
        if !self.is_resumed {
            self.created = now;
        }
    }

    /// Messages about those that have left, for a rank that may have missed them.
    pub(super) fn departures(&self) -> impl Iterator<Item = ToRank> + '_ {
        let left = self.ranks.iter().filter_map(|(rank, attendee)| Some((*rank, attendee.left?)));
        left.map(|(rank, operations)| ToRank::Left { rank, operations })
    }

    /// Takes down what a rank waits for, as far as it can be.
    pub(super) fn note_stall(&mut self, now: Time, at: (u32, u32), mut stall: Stall) {
        if let Waits::Ranks(ranks) = &mut stall.waits {
            ranks.retain(|other| *other < self.workers && *other != at.0);
            ranks.sort_unstable();
            ranks.dedup();
            // Every rank may report a stall in each tree, and a message has room for more ranks than there are.
            // spec: E-12
            ranks.truncate(NAMED_MAX / self.trees.len().max(1));
            ranks.shrink_to_fit();
        }
        self.stalls.note(now, at, stall);
    }

    /// Returns whether all ranks have left.
    pub(super) fn is_over(&self) -> bool {
        self.departed == self.ranks.len()
    }

    /// Returns whether a rank has left.
    pub(super) fn has_departed(&self) -> bool {
        self.departed > 0
    }

    /// Ranks without a stream that have not left.
    pub(super) fn gone(&self) -> impl Iterator<Item = (u32, &Attendee)> {
        self.gone.iter().filter_map(|rank| Some((*rank, self.ranks.get(rank)?)))
    }

    /// Number of ranks that are connected.
    pub(super) fn connected(&self) -> usize {
        self.ranks.len() - self.gone.len() - self.departed
    }

    /// Returns whether anybody is connected.
    pub(super) fn is_attended(&self) -> bool {
        self.connected() > 0
    }

    /// Returns whether all ranks are connected.
    pub(super) fn is_complete(&self) -> bool {
        self.connected() == self.workers as usize
    }

    fn facts(&self) -> &Facts {
        self.facts.get_or_init(|| {
            let is_leader = |rank: &u32| self.hosts.is_empty() || self.seat_of(*rank).is_some();
            let leaders = self.ranks.iter().filter(|(rank, _)| is_leader(rank));
            let announced: Option<Vec<u16>> =
                self.ranks.values().map(|rank| rank.mtu_bytes).collect();
            let mtus =
                self.ranks.iter().map(|(rank, own)| (*rank, own.mtu_bytes.unwrap_or(MTU_BYTES)));
            Facts {
                switches: leaders.filter_map(|(_, leader)| leader.switch).collect(),
                announced_mtu: announced.and_then(|all| all.into_iter().min()),
                narrowest: mtus.min_by_key(|(_, mtu_bytes)| *mtu_bytes),
            }
        })
    }

    /// Switches of the server's rack and of the ranks that send: what the job would be planned with.
    pub(super) fn switches(&self, servers: Option<NodeId>) -> BTreeSet<NodeId> {
        let mut switches = self.facts().switches.clone();
        if !switches.is_empty() {
            switches.extend(servers);
        }
        switches
    }

    /// The least MTU that its ranks announce. `None` if one of them announces none.
    pub(super) fn announced_mtu(&self) -> Option<u16> {
        self.facts().announced_mtu
    }

    /// The rank with the least MTU, where those that announce none have the usual one.
    pub(super) fn narrowest(&self) -> Option<(u32, u16)> {
        self.facts().narrowest
    }

    /// Switches of all its trees, and its trees: what it takes to go through them.
    pub(super) fn work(&self) -> u32 {
        (self.facts().switches.len() as u32 + 1) * self.trees.len() as u32
    }

    /// Returns true if all ranks were welcomed before and are there, and one of them is another process since.
    pub(super) fn waits_for_welcome(&self) -> bool {
        !self.hosts.is_empty() && self.welcome.is_none() && self.is_complete()
    }

    /// Returns whether nobody came for so long that nobody will.
    pub(super) fn is_unattended(&self, now: Time) -> bool {
        self.ranks.is_empty() && now.since(self.deserted) >= UNATTENDED_FOR
    }

    /// The ranks that are not connected, at most as many as are worth naming.
    pub(super) fn missing(&self) -> Vec<u32> {
        let there = self.ranks.iter().filter(|(_, attendee)| attendee.link.is_some());
        let mut there = there.map(|(rank, _)| *rank).peekable();
        let is_missing = |rank: &u32| there.next_if_eq(rank).is_none();
        (0..self.workers).filter(is_missing).take(NAMED_MAX).collect()
    }

    /// Returns the ranks that are missing, if it is time to say so.
    pub(super) fn waiting(&mut self, now: Time) -> Option<Arc<[u32]>> {
        let is_due = now.since(self.waiting_told) >= WAITING_EVERY;
        if self.welcome.is_some() || !is_due || self.ranks.is_empty() || self.is_complete() {
            return None;
        }
        self.waiting_told = now;
        Some(self.missing().into())
    }

    /// Tells a rank something about the job.
    pub(super) fn tell(&self, rank: u32, message: ToRank) -> Option<Action> {
        self.tell_of(0, rank, message)
    }

    /// Tells a rank something about a tree.
    pub(super) fn tell_of(&self, tree: u32, rank: u32, message: ToRank) -> Option<Action> {
        let link = self.ranks.get(&rank)?.link?;
        Some(Action::Tell { link, tree, message })
    }

    /// Tells all ranks something about the job.
    pub(super) fn tell_all(&self, message: &ToRank) -> Vec<Action> {
        self.tell_all_of(0, message)
    }

    /// Tells all ranks something about a tree.
    pub(super) fn tell_all_of(&self, tree: u32, message: &ToRank) -> Vec<Action> {
        self.ranks.keys().filter_map(|rank| self.tell_of(tree, *rank, message.clone())).collect()
    }

    /// Tells the leader at a place in the set-up of a tree, if it still is the process that is meant.
    pub(super) fn tell_seat(
        &self,
        tree: u32,
        (seat, process): (u32, Process),
        message: ToRank,
    ) -> Option<Action> {
        let leader = *self.hosts.get(seat as usize)?;
        let own = self.ranks.get(&leader).and_then(|attendee| attendee.process_in(tree));
        own.filter(|own| *own == process)?;
        self.tell_of(tree, leader, message)
    }

    /// Tells the rank whose sending thread of a tree is at a node.
    pub(super) fn tell_node(&self, tree: u32, node: NodeId, message: ToRank) -> Option<Action> {
        let rank = *self.nodes.get(&node)?;
        let is_there = |attendee: &&Attendee| attendee.node_of(tree) == Some(node);
        self.ranks.get(&rank).filter(is_there)?;
        self.tell_of(tree, rank, message)
    }
}
