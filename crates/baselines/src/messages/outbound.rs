//! All outgoing messages of a host, in places that are used again.

use slab::Slab;
use thalweg_core::{NodeId, Span, Time, Timers};
use thalweg_transport::messages::{Event, FlowId, Message, Ready, StartError};
use thalweg_transport::{Inbox, MessageConfig};
use thalweg_wire::flow::Ack;

use super::Transfer;

/// Outgoing messages, each with what a transport keeps about it.
#[derive(Debug)]
pub(crate) struct Outbound<S> {
    messages: Slab<Outgoing<S>>,
    /// Messages that may send, the smallest rank first.
    ready: Ready<u64>,
    /// Wakes of the places.
    pub(crate) timers: Timers,
}

/// An outgoing message and what a transport keeps about it.
#[derive(Debug)]
pub(crate) struct Outgoing<S> {
    pub(crate) transfer: Transfer,
    pub(crate) state: S,
    /// Rank among the messages that may send, while it is one of them.
    pub(crate) queued: Option<u64>,
}

impl<S> Default for Outbound<S> {
    fn default() -> Outbound<S> {
        Outbound { messages: Slab::new(), ready: Ready::default(), timers: Timers::default() }
    }
}

impl<S> Outbound<S> {
    /// Puts a message into a place.
    pub(crate) fn start(
        &mut self,
        config: &MessageConfig,
        now: Time,
        number: u64,
        message: Message,
        state: S,
    ) -> Result<FlowId, StartError> {
        let entry = self.messages.vacant_entry();
        let slot = entry.key() as u32;
        if slot >> FlowId::SLOT_BITS != 0 {
            return Err(StartError::TooMany);
        }
        let flow = FlowId::new(number, slot);
        let transfer = Transfer::new(config, now, flow, message)?;
        entry.insert(Outgoing { transfer, state, queued: None });
        Ok(flow)
    }

    /// The message in a place, if there is one.
    pub(crate) fn at(&mut self, slot: u32) -> Option<&mut Outgoing<S>> {
        self.messages.get_mut(slot as usize)
    }

    /// The message that an answer is about, if it is still being sent.
    pub(crate) fn find(&mut self, flow: FlowId) -> Option<&mut Outgoing<S>> {
        self.at(flow.slot()).filter(|outgoing| outgoing.transfer.flow == flow)
    }

    /// Number of messages that are being sent.
    pub(crate) fn live(&self) -> usize {
        self.messages.len()
    }

    /// Takes in an acknowledgement. Gives its message, unless it has ended, and how many packets have newly
    /// arrived.
    pub(crate) fn on_ack(
        &mut self,
        inbox: &mut Inbox,
        now: Time,
        src: NodeId,
        ack: &Ack,
    ) -> Option<(&mut Outgoing<S>, u32)> {
        let flow = FlowId(ack.flow);
        let transfer = &mut self.find(flow)?.transfer;
        let arrived = transfer.on_answer(now, src, ack)?;
        if transfer.unanswered() == 0 {
            let sent = Event::Sent(transfer.end(now));
            self.end(inbox, flow.slot(), sent);
            return None;
        }
        Some((self.find(flow)?, arrived))
    }

    /// Takes in leave to send. Gives the message that it is for, if it comes from the right node.
    pub(crate) fn on_credit(
        &mut self,
        now: Time,
        src: NodeId,
        flow: FlowId,
    ) -> Option<&mut Outgoing<S>> {
        let outgoing = self.find(flow).filter(|outgoing| src == outgoing.transfer.dst)?;
        outgoing.transfer.received_at = now;
        Some(outgoing)
    }

    /// Wakes a place. Gives its message if nothing has happened `after` the moment that `since` says, and
    /// nobody has given it up.
    pub(crate) fn wake(
        &mut self,
        inbox: &mut Inbox,
        config: &MessageConfig,
        now: Time,
        slot: u32,
        after: Span,
        since: impl Fn(&Outgoing<S>) -> Option<Time>,
    ) -> Option<&mut Outgoing<S>> {
        let outgoing = self.at(slot)?;
        let deadline = since(outgoing)? + after;
        if deadline > now {
            self.timers.arm(slot, deadline);
            return None;
        }
        if now.since(outgoing.transfer.received_at) >= config.give_up_after {
            let failed = Event::Failed(outgoing.transfer.end(now));
            self.end(inbox, slot, failed);
            return None;
        }
        self.at(slot)
    }

    fn end(&mut self, inbox: &mut Inbox, slot: u32, event: Event) {
        self.queue(slot, None);
        self.messages.try_remove(slot as usize);
        inbox.events.push_back(event);
    }

    /// Puts a message where its rank belongs among those that may send, or takes it away if it has none.
    pub(crate) fn queue(&mut self, slot: u32, rank: Option<u64>) {
        if let Some(outgoing) = self.messages.get_mut(slot as usize) {
            self.ready.put(slot, &mut outgoing.queued, rank);
        }
    }

    /// The place of the message that may send next.
    pub(crate) fn next(&self) -> Option<u32> {
        self.ready.first().map(|(_, slot)| slot)
    }

    /// True if a message may send.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }
}
