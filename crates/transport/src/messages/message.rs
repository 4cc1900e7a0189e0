//! Messages, their names, and events.

use thalweg_core::{Body, BodySize, Bytes, Dscp, NodeId, Tag, Tagger, Time};
use thiserror::Error;

use super::config::MAX_PACKETS;

/// Names a message among all that one endpoint ever sends. Grows with every message, unless the
/// sender chooses the numbers, and is never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowId(pub u64);

impl FlowId {
    /// Numbers of messages are below this.
    pub const NUMBERS: u64 = 1 << (64 - FlowId::SLOT_BITS);

    /// An id holds the number of the message and, in this many low bits, the place of its sender, so
    /// that an acknowledgement finds it without a search.
    pub const SLOT_BITS: u32 = 24;

    /// The id of message `number` in place `slot` of its sender.
    pub const fn new(number: u64, slot: u32) -> FlowId {
        FlowId(number << FlowId::SLOT_BITS | slot as u64)
    }

    /// The place of its sender.
    pub const fn slot(self) -> u32 {
        self.0 as u32 & ((1 << FlowId::SLOT_BITS) - 1)
    }

    /// The number of the message: running, or
    /// [chosen by its sender](crate::Endpoint::start_numbered).
    pub const fn number(self) -> u64 {
        self.0 >> FlowId::SLOT_BITS
    }
}

/// A message to send.
pub struct Message {
    /// Node that gets it.
    pub dst: NodeId,
    /// Content of the message.
    pub body: Payload,
    /// Tags of its packets.
    pub tagger: FlowTagger,
    /// Picks the path of its packets, and of the answers to them.
    pub entropy: u16,
}

/// The content of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Payload {
    /// A number of bytes that nobody reads.
    Length(Bytes),
    /// These bytes.
    Bytes(Box<[u8]>),
}

impl Payload {
    /// Length of the content.
    pub fn bytes(&self) -> Bytes {
        match self {
            Payload::Length(bytes) => *bytes,
            Payload::Bytes(bytes) => Bytes::new(bytes.len() as u64),
        }
    }

    /// The body of a packet with this number of its bytes.
    #[inline]
    pub fn body_size(&self, bytes: u32) -> BodySize {
        match self {
            Payload::Length(_) => BodySize::Length(bytes),
            Payload::Bytes(_) => BodySize::Bytes(bytes),
        }
    }

    /// Fills such a body with what stands at `offset`, which lies that far before the end.
    #[inline]
    pub fn fill(&self, offset: Bytes, body: Body<'_>) {
        if let (Payload::Bytes(message), Body::Bytes(room)) = (self, body) {
            let start = offset.as_u64() as usize;
            room.copy_from_slice(&message[start..start + room.len()]);
        }
    }
}

/// The tagger of one flow.
pub enum FlowTagger {
    /// The same tag for every packet: no allocation, no call.
    Fixed(Tag),
    /// Whatever a plane decides.
    Custom(Box<dyn Tagger + Send>),
}

impl Default for FlowTagger {
    fn default() -> FlowTagger {
        FlowTagger::Fixed(Tag::default())
    }
}

impl Tagger for FlowTagger {
    #[inline]
    fn tag(&mut self, sent: Bytes) -> Tag {
        match self {
            FlowTagger::Fixed(tag) => *tag,
            FlowTagger::Custom(tagger) => tagger.tag(sent),
        }
    }
}

/// An event that an endpoint reports to the application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// All of a message has arrived, and its sender knows it.
    Sent(Sent),
    /// Nothing came back for too long. Whether the message arrived is not known.
    Failed(Sent),
    /// All of a message has arrived here.
    Received(Received),
}

/// The end of an outgoing message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Name of the message.
    pub flow: FlowId,
    /// Node that it went to.
    pub dst: NodeId,
    /// Length of the message.
    pub bytes: Bytes,
    /// When it was started.
    pub started: Time,
    /// When the last acknowledgement came, or when it failed.
    pub finished: Time,
    /// Transmissions that were not the first of their packet.
    pub retransmissions: u32,
    /// Number of times that nothing came back in time.
    pub timeouts: u32,
    /// Number of times that loss was found before that.
    pub detections: u32,
}

/// The end of an incoming message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// Node that sent it.
    pub src: NodeId,
    /// Name of the message at its sender.
    pub flow: FlowId,
    /// Length of the content.
    pub bytes: Bytes,
    /// When its last packet came.
    pub finished: Time,
    /// Class of the packet that came last.
    pub dscp: Dscp,
    /// The bytes, if real ones were carried.
    pub body: Option<Box<[u8]>>,
}

/// Why a message cannot be sent. The caller is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum StartError {
    /// More packets than a flow can number.
    #[error(
        "a message of {0} has more than {MAX_PACKETS} packets: split it or set segment_bytes higher"
    )]
    TooLong(Bytes),
    /// More messages at once than a flow id can tell apart.
    #[error("too many messages are in flight: wait until one of them is sent")]
    TooMany,
}

/// Number of packets of a message of this length; `None` if that is more than a flow can number.
#[inline]
pub fn packets_of(message_bytes: Bytes, segment_bytes: u32) -> Option<u32> {
    let packets = message_bytes.as_u64().div_ceil(u64::from(segment_bytes)).max(1);
    u32::try_from(packets).ok().filter(|&packets| packets <= MAX_PACKETS)
}
