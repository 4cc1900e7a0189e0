//! Ranks, switches and servers as processes that are killed, stopped and started again.
//!
//! Every failure is named, at every rank and in time; what comes back in time costs nothing but time.
// spec: T-07 sockets
#![allow(clippy::disallowed_methods, reason = "real processes take real time")]

mod daemons;
mod deaths;
mod disturbances;
mod interrupts;
mod lab;
mod measure;
mod process;
mod ranks;
mod restart;
mod roles;
mod rotation;
mod stage;
mod tenants;
mod threads;
