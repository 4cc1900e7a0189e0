//! Traces as pcapng, for Wireshark and its kin.
//!
//! Packets appear as the UDP datagrams that they are on a real network: hosts as 10.x.y.z, the
//! entropy as source port, DSCP and ECN in the IP header. Every link is an interface of its own, so a
//! packet appears once for each hop, and a filter on the interface shows one link. Bodies that the simulation does not carry
//! are cut off, as a capture with a short snapshot length would.

use std::io::{self, Write};

use thalweg_core::{Body, HEADER_BYTES, Meta, NodeId, Packet, Time};

use super::{Incident, Tracer};
use crate::topology::LinkId;

const LINKTYPE_IPV4: u16 = 228;
const IP_AND_UDP_BYTES: usize = 28;
const UDP_PORT: u16 = 7_447;
/// Resolution 10⁻⁹ s: what pcapng readers handle best.
const NANOSECONDS: u8 = 9;

/// Writes a pcapng file of all packets that came out of links.
pub struct PcapNg<W: Write + Send> {
    out: W,
    failure: Option<io::Error>,
    block: Vec<u8>,
}

impl<W: Write + Send> PcapNg<W> {
    /// Writes the file's head to `out`, which is best buffered. `links` has the name of every link,
    /// in order of their ids.
    pub fn new(mut out: W, links: &[String]) -> io::Result<PcapNg<W>> {
        out.write_all(&section_header())?;
        for name in links {
            out.write_all(&interface_description(name))?;
        }
        Ok(PcapNg { out, failure: None, block: Vec::new() })
    }

    fn write_packet(&mut self, now: Time, link: LinkId, packet: &Packet<'_>) -> io::Result<()> {
        let body: &[u8] = match &packet.body {
            Body::Bytes(bytes) => bytes,
            Body::Length(_) => &[],
        };
        let captured = IP_AND_UDP_BYTES + HEADER_BYTES + body.len();
        let original = IP_AND_UDP_BYTES + HEADER_BYTES + packet.body.len();
        self.block.clear();
        let ns = now.as_ps() / 1_000;
        for word in [link.0, (ns >> 32) as u32, ns as u32, captured as u32, original as u32] {
            self.block.extend(word.to_le_bytes());
        }
        self.block.extend(ip_and_udp(packet.meta, original));
        self.block.extend(&*packet.header);
        self.block.extend(body);
        self.block.resize(self.block.len().next_multiple_of(4), 0);
        let total = (self.block.len() + 12) as u32;
        self.out.write_all(&6u32.to_le_bytes())?;
        self.out.write_all(&total.to_le_bytes())?;
        self.out.write_all(&self.block)?;
        self.out.write_all(&total.to_le_bytes())
    }
}

impl<W: Write + Send> Tracer for PcapNg<W> {
    fn on(&mut self, now: Time, link: Option<LinkId>, incident: Incident, packet: Packet<'_>) {
        if let (Some(link), Incident::Arrived, None) = (link, incident, &self.failure) {
            self.failure = self.write_packet(now, link, &packet).err();
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.failure.take().map_or_else(|| self.out.flush(), Err)
    }
}

fn section_header() -> [u8; 28] {
    let mut block = [0; 28];
    block[0..4].copy_from_slice(&0x0a0d_0d0a_u32.to_le_bytes());
    block[4..8].copy_from_slice(&28u32.to_le_bytes());
    block[8..12].copy_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
    block[12..14].copy_from_slice(&1u16.to_le_bytes());
    block[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
    block[24..28].copy_from_slice(&28u32.to_le_bytes());
    block
}

fn interface_description(name: &str) -> Vec<u8> {
    let mut body = LINKTYPE_IPV4.to_le_bytes().to_vec();
    body.resize(8, 0);
    // Option 2 is the name, option 9 the resolution of time stamps, option 0 the end.
    push_option(&mut body, 2, name.as_bytes());
    push_option(&mut body, 9, &[NANOSECONDS]);
    push_option(&mut body, 0, &[]);
    let total = (body.len() as u32 + 12).to_le_bytes();
    [&1u32.to_le_bytes()[..], &total, &body, &total].concat()
}

fn push_option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    // Names come from files; what does not fit the length is cut.
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn ip_and_udp(meta: &Meta, total_bytes: usize) -> [u8; IP_AND_UDP_BYTES] {
    let total = u16::try_from(total_bytes).unwrap_or(u16::MAX);
    let mut bytes = [0; IP_AND_UDP_BYTES];
    bytes[0] = 0x45;
    bytes[1] = meta.dscp.code() << 2 | meta.ecn.bits();
    bytes[2..4].copy_from_slice(&total.to_be_bytes());
    bytes[8] = 64;
    bytes[9] = 17;
    bytes[12..16].copy_from_slice(&address(meta.src));
    bytes[16..20].copy_from_slice(&address(meta.dst));
    let checksum = ip_checksum(&bytes[..20]);
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    bytes[20..22].copy_from_slice(&meta.entropy.to_be_bytes());
    bytes[22..24].copy_from_slice(&UDP_PORT.to_be_bytes());
    bytes[24..26].copy_from_slice(&(total - 20).to_be_bytes());
    bytes
}

fn address(node: NodeId) -> [u8; 4] {
    let [_, high, middle, low] = node.0.to_be_bytes();
    [10, high, middle, low]
}

fn ip_checksum(header: &[u8]) -> u16 {
    let words =
        header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use thalweg_core::{Dscp, Ecn};

    use super::*;

    #[test]
    fn the_ip_header_is_literal() {
        let meta = Meta {
            src: NodeId(1),
            dst: NodeId(0x0203),
            entropy: 5,
            dscp: Dscp::of_priority(0),
            ecn: Ecn::Congested,
            ..Meta::default()
        };
        let bytes = ip_and_udp(&meta, 92);
        assert_eq!(bytes[..4], [0x45, 0xe3, 0, 92]);
        assert_eq!(bytes[12..20], [10, 0, 0, 1, 10, 0, 2, 3]);
        assert_eq!(bytes[20..26], [0, 5, 0x1d, 0x17, 0, 72]);
        assert_eq!(ip_checksum(&bytes[..20]), 0, "a header with its checksum sums to zero");
    }

    #[test]
    fn blocks_say_their_length_at_both_ends() {
        let mut bytes = Vec::new();
        let mut pcap =
            PcapNg::new(&mut bytes, &["left".to_owned(), "right".to_owned()]).expect("memory");
        let mut meta = Meta { wire_bytes: 100, ..Meta::default() };
        let mut header = [7; HEADER_BYTES];
        let packet = Packet { meta: &mut meta, header: &mut header, body: Body::Length(1_000) };
        pcap.on(Time::from_ps(2_000_000), Some(LinkId(1)), Incident::Arrived, packet);
        pcap.finish().expect("memory");
        let mut rest = &bytes[..];
        let mut kinds = Vec::new();
        while !rest.is_empty() {
            let word =
                |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().expect("4 bytes"));
            let length = word(4) as usize;
            assert_eq!(word(length - 4) as usize, length);
            kinds.push(word(0));
            rest = &rest[length..];
        }
        assert_eq!(kinds, [0x0a0d_0d0a, 1, 1, 6]);
    }
}
