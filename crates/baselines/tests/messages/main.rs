//! NDP, pFabric and Homa in the fabric: every message arrives exactly once, whatever the network does, and
//! each does what it is known for.

mod homa;
mod ndp;
mod pfabric;
mod ranks;
mod stage;
mod swarm;
