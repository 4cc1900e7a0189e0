//! Random transfers over a link that loses, doubles and reorders packets.

use std::sync::Arc;

use thalweg_core::{NodeId, Operation, Rate, Rng, Span, Time};
use thalweg_deliver::{
    Completion, Config, Importance, LossBound, Lost, Name, ReceiveCall, SegmentOrder, SendCall,
    Start,
};
use thalweg_fabric::topology::Cable;
use thalweg_fabric::{Effect, Place, Rule, Topology};
use thalweg_transport::control::{DelayRate, RateFloor, RateStart, SampledClasses};
use thalweg_transport::{Control, RtoLimits};
use thalweg_values::Tensor;

use crate::stage::{Post, Script, play};
use crate::values::{Numbers, check, tensor};

const SEEDS: u64 = 6_000;

/// One tensor from one of two hosts to the other.
struct Transfer {
    from: NodeId,
    to: NodeId,
    operation: Operation,
    sent: Arc<Tensor>,
    posted: Tensor,
    loss: LossBound,
    lost: Lost,
    trailer: Arc<[u8]>,
}

struct Plan {
    config: Config,
    rate: DelayRate,
    network: thalweg_fabric::Config,
    posts: Vec<(Time, NodeId, Post)>,
    transfers: Vec<Transfer>,
}

/// Events over all seeds: each must have happened.
#[derive(Debug, Default)]
pub struct Met {
    exact: u64,
    lossy: u64,
    trailers_beside_losses: u64,
    resent: u64,
    probes: u64,
    unanswered: u64,
    late: u64,
    duplicates: u64,
    at_once: u64,
    posted_late: u64,
    several_windows: u64,
}

// spec: M-01, M-06, M-07, M-09, M-11 simulator
#[test]
fn any_loss_pattern_ends_within_the_bound() {
    let mut met = Met::default();
    for seed in 0..SEEDS {
        run(seed, None, &mut met);
    }
    println!("{met:?}");
    let counts = [
        met.exact,
        met.lossy,
        met.trailers_beside_losses,
        met.resent,
        met.probes,
        met.unanswered,
        met.late,
        met.duplicates,
        met.at_once,
        met.posted_late,
        met.several_windows,
    ];
    assert!(counts.iter().all(|&count| count > 0), "not everything was met: {met:?}");
}

/// Ends of all calls of a seed, with one of the rules that it draws as published, or none: the class of an echo, the
/// least rate, and the rate to start with.
fn ends(seed: u64, published: Option<usize>) -> Vec<(NodeId, Time)> {
    let Plan { mut config, rate, network, posts, .. } = plan(seed, &mut Met::default());
    let DelayRate { classes, cuts_to, starts_at, .. } = DelayRate::default();
    let rate = match published {
        Some(0) => DelayRate { classes, ..rate },
        Some(1) => DelayRate { cuts_to, ..rate },
        Some(2) => DelayRate { starts_at, ..rate },
        _ => rate,
    };
    config.control = rate.into();
    let mut script = Script::new(posts);
    play(pair(), &network, &config, seed, &mut script);
    script.ends.into_iter().map(|(node, at, _)| (node, at)).collect()
}

/// A plan in which a rule has no effect proves nothing of it.
// spec: M-17, M-18, M-19 simulator
#[test]
fn rules_that_seeds_draw_take_effect() {
    let mut effects = [0; 3];
    for seed in 0..1_000 {
        let drawn = ends(seed, None);
        for (rule, effect) in effects.iter_mut().enumerate() {
            *effect += u32::from(ends(seed, Some(rule)) != drawn);
        }
    }
    println!("seeds of 1,000 in which a rule has an effect: {effects:?}");
    assert!(effects.iter().all(|&effect| effect > 0), "{effects:?}");
}

/// A number from the environment.
#[expect(clippy::disallowed_methods, reason = "the caller chooses the seeds")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
#[ignore = "runs the number of seeds in THALWEG_SEEDS, from THALWEG_SEED on"]
fn many() {
    let first = number("THALWEG_SEED").unwrap_or(0);
    let count = number("THALWEG_SEEDS").expect("set THALWEG_SEEDS to a number");
    let mut met = Met::default();
    (first..first + count).for_each(|seed| run(seed, None, &mut met));
    println!("{met:?}");
}

/// Plays one seed, with another control if one is given.
pub fn run(seed: u64, control: Option<Control>, met: &mut Met) {
    let Plan { mut config, network, posts, transfers, .. } = plan(seed, met);
    config.control = control.unwrap_or(config.control);
    let mut script = Script::new(posts);
    let fabric = play(pair(), &network, &config, seed, &mut script);
    let mut ends = 2 * transfers.len();
    for (node, _, end) in &script.ends {
        ends -= 1;
        match end {
            Completion::Sent(sent) => {
                met.resent += sent.resent;
                met.probes += sent.probes;
            }
            Completion::Received(received) => {
                let transfer = transfers
                    .iter()
                    .find(|own| own.to == *node && own.operation == received.name.operation)
                    .expect("it was posted");
                let lost = check(&transfer.sent, &transfer.posted, received, transfer.lost);
                let value_bytes = transfer.sent.element().bytes() as u64;
                let allowed = transfer.loss.allowed_bytes(transfer.sent.len() * value_bytes);
                assert!(lost <= allowed, "seed {seed}: {lost} of {allowed} bytes that may be lost");
                assert_eq!(received.trailer[..], transfer.trailer[..], "seed {seed}: the trailer");
                let lost_values = received.lost_values().into_iter();
                let lost_values: u64 = lost_values.map(|range| range.end - range.start).sum();
                assert_eq!(lost_values * value_bytes, lost, "seed {seed}");
                met.trailers_beside_losses += u64::from(lost > 0 && !transfer.trailer.is_empty());
                met.exact += u64::from(transfer.loss == LossBound::EXACT);
                met.lossy += u64::from(lost > 0);
                met.several_windows += u64::from(received.arrived.len() > 8_192);
            }
            Completion::Failed(failed) => panic!("seed {seed}: {failed:?}"),
        }
    }
    assert_eq!(ends, 0, "seed {seed}: not every call has ended");
    for host in [NodeId(0), NodeId(1)] {
        let machine = fabric.machine(host);
        assert_eq!((machine.outgoing(), machine.incoming()), (0, 0), "seed {seed}");
        let stats = machine.stats();
        assert_eq!((stats.malformed, stats.foreign, stats.no_room), (0, 0, 0), "seed {seed}");
        met.unanswered += stats.unanswered;
        met.late += stats.late;
        met.duplicates += stats.duplicates;
    }
}

fn pair() -> Topology {
    let (a, b) = (NodeId(0), NodeId(1));
    let cable = Cable { a, b, rate: Rate::from_gbps(10), delay: Span::from_us(5) };
    Topology::new(2, 0, vec![cable]).expect("two hosts and a cable")
}

fn plan(seed: u64, met: &mut Met) -> Plan {
    let mut rng = Rng::new(seed).stream("plan");
    let start = if rng.chance(0.3) { Start::AtOnce } else { Start::AfterAccept };
    let mut config = Config {
        segment_bytes: [64, 128, 256, 1_408][rng.below(4) as usize],
        start,
        echo_every: 1 + rng.below(12) as u32,
        early_memory: rng.below(3) as u32,
        paths: 1 + rng.below(8) as u16,
        waits: RtoLimits {
            initial: Span::from_us(200),
            min: Span::from_us(100),
            max: Span::from_ms(5),
        },
        ..Config::default()
    };
    if Rng::new(seed).stream("segments").chance(0.5) {
        config.segments = SegmentOrder::ImportantFirst;
    }
    let line_rate = Rate::from_gbps(1 + rng.below(20));
    // Older seeds keep their plans.
    let mut rules = Rng::new(seed).stream("rules");
    let rate = drawn_rate(&mut rules, line_rate);
    config.control = rate.into();
    let layers = 1 + rules.below(8);
    let mut batches = Rng::new(seed).stream("batches");
    config.path_batch_packets = 1 + batches.below(20) as u32;
    config.leaves_lossy_paths = batches.chance(0.5);
    let network = thalweg_fabric::Config { faults: faults(&mut rng), ..Default::default() };
    let mut posts = Vec::new();
    let mut transfers = Vec::new();
    let is_large = seed.is_multiple_of(200);
    if is_large {
        config.segment_bytes = 64;
    }
    for operation in 0..1 + rng.below(5) {
        let values = if is_large { 140_000 } else { drawn_length(&mut rng) };
        let transfer = transfer(&mut rng, operation, values);
        let (send_at, receive_at) = (drawn_time(&mut rng), drawn_time(&mut rng));
        met.at_once += u64::from(start == Start::AtOnce);
        met.posted_late += u64::from(receive_at > send_at + Span::from_us(50));
        let (send, receive) = calls(&mut rng, &transfer);
        let send = SendCall {
            layer: rules.below(layers) as u16,
            layers: layers as u16,
            senders: 1 + rules.below(8) as u32,
            ..send
        };
        posts.push((send_at, transfer.from, Post::Send(send)));
        posts.push((receive_at, transfer.to, Post::Receive(receive)));
        transfers.push(transfer);
        if is_large {
            break;
        }
    }
    Plan { config, rate, network, posts, transfers }
}

/// A rate with some of the rules that are not published.
fn drawn_rate(rules: &mut Rng, line_rate: Rate) -> DelayRate {
    let mut rate = DelayRate { line_rate, ..DelayRate::default() };
    if rules.chance(0.5) {
        rate.classes = SampledClasses::MostUrgent;
    }
    if rules.chance(0.5) {
        rate.cuts_to = RateFloor::Arrivals;
    }
    if rules.chance(0.5) {
        rate.starts_at = RateStart::Shared;
    }
    rate
}

fn faults(rng: &mut Rng) -> Vec<Rule> {
    let loss = if rng.chance(0.2) { 0.0 } else { 0.3 * rng.uniform() };
    let mut effects = vec![
        Effect::Loss(loss),
        Effect::Duplicate(0.2 * rng.uniform()),
        Effect::Reorder { probability: 0.3 * rng.uniform(), by: Span::from_us(1 + rng.below(300)) },
    ];
    if rng.chance(0.2) {
        effects.push(Effect::Bursts { begin: 0.01, end: 0.1 });
    }
    let rule =
        |effect| Rule { place: Place::Everywhere, effect, from: Time::ZERO, until: Time::NEVER };
    effects.into_iter().map(rule).collect()
}

fn transfer(rng: &mut Rng, operation: u64, values: usize) -> Transfer {
    let numbers = [Numbers::Length, Numbers::Full, Numbers::Full, Numbers::Halves];
    let numbers = numbers[rng.below(4) as usize];
    let shares = [0.0, 0.0, 0.01, 0.1, 0.3, 0.9];
    let from = rng.below(2) as u32;
    Transfer {
        from: NodeId(from),
        to: NodeId(1 - from),
        operation: Operation(operation),
        sent: Arc::new(tensor(numbers, 1 + operation as u32, values)),
        posted: tensor(numbers, 100, values),
        loss: LossBound::new(shares[rng.below(6) as usize]).expect("a share"),
        lost: if rng.chance(0.5) { Lost::ReadsZero } else { Lost::KeepsValue },
        trailer: drawn_trailer(rng),
    }
}

fn calls(rng: &mut Rng, transfer: &Transfer) -> (SendCall, ReceiveCall) {
    let name = |peer| Name { peer, operation: transfer.operation, tensor: 3 };
    let mut send = SendCall::new(name(transfer.to), Arc::clone(&transfer.sent));
    let importances = [Importance::PacketMean, Importance::SingleValue, Importance::All];
    send.importance = importances[rng.below(3) as usize];
    // The bound comes from either end: the smaller one counts.
    let (own, other) = (transfer.loss, LossBound::ANY);
    let (sends, receives) = if rng.chance(0.3) { (own, other) } else { (other, own) };
    send.loss = sends;
    send.trailer = Arc::clone(&transfer.trailer);
    let buffer = transfer.posted.clone();
    let receive =
        ReceiveCall { name: name(transfer.from), buffer, loss: receives, lost: transfer.lost };
    (send, receive)
}

/// None, or up to several segments.
fn drawn_trailer(rng: &mut Rng) -> Arc<[u8]> {
    let length = [0, 0, 1, rng.below(1_024)][rng.below(4) as usize];
    (0..length).map(|_| rng.bits() as u8).collect()
}

fn drawn_length(rng: &mut Rng) -> usize {
    match rng.below(20) {
        0 => 0,
        1..=3 => 1 + rng.below(20) as usize,
        _ => rng.below(2_500) as usize,
    }
}

fn drawn_time(rng: &mut Rng) -> Time {
    Time::ZERO + Span::from_us([0, rng.below(100), rng.below(20_000)][rng.below(3) as usize])
}
