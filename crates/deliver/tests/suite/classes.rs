//! Layers in several classes beside other traffic: the delays that lower a rate.

use std::sync::Arc;

use thalweg_core::{Bytes, NodeId, Operation, PRIORITIES, Rate, Span, Time};
use thalweg_deliver::{
    Completion, Config, Importance, LossBound, Lost, Name, ReceiveCall, SendCall, Start,
};
use thalweg_fabric::topology::{CableSpec, OneSwitch};
use thalweg_fabric::{Buffer, Discipline, Marking};
use thalweg_transport::control::{DelayRate, SampledClasses};
use thalweg_values::Tensor;

use crate::stage::{Post, Script, play};

const RATE: Rate = Rate::from_gbps(25);

/// The host with layers in two classes, the host of the other traffic, and the receiver of both.
const LAYERED: NodeId = NodeId(0);
const OTHER: NodeId = NodeId(1);
const RECEIVER: NodeId = NodeId(2);

/// Layers of the model, each in a class of its own: the first is the most urgent.
const LAYERS: u16 = 3;

/// Tensors of the first layer, one after the other.
const FRONTS: u32 = 20;

const SEGMENT_VALUES: u64 = 352;

/// Values of a front tensor: 100 packets, which a free link sends within 50 µs.
const FRONT_VALUES: u64 = 100 * SEGMENT_VALUES;

/// Time between two front tensors.
const FRONT_EVERY: Span = Span::from_us(200);

/// Values of the tensors that fill the link for the time of all front tensors.
const LONG_VALUES: u64 = 10_000 * SEGMENT_VALUES;

/// One strict queue for each priority, none of which drops or marks.
fn network() -> thalweg_fabric::Config {
    thalweg_fabric::Config {
        discipline: Discipline::strict_per_queue([Marking::NONE; PRIORITIES]),
        buffer: Buffer::PerPort { bytes: 100_000_000 },
        ..thalweg_fabric::Config::default()
    }
}

fn config(classes: SampledClasses) -> Config {
    let control = DelayRate { line_rate: RATE, classes, ..DelayRate::default() }.into();
    Config { start: Start::AtOnce, control, ..Config::default() }
}

/// A tensor of a layer, sent and received at a time.
fn transfer(
    at: Time,
    from: NodeId,
    tensor: u32,
    layer: u16,
    values: u64,
) -> [(Time, NodeId, Post); 2] {
    let name = |peer| Name { peer, operation: Operation(7), tensor };
    let call = SendCall {
        layer,
        layers: LAYERS,
        importance: Importance::All,
        ..SendCall::new(name(RECEIVER), Arc::new(Tensor::Length(values)))
    };
    let receive = ReceiveCall {
        name: name(from),
        buffer: Tensor::Length(values),
        loss: LossBound::EXACT,
        lost: Lost::ReadsZero,
    };
    [(at, from, Post::Send(call)), (at, RECEIVER, Post::Receive(receive))]
}

/// Times that front tensors take while the last layer waits behind the middle one of another host.
fn front_times(classes: SampledClasses) -> Vec<Span> {
    let start = |front: u32| Time::ZERO + FRONT_EVERY * u64::from(front);
    let mut posts = Vec::new();
    for front in 0..FRONTS {
        posts.extend(transfer(start(front), LAYERED, front, 0, FRONT_VALUES));
    }
    posts.extend(transfer(Time::ZERO, LAYERED, FRONTS, LAYERS - 1, LONG_VALUES));
    posts.extend(transfer(Time::ZERO, OTHER, 0, 1, LONG_VALUES));
    let mut script = Script::new(posts);
    let cable = CableSpec { rate: RATE, delay: Span::from_us(1) };
    let topology = OneSwitch { hosts: 3, host_cable: cable }.build().expect("a sound topology");
    let fabric = play(topology, &network(), &config(classes), 1, &mut script);
    assert_eq!(fabric.stats().dropped(), 0);
    let mut times: Vec<(u32, Span)> = Vec::new();
    for (_, at, end) in &script.ends {
        match end {
            Completion::Received(own) if own.name.peer == LAYERED && own.name.tensor < FRONTS => {
                times.push((own.name.tensor, at.since(start(own.name.tensor))));
            }
            Completion::Failed(failed) => panic!("{failed:?}"),
            _ => {}
        }
    }
    times.sort_unstable();
    times.into_iter().map(|(_, took)| took).collect()
}

/// The last layer waits for the other host. That delays its echoes, although the front layers find an empty
/// queue: by the echoes of all classes they are held back, by those of the most urgent one they are not.
// spec: M-17 simulator
#[test]
fn front_layers_keep_their_rate_where_only_the_last_layer_waits() {
    let [all, most_urgent] = [SampledClasses::All, SampledClasses::MostUrgent].map(front_times);
    println!("all classes: {all:?}\nthe most urgent: {most_urgent:?}");
    assert_eq!((all.len(), most_urgent.len()), (FRONTS as usize, FRONTS as usize));
    let alone = RATE.serialization(Bytes::new(100 * 1_538));
    assert!(most_urgent.iter().all(|took| *took * 5 < alone * 6), "{most_urgent:?}, alone {alone}");
    let slowed = all.iter().filter(|took| **took > alone * 2).count();
    assert!(slowed > FRONTS as usize / 2, "{all:?}, alone {alone}");
}
