//! Networks of many hosts on one Linux machine.
//!
//! [`Lab::build`] makes hosts that share nothing but links of a given rate, in racks with a switch
//! each, and loses packets if asked to. [`Place`] runs commands and threads in them, [`Program`] a
//! command whose output is kept apart.
//!
//! Hosts and switches are network namespaces without a name, made and set up through netlink. The
//! machine's own network is never touched, and the kernel takes a lab down when the last process in it
//! is gone, however it ended: there is nothing to clean up, not even after `SIGKILL`.
//!
//! Linux only, and only for root. Tests that need a lab, or anything else that some machines lack, skip
//! through [`testing`].

mod builder;
mod error;
mod firewall;
mod inhabitants;
mod kernel;
mod lab;
mod link;
mod loss;
mod namespace;
mod place;
mod program;
mod queues;
mod routed;
mod shape;
mod spec;
mod sys;
pub mod testing;

pub use error::LabError;
pub use lab::Lab;
pub use place::{LinkCounters, Place};
pub use program::Program;
pub use queues::QueueCounters;
pub use spec::{
    MAX_HOSTS_PER_RACK, MAX_RACKS, MAX_ROUTED_LINKS, MAX_SERVERS, Queues, RoutedLinks, Spec,
    SpecError,
};
