//! Rules of deliveries that are not published: a job with each of them alone, and with all but one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use thalweg_core::{Ecn, Operation, Packet, Time};
use thalweg_fabric::LinkId;
use thalweg_fabric::trace::{Incident, Tracer};
use thalweg_scenario::{Outcome, Scenario};
use thalweg_values::importance::is_drawn;
use thalweg_wire::deliver::Data;
use thalweg_wire::{Kind, peek};
use thalweg_workload::models;

/// Every rule: its name, its setting, and the published one.
const RULES: [(&str, &str, &str); 5] = [
    ("most urgent class", "delay-classes = \"most-urgent\"", "delay-classes = \"all\""),
    ("rate of arrival", "delivery-floor = \"arrivals\"", "delivery-floor = \"least\""),
    ("known senders", "delivery-start = \"shared\"", "delivery-start = \"line-rate\""),
    ("whole tensors", "delivery-order = \"tensors\"", "delivery-order = \"packets\""),
    ("thresholds", "", "delivery-high = \"125us\"\ndelivery-reference = \"8us\""),
];

/// All choices of rules that are shown: none, each alone, all but one, all.
fn choices() -> Vec<(String, Vec<bool>)> {
    let mut choices = vec![("as published".to_owned(), vec![false; RULES.len()])];
    for is_alone in [true, false] {
        for (number, (name, ..)) in RULES.iter().enumerate() {
            let on = (0..RULES.len()).map(|other| (other == number) == is_alone).collect();
            choices.push((format!("{} {name}", if is_alone { "only" } else { "without" }), on));
        }
    }
    choices.push(("all".to_owned(), vec![true; RULES.len()]));
    choices
}

fn keys(on: &[bool]) -> String {
    let key = |(is_on, (_, rule, published)): (&bool, &(_, &str, &str))| {
        format!("{}\n", if *is_on { *rule } else { *published })
    };
    on.iter().zip(&RULES).map(key).collect()
}

fn run(text: &str, seed: u64) -> Outcome {
    let scenario = Scenario::parse("rules.toml", text, &|name| Ok(model(name)));
    let outcome = scenario.unwrap_or_else(|error| panic!("{error}")).run_bare(seed).finish();
    assert_eq!(outcome.check, Ok(()), "{text}");
    outcome
}

/// Bytes of values in a full packet of a scenario.
const SEGMENT_BYTES: u64 = 1_460;

/// Data packets of deliveries, by what makes them important.
#[derive(Clone, Copy, Default, Debug)]
struct Kinds {
    /// Important by their values, and sent for the first time.
    large: u64,
    /// Not important by their values and sent for the first time, when as much is missing as may be.
    spent: u64,
    /// Sent again, and important by their values as well.
    large_again: u64,
    /// Sent again, and not important by their values.
    small_again: u64,
    /// Not important: not ECN-capable.
    small: u64,
}

impl Kinds {
    /// Packets that are ECN-capable.
    fn important(&self) -> u64 {
        self.large + self.spent + self.large_again + self.small_again
    }

    /// Packets that are important by their values.
    fn by_values(&self) -> u64 {
        self.large + self.large_again
    }
}

/// Packets that left, and those that were dropped.
#[derive(Clone, Default)]
struct Counted {
    sent: Kinds,
    dropped: Kinds,
    /// Times at which each segment of each tensor left for the first and the last time.
    times: BTreeMap<(u32, u32, u64, u64), (Time, Time)>,
}

impl Counted {
    fn on(&mut self, incident: Incident, packet: &Packet<'_>) {
        if !peek(packet.header).is_ok_and(|prefix| prefix.kind() == Kind::DeliverData) {
            return;
        }
        let Ok(data) = Data::decode(packet.header) else { return };
        let (meta, offset) = (&*packet.meta, data.offset.as_u64());
        assert_eq!(offset % SEGMENT_BYTES, 0, "segments are full");
        let key = (meta.src.0, meta.dst.0, data.name.operation, offset);
        let known = self.times.get(&key).copied();
        // A packet is first seen behind the cable of its host, before its segment is sent again.
        let (first, last) = known.unwrap_or((data.sent_at, data.sent_at));
        self.times.insert(key, (first, last.max(data.sent_at)));
        let is_again = data.sent_at > first;
        let is_large = is_drawn(Operation(data.name.operation), offset / SEGMENT_BYTES);
        let add = |kinds: &mut Kinds| {
            *match (meta.ecn == Ecn::NotCapable, is_again, is_large) {
                (true, ..) => &mut kinds.small,
                (_, false, true) => &mut kinds.large,
                (_, false, false) => &mut kinds.spent,
                (_, true, true) => &mut kinds.large_again,
                (_, true, false) => &mut kinds.small_again,
            } += 1;
        };
        if known.is_none() || data.sent_at > last {
            add(&mut self.sent);
        }
        if matches!(incident, Incident::Dropped(_)) {
            add(&mut self.dropped);
        }
    }
}

/// Counts the data packets of deliveries.
#[derive(Clone, Default)]
struct Counter(Arc<Mutex<Counted>>);

impl Tracer for Counter {
    fn on(&mut self, _: Time, _: Option<LinkId>, incident: Incident, packet: Packet<'_>) {
        self.0.lock().expect("nobody panics with it").on(incident, &packet);
    }
}

/// The same run, and its packets: those that left, and those that were dropped.
fn run_counted(text: &str, seed: u64) -> (Outcome, [Kinds; 2]) {
    let scenario = Scenario::parse("rules.toml", text, &|name| Ok(model(name)));
    let scenario = scenario.unwrap_or_else(|error| panic!("{error}"));
    let mut run = scenario.run_bare(seed);
    let counter = Counter::default();
    run.trace(Box::new(counter.clone()));
    let outcome = run.finish();
    assert_eq!(outcome.check, Ok(()), "{text}");
    let counted = counter.0.lock().expect("nobody panics with it");
    (outcome, [counted.sent, counted.dropped])
}

/// Mean of all iterations but the first, in µs.
fn steady_us(outcome: &Outcome) -> f64 {
    let later = &outcome.jobs[0].iterations[1..];
    later.iter().map(|span| span.as_us_f64()).sum::<f64>() / later.len() as f64
}

/// The layer table of `8x62500`, equal layers, or of `vgg16/40`, a model whose tensors are divided.
fn model(name: &str) -> String {
    let parameter = |name: &str, values: u64, rank: usize| {
        format!(
            "{{\"name\": \"{name}\", \"shape\": [{values}], \"numel\": {values}, \"grad_ready_rank\": {rank}}}"
        )
    };
    if name == "8x62500" {
        let layers: Vec<_> =
            (0..8).map(|layer| parameter(&format!("l{layer}.w"), 62_500, 7 - layer)).collect();
        return format!("{{\"model\": \"equal layers\", \"parameters\": [{}]}}", layers.join(","));
    }
    let whole = models::by_name("vgg16").expect("a built-in model");
    let rank = |tensor: usize| {
        whole.ready_order().iter().position(|&own| own == tensor).expect("it has a place")
    };
    let parameters: Vec<_> = (0..)
        .zip(whole.tensors())
        .map(|(at, own)| parameter(&own.name, (own.values / 40).max(1), rank(at)))
        .collect();
    let layers: Vec<_> = whole
        .layers()
        .iter()
        .map(|own| {
            format!("{{\"module\": \"{}\", \"fwd_flops\": {}}}", own.name, own.forward_flops)
        })
        .collect();
    let (parameters, layers) = (parameters.join(","), layers.join(","));
    format!("{{\"model\": \"vgg16\", \"parameters\": [{parameters}], \"layers\": [{layers}]}}")
}

/// Four workers and a server in two racks, with nothing beside them.
fn one_job(transport: &str, job: &str, loss: f64) -> String {
    format!(
        r#"title = "one job"
[topology.leaf-spine]
racks = 2
hosts-per-rack = 4
spines = 2
host-cable = {{ rate = "10Gbps", delay = "1us" }}
uplink = {{ rate = "20Gbps", delay = "1us" }}
[switch]
port-buffer = "500KB"
ecn-threshold = "97.5KB"
[transport]
{transport}
[[faults]]
loss = {{ on = "everywhere", probability = {loss} }}
[[traffic]]
training = {{ collective = "server", chunk = "256KB", json = "8x62500", iterations = 9, forward = "2ms", backward = "4ms", workers = [0, 1, 4, 5], server = 2, {job} }}
"#
    )
}

// spec: M-03, M-18, M-19 simulator
#[test]
fn deliveries_of_one_job_are_as_fast_as_flows() {
    const DELIVER: &str = "transport = \"deliver\", loss = 0.02";
    let mean = |transport: &str, job: &str, loss: f64| {
        [1, 2, 3]
            .map(|seed| steady_us(&run(&one_job(transport, job, loss), seed)))
            .iter()
            .sum::<f64>()
            / 3.0
    };
    for (loss, most) in [(0.0, 1.05), (0.005, 1.0)] {
        let dctcp = mean("", "transport = \"flow\"", loss);
        println!("loss {loss}: over DCTCP {dctcp:.0} µs");
        for (name, on) in choices() {
            let deliver = mean(&keys(&on), DELIVER, loss);
            println!("{name}: {deliver:.0} µs, {:.3} of DCTCP", deliver / dctcp);
            let is_all = on.iter().all(|own| *own);
            assert!(!is_all || deliver <= dctcp * most, "loss {loss}: {deliver} of {dctcp}");
        }
    }
}

/// The parts of `thalweg figure mlt-16 --quick`, for longer.
fn parts(switch: &str, transport: &str, job: &str) -> String {
    format!(
        r#"title = "parts"
[topology.leaf-spine]
racks = 4
hosts-per-rack = 4
spines = 4
host-cable = {{ rate = "100Gbps", delay = "1us" }}
uplink = {{ rate = "100Gbps", delay = "1us" }}
[switch]
port-buffer = "512KB"
{switch}
[transport]
{transport}
[[traffic]]
training = {{ collective = "server", chunk = "1MB", bucket = "4MB", json = "vgg16/40", iterations = 8, forward = "250us", backward = "500us", workers = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], servers = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], transport = "deliver"{job} }}
"#
    )
}

/// Thresholds of seven queues, each `step` KB above the one before.
fn selective(first: u32, step: u32, counts: &str) -> String {
    let thresholds: Vec<String> = (0..7).map(|at| format!("\"{}KB\"", first + at * step)).collect();
    format!(
        "queues = \"strict\"\ndrop-unmarkable = true\necn-counts = \"{counts}\"\n\
         ecn-thresholds = [\"512KB\", {}]",
        thresholds.join(", ")
    )
}

/// Prints a row of packets dropped, by what makes them important.
fn print_drops(part: &str, switch: &str, segments: &str, bound: f64) {
    let job = format!(", loss = {bound}, parameters = \"keep-value\"");
    let rules = keys(&[true; RULES.len()]);
    let transport = format!("spray = false\ndelivery-segments = \"{segments}\"\n{rules}");
    let (outcome, [sent, dropped]) = run_counted(&parts(switch, &transport, &job), 1);
    let Kinds { large, spent, large_again, small_again, .. } = dropped;
    println!(
        "| {bound} | {part} | {segments} | {:.0} | {} | {large} | {spent} | {large_again} | {small_again} | {} | {:.1}% | {} |",
        steady_us(&outcome),
        dropped.important(),
        dropped.by_values(),
        100.0 * large as f64 / sent.large as f64,
        outcome.stats.dropped(),
    );
}

/// Prints important packets dropped in each part, by the thresholds of queues, the bound and the order of packets.
#[test]
#[ignore = "takes minutes: prints a table of the documentation"]
fn important_packets_dropped() {
    let switches = [
        ("A", String::new()),
        ("A + B, 60 to 120 KB of a queue", selective(60, 10, "queue")),
        ("A + B, 120 to 240 KB of a queue", selective(120, 20, "queue")),
        ("A + B, 60 to 120 KB of a port", selective(60, 10, "port")),
        ("A + B, 128 to 256 KB of a port", selective(128, 21, "port")),
        ("A + B, 256 to 384 KB of a port", selective(256, 21, "port")),
    ];
    println!(
        "| bound | parts | order | iteration, µs | important dropped | large | spent | large again | small again \
         | by values | of large ones sent | all dropped |"
    );
    for bound in [0.1, 0.3, 0.5] {
        for (part, switch) in &switches {
            print_drops(part, switch, "as-they-lie", bound);
        }
    }
    for (part, switch) in &switches {
        print_drops(part, switch, "important-first", 0.1);
    }
}

/// Begin and end of each chunk, by its server and number.
type Spans = BTreeMap<(u32, u64), (Time, Time)>;

/// When the first and the last packet of each chunk that is pushed came to its server, by server and chunk.
#[derive(Clone, Default)]
struct Chunks(Arc<Mutex<Spans>>);

impl Tracer for Chunks {
    fn on(&mut self, now: Time, _: Option<LinkId>, incident: Incident, packet: Packet<'_>) {
        let Ok(data) = Data::decode(packet.header) else { return };
        // Sums have odd numbers.
        if matches!(incident, Incident::Arrived) && data.name.operation.is_multiple_of(2) {
            let mut chunks = self.0.lock().expect("nobody panics with it");
            let place = (packet.meta.dst.0, data.name.operation);
            let (_, last) = chunks.entry(place).or_insert((now, now));
            *last = now;
        }
    }
}

/// Prints how long a server collects a chunk, by the order of tensors and the number of servers.
#[test]
#[ignore = "takes minutes: prints a table of the documentation"]
fn orders_of_tensors_with_several_servers() {
    const SWITCH: &str = "queues = \"strict\"\ndrop-unmarkable = true\n\
        ecn-thresholds = [\"1MB\", \"60KB\", \"70KB\", \"80KB\", \"90KB\", \"100KB\", \"110KB\", \"120KB\"]";
    for servers in [1, 2, 4, 8] {
        for order in ["packets", "tensors"] {
            let list: Vec<String> = (0..servers).map(|server: u32| server.to_string()).collect();
            let text = format!(
                r#"title = "orders"
[topology.one-switch]
hosts = 8
host-cable = {{ rate = "100Gbps", delay = "1us" }}
[switch]
{SWITCH}
[transport]
delivery-order = "{order}"
[[traffic]]
training = {{ collective = "server", chunk = "1MB", bucket = "4MB", json = "vgg16/40", iterations = 4, forward = "250us", backward = "500us", workers = [0, 1, 2, 3, 4, 5, 6, 7], servers = [{}], transport = "deliver", loss = 0.1, parameters = "keep-value" }}
"#,
                list.join(", ")
            );
            let scenario = Scenario::parse("rules.toml", &text, &|name| Ok(model(name)));
            let scenario = scenario.unwrap_or_else(|error| panic!("{error}"));
            let mut run = scenario.run_bare(1);
            let chunks = Chunks::default();
            run.trace(Box::new(chunks.clone()));
            let outcome = run.finish();
            let chunks = chunks.0.lock().expect("nobody panics with it");
            let spans = chunks.values().map(|(first, last)| last.since(*first).as_us_f64());
            let mean_us = spans.sum::<f64>() / chunks.len() as f64;
            println!(
                "| {servers} | {order} | {:.0} | {mean_us:.0} | {} |",
                steady_us(&outcome),
                outcome.stats.dropped()
            );
        }
    }
}

/// Prints the table of docs/delivery.md.
#[test]
#[ignore = "takes minutes: prints a table of the documentation"]
fn each_rule_in_each_part() {
    const SELECTIVE: &str = "queues = \"strict\"\ndrop-unmarkable = true\n\
        ecn-thresholds = [\"512KB\", \"60KB\", \"70KB\", \"80KB\", \"90KB\", \"100KB\", \"110KB\", \"120KB\"]";
    const EDGE: &str = "queues = \"strict\"\ndrop-unmarkable = true\necn-counts = \"port\"\n\
        ecn-thresholds = [\"512KB\", \"256KB\", \"277KB\", \"298KB\", \"320KB\", \"341KB\", \"362KB\", \"384KB\"]";
    const BOUND: &str = ", loss = 0.1, parameters = \"keep-value\"";
    let parts_of = [
        ("A", "", false, BOUND),
        ("A + B", SELECTIVE, false, BOUND),
        ("A + B, edge", EDGE, false, BOUND),
        ("C", "", true, ""),
        ("B + C", SELECTIVE, true, ""),
        ("A + B + C", SELECTIVE, true, BOUND),
        ("A + B + C, edge", EDGE, true, BOUND),
    ];
    for (name, on) in choices() {
        let count = on.iter().filter(|own| **own).count();
        if (2..RULES.len()).contains(&count) {
            continue;
        }
        for (part, switch, sprays, job) in parts_of {
            for pipelined in [false, true] {
                let is_extra = pipelined || part.ends_with("edge");
                if is_extra && count != RULES.len() {
                    continue;
                }
                let job = format!("{job}, pipelined = {pipelined}");
                let transport = format!("spray = {sprays}\n{}", keys(&on));
                let outcomes = [1, 2].map(|seed| run(&parts(switch, &transport, &job), seed));
                let steady_us = outcomes.each_ref().map(steady_us).iter().sum::<f64>() / 2.0;
                let dropped =
                    outcomes.each_ref().map(|own| own.stats.dropped()).iter().sum::<u64>();
                let part = format!("{part}{}", if pipelined { ", pipelined" } else { "" });
                println!("| {name} | {part} | {steady_us:.0} | {} |", dropped / 2);
            }
        }
    }
}
