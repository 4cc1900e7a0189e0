//! Addresses of packets.

use thalweg_core::{Header, NodeId, Packet, Tag};
use thalweg_wire::tag::{self, Key};

/// Everything of a packet that hops read, and the key that seals its header.
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'a> {
    /// Node that the packet goes to.
    pub dst: NodeId,
    /// Priority, ECN and rank.
    pub tag: Tag,
    /// Value that picks one of several equal paths.
    pub entropy: u16,
    /// Bytes that the packet occupies of a link beside its body.
    pub overhead_bytes: u32,
    /// Key of the seal, if there is one.
    pub key: Option<&'a Key>,
}

impl Envelope<'_> {
    /// Addresses a packet whose body has its final length, writes its header with `encode` and seals it.
    #[inline]
    pub fn fill(&self, packet: &mut Packet<'_>, encode: impl FnOnce(&mut Header)) {
        self.address(packet);
        encode(packet.header);
        if let Some(key) = self.key {
            tag::seal(packet.header, key);
        }
    }

    /// [`fill`](Envelope::fill) for a header that does not name the length of the body: the seal covers it.
    #[inline]
    pub fn fill_sized(&self, packet: &mut Packet<'_>, encode: impl FnOnce(&mut Header)) {
        self.address(packet);
        encode(packet.header);
        if let Some(key) = self.key {
            tag::seal_sized(packet.header, packet.body.len(), key);
        }
    }

    /// [`fill_sized`](Envelope::fill_sized) for a packet whose body is written: the seal covers the body if that is asked for.
    #[inline]
    pub fn fill_covering(
        &self,
        packet: &mut Packet<'_>,
        covers_body: bool,
        encode: impl FnOnce(&mut Header),
    ) {
        self.address(packet);
        encode(packet.header);
        if let Some(key) = self.key {
            tag::seal_packet(packet.header, &packet.body, covers_body, key);
        }
    }

    #[inline]
    fn address(&self, packet: &mut Packet<'_>) {
        packet.meta.dst = self.dst;
        packet.meta.wire_bytes = (packet.body.len() as u32).saturating_add(self.overhead_bytes);
        packet.meta.rank = self.tag.rank;
        packet.meta.entropy = self.entropy;
        packet.meta.dscp = self.tag.dscp;
        packet.meta.ecn = self.tag.ecn;
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::{Body, Dscp, Ecn, HEADER_BYTES, Meta};

    use super::*;

    #[test]
    fn a_packet_is_addressed_written_and_sealed() {
        let (mut meta, mut header) = (Meta::default(), [0; HEADER_BYTES]);
        let key = Key([9; 16]);
        let tag = Tag { dscp: Dscp::of_priority(2), ecn: Ecn::Capable, rank: 11 };
        let envelope =
            Envelope { dst: NodeId(4), tag, entropy: 77, overhead_bytes: 40, key: Some(&key) };
        let body = Body::Length(1_000);
        let mut packet = Packet { meta: &mut meta, header: &mut header, body };
        envelope.fill(&mut packet, |header| header[30] = 5);
        assert_eq!((meta.dst, meta.wire_bytes, meta.entropy), (NodeId(4), 1_040, 77));
        assert_eq!((meta.dscp, meta.ecn, meta.rank), (tag.dscp, tag.ecn, 11));
        assert_eq!(header[30], 5);
        assert!(tag::verify(&header, &key), "the seal covers what was written");
        let mut packet = Packet { meta: &mut meta, header: &mut header, body: Body::Length(1_000) };
        envelope.fill_sized(&mut packet, |header| header[30] = 6);
        assert_eq!((header[30], meta.wire_bytes), (6, 1_040));
        assert!(tag::verify_sized(&header, 1_000, &key) && !tag::verify(&header, &key));
        for covers_body in [false, true] {
            let mut bytes = *b"values";
            let body = Body::Bytes(&mut bytes);
            let mut packet = Packet { meta: &mut meta, header: &mut header, body };
            envelope.fill_covering(&mut packet, covers_body, |header| header[30] = 7);
            assert_eq!(tag::verify_with_body(&header, b"values", &key), covers_body);
            assert_eq!(tag::verify_sized(&header, 6, &key), !covers_body);
        }
    }
}
