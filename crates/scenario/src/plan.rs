//! From what is written to what can run: every check that needs more than one key.

mod aggregation;
mod control;
mod delivery;
mod pacing;
mod priorities;
mod switch;
mod topology;
mod transport;

pub(crate) use aggregation::{Aggregation, aggregation};
pub(crate) use control::named as control_named;
pub(crate) use delivery::{DeliveryPlan, delivery, delivery_plan};
pub(crate) use pacing::{has_job_classes, pacing, ways, with_job_classes};
pub(crate) use priorities::{Counting, Learning, Priorities, priorities};
pub(crate) use topology::topology;
pub(crate) use transport::{
    Protocol, longest_round_trip, loss_bound, on_topology, protocol, transport,
};

use thalweg_core::{NodeId, Span, Time};
use thalweg_fabric::{Config, Effect, Outage, Place, Rule, Topology};

use crate::error::{Mistake, Under};
use crate::file::{FaultTable, File, PlaceTable, WhenTable};

/// Settings of switches and links.
pub(crate) fn fabric(file: &File, topology: &Topology) -> Result<Config, Mistake> {
    let mut config = Config {
        discipline: switch::discipline(file).under("switch")?,
        buffer: switch::buffer(&file.switch).under("switch")?,
        spread: file.switch.routing,
        ..Config::default()
    };
    for (number, fault) in file.faults.iter().enumerate() {
        let added = add_fault(&mut config, fault, topology);
        added.under(fault.kind()).under(number).under("faults")?;
    }
    Ok(config)
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
    config.faults.push(Rule { place: place(on, topology).under("on")?, effect, from, until });
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
    Ok(match table {
        PlaceTable::Everywhere => Place::Everywhere,
        PlaceTable::HostCables => Place::HostCables,
        PlaceTable::SwitchCables => Place::SwitchCables,
        PlaceTable::Cable(number) if (number as usize) < cables => Place::Cable(number),
        PlaceTable::Cable(number) => {
            let message = format!("there is no cable {number}: they go from 0 to {}", cables - 1);
            return Err(Mistake::at("cable", message));
        }
        PlaceTable::Into(number) => Place::Into(node("into", number, topology)?),
        PlaceTable::OutOf(number) => Place::OutOf(node("out-of", number, topology)?),
    })
}

fn node(key: &str, number: u32, topology: &Topology) -> Result<NodeId, Mistake> {
    if number < topology.nodes() {
        return Ok(NodeId(number));
    }
    let last = topology.nodes() - 1;
    Err(Mistake::at(key, format!("there is no node {number}: they go from 0 to {last}")))
}

/// Names of settings as files write them.
fn as_key(words: &str) -> String {
    words.replace('_', "-")
}
