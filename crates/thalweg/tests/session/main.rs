//! Sessions over real sockets on loopback, with a real server and a real switch.

mod agreement;
mod bounded;
mod cluster;
mod collectives;
mod deliveries;
mod limits;
mod pacing;
mod precision;

use cluster::Cluster;
