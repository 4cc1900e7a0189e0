//! Packets of those who wish ill, while an honest job sums: nothing panics, no sum changes, nothing
//! grows (T-06).
// spec: T-06 machine, sockets
#![allow(clippy::disallowed_methods, reason = "real networks take real sockets and real time")]

mod amplifier;
mod attacker;
mod attacks;
#[path = "../common/cluster.rs"]
mod cluster;
#[path = "../../../net/tests/counting/mod.rs"]
mod counting;
mod descriptors;
#[path = "../common/hand.rs"]
mod hand;
mod machines;
mod measure;
mod memory;
#[path = "../failures/process.rs"]
mod process;
mod roles;
mod sealed;
mod sockets;
mod tenants;
