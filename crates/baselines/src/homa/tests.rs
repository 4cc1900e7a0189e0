use thalweg_core::testing::TestOutbox;
use thalweg_core::{Body, Bytes, HEADER_BYTES, JobId, Machine, Meta, NodeId, Packet, Span, Time};
use thalweg_transport::messages::{FlowId, FlowTagger, Message, Payload};
use thalweg_wire::flow::{Ack, Credit};

use super::grants::{Arrival, Grant, Grants, REPORTED_PACKETS, Request};
use super::{Config, Endpoint, Priorities, PrioritiesError};
use crate::Past;
use crate::messages::SizeEstimate;

fn sizes(list: &[u64]) -> Vec<Bytes> {
    list.iter().copied().map(Bytes::new).collect()
}

#[test]
fn unscheduled_packets_have_the_share_of_priorities_that_they_have_of_the_bytes() {
    let even: Vec<u64> = (1..=100).collect();
    // (sizes, unscheduled bytes of each, priorities for them)
    let table: [(&[u64], u64, u8); 6] = [
        // All bytes are unscheduled: one priority is left for scheduled ones.
        (&even, 100, 7),
        // 2,772 of 5,050.
        (&even, 33, 4),
        // Next to none.
        (&even, 1, 1),
        // All are alike.
        (&[1_000; 9], 1_000, 1),
        (&[], 10, 1),
        (&[0, 0], 10, 1),
    ];
    for (list, unscheduled, expected) in table {
        let priorities = Priorities::balanced(&sizes(list), Bytes::new(unscheduled));
        assert_eq!(8 - priorities.scheduled(), expected, "{list:?}: {priorities:?}");
    }
}

#[test]
fn cutoffs_balance_the_unscheduled_bytes() {
    let all: Vec<u64> = (1..=10_000).map(|number| number * number % 9_973 + 1).collect();
    let limit = 5_000;
    let priorities = Priorities::balanced(&sizes(&all), Bytes::new(limit));
    let levels = priorities.cutoffs().len() + 1;
    assert!(levels > 3, "{priorities:?}");
    let mut bytes = vec![0; levels];
    for size in all {
        let level = priorities.of_unscheduled(Bytes::new(size));
        bytes[usize::from(level)] += size.min(limit);
    }
    let mean = bytes.iter().sum::<u64>() / levels as u64;
    assert!(bytes.iter().all(|own| own.abs_diff(mean) < mean / 50), "{bytes:?}");
}

#[test]
fn a_cutoff_belongs_to_the_higher_priority() {
    let priorities = Priorities::new(&sizes(&[10, 20])).unwrap();
    let found = [0, 10, 11, 20, 21, u64::MAX].map(|of| priorities.of_unscheduled(Bytes::new(of)));
    assert_eq!(found, [0, 0, 1, 1, 2, 2]);
    assert_eq!(priorities.scheduled(), 5);
}

#[test]
fn scheduled_packets_go_as_low_as_they_can() {
    let priorities = Priorities::new(&sizes(&[10, 20])).unwrap();
    let of = |active: usize| -> Vec<u8> {
        (0..active).map(|place| priorities.of_scheduled(place, active)).collect()
    };
    assert_eq!(of(1), [7]);
    assert_eq!(of(3), [5, 6, 7]);
    assert_eq!(of(5), [3, 4, 5, 6, 7]);
}

#[test]
fn cutoffs_rise_and_leave_a_priority() {
    let of = |list: &[u64]| Priorities::new(&sizes(list));
    assert_eq!(of(&[1, 2, 3, 4, 5, 6, 7]), Err(PrioritiesError::TooMany(7)));
    assert!(matches!(of(&[0]), Err(PrioritiesError::NotRising { .. })));
    assert!(matches!(of(&[5, 5]), Err(PrioritiesError::NotRising { .. })));
    assert_eq!(of(&[1, 2, 3, 4, 5, 6]).unwrap().scheduled(), 1);
}

const WINDOW: u32 = 4;
const TIMEOUT: Span = Span::from_ms(1);

/// A receiver with as many priorities for scheduled packets.
fn receiver(scheduled: usize) -> Grants {
    let cutoffs: Vec<u64> = (1..=7 - scheduled as u64).collect();
    Grants::new(Priorities::new(&sizes(&cutoffs)).unwrap(), WINDOW, TIMEOUT)
}

/// One packet of host `src`'s message came, which has `packets` packets and lacks `missing` of them.
fn arrive(
    grants: &mut Grants,
    at_us: u64,
    src: u32,
    packets: u32,
    missing: u32,
) -> Option<Request> {
    let ack = Ack {
        job: JobId(0),
        epoch: 0,
        flow: 1,
        sent_at: Time::ZERO,
        sack: 0,
        cumulative: packets - missing,
        index: 0,
        transmission: 0,
        congested: false,
        resend: false,
        class: 0,
        run: 0,
    };
    let estimate = SizeEstimate::new(Bytes::from(packets), 1, Past::Done);
    let arrival = Arrival { estimate, packets, missing, ack, entropy: 0, is_header: false };
    grants.on_arrival(at(at_us), (NodeId(src), FlowId(1)), &arrival)
}

fn at(us: u64) -> Time {
    Time::ZERO + Span::from_us(us)
}

/// All grants that wait: of whose message, up to which packet, with which priority.
fn taken(grants: &mut Grants) -> Vec<(u32, u32, u8)> {
    let mut all = Vec::new();
    while let Some(Grant { name, packets, priority, .. }) = grants.next() {
        grants.pop();
        all.push((name.0.0, WINDOW + packets, priority));
    }
    all
}

#[test]
fn the_least_left_are_granted_as_many_as_there_are_priorities() {
    let mut grants = receiver(2);
    arrive(&mut grants, 0, 1, 100, 99);
    assert_eq!(taken(&mut grants), [(1, 5, 7)]);
    // A shorter one goes above it, and a longer one has to wait.
    arrive(&mut grants, 1, 2, 50, 49);
    arrive(&mut grants, 2, 3, 200, 199);
    assert_eq!(taken(&mut grants), [(2, 5, 6)]);
    // The shortest takes the place of the first.
    arrive(&mut grants, 3, 4, 20, 19);
    arrive(&mut grants, 4, 1, 100, 98);
    arrive(&mut grants, 5, 2, 50, 48);
    assert_eq!(taken(&mut grants), [(4, 5, 6), (2, 6, 7)]);
    // A message with all its grants makes room at once, before all has come.
    arrive(&mut grants, 6, 4, 20, 4);
    assert_eq!(taken(&mut grants), [(4, 20, 6), (1, 6, 7)]);
}

#[test]
fn what_does_not_come_is_asked_for_three_times_and_others_are_granted_then() {
    let mut grants = receiver(1);
    arrive(&mut grants, 0, 1, 100, 99);
    arrive(&mut grants, 0, 2, 200, 199);
    assert_eq!(taken(&mut grants), [(1, 5, 7)]);
    let mut asked = Vec::new();
    for us in (0..10_000).step_by(250) {
        arrive(&mut grants, us, 2, 200, 198);
        let requests = grants.handle_timeout(at(us));
        asked.extend(requests.iter().map(|request| (us, request.to.0.0, request.ack.cumulative)));
        if us == 1_000 {
            // The grant may be lost as well as the packets.
            assert_eq!(taken(&mut grants), [(1, 5, 7)]);
        }
    }
    assert_eq!(asked, [(1_000, 1, 1), (2_000, 1, 1), (3_000, 1, 1)]);
    assert_eq!(taken(&mut grants), [(1, 5, 7), (2, 6, 7)]);
    // Something comes from it again.
    arrive(&mut grants, 10_000, 1, 100, 98);
    assert_eq!(taken(&mut grants), [(1, 6, 7)]);
}

#[test]
fn one_request_after_another_while_they_are_answered() {
    let mut grants = Grants::new(Priorities::default(), 200, TIMEOUT);
    assert!(arrive(&mut grants, 0, 1, 200, 199).is_none());
    let requests = grants.handle_timeout(at(1_000));
    assert!(matches!(&requests[..], [Request { ack, .. }] if ack.resend && ack.index == 1));
    // What was asked for is not all there, then it is, and then nothing is missing.
    assert!(arrive(&mut grants, 1_100, 1, 200, 200 - REPORTED_PACKETS).is_none());
    let next = arrive(&mut grants, 1_200, 1, 200, 199 - REPORTED_PACKETS).expect("more is missing");
    assert_eq!(next.ack.cumulative, 1 + REPORTED_PACKETS);
    grants.on_complete((NodeId(1), FlowId(1)));
    assert!(grants.handle_timeout(at(9_000)).is_empty());
    assert_eq!(grants.next_at(), Time::NEVER);
}

#[test]
fn messages_without_senders_are_forgotten() {
    let mut grants = receiver(1);
    arrive(&mut grants, 0, 1, 100, 99);
    arrive(&mut grants, 0, 2, 200, 199);
    grants.retain(|(src, _)| src == NodeId(2));
    assert_eq!((grants.messages(), taken(&mut grants)), (1, vec![(2, 5, 7)]));
}

/// The priorities of the packets that a machine sends now.
fn sent(endpoint: &mut Endpoint, now: Time) -> Vec<u8> {
    let mut outbox = TestOutbox::with_room(NodeId(1), 100);
    endpoint.poll_transmit(now, &mut outbox);
    outbox.packets.iter().map(|packet| packet.meta.dscp.priority()).collect()
}

fn grant(endpoint: &mut Endpoint, src: NodeId, flow: FlowId, transmissions: u32, priority: u8) {
    let Config { messages, .. } = Config::default();
    let credit = Credit {
        job: messages.credentials.job,
        epoch: messages.credentials.epoch,
        flow: flow.0,
        transmissions,
        priority,
    };
    let (mut meta, mut header) = (Meta { src, ..Meta::default() }, [0; HEADER_BYTES]);
    credit.encode(&mut header);
    let packet = Packet { meta: &mut meta, header: &mut header, body: Body::Length(0) };
    endpoint.handle_packet(Time::ZERO, packet);
}

// spec: Q-12 machine
#[test]
fn a_sender_goes_by_the_latest_grant_of_its_receiver() {
    let mut endpoint = Endpoint::new(Config::default()).unwrap();
    let receiver = NodeId(2);
    let body = Payload::Length(Bytes::new(100_000));
    let message = Message { dst: receiver, body, tagger: FlowTagger::default(), entropy: 0 };
    let flow = endpoint.start(Time::ZERO, message).unwrap();
    assert_eq!(sent(&mut endpoint, Time::ZERO), [0; 7], "a round trip's worth needs no grant");
    grant(&mut endpoint, NodeId(3), flow, 9, 4);
    assert!(sent(&mut endpoint, Time::ZERO).is_empty(), "nobody else grants anything");
    grant(&mut endpoint, receiver, flow, 3, 5);
    grant(&mut endpoint, receiver, flow, 1, 6);
    assert_eq!(sent(&mut endpoint, Time::ZERO), [5; 3], "the other was overtaken");
    // Nothing comes for a while: it asks, with a header.
    let later = Time::ZERO + Config::default().timeout_after;
    endpoint.handle_timeout(later);
    assert_eq!(sent(&mut endpoint, later).len(), 1);
}
