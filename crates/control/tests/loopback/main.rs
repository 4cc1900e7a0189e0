//! The service and its clients over real connections on loopback.

mod access;
mod failing;
mod joining;
mod resuming;
mod stage;
