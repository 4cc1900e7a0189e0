//! The programs that a cluster runs: switches that sum, and servers that complete sums and know who is
//! in which job. All that they remember can be lost: a daemon that is started again goes on.

mod cores;
mod memory;
mod mtu;
mod pilot;
mod secret;
mod server;
mod switch;

use std::net::SocketAddr;

use thalweg_core::NodeId;
use thalweg_net::Network;

pub use thalweg_control::JobSummary;
pub use thalweg_core::JobId;
pub use thalweg_wire::tag::{Generation, SameGeneration, Secret, Secrets};

use crate::error::{Error, ErrorKind};

pub use self::cores::default_cores;
pub(crate) use self::cores::default_threads;
pub use self::memory::MemoryBudget;
pub(crate) use self::mtu::{MTU_RANGE, check_mtu, is_mtu};
pub use self::secret::{Exposure, SecretError, exposure, read_secrets};
pub use self::server::{MemorySnapshot, ServerDaemon, ServerDaemonConfig, ServerSnapshot};
pub use self::switch::{SwitchDaemon, SwitchDaemonConfig, SwitchSnapshot};

/// Error of a daemon whose data path is gone.
fn has_ended() -> Error {
    Error::new(ErrorKind::System, "the data path has ended")
}

/// The node at an address, which is in its own network.
fn node_of(network: Network, address: SocketAddr) -> Result<NodeId, Error> {
    network.node(address).ok_or_else(|| Error::internal(format!("{address} has no node number")))
}
