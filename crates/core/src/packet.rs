//! The packet, lent for the length of a call.
//!
//! A driver owns the memory; a machine reads and rewrites it in place. That makes one contract
//! serve a host, which consumes packets, and a switch, which changes and passes them on, and it
//! keeps allocation out of the data path.

use crate::id::NodeId;

/// Size of the header area. Headers of `thalweg-wire` are at most this long; on the network it is sent as
/// a whole, so that bodies start at a fixed, 8-byte-aligned offset.
pub const HEADER_BYTES: usize = 64;

/// Header bytes, which this crate does not interpret.
pub type Header = [u8; HEADER_BYTES];

/// Number of strict priorities: as many as there are class selectors, and as ports of commodity switches have
/// queues.
pub const PRIORITIES: usize = 8;

/// The least urgent priority; 0 is the most urgent.
pub const LAST_PRIORITY: u8 = PRIORITIES as u8 - 1;

/// Properties of a packet that every hop reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Meta {
    /// Sender of the packet. The sender's driver fills it in.
    pub src: NodeId,
    /// Destination of the packet. A switch program may rewrite it.
    pub dst: NodeId,
    /// Bytes that it occupies of a link, all framing included.
    pub wire_bytes: u32,
    /// Urgency for queues that sort by it, smaller first. The others ignore it.
    pub rank: u32,
    /// Picks one of several equal paths; the UDP source port on a real network.
    pub entropy: u16,
    /// The class of service: which queue it waits in.
    pub dscp: Dscp,
    /// ECN field: queues may mark a capable packet, or one did.
    pub ecn: Ecn,
}

/// A differentiated-services code point, 0 to 63.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Dscp(u8);

impl Dscp {
    /// Keeps the six bits that the IP header has room for.
    pub const fn new(code: u8) -> Dscp {
        Dscp(code & 0x3f)
    }

    /// The class selector of a strict priority, 0 the most urgent of [`PRIORITIES`].
    ///
    /// Class selectors are the code points that switches map to queues without configuration. Larger
    /// ones are more urgent there, so the order turns round.
    pub const fn of_priority(priority: u8) -> Dscp {
        let priority = if priority > LAST_PRIORITY { LAST_PRIORITY } else { priority };
        Dscp((LAST_PRIORITY - priority) << 3)
    }

    /// The strict priority that [`Dscp::of_priority`] encodes.
    pub const fn priority(self) -> u8 {
        LAST_PRIORITY - (self.0 >> 3)
    }

    /// The same priority in a class of traffic: one of the low bits, which class selectors leave
    /// zero, says which.
    pub const fn in_class(self, class: TrafficClass) -> Dscp {
        let priority = self.0 & !Dscp::CLASS_BITS;
        match class {
            TrafficClass::Ordinary => Dscp(priority),
            TrafficClass::Training => Dscp(priority | Dscp::TRAINING_BIT),
        }
    }

    /// The class of traffic that [`Dscp::in_class`] encodes.
    pub const fn class(self) -> TrafficClass {
        if self.0 & Dscp::CLASS_BITS == 0 { TrafficClass::Ordinary } else { TrafficClass::Training }
    }

    /// The code point.
    pub const fn code(self) -> u8 {
        self.0
    }

    const CLASS_BITS: u8 = 0b111;
    /// With priorities 3 to 6 these are the assured-forwarding code points AF41 to AF11.
    const TRAINING_BIT: u8 = 0b010;
}

/// Class of traffic, for ports that divide a link between the two.
// spec: M-15
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum TrafficClass {
    /// Everything else.
    #[default]
    Ordinary,
    /// The exchange of gradients.
    Training,
}

/// Explicit congestion notification, with the values of the IP header's two bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Ecn {
    /// The transport does not understand marks.
    #[default]
    NotCapable = 0b00,
    /// The transport understands marks.
    Capable = 0b10,
    /// A queue along the path was congested.
    Congested = 0b11,
}

impl Ecn {
    /// Reads the two bits. Both "capable" code points mean the same to us.
    pub const fn from_bits(bits: u8) -> Ecn {
        match bits & 0b11 {
            0b00 => Ecn::NotCapable,
            0b11 => Ecn::Congested,
            _ => Ecn::Capable,
        }
    }

    /// The two bits as they stand in the IP header.
    pub const fn bits(self) -> u8 {
        self as u8
    }

    /// True if a queue may mark the packet instead of dropping it.
    pub const fn is_capable(self) -> bool {
        !matches!(self, Ecn::NotCapable)
    }

    /// True if a queue did mark it.
    pub const fn is_congested(self) -> bool {
        matches!(self, Ecn::Congested)
    }
}

/// Content that follows the header.
#[derive(Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Bytes that nobody reads: a simulation need not carry them.
    Length(u32),
    /// Real bytes, in the driver's memory.
    Bytes(&'a mut [u8]),
}

impl Body<'_> {
    /// Number of bytes that it stands for.
    pub fn len(&self) -> usize {
        match self {
            Body::Length(bytes) => *bytes as usize,
            Body::Bytes(bytes) => bytes.len(),
        }
    }

    /// True if it stands for no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The body a sender asks room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodySize {
    /// Only a length. A network driver sends that many zeros.
    Length(u32),
    /// Room for that many bytes, which the sender fills.
    Bytes(u32),
}

/// The purpose of a packet that a sender asks room for.
///
/// It stays with the outbox and does not travel. Outboxes that pace or count packets need it, and can tell
/// it neither from a header that they do not read nor from a size.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Purpose {
    /// Data that leaves for the first time.
    Data,
    /// Data that left in an earlier packet, in whatever form. An outbox that counts progress counts none
    /// for it.
    Retransmission,
    /// A packet without data of the application: an acknowledgement, a credit, a query, an announcement.
    /// It does not wait with data, since data may wait for it.
    Control,
}

impl Purpose {
    /// The purpose of data that leaves, by whether it left before.
    pub const fn of_data(is_retransmission: bool) -> Purpose {
        if is_retransmission { Purpose::Retransmission } else { Purpose::Data }
    }
}

/// A packet in a driver's memory.
#[derive(Debug)]
pub struct Packet<'a> {
    /// Properties that every hop reads.
    pub meta: &'a mut Meta,
    /// The header area.
    pub header: &'a mut Header,
    /// Content that follows the header.
    pub body: Body<'a>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_travel_as_class_selectors() {
        assert_eq!(Dscp::of_priority(0).code(), 56);
        assert_eq!(Dscp::of_priority(7).code(), 0);
        for priority in 0..8 {
            assert_eq!(Dscp::of_priority(priority).priority(), priority);
        }
        assert_eq!(Dscp::of_priority(200), Dscp::of_priority(7));
    }

    #[test]
    fn a_class_leaves_the_priority_as_it_is() {
        for priority in 0..8 {
            let ordinary = Dscp::of_priority(priority);
            let training = ordinary.in_class(TrafficClass::Training);
            assert_eq!(ordinary.class(), TrafficClass::Ordinary);
            assert_eq!((training.class(), training.priority()), (TrafficClass::Training, priority));
            assert_eq!(training.in_class(TrafficClass::Ordinary), ordinary);
        }
    }

    #[test]
    fn ecn_bits_are_the_ip_headers() {
        for ecn in [Ecn::NotCapable, Ecn::Capable, Ecn::Congested] {
            assert_eq!(Ecn::from_bits(ecn.bits()), ecn);
        }
        assert_eq!(Ecn::from_bits(0b01), Ecn::Capable);
    }

    #[test]
    fn what_every_hop_reads_is_small() {
        assert!(size_of::<Meta>() <= 24, "{} bytes", size_of::<Meta>());
    }
}
