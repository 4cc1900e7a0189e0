//! A server asks switches for their limits.
// spec: E-06 machine

use thalweg_core::testing::OwnedBody;
use thalweg_wire::aggregate::{
    BodyFormats, Description, PROBE_EPOCH, PROBE_JOB, Probe, SwitchLimits,
};
use thalweg_wire::path::PathProbe;
use thalweg_wire::peek;
use thalweg_wire::tag::{self, Key, Secret, Secrets};

use super::super::SwitchPath;
use super::*;
use crate::switch::{self, Switch};

const SWITCH: NodeId = NodeId(100);
const SECRET: Secret = Secret([3; 16]);
const LIMITS: SwitchLimits = SwitchLimits {
    aggregators: 96,
    fragment_values: 40,
    formats: BodyFormats::ALL,
    cores: 1,
    mtu_bytes: 1_500,
};

fn server(secret: Option<Secret>) -> Server {
    let secrets = secret.map(Secrets::from);
    Server::new(Config { secrets, ..Config::new(SERVER) }).unwrap()
}

fn switch(secret: Option<Secret>) -> Switch {
    let (aggregators, values_max) = (LIMITS.aggregators, LIMITS.fragment_values);
    let secrets = secret.map(Secrets::from);
    let config = switch::Config { aggregators, values_max, secrets, ..switch::Config::new(SWITCH) };
    Switch::new(config).unwrap()
}

/// The probe of a switch, as it is sent.
fn probe(server: &mut Server) -> OwnedPacket {
    server.probe(SWITCH);
    assert!(server.has_backlog());
    let mut outbox = TestOutbox::with_room(SERVER, usize::MAX);
    server.poll_transmit(Time::ZERO, &mut outbox);
    assert!(!server.has_backlog());
    assert_eq!(outbox.packets.len(), 1);
    outbox.packets.remove(0)
}

/// Hands a packet to a machine, which changes it where it lies. Returns whether it goes on.
fn hand(machine: &mut impl Machine, packet: &mut OwnedPacket) -> bool {
    match machine.handle_packet(Time::ZERO, packet.lend()) {
        Verdict::Consume => false,
        Verdict::Forward => true,
        Verdict::Multicast(_) => panic!("nobody else is concerned"),
    }
}

fn sealed(mut header: Header, secret: Secret) -> Header {
    tag::seal_sized(&mut header, 0, &Key::derive(&secret, PROBE_JOB, PROBE_EPOCH));
    header
}

#[test]
fn a_switch_answers_a_probe_with_its_limits_in_a_packet_of_the_same_length() {
    for secret in [None, Some(SECRET)] {
        let (mut server, mut switch) = (server(secret), switch(secret));
        let mut packet = probe(&mut server);
        assert_eq!((packet.meta.dst, packet.bytes().len()), (SWITCH, 0));
        let wire_bytes = packet.meta.wire_bytes;
        assert!(hand(&mut switch, &mut packet), "the probe becomes the answer");
        assert_eq!((packet.meta.dst, packet.meta.wire_bytes), (SERVER, wire_bytes));
        assert_eq!(switch.stats().probes, 1);
        assert!(!switch.has_backlog() && server.poll_event().is_none());
        hand(&mut server, &mut packet);
        let answered = Event::Answered { switch: SWITCH, limits: LIMITS };
        assert_eq!((server.poll_event(), server.poll_event()), (Some(answered), None));
    }
}

#[test]
fn a_switch_is_known_by_the_name_that_it_was_asked_by() {
    let (mut server, mut switch) = (server(None), switch(None));
    let asked = Probe { server: SERVER, switch: NodeId(77), via: None };
    let mut packet = probe(&mut server);
    packet.header = asked.to_header();
    hand(&mut switch, &mut packet);
    hand(&mut server, &mut packet);
    let answered = Event::Answered { switch: NodeId(77), limits: LIMITS };
    assert_eq!(server.poll_event(), Some(answered));
}

#[test]
fn probes_that_nobody_with_the_secret_has_sealed_are_not_answered() {
    let packet = probe(&mut server(Some(SECRET)));
    let bare = Probe { server: SERVER, switch: SWITCH, via: None }.to_header();
    let mut changed = packet.header;
    changed[40] ^= 1;
    for header in [bare, sealed(bare, Secret([4; 16])), changed] {
        let mut switch = switch(Some(SECRET));
        assert!(!hand(&mut switch, &mut OwnedPacket { header, ..packet.clone() }));
        assert_eq!((switch.stats().forged, switch.stats().probes), (1, 0));
    }
    // A worker has a key of its job, and no other one.
    let mut switch = switch(Some(SECRET));
    let mut own = bare;
    own[4..16].copy_from_slice(&[1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
    tag::seal_sized(&mut own, 0, &Key::derive(&SECRET, JobId(7), 1));
    assert!(!hand(&mut switch, &mut OwnedPacket { header: own, ..packet.clone() }));
    assert_eq!((switch.stats().malformed, switch.stats().probes), (1, 0));
}

#[test]
fn probes_that_would_go_round_are_dropped() {
    let mut switch = switch(None);
    let mut packet = probe(&mut server(None));
    packet.header = Probe { server: SWITCH, switch: SWITCH, via: None }.to_header();
    assert!(!hand(&mut switch, &mut packet));
    assert_eq!(switch.stats().malformed, 1);
}

#[test]
fn answers_that_nobody_with_the_secret_has_sealed_are_ignored() {
    let mut server = server(Some(SECRET));
    let mut packet = probe(&mut server);
    let answer = Description { server: SERVER, switch: SWITCH, via: None, limits: LIMITS };
    let others = Description { server: NodeId(901), ..answer };
    let bare = answer.to_header();
    let mut changed = sealed(bare, SECRET);
    changed[24] ^= 1;
    let forged = [bare, sealed(bare, Secret([4; 16])), changed, sealed(others.to_header(), SECRET)];
    for header in forged {
        packet.header = header;
        hand(&mut server, &mut packet);
        assert_eq!(server.poll_event(), None);
    }
    assert_eq!((server.stats().forged, server.stats().malformed), (4, 0));
    // A switch without the secret is as good as silent.
    packet.header = Probe { server: SERVER, switch: SWITCH, via: None }.to_header();
    assert!(hand(&mut switch(None), &mut packet));
    hand(&mut server, &mut packet);
    assert_eq!(server.poll_event(), None);
    packet.header = sealed(bare, SECRET);
    hand(&mut server, &mut packet);
    assert_eq!(server.poll_event(), Some(Event::Answered { switch: SWITCH, limits: LIMITS }));
}

/// Has the server ask for a path, and returns its probe.
fn path_probe(server: &mut Server, path: SwitchPath, body_bytes: u16) -> OwnedPacket {
    server.probe_path(path, body_bytes);
    let mut outbox = TestOutbox::with_room(SERVER, usize::MAX);
    server.poll_transmit(Time::ZERO, &mut outbox);
    outbox.packets.remove(0)
}

// spec: F-01 machine
#[test]
fn a_padded_probe_is_answered_by_a_packet_of_the_same_length() {
    let (mut server, mut switch) = (server(Some(SECRET)), switch(Some(SECRET)));
    let path = SwitchPath { switch: SWITCH, via: None };
    let mut packet = path_probe(&mut server, path, 8_896);
    let (size, wire_bytes) = (packet.size(), packet.meta.wire_bytes);
    assert_eq!(size, BodySize::Length(8_896));
    assert!(hand(&mut switch, &mut packet));
    assert_eq!(
        (packet.meta.dst, packet.size(), packet.meta.wire_bytes),
        (SERVER, size, wire_bytes)
    );
    hand(&mut server, &mut packet);
    assert_eq!(server.poll_event(), Some(Event::PathAnswered { path, body_bytes: 8_896 }));
    // The tag covers the length.
    let mut packet = path_probe(&mut server, path, 1_408);
    packet.body = OwnedBody::Length(8_896);
    assert!(!hand(&mut switch, &mut packet));
    assert_eq!(switch.stats().forged, 1);
}

// spec: F-01 machine
#[test]
fn a_probe_takes_the_path_between_two_switches_and_back() {
    const MIDDLE: NodeId = NodeId(200);
    let mut server = server(Some(SECRET));
    let mut end = switch(Some(SECRET));
    let config = switch::Config { secrets: Some(SECRET.into()), ..switch::Config::new(MIDDLE) };
    let mut middle = Switch::new(config).unwrap();
    let path = SwitchPath { switch: SWITCH, via: Some(MIDDLE) };
    let mut packet = path_probe(&mut server, path, 4_000);
    let mut hops = vec![packet.meta.dst];
    for station in [&mut middle, &mut end] {
        assert!(hand(station, &mut packet));
        hops.push(packet.meta.dst);
    }
    assert!(hand(&mut middle, &mut packet));
    hops.push(packet.meta.dst);
    assert_eq!(hops, [MIDDLE, SWITCH, MIDDLE, SERVER]);
    assert_eq!(packet.size(), BodySize::Length(4_000));
    hand(&mut server, &mut packet);
    assert_eq!(server.poll_event(), Some(Event::PathAnswered { path, body_bytes: 4_000 }));
    // What would go round is dropped.
    let round = SwitchPath { switch: MIDDLE, via: Some(MIDDLE) };
    assert!(!hand(&mut middle, &mut path_probe(&mut server, round, 100)));
    assert_eq!(middle.stats().malformed, 1);
}

/// A worker's probe, sealed with a key.
fn probe_of_worker(key: &Key) -> OwnedPacket {
    let probe = PathProbe { job: JobId(8), epoch: 1, number: 7, is_answer: false };
    let mut packet = OwnedPacket::new(BodySize::Length(8_896), Purpose::Control);
    (packet.header, packet.meta.src, packet.meta.dst) = (probe.to_header(), NodeId(3), SWITCH);
    tag::seal_sized(&mut packet.header, 8_896, key);
    packet
}

// spec: F-01 machine
#[test]
fn switches_and_servers_answer_the_probes_of_workers_to_where_they_came_from() {
    let key = Key::derive(&SECRET, JobId(8), 1);
    let mut switch = switch(Some(SECRET));
    let mut packet = probe_of_worker(&key);
    assert!(hand(&mut switch, &mut packet));
    let is_right = |packet: &OwnedPacket| {
        let answer = PathProbe::decode(&packet.header).unwrap();
        assert!(answer.is_answer && tag::verify_sized(&packet.header, 8_896, &key));
        assert_eq!((packet.meta.dst, packet.size()), (NodeId(3), BodySize::Length(8_896)));
    };
    is_right(&packet);
    let mut server = server(Some(SECRET));
    let mut packet = probe_of_worker(&key);
    let prefix = peek(&packet.header).unwrap();
    assert!(server.answer_path(prefix, &mut packet.lend()));
    is_right(&packet);
    // A node without the key gets nothing.
    let mut forged = probe_of_worker(&Key([1; 16]));
    assert!(!hand(&mut switch, &mut forged));
    assert!(!server.answer_path(prefix, &mut forged.lend()));
    assert_eq!((switch.stats().forged, server.stats().forged), (1, 1));
    assert!(!Server::new(Config::new(SERVER)).unwrap().answer_path(prefix, &mut packet.lend()));
}
