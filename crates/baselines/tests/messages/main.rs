//! NDP and pFabric in the fabric: every message arrives exactly once, whatever the network does, and
//! each does what it is known for.

mod ndp;
mod pfabric;
mod stage;
mod swarm;
