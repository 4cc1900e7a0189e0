//! All outgoing messages of a host, in places that are used again.

use slab::Slab;
use thalweg_core::{Time, Timers};
use thalweg_flow::{Config, FlowId, Message, StartError};

use super::Transfer;

/// Outgoing messages, each with what a transport keeps about it.
#[derive(Debug)]
pub(crate) struct Outbound<S> {
    messages: Slab<Outgoing<S>>,
    next_number: u64,
    /// Wakes of the places.
    pub(crate) timers: Timers,
    /// Transmissions so far that were not the first of their packet.
    pub(crate) retransmissions: u64,
}

/// An outgoing message and what a transport keeps about it.
#[derive(Debug)]
pub(crate) struct Outgoing<S> {
    pub(crate) transfer: Transfer,
    pub(crate) state: S,
}

impl<S> Outbound<S> {
    pub(crate) fn new(config: &Config) -> Outbound<S> {
        Outbound {
            messages: Slab::new(),
            next_number: config.first_message,
            timers: Timers::default(),
            retransmissions: 0,
        }
    }

    /// Puts a message into a place.
    pub(crate) fn start(
        &mut self,
        config: &Config,
        now: Time,
        message: Message,
        state: S,
    ) -> Result<FlowId, StartError> {
        let entry = self.messages.vacant_entry();
        let slot = entry.key() as u32;
        if slot >> FlowId::SLOT_BITS != 0 {
            return Err(StartError::TooMany);
        }
        let flow = FlowId::new(self.next_number, slot);
        let transfer = Transfer::new(config, now, flow, message)?;
        entry.insert(Outgoing { transfer, state });
        self.next_number += 1;
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

    /// Makes a place vacant.
    pub(crate) fn end(&mut self, slot: u32) {
        self.messages.try_remove(slot as usize);
    }

    /// How many messages are being sent.
    pub(crate) fn live(&self) -> usize {
        self.messages.len()
    }
}
