//! Rules that are not published: what each does alone, beside the published one.

use std::sync::Arc;

use thalweg_core::{Bytes, NodeId, Operation, Rate, Span, Time};
use thalweg_deliver::{
    Completion, Config, Importance, LossBound, Lost, Name, ReceiveCall, SegmentOrder, SendCall,
    SendOrder,
};
use thalweg_fabric::topology::{CableSpec, OneSwitch};
use thalweg_fabric::{Buffer, Fabric};
use thalweg_transport::control::{DelayRate, RateFloor, RateStart};
use thalweg_values::Tensor;

use crate::shuttle::{Pair, Read, buffer, name};
use crate::stage::{Post, Script, play};
use crate::values::{Numbers, tensor};

const RATE: Rate = Rate::from_gbps(10);
/// Values of a full packet.
const PACKET_VALUES: u64 = 352;
const PACKET_BYTES: u64 = 1_500;

/// An exact tensor of lengths, posted at both ends.
fn exact(
    at: Time,
    from: NodeId,
    to: NodeId,
    layer: u16,
    packets: u64,
) -> [(Time, NodeId, Post); 2] {
    let (tensor, values) = (u32::from(layer), packets * PACKET_VALUES);
    let name = |peer| Name { peer, operation: Operation(7), tensor };
    let call = SendCall {
        layer,
        layers: 8,
        importance: Importance::All,
        senders: if to.0 == SENDERS { SENDERS } else { 1 },
        ..SendCall::new(name(to), Arc::new(Tensor::Length(values)))
    };
    let receive = ReceiveCall {
        name: name(from),
        buffer: Tensor::Length(values),
        loss: LossBound::EXACT,
        lost: Lost::ReadsZero,
    };
    [(at, from, Post::Send(call)), (at, to, Post::Receive(receive))]
}

/// Number of nodes that send to one.
const SENDERS: u32 = 8;

fn run(
    hosts: u32,
    port_bytes: u64,
    config: &Config,
    posts: Vec<(Time, NodeId, Post)>,
) -> (Script, Fabric<thalweg_core::Checked<thalweg_deliver::Endpoint>>) {
    let mut script = Script::new(posts);
    let cable = CableSpec { rate: RATE, delay: Span::from_us(1) };
    let topology = OneSwitch { hosts, host_cable: cable }.build().expect("a sound topology");
    let network = thalweg_fabric::Config {
        buffer: Buffer::PerPort { bytes: port_bytes },
        ..thalweg_fabric::Config::default()
    };
    let fabric = play(topology, &network, config, 1, &mut script);
    (script, fabric)
}

/// Ends of tensors at their receivers, by tensor.
fn ends(script: &Script) -> Vec<(u32, Time)> {
    let mut ends: Vec<_> = script
        .ends
        .iter()
        .filter_map(|(_, at, end)| match end {
            Completion::Received(received) => Some((received.name.tensor, *at)),
            Completion::Sent(_) => None,
            Completion::Failed(failed) => panic!("{failed:?}"),
        })
        .collect();
    ends.sort_unstable();
    ends
}

/// Tensors get ready faster than they are sent, the most urgent last, as in a backward pass. By packets, none has arrived
/// when the last one is ready; by tensors, most have, and the last one is hardly later.
// spec: M-03 simulator
#[test]
fn what_was_begun_is_finished() {
    let packets = 200;
    let takes = RATE.serialization(Bytes::new(packets * PACKET_BYTES));
    let ready = |layer: u16| Time::ZERO + takes * u64::from(7 - layer) * 3 / 4;
    let finished = |order| {
        let control = DelayRate { line_rate: RATE, ..DelayRate::default() }.into();
        let config = Config { order, control, ..Config::default() };
        let posts =
            (0..8).flat_map(|layer| exact(ready(layer), NodeId(0), NodeId(1), layer, packets));
        ends(&run(2, 1_000_000, &config, posts.collect()).0)
    };
    let early = |ends: &[(u32, Time)]| ends.iter().filter(|(_, at)| *at <= ready(0)).count();
    let (by_packets, by_tensors) = (finished(SendOrder::Packets), finished(SendOrder::Tensors));
    assert_eq!((early(&by_packets), early(&by_tensors)), (0, 5), "{by_packets:?} {by_tensors:?}");
    let front = |ends: &[(u32, Time)]| ends[0].1.since(ready(0));
    assert!(front(&by_tensors) < front(&by_packets) + takes, "it waits for one tensor at most");
}

/// Eight senders, one receiver.
fn incast(rate: DelayRate) -> (Span, u64) {
    let config = Config { control: rate.into(), ..Config::default() };
    let posts = (0..SENDERS).flat_map(|sender| {
        let [send, receive] = exact(Time::ZERO, NodeId(sender), NodeId(SENDERS), 0, 1_000);
        [send, receive]
    });
    let (script, fabric) = run(SENDERS + 1, 500_000, &config, posts.collect());
    let last = ends(&script).iter().map(|(_, at)| *at).max().expect("all arrive");
    (last.since(Time::ZERO), fabric.stats().dropped())
}

fn published() -> DelayRate {
    DelayRate { line_rate: RATE, ..DelayRate::default() }
}

/// Each sender begins with its share, so that no queue is full before the first echo.
// spec: M-19 simulator
#[test]
fn known_senders_fill_no_queue() {
    let rate = |starts_at, cuts_to| incast(DelayRate { starts_at, cuts_to, ..published() });
    let line = rate(RateStart::LineRate, RateFloor::Least);
    let shared = rate(RateStart::Shared, RateFloor::Least);
    let both = rate(RateStart::Shared, RateFloor::Arrivals);
    println!("line rate: {line:?}, shared: {shared:?}, and by arrivals: {both:?}");
    assert!(line.1 > 1_000, "{line:?}");
    assert_eq!(shared.1, 0, "{shared:?}");
    assert!(both.0 < shared.0 && both.1 * 10 < line.1, "{both:?}, {shared:?}");
}

/// A full queue cuts rates by the excess of its delay; by the rate of arrival, the link is not idle after it.
// spec: M-18 simulator
#[test]
fn a_full_queue_leaves_no_idle_link_behind() {
    let [least, arrivals] = [RateFloor::Least, RateFloor::Arrivals]
        .map(|cuts_to| incast(DelayRate { cuts_to, ..published() }));
    println!("least: {least:?}, arrivals: {arrivals:?}");
    let whole = RATE.serialization(Bytes::new(u64::from(SENDERS) * 1_000 * PACKET_BYTES));
    assert!(arrivals.0 < least.0, "{arrivals:?}, {least:?}");
    assert!(arrivals.0 * 2 < whole * 3, "{arrivals:?}, {whole}");
}

/// Of 100 packets of which ten may be lost, some are lost of the first 40: of the others, packets that may be dropped.
fn droppable_after(lost: usize) -> usize {
    let control = DelayRate { burst: Span::from_s(1), ..DelayRate::default() }.into();
    let config = Config { segment_bytes: 64, control, echo_every: 1, ..Config::default() };
    let sent = Arc::new(tensor(Numbers::Full, 1, 16 * 100));
    let mut pair = Pair::new(&config);
    pair.nodes[1].post_receive(pair.now, buffer(7, 1_600, 0.1)).expect("sound");
    pair.nodes[0].post_send(pair.now, SendCall::new(name(1, 7), sent)).expect("sound");
    let offer = pair.sends(0, 9);
    pair.hand(1, offer);
    let accept = pair.sends(1, 9);
    pair.hand(0, accept);
    let mut first = pair.sends(0, 40);
    assert_eq!(first.iter().filter(|packet| packet.data().is_some()).count(), 40);
    first.drain(5..5 + lost);
    pair.hand(1, first);
    let echoes = pair.sends(1, 99);
    pair.hand(0, echoes);
    let rest = pair.sends(0, 99);
    assert_eq!(rest.len(), 60);
    rest.iter().filter(|packet| !packet.meta.ecn.is_capable()).count()
}

/// Queues drop what is not important only while the receiver can do without more.
// spec: M-06 machine
#[test]
fn when_the_bound_is_used_up_everything_is_important() {
    assert!(droppable_after(0) > 10);
    assert!(droppable_after(9) > 10, "one more may be lost");
    assert_eq!(droppable_after(10), 0);
}

/// A receiver that has enough cuts off the end of a pass: there are the segments that are not important.
// spec: M-04 machine
#[test]
fn important_segments_leave_first_wherever_a_tensor_begins() {
    let segments = SegmentOrder::ImportantFirst;
    let control = DelayRate { burst: Span::from_s(1), ..DelayRate::default() }.into();
    let config = Config { segment_bytes: 64, control, segments, ..Config::default() };
    // Every third segment has large values, and the median lies among the others.
    let value = |at: usize| if (at / 16).is_multiple_of(3) { 9.0 } else { (at / 16) as f32 / 1e3 };
    let values: Vec<f32> = (0..16 * 90).map(value).collect();
    for operation in 1..20 {
        let mut pair = Pair::new(&config);
        pair.nodes[1].post_receive(pair.now, buffer(operation, values.len(), 0.3)).expect("sound");
        let sent = Arc::new(Tensor::from(values.clone()));
        let call = SendCall { trailer: [7; 100].into(), ..SendCall::new(name(1, operation), sent) };
        pair.nodes[0].post_send(pair.now, call).expect("sound");
        let offer = pair.sends(0, 9);
        pair.hand(1, offer);
        let accept = pair.sends(1, 9);
        pair.hand(0, accept);
        let all: Vec<_> = pair.sends(0, 200);
        let capable: Vec<bool> = all.iter().map(|packet| packet.meta.ecn.is_capable()).collect();
        assert!(capable.is_sorted_by(|one, next| one >= next), "{capable:?}");
        let offsets: Vec<u64> =
            all.iter().map(|packet| packet.data().expect("data").offset.as_u64() / 64).collect();
        let large = (0..90).filter(|segment| segment % 3 == 0);
        assert!(large.clone().all(|segment| offsets[..55].contains(&segment)), "{offsets:?}");
        let mut sorted = offsets.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..92).collect::<Vec<_>>(), "each once, with the trailer");
        pair.hand(1, all);
        pair.talk(|_| false);
        let received = pair.ends(1);
        let [Completion::Received(received)] = &received[..] else { panic!("{received:?}") };
        assert!(large.clone().all(|segment| received.arrived.contains(segment as u32)));
    }
}
