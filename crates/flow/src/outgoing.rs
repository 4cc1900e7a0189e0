//! All outgoing messages of an endpoint: who sends next, whose answer is overdue.

use std::collections::{BTreeMap, VecDeque};

use thalweg_core::{NodeId, Outbox, PRIORITIES, Time, Timers};
use thalweg_wire::flow::Ack;

use crate::config::Config;
use crate::message::{Event, FlowId, Message, StartError};
use crate::sender::{Outcome, Path, Sender};

/// Outgoing messages in places that are used again.
pub(crate) struct Outgoing {
    senders: Vec<Sender>,
    vacant: Vec<u32>,
    ready: Ready,
    /// Answers that may be overdue.
    timers: Timers,
    /// Who may send again after a gap that its control keeps.
    releases: Timers,
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
            ready: Ready::default(),
            timers: Timers::default(),
            releases: Timers::default(),
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
        let path = match known {
            Some(path) => path.for_next(config, number),
            None => Path::new(config, number),
        };
        self.senders[slot as usize].begin(config, now, flow, message, path)?;
        self.sequence = self.sequence.max(number + 1);
        self.vacant.pop();
        self.enqueue_if_ready(config, now, slot);
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
            let slot = self.ready.first()?;
            let sender = &mut self.senders[slot as usize];
            let was_ready = sender.is_ready(config);
            if was_ready {
                self.retransmissions += u64::from(sender.send(config, now, outbox)?);
                self.timers.arm(slot, sender.deadline);
            }
            self.ready.remove_first();
            sender.queued = match sender.held_until(now) {
                None => sender.urgency(config),
                Some(at) => {
                    self.releases.arm(slot, at);
                    None
                }
            };
            if let Some(priority) = sender.queued {
                self.ready.push(slot, priority);
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
                self.enqueue_if_ready(config, now, slot);
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
    fn enqueue_if_ready(&mut self, config: &Config, now: Time, slot: u32) {
        let sender = &mut self.senders[slot as usize];
        if let Some(at) = sender.held_until(now) {
            self.releases.arm(slot, at);
            return;
        }
        let Some(priority) = sender.urgency(config) else { return };
        match sender.queued {
            // It keeps its turn, unless something has become more urgent.
            Some(before) if before <= priority => return,
            Some(before) => self.ready.remove(slot, before),
            None => {}
        }
        sender.queued = Some(priority);
        self.ready.push(slot, priority);
    }

    /// When an answer may be overdue next, or somebody may send again.
    #[inline]
    pub fn next_timeout(&self) -> Time {
        self.timers.next().min(self.releases.next())
    }

    pub fn handle_timeout(&mut self, config: &Config, now: Time, events: &mut VecDeque<Event>) {
        while let Some(slot) = self.releases.pop_due(now) {
            self.enqueue_if_ready(config, now, slot);
        }
        while let Some(slot) = self.timers.pop_due(now) {
            let sender = &mut self.senders[slot as usize];
            if !sender.awaits_answer() {
                continue;
            }
            if sender.deadline > now {
                self.timers.arm(slot, sender.deadline);
            } else if sender.on_timeout(config, now) {
                self.enqueue_if_ready(config, now, slot);
            } else {
                events.push_back(Event::Failed(sender.finish(now)));
                self.vacant.push(slot);
            }
        }
    }
}

/// Who may have something to send: the most urgent first, and in turn among equals. Each place stands
/// in it at most once.
#[derive(Debug, Default)]
struct Ready {
    by_priority: [VecDeque<u32>; PRIORITIES],
    /// A bit for each priority that somebody has.
    occupied: u8,
}

impl Ready {
    #[inline]
    fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    #[inline]
    fn first(&self) -> Option<u32> {
        self.by_priority.get(self.occupied.trailing_zeros() as usize)?.front().copied()
    }

    #[inline]
    fn remove_first(&mut self) {
        let priority = self.occupied.trailing_zeros() as usize;
        self.by_priority[priority].pop_front();
        self.forget_if_empty(priority);
    }

    #[inline]
    fn push(&mut self, slot: u32, priority: u8) {
        self.by_priority[usize::from(priority)].push_back(slot);
        self.occupied |= 1 << priority;
    }

    /// Searches: only for what became more urgent while it waited, which is rare.
    fn remove(&mut self, slot: u32, priority: u8) {
        let priority = usize::from(priority);
        self.by_priority[priority].retain(|&waiting| waiting != slot);
        self.forget_if_empty(priority);
    }

    #[inline]
    fn forget_if_empty(&mut self, priority: usize) {
        if self.by_priority[priority].is_empty() {
            self.occupied &= !(1 << priority);
        }
    }
}

impl Outgoing {
    /// Looks at every message. Panics where a place is counted twice or not at all, and where a message would
    /// wait for ever: ready and not in the queue, or in flight without a timer.
    // spec: T-12
    pub fn check(&self, config: &Config) {
        self.ready.check();
        let mut is_vacant = vec![false; self.senders.len()];
        for &slot in &self.vacant {
            let again = std::mem::replace(&mut is_vacant[slot as usize], true);
            assert!(!again, "place {slot} is vacant twice");
        }
        for (slot, sender) in (0..).zip(&self.senders) {
            assert_eq!(
                sender.is_live, !is_vacant[slot as usize],
                "a place is vacant or has a message"
            );
            assert_eq!(
                sender.queued,
                self.ready.priority_of(slot),
                "a message is in the queue of its priority, once"
            );
            if sender.is_live {
                self.check_live(config, slot, sender);
            }
        }
    }

    fn check_live(&self, config: &Config, slot: u32, sender: &Sender) {
        sender.check();
        if sender.awaits_answer() {
            let is_armed = self.timers.armed(slot) <= sender.deadline;
            assert!(is_armed, "a message that awaits an answer has a timer");
        }
        if sender.is_ready(config) {
            let is_held = self.releases.armed(slot) != Time::NEVER;
            assert!(sender.queued.is_some() || is_held, "a message that may send has its turn");
        }
    }
}

impl Ready {
    fn check(&self) {
        for (priority, waiting) in self.by_priority.iter().enumerate() {
            let is_occupied = self.occupied >> priority & 1 == 1;
            assert_eq!(
                is_occupied,
                !waiting.is_empty(),
                "priority {priority} has somebody waiting"
            );
        }
    }

    /// The priority that a place waits with. Panics if it waits more than once.
    fn priority_of(&self, slot: u32) -> Option<u8> {
        let waiting = (0..).zip(&self.by_priority).flat_map(|(priority, waiting)| {
            waiting.iter().filter(move |&&other| other == slot).map(move |_| priority)
        });
        let mut waiting = waiting;
        let first = waiting.next();
        assert!(waiting.next().is_none(), "place {slot} waits twice");
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_urgent_goes_first_and_equals_take_turns() {
        let mut ready = Ready::default();
        for (slot, priority) in [(1, 7), (2, 3), (3, 7), (4, 3), (5, 7)] {
            ready.push(slot, priority);
        }
        ready.remove(3, 7);
        ready.push(3, 0);
        let mut order = Vec::new();
        while let Some(slot) = ready.first() {
            order.push(slot);
            ready.remove_first();
        }
        assert_eq!(order, [3, 2, 4, 1, 5]);
        assert!(ready.is_empty());
    }

    #[test]
    fn a_message_takes_few_cache_lines() {
        assert!(size_of::<Sender>() <= 512, "{} bytes", size_of::<Sender>());
    }
}
