//! Grants and requests of a receiver: the messages that may go on, and those that lack packets.

use std::collections::{BTreeMap, VecDeque};

use thalweg_core::{NodeId, Span, Time};
use thalweg_transport::messages::Ready;
use thalweg_wire::flow::Ack;

use super::Priorities;
use crate::messages::{Name, SizeEstimate};

/// Requests without an answer after which a sender counts as gone, until something comes from it.
const PATIENCE: u32 = 3;

/// Checks for silence in the time that it has to last.
const LOOKS: u64 = 4;

/// Packets that an answer reports on, from the first that is missing on.
pub(super) const REPORTED_PACKETS: u32 = 65;

/// Messages that arrive at one host.
#[derive(Debug)]
pub(super) struct Grants {
    messages: BTreeMap<Name, Arriving>,
    /// Messages with more to grant whose senders answer, the least left first.
    wanting: Ready<u32, Name>,
    /// Messages with a grant to send, each at most once; some perhaps gone.
    due: VecDeque<Name>,
    next_look_at: Time,
    priorities: Priorities,
    round_trip_packets: u32,
    timeout_after: Span,
    /// Messages that are granted now, kept for its memory.
    active: Vec<Name>,
}

/// State of a message at its receiver.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    src: NodeId,
    estimate: SizeEstimate,
    packets: u32,
    received: u32,
    /// Packets below this number may be sent,
    granted: u32,
    /// of which those below this one needed no grant.
    unscheduled: u32,
    /// Priority of the last grant.
    priority: u8,
    /// Answer to the last packet, sent or not.
    last: Ack,
    entropy: u16,
    /// Packets left of it by which it is sorted, while it wants grants.
    queued: Option<u32>,
    is_due: bool,
    /// When something of it came, or was asked for again.
    received_at: Time,
    /// Requests in a row without an answer.
    silent: u32,
    /// Packets below this number were asked for again.
    requested: u32,
}

/// A packet that came.
pub(super) struct Arrival {
    pub(super) estimate: SizeEstimate,
    /// Of the message.
    pub(super) packets: u32,
    /// Number of them that are still missing.
    pub(super) missing: u32,
    pub(super) ack: Ack,
    pub(super) entropy: u16,
    /// It was sent to ask, by a sender that has received nothing.
    pub(super) is_header: bool,
}

/// A grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Grant {
    pub(super) name: Name,
    pub(super) entropy: u16,
    /// Packets beyond those that need no grant.
    pub(super) packets: u32,
    pub(super) priority: u8,
}

/// Packets are asked for again.
pub(super) struct Request {
    pub(super) to: (NodeId, u16),
    pub(super) ack: Ack,
}

impl Grants {
    pub(super) fn new(
        priorities: Priorities,
        round_trip_packets: u32,
        timeout_after: Span,
    ) -> Grants {
        let (messages, wanting, due, active) = Default::default();
        let next_look_at = Time::NEVER;
        Grants {
            messages,
            wanting,
            due,
            next_look_at,
            priorities,
            round_trip_packets,
            timeout_after,
            active,
        }
    }

    /// A packet of a message came that is not complete. Gives a request if what was asked for has come,
    /// and more is missing that is overdue.
    pub(super) fn on_arrival(
        &mut self,
        now: Time,
        name: Name,
        arrival: &Arrival,
    ) -> Option<Request> {
        let unscheduled = self.round_trip_packets.min(arrival.packets);
        let message = self.messages.entry(name).or_insert_with(|| Arriving {
            src: name.0,
            estimate: arrival.estimate,
            packets: arrival.packets,
            received: 0,
            granted: unscheduled,
            unscheduled,
            priority: 0,
            last: arrival.ack,
            entropy: arrival.entropy,
            queued: None,
            is_due: false,
            received_at: now,
            silent: 0,
            requested: 0,
        });
        message.received = message.packets.saturating_sub(arrival.missing);
        message.last = arrival.ack;
        message.received_at = now;
        message.silent = 0;
        let has_come = message.requested > 0 && message.last.cumulative >= message.requested;
        let again = has_come.then(|| message.request()).flatten();
        if arrival.is_header && message.granted > message.unscheduled && !message.is_due {
            // The last grant may be lost.
            message.is_due = true;
            self.due.push_back(name);
        }
        self.next_look_at = self.next_look_at.min(now + self.timeout_after / LOOKS);
        self.requeue(name);
        self.grant();
        again
    }

    /// Nothing of a message is missing any more.
    pub(super) fn on_complete(&mut self, name: Name) {
        let Some(mut message) = self.messages.remove(&name) else { return };
        if message.queued.is_some() {
            self.wanting.put(name, &mut message.queued, None);
            self.grant();
        }
    }

    /// Looks for messages that have been silent for too long, and gives the requests that are due.
    pub(super) fn handle_timeout(&mut self, now: Time) -> Vec<Request> {
        if now < self.next_look_at {
            return Vec::new();
        }
        let mut requests = Vec::new();
        let mut gone = Vec::new();
        let mut is_waiting = false;
        for (name, message) in &mut self.messages {
            if !message.is_expected() || message.silent > PATIENCE {
                continue;
            }
            is_waiting = true;
            if now < message.received_at + self.timeout_after {
                continue;
            }
            message.silent += 1;
            if message.silent > PATIENCE {
                gone.push(*name);
                continue;
            }
            message.received_at = now;
            requests.extend(message.request());
            if message.granted > message.unscheduled && !message.is_due {
                message.is_due = true;
                self.due.push_back(*name);
            }
        }
        self.next_look_at = if is_waiting { now + self.timeout_after / LOOKS } else { Time::NEVER };
        for name in &gone {
            self.requeue(*name);
        }
        if !gone.is_empty() {
            self.grant();
        }
        requests
    }

    pub(super) fn next_at(&self) -> Time {
        self.next_look_at
    }

    /// The grant that may leave. It stays until [`Grants::pop`].
    pub(super) fn next(&mut self) -> Option<Grant> {
        loop {
            let name = *self.due.front()?;
            if let Some(message) = self.messages.get(&name).filter(|message| message.is_due) {
                let Arriving { entropy, priority, granted, unscheduled, .. } = *message;
                return Some(Grant { name, entropy, packets: granted - unscheduled, priority });
            }
            self.due.pop_front();
        }
    }

    /// The grant that [`Grants::next`] showed has left.
    pub(super) fn pop(&mut self) {
        let Some(name) = self.due.pop_front() else { return };
        if let Some(message) = self.messages.get_mut(&name) {
            message.is_due = false;
        }
    }

    /// True if grants wait.
    pub(super) fn are_waiting(&self) -> bool {
        !self.due.is_empty()
    }

    /// Number of messages that are known.
    pub(super) fn messages(&self) -> usize {
        self.messages.len()
    }

    /// Forgets messages that nobody knows any more, since their senders are gone.
    pub(super) fn retain(&mut self, is_known: impl Fn(Name) -> bool) {
        let gone: Vec<Name> =
            self.messages.keys().copied().filter(|name| !is_known(*name)).collect();
        for name in gone {
            self.on_complete(name);
        }
    }

    /// Puts a message where what is left of it belongs, or takes it away if it wants no grant.
    fn requeue(&mut self, name: Name) {
        let Some(message) = self.messages.get_mut(&name) else { return };
        let wanted = message.wants_grants().then(|| message.estimate.left(message.received));
        self.wanting.put(name, &mut message.queued, wanted);
    }

    /// Lets the messages with the least left have a round trip's worth of packets in flight.
    fn grant(&mut self) {
        let degree = usize::from(self.priorities.scheduled());
        loop {
            self.active.clear();
            self.active.extend(self.wanting.iter().take(degree).map(|(_, name)| name));
            let mut full = None;
            for (place, name) in self.active.iter().enumerate() {
                let message = self.messages.get_mut(name).expect("who wants grants is known");
                let reach = message.received.saturating_add(self.round_trip_packets);
                let granted = reach.min(message.packets);
                if granted <= message.granted {
                    continue;
                }
                message.granted = granted;
                message.priority = self.priorities.of_scheduled(place, self.active.len());
                if !message.is_due {
                    message.is_due = true;
                    self.due.push_back(*name);
                }
                if granted == message.packets {
                    full = Some(*name);
                    break;
                }
            }
            // A message that needs no more grants makes room for the next.
            match full {
                Some(name) => self.requeue(name),
                None => return,
            }
        }
    }
}

impl Arriving {
    fn wants_grants(&self) -> bool {
        self.granted < self.packets && self.silent <= PATIENCE
    }

    /// True if packets are in flight, or lost.
    fn is_expected(&self) -> bool {
        self.received < self.granted
    }

    /// Asks for what is missing, if something is to come.
    fn request(&mut self) -> Option<Request> {
        if !self.is_expected() {
            return None;
        }
        let first = self.last.cumulative;
        self.requested = first.saturating_add(REPORTED_PACKETS);
        let ack = Ack { index: first, resend: true, ..self.last };
        Some(Request { to: (self.src, self.entropy), ack })
    }
}
