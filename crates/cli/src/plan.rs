//! `thalweg plan`: queues of switches for bounded-loss delivery, and for flows with priorities.

mod flows;
mod sonic;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use thalweg_console::{Failure, files};
use thalweg_core::{Bytes, Dscp, FULL_FRAME_BYTES, MTU_BYTES, PRIORITIES, TrafficClass};
use thalweg_deliver::FrontFirst;
use thalweg_deliver::plan::{LayerCost, Plan, Port, QueuePlan, plan as planned};
use thalweg_deliver::policy::CONTROL_PRIORITY;
use thalweg_workload::{LossCost, Model, models};

pub(crate) const ABOUT: &str = "\
Plan the queues of switches: for a model whose gradients may be lost in part, or for TCP flows with priorities

Layers are spread over the priorities of a port, front layers first; the most urgent priority is for control. Above
its threshold a queue drops packets that are not ECN-capable (those with small gradients) and marks the others. The
buffer is divided so that losses cost the fewest rounds of training. Each queue is modelled as an M/M/1/m queue, which
describes the average and not bursts.

With --for flows: eight queues in strict order of their priorities, as agents with --prioritize write them into \
packets, and one marking threshold for each of them.";

/// Arguments of `thalweg plan`.
#[derive(Args)]
pub(crate) struct PlanArguments {
    /// Traffic that the queues are for
    #[arg(long = "for", value_enum, value_name = "TRAFFIC", default_value_t = Traffic::Gradients)]
    traffic: Traffic,
    /// The model: a JSON file with its layers, or the name of a built-in one
    #[arg(long, value_name = "FILE|NAME", required_unless_present = "mark")]
    layers: Option<String>,
    /// With --for flows: queue length above which each queue marks packets, such as 65 full packets at 10 Gbps
    #[arg(long, value_name = "SIZE", conflicts_with = "layers")]
    mark: Option<Bytes>,
    /// Extra rounds for each percent of lost gradients: a CSV file with the columns layer,small,large. Without
    /// it large gradients cost four times as much as small ones, and the last layer twice as much as the first
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Number of queues of a port for training; the most urgent one is for control. Default 8, and with --fair 2
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=8))]
    queues: Option<u8>,
    /// Divide each port between training and other traffic: half of the rate and half of the buffer for each. Other
    /// traffic has one queue more. More than two queues for training have equal parts of training's half. The rate that
    /// empty queues leave is divided evenly, so that training may get less than half of the port, and never more
    #[arg(long)]
    fair: bool,
    /// Buffer of a port: the most bytes that wait there
    #[arg(long, value_name = "SIZE", default_value = "512KB")]
    buffer: Bytes,
    /// MTU of the links, which gives the length of a packet
    #[arg(long, value_name = "BYTES", default_value_t = 1_500, value_parser = clap::value_parser!(u16).range(576..))]
    mtu: u16,
    /// Share of a port's rate that the gradients take, from above 0 to less than 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.9)]
    load: f64,
    /// Ports of the switch, separated by commas; for sonic
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "Ethernet0")]
    ports: Vec<String>,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Format::Json)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Traffic {
    /// Gradients of a model, in deliveries with a bounded loss
    Gradients,
    /// TCP flows that agents give priorities
    Flows,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// The plan: layers, thresholds and losses of every queue
    Json,
    /// Tables of a SONiC switch's configuration
    Sonic,
}

/// Bytes of a full packet on a link beside its MTU.
const ETHERNET_BYTES: u32 = FULL_FRAME_BYTES - MTU_BYTES as u32;

/// Division of a port between training and other traffic.
#[derive(Clone, Copy)]
enum Classes {
    /// All that is not training is the least urgent.
    Strict {
        /// Queues for training.
        queues: u8,
    },
    /// Each has half of the port.
    // spec: M-15
    Fair {
        /// Queues for training.
        queues: u8,
    },
}

impl Classes {
    fn of(arguments: &PlanArguments) -> Result<Classes, Failure> {
        match (arguments.fair, arguments.queues) {
            (false, queues) => Ok(Classes::Strict { queues: queues.unwrap_or(PRIORITIES as u8) }),
            (true, Some(8)) => {
                let text = "--fair leaves a queue to other traffic: give --queues 7 or less";
                Err(Failure::Usage(text.into()))
            }
            (true, queues) => Ok(Classes::Fair { queues: queues.unwrap_or(2) }),
        }
    }

    /// Queues for training.
    fn queues(self) -> u8 {
        match self {
            Classes::Strict { queues } | Classes::Fair { queues } => queues,
        }
    }
}

/// Runs it.
pub(crate) fn plan(arguments: &PlanArguments) -> Result<(), Failure> {
    if arguments.ports.iter().any(|port| port.trim().is_empty()) {
        let text = "--ports has an empty name: write names of ports as Ethernet0,Ethernet4";
        return Err(Failure::Usage(text.into()));
    }
    let layers = match (arguments.traffic, &arguments.layers, arguments.mark) {
        (Traffic::Flows, None, Some(mark)) => return flows::plan(mark, arguments),
        (Traffic::Gradients, Some(layers), None) => layers,
        (Traffic::Flows, ..) => return Err(Failure::Usage("--for flows needs --mark".into())),
        _ => return Err(Failure::Usage("--for gradients needs --layers".into())),
    };
    let model = model(layers)?;
    let costs = costs(&model, arguments.costs.as_deref())?;
    let layers = layer_costs(&model, &costs);
    let classes = Classes::of(arguments)?;
    let policy = FrontFirst { first_priority: 1, priorities: classes.queues() - 1 };
    // Half of what a port holds is for other traffic, where it has queues of its own.
    let buffer_bytes = match classes {
        Classes::Strict { .. } => arguments.buffer.as_u64(),
        Classes::Fair { .. } => arguments.buffer.as_u64() / 2,
    };
    let packet_bytes = u32::from(arguments.mtu) + ETHERNET_BYTES;
    let port = Port { policy, packet_bytes, load: arguments.load, ..Port::new(buffer_bytes) };
    let plan: Plan = planned(&layers, &port).map_err(Failure::usage)?;
    let document = match arguments.format {
        Format::Json => document(&model, &plan, classes),
        Format::Sonic => sonic::document(&plan, classes, &arguments.ports),
    };
    files::print(&format!("{document:#}\n"))
}

fn model(name: &str) -> Result<Model, Failure> {
    if let Some(model) = models::by_name(name) {
        return Ok(model);
    }
    let text = files::read(Path::new(name)).map_err(|error| {
        Failure::Usage(format!("{error}, or name one of {}", models::NAMES.join(", ")))
    })?;
    Model::from_json(&text).map_err(|error| Failure::Usage(format!("{name}: {error}")))
}

fn costs(model: &Model, path: Option<&Path>) -> Result<Vec<LossCost>, Failure> {
    let Some(path) = path else {
        let layers = model.layers().len();
        return Ok((0..layers).map(|layer| LossCost::assumed(layer, layers)).collect());
    };
    LossCost::from_csv(&files::read(path)?, model)
        .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
}

/// Sizes and costs of each layer. A value is a float.
fn layer_costs(model: &Model, costs: &[LossCost]) -> Vec<LayerCost> {
    let mut layers: Vec<LayerCost> = costs
        .iter()
        .map(|cost| LayerCost { bytes: 0, small: cost.small, large: cost.large })
        .collect();
    for tensor in model.tensors() {
        layers[tensor.layer].bytes += 4 * tensor.values;
    }
    layers
}

/// The plan as JSON.
fn document(model: &Model, plan: &Plan, classes: Classes) -> Value {
    let queues: Vec<Value> = plan.queues.iter().map(|own| queue_document(model, own)).collect();
    let mut document = json!({
        "schema": "thalweg.plan/1",
        "model": model.name(),
        "control": {
            "priority": CONTROL_PRIORITY,
            "dscp": code(CONTROL_PRIORITY),
        },
        "queues": queues,
        "cost_rounds": plan.cost,
    });
    if let Classes::Fair { .. } = classes {
        document["weights"] = json!({ "training": 1, "other": 1 });
    }
    document
}

fn queue_document(model: &Model, queue: &QueuePlan) -> Value {
    let layers: Vec<&str> =
        model.layers()[queue.layers.clone()].iter().map(|layer| layer.name.as_str()).collect();
    json!({
        "priority": queue.priority,
        "dscp": code(queue.priority),
        "layers": layers,
        "load": queue.load,
        "threshold_bytes": queue.threshold_bytes,
        "limit_bytes": queue.limit_bytes,
        "lost_small": queue.lost_small,
        "lost_large": queue.lost_large,
    })
}

/// DSCP of packets of this priority.
fn code(priority: u8) -> u8 {
    Dscp::of_priority(priority).in_class(TrafficClass::Training).code()
}
