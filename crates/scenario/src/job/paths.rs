//! Switches that may sum for a worker.

use thalweg_core::NodeId;
use thalweg_fabric::Topology;

use super::{Collective, Job};

/// The switches from each worker to each server, by rank, then by server.
///
/// Always the worker's rack switch. Unless only racks sum, also that of the server, and with three
/// levels one switch right above the worker's rack: the same for all workers of a rack, and for all
/// racks that have the same switches above them. `turn` chooses among several, so that jobs and servers
/// spread.
pub(crate) fn paths(
    topology: &Topology,
    job: &Job,
    levels: u32,
    turn: usize,
) -> Vec<Vec<Vec<NodeId>>> {
    let mut paths = vec![Vec::new(); job.workers.len()];
    for (shard, &server) in job.servers.iter().enumerate() {
        let way = Way::to(topology, server, turn + shard);
        for (path, &worker) in paths.iter_mut().zip(&job.workers) {
            // spec: A-53
            path.push(match job.collective {
                Collective::RackOnly => way.up(worker, 1),
                _ => way.up(worker, levels),
            });
        }
    }
    paths
}

/// The switch that a host is connected to, if it is one.
pub(crate) fn rack_switch(topology: &Topology, host: NodeId) -> Option<NodeId> {
    Some(topology.edge_of(host)).filter(|&edge| !topology.is_host(edge))
}

/// All ways to one server.
struct Way<'a> {
    topology: &'a Topology,
    /// The server's rack switch; `None` where it has none.
    last: Option<NodeId>,
    /// By node, how far that is.
    distances: Vec<u32>,
    turn: usize,
}

impl Way<'_> {
    fn to(topology: &Topology, server: NodeId, turn: usize) -> Way<'_> {
        let last = rack_switch(topology, server);
        let distances = topology.distances(last.unwrap_or(server));
        Way { topology, last, distances, turn }
    }

    fn up(&self, worker: NodeId, levels: u32) -> Vec<NodeId> {
        let (Some(first), Some(last)) = (rack_switch(self.topology, worker), self.last) else {
            return Vec::new();
        };
        let mut path = vec![first];
        if levels >= 3 {
            path.extend(self.above(first).filter(|&middle| middle != last));
        }
        if levels >= 2 && first != last {
            path.push(last);
        }
        path
    }

    /// One of the switches that are a step nearer to the server.
    fn above(&self, switch: NodeId) -> Option<NodeId> {
        let distance = |node: NodeId| self.distances[node.index()];
        let neighbours =
            self.topology.links_out(switch).iter().map(|&link| self.topology.link_ends(link).1);
        let mut nearer: Vec<NodeId> =
            neighbours.filter(|&node| distance(node) < distance(switch)).collect();
        nearer.retain(|&node| !self.topology.is_host(node));
        nearer.sort_unstable();
        nearer.dedup();
        nearer.get(self.turn % nearer.len().max(1)).copied()
    }
}
