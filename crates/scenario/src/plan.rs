//! From what is written to what can run: every check that needs more than one key.

mod aggregation;
mod topology;

pub(crate) use aggregation::{Aggregation, aggregation};
pub(crate) use topology::topology;

use thalweg_core::{NodeId, Span, Time};
use thalweg_fabric::queue::STRICT_QUEUES;
use thalweg_fabric::{
    Buffer, Config, Discipline, Effect, Marking, Outage, Place, Rule, Spread, Topology,
};
use thalweg_flow::{ConfigError, Control};

use crate::error::Mistake;
use crate::file::{
    ControlWord, EcnWord, FaultTable, File, PlaceTable, QueuesWord, RoutingWord, SwitchTable,
    TransportTable, WhenTable,
};

/// Settings of switches and links.
pub(crate) fn fabric(file: &File, topology: &Topology) -> Result<Config, Mistake> {
    let mut config = Config {
        discipline: discipline(&file.switch),
        buffer: buffer(&file.switch).map_err(|mistake| mistake.under("switch"))?,
        spread: match file.switch.routing {
            RoutingWord::PerFlow => Spread::PerFlow,
            RoutingWord::PerPacket => Spread::PerPacket,
            RoutingWord::Explicit => Spread::Explicit,
        },
        ..Config::default()
    };
    for (number, fault) in file.faults.iter().enumerate() {
        let added = add_fault(&mut config, fault, topology);
        added.map_err(|mistake| mistake.under(fault.kind()).under(number).under("faults"))?;
    }
    Ok(config)
}

fn discipline(table: &SwitchTable) -> Discipline {
    let marking = table.ecn_threshold.map_or(Marking::NONE, |threshold| Marking {
        threshold_bytes: threshold.0.as_u64(),
        drop_unmarkable: table.drop_unmarkable,
    });
    match (table.queues, table.ecn_counts) {
        (QueuesWord::Fifo, _) => Discipline::Fifo(marking),
        (QueuesWord::Strict, EcnWord::Port) => Discipline::StrictPerPort(marking),
        (QueuesWord::Strict, EcnWord::Queue) => {
            Discipline::StrictPerQueue([marking; STRICT_QUEUES])
        }
    }
}

fn buffer(table: &SwitchTable) -> Result<Buffer, Mistake> {
    match (table.port_buffer, table.shared_buffer) {
        (Some(_), Some(_)) => Err(Mistake::at(
            "shared-buffer",
            "port-buffer and shared-buffer exclude each other: keep one",
        )),
        (Some(bytes), None) => Ok(Buffer::PerPort { bytes: bytes.as_u64() }),
        (None, None) => Ok(Buffer::default()),
        (None, Some(bytes)) if table.alpha > 0.0 && table.alpha.is_finite() => {
            Ok(Buffer::Shared { bytes: bytes.as_u64(), alpha: table.alpha })
        }
        (None, Some(_)) => {
            Err(Mistake::at("alpha", format!("{} is no share: give a number above 0", table.alpha)))
        }
    }
}

impl FaultTable {
    /// The key that the file has it under.
    fn kind(&self) -> &'static str {
        match self {
            FaultTable::Loss(_) => "loss",
            FaultTable::Bursts(_) => "bursts",
            FaultTable::Duplicate(_) => "duplicate",
            FaultTable::Reorder(_) => "reorder",
            FaultTable::Jitter(_) => "jitter",
            FaultTable::LinkDown(_) => "link-down",
            FaultTable::NodeDown(_) => "node-down",
        }
    }
}

fn add_fault(config: &mut Config, fault: &FaultTable, topology: &Topology) -> Result<(), Mistake> {
    let (when, effect) = match fault {
        FaultTable::Loss(loss) => {
            (loss.when(), Effect::Loss(chance("probability", loss.probability)?))
        }
        FaultTable::Duplicate(twice) => {
            (twice.when(), Effect::Duplicate(chance("probability", twice.probability)?))
        }
        FaultTable::Bursts(bursts) => {
            let (begin, end) = (chance("begin", bursts.begin)?, chance("end", bursts.end)?);
            (bursts.when(), Effect::Bursts { begin, end })
        }
        FaultTable::Reorder(reorder) => {
            let probability = chance("probability", reorder.probability)?;
            (reorder.when(), Effect::Reorder { probability, by: reorder.by })
        }
        FaultTable::Jitter(jitter) => (jitter.when(), Effect::Jitter(jitter.up_to)),
        FaultTable::LinkDown(down) => (down.when(), Effect::Down),
        FaultTable::NodeDown(down) => {
            let node = node("node", down.node, topology)?;
            let (from, until) = period(down.from, down.until)?;
            config.outages.push(Outage { node, from, until });
            return Ok(());
        }
    };
    let WhenTable { on, from, until } = when;
    let (from, until) = period(from, until)?;
    config.faults.push(Rule { place: place(on, topology)?, effect, from, until });
    Ok(())
}

fn chance(key: &str, probability: f64) -> Result<f64, Mistake> {
    if (0.0..=1.0).contains(&probability) {
        return Ok(probability);
    }
    let message = format!("{probability} is not a probability: give a number from 0 to 1");
    Err(Mistake::at(key, message))
}

fn period(from: Span, until: Option<Span>) -> Result<(Time, Time), Mistake> {
    let until = until.map_or(Time::NEVER, |until| Time::ZERO + until);
    let from = Time::ZERO + from;
    if from >= until {
        let message = "the fault ends before it begins: make until later than from";
        return Err(Mistake::at("until", message));
    }
    Ok((from, until))
}

fn place(table: PlaceTable, topology: &Topology) -> Result<Place, Mistake> {
    let cables = topology.cables().len();
    let under_on = |mistake: Mistake| mistake.under("on");
    Ok(match table {
        PlaceTable::Everywhere => Place::Everywhere,
        PlaceTable::HostCables => Place::HostCables,
        PlaceTable::SwitchCables => Place::SwitchCables,
        PlaceTable::Cable(number) if (number as usize) < cables => Place::Cable(number),
        PlaceTable::Cable(number) => {
            let message = format!("there is no cable {number}: they go from 0 to {}", cables - 1);
            return Err(under_on(Mistake::at("cable", message)));
        }
        PlaceTable::Into(number) => Place::Into(node("into", number, topology).map_err(under_on)?),
        PlaceTable::OutOf(number) => {
            Place::OutOf(node("out-of", number, topology).map_err(under_on)?)
        }
    })
}

fn node(key: &str, number: u32, topology: &Topology) -> Result<NodeId, Mistake> {
    if number < topology.nodes() {
        return Ok(NodeId(number));
    }
    let last = topology.nodes() - 1;
    Err(Mistake::at(key, format!("there is no node {number}: they go from 0 to {last}")))
}

/// Settings of the transport.
pub(crate) fn transport(table: &TransportTable) -> Result<thalweg_flow::Config, Mistake> {
    let default = thalweg_flow::Config::default();
    let config = thalweg_flow::Config {
        control: control(table),
        segment_bytes: table.segment_bytes.unwrap_or(default.segment_bytes),
        overhead_bytes: table.overhead_bytes.unwrap_or(default.overhead_bytes),
        ack_wire_bytes: table.ack_bytes.unwrap_or(default.ack_wire_bytes),
        initial_window_packets: table
            .initial_window_packets
            .unwrap_or(default.initial_window_packets),
        reordering_packets: table.reordering_packets.unwrap_or(default.reordering_packets),
        min_rto: table.min_rto.unwrap_or(default.min_rto),
        initial_rto: table.initial_rto.unwrap_or(default.initial_rto),
        ..default
    };
    if config.ack_wire_bytes == 0 {
        return Err(Mistake::at("ack-bytes", "no packet has 0 bytes: give at least 1"));
    }
    config.check().map_err(transport_mistake)?;
    Ok(config)
}

fn transport_mistake(error: ConfigError) -> Mistake {
    let key = match error {
        ConfigError::Zero(name) | ConfigError::TooManyPackets { name, .. } => as_key(name),
        ConfigError::FirstMessage(_) => as_key("first_message"),
        ConfigError::PacketTooLarge => "segment-bytes".to_owned(),
        ConfigError::TimeoutOrder { max, .. } => {
            return Mistake::at("min-rto", format!("no wait may pass {max}: give that or less"));
        }
        ConfigError::Share { name, .. } => format!("dctcp-{}", as_key(name)),
    };
    Mistake::at(key, as_key(&error.to_string()))
}

fn control(table: &TransportTable) -> Control {
    match table.control.unwrap_or(ControlWord::Dctcp) {
        ControlWord::Dctcp => Control::Dctcp {
            gain: table.dctcp_gain.unwrap_or(1.0 / 16.0),
            initial_alpha: table.dctcp_initial_alpha.unwrap_or(1.0),
        },
        ControlWord::NewReno => Control::NewReno,
        ControlWord::Cubic => Control::Cubic,
    }
}

/// Names of settings as files write them.
fn as_key(words: &str) -> String {
    words.replace('_', "-")
}
