//! Traffic for the network: flow sizes, arrivals, and the gradients of training jobs.
//!
//! Everything here is a value made from values: text that the caller has read, and a seeded
//! generator. Hosts are indices into the caller's list of hosts, so that a workload does not depend
//! on how a topology numbers its nodes.
//!
//! - [`sizes`]: how large flows are.
//! - [`arrivals`]: flows at a target load, incasts, permutations; [`trace`]: flows from a file.
//! - [`model`]: the layer table of a network; [`models`]: the built-in ones.
//! - [`costs`]: what lost gradients cost.
//! - [`training`]: when a job computes and when its gradients are ready; [`exchange`]: what it sends to
//!   parameter servers and gets back, as flows.

pub mod arrivals;
pub mod costs;
pub mod csv;
pub mod exchange;
pub mod model;
pub mod models;
pub mod sizes;
pub mod trace;
pub mod training;

pub use arrivals::{
    ArrivalError, FlowSpec, Incast, LayerOf, Pattern, PoissonArrivals, PoissonFlows, Until,
    permutation,
};
pub use costs::LossCost;
pub use csv::TableError;
pub use exchange::{Exchange, ExchangeError};
pub use model::{Layer, Model, ModelError, Tensor};
pub use sizes::{SizeDistribution, SizeError};
pub use training::{Buckets, Compute, IterationPlan, Ready, TrainingError, TrainingJob};
