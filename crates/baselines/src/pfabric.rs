//! pFabric: ranks decide everything in the network, and hosts hardly control their rates.
//!
//! Every packet carries the bytes that its flow has yet to bring over, its *rank*. Ports with small
//! buffers send the packet of the smallest rank and drop that of the largest
//! (`Urgency` of `thalweg-fabric`), so that the shortest remaining flow has the network for
//! itself. A host does the same with its own flows. A flow starts with a window of a whole
//! bandwidth-delay product. Losses show only by a short timeout; a window then starts again from one
//! packet. A flow that times out several times in a row is starved by more urgent ones: it sends
//! small probes until one is answered.
//!
//! Packets of one flow keep one entropy, by which ports know them as one flow: switches have to
//! spray them themselves.

mod config;
mod ranked;
#[cfg(test)]
mod tests;
mod window;

pub use config::Config;
pub use ranked::Ranked;
pub use thalweg_transport::MessageConfigError as ConfigError;

/// Sends and receives the messages of one node, the shortest remaining first.
pub type Endpoint = thalweg_transport::Endpoint<Ranked>;
