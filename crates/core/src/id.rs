//! Names of things that packets and machines refer to.

use std::fmt;

/// A host or a switch. In the simulator an index into the topology, on a network the address itself: the
/// part of it in which the nodes of a cluster differ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The index for tables that are dense in nodes, as the simulator's are.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A job: the random 64-bit incarnation that it draws when it is set up, so that two jobs, or two
/// lives of one job, never share an identity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct JobId(pub u64);

/// Names a collective operation of one worker: counted from 0 in the order of the calls, never used
/// again in a job's life. The same number is the same operation at every worker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Operation(pub u64);

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {:016x}", self.0)
    }
}
