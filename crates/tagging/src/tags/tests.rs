//! The program in the kernel against the rule in `thalweg_prioritize`, packet by packet.

use std::net::{Ipv4Addr, Ipv6Addr};

use thalweg_core::{Dscp, Rng, Span, Time};
use thalweg_lab::testing::{Lack, skip};
use thalweg_prioritize::Thresholds;
use thalweg_prioritize::tagger::{CarriedFlow, Segment};

use super::*;
use crate::program::{IS_BOUNDED, LAST_NANOS, LOWER, NEXT_SEQUENCE, SENT, UPPER};

const ETHERNET: usize = 14;
const OWN_PORT: u16 = 40_000;
const SERVICE_PORT: u16 = 5_001;
/// A moment that is far in the past, or in the future, of every test.
const LONG_AGO: u64 = 0;
const LATER: u64 = 1 << 61;

/// A packet to be made.
#[derive(Clone, Copy, Debug)]
struct Made {
    is_ipv6: bool,
    class: u8,
    flags: u8,
    segment: Segment,
    ports: (u16, u16),
    ip_options: usize,
    tcp_options: usize,
}

impl Default for Made {
    fn default() -> Made {
        let segment = Segment { sequence: 0, payload_bytes: 100, opens: false };
        let (ip_options, tcp_options) = (0, 0);
        let ports = (OWN_PORT, SERVICE_PORT);
        Made { is_ipv6: false, class: 0, flags: 0x10, segment, ports, ip_options, tcp_options }
    }
}

const OWN_V4: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 3);
const PEER_V4: Ipv4Addr = Ipv4Addr::new(10, 9, 8, 7);
const OWN_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 2, 3, 4, 5, 6, 7);
const PEER_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 9, 9, 3, 4, 5, 6, 8);

impl Made {
    fn bytes(&self) -> Vec<u8> {
        let tcp_bytes = 20 + 4 * self.tcp_options;
        let data = self.segment.payload_bytes as usize;
        let mut tcp = vec![0; tcp_bytes + data];
        tcp[0..2].copy_from_slice(&self.ports.0.to_be_bytes());
        tcp[2..4].copy_from_slice(&self.ports.1.to_be_bytes());
        tcp[4..8].copy_from_slice(&self.segment.sequence.to_be_bytes());
        tcp[12] = ((tcp_bytes / 4) as u8) << 4;
        tcp[13] = self.flags | u8::from(self.segment.opens) << 1;
        let mut packet = vec![0; 12];
        if self.is_ipv6 {
            packet.extend([0x86, 0xdd, 0x60 | self.class >> 4, self.class << 4 | 0x0a, 0xbc, 0xde]);
            packet.extend((tcp.len() as u16).to_be_bytes());
            packet.extend([6, 64]);
            packet.extend(OWN_V6.octets());
            packet.extend(PEER_V6.octets());
        } else {
            let header = 20 + 4 * self.ip_options;
            let length = ((header + tcp.len()) as u16).to_be_bytes();
            packet.extend([0x08, 0, 0x40 | (header / 4) as u8, self.class]);
            packet.extend(length);
            packet.extend([0x12, 0x34, 0x40, 0, 64, 6, 0, 0]);
            packet.extend(OWN_V4.octets());
            packet.extend(PEER_V4.octets());
            packet.extend(vec![1; 4 * self.ip_options]);
            let sum = header_sum(&packet[ETHERNET..]);
            packet[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&(!sum).to_be_bytes());
        }
        packet.extend(tcp);
        packet
    }

    fn key(&self) -> Vec<u8> {
        let (own, peer) = self.ends();
        let mut key = [mapped(own), mapped(peer)].concat();
        key.extend(self.ports.0.to_be_bytes());
        key.extend(self.ports.1.to_be_bytes());
        key
    }

    fn ends(&self) -> (IpAddr, IpAddr) {
        if self.is_ipv6 { (OWN_V6.into(), PEER_V6.into()) } else { (OWN_V4.into(), PEER_V4.into()) }
    }

    fn service(&self) -> Service {
        Service::of(self.ends().1, self.ports.0, self.ports.1)
    }

    /// The packet with another code point.
    fn with(&self, dscp: Dscp) -> Vec<u8> {
        Made { class: self.class & 3 | dscp.code() << 2, ..*self }.bytes()
    }
}

/// The ones' complement sum of the 16-bit words of an IPv4 header.
fn header_sum(packet: &[u8]) -> u16 {
    let header = &packet[..4 * usize::from(packet[0] & 0x0f)];
    let words =
        header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let mut sum: u32 = words.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn rule(rng: &mut Rng) -> PacketRule {
    let mut edges: Vec<u64> = (0..rng.below(8)).map(|_| 1 + rng.below(4_000)).collect();
    edges.sort_unstable();
    edges.dedup();
    let edges: Vec<Bytes> = edges.into_iter().map(Bytes::new).collect();
    PacketRule {
        thresholds: Thresholds::new(&edges).expect("edges rise"),
        slack: Bytes::new(rng.below(2_000)),
        idle_after: Span::from_ms(100),
    }
}

/// Loads the program, or skips the test.
fn load(rule: &PacketRule) -> Option<Tags> {
    match Tags::load(rule, 16) {
        Ok(tags) => Some(tags),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            skip(Lack::Root, error);
            None
        }
        Err(error) => panic!("the kernel refuses the program: {error}"),
    }
}

impl Tags {
    fn carried(&self, key: &[u8]) -> Option<CarriedFlow> {
        let value = self.flows.get(key).unwrap()?;
        let long = |at: i16| u64::from_ne_bytes(*value[at as usize..].first_chunk().unwrap());
        let int = |at: i16| u32::from_ne_bytes(*value[at as usize..].first_chunk().unwrap());
        let bounds = Bounds { lower: Bytes::new(long(LOWER)), upper: Bytes::new(long(UPPER)) };
        Some(CarriedFlow {
            sent: Bytes::new(long(SENT)),
            next_sequence: int(NEXT_SEQUENCE),
            last_at: Time::ZERO,
            bounds: (int(IS_BOUNDED) != 0).then_some(bounds),
        })
    }

    fn put_carried(&self, key: &[u8], flow: &CarriedFlow, last_nanos: u64) {
        let mut value = vec![0; FLOW_BYTES];
        let mut put = |at: i16, bytes: &[u8]| {
            value[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        };
        let bounds = flow.bounds.unwrap_or(Bounds { lower: Bytes::ZERO, upper: Bytes::ZERO });
        put(SENT, &flow.sent.as_u64().to_ne_bytes());
        put(LAST_NANOS, &last_nanos.to_ne_bytes());
        put(LOWER, &bounds.lower.as_u64().to_ne_bytes());
        put(UPPER, &bounds.upper.as_u64().to_ne_bytes());
        put(NEXT_SEQUENCE, &flow.next_sequence.to_ne_bytes());
        put(IS_BOUNDED, &u32::from(flow.bounds.is_some()).to_ne_bytes());
        self.flows.set(key, &value).unwrap();
    }
}

fn draw_bounds(rng: &mut Rng) -> Option<Bounds> {
    let lower = rng.below(5_000);
    let bounds = Bounds { lower: Bytes::new(lower), upper: Bytes::new(lower + rng.below(5_000)) };
    (rng.below(3) > 0).then_some(bounds)
}

fn draw_packet(rng: &mut Rng, near: u32) -> Made {
    let ports = match rng.below(3) {
        0 => (OWN_PORT, SERVICE_PORT),
        1 => (SERVICE_PORT, OWN_PORT),
        _ => (SERVICE_PORT, SERVICE_PORT),
    };
    let distance = [0, 0, 0, rng.below(3_000) as u32, (rng.below(3_000) as u32).wrapping_neg()];
    let distance = distance[rng.below(5) as usize];
    Made {
        is_ipv6: rng.below(2) == 0,
        class: rng.below(4) as u8,
        flags: 0x10,
        segment: Segment {
            sequence: near.wrapping_add(distance),
            payload_bytes: [0, 1, 100, 1_400][rng.below(4) as usize],
            opens: rng.below(20) == 0,
        },
        ports,
        ip_options: rng.below(3) as usize,
        tcp_options: rng.below(4) as usize,
    }
}

/// The moment at which all packets of the rule leave; flows were last active long before, or just now.
const NOW: Time = Time::from_ps(1 << 60);

// spec: machine
#[test]
fn the_program_agrees_with_the_rule_on_drawn_states() {
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let rule = rule(&mut rng);
        let Some(tags) = load(&rule) else { return };
        for _ in 0..250 {
            let near = [0, 7_000, u32::MAX - 500][rng.below(3) as usize];
            let made = draw_packet(&mut rng, near);
            let (key, next) = (made.key(), draw_bounds(&mut rng));
            tags.set_next(&made.service(), next).unwrap();
            let is_idle = rng.below(4) == 0;
            let state = CarriedFlow {
                sent: Bytes::new(rng.below(6_000)),
                next_sequence: near,
                last_at: if is_idle { Time::ZERO } else { NOW },
                bounds: draw_bounds(&mut rng),
            };
            let mut carried = (rng.below(5) > 0).then_some(state);
            match &carried {
                Some(flow) => tags.put_carried(&key, flow, if is_idle { LONG_AGO } else { LATER }),
                None => {
                    tags.flows.remove(&key).unwrap();
                }
            }
            let (verdict, after) = tags.program.test(&made.bytes()).unwrap();
            let priority = rule.priority(&mut carried, NOW, made.segment, next);
            assert_eq!(verdict, -1, "{made:?}");
            assert_eq!(
                after,
                made.with(Dscp::of_priority(priority)),
                "{rule:?} {made:?} {state:?}"
            );
            let expected = carried.map(|flow| CarriedFlow { last_at: Time::ZERO, ..flow });
            assert_eq!(tags.carried(&key), expected, "{rule:?} {made:?} {state:?}");
        }
    }
}

// spec: machine
#[test]
fn the_program_agrees_with_the_rule_over_a_whole_flow() {
    let rule = PacketRule {
        thresholds: Thresholds::default(),
        slack: Bytes::new(100_000),
        idle_after: Span::from_s(3_600),
    };
    let Some(tags) = load(&rule) else { return };
    let mut seen = [0; PRIORITIES];
    for is_bounded in [true, false] {
        let bounds = Bounds { lower: Bytes::new(4_000_000), upper: Bytes::new(4_600_000) };
        let next = is_bounded.then_some(bounds);
        let mut made = Made { is_ipv6: is_bounded, ..Made::default() };
        tags.set_next(&made.service(), next).unwrap();
        made.segment.sequence = u32::MAX - 1_000_000;
        let mut carried = None;
        for _ in 0..1_600 {
            made.segment.payload_bytes = 3_000;
            let (_, after) = tags.program.test(&made.bytes()).unwrap();
            let priority = rule.priority(&mut carried, Time::ZERO, made.segment, next);
            seen[usize::from(priority)] += 1;
            assert_eq!(after, made.with(Dscp::of_priority(priority)), "{carried:?}");
            made.segment.sequence = made.segment.sequence.wrapping_add(3_000);
        }
    }
    let counts = tags.counts().unwrap();
    assert_eq!(counts.packets, seen);
    assert_eq!((counts.bounded, counts.unbounded, counts.left_alone), (1, 1, 0));
    assert!(seen.iter().all(|&packets| packets > 0), "every priority occurs: {seen:?}");
}

#[test]
fn what_has_a_code_point_or_is_no_tcp_is_left_alone() {
    let rule = rule(&mut Rng::new(1));
    let Some(tags) = load(&rule) else { return };
    for is_ipv6 in [false, true] {
        for class in [4, 0x28, 0xfc] {
            let packet = Made { is_ipv6, class, ..Made::default() }.bytes();
            assert_eq!(tags.program.test(&packet).unwrap(), (-1, packet));
        }
        let whole = Made { is_ipv6, ..Made::default() }.bytes();
        let mut datagram = whole.clone();
        datagram[ETHERNET + if is_ipv6 { 6 } else { 9 }] = 17;
        assert_eq!(tags.program.test(&datagram).unwrap().1, datagram, "UDP");
        // The kernel itself refuses shorter ones.
        for length in ETHERNET + 40..whole.len() - 100 {
            tags.program.test(&whole[..length]).unwrap();
        }
    }
    let mut fragment = Made::default().bytes();
    fragment[ETHERNET + 7] = 1;
    assert_eq!(tags.program.test(&fragment).unwrap().1, fragment, "a later fragment");
    let mut header = Made::default().bytes();
    header[ETHERNET] = 0x44;
    assert_eq!(tags.program.test(&header).unwrap().1, header, "a header of 16 bytes");
    assert_eq!(tags.counts().unwrap().left_alone, 6);
}
