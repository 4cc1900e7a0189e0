//! From ways to a tree.

use std::collections::BTreeMap;

use thalweg_core::NodeId;
use thalweg_wire::aggregate::{Branch, CHILDREN_MAX, FAN_IN_MAX, LEVELS};

use super::{Child, Leaf, Member, Station, Tree, TreeError};

// Two full levels hold 1,024 workers.
// spec: A-13
const FAN_IN: usize = FAN_IN_MAX as usize;

/// A station whose children are not numbered yet.
struct Sketch {
    at: NodeId,
    children: Vec<Branching>,
}

enum Branching {
    Worker(u32),
    Station(Sketch),
}

pub(super) fn build(server: NodeId, members: &[Member]) -> Result<Tree, TreeError> {
    if members.is_empty() {
        return Err(TreeError::NoWorkers);
    }
    let below = children_by_node(server, members)?;
    let root = sketch_root(server, &below)?;
    let mut numbering = Numbering::new(server, members);
    numbering.check_depth(&root)?;
    let level = numbering.levels(&root) - 1;
    numbering.enter(root, level as u8, None, [0; LEVELS]);
    Ok(numbering.finish())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Below {
    Worker(u32),
    Switch(NodeId),
}

/// Nodes right below each node, in the order in which the members name them.
fn children_by_node(
    server: NodeId,
    members: &[Member],
) -> Result<BTreeMap<NodeId, Vec<Below>>, TreeError> {
    let mut parents: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    let mut below: BTreeMap<NodeId, Vec<Below>> = BTreeMap::new();
    for (rank, member) in (0..).zip(members) {
        let first = member.path.first().copied().unwrap_or(server);
        below.entry(first).or_default().push(Below::Worker(rank));
        if member.path.contains(&server) {
            return Err(TreeError::ServerOnThePath(server));
        }
        for (at, &switch) in member.path.iter().enumerate() {
            let parent = member.path.get(at + 1).copied().unwrap_or(server);
            match parents.insert(switch, parent) {
                None => below.entry(parent).or_default().push(Below::Switch(switch)),
                Some(known) if known == parent && parent != switch => {}
                Some(_) => return Err(TreeError::TwoParents(switch)),
            }
        }
    }
    Ok(below)
}

/// One station at the top: that of the only child, or one at the server.
fn sketch_root(server: NodeId, below: &BTreeMap<NodeId, Vec<Below>>) -> Result<Sketch, TreeError> {
    let mut children = sketch_children(below, server)?;
    if let [Branching::Station(_)] = children[..]
        && let Some(Branching::Station(only)) = children.pop()
    {
        return Ok(only);
    }
    let count = children.len();
    let mut stations = cut(server, children);
    if stations.len() == 1 {
        return Ok(stations.remove(0));
    }
    if stations.len() > FAN_IN {
        return Err(TreeError::TooWide(count));
    }
    Ok(Sketch { at: server, children: stations.into_iter().map(Branching::Station).collect() })
}

fn sketch_children(
    below: &BTreeMap<NodeId, Vec<Below>>,
    node: NodeId,
) -> Result<Vec<Branching>, TreeError> {
    let mut children = Vec::new();
    for child in below.get(&node).into_iter().flatten() {
        match *child {
            Below::Worker(rank) => children.push(Branching::Worker(rank)),
            Below::Switch(switch) => {
                let grandchildren = sketch_children(below, switch)?;
                if grandchildren.len() > CHILDREN_MAX {
                    let children = grandchildren.len();
                    return Err(TreeError::TooManyChildren { switch, children });
                }
                children.extend(cut(switch, grandchildren).into_iter().map(Branching::Station));
            }
        }
    }
    Ok(children)
}

/// As many stations at a node as its children need.
fn cut(at: NodeId, children: Vec<Branching>) -> Vec<Sketch> {
    let mut stations: Vec<Sketch> = Vec::new();
    for child in children {
        match stations.last_mut() {
            Some(station) if station.children.len() < FAN_IN => station.children.push(child),
            _ => stations.push(Sketch { at, children: vec![child] }),
        }
    }
    stations
}

/// Gives levels, places and positions.
struct Numbering<'a> {
    server: NodeId,
    members: &'a [Member],
    stations: Vec<Station>,
    leaves: Vec<Option<Leaf>>,
    ranks: Vec<u32>,
    /// Fan-ins and places on the path from the top to where it stands.
    fan_ins: [u8; LEVELS],
    places: [u8; LEVELS],
}

impl<'a> Numbering<'a> {
    fn new(server: NodeId, members: &'a [Member]) -> Numbering<'a> {
        Numbering {
            server,
            members,
            stations: Vec::new(),
            leaves: vec![None; members.len()],
            ranks: Vec::new(),
            fan_ins: [0; LEVELS],
            places: [0; LEVELS],
        }
    }

    fn levels(&self, sketch: &Sketch) -> usize {
        let below = |child: &Branching| match child {
            Branching::Worker(_) => 0,
            Branching::Station(station) => self.levels(station),
        };
        1 + sketch.children.iter().map(below).max().unwrap_or(0)
    }

    fn check_depth(&self, root: &Sketch) -> Result<(), TreeError> {
        let levels = self.levels(root);
        if levels <= LEVELS {
            return Ok(());
        }
        let deepest = (0..).zip(self.members).max_by_key(|(_, member)| member.path.len());
        Err(TreeError::TooDeep { worker: deepest.map_or(0, |(rank, _)| rank), levels })
    }

    /// Enters a station and everything below it, and tells its index.
    fn enter(
        &mut self,
        sketch: Sketch,
        level: u8,
        parent: Option<usize>,
        upper_places: [u8; LEVELS],
    ) -> usize {
        let index = self.stations.len();
        let first_position = self.ranks.len() as u32;
        let slot = usize::from(level);
        let fan_in = sketch.children.len() as u8;
        self.stations.push(Station {
            at: sketch.at,
            level,
            parent,
            upper_places,
            children: Vec::new(),
            positions: 0..0,
        });
        for (place, child) in (0..).zip(sketch.children) {
            self.fan_ins[slot] = fan_in;
            self.places[slot] = place;
            let child = match child {
                Branching::Worker(rank) => self.position(rank, level, sketch.at),
                Branching::Station(below) => {
                    Child::Station(self.enter(below, level - 1, Some(index), self.places))
                }
            };
            self.stations[index].children.push(child);
        }
        (self.fan_ins[slot], self.places[slot]) = (0, 0);
        self.stations[index].positions = first_position..self.ranks.len() as u32;
        index
    }

    fn position(&mut self, rank: u32, level: u8, first_hop: NodeId) -> Child {
        // What lies below its station belongs to others.
        let (mut fan_ins, mut places) = (self.fan_ins, self.places);
        fan_ins[..usize::from(level)].fill(0);
        places[..usize::from(level)].fill(0);
        let branch = Branch::new(fan_ins, places).expect("stations hold what a bitmap can name");
        let position = self.ranks.len() as u32;
        self.ranks.push(rank);
        let node = self.members[rank as usize].node;
        self.leaves[rank as usize] = Some(Leaf { node, branch, first_hop, position });
        Child::Worker(rank)
    }

    fn finish(self) -> Tree {
        let mut tree = Tree {
            server: self.server,
            stations: self.stations,
            leaves: self
                .leaves
                .into_iter()
                .map(|leaf| leaf.expect("every rank is below"))
                .collect(),
            ranks: self.ranks,
            top_nodes: Vec::new(),
        };
        let mut nodes = Vec::new();
        tree.collect_tops(0, &mut nodes);
        tree.top_nodes = nodes;
        tree
    }
}

impl Tree {
    /// Each node right below the server once: several stations of a switch get one copy.
    fn collect_tops(&self, index: usize, nodes: &mut Vec<NodeId>) {
        let station = &self.stations[index];
        if station.at != self.server {
            if !nodes.contains(&station.at) {
                nodes.push(station.at);
            }
            return;
        }
        for child in &station.children {
            match *child {
                Child::Worker(rank) => nodes.push(self.node(rank)),
                Child::Station(below) => self.collect_tops(below, nodes),
            }
        }
    }
}
