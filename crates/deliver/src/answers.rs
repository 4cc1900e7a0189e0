//! Answers of a receiver that wait to leave.

use thalweg_core::{Dscp, Ecn, Header, NodeId, Packet, Tag, Time, TrafficClass};
use thalweg_transport::control::ArrivalCount;
use thalweg_transport::{Envelope, Replies};
use thalweg_wire::deliver::Verb;

use crate::call::Name;
use crate::config::Config;
use crate::policy::CONTROL_PRIORITY;

/// Answers that wait for room.
pub(crate) type Answers = Replies<Answer>;

/// An answer, and the tensor that it is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub name: Name,
    pub says: Says,
}

/// Echo of a packet, with what its receiver counted until then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Echo {
    pub sent_at: Time,
    pub congested: bool,
    pub priority: u8,
    /// True if as much of the tensor is missing as may be lost.
    pub is_spent: bool,
    /// Bytes of all packets of the sender, and the time of the arrival.
    pub arrived: ArrivalCount,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Says {
    /// The time of a packet comes back.
    Echo(Echo),
    /// A control packet.
    Verb(Verb),
    /// Bitmap of the arrivals from this segment on. It is read when the answer leaves.
    Arrived { first: u32 },
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
