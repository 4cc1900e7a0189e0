//! Servers, racks and pods, and the links between them.

use thalweg_core::Rate;
use thalweg_pace::Settings;

/// Size of a cluster.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) pods: usize,
    pub(crate) racks_per_pod: usize,
    pub(crate) servers_per_rack: usize,
    pub(crate) gpus_per_server: u32,
    /// Of a server's, a rack's and a pod's link, each way.
    pub(crate) gbps: [u64; 3],
}

/// A tree of three tiers. Links are numbered: the servers' to and from the network, the racks', the pods'.
#[derive(Clone)]
pub(crate) struct Cluster {
    shape: Shape,
    /// By link, bytes a slot.
    capacity: Vec<u64>,
}

impl Cluster {
    pub(crate) fn new(shape: Shape, settings: &Settings) -> Cluster {
        let racks = shape.pods * shape.racks_per_pod;
        let counts = [racks * shape.servers_per_rack, racks, shape.pods];
        let tiers = counts.into_iter().zip(shape.gbps);
        let capacity = tiers.flat_map(|(count, gbps)| {
            std::iter::repeat_n(settings.bytes_a_slot(Rate::from_gbps(gbps)), 2 * count)
        });
        Cluster { shape, capacity: capacity.collect() }
    }

    pub(crate) fn servers(&self) -> usize {
        self.racks() * self.shape.servers_per_rack
    }

    fn racks(&self) -> usize {
        self.shape.pods * self.shape.racks_per_pod
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// By link, bytes a slot.
    pub(crate) fn capacity(&self) -> &[u64] {
        &self.capacity
    }

    /// The link from a server into the network.
    pub(crate) fn up(&self, server: usize) -> usize {
        server
    }

    /// The link from the network to a server.
    pub(crate) fn down(&self, server: usize) -> usize {
        self.servers() + server
    }

    /// The links from one server to another, in order.
    pub(crate) fn path(&self, from: usize, to: usize) -> Vec<usize> {
        let rack = |server: usize| server / self.shape.servers_per_rack;
        let pod = |server: usize| rack(server) / self.shape.racks_per_pod;
        let first_rack = 2 * self.servers();
        let first_pod = first_rack + 2 * self.racks();
        let mut path = vec![self.up(from)];
        if rack(from) != rack(to) {
            path.push(first_rack + rack(from));
            if pod(from) != pod(to) {
                path.push(first_pod + pod(from));
                path.push(first_pod + self.shape.pods + pod(to));
            }
            path.push(first_rack + self.racks() + rack(to));
        }
        path.push(self.down(to));
        path
    }
}
