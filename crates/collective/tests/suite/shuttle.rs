//! Collectives on a [`Shuttle`].

use thalweg_collective::Event;
pub use thalweg_core::testing::Shuttle;
use thalweg_core::{NodeId, Operation};
use thalweg_values::{Coverage, Tensor};

use crate::group::Collective;

/// Sums over a shuttle.
pub trait Sums {
    fn submit(&mut self, node: usize, tensor: Tensor) -> Operation;

    /// The sums that a node got, by operation, with their coverages.
    fn results(&self, node: usize) -> Vec<(u64, Tensor, Coverage)>;

    /// The sums that a node got, by operation.
    fn sums(&self, node: usize) -> Vec<(u64, Tensor)> {
        let results = self.results(node).into_iter();
        results.map(|(operation, tensor, _)| (operation, tensor)).collect()
    }
}

impl<M: Collective> Sums for Shuttle<M> {
    fn submit(&mut self, node: usize, tensor: Tensor) -> Operation {
        self.command(node, |machine, now| machine.submit(now, tensor)).expect("it is a worker")
    }

    fn results(&self, node: usize) -> Vec<(u64, Tensor, Coverage)> {
        let own = self.events.iter().filter(|(at, _)| at.index() == node);
        let result = |(_, event): &(NodeId, Event)| match event {
            Event::Finished { operation, tensor, coverage } => {
                (operation.0, tensor.clone(), coverage.clone())
            }
            Event::Failed { operation, failure } => panic!("{operation:?} failed: {failure}"),
        };
        let mut results: Vec<_> = own.map(result).collect();
        results.sort_by_key(|(operation, _, _)| *operation);
        results
    }
}
