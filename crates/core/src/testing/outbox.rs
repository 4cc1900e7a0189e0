//! Outboxes that keep or discard packets.

use crate::id::NodeId;
use crate::machine::Outbox;
use crate::packet::{Body, BodySize, HEADER_BYTES, Header, Meta, Packet, Purpose};

/// A packet in memory of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnedPacket {
    /// Fields that every hop reads.
    pub meta: Meta,
    /// The header area.
    pub header: Header,
    /// The body after the header.
    pub body: OwnedBody,
    /// The purpose that its sender stated.
    pub purpose: Purpose,
}

/// The body of a packet in memory of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OwnedBody {
    /// A length without bytes.
    Length(u32),
    /// Real bytes.
    Bytes(Vec<u8>),
}

impl OwnedPacket {
    /// An empty packet with a body of this size.
    #[inline]
    pub fn new(size: BodySize, purpose: Purpose) -> OwnedPacket {
        let body = match size {
            BodySize::Length(bytes) => OwnedBody::Length(bytes),
            BodySize::Bytes(bytes) => OwnedBody::Bytes(vec![0; bytes as usize]),
        };
        OwnedPacket { meta: Meta::default(), header: [0; HEADER_BYTES], body, purpose }
    }

    /// A packet with data, as somebody made it up.
    pub fn made_of(meta: Meta, header: Header, body: OwnedBody) -> OwnedPacket {
        OwnedPacket { meta, header, body, purpose: Purpose::Data }
    }

    /// The packet, lent to a machine.
    #[inline]
    pub fn lend(&mut self) -> Packet<'_> {
        let body = match &mut self.body {
            OwnedBody::Length(bytes) => Body::Length(*bytes),
            OwnedBody::Bytes(bytes) => Body::Bytes(bytes),
        };
        Packet { meta: &mut self.meta, header: &mut self.header, body }
    }

    /// The bytes of its body; none where it is only a length.
    pub fn bytes(&self) -> &[u8] {
        match &self.body {
            OwnedBody::Length(_) => &[],
            OwnedBody::Bytes(bytes) => bytes,
        }
    }

    /// The size of its body.
    pub fn size(&self) -> BodySize {
        match &self.body {
            OwnedBody::Length(bytes) => BodySize::Length(*bytes),
            OwnedBody::Bytes(bytes) => BodySize::Bytes(bytes.len() as u32),
        }
    }
}

/// An outbox that keeps packets.
#[derive(Clone, Debug)]
pub struct TestOutbox {
    /// Source of the packets.
    pub src: NodeId,
    /// Number of packets that it can hold.
    pub capacity: usize,
    /// True if only control packets pass, as before a pacer. Default false.
    pub is_control_only: bool,
    /// Packets that it holds, in the order they were lent in.
    pub packets: Vec<OwnedPacket>,
}

impl Default for TestOutbox {
    /// An outbox of node 0 with room for any number of packets.
    fn default() -> TestOutbox {
        TestOutbox::new(NodeId(0))
    }
}

impl TestOutbox {
    /// An outbox of a node with room for any number of packets.
    pub fn new(src: NodeId) -> TestOutbox {
        TestOutbox::with_room(src, usize::MAX)
    }

    /// An outbox of a node with room for this number of packets.
    pub fn with_room(src: NodeId, capacity: usize) -> TestOutbox {
        TestOutbox { src, capacity, is_control_only: false, packets: Vec::new() }
    }

    /// Takes out all packets.
    pub fn take(&mut self) -> Vec<OwnedPacket> {
        std::mem::take(&mut self.packets)
    }
}

impl Outbox for TestOutbox {
    #[inline]
    fn room(&self) -> usize {
        self.capacity.saturating_sub(self.packets.len())
    }

    #[inline]
    fn lend(&mut self, body: BodySize, purpose: Purpose) -> Option<Packet<'_>> {
        if self.room() == 0 || (self.is_control_only && purpose != Purpose::Control) {
            return None;
        }
        let mut packet = OwnedPacket::new(body, purpose);
        packet.meta.src = self.src;
        self.packets.push(packet);
        self.packets.last_mut().map(OwnedPacket::lend)
    }
}

/// An outbox that lends the same memory again and again, and allocates nothing for a body that is not
/// longer than all before.
#[derive(Clone, Debug)]
pub struct DiscardOutbox {
    /// Number of packets that it still has room for.
    pub room: usize,
    /// Number of packets that were lent.
    pub lent_packets: u64,
    /// The last packet that was lent.
    pub last: OwnedPacket,
    bytes: Vec<u8>,
}

impl Default for DiscardOutbox {
    fn default() -> DiscardOutbox {
        let last = OwnedPacket::new(BodySize::Length(0), Purpose::Data);
        DiscardOutbox { room: usize::MAX, lent_packets: 0, last, bytes: Vec::new() }
    }
}

impl DiscardOutbox {
    /// An outbox that allocates nothing for bodies of up to this number of bytes.
    pub fn for_bodies(max_bytes: usize) -> DiscardOutbox {
        DiscardOutbox { bytes: Vec::with_capacity(max_bytes), ..DiscardOutbox::default() }
    }
}

impl Outbox for DiscardOutbox {
    #[inline]
    fn room(&self) -> usize {
        self.room
    }

    #[inline]
    fn lend(&mut self, body: BodySize, purpose: Purpose) -> Option<Packet<'_>> {
        self.room = self.room.checked_sub(1)?;
        self.lent_packets += 1;
        let (BodySize::Length(length) | BodySize::Bytes(length)) = body;
        let OwnedPacket { meta, header, .. } = &mut self.last;
        (*meta, *header) = (Meta::default(), [0; HEADER_BYTES]);
        (self.last.body, self.last.purpose) = (OwnedBody::Length(length), purpose);
        let body = match body {
            BodySize::Length(length) => Body::Length(length),
            BodySize::Bytes(length) => {
                self.bytes.clear();
                self.bytes.resize(length as usize, 0);
                Body::Bytes(&mut self.bytes)
            }
        };
        Some(Packet { meta: &mut self.last.meta, header: &mut self.last.header, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outbox_keeps_what_was_lent_until_it_is_full() {
        let mut outbox = TestOutbox::with_room(NodeId(3), 2);
        for (size, purpose) in
            [(BodySize::Length(9), Purpose::Data), (BodySize::Bytes(2), Purpose::Control)]
        {
            let packet = outbox.lend(size, purpose).expect("there is room");
            packet.meta.dst = NodeId(4);
            if let Body::Bytes(bytes) = packet.body {
                bytes.fill(7);
            }
        }
        assert!(outbox.lend(BodySize::Length(0), Purpose::Data).is_none());
        let [first, second] = &outbox.take()[..] else { panic!("two were lent") };
        assert_eq!((first.meta.src, first.meta.dst), (NodeId(3), NodeId(4)));
        assert_eq!((first.size(), first.purpose), (BodySize::Length(9), Purpose::Data));
        assert_eq!((second.bytes(), second.purpose), (&[7, 7][..], Purpose::Control));
        assert_eq!(outbox.room(), 2, "what was taken leaves room");
    }

    #[test]
    fn a_discarding_outbox_counts_and_clears_its_memory() {
        let mut outbox = DiscardOutbox { room: 2, ..DiscardOutbox::for_bodies(4) };
        for _ in 0..2 {
            let packet = outbox.lend(BodySize::Bytes(4), Purpose::Data).expect("there is room");
            let Body::Bytes(bytes) = packet.body else { panic!("asked for bytes") };
            assert_eq!((bytes.to_vec(), packet.header[0]), (vec![0; 4], 0));
            bytes.fill(1);
            packet.header[0] = 1;
        }
        assert!(outbox.lend(BodySize::Length(0), Purpose::Data).is_none());
        assert_eq!(outbox.lent_packets, 2);
    }
}
