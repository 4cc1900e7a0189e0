//! Collectives on a [`Shuttle`].

use thalweg_collective::Event;
pub use thalweg_core::testing::Shuttle;
use thalweg_core::{NodeId, Operation};
use thalweg_values::Tensor;

use crate::group::Collective;

/// Sums over a shuttle.
pub trait Sums {
    fn submit(&mut self, node: usize, tensor: Tensor) -> Operation;

    /// The sums that a node got, by operation.
    fn sums(&self, node: usize) -> Vec<(u64, Tensor)>;
}

impl<M: Collective> Sums for Shuttle<M> {
    fn submit(&mut self, node: usize, tensor: Tensor) -> Operation {
        self.command(node, |machine, now| machine.submit(now, tensor)).expect("it is a worker")
    }

    fn sums(&self, node: usize) -> Vec<(u64, Tensor)> {
        let own = self.events.iter().filter(|(at, _)| at.index() == node);
        let sum = |(_, event): &(NodeId, Event)| match event {
            Event::Finished { operation, tensor, .. } => (operation.0, tensor.clone()),
            Event::Failed { operation, failure } => panic!("{operation:?} failed: {failure}"),
        };
        let mut sums: Vec<_> = own.map(sum).collect();
        sums.sort_by_key(|(operation, _)| *operation);
        sums
    }
}
