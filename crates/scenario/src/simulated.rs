//! The host of a simulation: that of the product, with the published transports and the published
//! aggregation that it is compared with.

mod deliveries;
mod participant;
mod transport;

use thalweg_stack::Host;

pub(crate) use deliveries::Deliveries;
pub(crate) use participant::SimulatedParticipant;
pub(crate) use transport::{About, SimulatedTransport};

/// A host of a simulation.
pub(crate) type SimulatedHost = Host<SimulatedTransport, SimulatedParticipant>;
