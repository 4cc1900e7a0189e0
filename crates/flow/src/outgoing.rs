//! All outgoing messages of an endpoint: who sends next, whose answer is overdue.

use std::collections::{BTreeMap, VecDeque};

use thalweg_core::{NodeId, Outbox, Time, Timers};
use thalweg_wire::flow::Ack;

use crate::config::Config;
use crate::message::{Event, FlowId, Message, StartError};
use crate::sender::{Outcome, Path, Sender};

/// Outgoing messages in places that are used again.
pub(crate) struct Outgoing {
    senders: Vec<Sender>,
    vacant: Vec<u32>,
    /// Who may have something to send, in turn. Each place stands in it at most once.
    ready: VecDeque<u32>,
    timers: Timers,
    /// What the last messages have learned, if that is wanted.
    paths: BTreeMap<NodeId, Path>,
    /// The running number of the next message: above all numbers so far.
    sequence: u64,
    /// Of all messages so far.
    retransmissions: u64,
}

impl Outgoing {
    /// No messages yet; the first gets the number `first_message`.
    pub fn new(first_message: u64) -> Outgoing {
        Outgoing {
            senders: Vec::new(),
            vacant: Vec::new(),
            ready: VecDeque::new(),
            timers: Timers::default(),
            paths: BTreeMap::new(),
            sequence: first_message,
            retransmissions: 0,
        }
    }

    /// Starts a message with the number `chosen`, or the next one.
    pub fn start(
        &mut self,
        config: &Config,
        now: Time,
        message: Message,
        chosen: Option<u64>,
    ) -> Result<FlowId, StartError> {
        let number = chosen.unwrap_or(self.sequence);
        let slot = self.vacant_slot(config)?;
        let flow = FlowId::new(number, slot);
        let known = self.paths.get(&message.dst);
        let path = known.map_or_else(|| Path::new(config), Path::for_next);
        self.senders[slot as usize].begin(config, now, flow, message, path)?;
        self.sequence = self.sequence.max(number + 1);
        self.vacant.pop();
        self.enqueue_if_ready(config, slot);
        Ok(flow)
    }

    /// The place on top of the vacant ones.
    fn vacant_slot(&mut self, config: &Config) -> Result<u32, StartError> {
        if let Some(&slot) = self.vacant.last() {
            return Ok(slot);
        }
        let slot = self.senders.len() as u32;
        if slot >> FlowId::SLOT_BITS != 0 {
            return Err(StartError::TooMany);
        }
        self.senders.push(Sender::vacant(config));
        self.vacant.push(slot);
        Ok(slot)
    }

    /// How many messages are on the way.
    pub fn live(&self) -> usize {
        self.senders.len() - self.vacant.len()
    }

    /// Transmissions so far that were not the first of their packet.
    pub fn retransmissions(&self) -> u64 {
        self.retransmissions
    }

    /// Whether somebody may have something to send.
    #[inline]
    pub fn has_backlog(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Sends one packet of the message whose turn it is. `None` if there is none, or no room.
    #[inline]
    pub fn send(&mut self, config: &Config, now: Time, outbox: &mut dyn Outbox) -> Option<()> {
        loop {
            let slot = *self.ready.front()?;
            let sender = &mut self.senders[slot as usize];
            let was_ready = sender.is_ready(config);
            if was_ready {
                self.retransmissions += u64::from(sender.send(config, now, outbox)?);
                self.timers.arm(slot, sender.deadline);
            }
            self.ready.pop_front();
            if sender.is_ready(config) {
                self.ready.push_back(slot);
            } else {
                sender.is_queued = false;
            }
            if was_ready {
                return Some(());
            }
        }
    }

    /// Takes in an acknowledgement. Returns whether it made sense.
    #[inline]
    pub fn on_ack(
        &mut self,
        config: &Config,
        now: Time,
        src: NodeId,
        ack: &Ack,
        events: &mut VecDeque<Event>,
    ) -> bool {
        let slot = FlowId(ack.flow).slot();
        let Some(sender) = self.senders.get_mut(slot as usize) else { return false };
        if !sender.is_live || sender.flow.0 != ack.flow {
            // Late answers come when a message is done and its place has the next one.
            return FlowId(ack.flow).number() < self.sequence;
        }
        match sender.on_ack(config, now, src, ack) {
            Outcome::Rejected => return false,
            Outcome::Continues => {
                self.timers.arm(slot, sender.deadline);
                self.enqueue_if_ready(config, slot);
            }
            Outcome::Complete => {
                if config.remembers_paths {
                    let (dst, path) = sender.lesson();
                    self.paths.insert(dst, path.clone());
                }
                events.push_back(Event::Sent(sender.finish(now)));
                self.vacant.push(slot);
            }
        }
        true
    }

    #[inline]
    fn enqueue_if_ready(&mut self, config: &Config, slot: u32) {
        let sender = &mut self.senders[slot as usize];
        if !sender.is_queued && sender.is_ready(config) {
            sender.is_queued = true;
            self.ready.push_back(slot);
        }
    }

    /// When an answer may be overdue next.
    #[inline]
    pub fn next_timeout(&self) -> Time {
        self.timers.next()
    }

    pub fn handle_timeout(&mut self, config: &Config, now: Time, events: &mut VecDeque<Event>) {
        while let Some(slot) = self.timers.pop_due(now) {
            let sender = &mut self.senders[slot as usize];
            if !sender.awaits_answer() {
                continue;
            }
            if sender.deadline > now {
                self.timers.arm(slot, sender.deadline);
            } else if sender.on_timeout(config, now) {
                self.enqueue_if_ready(config, slot);
            } else {
                events.push_back(Event::Failed(sender.finish(now)));
                self.vacant.push(slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_takes_few_cache_lines() {
        assert!(size_of::<Sender>() <= 512, "{} bytes", size_of::<Sender>());
    }
}
