//! Endpoints against each other: by hand, in the fabric with faults, and in front of hostile packets.

mod alone;
mod classes;
mod congestion;
mod controls;
mod exchange;
mod hostile;
mod paths;
mod repair;
mod rules;
mod shuttle;
mod stage;
mod swarm;
mod values;
