use thalweg_core::testing::TestOutbox;
use thalweg_core::{Bytes, Dscp, Machine, Span, TrafficClass};
use thalweg_transport::PACKETS_OUT_OF_TURN;

use super::*;
use crate::{Endpoint, FlowTagger, Payload};

#[test]
fn a_message_takes_few_cache_lines() {
    assert!(size_of::<Sender>() <= 512, "{} bytes", size_of::<Sender>());
}

const PATIENCE: Span = Span::from_ms(60);

fn training(priority: u8) -> Dscp {
    Dscp::of_priority(priority).in_class(TrafficClass::Training)
}

fn out_of_turn() -> JobClass {
    JobClass::OutOfTurn { dscp: training(7), patience: PATIENCE }
}

/// An endpoint with a long message and a large window.
fn sending(class: JobClass) -> Endpoint {
    let config = Config { initial_window_packets: 100, ..Config::default() };
    let mut endpoint = Endpoint::new(config).expect("settings");
    endpoint.protocol_mut().set_class(Time::ZERO, class);
    let body = Payload::Length(Bytes::new(10_000_000));
    let message = Message { dst: NodeId(1), body, tagger: FlowTagger::default(), entropy: 0 };
    endpoint.start(Time::ZERO, message).expect("it fits");
    endpoint
}

/// Code points of all packets that may leave.
fn leave(endpoint: &mut Endpoint, now: Time) -> Vec<Dscp> {
    let mut outbox = TestOutbox::new(NodeId(0));
    endpoint.poll_transmit(now, &mut outbox);
    outbox.take().iter().map(|packet| packet.meta.dscp).collect()
}

// spec: C-16 machine
#[test]
fn few_packets_leave_out_of_turn_and_again_when_the_turn_begins() {
    let mut endpoint = sending(out_of_turn());
    let few = PACKETS_OUT_OF_TURN as usize;
    assert_eq!(leave(&mut endpoint, Time::ZERO), vec![training(7); few]);
    let turn = Time::ZERO + Span::from_ms(1);
    endpoint.protocol_mut().set_class(turn, JobClass::InTurn(training(3)));
    assert_eq!(leave(&mut endpoint, turn), vec![training(3); 100], "those that wait as well");
    assert_eq!(endpoint.retransmissions(), few as u64);
    // The next turn of others: what is in flight stays there, and nothing joins it.
    endpoint.protocol_mut().set_class(turn, out_of_turn());
    assert_eq!(leave(&mut endpoint, turn), []);
    endpoint.protocol_mut().check();
}

// spec: C-16 machine
#[test]
fn silence_out_of_turn_is_no_loss() {
    let mut endpoint = sending(out_of_turn());
    let few = leave(&mut endpoint, Time::ZERO).len();
    let mut now = Time::ZERO;
    for _ in 0..10 {
        assert_eq!(endpoint.poll_timeout().since(now), PATIENCE, "it is never doubled");
        now += PATIENCE;
        endpoint.handle_timeout(now);
        assert_eq!(leave(&mut endpoint, now).len(), few, "and cuts no window");
    }
    endpoint.protocol_mut().set_class(now, JobClass::InTurn(training(1)));
    assert_eq!(leave(&mut endpoint, now).len(), 100);
    let wait = endpoint.poll_timeout().since(now);
    assert!(wait <= Config::default().initial_rto, "{wait:?}: in turn an answer is overdue sooner");
}

// spec: C-16 machine
#[test]
fn a_message_in_flight_takes_over_the_class_of_its_job() {
    let mut endpoint = sending(JobClass::InTurn(training(5)));
    let window = leave(&mut endpoint, Time::ZERO).len();
    let (rise, fall) = (Time::ZERO + Span::from_us(100), Time::ZERO + Span::from_us(200));
    // What is in flight would be overtaken, and nobody could tell whether it is lost.
    endpoint.protocol_mut().set_class(rise, JobClass::InTurn(training(3)));
    assert_eq!(leave(&mut endpoint, rise), vec![training(3); window]);
    assert_eq!(endpoint.retransmissions(), window as u64);
    endpoint.protocol_mut().set_class(rise, JobClass::InTurn(training(3)));
    assert_eq!(leave(&mut endpoint, rise), [], "nothing leaves for the same class");
    // A message that becomes less urgent overtakes nobody.
    endpoint.protocol_mut().set_class(fall, JobClass::InTurn(training(6)));
    assert_eq!(leave(&mut endpoint, fall), []);
    let mut again = Vec::new();
    while again.is_empty() {
        let now = endpoint.poll_timeout();
        assert!(now < Time::ZERO + Span::from_s(1), "what is in flight is not waited for");
        endpoint.handle_timeout(now);
        again = leave(&mut endpoint, now);
    }
    assert!(again.iter().all(|dscp| *dscp == training(6)), "{again:?}");
    endpoint.protocol_mut().check();
}
