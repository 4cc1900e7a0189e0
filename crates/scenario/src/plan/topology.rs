//! From a topology table to nodes and cables.

use std::collections::BTreeMap;

use thalweg_core::NodeId;
use thalweg_fabric::Topology;
use thalweg_fabric::topology::{Cable, TopologyError};

use super::as_key;
use crate::error::{Mistake, Under};
use crate::file::{ListTable, TopologyTable};

/// The topology and the names of its nodes.
pub(crate) fn topology(table: &TopologyTable) -> Result<(Topology, Vec<String>), Mistake> {
    let (kind, built) = match table {
        TopologyTable::List(list) => return listed(list).under("list"),
        TopologyTable::OneSwitch(shape) => ("one-switch", shape.build()),
        TopologyTable::Dumbbell(shape) => ("dumbbell", shape.build()),
        TopologyTable::LeafSpine(shape) => ("leaf-spine", shape.build()),
        TopologyTable::ThreeTier(shape) => ("three-tier", shape.build()),
    };
    let topology = built.map_err(|error| shape_mistake(&error).under(kind))?;
    let hosts = (0..topology.hosts()).map(|host| format!("host {host}"));
    let switches = (topology.hosts()..topology.nodes()).map(|switch| format!("switch {switch}"));
    let names = hosts.chain(switches).collect();
    Ok((topology, names))
}

fn shape_mistake(error: &TopologyError) -> Mistake {
    let message = as_key(&error.to_string());
    match error {
        TopologyError::Zero(name) => Mistake::at(as_key(name), message),
        TopologyError::TooFewHosts(_) => Mistake::at("hosts", message),
        TopologyError::UnevenCores { .. } => Mistake::at("cores", message),
        TopologyError::TooLarge(_) => Mistake::here(format!("{message}: give fewer")),
        _ => Mistake::here(message),
    }
}

fn listed(list: &ListTable) -> Result<(Topology, Vec<String>), Mistake> {
    let names: Vec<String> = list.hosts.iter().chain(&list.switches).cloned().collect();
    let numbers = numbers(list)?;
    let mut cables = Vec::new();
    for (index, cable) in list.cables.iter().enumerate() {
        let end = |end: usize| {
            let name = cable.ends[end].as_str();
            numbers.get(name).copied().map(NodeId).ok_or_else(|| {
                let message = format!(
                    "no node is called {name:?}: add it to hosts or switches, or correct it"
                );
                Mistake::at(end, message).under("ends").under(index).under("cables")
            })
        };
        cables.push(Cable { a: end(0)?, b: end(1)?, rate: cable.rate, delay: cable.delay });
    }
    let (hosts, switches) = (list.hosts.len() as u32, list.switches.len() as u32);
    let topology = Topology::new(hosts, switches, cables);
    Ok((topology.map_err(|error| list_mistake(&error, &names))?, names))
}

/// Hosts are numbered first, then switches.
fn numbers(list: &ListTable) -> Result<BTreeMap<&str, u32>, Mistake> {
    let mut numbers = BTreeMap::new();
    for (kind, names) in [("hosts", &list.hosts), ("switches", &list.switches)] {
        for (index, name) in names.iter().enumerate() {
            let number = numbers.len() as u32;
            if numbers.insert(name.as_str(), number).is_some() {
                let message = format!("two nodes are called {name:?}: give each its own name");
                return Err(Mistake::at(index, message).under(kind));
            }
        }
    }
    Ok(numbers)
}

/// Says it with the names that the file gave.
fn list_mistake(error: &TopologyError, names: &[String]) -> Mistake {
    let name = |host: u32| &names[host as usize];
    match *error {
        TopologyError::TooFewHosts(_) => Mistake::at("hosts", error),
        TopologyError::Loop(cable) => {
            let message = "the cable has both ends at one node: change one of them";
            Mistake::at(cable, message).under("cables")
        }
        TopologyError::HostCables { host, cables } => {
            let message = format!(
                "{:?} has {cables} cables: give every host exactly one, to a switch or to the only \
                 other host",
                name(host)
            );
            Mistake::at(host, message).under("hosts")
        }
        TopologyError::Disconnected { from, to } => {
            let message =
                format!("no path leads from {:?} to {:?}: add a cable", name(from), name(to));
            Mistake::at("cables", message)
        }
        _ => Mistake::here(error),
    }
}
