//! Many senders and one receiver: what full queues do to tensors.

use std::sync::Arc;

use thalweg_core::{Bytes, Checked, NodeId, Operation, PRIORITIES, Rate, Rng, Span, Time};
use thalweg_deliver::{
    Completion, Config, Endpoint, Importance, LossBound, Lost, Name, ReceiveCall, Received,
    SendCall, Start,
};
use thalweg_fabric::topology::{CableSpec, LeafSpine, OneSwitch};
use thalweg_fabric::{Buffer, Discipline, DropReason, Fabric, Marking, Spread};
use thalweg_train::{Batches, DIGITS, Recipe, STRIPES, Shard};
use thalweg_transport::control::{DelayRate, RateCuts};
use thalweg_values::Tensor;

use crate::stage::{Post, Script, play};

const SENDERS: u32 = 8;
const RECEIVER: NodeId = NodeId(SENDERS);
const SEGMENT_VALUES: usize = 352;
const RATE: Rate = Rate::from_gbps(25);

/// Queues that drop what is not ECN-capable, the urgent ones first: a threshold for each priority.
fn selective() -> thalweg_fabric::Config {
    let marking = |priority: usize| Marking {
        // Control is never held back.
        threshold_bytes: if priority == 0 { u64::MAX } else { 15_000 * priority as u64 },
        drop_unmarkable: true,
    };
    thalweg_fabric::Config {
        discipline: Discipline::strict_per_queue(std::array::from_fn::<_, PRIORITIES, _>(marking)),
        // Nothing is lost but what the thresholds drop.
        buffer: Buffer::PerPort { bytes: 10_000_000 },
        ..thalweg_fabric::Config::default()
    }
}

fn config() -> Config {
    with_cuts(RateCuts::OnceARoundTrip)
}

fn with_cuts(cuts: RateCuts) -> Config {
    let control = DelayRate { line_rate: RATE, cuts, ..DelayRate::default() }.into();
    Config { start: Start::AtOnce, control, ..Config::default() }
}

/// Every echo may lower the rate.
fn as_published() -> Config {
    with_cuts(RateCuts::EveryEcho)
}

fn cable() -> CableSpec {
    CableSpec { rate: RATE, delay: Span::from_us(1) }
}

/// A tensor of each sender to the receiver, all at once; layer by sender, of four.
fn incast(
    tensors: &[Arc<Tensor>],
    loss: f64,
    layer: impl Fn(u32) -> u16,
) -> Vec<(Time, NodeId, Post)> {
    let mut posts = Vec::new();
    for (sender, tensor) in (0..).zip(tensors) {
        let name = |peer| Name { peer, operation: Operation(7), tensor: sender };
        let mut call = SendCall::new(name(RECEIVER), Arc::clone(tensor));
        (call.layer, call.layers) = (layer(sender), 4);
        posts.push((Time::ZERO, NodeId(sender), Post::Send(call)));
        let receive = ReceiveCall {
            name: name(NodeId(sender)),
            buffer: Tensor::from(vec![0.0; tensor.len() as usize]),
            loss: LossBound::new(loss).expect("a share"),
            lost: Lost::ReadsZero,
        };
        posts.push((Time::ZERO, RECEIVER, Post::Receive(receive)));
    }
    posts
}

fn received(script: &Script) -> Vec<&Received> {
    let ends = script.ends.iter().filter_map(|(_, _, end)| match end {
        Completion::Received(received) => Some(received),
        Completion::Sent(_) => None,
        Completion::Failed(failed) => panic!("{failed:?}"),
    });
    ends.collect()
}

/// Values with a few large ones, as gradients have, whose scale differs along the tensor.
fn gradient(rng: &mut Rng, segments: usize) -> Arc<Tensor> {
    let values = (0..segments).flat_map(|_| {
        let scale = (0..4).map(|_| 0.5 + rng.uniform()).product::<f64>();
        let mut draw = || {
            let normal = (0..6).map(|_| rng.uniform() - 0.5).sum::<f64>();
            (scale * normal.powi(3)) as f32
        };
        (0..SEGMENT_VALUES).map(|_| draw()).collect::<Vec<f32>>()
    });
    Arc::new(Tensor::Values(values.collect()))
}

/// Gradients of each of `workers` workers when a model has learnt for some steps.
fn gradients(model: &Recipe, seed: u64) -> Vec<Arc<Tensor>> {
    const STEPS: usize = 20;
    let (task, mut network) = (model.task(seed), model.network(seed));
    let mut batches = Batches::new(task.train.len(), model.batch, seed);
    let all = Shard::new(0, 1);
    for step in 0..STEPS {
        let batch = task.train.batch(batches.indices(step, all).iter().copied());
        let mean = network.gradient(&batch).1.iter().map(|sum| sum / model.batch as f32);
        let mean: Vec<f32> = mean.collect();
        network.step(&mean, model.rate);
    }
    let own = |worker| {
        let shard = Shard::new(worker, SENDERS as usize);
        let batch = task.train.batch(batches.indices(STEPS, shard).iter().copied());
        Arc::new(Tensor::from(network.gradient(&batch).1.to_vec()))
    };
    (0..SENDERS as usize).map(own).collect()
}

/// The squared norm of each segment.
fn squares(tensor: &Tensor) -> Vec<f64> {
    let values = tensor.values().expect("full values");
    let square = |value: &f32| f64::from(*value) * f64::from(*value);
    values.chunks(SEGMENT_VALUES).map(|segment| segment.iter().map(square).sum()).collect()
}

// spec: M-05 simulator
#[test]
fn full_queues_drop_the_unimportant_and_mark_the_others() {
    let mut rng = Rng::new(1);
    let tensors: Vec<_> = (0..SENDERS).map(|_| gradient(&mut rng, 600)).collect();
    let mut script = Script::new(incast(&tensors, 0.3, |_| 0));
    let topology = OneSwitch { hosts: SENDERS + 1, host_cable: cable() }.build().unwrap();
    let mut fabric = play(topology, &selective(), &as_published(), 1, &mut script);
    let dropped = unmarkable(&fabric);
    assert!(dropped > 100, "{dropped}");
    assert_eq!(fabric.stats().dropped(), dropped, "nothing else is lost");
    let link = fabric.topology().links_out(fabric.topology().edge_of(RECEIVER))[SENDERS as usize];
    let stats = fabric.link_stats(link);
    assert!(stats.marked_packets > 100 && stats.dropped_packets == dropped, "{stats:?}");
    for received in received(&script) {
        let bytes = 4 * received.buffer.len();
        assert!(received.lost_bytes <= bytes * 3 / 10);
    }
    let resent: u64 = (0..SENDERS).map(|host| fabric.machine(NodeId(host)).stats().resent).sum();
    assert!(resent < 600 * u64::from(SENDERS) / 2, "{resent} sent again");
}

/// A full queue delays many echoes. Where each of them lowers the rate, the rest is sent at the floor; where
/// one does, everything ends sooner, and more of what is sent comes when there is enough.
// spec: M-08 simulator
#[test]
fn an_incast_ends_sooner_where_a_queue_lowers_rates_once() {
    let mut rng = Rng::new(1);
    let tensors: Vec<_> = (0..SENDERS).map(|_| gradient(&mut rng, 600)).collect();
    let [published, default] = [as_published(), config()].map(|config| {
        let mut script = Script::new(incast(&tensors, 0.3, |_| 0));
        let topology = OneSwitch { hosts: SENDERS + 1, host_cable: cable() }.build().unwrap();
        let fabric = play(topology, &selective(), &config, 1, &mut script);
        let resent = (0..SENDERS).map(|host| fabric.machine(NodeId(host)).stats().resent);
        let last = received(&script).iter().map(|received| received.finished).max();
        (last.expect("all arrive").since(Time::ZERO), resent.sum::<u64>())
    });
    println!(
        "published: {} and {} sent again; default: {} and {}",
        published.0, published.1, default.0, default.1
    );
    assert!(default.0 * 2 < published.0, "{default:?}, {published:?}");
    assert!(default.1 < 600 * u64::from(SENDERS), "{default:?}");
}

/// Number of packets that full queues dropped because they could not be marked.
fn unmarkable(fabric: &Fabric<Checked<Endpoint>>) -> u64 {
    let at = DropReason::ALL.iter().position(|reason| *reason == DropReason::Unmarkable);
    fabric.stats().dropped_packets[at.expect("it is one of all")]
}

/// The queue of a front layer has the lower threshold: in the same crowd it loses more.
// spec: M-05 simulator
#[test]
fn front_layers_are_the_first_to_lose() {
    let mut rng = Rng::new(2);
    let tensors: Vec<_> = (0..2).map(|_| gradient(&mut rng, 400)).collect();
    let dropped = [0, 1, 2, 3].map(|layer| {
        let mut script = Script::new(incast(&tensors, 0.5, |_| layer));
        let topology = OneSwitch { hosts: SENDERS + 1, host_cable: cable() }.build().unwrap();
        unmarkable(&play(topology, &selective(), &config(), 2, &mut script))
    });
    assert!(dropped.is_sorted_by(|front, back| front > back), "{dropped:?}");
}

// spec: M-03 simulator
#[test]
fn front_layers_arrive_first() {
    let mut rng = Rng::new(3);
    let tensors: Vec<_> = (0..SENDERS).map(|_| gradient(&mut rng, 400)).collect();
    let mut script = Script::new(incast(&tensors, 0.1, |sender| sender as u16 / 2));
    let topology = OneSwitch { hosts: SENDERS + 1, host_cable: cable() }.build().unwrap();
    play(topology, &selective(), &config(), 3, &mut script);
    let layers: Vec<u32> = received(&script).iter().map(|own| own.name.tensor / 2).collect();
    assert_eq!(layers, [0, 0, 1, 1, 2, 2, 3, 3]);
}

/// Over two models' gradients and three seeds: what arrives carries more of the squared norm than if as
/// many packets had been dropped at random.
// spec: M-04, M-05 simulator
#[test]
fn selective_dropping_keeps_more_of_the_norm_than_random_dropping() {
    for model in [DIGITS, STRIPES] {
        for seed in 1..=3 {
            let (tensors, name) = (gradients(&model, seed), model.name);
            let mut rng = Rng::new(seed).stream(name);
            let mut script = Script::new(incast(&tensors, 0.3, |_| 0));
            let topology = OneSwitch { hosts: SENDERS + 1, host_cable: cable() }.build().unwrap();
            play(topology, &selective(), &config(), seed, &mut script);
            let (mut kept, mut random, mut whole, mut lost) = (0.0, 0.0, 0.0, 0);
            for received in received(&script) {
                let mut squares = squares(&tensors[received.name.tensor as usize]);
                let arrived = |segment: &(u32, &f64)| received.arrived.contains(segment.0);
                kept += (0..).zip(&squares).filter(arrived).map(|(_, square)| square).sum::<f64>();
                whole += squares.iter().sum::<f64>();
                rng.shuffle(&mut squares);
                random += squares[..received.arrived.count() as usize].iter().sum::<f64>();
                lost += received.arrived.len() - received.arrived.count();
            }
            let (kept, random) = (kept / whole, random / whole);
            let packets = SENDERS * squares(&tensors[0]).len() as u32;
            println!(
                "{name}, seed {seed}: {lost} of {packets} lost, {kept:.4} of the squared norm, {random:.4} at random"
            );
            assert!(lost > packets / 20, "{name}, seed {seed}: only {lost} packets lost");
            assert!(kept > random + 0.1, "{name}, seed {seed}: {kept}, {random} at random");
        }
    }
}

/// Every spine carries its share when the sender sprays.
// spec: M-02 simulator
#[test]
fn packets_are_spread_over_all_paths() {
    let topology = LeafSpine {
        racks: 2,
        hosts_per_rack: SENDERS / 2 + 1,
        spines: 4,
        host_cable: cable(),
        uplink: cable(),
        uplinks_per_spine: 1,
    };
    let topology = topology.build().unwrap();
    let network =
        thalweg_fabric::Config { spread: Spread::Explicit, ..thalweg_fabric::Config::default() };
    let name = |peer| Name { peer: NodeId(peer), operation: Operation(1), tensor: 0 };
    let call = SendCall::new(name(9), Arc::new(Tensor::Length(352 * 4_000)));
    let call = SendCall { importance: Importance::All, ..call };
    let receive = ReceiveCall {
        name: name(0),
        buffer: Tensor::Length(352 * 4_000),
        loss: LossBound::EXACT,
        lost: Lost::ReadsZero,
    };
    let mut script = Script::new(vec![
        (Time::ZERO, NodeId(0), Post::Send(call)),
        (Time::ZERO, NodeId(9), Post::Receive(receive)),
    ]);
    let mut fabric = play(topology, &network, &config(), 1, &mut script);
    let [received] = received(&script)[..] else { panic!("it arrives") };
    // One sender with the network to itself fills its link.
    let least = RATE.serialization(Bytes::new(4_000 * 1_538));
    let took = received.finished.since(Time::ZERO);
    assert!(took > least && took < least + Span::from_us(20), "{took} against {least}");
    let leaf = fabric.topology().edge_of(NodeId(0));
    let uplinks: Vec<_> = fabric
        .topology()
        .links_out(leaf)
        .iter()
        .copied()
        .filter(|&link| !fabric.topology().is_host(fabric.topology().link_ends(link).1))
        .collect();
    let sent: Vec<u64> = uplinks.iter().map(|&link| fabric.link_stats(link).sent_packets).collect();
    assert_eq!(sent.len(), 4);
    assert!(sent.iter().all(|&packets| (960..1_060).contains(&packets)), "{sent:?}");
}
