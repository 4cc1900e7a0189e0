//! The director: it runs the experiment.

use thalweg_core::{NodeId, Reports, Time};

use crate::fabric::Program;

/// Starts flows, hears what happened, decides what comes next. It is to the machines what an
/// application is to a transport.
pub trait Director<M: Reports> {
    /// When it next wants [`handle_wake`](Director::handle_wake); asked again after every call.
    fn next_wake(&mut self) -> Time;

    /// Handles the moment of [`next_wake`](Director::next_wake).
    fn handle_wake(&mut self, now: Time, hosts: &mut Hosts<'_, M>);

    /// The machine of a host reported something.
    fn handle_event(&mut self, now: Time, node: NodeId, event: M::Event, hosts: &mut Hosts<'_, M>);

    /// A host comes back after an outage: the machine it starts again with in place of `old`, or
    /// `None` if it kept its memory.
    fn handle_restart(&mut self, _now: Time, _host: NodeId, _old: &M) -> Option<M> {
        None
    }

    /// A switch with a program comes back after an outage: the program it starts again with, or
    /// `None` if it kept its memory.
    fn handle_switch_restart(&mut self, _now: Time, _switch: NodeId) -> Option<Program> {
        None
    }

    /// True if the run may end.
    fn is_done(&mut self) -> bool {
        false
    }
}

/// Access to the hosts' machines for commands.
pub struct Hosts<'a, M> {
    pub(crate) machines: &'a mut [M],
    pub(crate) touched: &'a mut Vec<NodeId>,
}

impl<M> Hosts<'_, M> {
    /// The machine of a host, to call commands on. What it then wants to send is taken right after
    /// the director's call.
    pub fn machine(&mut self, host: NodeId) -> &mut M {
        self.touched.push(host);
        &mut self.machines[host.index()]
    }

    /// Number of hosts.
    pub fn len(&self) -> usize {
        self.machines.len()
    }

    /// True if there are no hosts.
    pub fn is_empty(&self) -> bool {
        self.machines.is_empty()
    }
}

/// Does nothing: for runs whose machines need no application.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bystander;

impl<M: Reports> Director<M> for Bystander {
    fn next_wake(&mut self) -> Time {
        Time::NEVER
    }

    fn handle_wake(&mut self, _now: Time, _hosts: &mut Hosts<'_, M>) {}

    fn handle_event(&mut self, _: Time, _: NodeId, _: M::Event, _: &mut Hosts<'_, M>) {}
}
