//! Links by where they are.

use serde::Serialize;

use crate::outcome::{LinkUse, Outcome};
use crate::scenario::Scenario;

/// All links of one kind.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LinkGroup {
    /// Name of the group.
    #[serde(rename = "links")]
    pub name: &'static str,
    /// Number of links.
    pub count: usize,
    /// Mean share of the time that they were busy.
    pub mean_use: f64,
    /// The busiest one's share.
    pub max_use: f64,
    /// The most that ever waited in front of one.
    pub peak_queue_bytes: u64,
    /// Packets that their queues turned away.
    pub dropped_packets: u64,
    /// Packets that their queues marked.
    pub marked_packets: u64,
}

/// Links from hosts, to hosts and between switches. Groups without links are left out.
pub fn link_groups(scenario: &Scenario, outcome: &Outcome) -> Vec<LinkGroup> {
    let is_host = |node| scenario.topology().is_host(node);
    let kind = |link: &LinkUse| (is_host(link.from), is_host(link.to));
    let groups = [
        ("host to switch", (true, false)),
        ("switch to switch", (false, false)),
        ("switch to host", (false, true)),
        ("host to host", (true, true)),
    ];
    let group = |(name, wanted)| {
        let links: Vec<&LinkUse> =
            outcome.links.iter().filter(|link| kind(link) == wanted).collect();
        (!links.is_empty()).then(|| summarize(name, &links, outcome))
    };
    groups.into_iter().filter_map(group).collect()
}

fn summarize(name: &'static str, links: &[&LinkUse], outcome: &Outcome) -> LinkGroup {
    let uses = || links.iter().map(|link| outcome.utilization(link));
    let stats = || links.iter().map(|link| link.stats);
    LinkGroup {
        name,
        count: links.len(),
        mean_use: uses().sum::<f64>() / links.len() as f64,
        max_use: uses().fold(0.0, f64::max),
        peak_queue_bytes: stats().map(|stats| stats.peak_queue_bytes).max().unwrap_or(0),
        dropped_packets: stats().map(|stats| stats.dropped_packets).sum(),
        marked_packets: stats().map(|stats| stats.marked_packets).sum(),
    }
}
