//! Losses that priorities show: to the receiver by those around a gap, and to the sender by what was answered.

use std::cell::RefCell;
use std::rc::Rc;

use thalweg_core::{Bytes, Dscp, Rate, Rng, Span, Tag, Tagger, Time};
use thalweg_flow::{Config, Event, FlowTagger, LossDetection, MessageConfig, Payload, Sent};
use thalweg_transport::Control;
use thalweg_transport::control::NewReno;

use crate::faults::{Started, check_delivery, random_config};
use crate::network::{Faults, Network, Owned, Read, random_bytes, random_control};

const SEEDS: u64 = 2_500;
const SEGMENT: u32 = 1_000;

/// Climbs by `packets_each` packets a priority, and sinks again, from the lowest.
struct Vee {
    packets_each: u64,
    top: u64,
}

impl Tagger for Vee {
    fn tag(&mut self, sent: Bytes) -> Tag {
        let packet = sent.as_u64() / u64::from(SEGMENT);
        let steps = packet.abs_diff(self.top) / self.packets_each;
        Tag { dscp: Dscp::of_priority(steps.min(7) as u8), ..Tag::default() }
    }
}

/// Priorities by packet.
struct Listed(Vec<u8>);

impl Tagger for Listed {
    fn tag(&mut self, sent: Bytes) -> Tag {
        let packet = sent.as_u64() / u64::from(SEGMENT);
        let priority = self.0[packet as usize % self.0.len()];
        Tag { dscp: Dscp::of_priority(priority), ..Tag::default() }
    }
}

fn config() -> Config {
    Config {
        messages: MessageConfig { segment_bytes: SEGMENT, ..MessageConfig::default() },
        loss_detection: LossDetection::ByPriority,
        initial_window_packets: 32,
        min_rto: Span::from_ms(10),
        ..Config::default()
    }
}

/// A network with a switch that is slower than its nodes, so that queues build up.
fn network(config: &Config, seed: u64) -> Network {
    let mut network = Network::new(3, config, seed);
    network.switch = Some(Rate::from_gbps(2));
    network
}

/// Starts some flows from two nodes to the third.
fn start_some(rng: &mut Rng, network: &mut Network) -> Vec<Started> {
    let flows = 1 + rng.below(4);
    let flow = |_: u64| {
        let (src, dst) = (rng.below(2) as usize, 2);
        let packets = 1 + rng.below(60);
        let body = Payload::Bytes(random_bytes(rng, packets * u64::from(SEGMENT)));
        let tagger = Vee { packets_each: 1 + rng.below(9), top: rng.below(packets + 5) };
        let tagger = FlowTagger::Custom(Box::new(tagger));
        let flow = network.start_tagged(src, dst, body.clone(), tagger);
        network.run_until(network.now + Span::from_us(rng.below(60)));
        Started { src, dst, flow, body }
    };
    (0..flows).map(flow).collect()
}

fn ends(network: &Network) -> impl Iterator<Item = &Sent> {
    network.events.iter().filter_map(|(_, event)| match event {
        Event::Sent(sent) | Event::Failed(sent) => Some(sent),
        Event::Received(_) => None,
    })
}

// spec: machine
#[test]
fn nothing_is_sent_again_where_nothing_is_lost() {
    let mut overtaken = 0;
    for seed in 0..SEEDS {
        let network = run_without_loss(seed, LossDetection::ByPriority);
        assert!(ends(&network).all(|end| end.retransmissions == 0), "seed {seed}");
        let arrivals = network.nodes[2].arrivals();
        assert_eq!((arrivals.copies, arrivals.held_bytes), (0, 0), "seed {seed}");
        overtaken += u64::from(arrivals.peak_held_bytes > 0);
    }
    assert!(overtaken > SEEDS / 4, "packets overtook others in {overtaken} networks only");
}

/// Packets that wait may be probed, and nobody takes them for lost.
// spec: Q-15 machine
#[test]
fn a_sender_finds_no_loss_where_nothing_is_lost() {
    let (mut probes, mut packets) = (0, 0);
    for seed in 0..SEEDS {
        let network = run_without_loss(seed, LossDetection::BySender);
        for end in ends(&network) {
            assert_eq!((end.detections, end.timeouts), (0, 0), "seed {seed}");
            probes += u64::from(end.retransmissions);
            packets += end.bytes.as_u64() / u64::from(SEGMENT);
        }
    }
    assert!(probes > 0 && probes * 30 < packets, "{probes} probes for {packets} packets");
}

/// Flows to one node, of which no queue loses anything and no timer runs out.
fn run_without_loss(seed: u64, loss_detection: LossDetection) -> Network {
    let mut rng = Rng::new(seed).stream("lossless");
    let settings = Config {
        control: random_control(&mut rng),
        // No queue of this network holds a packet for so long.
        min_rto: Span::from_s(1),
        initial_rto: Span::from_s(1),
        loss_detection,
        ..config()
    };
    let mut network = network(&settings, seed);
    let all = start_some(&mut rng, &mut network);
    network.run(Time::ZERO + Span::from_s(20));
    check_delivery(&all, &network.events);
    network
}

/// Priorities make no difference to what arrives: all of it, once, as it was sent, under every control.
// spec: machine
#[test]
fn everything_arrives_once_whatever_is_lost() {
    let (found, timed_out) = run_with_loss(LossDetection::ByPriority);
    assert!(found > SEEDS && timed_out > SEEDS / 2, "{found} losses found, {timed_out} timeouts");
}

// spec: machine
#[test]
fn everything_arrives_once_with_losses_found_by_the_sender() {
    for detection in [LossDetection::BySender, LossDetection::ByAdaptiveOrder] {
        let (found, _) = run_with_loss(detection);
        assert!(found > SEEDS, "{found} losses found, {detection:?}");
    }
}

/// Losses that were found, and timeouts, of flows that lose packets under every control.
fn run_with_loss(loss_detection: LossDetection) -> (u64, u64) {
    let (mut found, mut timed_out) = (0, 0);
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed).stream("lossy");
        let mut settings = random_config(&mut rng);
        settings.loss_detection = loss_detection;
        settings.rises_quickly = seed % 2 == 0;
        settings.messages.segment_bytes = SEGMENT;
        settings.messages.span_packets = 64;
        let mut network = network(&settings, seed);
        network.faults.loss = rng.uniform() * 0.2;
        // Other paths, and copies: what detection assumes does not hold, and all arrives nevertheless.
        if rng.chance(0.3) {
            network.faults = Faults { duplication: 0.1, reordering: 0.2, ..network.faults };
        }
        let all = start_some(&mut rng, &mut network);
        network.run(Time::ZERO + Span::from_s(60));
        check_delivery(&all, &network.events);
        found += ends(&network).map(|end| u64::from(end.detections)).sum::<u64>();
        timed_out += ends(&network).map(|end| u64::from(end.timeouts)).sum::<u64>();
    }
    (found, timed_out)
}

fn index_of(packet: &Owned) -> u32 {
    packet.data().expect("a data packet").index
}

/// Sends one flow with these priorities of which the packet `lost` does not get through the first time,
/// and gives its end and its data packets as they were sent.
fn with_loss_of(lost: u32, priorities: Vec<u8>) -> (Sent, Vec<Owned>) {
    with_loss_under(config(), lost, priorities)
}

/// The same, by the sender.
fn with_loss_by_sender(lost: u32, priorities: Vec<u8>) -> (Sent, Vec<Owned>) {
    let settings = Config { loss_detection: LossDetection::BySender, ..config() };
    with_loss_under(settings, lost, priorities)
}

fn with_loss_under(settings: Config, lost: u32, priorities: Vec<u8>) -> (Sent, Vec<Owned>) {
    let mut network = network(&settings, 1);
    let sent = Rc::new(RefCell::new(Vec::<Owned>::new()));
    let log = Rc::clone(&sent);
    network.filter = Box::new(move |_, packet| {
        let Some(data) = packet.data() else { return true };
        let is_first = log.borrow().iter().all(|packet| index_of(packet) != data.index);
        log.borrow_mut().push(packet.clone());
        data.index != lost || !is_first
    });
    let bytes = Bytes::new(priorities.len() as u64 * u64::from(SEGMENT));
    let tagger = FlowTagger::Custom(Box::new(Listed(priorities)));
    network.start_tagged(0, 2, Payload::Length(bytes), tagger);
    network.run(Time::ZERO + Span::from_s(1));
    let end = *ends(&network).next().expect("it ended");
    drop(network);
    (end, Rc::try_unwrap(sent).expect("the network is gone").into_inner())
}

// spec: machine
#[test]
fn what_is_lost_within_a_priority_comes_again_at_once_and_first_of_all() {
    for priorities in [vec![4; 20], (0..20).map(|packet| packet / 4).collect::<Vec<u8>>()] {
        let (end, sent) = with_loss_of(9, priorities.clone());
        assert_eq!((end.retransmissions, end.timeouts, end.detections), (1, 0, 1));
        let again = sent.iter().filter(|packet| index_of(packet) == 9);
        let [first, second] = again.collect::<Vec<_>>()[..] else { panic!("sent twice") };
        assert_eq!(first.meta.dscp.priority(), priorities[9]);
        assert_eq!(second.meta.dscp.priority(), 0);
        assert_eq!(second.data().unwrap().priority, priorities[9], "the one it had");
    }
}

// spec: Q-06 machine
#[test]
fn what_is_lost_before_a_more_urgent_packet_is_left_to_the_timer() {
    let climbing: Vec<u8> = (0..20).map(|packet| 7 - packet / 4).collect();
    // The last one of its priority, and the first one of all.
    for lost in [11, 0] {
        let (end, _) = with_loss_of(lost, climbing.clone());
        assert_eq!((end.detections, end.timeouts), (0, 1), "packet {lost}");
    }
    // Within a priority a later packet tells.
    let (end, _) = with_loss_of(10, climbing);
    assert_eq!((end.detections, end.timeouts), (1, 0));
}

// spec: Q-15 machine
#[test]
fn a_sender_finds_what_is_lost_and_probes_what_it_cannot_know() {
    let climbing: Vec<u8> = (0..20).map(|packet| 7 - packet / 4).collect();
    // (lost packet, losses that answers show)
    let cases = [
        // Others of its priority come later,
        (9, 1),
        // and the first one has no packet before it.
        (0, 1),
        // The last one of its priority, and the last of all: probes.
        (11, 0),
        (19, 0),
    ];
    for (lost, shown) in cases {
        let (end, sent) = with_loss_by_sender(lost, climbing.clone());
        assert_eq!((end.detections, end.timeouts), (shown, 0), "packet {lost}");
        // What waits behind more urgent packets of its own flow may be probed as well.
        assert!((1..=2).contains(&end.retransmissions), "packet {lost}: {end:?}");
        assert!(end.finished.since(end.started) < Span::from_us(500), "packet {lost}: {end:?}");
        let again = sent.iter().rfind(|packet| index_of(packet) == lost).expect("it was sent");
        assert_eq!(again.meta.dscp.priority(), 0, "packet {lost}");
    }
    // As published, the timer ends the wait.
    let (end, _) = with_loss_of(11, climbing);
    assert!(end.finished.since(end.started) > Span::from_ms(10), "{end:?}");
}

/// A flow whose early packets wait behind those of another priority of its own, and nothing is lost.
fn overtaking(loss_detection: LossDetection) -> Sent {
    let settings = Config { loss_detection, initial_window_packets: 200, ..config() };
    let mut network = network(&settings, 1);
    // A few packets at a low priority, then many at higher ones, step by step.
    let priorities: Vec<u8> = (0..400).map(|packet| 7 - (packet / 60) as u8).collect();
    let tagger = FlowTagger::Custom(Box::new(Listed(priorities)));
    network.start_tagged(0, 2, Payload::Length(Bytes::new(400_000)), tagger);
    network.run(Time::ZERO + Span::from_s(1));
    *ends(&network).next().expect("it ended")
}

#[test]
fn order_that_adapts_sends_less_again_for_nothing() {
    let [fixed, adaptive] =
        [LossDetection::ByOrder, LossDetection::ByAdaptiveOrder].map(overtaking);
    assert!(
        adaptive.retransmissions * 4 < fixed.retransmissions * 3,
        "{} against {}",
        adaptive.retransmissions,
        fixed.retransmissions
    );
    assert!(adaptive.finished < fixed.finished, "{adaptive:?}, {fixed:?}");
}

#[test]
fn no_more_packets_are_in_flight_than_the_receiver_has_room_for() {
    let settings = Config { max_window_packets: 12, initial_window_packets: 64, ..config() };
    let mut network = network(&settings, 1);
    let flying = Rc::new(RefCell::new((0_u32, 0_u32)));
    let counted = Rc::clone(&flying);
    network.filter = Box::new(move |_, packet| {
        let (now, most) = &mut *counted.borrow_mut();
        if packet.data().is_some() {
            *now += 1;
            *most = (*most).max(*now);
        } else {
            *now -= 1;
        }
        true
    });
    network.start(0, 2, Payload::Length(Bytes::new(300_000)));
    network.run(Time::ZERO + Span::from_s(1));
    assert_eq!(flying.borrow().1, 12);
}

// spec: Q-08 machine
#[test]
fn a_loss_that_is_found_halves_the_window() {
    let by_priority = Config { initial_window_packets: 64, ..config() };
    let by_sender = Config { loss_detection: LossDetection::BySender, ..by_priority.clone() };
    for (control, settings) in [
        (Control::default(), &by_priority),
        (NewReno.into(), &by_priority),
        (NewReno.into(), &by_sender),
    ] {
        let sent_in_second_round = |lost: Option<u32>| {
            let mut network = Network::new(2, &Config { control, ..settings.clone() }, 1);
            network.rate = Rate::from_gbps(100);
            network.delay = Span::from_us(500);
            let rounds = Rc::new(RefCell::new([0_u32; 2]));
            let counted = Rc::clone(&rounds);
            let mut is_lost = lost;
            network.filter = Box::new(move |now, packet| {
                let Some(data) = packet.data() else { return true };
                let round = (now.as_us_f64() / 1_000.0) as usize;
                if let Some(count) = counted.borrow_mut().get_mut(round) {
                    *count += 1;
                }
                is_lost.take_if(|lost| *lost == data.index).is_none()
            });
            network.start(0, 1, Payload::Length(Bytes::new(400_000)));
            network.run(Time::ZERO + Span::from_s(1));
            let [first, second] = *rounds.borrow();
            assert_eq!(first, 64);
            second
        };
        // Answers double the window until the loss shows: 64 and 10 for the packets before it, halved.
        let (whole, halved) = (sent_in_second_round(None), sent_in_second_round(Some(10)));
        assert!(whole > 120, "{whole} packets without loss, {control:?}");
        assert!((30..=45).contains(&halved), "{halved} packets after one loss, {control:?}");
    }
}
