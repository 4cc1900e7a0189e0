//! What every part of a collective sends with.

use std::collections::VecDeque;

use thalweg_core::{Bytes, NodeId, Operation, Tag, Tensor, Time};
use thalweg_flow::{Endpoint, FlowId, FlowTagger, Message, Payload, StartError};

use crate::config::ConfigError;
use crate::event::{Event, Failure};

/// How many messages a member may number: half of the numbers of its endpoint, which begins in the
/// other half at most.
pub(crate) const MAX_MESSAGES: u64 = FlowId::NUMBERS / 2;

/// What a member did so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Payload of all messages that were handed to the transport. What stays in a node is not
    /// counted.
    pub sent_bytes: Bytes,
    /// Operations that ended well.
    pub finished_operations: u64,
    /// Messages that came and that nobody waited for. Honest peers send none; the transport can
    /// repeat one, see [`Endpoint`].
    pub refused_messages: u64,
}

/// The endpoint, and what the application is to be told.
pub struct Post<E = Event> {
    pub(crate) endpoint: Endpoint,
    pub(crate) events: VecDeque<E>,
    pub(crate) counters: Counters,
    first_message: u64,
    tag: Tag,
}

impl<E> Post<E> {
    pub(crate) fn new(flow: thalweg_flow::Config, tag: Tag) -> Result<Post<E>, ConfigError> {
        let first_message = flow.first_message;
        let endpoint = Endpoint::new(flow)?;
        let counters = Counters::default();
        Ok(Post { endpoint, events: VecDeque::new(), counters, first_message, tag })
    }

    /// Sends the message with this index.
    pub(crate) fn send(
        &mut self,
        now: Time,
        dst: NodeId,
        index: u64,
        body: Payload,
    ) -> Result<(), StartError> {
        self.counters.sent_bytes += body.bytes();
        // Every message may take another path, as parallel connections do.
        let message =
            Message { dst, body, tagger: FlowTagger::Fixed(self.tag), entropy: index as u16 };
        let number = self.first_message + index;
        self.endpoint.start_numbered(now, number, message).map(|_| ())
    }

    /// The index that a message of a member was sent with.
    pub(crate) fn index(&self, flow: FlowId) -> Option<u64> {
        flow.number().checked_sub(self.first_message)
    }

    /// Notes that a message came that nobody waits for.
    pub(crate) fn refuse(&mut self) {
        self.counters.refused_messages += 1;
    }
}

impl Post {
    /// Hands out a sum.
    pub(crate) fn finish(&mut self, (operation, tensor): (Operation, Tensor)) {
        self.counters.finished_operations += 1;
        self.events.push_back(Event::Finished { operation, tensor });
    }

    /// Tells that operations will not end well.
    pub(crate) fn fail(&mut self, operations: Vec<Operation>, failure: Failure) {
        let failed = |operation| Event::Failed { operation, failure };
        self.events.extend(operations.into_iter().map(failed));
    }
}
