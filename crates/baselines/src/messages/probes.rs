//! Messages that have a probe to send.

use std::collections::VecDeque;

use thalweg_transport::messages::FlowId;

use super::{Outbound, Outgoing};

/// Messages with a probe to send, in turn; some perhaps gone, or answered meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    turns: VecDeque<FlowId>,
}

impl Probes {
    /// A message has one to send.
    pub(crate) fn push(&mut self, flow: FlowId) {
        self.turns.push_back(flow);
    }

    /// The message whose turn it is, of those that are still probing by `is_probing`. It stays until [`Probes::pop`].
    pub(crate) fn next<'a, S>(
        &mut self,
        outbound: &'a mut Outbound<S>,
        is_probing: impl Fn(&S) -> bool,
    ) -> Option<&'a mut Outgoing<S>> {
        loop {
            let flow = *self.turns.front()?;
            if outbound.find(flow).is_some_and(|own| is_probing(&own.state)) {
                return outbound.find(flow);
            }
            self.turns.pop_front();
        }
    }

    /// The probe of whose turn it was has left.
    pub(crate) fn pop(&mut self) {
        self.turns.pop_front();
    }

    pub(crate) fn are_waiting(&self) -> bool {
        !self.turns.is_empty()
    }
}
