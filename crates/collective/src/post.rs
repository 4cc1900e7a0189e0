//! Carrier, events and counts that every part of a collective sends with.

use std::collections::VecDeque;

use thalweg_core::{Bytes, Mismatch, NodeId, Operation, Tag, Time};
use thalweg_flow::{FlowId, StartError};
use thalweg_wire::frame::SumFrame;

use crate::block::Block;
use crate::carrier::{Carrier, NumberedMessage, Phase};
use crate::config::ConfigError;
use crate::delivery::SumDelivery;
use crate::event::{Event, Failure};
use crate::plan::Finished;

/// Number of messages that a member may send: half of the numbers of its endpoint, which begins in the
/// other half at most.
pub(crate) const MAX_MESSAGES: u64 = FlowId::NUMBERS / 2;

/// The message that says that a member has stopped. No piece has its number.
pub(crate) const STOP_MESSAGE: u64 = MAX_MESSAGES - 1;

/// Counts of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Payload of all messages that were handed to the transport. What stays in a node is not
    /// counted.
    pub sent_bytes: Bytes,
    /// Operations that ended well.
    pub finished_operations: u64,
    /// Messages that came and that nobody waited for. Honest peers send none; the transport can
    /// repeat one, see [`thalweg_flow::Endpoint`].
    pub refused_messages: u64,
    /// Bytes that did not arrive of messages that were complete without them. Flows lose nothing.
    pub lost_bytes: Bytes,
}

/// A member's carrier, and its events for the application.
pub struct Post<E = Event> {
    /// The time of the call that the member is in.
    pub(crate) now: Time,
    pub(crate) carrier: Carrier,
    pub(crate) events: VecDeque<E>,
    pub(crate) counters: Counters,
}

impl<E> Post<E> {
    pub(crate) fn new(
        flow: thalweg_flow::Config,
        tag: Tag,
        delivery: Option<SumDelivery>,
    ) -> Result<Post<E>, ConfigError> {
        let carrier = Carrier::new(flow, tag, delivery)?;
        let (events, counters) = (VecDeque::new(), Counters::default());
        Ok(Post { now: Time::ZERO, carrier, events, counters })
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, dst: NodeId, message: NumberedMessage) -> Result<(), StartError> {
        self.counters.sent_bytes += message.block.bytes();
        self.carrier.send(self.now, dst, message)
    }

    /// Counts so far.
    pub(crate) fn counters(&self) -> Counters {
        let lost_bytes = match &self.carrier {
            Carrier::Flow(_) => Bytes::ZERO,
            Carrier::Deliver(carrier) => Bytes::new(carrier.lost_bytes),
        };
        Counters { lost_bytes, ..self.counters }
    }

    /// Sends word to a node that this one has stopped, because two workers differ.
    pub(crate) fn send_stop(&mut self, dst: NodeId, mismatch: Mismatch) {
        let message = NumberedMessage::new(STOP_MESSAGE, Block::empty(self.carrier.form()));
        let frame = Some(SumFrame::Stop(mismatch));
        // Where this fails, silence tells the other.
        let _ = self.send(dst, NumberedMessage { phase: Phase::Result, frame, ..message });
    }

    /// Notes that a message came that nobody waits for.
    pub(crate) fn refuse(&mut self) {
        self.counters.refused_messages += 1;
    }
}

impl Post {
    /// Hands out a sum.
    pub(crate) fn finish(&mut self, finished: Finished) {
        let Finished { operation, tensor, coverage } = finished;
        self.counters.finished_operations += 1;
        self.events.push_back(Event::Finished { operation, tensor, coverage });
    }

    /// Tells that operations will not end well.
    pub(crate) fn fail(&mut self, operations: Vec<Operation>, failure: Failure) {
        let failed = |operation| Event::Failed { operation, failure };
        self.events.extend(operations.into_iter().map(failed));
    }
}
