//! Flows over TCP in a lab whose ports have eight queues: without priorities, with PIAS, with QCLIMB by what agents
//! observe, and with precise sizes.

mod replay;
mod results;
mod workload;

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use thalweg_console::{Failure, files};
use thalweg_core::{Bytes, Rate, Span};
use thalweg_lab::{Lab, Place, Queues, Spec};
use thalweg_prioritize::Thresholds;
use thalweg_prioritize::observer::ObserverConfig;
use thalweg_prioritize::tagger::PacketRule;
use thalweg_tagging::{Prioritizer, PriorityConfig, Tags};

use self::replay::{Outcome, Replay};
use self::workload::Workload;
use crate::tools::{processor_ticks, round, thread_times};

/// Arguments of `thalweg bench flows`.
#[derive(Args)]
pub struct FlowsArguments {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Only these arms, separated by commas; all of them without it
    #[arg(long, value_delimiter = ',')]
    only: Vec<Arm>,
    /// Sizes of flows
    #[arg(long, default_value = "types")]
    sizes: Sizes,
    /// Load of each host's link, headers included
    #[arg(long, default_value_t = 0.7)]
    load: f64,
    /// Hosts
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(4..=64))]
    hosts: u32,
    /// Rate of each host's link
    #[arg(long, default_value = "100mbit")]
    rate: Rate,
    /// Seconds of flows before those that are measured; agents learn during both
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(0..=3_600))]
    warm_up: u64,
    /// Seconds in which flows that are measured start
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// Seed of the flows; all arms have the same
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Congestion control of all flows, as the kernel calls it
    #[arg(long, default_value = "cubic")]
    control: String,
    /// Sizes at which a flow without bounds sinks, separated by commas [default: those of PIAS for web search]
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    thresholds: Vec<Bytes>,
    /// Bytes beyond its lower bound that a flow sends at the highest priority
    #[arg(long, value_name = "SIZE", default_value = "100KB")]
    slack: Bytes,
}

/// Rule for the priorities of flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Arm {
    /// All flows have the same priority
    None,
    /// Priorities by bytes sent
    Pias,
    /// Priorities by bounds that the agents of the hosts learn while flows pass
    Qclimb,
    /// Priorities by what is left of sizes that are known
    Precise,
}

/// Sizes of flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Sizes {
    /// Eight sizes of web search that repeat, each at a port of its own, to two other hosts
    Types,
    /// Web search, all at one port
    WebSearch,
}

/// Runs it.
pub fn flows(arguments: &FlowsArguments) -> Result<(), Failure> {
    let all = [Arm::None, Arm::Pias, Arm::Qclimb, Arm::Precise];
    let is_chosen = |arm: &Arm| arguments.only.is_empty() || arguments.only.contains(arm);
    let workload = Workload::new(arguments)?;
    let mut runs = Vec::new();
    for arm in all.into_iter().filter(is_chosen) {
        eprintln!("flows: {arm:?}, {} flows, load {} …", workload.flows.len(), arguments.load);
        let run = run(arguments, &workload, arm)?;
        if !arguments.json {
            files::print(&results::lines(&run))?;
        }
        runs.push(run);
    }
    if !arguments.json {
        return files::print(&results::table(&runs));
    }
    let document = json!({
        "schema": "thalweg.bench-flows/1",
        "hosts": arguments.hosts,
        "rate_bps": arguments.rate.as_bps(),
        "load": arguments.load,
        "control": arguments.control,
        "seed": arguments.seed,
        "sizes": format!("{:?}", arguments.sizes),
        "mean_bytes": round(workload.mean_bytes, 0),
        "runs": runs,
    });
    files::print(&format!("{document}\n"))
}

fn run(arguments: &FlowsArguments, workload: &Workload, arm: Arm) -> Result<Value, Failure> {
    let lab = Lab::build(&Spec {
        hosts: arguments.hosts,
        rate: arguments.rate,
        per_packet: true,
        queues: Some(Queues::default()),
        ..Spec::default()
    })?;
    let rule = rule(arguments)?;
    // Without it the time that the program takes is not measured, and nothing else changes.
    let _measures = thalweg_linux::measure_programs().ok();
    let (before, ticks) = (thread_times(), processor_ticks());
    let mut prioritizers = Vec::new();
    let mut tags = Vec::new();
    for host in lab.hosts() {
        match arm {
            Arm::None => {}
            Arm::Pias | Arm::Qclimb => prioritizers.push(prioritizer(host, rule, arm)?),
            Arm::Precise => tags.push(precise(host, rule)?),
        }
    }
    let replay = Replay {
        lab: &lab,
        workload,
        control: &arguments.control,
        tags,
        warm_up: Duration::from_secs(arguments.warm_up),
    };
    let Outcome { flows, unfinished, late_us } = replay.run()?;
    let stats: Vec<_> = prioritizers.iter().map(Prioritizer::stats).collect();
    let cpu = results::processor_times(&before, &thread_times());
    let (idle, all) = processor_ticks();
    let busy = 1.0 - (idle - ticks.0) as f64 / (all - ticks.1).max(1) as f64;
    let mut document = results::document(&flows, unfinished);
    document["processor_busy"] = json!(round(busy, 3));
    document["arm"] = json!(format!("{arm:?}").to_lowercase());
    document["start_late_us_p99"] = json!(round(late_us, 0));
    document["agents"] = results::agents(&stats, &cpu);
    document["queues"] = queues(&lab)?;
    Ok(document)
}

fn rule(arguments: &FlowsArguments) -> Result<PacketRule, Failure> {
    let thresholds = match &*arguments.thresholds {
        [] => Thresholds::default(),
        sizes => Thresholds::new(sizes).map_err(Failure::usage)?,
    };
    Ok(PacketRule { thresholds, slack: arguments.slack, idle_after: Span::from_ms(100) })
}

/// An agent's part that observes a host and tags what it sends.
fn prioritizer(host: &Place, rule: PacketRule, arm: Arm) -> Result<Prioritizer, Failure> {
    let config = PriorityConfig {
        interfaces: vec![host.interface().to_owned()],
        rule,
        observer: ObserverConfig { due_after: 50, ..ObserverConfig::default() },
        gives_bounds: arm == Arm::Qclimb,
        learned: None,
    };
    let prioritizer = host.run(|| Prioritizer::start(config))?.map_err(Failure::ran)?;
    match prioritizer.is_tagging() {
        true => Ok(prioritizer),
        false => Err(Failure::ran("the kernel refuses the program that tags packets")),
    }
}

/// The program at egress alone.
fn precise(host: &Place, rule: PacketRule) -> Result<Tags, Failure> {
    let rule = PacketRule { slack: Bytes::ZERO, ..rule };
    let interface = host.interface();
    let load = || {
        let mut tags = Tags::load(&rule, 64)?;
        let index = thalweg_linux::interface_index(interface).unwrap_or_default();
        tags.attach(index).map(|()| tags)
    };
    host.run(load)?.map_err(Failure::ran)
}

/// Packets of the queues towards and from all hosts, by priority.
fn queues(lab: &Lab) -> Result<Value, Failure> {
    let mut packets = [0; thalweg_core::PRIORITIES];
    let mut dropped = packets;
    for host in lab.hosts() {
        for queues in [host.queues_to()?, host.queues_from()?].into_iter().flatten() {
            for (priority, queue) in queues.iter().enumerate() {
                packets[priority] += queue.packets;
                dropped[priority] += queue.dropped_full;
            }
        }
    }
    Ok(json!({ "packets": packets, "dropped": dropped }))
}
