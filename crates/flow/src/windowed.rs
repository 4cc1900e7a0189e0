//! The protocol: who sends next, whose answer is overdue.

use std::collections::BTreeMap;

use thalweg_core::{NodeId, Outbox, Rng, Time, Timers};
use thalweg_transport::messages::{Event, FlowId, Message, StartError, Turns};
use thalweg_transport::{CheckedControl, Inbox, JobClass, MessageConfig, Protocol};
use thalweg_wire::flow::Ack;

use crate::config::{Config, ConfigError, LossDetection, MessageOrder};
use crate::sender::{Outcome, Path, Sender};

/// Sends as much of every message as its congestion control allows. Outgoing messages are in places that
/// are used again, with the memory of the messages that they had, so that a message allocates nothing; a slab would
/// drop it.
pub struct Windowed {
    config: Config,
    control: CheckedControl,
    /// Random numbers of controls: each message has its own, independent of all others of the endpoint.
    control_rngs: Rng,
    senders: Vec<Sender>,
    /// Random numbers of the control of each place. Few controls draw any: beside the senders, they take no room between
    /// what every packet needs.
    rngs: Vec<Rng>,
    /// Number of messages that were started before the one of each place, modulo 2^32.
    started_after: Vec<u32>,
    vacant: Vec<u32>,
    /// Messages that may have something to send: the most urgent first, and in turn among equals.
    ready: Turns,
    /// Answers that may be overdue.
    timers: Timers,
    /// Messages that may send again after a gap that their control keeps.
    releases: Timers,
    /// Paths as the last messages have learned them, if that is wanted.
    paths: BTreeMap<NodeId, Path>,
    /// Number of messages that were started, modulo 2^32.
    started: u32,
}

impl Protocol for Windowed {
    type Config = Config;
    type Error = ConfigError;
    type Hint = ();

    fn new(config: Config) -> Result<Windowed, ConfigError> {
        config.check()?;
        Ok(Windowed {
            control: config.control.checked()?,
            control_rngs: Rng::new(config.seed).stream("bbr"),
            config,
            senders: Vec::new(),
            rngs: Vec::new(),
            started_after: Vec::new(),
            vacant: Vec::new(),
            ready: Turns::default(),
            timers: Timers::default(),
            releases: Timers::default(),
            paths: BTreeMap::new(),
            started: 0,
        })
    }

    #[inline]
    fn messages(&self) -> &MessageConfig {
        &self.config.messages
    }

    fn compares_priorities(&self) -> bool {
        self.config.loss_detection == LossDetection::ByPriority
    }

    fn start(
        &mut self,
        now: Time,
        number: u64,
        message: Message,
        (): (),
    ) -> Result<FlowId, StartError> {
        let slot = self.vacant_slot()?;
        let flow = FlowId::new(number, slot);
        let path = match self.paths.get(&message.dst) {
            Some(path) => path.for_next(),
            None => Path::new(&self.config, &self.control),
        };
        self.senders[slot as usize].begin(&self.config, now, flow, message, path)?;
        self.rngs[slot as usize] = self.control_rngs.nth(number);
        self.started_after[slot as usize] = self.started;
        self.started = self.started.wrapping_add(1);
        self.vacant.pop();
        self.enqueue_if_ready(now, slot);
        Ok(flow)
    }

    fn outgoing(&self) -> usize {
        self.senders.len() - self.vacant.len()
    }

    #[inline]
    fn has_backlog(&self) -> bool {
        !self.ready.is_empty()
    }

    #[inline]
    fn send(&mut self, now: Time, outbox: &mut dyn Outbox) -> Option<bool> {
        let config = &self.config;
        loop {
            let slot = self.ready.first()?;
            let sender = &mut self.senders[slot as usize];
            let mut is_resend = None;
            if let Some(index) = sender.next_index(config) {
                is_resend = Some(sender.send(config, now, index, outbox)?);
                self.timers.arm(slot, sender.alarm());
            }
            sender.queued = match sender.held_until(now) {
                None => sender.urgency(config),
                Some(at) => {
                    self.releases.arm(slot, at);
                    None
                }
            };
            match config.order {
                MessageOrder::InTurn => self.ready.end_turn(sender.queued),
                MessageOrder::Started => self.ready.end_turn_in_order(sender.queued),
            }
            if is_resend.is_some() {
                return is_resend;
            }
        }
    }

    #[inline]
    fn on_ack(&mut self, inbox: &mut Inbox, now: Time, src: NodeId, ack: &Ack) {
        let slot = FlowId(ack.flow).slot();
        let Some(sender) = self.senders.get_mut(slot as usize) else {
            inbox.dropped.malformed += 1;
            return;
        };
        if !sender.is_live || sender.flow.0 != ack.flow {
            // Late answers come when a message is done and its place has the next one.
            return;
        }
        let rng = &mut self.rngs[slot as usize];
        match sender.on_ack(&self.config, now, (src, ack), rng) {
            Outcome::Rejected => inbox.dropped.malformed += 1,
            Outcome::Continues => {
                self.timers.arm(slot, sender.alarm());
                self.enqueue_if_ready(now, slot);
            }
            Outcome::Complete => {
                // Out of turn a window says nothing about turns to come.
                if self.config.remembers_paths && self.config.patience().is_none() {
                    let (dst, path) = sender.lesson();
                    self.paths.insert(dst, path.clone());
                }
                inbox.events.push_back(Event::Sent(sender.finish(now)));
                self.vacant.push(slot);
            }
        }
    }

    /// When an answer may be overdue next, or somebody may send again.
    #[inline]
    fn next_timeout(&self) -> Time {
        self.timers.next().min(self.releases.next())
    }

    fn handle_timeout(&mut self, inbox: &mut Inbox, now: Time) {
        while let Some(slot) = self.releases.pop_due(now) {
            self.enqueue_if_ready(now, slot);
        }
        while let Some(slot) = self.timers.pop_due(now) {
            let sender = &mut self.senders[slot as usize];
            if !sender.awaits_answer() {
                continue;
            }
            if sender.alarm() > now {
                self.timers.arm(slot, sender.alarm());
            } else if sender.deadline > now {
                sender.on_alarm(&self.config, now);
                self.timers.arm(slot, sender.alarm());
                self.enqueue_if_ready(now, slot);
            } else if sender.on_timeout(&self.config, now) {
                // After a probe others are still in flight.
                if sender.awaits_answer() {
                    self.timers.arm(slot, sender.alarm());
                }
                self.enqueue_if_ready(now, slot);
            } else {
                inbox.events.push_back(Event::Failed(sender.finish(now)));
                self.vacant.push(slot);
            }
        }
    }

    /// Looks at every message. Panics where a place is counted twice or not at all, and where a message would
    /// wait for ever: ready and not in the queue, or in flight without a timer.
    // spec: T-12
    fn check(&self) {
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
            if sender.is_live {
                self.check_live(slot, sender);
            }
        }
        self.ready.check();
        let queued = (0..).zip(&self.senders);
        let mut queued: Vec<_> =
            queued.filter_map(|(slot, sender)| Some((sender.queued?, slot))).collect();
        let mut waiting: Vec<_> = self.ready.iter().collect();
        queued.sort_unstable();
        waiting.sort_unstable();
        assert_eq!(waiting, queued, "a message is in the queue of its priority, once");
    }
}

impl Windowed {
    /// Sets the payload of the packets of messages that begin from now on.
    // spec: F-01, F-06
    pub fn set_segment_bytes(&mut self, segment_bytes: u32) {
        if segment_bytes > 0 && segment_bytes != self.config.messages.segment_bytes {
            self.config.messages.segment_bytes = segment_bytes;
            // Windows that were learned are counted in packets of the length before.
            self.paths.clear();
        }
    }

    /// Has all packets travel in a class from now on, of messages in flight as well: a message that kept a less urgent
    /// class would be overtaken by those after it, for which its receiver does not wait. When the class becomes more
    /// urgent, what is in flight is sent again: it may wait behind others for long, and it is little.
    // spec: C-16
    pub fn set_class(&mut self, now: Time, class: JobClass) {
        let before = self.config.class.replace(class);
        if before == Some(class) {
            return;
        }
        let was_in_turn = before.is_none_or(JobClass::is_in_turn);
        let urgency = |class: JobClass| class.dscp().priority();
        let rises = before.is_some_and(|before| urgency(class) < urgency(before));
        for slot in 0..self.senders.len() {
            let sender = &mut self.senders[slot];
            if !sender.is_live {
                continue;
            }
            match (was_in_turn, class.is_in_turn()) {
                (false, true) => sender.promote(&self.config, now),
                (true, false) => sender.demote(&self.config, now),
                _ if rises => sender.overtake(&self.config),
                _ => sender.set_class(&self.config),
            }
            if sender.awaits_answer() {
                self.timers.arm(slot as u32, sender.alarm());
            }
            self.enqueue_if_ready(now, slot as u32);
        }
    }

    /// The place on top of the vacant ones.
    fn vacant_slot(&mut self) -> Result<u32, StartError> {
        if let Some(&slot) = self.vacant.last() {
            return Ok(slot);
        }
        let slot = self.senders.len() as u32;
        if slot >> FlowId::SLOT_BITS != 0 {
            return Err(StartError::TooMany);
        }
        let path = Path::new(&self.config, &self.control);
        self.senders.push(Sender::vacant(&self.config, path));
        self.rngs.push(self.control_rngs.clone());
        self.started_after.push(0);
        self.vacant.push(slot);
        Ok(slot)
    }

    #[inline]
    fn enqueue_if_ready(&mut self, now: Time, slot: u32) {
        let sender = &mut self.senders[slot as usize];
        if let Some(at) = sender.held_until(now) {
            self.releases.arm(slot, at);
            return;
        }
        let Some(priority) = sender.urgency(&self.config) else { return };
        // It keeps its turn, unless something has become more urgent.
        if sender.queued.is_some_and(|queued| priority >= queued) {
            return;
        }
        let queued = sender.queued.replace(priority);
        match self.config.order {
            MessageOrder::InTurn => self.ready.put(slot, queued, priority),
            MessageOrder::Started => {
                // Far fewer than 2^31 messages are being sent.
                let order = self.started_after[slot as usize];
                let goes_before = |other: u32| {
                    let distance = order.wrapping_sub(self.started_after[other as usize]);
                    (1..1 << 31).contains(&distance)
                };
                self.ready.put_in_order(slot, queued, priority, goes_before);
            }
        }
    }

    fn check_live(&self, slot: u32, sender: &Sender) {
        sender.check();
        if sender.awaits_answer() {
            let is_armed = self.timers.armed(slot) <= sender.alarm();
            assert!(is_armed, "a message that awaits an answer has a timer");
        }
        if sender.is_ready(&self.config) {
            let is_held = self.releases.armed(slot) != Time::NEVER;
            assert!(sender.queued.is_some() || is_held, "a message that may send has its turn");
        }
    }
}

#[cfg(test)]
mod tests;
