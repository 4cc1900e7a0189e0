//! The program at egress that gives packets of TCP their priorities.
//!
//! It does what [`PacketRule`](thalweg_prioritize::tagger::PacketRule) does, once a packet, and a test compares the two.
//! A GSO batch counts as one packet.
//!
//! ```text
//!   settings ──┐          ┌── counts
//!   next ──────┤ program  ├── flows: state of every connection, the program's own
//!              └────┬─────┘
//!      packet ──────┴── the same packet with a code point
//! ```
// spec: Q-14

use thalweg_core::PRIORITIES;
use thalweg_linux::{Alu, Code, Helper, Jump, Label, Map, Memory, Register, Size};

use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};

// Fields of the settings, eight bytes each.
pub(crate) const SLACK: i16 = 0;
pub(crate) const IDLE_NANOS: i16 = 8;
pub(crate) const LOWEST: i16 = 16;
/// Edges of all priorities but the highest; the greatest number where there is no such priority.
pub(crate) const EDGES: i16 = 24;
pub(crate) const SETTINGS_BYTES: usize = EDGES as usize + 8 * (PRIORITIES - 1);

// Fields of the counts, eight bytes each.
/// Packets of each priority, the highest first.
pub(crate) const OF_PRIORITY: i16 = 0;
pub(crate) const LEFT_ALONE: i16 = 64;
pub(crate) const BOUNDED: i16 = 72;
pub(crate) const UNBOUNDED: i16 = 80;
pub(crate) const COUNTS_BYTES: usize = 88;

// Fields of the state of a connection.
pub(crate) const SENT: i16 = 0;
pub(crate) const LAST_NANOS: i16 = 8;
pub(crate) const LOWER: i16 = 16;
pub(crate) const UPPER: i16 = 24;
pub(crate) const NEXT_SEQUENCE: i16 = 32;
pub(crate) const IS_BOUNDED: i16 = 36;
pub(crate) const FLOW_BYTES: usize = 40;

/// Addresses of both ends, the own one first, IPv4 ones as they are mapped into IPv6; then both ports.
pub(crate) const FLOW_KEY_BYTES: usize = 36;
/// Address of the peer, port of the service, and 1 in two bytes if this end answers at that port, otherwise 0.
pub(crate) const NEXT_KEY_BYTES: usize = 20;
/// Lower and upper bound.
pub(crate) const NEXT_BYTES: usize = 16;

// Fields of the kernel's `struct __sk_buff` and `struct bpf_tcp_sock`.
const SKB_LENGTH: i16 = 0;
const SKB_PROTOCOL: i16 = 16;
const SKB_SOCKET: i16 = 168;
const TCP_PACKETS_OUT: i16 = 44;

const ETHERNET_BYTES: i32 = 14;
const IPV4_BYTES: i32 = 20;
const IPV6_BYTES: i32 = 40;
/// Up to the flags.
const TCP_BYTES: i32 = 14;
const TCP: i32 = 6;
const OPENS: i32 = 0x02;

// Places on the stack.
const NEW_HEADER: i16 = -8;
const IP: i16 = -64;
const TRANSPORT: i16 = -80;
const FLOW_KEY: i16 = -120;
const NEXT_KEY: i16 = -144;
const NEW_FLOW: i16 = -184;
const PAYLOAD: i16 = -192;
const SEQUENCE: i16 = -200;
const NOW: i16 = -208;
/// Type of service or traffic class, and whether the packet is one of IPv6.
const CLASS: i16 = -224;
const IS_IPV6: i16 = -232;

/// Verdict: programs and filters behind this one continue.
const NEXT_PROGRAM: i32 = -1;

/// The maps of a program.
pub(crate) struct Shared<'a> {
    pub(crate) settings: &'a Memory,
    pub(crate) counts: &'a Memory,
    pub(crate) flows: &'a Map,
    pub(crate) next: &'a Map,
}

/// Places of a program that several steps lead to.
struct Places {
    /// The packet is not one of TCP, or not whole.
    other: Label,
    /// It has a code point.
    left_alone: Label,
    /// `R8` is its priority.
    decided: Label,
    /// It has the highest priority.
    highest: Label,
}

/// Puts the program together.
pub(crate) fn program(shared: &Shared<'_>) -> Code {
    let mut code = Code::new();
    put(&mut code, shared);
    code
}

fn put(code: &mut Code, shared: &Shared<'_>) {
    let [other, left_alone, decided, highest, ipv6, transport] =
        std::array::from_fn(|_| code.label());
    let places = Places { other, left_alone, decided, highest };
    code.set(R6, R1);
    code.address(R9, shared.settings);
    code.load(Size::Word, R2, R6, SKB_PROTOCOL);
    code.go_if(Jump::Equal, R2, i32::from((libc::ETH_P_IPV6 as u16).to_be()), ipv6);
    code.go_if(Jump::NotEqual, R2, i32::from((libc::ETH_P_IP as u16).to_be()), other);
    read_ipv4(code, &places);
    code.go(transport);
    code.place(ipv6);
    read_ipv6(code, &places);
    code.place(transport);
    read_transport(code, shared, &places);
    find_flow(code, shared, &places);
    decide(code, &places);
    code.place(highest);
    code.set(R8, 0);
    code.place(decided);
    write_class(code, shared);
    code.place(left_alone);
    count(code, shared, LEFT_ALONE);
    code.place(other);
    code.exit_with(NEXT_PROGRAM);
}

/// Copies bytes of the packet from a fixed place, or from that in `R8`, to the stack.
fn copy(code: &mut Code, from: Option<i32>, to: i16, bytes: i32, otherwise: Label) {
    code.set(R1, R6);
    match from {
        Some(place) => code.set(R2, place),
        None => code.set(R2, R8),
    }
    code.set(R3, R10);
    code.alu(Alu::Add, R3, i32::from(to));
    code.set(R4, bytes);
    code.call(Helper::LoadBytes);
    code.go_if(Jump::NotEqual, R0, 0, otherwise);
}

/// Reads an IPv4 header. `R8` becomes the place of the one behind it.
fn read_ipv4(code: &mut Code, places: &Places) {
    copy(code, Some(ETHERNET_BYTES), IP, IPV4_BYTES, places.other);
    code.load(Size::Byte, R2, R10, IP + 9);
    code.go_if(Jump::NotEqual, R2, TCP, places.other);
    // All but the first fragment have no TCP header.
    code.load(Size::Half, R2, R10, IP + 6);
    code.network_order(R2, Size::Half);
    code.alu(Alu::And, R2, 0x1fff);
    code.go_if(Jump::NotEqual, R2, 0, places.other);
    code.load(Size::Byte, R2, R10, IP + 1);
    code.store(Size::Double, R10, CLASS, R2);
    code.go_if(Jump::AtLeast, R2, 4, places.left_alone);
    code.load(Size::Byte, R8, R10, IP);
    code.alu(Alu::And, R8, 0x0f);
    code.alu(Alu::Left, R8, 2);
    code.go_if(Jump::Below, R8, IPV4_BYTES, places.other);
    code.alu(Alu::Add, R8, ETHERNET_BYTES);
    code.set(R2, 0);
    code.store(Size::Double, R10, IS_IPV6, R2);
    for (end, address) in [(FLOW_KEY, IP + 12), (FLOW_KEY + 16, IP + 16)] {
        code.set(R2, 0);
        code.store(Size::Double, R10, end, R2);
        code.set(R2, 0xffff);
        code.network_order(R2, Size::Word);
        code.store(Size::Word, R10, end + 8, R2);
        code.load(Size::Word, R2, R10, address);
        code.store(Size::Word, R10, end + 12, R2);
    }
}

/// Reads an IPv6 header. `R8` becomes the place of the one behind it. Packets with further headers are left alone.
fn read_ipv6(code: &mut Code, places: &Places) {
    copy(code, Some(ETHERNET_BYTES), IP, IPV6_BYTES, places.other);
    code.load(Size::Byte, R2, R10, IP + 6);
    code.go_if(Jump::NotEqual, R2, TCP, places.other);
    code.load(Size::Half, R2, R10, IP);
    code.network_order(R2, Size::Half);
    code.alu(Alu::Right, R2, 4);
    code.alu(Alu::And, R2, 0xff);
    code.store(Size::Double, R10, CLASS, R2);
    code.go_if(Jump::AtLeast, R2, 4, places.left_alone);
    code.set(R8, ETHERNET_BYTES + IPV6_BYTES);
    code.set(R2, 1);
    code.store(Size::Double, R10, IS_IPV6, R2);
    for part in 0..8 {
        code.load(Size::Word, R2, R10, IP + 8 + 4 * part);
        code.store(Size::Word, R10, FLOW_KEY + 4 * part, R2);
    }
}

/// Reads a TCP header. What has no data, and what opens a connection, is decided here.
fn read_transport(code: &mut Code, shared: &Shared<'_>, places: &Places) {
    let [goes_on, starts, found] = std::array::from_fn(|_| code.label());
    copy(code, None, TRANSPORT, TCP_BYTES, places.other);
    // Both ports, as they stand.
    code.load(Size::Word, R2, R10, TRANSPORT);
    code.store(Size::Word, R10, FLOW_KEY + 32, R2);
    code.load(Size::Byte, R2, R10, TRANSPORT + 13);
    code.alu(Alu::And, R2, OPENS);
    code.go_if(Jump::Equal, R2, 0, goes_on);
    map_and_key(code, shared.flows, FLOW_KEY);
    code.call(Helper::MapRemove);
    code.go(places.highest);
    code.place(goes_on);
    code.load(Size::Byte, R2, R10, TRANSPORT + 12);
    code.alu(Alu::Right, R2, 4);
    code.alu(Alu::Left, R2, 2);
    code.go_if(Jump::Below, R2, IPV4_BYTES, places.other);
    code.alu(Alu::Add, R2, R8);
    code.load(Size::Word, R3, R6, SKB_LENGTH);
    code.go_if(Jump::AtMost, R3, R2, places.highest);
    code.alu(Alu::Sub, R3, R2);
    code.store(Size::Double, R10, PAYLOAD, R3);
    code.load(Size::Word, R2, R10, TRANSPORT + 4);
    code.network_order(R2, Size::Word);
    code.store(Size::Double, R10, SEQUENCE, R2);
    code.call(Helper::Nanos);
    code.store(Size::Double, R10, NOW, R0);
    // The service has the lower port: a client's own port is one of the upper ones.
    code.load(Size::Half, R2, R10, TRANSPORT);
    code.network_order(R2, Size::Half);
    code.load(Size::Half, R3, R10, TRANSPORT + 2);
    code.network_order(R3, Size::Half);
    code.go_if(Jump::AtMost, R2, R3, starts);
    code.store(Size::Half, R10, NEXT_KEY + 16, R3);
    code.set(R4, 0);
    code.go(found);
    code.place(starts);
    code.store(Size::Half, R10, NEXT_KEY + 16, R2);
    code.set(R4, 1);
    code.place(found);
    code.store(Size::Half, R10, NEXT_KEY + 18, R4);
    for part in 0..4 {
        code.load(Size::Word, R2, R10, FLOW_KEY + 16 + 4 * part);
        code.store(Size::Word, R10, NEXT_KEY + 4 * part, R2);
    }
}

/// Finds the flow that the connection carries, or begins one. `R7` becomes its state.
fn find_flow(code: &mut Code, shared: &Shared<'_>, places: &Places) {
    let [begin, goes_on] = std::array::from_fn(|_| code.label());
    map_and_key(code, shared.flows, FLOW_KEY);
    code.call(Helper::MapFind);
    code.go_if(Jump::Equal, R0, 0, begin);
    code.set(R7, R0);
    distance(code);
    code.alu(Alu::Right, R2, 31);
    code.load(Size::Double, R4, R10, NOW);
    code.load(Size::Double, R5, R7, LAST_NANOS);
    code.store(Size::Double, R7, LAST_NANOS, R4);
    code.go_if(Jump::NotEqual, R2, 0, places.highest);
    code.load(Size::Double, R3, R9, IDLE_NANOS);
    code.alu(Alu::Add, R5, R3);
    code.go_if(Jump::Below, R4, R5, goes_on);
    // A connection that waits for acknowledgements is not idle.
    code.load(Size::Double, R1, R6, SKB_SOCKET);
    code.go_if(Jump::Equal, R1, 0, begin);
    code.call(Helper::FullSocket);
    code.go_if(Jump::Equal, R0, 0, begin);
    code.set(R1, R0);
    code.call(Helper::TcpSocket);
    code.go_if(Jump::Equal, R0, 0, begin);
    code.load(Size::Word, R2, R0, TCP_PACKETS_OUT);
    code.go_if(Jump::NotEqual, R2, 0, goes_on);
    code.place(begin);
    begin_flow(code, shared, places);
    code.place(goes_on);
}

/// Begins a flow with the bounds that are next for its ends.
fn begin_flow(code: &mut Code, shared: &Shared<'_>, places: &Places) {
    let [unbounded, write] = std::array::from_fn(|_| code.label());
    map_and_key(code, shared.next, NEXT_KEY);
    code.call(Helper::MapFind);
    code.go_if(Jump::Equal, R0, 0, unbounded);
    code.load(Size::Double, R2, R0, 0);
    code.store(Size::Double, R10, NEW_FLOW + LOWER, R2);
    code.load(Size::Double, R2, R0, 8);
    code.store(Size::Double, R10, NEW_FLOW + UPPER, R2);
    code.set(R8, 1);
    count(code, shared, BOUNDED);
    code.go(write);
    code.place(unbounded);
    code.set(R8, 0);
    code.store(Size::Double, R10, NEW_FLOW + LOWER, R8);
    code.store(Size::Double, R10, NEW_FLOW + UPPER, R8);
    count(code, shared, UNBOUNDED);
    code.place(write);
    code.store(Size::Word, R10, NEW_FLOW + IS_BOUNDED, R8);
    code.set(R2, 0);
    code.store(Size::Double, R10, NEW_FLOW + SENT, R2);
    code.load(Size::Double, R2, R10, NOW);
    code.store(Size::Double, R10, NEW_FLOW + LAST_NANOS, R2);
    code.load(Size::Double, R2, R10, SEQUENCE);
    code.store(Size::Word, R10, NEW_FLOW + NEXT_SEQUENCE, R2);
    map_and_key(code, shared.flows, FLOW_KEY);
    code.set(R3, R10);
    code.alu(Alu::Add, R3, i32::from(NEW_FLOW));
    code.set(R4, 0);
    code.call(Helper::MapSet);
    map_and_key(code, shared.flows, FLOW_KEY);
    code.call(Helper::MapFind);
    // Another core has just removed it.
    code.go_if(Jump::Equal, R0, 0, places.highest);
    code.set(R7, R0);
}

/// `R2` becomes the distance from the next byte of the flow to the packet's first, on 32 bits.
fn distance(code: &mut Code) {
    code.load(Size::Double, R2, R10, SEQUENCE);
    code.load(Size::Word, R3, R7, NEXT_SEQUENCE);
    code.alu(Alu::Sub, R2, R3);
    code.alu(Alu::Left, R2, 32);
    code.alu(Alu::Right, R2, 32);
}

/// Takes note of the packet's bytes, and decides by Algorithm 1. `R8` becomes the priority.
fn decide(code: &mut Code, places: &Places) {
    let [climbs, sinks, lowest] = std::array::from_fn(|_| code.label());
    distance(code);
    code.load(Size::Double, R3, R7, SENT);
    code.alu(Alu::Add, R2, R3);
    code.load(Size::Double, R4, R10, PAYLOAD);
    code.set(R3, R2);
    code.alu(Alu::Add, R3, R4);
    code.store(Size::Double, R7, SENT, R3);
    code.load(Size::Double, R3, R10, SEQUENCE);
    code.alu(Alu::Add, R3, R4);
    code.store(Size::Word, R7, NEXT_SEQUENCE, R3);

    // `R2` is what was sent before this packet.
    code.load(Size::Word, R3, R7, IS_BOUNDED);
    code.go_if(Jump::Equal, R3, 0, sinks);
    code.load(Size::Double, R3, R7, LOWER);
    code.go_if(Jump::Below, R2, R3, climbs);
    code.set(R4, R2);
    code.alu(Alu::Sub, R4, R3);
    code.load(Size::Double, R5, R9, SLACK);
    code.go_if(Jump::Below, R4, R5, places.highest);
    code.load(Size::Double, R3, R7, UPPER);
    code.go_if(Jump::AtLeast, R2, R3, lowest);
    code.go(sinks);
    code.place(climbs);
    code.alu(Alu::Sub, R3, R2);
    code.set(R2, R3);
    // `R2` is what the priority belongs to.
    code.place(sinks);
    for priority in (1..PRIORITIES as i16).rev() {
        code.set(R8, i32::from(priority));
        code.load(Size::Double, R3, R9, EDGES + 8 * (priority - 1));
        code.go_if(Jump::AtLeast, R2, R3, places.decided);
    }
    code.go(places.highest);
    code.place(lowest);
    code.load(Size::Double, R8, R9, LOWEST);
    // The verifier knows no settings.
    code.alu(Alu::And, R8, PRIORITIES as i32 - 1);
    code.go(places.decided);
}

/// Counts the packet, writes the code point of the priority in `R8`, and ends.
fn write_class(code: &mut Code, shared: &Shared<'_>) {
    let [ipv6, done] = std::array::from_fn(|_| code.label());
    code.set(R2, R8);
    code.alu(Alu::Left, R2, 3);
    code.address(R1, shared.counts);
    code.alu(Alu::Add, R1, R2);
    code.set(R2, 1);
    code.fetch_add(R1, OF_PRIORITY, R2);
    // A class selector is the upper three bits of the eight: see `Dscp::of_priority`.
    code.set(R7, PRIORITIES as i32 - 1);
    code.alu(Alu::Sub, R7, R8);
    code.go_if(Jump::Equal, R7, 0, done);
    code.alu(Alu::Left, R7, 5);
    code.load(Size::Double, R2, R10, CLASS);
    code.alu(Alu::Or, R7, R2);
    code.load(Size::Double, R2, R10, IS_IPV6);
    code.go_if(Jump::NotEqual, R2, 0, ipv6);

    code.load(Size::Byte, R2, R10, IP);
    code.store(Size::Byte, R10, NEW_HEADER, R2);
    code.store(Size::Byte, R10, NEW_HEADER + 1, R7);
    code.set(R1, R6);
    code.set(R2, ETHERNET_BYTES + 10);
    code.load(Size::Half, R3, R10, IP);
    code.load(Size::Half, R4, R10, NEW_HEADER);
    code.set(R5, 2);
    code.call(Helper::CorrectHeaderSum);
    store_header(code);
    code.go(done);

    code.place(ipv6);
    code.load(Size::Half, R2, R10, IP);
    code.network_order(R2, Size::Half);
    code.alu(Alu::And, R2, 0xf00f);
    code.alu(Alu::Left, R7, 4);
    code.alu(Alu::Or, R2, R7);
    code.network_order(R2, Size::Half);
    code.store(Size::Half, R10, NEW_HEADER, R2);
    store_header(code);
    code.place(done);
    code.exit_with(NEXT_PROGRAM);
}

/// Writes the first two bytes of the IP header.
fn store_header(code: &mut Code) {
    code.set(R1, R6);
    code.set(R2, ETHERNET_BYTES);
    code.set(R3, R10);
    code.alu(Alu::Add, R3, i32::from(NEW_HEADER));
    code.set(R4, 2);
    code.set(R5, 0);
    code.call(Helper::StoreBytes);
}

/// The first two arguments of a call about a key on the stack.
fn map_and_key(code: &mut Code, map: &Map, key: i16) {
    code.map(R1, map);
    code.set(R2, R10);
    code.alu(Alu::Add, R2, i32::from(key));
}

/// Adds one to a count. Destroys `R1` and `R2`.
fn count(code: &mut Code, shared: &Shared<'_>, field: i16) {
    code.address(R1, shared.counts);
    code.set(R2, 1);
    code.fetch_add(R1, field, R2);
}
