//! Aggregation tree: the switches that sum for each worker.
//!
//! From the switches between each worker and the server to the tree with its fan-ins, places and
//! groups. The rules are in `docs/aggregation.md`.

use std::ops::Range;

use thalweg_core::NodeId;
use thalweg_wire::aggregate::{Branch, CHILDREN_MAX, FAN_IN_MAX, LEVELS};
use thiserror::Error;

mod build;
#[cfg(test)]
mod tests;

/// A worker and the switches that may sum for it, from its own to the one next to the server. Without
/// any, it sends directly to the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// The worker's node.
    pub node: NodeId,
    /// The switches on the path up.
    pub path: Vec<NodeId>,
}

/// The tree of one server in one epoch.
///
/// Workers are named by rank, in the order they were given. *Positions* order them as the tree
/// does, so that everything below one station is a range of positions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    server: NodeId,
    /// From the top down: a parent stands before its children.
    stations: Vec<Station>,
    /// By rank.
    leaves: Vec<Leaf>,
    /// The rank at each position.
    ranks: Vec<u32>,
    /// Nodes that the server sends to what all workers must get.
    top_nodes: Vec<NodeId>,
}

/// A switch at a level, or the server's own top level.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Station {
    /// The switch, or the server.
    at: NodeId,
    level: u8,
    parent: Option<usize>,
    /// Place of the station at every level above its own.
    upper_places: [u8; LEVELS],
    children: Vec<Child>,
    positions: Range<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Child {
    Worker(u32),
    Station(usize),
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Leaf {
    node: NodeId,
    branch: Branch,
    first_hop: NodeId,
    position: u32,
}

/// State of one tree that a switch needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// The switch.
    pub switch: NodeId,
    /// Node that it sends sums on to.
    pub parent: NodeId,
    /// Level of the stations.
    pub level: u8,
    /// Stations of the switch.
    pub stations: Vec<GroupStation>,
}

/// One station of a switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupStation {
    /// Place of the station at every level above its own.
    pub upper_places: [u8; LEVELS],
    /// The nodes below it, in the order of their places.
    pub children: Vec<NodeId>,
    /// Bitmap of the places of those that are switches.
    pub switches: u32,
}

/// Reason why there is no tree. The set-up of the job is at fault.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TreeError {
    /// Nobody to sum for.
    #[error("a job needs at least one worker")]
    NoWorkers,
    /// More than a bitmap names, with the one level that the server can add.
    #[error(
        "the server would have {0} children, at most {max} fit: put switches between",
        max = u32::from(FAN_IN_MAX) * u32::from(FAN_IN_MAX)
    )]
    TooWide(usize),
    /// More than one packet can announce.
    #[error("switch {switch} would have {children} children, at most {CHILDREN_MAX} fit")]
    TooManyChildren {
        /// The switch.
        switch: NodeId,
        /// Number of its children.
        children: usize,
    },
    /// More switches along the path than a header can name.
    #[error("worker {worker} is {levels} levels below the server, at most {LEVELS} fit")]
    TooDeep {
        /// The worker's rank.
        worker: u32,
        /// Number of levels.
        levels: usize,
    },
    /// The server is on the path to itself.
    #[error("the server, node {0}, is named as a switch: name only what lies between")]
    ServerOnThePath(NodeId),
    /// Two workers disagree about what is above a switch.
    #[error("switch {0} has two parents: the ways from all workers must form a tree")]
    TwoParents(NodeId),
}

/// A station right below the server, which the server can ask for what it lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Top {
    /// The switch.
    pub at: NodeId,
    /// The level from which is asked: the server's.
    pub ask_level: u8,
    /// The station's bit there.
    pub wanted: u32,
    /// The way of one of the workers below: its places above `ask_level` are the station's.
    pub branch: Branch,
    /// The first position below it.
    pub first_position: u32,
    /// Number of positions below it.
    pub positions: u32,
}

impl Top {
    /// The workers below it, in the order of the tree.
    pub fn below(&self) -> Range<u32> {
        self.first_position..self.first_position + self.positions
    }
}

impl Tree {
    /// The tree of these workers, by rank.
    // spec: A-40
    pub fn build(server: NodeId, members: &[Member]) -> Result<Tree, TreeError> {
        build::build(server, members)
    }

    /// The root.
    pub fn server(&self) -> NodeId {
        self.server
    }

    /// Number of workers.
    pub fn workers(&self) -> u32 {
        self.leaves.len() as u32
    }

    /// A worker's node.
    pub fn node(&self, rank: u32) -> NodeId {
        self.leaves[rank as usize].node
    }

    /// A worker's way up.
    pub fn branch(&self, rank: u32) -> Branch {
        self.leaves[rank as usize].branch
    }

    /// First hop of a worker's packets: its switch, or the server.
    pub fn first_hop(&self, rank: u32) -> NodeId {
        self.leaves[rank as usize].first_hop
    }

    /// Position of a worker.
    pub fn position(&self, rank: u32) -> u32 {
        self.leaves[rank as usize].position
    }

    /// Rank of the worker at a position.
    pub fn rank_at(&self, position: u32) -> u32 {
        self.ranks[position as usize]
    }

    /// Nodes that the server sends to what all workers must get: the switches and workers right below it.
    pub fn top_nodes(&self) -> &[NodeId] {
        &self.top_nodes
    }

    /// The positions of the children that `bitmap` names, of the station at `bitmap_level` on this
    /// branch. `None` if the tree has no such branch or children.
    pub fn positions(
        &self,
        branch: &Branch,
        bitmap_level: u8,
        bitmap: u32,
    ) -> Option<impl Iterator<Item = Range<u32>> + '_> {
        let station = self.station(branch, bitmap_level)?;
        let all = branch.full(bitmap_level);
        if bitmap == 0 || bitmap & !all != 0 {
            return None;
        }
        // All children together are one range; the common case takes one step.
        let whole = (bitmap == all).then(|| station.positions.clone());
        let rest = if bitmap == all { 0 } else { bitmap };
        let named = (0..station.children.len()).filter(move |place| rest >> place & 1 == 1);
        Some(
            whole
                .into_iter()
                .chain(named.map(|place| self.child_positions(station.children[place]))),
        )
    }

    /// The worker with this branch. `None` if the tree has none.
    pub fn worker_at(&self, branch: &Branch) -> Option<u32> {
        let station = self.station(branch, branch.entry())?;
        let place = usize::from(branch.places()[usize::from(branch.entry())]);
        match station.children.get(place)? {
            Child::Worker(rank) => Some(*rank),
            Child::Station(_) => None,
        }
    }

    /// The stations right below the server.
    pub fn tops(&self) -> impl Iterator<Item = Top> + '_ {
        let is_virtual = |index: usize| self.stations[index].at == self.server;
        let is_top = move |station: &&Station| {
            station.at != self.server && station.parent.is_none_or(is_virtual)
        };
        self.stations.iter().filter(is_top).map(|station| Top {
            at: station.at,
            ask_level: station.level + 1,
            wanted: 1 << place_at(station.upper_places, station.level + 1),
            branch: self.branch(self.rank_at(station.positions.start)),
            first_position: station.positions.start,
            positions: station.positions.len() as u32,
        })
    }

    /// Groups for the switches, one group a switch.
    pub fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for station in self.stations.iter().filter(|station| station.at != self.server) {
            let children = station.children.iter().map(|child| self.child_node(*child)).collect();
            let is_switch = |(_, child): &(u32, &Child)| matches!(child, Child::Station(_));
            let below = (0_u32..).zip(&station.children).filter(is_switch);
            let switches = below.fold(0, |bits, (place, _)| bits | 1 << place);
            let upper_places = station.upper_places;
            let entry = GroupStation { upper_places, children, switches };
            match groups.iter_mut().find(|group| group.switch == station.at) {
                Some(group) => group.stations.push(entry),
                None => groups.push(Group {
                    switch: station.at,
                    parent: station.parent.map_or(self.server, |parent| self.stations[parent].at),
                    level: station.level,
                    stations: vec![entry],
                }),
            }
        }
        groups
    }

    /// The station at a level on a branch, if the branch agrees with the tree.
    fn station(&self, branch: &Branch, level: u8) -> Option<&Station> {
        let mut station = &self.stations[0];
        if branch.end() != station.level + 1 {
            return None;
        }
        loop {
            if usize::from(branch.fan_in(station.level)) != station.children.len() {
                return None;
            }
            if station.level == level {
                return Some(station);
            }
            let place = usize::from(branch.places()[usize::from(station.level)]);
            let Child::Station(below) = station.children.get(place)? else { return None };
            station = &self.stations[*below];
        }
    }

    fn child_positions(&self, child: Child) -> Range<u32> {
        match child {
            Child::Worker(rank) => self.position(rank)..self.position(rank) + 1,
            Child::Station(index) => self.stations[index].positions.clone(),
        }
    }

    fn child_node(&self, child: Child) -> NodeId {
        match child {
            Child::Worker(rank) => self.node(rank),
            Child::Station(index) => self.stations[index].at,
        }
    }
}

/// A place of all places; 0 above the last level, where the server has but one child.
fn place_at(places: [u8; LEVELS], level: u8) -> u8 {
    places.get(usize::from(level)).copied().unwrap_or(0)
}
