//! Exchanges of two endpoints, packet by packet.

use std::sync::Arc;

use thalweg_core::{Ecn, Machine, Rate, Span};
use thalweg_deliver::{
    BackFirst, Completion, Config, Failure, Importance, LossBound, Lost, PostError, ReceiveCall,
    Received, SendCall, Start,
};
use thalweg_transport::control::DelayRate;
use thalweg_values::Tensor;
use thalweg_wire::deliver::{Refusal, Verb};

use crate::shuttle::{Owned, Pair, Read, buffer, name};
use crate::values::{Numbers, check, tensor};

/// 16 values a segment, and no waiting between packets.
fn config() -> Config {
    let control = DelayRate { burst: Span::from_s(1), ..DelayRate::default() }.into();
    Config { segment_bytes: 64, control, ..Config::default() }
}

fn values(count: usize) -> Arc<Tensor> {
    Arc::new(tensor(Numbers::Full, 1, count))
}

fn offset(packet: &Owned) -> Option<u64> {
    packet.data().map(|data| data.offset.as_u64())
}

fn received(end: Completion) -> Received {
    match end {
        Completion::Received(received) => received,
        other => panic!("not received: {other:?}"),
    }
}

/// Node 0 offers, node 1 accepts; nothing was sent yet.
fn agreed(config: &Config, sent: &Arc<Tensor>, loss: f64) -> Pair {
    let mut pair = Pair::new(config);
    let count = sent.len() as usize;
    pair.nodes[1].post_receive(pair.now, buffer(7, count, loss)).expect("sound");
    let call = SendCall::new(name(1, 7), Arc::clone(sent));
    pair.nodes[0].post_send(pair.now, call).expect("sound");
    let offer = pair.sends(0, 9);
    assert!(matches!(offer[..], [Owned { .. }]) && offer[0].data().is_none());
    pair.hand(1, offer);
    let accept = pair.sends(1, 9);
    assert!(matches!(accept[0].verb(), Some(Verb::Accept { .. })));
    pair.hand(0, accept);
    pair
}

// spec: M-01 machine
#[test]
fn packets_stand_alone_in_any_order_and_nothing_comes_after_the_end() {
    let sent = values(16 * 40);
    let mut pair = agreed(&config(), &sent, 0.25);
    let mut packets = pair.sends(0, 100);
    assert_eq!(packets.len(), 40);
    packets.reverse();
    let late = packets.split_off(30);
    pair.hand(1, packets);
    let end = received(pair.ends(1).remove(0));
    assert_eq!(check(&sent, &Tensor::from(vec![-1.0; 640]), &end, Lost::ReadsZero), 10 * 64);

    let before = pair.nodes[1].stats();
    pair.hand(1, late);
    let after = pair.nodes[1].stats();
    assert_eq!((after.late, after.arrived), (before.late + 10, before.arrived));
    assert_eq!(pair.ends(1), []);
    // The first "stop" is lost. The late packets that asked for an echo are answered again.
    let answers = pair.sends(1, 99);
    assert!(answers.iter().filter(|packet| packet.verb() == Some(Verb::Stop)).count() >= 2);
    pair.hand(0, answers.into_iter().skip(1));
    assert!(matches!(pair.ends(0)[..], [Completion::Sent(_)]));
}

// spec: M-06, M-11 machine
#[test]
fn what_is_missing_is_asked_for_and_read_again_from_the_tensor() {
    let sent = values(16 * 100);
    let mut pair = agreed(&config(), &sent, 0.1);
    assert_eq!(Arc::strong_count(&sent), 2, "it is shared, not copied");
    let is_lost = |packet: &Owned| offset(packet).is_some_and(|at| (640..1_920).contains(&at));
    let (lost, arrived): (Vec<_>, Vec<_>) = pair.sends(0, 200).into_iter().partition(is_lost);
    assert_eq!(lost.len(), 20);
    pair.hand(1, arrived);
    assert_eq!(pair.ends(1), [], "80 of 100 are too few");
    let mut resent = Vec::new();
    let mut questions = 0;
    pair.talk(|packet| {
        resent.extend(offset(packet));
        questions += u32::from(matches!(packet.verb(), Some(Verb::Probe { .. })));
        false
    });
    assert_eq!(questions, 1);
    assert!(resent.len() >= 10, "to 90 of 100");
    assert!(resent.iter().all(|at| (640..1_920).contains(at)), "only what is missing: {resent:?}");
    let end = received(pair.ends(1).remove(0));
    assert!(check(&sent, &Tensor::Length(0), &end, Lost::ReadsZero) <= 10 * 64);
    let [Completion::Sent(how)] = pair.ends(0)[..] else { panic!("it was sent") };
    assert_eq!((how.packets, how.resent), (100 + resent.len() as u64, resent.len() as u64));
    assert_eq!(Arc::strong_count(&sent), 1, "the application has it for itself again");
}

// spec: M-06 machine
#[test]
fn sending_begins_elsewhere_in_every_round() {
    let first = |operation| {
        let mut pair = Pair::new(&Config { start: Start::AtOnce, ..config() });
        let call = SendCall::new(name(1, operation), values(16 * 1_000));
        pair.nodes[0].post_send(pair.now, call).unwrap();
        pair.sends(0, 2).iter().find_map(offset).expect("an offer, then data")
    };
    let mut begins: Vec<_> = (0..20).map(first).collect();
    begins.sort_unstable();
    begins.dedup();
    assert_eq!(begins.len(), 20);
}

// spec: M-07 machine
#[test]
fn lost_gradients_read_zero_and_lost_parameters_keep_their_value() {
    for lost in [Lost::ReadsZero, Lost::KeepsValue] {
        for numbers in [Numbers::Full, Numbers::Halves] {
            let (sent, posted) = (tensor(numbers, 1, 3_200), tensor(numbers, 2, 3_200));
            let sent = Arc::new(sent);
            let mut pair = Pair::new(&config());
            let loss = LossBound::new(0.2).unwrap();
            let call = ReceiveCall { name: name(0, 7), buffer: posted.clone(), loss, lost };
            pair.nodes[1].post_receive(pair.now, call).unwrap();
            let call = SendCall::new(name(1, 7), Arc::clone(&sent));
            pair.nodes[0].post_send(pair.now, call).unwrap();
            pair.talk(|packet| offset(packet).is_some_and(|at| at % 640 == 0));
            let end = received(pair.ends(1).remove(0));
            assert!(check(&sent, &posted, &end, lost) > 0);
        }
    }
}

// spec: M-03, M-14 machine
#[test]
fn front_layers_are_sent_first_or_last_as_the_policy_says() {
    for is_reversed in [false, true] {
        let mut pair = Pair::new(&Config { start: Start::AtOnce, ..config() });
        for layer in [3, 0, 2, 1] {
            let mut call = SendCall::new(name(1, u64::from(layer)), values(16 * 5));
            (call.layer, call.layers) = (layer, 4);
            if is_reversed {
                call.policy = Arc::new(BackFirst::default());
            }
            pair.nodes[0].post_send(pair.now, call).unwrap();
        }
        let packets = pair.sends(0, 100);
        let layers: Vec<u16> =
            packets.iter().filter_map(Read::data).map(|data| data.layer).collect();
        let order = if is_reversed { [3, 2, 1, 0] } else { [0, 1, 2, 3] };
        assert_eq!(layers, order.into_iter().flat_map(|layer| [layer; 5]).collect::<Vec<_>>());
        let priorities: Vec<u8> =
            packets.iter().filter(|p| p.data().is_some()).map(|p| p.meta.dscp.priority()).collect();
        assert!(priorities.is_sorted(), "what leaves first waits least: {priorities:?}");
    }
}

// spec: M-02, M-08, M-09 machine
#[test]
fn data_is_sprayed_asks_for_an_echo_in_ten_and_never_travels_with_control() {
    let sent = values(16 * 200);
    let mut pair = Pair::new(&config());
    pair.nodes[1].post_receive(pair.now, buffer(7, 3_200, 0.0)).unwrap();
    pair.nodes[0].post_send(pair.now, SendCall::new(name(1, 7), sent)).unwrap();
    let (mut paths, mut echoes, mut data, mut control) = (Vec::new(), 0, 0, 0);
    let mut echoed = 0;
    pair.talk(|packet| {
        let priority = packet.meta.dscp.priority();
        if let Some(segment) = packet.data() {
            assert!(priority > 0);
            paths.push(packet.meta.entropy);
            echoes += u32::from(segment.echo);
            data += 1;
        } else {
            assert_eq!((priority, packet.meta.ecn), (0, Ecn::Capable));
            echoed += u32::from(packet.verb().is_none());
            control += 1;
        }
        false
    });
    assert_eq!((data, echoes, control), (200, 21, 3 + echoed), "every tenth, and the last");
    assert_eq!(echoed, 20, "the last is answered by a stop");
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len(), 200, "of 256");
}

// spec: M-08 machine
#[test]
fn echoes_slow_a_sender_down() {
    let line_rate = Rate::from_gbps(10);
    let control = DelayRate { line_rate, burst: Span::ZERO, ..DelayRate::default() }.into();
    let config = Config { echo_every: 1, control, ..config() };
    let mut pair = agreed(&config, &values(16 * 2_000), 0.0);
    // Sends one packet, whose echo takes so long. Returns how long the next one would have to wait.
    let mut gap_before_echo_after = |echo_takes: Span| {
        pair.wait(Span::from_ms(1));
        let packets = pair.sends(0, 2);
        assert_eq!(packets.len(), 1, "the next one has to wait");
        let gap = pair.nodes[0].poll_timeout().since(pair.now);
        pair.hand(1, packets);
        let echo = pair.sends(1, 1);
        pair.wait(echo_takes);
        pair.hand(0, echo);
        gap
    };
    let at_line_rate = line_rate.serialization(194.into());
    assert_eq!(gap_before_echo_after(Span::from_us(8)), at_line_rate);
    assert_eq!(gap_before_echo_after(Span::from_us(250)), at_line_rate);
    let slower = gap_before_echo_after(Span::from_us(8));
    assert_eq!(slower, Rate::from_gbps(6).serialization(194.into()));
}

// spec: M-10 machine
#[test]
fn calls_may_be_posted_in_any_order_and_end_once() {
    for receive_first in [true, false] {
        let sent = values(100);
        let mut pair = Pair::new(&config());
        for receives in [receive_first, !receive_first] {
            if receives {
                pair.nodes[1].post_receive(pair.now, buffer(7, 100, 0.0)).unwrap();
                let again = pair.nodes[1].post_receive(pair.now, buffer(7, 100, 0.0));
                assert_eq!(again, Err(PostError::Used(name(0, 7))));
            } else {
                let call = SendCall::new(name(1, 7), Arc::clone(&sent));
                pair.nodes[0].post_send(pair.now, call.clone()).unwrap();
                let again = pair.nodes[0].post_send(pair.now, call);
                assert_eq!(again, Err(PostError::Used(name(1, 7))));
                let packets = pair.sends(0, 9);
                pair.hand(1, packets);
            }
        }
        pair.talk(|_| false);
        let end = received(pair.ends(1).remove(0));
        assert_eq!((end.name, &end.buffer), (name(0, 7), &*sent));
        assert_eq!(pair.ends(0).len(), 1);
        assert_eq!(
            pair.nodes[1].post_receive(pair.now, buffer(7, 100, 0.0)),
            Err(PostError::Used(name(0, 7))),
            "a number is used once"
        );
    }
}

#[test]
fn a_part_of_a_shared_tensor_is_sent() {
    let sent = values(1_000);
    let mut pair = Pair::new(&config());
    pair.nodes[1].post_receive(pair.now, buffer(7, 100, 0.0)).unwrap();
    let call = SendCall { range: 500..600, ..SendCall::new(name(1, 7), Arc::clone(&sent)) };
    pair.nodes[0].post_send(pair.now, call).unwrap();
    pair.talk(|_| false);
    let end = received(pair.ends(1).remove(0));
    assert_eq!(end.buffer.values().unwrap(), &sent.values().unwrap()[500..600]);
    let beyond = SendCall { range: 500..1_001, ..SendCall::new(name(1, 8), sent) };
    let error = PostError::Range { end: 1_001, length: 1_000 };
    assert_eq!(pair.nodes[0].post_send(pair.now, beyond), Err(error));
}

// spec: M-04 machine
#[test]
fn half_of_the_packets_may_be_dropped_but_none_that_must_arrive() {
    let mut rng = thalweg_core::Rng::new(5);
    let sent: Vec<f32> = (0..16 * 400).map(|_| rng.uniform() as f32).collect();
    let sent = Arc::new(Tensor::from(sent));
    let important =
        |packets: &[Owned]| packets.iter().filter(|packet| packet.meta.ecn == Ecn::Capable).count();
    let mut pair = agreed(&config(), &sent, 0.1);
    let packets = pair.sends(0, 1_000);
    assert!((120..280).contains(&important(&packets)), "{}", important(&packets));
    // All of them are lost: what is sent again must arrive.
    let mut again = Vec::new();
    pair.talk(|packet| {
        again.extend(packet.data().map(|_| packet.clone()));
        false
    });
    assert!(again.len() >= 360 && important(&again) == again.len());
    // And so must everything where nothing may be lost.
    let mut pair = agreed(&config(), &sent, 0.0);
    assert_eq!(important(&pair.sends(0, 1_000)), 400);
    // Or nothing could stand in for it.
    let mut pair = Pair::new(&Config { start: Start::AtOnce, ..config() });
    let call = SendCall::new(name(1, 7), Arc::clone(&sent));
    let call = SendCall { importance: Importance::All, ..call };
    pair.nodes[0].post_send(pair.now, call).unwrap();
    assert_eq!(important(&pair.sends(0, 1_000)), 401, "with the offer");
}

#[test]
fn ends_that_do_not_agree_both_learn_it() {
    let mut pair = Pair::new(&config());
    pair.nodes[1].post_receive(pair.now, buffer(7, 99, 0.0)).unwrap();
    pair.nodes[0].post_send(pair.now, SendCall::new(name(1, 7), values(100))).unwrap();
    pair.talk(|_| false);
    for node in [0, 1] {
        let [Completion::Failed(failed)] = &pair.ends(node)[..] else { panic!("it fails") };
        assert_eq!(failed.failure, Failure::Refused(Refusal::Length));
        assert_eq!(failed.buffer.is_some(), node == 1);
    }
}

#[test]
fn a_buffer_that_is_given_up_is_refused() {
    let mut pair = Pair::new(&config());
    pair.nodes[1].post_receive(pair.now, buffer(7, 100, 0.0)).unwrap();
    let back = pair.nodes[1].cancel_receive(name(0, 7)).expect("it was posted");
    assert_eq!(back.buffer, Some(Tensor::from(vec![-1.0; 100])));
    pair.nodes[0].post_send(pair.now, SendCall::new(name(1, 7), values(100))).unwrap();
    pair.talk(|_| false);
    let [Completion::Failed(failed)] = &pair.ends(0)[..] else { panic!("it fails") };
    assert_eq!(failed.failure, Failure::Refused(Refusal::GivenUp));
    assert_eq!(pair.nodes[1].cancel_receive(name(0, 7)), None);
    pair.nodes[0].post_send(pair.now, SendCall::new(name(1, 8), values(100))).unwrap();
    assert!(pair.nodes[0].cancel_send(name(1, 8)) && !pair.nodes[0].cancel_send(name(1, 8)));
    assert!(pair.sends(0, 9).is_empty());
}
