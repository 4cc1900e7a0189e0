//! The parameter server without switches: workers push chunks, servers send back the sums.
//!
//! With one server its link carries everything, W times. With N servers the chunks are dealt out in
//! turn; where every worker's host is a server too, each link carries as much as in a ring. What a
//! worker pushes to the server on its own host does not touch the network.
//!
//! A server adds the contributions to a chunk in the order of the ranks, whatever order they come
//! in, and sends one sum to all: the bits are the same at every worker and in every run.
// spec: A-51

mod config;
mod roles;
mod sums;
mod worker;

pub use config::Config;

use crate::config::ConfigError;
use crate::delivery::SumDelivery;
use crate::member::Member;
use crate::post::Post;

use roles::Roles;

/// A host with a worker, a server, or both, on one endpoint.
pub type Node = Member<Roles>;

impl Member<Roles> {
    /// A host without operations.
    pub fn new(config: Config) -> Result<Node, ConfigError> {
        let chunk_values = config.check()?;
        let ranks = config.workers.len() as u32;
        // What the worker of a server's own host pushes does not leave the host.
        let is_shared = config.servers.iter().all(|server| config.workers.contains(server));
        let senders = ranks - u32::from(is_shared);
        let delivery =
            config.delivery.clone().map(|delivery| SumDelivery { delivery, ranks, senders });
        let post = Post::new(config.flow.clone(), config.tag, delivery)?;
        Ok(Member::of(Roles::new(config, chunk_values), post))
    }
}
