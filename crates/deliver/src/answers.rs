//! Answers of a receiver on their way out.

use std::collections::VecDeque;

use thalweg_core::{Dscp, Ecn, Header, NodeId, Packet, Tag, Time, TrafficClass};
use thalweg_transport::Envelope;
use thalweg_wire::deliver::Verb;

use crate::call::Name;
use crate::config::Config;
use crate::policy::CONTROL_PRIORITY;

/// Answers that wait for room, so many at most.
pub(crate) struct Answers {
    waiting: VecDeque<Answer>,
    most: usize,
}

/// What is answered to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub name: Name,
    pub says: Says,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Says {
    /// The time of a packet comes back.
    Echo { sent_at: Time, congested: bool, priority: u8 },
    /// A control packet.
    Verb(Verb),
    /// What has arrived from this segment on. It is looked up when it leaves.
    Arrived { first: u32 },
}

impl Answers {
    pub fn new(config: &Config) -> Answers {
        Answers { waiting: VecDeque::new(), most: config.max_waiting_answers as usize }
    }

    /// Queues an answer. Returns whether there was room.
    pub fn push(&mut self, name: Name, says: Says) -> bool {
        let has_room = self.waiting.len() < self.most;
        if has_room {
            self.waiting.push_back(Answer { name, says });
        }
        has_room
    }

    /// Panics where more answers wait than may.
    pub fn check(&self) {
        assert!(self.waiting.len() <= self.most, "the number of waiting answers is bounded");
    }

    pub fn front(&self) -> Option<&Answer> {
        self.waiting.front()
    }

    pub fn pop(&mut self) {
        self.waiting.pop_front();
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Fills in what all packets but data have in common. They travel in a class of their own, and no queue
/// may drop them for others' sake.
// spec: M-09
pub(crate) fn address(
    config: &Config,
    packet: &mut Packet<'_>,
    dst: NodeId,
    entropy: u16,
    encode: impl FnOnce(&mut Header),
) {
    let dscp = Dscp::of_priority(CONTROL_PRIORITY).in_class(TrafficClass::Training);
    let envelope = Envelope {
        dst,
        tag: Tag { dscp, ecn: Ecn::Capable, rank: 0 },
        entropy,
        overhead_bytes: config.overhead_bytes,
        key: config.credentials.key.as_ref(),
    };
    envelope.fill(packet, encode);
}
