//! A cluster at the level of flows: no packets, slot by slot.
//!
//! In every slot a [`Policy`] says how many bytes each flow sends; links and dependencies between the
//! flows of a job are checked here, whatever the policy. A job computes, sends, and computes again; it
//! begins and ends to send on the boundaries of slots, with every policy alike.

pub(crate) mod ccml;
pub(crate) mod cluster;
pub(crate) mod fair;
pub(crate) mod jobs;
pub(crate) mod mcs;
pub(crate) mod measure;
pub(crate) mod pacing;
mod ports;
mod share;
#[cfg(test)]
mod tests;
pub(crate) mod turns;
pub(crate) mod world;

pub(crate) use cluster::{Cluster, Shape};
pub(crate) use jobs::{Arrivals, Mix};
pub(crate) use world::{Progress, World};
