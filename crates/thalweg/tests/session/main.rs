//! Sessions over real sockets on loopback, with a real server and a real switch.

mod agreement;
mod bounded;
mod cluster;
mod collectives;
mod cores;
mod deliveries;
mod direct;
mod halves;
mod importance;
mod limits;
mod pacing;
mod posted;
mod precision;
mod training;

use cluster::Cluster;
