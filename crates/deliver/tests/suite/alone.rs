//! Behaviour of an endpoint when the other one is silent, late or forgetful.

use std::sync::Arc;

use thalweg_core::{Machine, Span, Time};
use thalweg_deliver::{Completion, Config, Failure, Offered, SendCall, Start};
use thalweg_values::Tensor;
use thalweg_wire::deliver::Verb;

use crate::shuttle::{Owned, Pair, Read, buffer, name};
use crate::values::{Numbers, tensor};

fn config() -> Config {
    Config { segment_bytes: 64, ..Config::default() }
}

fn send(pair: &mut Pair, operation: u64, values: usize) -> Arc<Tensor> {
    let sent = Arc::new(tensor(Numbers::Full, 1, values));
    let call = SendCall::new(name(1, operation), Arc::clone(&sent));
    pair.nodes[0].post_send(pair.now, call).expect("the call is sound");
    sent
}

fn failure(ends: &[Completion]) -> Failure {
    match ends {
        [Completion::Failed(failed)] => failed.failure,
        other => panic!("not one failure: {other:?}"),
    }
}

// spec: M-09 machine
#[test]
fn questions_are_repeated_ever_more_rarely_until_it_gives_up() {
    for start in [Start::AfterAccept, Start::AtOnce] {
        let mut pair = Pair::new(&Config { start, ..config() });
        send(&mut pair, 7, 100);
        let mut offers = Vec::new();
        while pair.nodes[0].outgoing() > 0 {
            let packets = pair.sends(0, 99);
            let is_offer = |packet: &Owned| matches!(packet.verb(), Some(Verb::Offer { .. }));
            offers.extend(packets.iter().filter(|packet| is_offer(packet)).map(|_| pair.now));
            let next = pair.nodes[0].poll_timeout();
            assert!(next < Time::NEVER, "it waits for nothing");
            pair.now = pair.now.max(next);
            pair.nodes[0].handle_timeout(pair.now);
        }
        assert_eq!(failure(&pair.ends(0)), Failure::Silent);
        assert!(pair.now.since(offers[0]) >= config().give_up_after);
        // Between the first two there may be data.
        let gaps: Vec<Span> = offers[1..].windows(2).map(|two| two[1].since(two[0])).collect();
        let longest = config().waits.max;
        assert!(gaps.is_sorted() && gaps.last() == Some(&longest), "{gaps:?}");
        assert_eq!(pair.nodes[0].poll_timeout(), Time::NEVER);
    }
}

#[test]
fn a_receiver_gives_up_a_sender_that_is_gone() {
    let mut pair = Pair::new(&config());
    pair.nodes[1].post_receive(pair.now, buffer(7, 100, 0.0)).unwrap();
    pair.wait(config().give_up_after * 3);
    assert_eq!(pair.ends(1), [], "a buffer that nothing was offered for waits");
    send(&mut pair, 7, 100);
    let offer = pair.sends(0, 9);
    pair.hand(1, offer);
    assert!(pair.nodes[0].cancel_send(name(1, 7)));
    pair.wait(config().give_up_after);
    assert_eq!(failure(&pair.ends(1)), Failure::Silent);
}

/// A receiver that learns sizes from offers gets each offer once, and the sender learns of the buffer and of nothing
/// else.
#[test]
fn an_offer_without_a_buffer_is_reported_and_accepted_in_one_round_trip() {
    let mut pair = Pair::new(&config());
    send(&mut pair, 7, 100);
    let offer = pair.sends(0, 9);
    pair.hand(1, offer);
    let offered = pair.nodes[1].poll_offer().expect("it was offered");
    assert_eq!(offered, Offered { name: name(0, 7), tensor_bytes: 400, layer: 0, note: None });
    assert_eq!(pair.nodes[1].poll_offer(), None, "reported once");
    pair.nodes[1].post_receive(pair.now, buffer(7, 100, 0.0)).unwrap();
    let verbs: Vec<_> = pair.sends(1, 9).iter().map(Read::verb).collect();
    assert_eq!(verbs, [Some(Verb::Accept { loss: 0 })]);
    send(&mut pair, 8, 100);
    let offer = pair.sends(0, 9);
    pair.hand(1, offer);
    pair.nodes[1].post_receive(pair.now, buffer(8, 100, 0.0)).unwrap();
    assert_eq!(pair.nodes[1].poll_offer(), None, "there is a buffer by now");
}

#[test]
fn a_note_comes_with_the_offer() {
    let mut pair = Pair::new(&config());
    let note = Some(std::array::from_fn(|at| at as u8));
    let values = Arc::new(Tensor::from(vec![1.0; 100]));
    let call = SendCall { note, ..SendCall::new(name(1, 7), values) };
    pair.nodes[0].post_send(pair.now, call).unwrap();
    let offer = pair.sends(0, 9);
    pair.hand(1, offer);
    assert_eq!(pair.nodes[1].poll_offer().expect("it was offered").note, note);
}

#[test]
fn a_receiver_that_is_late_is_waited_for() {
    for start in [Start::AfterAccept, Start::AtOnce] {
        for early_memory in [0, 1] {
            let mut pair = Pair::new(&Config { start, early_memory, ..config() });
            let sent = send(&mut pair, 7, 1_000);
            // Far longer than it would wait for somebody who does not answer.
            for _ in 0..60_000 {
                pair.wait(Span::from_ms(1));
                let packets = pair.sends(0, 99);
                pair.hand(1, packets);
                let packets = pair.sends(1, 99);
                pair.hand(0, packets);
            }
            assert_eq!((pair.ends(0), pair.ends(1)), (Vec::new(), Vec::new()));
            pair.nodes[1].post_receive(pair.now, buffer(7, 1_000, 0.0)).unwrap();
            let posted = pair.now;
            if early_memory == 1 {
                let accept = pair.sends(1, 9);
                assert!(matches!(accept[0].verb(), Some(Verb::Accept { .. })), "at once");
                pair.hand(0, accept);
            }
            pair.talk(|_| false);
            let [Completion::Received(end)] = &pair.ends(1)[..] else { panic!("it arrives") };
            assert_eq!(end.buffer, *sent);
            assert!(end.finished.since(posted) <= config().waits.max * 2);
        }
    }
}

#[test]
fn a_receiver_that_lost_its_memory_gets_everything_again() {
    let config = config();
    let mut pair = Pair::new(&config);
    pair.nodes[1].post_receive(pair.now, buffer(7, 1_600, 0.0)).unwrap();
    let sent = send(&mut pair, 7, 1_600);
    // Half of it arrives, and the sender learns it.
    let mut passed = 0;
    let mut has_bitmap = false;
    for _ in 0..200 {
        pair.wait(Span::from_us(50));
        let packets = pair.sends(0, 20).into_iter().filter(|packet| {
            passed += u32::from(packet.data().is_some());
            packet.data().is_none() || passed <= 50
        });
        let packets: Vec<_> = packets.collect();
        pair.hand(1, packets);
        let answers = pair.sends(1, 20);
        has_bitmap |=
            answers.iter().any(|packet| matches!(packet.verb(), Some(Verb::Bitmap { .. })));
        pair.hand(0, answers);
        if has_bitmap {
            break;
        }
    }
    assert!(has_bitmap);
    pair.nodes[1] = Pair::new(&config).nodes.into_iter().nth(1).unwrap();
    pair.nodes[1].post_receive(pair.now, buffer(7, 1_600, 0.0)).unwrap();
    pair.talk(|_| false);
    let [Completion::Received(end)] = &pair.ends(1)[..] else { panic!("it arrives") };
    assert_eq!(end.buffer, *sent);
}

#[test]
fn a_sender_is_stopped_as_long_as_the_end_is_remembered() {
    let config = Config { ended_memory: 2, ..config() };
    let mut pair = Pair::new(&config);
    let is_stop = |packet: &Owned| packet.verb() == Some(Verb::Stop);
    for operation in 0..3 {
        pair.nodes[1].post_receive(pair.now, buffer(operation, 100, 0.0)).unwrap();
        send(&mut pair, operation, 100);
    }
    // Every "stop" is lost.
    for _ in 0..50 {
        pair.wait(Span::from_us(50));
        let packets = pair.sends(0, 99);
        pair.hand(1, packets);
        let answers: Vec<_> = pair.sends(1, 99).into_iter().filter(|p| !is_stop(p)).collect();
        pair.hand(0, answers);
    }
    assert_eq!((pair.ends(1).len(), pair.nodes[0].outgoing()), (3, 3));
    // One of three is forgotten, and its sender waits for a buffer that does not come.
    for _ in 0..2_000 {
        pair.wait(Span::from_ms(1));
        let packets = pair.sends(0, 99);
        pair.hand(1, packets);
        let answers = pair.sends(1, 99);
        pair.hand(0, answers);
    }
    assert_eq!((pair.ends(0).len(), pair.nodes[0].outgoing()), (2, 1));
}
