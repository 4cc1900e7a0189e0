//! A server asks switches for their limits.
// spec: E-06 machine

use thalweg_wire::aggregate::{
    BodyFormats, Description, PROBE_EPOCH, PROBE_JOB, Probe, SwitchLimits,
};
use thalweg_wire::tag::{self, Key, Secret, Secrets};

use super::*;
use crate::switch::{self, Switch};

const SWITCH: NodeId = NodeId(100);
const SECRET: Secret = Secret([3; 16]);
const LIMITS: SwitchLimits =
    SwitchLimits { aggregators: 96, fragment_values: 40, formats: BodyFormats::FLOAT_AND_FIXED };

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
    let asked = Probe { server: SERVER, switch: NodeId(77) };
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
    let bare = Probe { server: SERVER, switch: SWITCH }.to_header();
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
    packet.header = Probe { server: SWITCH, switch: SWITCH }.to_header();
    assert!(!hand(&mut switch, &mut packet));
    assert_eq!(switch.stats().malformed, 1);
}

#[test]
fn answers_that_nobody_with_the_secret_has_sealed_are_ignored() {
    let mut server = server(Some(SECRET));
    let mut packet = probe(&mut server);
    let answer = Description { server: SERVER, switch: SWITCH, limits: LIMITS };
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
    packet.header = Probe { server: SERVER, switch: SWITCH }.to_header();
    assert!(hand(&mut switch(None), &mut packet));
    hand(&mut server, &mut packet);
    assert_eq!(server.poll_event(), None);
    packet.header = sealed(bare, SECRET);
    hand(&mut server, &mut packet);
    assert_eq!(server.poll_event(), Some(Event::Answered { switch: SWITCH, limits: LIMITS }));
}
