//! All posted buffers of an endpoint, and its answers about those that are not there.
//!
//! Memory follows from what the application posts, whatever arrives: besides, a limited number of early offers and of
//! ended names is remembered.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;
use slab::Slab;
use thalweg_core::{Body, Meta, NodeId, Time, Timers};
use thalweg_transport::control::ArrivalCount;
use thalweg_wire::deliver::{Data, Refusal, Verb};

use crate::answers::{Answer, Answers, Echo, Says};
use crate::call::{Completion, Failed, Failure, Name, Offered, PostError, ReceiveCall};
use crate::config::Config;
use crate::receiver::{Intake, Offer, Receiver};
use crate::stats::Stats;

/// Buffers in places that are used again.
pub(crate) struct Incoming {
    receivers: Slab<Receiver>,
    /// State of each name. Never iterated.
    names: HashMap<Name, Known, FixedState>,
    /// The names that have ended, oldest first.
    ended: VecDeque<Name>,
    /// The offers that came too early, oldest first.
    early: VecDeque<Name>,
    /// Arrivals that have not been reported to the application yet.
    untold: VecDeque<Name>,
    timers: Timers,
    /// Bytes of data packets that have arrived from each node that a buffer was posted for. Never iterated.
    arrived: HashMap<NodeId, u64, FixedState>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// A buffer was posted: its place.
    Posted(u32),
    /// There is no buffer yet, but this was offered.
    Offered(Offer),
    /// Enough has arrived.
    Complete,
    /// It came to nothing.
    GivenUp,
}

/// A data packet that has arrived.
#[derive(Clone, Copy)]
pub(crate) struct Arrival<'a> {
    pub name: Name,
    pub meta: &'a Meta,
    pub data: &'a Data,
    pub body: &'a Body<'a>,
}

impl Incoming {
    pub fn new(config: &Config) -> Incoming {
        Incoming {
            receivers: Slab::new(),
            // The job's random number makes it hard to choose names that collide.
            names: HashMap::with_hasher(FixedState::with_seed(config.credentials.job.0)),
            ended: VecDeque::new(),
            early: VecDeque::new(),
            untold: VecDeque::new(),
            timers: Timers::default(),
            arrived: HashMap::with_hasher(FixedState::with_seed(config.credentials.job.0)),
        }
    }

    /// Number of buffers that wait to be filled.
    pub fn live(&self) -> usize {
        self.receivers.len()
    }

    pub fn next_timeout(&self) -> Time {
        self.timers.next()
    }

    /// The next offer that came too early and still has no buffer.
    pub fn poll_offer(&mut self) -> Option<Offered> {
        while let Some(name) = self.untold.pop_front() {
            if let Some(Known::Offered(offer)) = self.names.get(&name) {
                let Offer { tensor_bytes, layer, note, .. } = *offer;
                return Some(Offered { name, tensor_bytes: tensor_bytes.as_u64(), layer, note });
            }
        }
        None
    }

    /// True if the answer about a name is more than that its sender must wait.
    pub fn has_answered(&self, name: Name) -> bool {
        match self.names.get(&name) {
            Some(&Known::Posted(slot)) => {
                self.receivers.get(slot as usize).is_some_and(Receiver::is_agreed)
            }
            Some(Known::Complete | Known::GivenUp) => true,
            Some(Known::Offered(_)) | None => false,
        }
    }

    /// Takes a buffer.
    pub fn post(
        &mut self,
        config: &Config,
        now: Time,
        call: ReceiveCall,
        answers: &mut Answers,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), PostError> {
        let name = call.name;
        let offer = match self.names.get(&name) {
            Some(Known::Posted(_) | Known::Complete | Known::GivenUp) => {
                return Err(PostError::Used(name));
            }
            Some(Known::Offered(offer)) => Some(*offer),
            None => None,
        };
        let slot = self.receivers.insert(Receiver::new(call)) as u32;
        self.names.insert(name, Known::Posted(slot));
        self.arrived.entry(name.peer).or_default();
        if let Some(offer) = offer {
            // Its place among the early ones stays until it is the oldest.
            let verb = self.agree(config, now, slot, &offer, done);
            answers.push(Answer { name, says: Says::Verb(verb) });
        }
        Ok(())
    }

    /// Gives up a buffer and hands it back.
    pub fn cancel(&mut self, config: &Config, name: Name) -> Option<Failed> {
        let &Known::Posted(slot) = self.names.get(&name)? else { return None };
        let receiver = self.take(slot);
        self.remember(config, name, Known::GivenUp);
        Some(receiver.fail(Failure::Refused(Refusal::GivenUp)))
    }

    /// Returns the answer to an offer.
    pub fn on_offer(
        &mut self,
        config: &Config,
        now: Time,
        name: Name,
        offer: Offer,
        done: &mut VecDeque<Completion>,
    ) -> Verb {
        match self.names.get(&name) {
            Some(&Known::Posted(slot)) => self.agree(config, now, slot, &offer, done),
            Some(Known::Complete) => Verb::Stop,
            Some(Known::GivenUp) => Verb::Refuse(Refusal::GivenUp),
            Some(Known::Offered(_)) => Verb::Hold,
            None => {
                self.note_early(config, name, offer);
                Verb::Hold
            }
        }
    }

    /// A probe came. `None` where no honest sender asks.
    pub fn on_probe(&mut self, now: Time, name: Name, first: u32) -> Option<Says> {
        if let Some(&Known::Posted(slot)) = self.names.get(&name)
            && let Some(receiver) = self.receivers.get_mut(slot as usize)
        {
            receiver.received_at = now;
        }
        self.answer_to_probe(name, first)
    }

    /// Answer to a probe at this moment.
    pub fn answer_to_probe(&self, name: Name, first: u32) -> Option<Says> {
        Some(match self.names.get(&name) {
            Some(&Known::Posted(slot)) => match self.receivers.get(slot as usize) {
                Some(receiver) if receiver.is_agreed() => {
                    receiver.window(first).map(|_| Says::Arrived { first })?
                }
                _ => Says::Verb(Verb::Hold),
            },
            Some(Known::Complete) => Says::Verb(Verb::Stop),
            Some(Known::GivenUp) => Says::Verb(Verb::Refuse(Refusal::GivenUp)),
            Some(Known::Offered(_)) | None => Says::Verb(Verb::Hold),
        })
    }

    /// A buffer of which arrivals are asked about, and how many segments that is about.
    pub fn window(&self, name: Name, first: u32) -> Option<(&Receiver, u32)> {
        let Some(&Known::Posted(slot)) = self.names.get(&name) else { return None };
        let receiver = self.receivers.get(slot as usize)?;
        Some((receiver, receiver.window(first)?))
    }

    /// Takes in a segment.
    #[inline]
    pub fn on_data(
        &mut self,
        config: &Config,
        now: Time,
        arrival: &Arrival<'_>,
        stats: &mut Stats,
        done: &mut VecDeque<Completion>,
    ) -> Option<Says> {
        let &Arrival { name, meta, data, body } = arrival;
        let stop = Says::Verb(Verb::Stop);
        let arrived_bytes = self.count(config, arrival);
        let slot = match self.names.get(&name) {
            Some(&Known::Posted(slot)) => slot,
            known => {
                stats.late += 1;
                // A sender that still sends does not know of it. One packet in several is answered.
                return (known == Some(&Known::Complete) && data.echo).then_some(stop);
            }
        };
        let receiver = &mut self.receivers[slot as usize];
        match receiver.take_in(now, data, body) {
            Intake::Taken => stats.arrived += 1,
            Intake::Again => stats.duplicates += 1,
            Intake::Enough => {
                stats.arrived += 1;
                self.complete(config, now, slot, done);
                return Some(stop);
            }
            Intake::Early => stats.late += 1,
            Intake::Malformed => {
                stats.malformed += 1;
                return None;
            }
        }
        // spec: M-08
        data.echo.then(|| {
            Says::Echo(Echo {
                sent_at: data.sent_at,
                congested: meta.ecn.is_congested(),
                priority: meta.dscp.priority(),
                is_spent: self.receivers[slot as usize].is_spent(data.offset),
                arrived: ArrivalCount { bytes: arrived_bytes, at: now },
            })
        })
    }

    /// Counts a data packet. Returns the bytes of all of its sender.
    // spec: M-18
    #[inline]
    fn count(&mut self, config: &Config, arrival: &Arrival<'_>) -> u64 {
        // Memory follows from what was posted, and not from senders.
        let Some(bytes) = self.arrived.get_mut(&arrival.name.peer) else { return 0 };
        let packet_bytes = u64::from(arrival.data.payload_bytes) + u64::from(config.overhead_bytes);
        *bytes = bytes.wrapping_add(packet_bytes);
        *bytes
    }

    /// Gives up buffers for which nothing came for too long.
    pub fn handle_timeout(&mut self, config: &Config, now: Time, done: &mut VecDeque<Completion>) {
        while let Some(slot) = self.timers.pop_due(now) {
            let Some(receiver) = self.receivers.get(slot as usize) else { continue };
            if !receiver.is_agreed() {
                continue;
            }
            let deadline = receiver.received_at + config.give_up_after;
            if deadline > now {
                self.timers.arm(slot, deadline);
                continue;
            }
            let receiver = self.take(slot);
            self.remember(config, receiver.name, Known::GivenUp);
            done.push_back(Completion::Failed(receiver.fail(Failure::Silent)));
        }
    }

    /// Looks at every buffer. Panics where a place or a name is counted twice or not at all, and where a buffer
    /// would wait for ever.
    // spec: T-12
    pub fn check(&self, config: &Config) {
        for (slot, receiver) in &self.receivers {
            let slot = slot as u32;
            receiver.check();
            let known = self.names.get(&receiver.name);
            assert_eq!(known, Some(&Known::Posted(slot)), "a buffer is known by its name");
            let ends_at = receiver.received_at + config.give_up_after;
            let is_timed = !receiver.is_agreed() || self.timers.armed(slot) <= ends_at;
            assert!(is_timed, "a buffer whose sender may fall silent has a timer");
        }
        let is_bounded = self.ended.len() <= config.ended_memory as usize
            && self.early.len() <= config.early_memory as usize
            && self.untold.len() <= config.early_memory as usize;
        assert!(is_bounded, "the number of remembered names is bounded");
    }

    fn agree(
        &mut self,
        config: &Config,
        now: Time,
        slot: u32,
        offer: &Offer,
        done: &mut VecDeque<Completion>,
    ) -> Verb {
        let receiver = &mut self.receivers[slot as usize];
        match receiver.agree(now, offer) {
            Ok((loss, false)) => {
                self.timers.arm(slot, now + config.give_up_after);
                Verb::Accept { loss: loss.millionths() }
            }
            Ok((_, true)) => {
                // There was nothing to send.
                self.complete(config, now, slot, done);
                Verb::Stop
            }
            Err(refusal) => {
                let receiver = self.take(slot);
                self.remember(config, receiver.name, Known::GivenUp);
                let failure = Failure::Refused(refusal);
                done.push_back(Completion::Failed(receiver.fail(failure)));
                Verb::Refuse(refusal)
            }
        }
    }

    fn complete(&mut self, config: &Config, now: Time, slot: u32, done: &mut VecDeque<Completion>) {
        let received = self.take(slot).finish(now);
        self.remember(config, received.name, Known::Complete);
        done.push_back(Completion::Received(received));
    }

    fn take(&mut self, slot: u32) -> Receiver {
        self.receivers.remove(slot as usize)
    }

    fn remember(&mut self, config: &Config, name: Name, how: Known) {
        self.names.insert(name, how);
        self.ended.push_back(name);
        if self.ended.len() > config.ended_memory as usize
            && let Some(oldest) = self.ended.pop_front()
        {
            self.names.remove(&oldest);
        }
    }

    /// Remembers an offer in place of the oldest, if need be: its sender repeats it.
    fn note_early(&mut self, config: &Config, name: Name, offer: Offer) {
        if config.early_memory == 0 {
            return;
        }
        if self.early.len() >= config.early_memory as usize
            && let Some(oldest) = self.early.pop_front()
            && let Some(Known::Offered(_)) = self.names.get(&oldest)
        {
            self.names.remove(&oldest);
        }
        self.early.push_back(name);
        self.names.insert(name, Known::Offered(offer));
        // An application that does not ask for offers need not keep more of them than there are.
        if self.untold.len() >= config.early_memory as usize {
            self.untold.pop_front();
        }
        self.untold.push_back(name);
    }
}
