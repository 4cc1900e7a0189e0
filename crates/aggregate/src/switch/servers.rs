//! The servers that a switch sends to.

use std::collections::{HashSet, VecDeque};

use foldhash::fast::FixedState;
use thalweg_core::NodeId;

/// Servers that packets sealed by servers have named: announcements, probes, results and requests. What a worker names is
/// an address like any other.
// spec: E-13
#[derive(Debug)]
pub(super) struct Servers {
    /// Never iterated.
    known: HashSet<NodeId, FixedState>,
    /// The same, the first one that was named at the front.
    order: VecDeque<NodeId>,
    servers_max: usize,
    /// The one that was found last: nearly every packet names it again.
    found: Option<NodeId>,
}

impl Servers {
    pub(super) fn new(servers_max: u32) -> Servers {
        let servers_max = servers_max as usize;
        Servers {
            // A table that is never more than half full cleans itself up where it is.
            known: HashSet::with_capacity_and_hasher(2 * servers_max, FixedState::default()),
            order: VecDeque::with_capacity(servers_max),
            servers_max,
            found: None,
        }
    }

    #[inline]
    pub(super) fn contains(&mut self, server: NodeId) -> bool {
        if self.found == Some(server) {
            return true;
        }
        let is_known = self.known.contains(&server);
        if is_known {
            self.found = Some(server);
        }
        is_known
    }

    /// Takes in a server that a sealed packet has named. Where there is no room, the first one goes; it is named again.
    pub(super) fn name(&mut self, server: NodeId) {
        if self.contains(server) {
            return;
        }
        if self.order.len() == self.servers_max
            && let Some(first) = self.order.pop_front()
        {
            self.known.remove(&first);
            self.found = None;
        }
        self.known.insert(server);
        self.order.push_back(server);
    }

    /// Panics where the two views of the servers differ.
    // spec: T-12
    pub(super) fn check(&self) {
        assert_eq!(self.known.len(), self.order.len(), "servers that are known");
        assert!(self.order.len() <= self.servers_max, "the number of servers is bounded");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_one_goes_where_there_is_no_room() {
        let mut servers = Servers::new(2);
        assert!(!servers.contains(NodeId(1)));
        for server in [1, 2, 1, 3] {
            servers.name(NodeId(server));
            servers.check();
        }
        assert!(!servers.contains(NodeId(1)));
        assert!(servers.contains(NodeId(2)) && servers.contains(NodeId(3)));
        servers.name(NodeId(1));
        assert!(servers.contains(NodeId(1)) && !servers.contains(NodeId(2)));
    }
}
