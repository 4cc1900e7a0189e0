//! Traces can be read by others, and tell what happened.

mod common;

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use common::scene::{Chatter, Scene};
use common::{Probe, Shot, TEN_GBPS, always, finish, leaf_spine, link, serialization, star};
use serde_json::Value;
use thalweg_core::{
    Body, BodySize, Machine, NodeId, Outbox, Packet, Purpose, Reports, Time, Verdict,
};
use thalweg_fabric::trace::{JsonLines, PcapNg};
use thalweg_fabric::{Bystander, Config, DropReason, Effect, Fabric, FabricStats, Place, Topology};

/// Links by the numbers of their ends.
fn link_names(topology: &Topology) -> Vec<String> {
    let links = topology.links();
    let ends = links.map(|link| topology.link_ends(link));
    ends.map(|(from, to)| format!("{from} to {to}")).collect()
}

/// Memory that can still be read when a tracer has been given away with it.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().expect("nobody panicked").clone()
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panicked").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs the scene of a seed with a JSON trace.
fn traced_scene(seed: u64) -> (Vec<Value>, Fabric<Chatter>) {
    let out = Shared::default();
    let (mut fabric, mut crowd) = Scene::draw(seed).stage(seed);
    fabric.trace(Box::new(JsonLines::new(out.clone())));
    finish(&mut fabric, &mut crowd);
    let text = String::from_utf8(out.bytes()).expect("JSON is UTF-8");
    let lines = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    (lines, fabric)
}

fn count(lines: &[Value], what: &str) -> u64 {
    lines.iter().filter(|line| line["what"] == what).count() as u64
}

#[test]
fn json_lines_tell_every_arrival_and_every_drop_in_order() {
    for seed in 0..30 {
        let (lines, fabric) = traced_scene(seed);
        let times: Vec<u64> =
            lines.iter().map(|line| line["ps"].as_u64().expect("a whole number")).collect();
        assert!(times.is_sorted(), "seed {seed}");
        let FabricStats { packet_hops, dropped_packets, .. } = fabric.stats();
        assert_eq!(count(&lines, "arrived"), packet_hops, "seed {seed}");
        for reason in DropReason::ALL {
            let expected = dropped_packets[reason as usize];
            assert_eq!(count(&lines, reason.name()), expected, "seed {seed}, {reason:?}");
        }
        assert_eq!(lines.len() as u64, packet_hops + fabric.stats().dropped());
        let links = 2 * fabric.topology().cables().len() as i64;
        let is_known = |line: &Value| (-1..links).contains(&line["link"].as_i64().expect("whole"));
        assert!(lines.iter().all(is_known));
    }
}

#[test]
fn a_json_line_is_literal() {
    let out = Shared::default();
    let last_link = link(&star(2), 2, 1);
    let faults = vec![always(Place::Link(last_link), Effect::Down)];
    let config = Config { faults, ..Config::default() };
    let mut fabric = Fabric::new(star(2), &config, 1, |host| match host {
        NodeId(0) => Probe::new([Shot { bytes: 1_000, priority: 0, ..Shot::to(NodeId(1)) }]),
        _ => Probe::default(),
    });
    fabric.trace(Box::new(JsonLines::new(out.clone())));
    finish(&mut fabric, &mut Bystander);
    let expected = concat!(
        r#"{"ps":1300000,"link":0,"what":"arrived","src":0,"dst":1,"bytes":1000,"dscp":56,"ecn":2}"#,
        "\n",
        r#"{"ps":2600000,"link":3,"what":"fault","src":0,"dst":1,"bytes":1000,"dscp":56,"ecn":2}"#,
        "\n",
    );
    assert_eq!(String::from_utf8(out.bytes()).expect("UTF-8"), expected);
}

/// A block of a pcapng file: its type, and what is between its lengths.
fn blocks(mut bytes: &[u8]) -> Vec<(u32, &[u8])> {
    let mut blocks = Vec::new();
    while !bytes.is_empty() {
        let total = word(bytes, 4) as usize;
        assert!(total.is_multiple_of(4) && total >= 12 && total <= bytes.len(), "{total}");
        assert_eq!(word(bytes, total - 4) as usize, total, "the same length at both ends");
        blocks.push((word(bytes, 0), &bytes[8..total - 4]));
        bytes = &bytes[total..];
    }
    blocks
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;

#[test]
fn a_capture_holds_every_arrival() {
    for seed in 0..30 {
        let out = Shared::default();
        let (mut fabric, mut crowd) = Scene::draw(seed).stage(seed);
        let names = link_names(fabric.topology());
        fabric.trace(Box::new(PcapNg::new(out.clone(), &names).expect("memory")));
        finish(&mut fabric, &mut crowd);
        let bytes = out.bytes();
        let blocks = blocks(&bytes);
        assert_eq!(blocks[0].0, SECTION);
        let (interfaces, packets) = blocks[1..].split_at(names.len());
        assert!(interfaces.iter().all(|(kind, _)| *kind == INTERFACE));
        assert!(packets.iter().all(|(_, block)| (word(block, 0) as usize) < names.len()));
        assert!(packets.iter().all(|(kind, _)| *kind == PACKET));
        assert_eq!(packets.len() as u64, fabric.stats().packet_hops, "seed {seed}");
        let ns = |block: &[u8]| u64::from(word(block, 4)) << 32 | u64::from(word(block, 8));
        assert!(packets.is_sorted_by_key(|(_, block)| ns(block)));
    }
}

/// Sends one packet with a text for a body to host 3, from the first host that is asked.
struct Postman {
    unsent: Option<&'static [u8]>,
}

impl Machine for Postman {
    fn handle_packet(&mut self, _now: Time, _packet: Packet<'_>) -> Verdict<'_> {
        Verdict::Consume
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, outbox: &mut dyn Outbox) {
        let Some(text) = self.unsent.take() else { return };
        let packet = outbox.lend(BodySize::Bytes(text.len() as u32), Purpose::Data).expect("room");
        packet.meta.dst = NodeId(3);
        packet.meta.wire_bytes = 200;
        packet.meta.entropy = 0xbeef;
        packet.header[0] = 0x77;
        let Body::Bytes(body) = packet.body else { panic!("asked for bytes") };
        body.copy_from_slice(text);
    }

    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }
}

impl Reports for Postman {
    type Event = ();

    fn poll_event(&mut self) -> Option<()> {
        None
    }
}

#[test]
fn a_captured_packet_is_the_datagram_that_it_would_be() {
    let out = Shared::default();
    let topology = leaf_spine(2, 1, TEN_GBPS);
    let mut fabric = Fabric::new(topology, &Config::default(), 1, |host| Postman {
        unsent: (host == NodeId(0)).then_some(b"hello"),
    });
    let names = link_names(fabric.topology());
    fabric.trace(Box::new(PcapNg::new(out.clone(), &names).expect("memory")));
    finish(&mut fabric, &mut Bystander);
    let bytes = out.bytes();
    let blocks = blocks(&bytes);
    let packets = &blocks[1 + names.len()..];
    assert_eq!(packets.len(), 4, "four hops");
    let over: Vec<&String> =
        packets.iter().map(|(_, block)| &names[word(block, 0) as usize]).collect();
    assert!(over[0].starts_with("0 to "), "{over:?}");
    for pair in over.windows(2) {
        let (_, to) = pair[0].split_once(" to ").expect("two ends");
        assert!(pair[1].starts_with(&format!("{to} to ")), "{over:?}");
    }
    let hop = serialization(200, TEN_GBPS.rate) + TEN_GBPS.delay;
    for (number, (_, block)) in (1..).zip(packets) {
        assert_eq!(u64::from(word(block, 8)), hop.as_ps() * number / 1_000, "in nanoseconds");
        let bytes = 20 + 8 + 64 + 5;
        assert_eq!((word(block, 12), word(block, 16)), (bytes, bytes));
        let datagram = &block[20..20 + bytes as usize];
        assert_eq!(datagram[0], 0x45);
        assert_eq!(datagram[9], 17, "UDP");
        assert_eq!(datagram[12..20], [10, 0, 0, 0, 10, 0, 0, 3]);
        assert_eq!(datagram[20..22], [0xbe, 0xef], "the entropy is the source port");
        assert_eq!(datagram[24..26], [0, 8 + 64 + 5]);
        assert_eq!(datagram[28], 0x77);
        assert_eq!(&datagram[92..], b"hello");
    }
}

/// Takes a number of bytes, then fails.
struct FullDisk {
    room_bytes: usize,
    written: Shared,
}

impl Write for FullDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.room_bytes < bytes.len() {
            return Err(io::Error::other("disk full"));
        }
        self.room_bytes -= bytes.len();
        self.written.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_stops_the_trace_and_not_the_run() {
    let (mut plain, mut crowd) = Scene::draw(3).stage(3);
    finish(&mut plain, &mut crowd);
    let written = Shared::default();
    let disk = FullDisk { room_bytes: 1_000, written: written.clone() };
    let (mut fabric, mut crowd) = Scene::draw(3).stage(3);
    fabric.trace(Box::new(JsonLines::new(disk)));
    finish(&mut fabric, &mut crowd);
    assert_eq!(fabric.digest(), plain.digest());
    assert!(written.bytes().len() <= 1_000);
}
