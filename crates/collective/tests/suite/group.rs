//! The machines of whole groups, in one shape for both collectives.

use thalweg_collective::{Counters, Event, Failure, SubmitError, SumCall, ring, server};
use thalweg_core::{Check, NodeId, Operation, Reports, Time};
use thalweg_values::Tensor;

/// Operations that both collectives have.
pub trait Collective: Reports<Event = Event> + Check {
    fn submit(&mut self, now: Time, tensor: Tensor) -> Result<Operation, SubmitError>;
    fn submit_call(&mut self, now: Time, call: SumCall) -> Result<Operation, SubmitError>;
    fn counters(&self) -> Counters;
    fn failure(&self) -> Option<Failure>;
}

macro_rules! collective {
    ($machine:ty) => {
        impl Collective for $machine {
            fn submit(&mut self, now: Time, tensor: Tensor) -> Result<Operation, SubmitError> {
                <$machine>::submit(self, now, tensor)
            }

            fn submit_call(&mut self, now: Time, call: SumCall) -> Result<Operation, SubmitError> {
                <$machine>::submit(self, now, call)
            }

            fn counters(&self) -> Counters {
                <$machine>::counters(self)
            }

            fn failure(&self) -> Option<Failure> {
                <$machine>::failure(self)
            }
        }
    };
}

collective!(ring::Ring);
collective!(server::Node);

/// Nodes 0, 1, …
pub fn nodes(count: u32) -> Vec<NodeId> {
    (0..count).map(NodeId).collect()
}

/// A ring of the first nodes.
pub fn rings(workers: u32, change: impl Fn(&mut ring::Config)) -> Vec<ring::Ring> {
    let ring = |rank| {
        let mut config = ring::Config::new(nodes(workers), rank);
        change(&mut config);
        ring::Ring::new(config).expect("the test's settings work")
    };
    (0..workers).map(ring).collect()
}

/// The first nodes are workers. The servers are nodes from `first_server` on.
pub fn servers(
    workers: u32,
    first_server: u32,
    servers: u32,
    change: impl Fn(&mut server::Config),
) -> Vec<server::Node> {
    let last = workers.max(first_server + servers);
    let names = (first_server..first_server + servers).map(NodeId).collect();
    let mut config = server::Config::new(nodes(workers), names);
    change(&mut config);
    let node = |node| server::Node::new(config.clone().at(node)).expect("the test's settings work");
    (0..last).map(NodeId).map(node).collect()
}
