//! From the table of pacing to the settings of schedulers and load tables.

use thalweg_core::{NodeId, Rate, Span};
use thalweg_fabric::Topology;
use thalweg_pace::{Covers, Enforce, Settings, SettingsError};
use thalweg_stack::Way;

use crate::error::Mistake;
use crate::file::{
    DelayClassesWord, EnforceWord, File, PacingTable, PlansWord, QueuesWord, UnusedWord,
};

/// Decisions begin after this part of a slot, when first answers are back, and are spread over another: as
/// 1 and 5 ms are of the published 60.
const DECIDE_AFTER_PART: u64 = 60;
const DECIDE_SPREAD_PART: u64 = 12;
/// Earliest decision in short slots, unless it is more than that part of them: messages also wait in queues.
const ANSWERED_AFTER: Span = Span::from_us(200);
const ANSWERED_PART: u64 = 8;

/// True if jobs have classes: where ports have priorities, unless the file says otherwise.
pub(crate) fn has_job_classes(file: &File) -> bool {
    let has_priorities = matches!(file.switch.queues, QueuesWord::Strict | QueuesWord::Fair);
    let enforce = file.pacing.map(|pacing| pacing.enforce);
    enforce.is_some_and(|word| word.map_or(has_priorities, |word| word == EnforceWord::Class))
}

/// The file with what follows from classes of jobs: delays are read of the most urgent class alone, since packets out of
/// turn wait for others.
// spec: C-16, M-17
pub(crate) fn with_job_classes(mut file: File) -> File {
    if has_job_classes(&file) {
        file.transport.delay_classes = Some(DelayClassesWord::MostUrgent);
    }
    file
}

/// Checks the table, if there is one.
pub(crate) fn pacing(file: &File) -> Result<Option<Settings>, Mistake> {
    let Some(table) = file.pacing else { return Ok(None) };
    let enforce = if has_job_classes(file) { Enforce::Class } else { Enforce::Rate };
    let has_priorities = matches!(file.switch.queues, QueuesWord::Strict | QueuesWord::Fair);
    if enforce == Enforce::Class && !has_priorities {
        let message = "ports with one queue know no classes: write queues = \"strict\" or \"fair\" \
                       in [switch], or enforce = \"rate\"";
        return Err(Mistake::at("enforce", message));
    }
    settings(table, enforce).map(Some)
}

fn settings(table: PacingTable, enforce: Enforce) -> Result<Settings, Mistake> {
    let default = Settings::default();
    let slot = table.slot.unwrap_or(default.slot);
    let settings = Settings {
        slot,
        horizon_slots: table.slots.unwrap_or(default.horizon_slots),
        price_per_mille: price_per_mille(table.price)?.unwrap_or(default.price_per_mille),
        decide_after: (slot / DECIDE_AFTER_PART).max(ANSWERED_AFTER.min(slot / ANSWERED_PART)),
        decide_spread: slot / DECIDE_SPREAD_PART,
        enforce,
        covers: match table.plans {
            PlansWord::Ready => Covers::Ready,
            PlansWord::Iteration => Covers::Iteration,
        },
        reclaims_unused: table.unused == UnusedWord::Halved,
        estimates_links: false,
        ..default
    };
    if slot < Span::from_us(100) {
        let message = "slots this short end before anybody has decided: give at least 100us";
        return Err(Mistake::at("slot", message));
    }
    settings.check().map_err(|error| match error {
        SettingsError::Horizon(_) => Mistake::at("slots", error),
        SettingsError::SlotTooShort { .. } | SettingsError::NoMemory => Mistake::at("slot", error),
    })?;
    Ok(settings)
}

fn price_per_mille(price: Option<f64>) -> Result<Option<u32>, Mistake> {
    let Some(price) = price else { return Ok(None) };
    if !(0.0..=1_000.0).contains(&price) {
        let message = format!("{price} is no price: give a number from 0 to 1000");
        return Err(Mistake::at("price", message));
    }
    Ok(Some((price * 1_000.0) as u32))
}

/// Links from a switch to each host: several equal links count together.
pub(crate) fn ways(topology: &Topology, switch: NodeId) -> Vec<Option<Way>> {
    let mut named: Vec<Vec<NodeId>> = Vec::new();
    let hosts = (0..topology.hosts()).map(NodeId);
    hosts.map(|host| way(topology, switch, host, &mut named)).collect()
}

fn way(
    topology: &Topology,
    switch: NodeId,
    host: NodeId,
    named: &mut Vec<Vec<NodeId>>,
) -> Option<Way> {
    let distances = topology.distances(host);
    let here = distances[switch.index()];
    let nearer =
        |link: &&thalweg_fabric::LinkId| distances[topology.link_ends(**link).1.index()] < here;
    let links: Vec<_> = topology.links_out(switch).iter().filter(nearer).collect();
    let mut ends: Vec<NodeId> = links.iter().map(|&&link| topology.link_ends(link).1).collect();
    ends.sort_unstable();
    let bps = links.iter().map(|link| topology.cables()[link.index() / 2].rate.as_bps()).sum();
    let link = named.iter().position(|known| *known == ends).unwrap_or_else(|| {
        named.push(ends);
        named.len() - 1
    });
    Some(Way { link: link as u32, rate: Rate::from_bps(bps)? })
}
