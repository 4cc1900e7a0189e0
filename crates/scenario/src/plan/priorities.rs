//! From the transport's table to the priorities of flows.

use std::ops::ControlFlow;

use thalweg_core::{Bytes, Rng};
use thalweg_fabric::Spread;
use thalweg_prioritize::generate::{Hints, describe};
use thalweg_prioritize::tagger::{SLACK, named};
use thalweg_prioritize::{Model, NewFlow, Options, Settings, Thresholds};
use thalweg_stack::{Scheme, Tagging};
use thalweg_workload::SizeDistribution;

use super::Protocol;
use crate::error::{Mistake, Under};
use crate::file::{
    CountsWord, File, HintsTable, LossDetectionWord, QueuesWord, SizesTable, TaggerWord,
    ThresholdsWord, TransportTable,
};

/// Source of flows' priorities, or of the sizes that flows are ranked by.
#[derive(Clone, Debug)]
pub(crate) struct Priorities {
    /// None where the transport ranks flows by their sizes.
    pub(crate) tagging: Option<Tagging>,
    /// Learning before the run, for users of forests.
    pub(crate) learning: Option<Learning>,
    /// Counting of all flows between two hosts together, in place of each flow.
    pub(crate) connections: Option<Counting>,
}

/// End of the time in which a connection counts what it has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counting {
    /// Until it pauses.
    UntilPause,
    /// For ever: it is never closed.
    ForEver,
}

/// Flows that a forest learns from, and features of flows.
#[derive(Clone, Debug)]
pub(crate) struct Learning {
    pub(crate) flows: u32,
    /// In place of those of the traffic.
    pub(crate) sizes: Option<SizeDistribution>,
    pub(crate) hints: Hints,
    pub(crate) settings: Settings,
    /// The share of flows that go where none went before.
    pub(crate) unseen: f64,
    /// Flows that end before the forest learns again, if it does.
    pub(crate) again_after: Option<u32>,
}

/// Most flows to learn from: they are described before every run.
const MAX_LEARNED: u32 = 1_000_000;

/// Reads sizes.
pub(crate) type ReadSizes<'a> = &'a dyn Fn(&SizesTable) -> Result<SizeDistribution, Mistake>;

/// Source of flows' priorities; `None` if all flows are alike.
pub(crate) fn priorities(
    file: &File,
    protocol: &Protocol,
    sizes: ReadSizes<'_>,
) -> Result<Option<Priorities>, Mistake> {
    let table = &file.transport;
    let ranks_by_size = matches!(protocol, Protocol::Pfabric { .. } | Protocol::Homa { .. });
    if table.past_estimate.is_some() && (!ranks_by_size || table.hints.is_none()) {
        let message = "only control = \"pfabric\" and \"homa\" with hints have such estimates: give \
                       those, or take this away";
        return Err(Mistake::at("past-estimate", message));
    }
    let by_priority = [LossDetectionWord::ByPriority, LossDetectionWord::BySender];
    if table.loss_detection.is_some_and(|word| by_priority.contains(&word)) {
        check_path(file)?;
    }
    let Some(word) = table.tagger else {
        return if ranks_by_size { believed(table, sizes) } else { none(table) };
    };
    if !matches!(protocol, Protocol::Windows(_)) {
        let control = protocol.name();
        let message = format!("control = \"{control}\" has its own priorities: take this away");
        return Err(Mistake::at("tagger", message));
    }
    if file.switch.queues == QueuesWord::Fifo {
        let message = "queues = \"fifo\" has no priorities: write queues = \"strict\" in [switch]";
        return Err(Mistake::at("tagger", message));
    }
    let scheme = match word {
        TaggerWord::Pias => Scheme::Pias,
        TaggerWord::Qclimb => Scheme::Qclimb,
        TaggerWord::PreciseSizes => Scheme::PreciseSizes,
        TaggerWord::FixedPriority => Scheme::FixedPriority,
        TaggerWord::Promotion => Scheme::Promotion,
    };
    if table.slack.is_some() && scheme != Scheme::Qclimb {
        let message = "only tagger = \"qclimb\" has a slack: write that, or take this away";
        return Err(Mistake::at("slack", message));
    }
    let slack = table.slack.unwrap_or(SLACK);
    let tagging = Tagging { scheme, thresholds: thresholds(table)?, slack };
    let learns = matches!(scheme, Scheme::Qclimb | Scheme::FixedPriority | Scheme::Promotion);
    let learning = match &table.hints {
        Some(_) if !learns => {
            let message = "this tagger learns nothing: take this away, or write tagger = \"qclimb\", \
                           \"fixed-priority\" or \"promotion\"";
            return Err(Mistake::at("hints", message));
        }
        _ if !learns => None,
        hints => {
            let hints = hints.clone().unwrap_or_default();
            Some(learning(&hints, sizes).under("hints")?)
        }
    };
    let connections = match table.counts {
        None | Some(CountsWord::Flow) => None,
        Some(CountsWord::Connection) => Some(Counting::UntilPause),
        Some(CountsWord::OpenConnection) => Some(Counting::ForEver),
    };
    if table.counts.is_some() && scheme != Scheme::Pias {
        let message = "only tagger = \"pias\" goes by what was sent: write that, or take this away";
        return Err(Mistake::at("counts", message));
    }
    Ok(Some(Priorities { tagging: Some(tagging), learning, connections }))
}

/// Packets that overtake each other on other paths would be taken for lost.
// spec: Q-06
fn check_path(file: &File) -> Result<(), Mistake> {
    if file.switch.routing != Spread::PerPacket {
        return Ok(());
    }
    let message = "only what takes one path is lost by its priority: write routing = \"per-flow\" in \
                   [switch], or take this away";
    Err(Mistake::at("loss-detection", message))
}

/// Sizes for transports that rank flows: the true ones, or estimates of a forest.
// spec: Q-12
fn believed(table: &TransportTable, sizes: ReadSizes<'_>) -> Result<Option<Priorities>, Mistake> {
    let Some(hints) = &table.hints else { return none(table) };
    none(&TransportTable { hints: None, ..table.clone() })?;
    let learning = Some(learning(hints, sizes).under("hints")?);
    Ok(Some(Priorities { tagging: None, learning, connections: None }))
}

fn none(table: &TransportTable) -> Result<Option<Priorities>, Mistake> {
    let given = [
        ("thresholds", table.thresholds.is_some()),
        ("slack", table.slack.is_some()),
        ("counts", table.counts.is_some()),
        ("rises-quickly", table.rises_quickly.is_some()),
        ("hints", table.hints.is_some()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((key, _)) => {
            Err(Mistake::at(key, "this is about a tagger: name one, or take this away"))
        }
        None => Ok(None),
    }
}

fn thresholds(table: &TransportTable) -> Result<Thresholds, Mistake> {
    let mistake = |message: String| Mistake::at("thresholds", message);
    match &table.thresholds {
        None => Ok(Thresholds::default()),
        Some(ThresholdsWord::List(given)) => {
            Thresholds::new(given).map_err(|error| mistake(error.to_string()))
        }
        Some(ThresholdsWord::Named(name)) => named(name).ok_or_else(|| {
            mistake(format!(
                "no thresholds are called {name:?}: write \"web-search-80\" or \"data-mining-80\", with a load \
                 from 50 to 90, \"testbed-web-search\", \"testbed-data-mining\", or a list of sizes"
            ))
        }),
    }
}

fn learning(table: &HintsTable, sizes: ReadSizes<'_>) -> Result<Learning, Mistake> {
    let default = Hints::default();
    let width = table.width.unwrap_or(default.width);
    if !(0.0..=100.0).contains(&width) {
        let message = format!("{width} is no width: give a number from 0 to 100");
        return Err(Mistake::at("width", message));
    }
    let swapped = super::chance("swapped", table.swapped.unwrap_or(default.swapped))?;
    let unseen = super::chance("unseen", table.unseen.unwrap_or(0.0))?;
    let flows = table.learned_flows.unwrap_or(LEARNED_FLOWS);
    if !(1..=MAX_LEARNED).contains(&flows) {
        let message = format!("{flows} flows are not learned from: give 1 to {MAX_LEARNED}");
        return Err(Mistake::at("learned-flows", message));
    }
    let forest = Settings::default();
    let learning = Learning {
        flows,
        sizes: table.sizes.as_ref().map(sizes).transpose().under("sizes")?,
        hints: Hints { width, swapped },
        settings: Settings {
            trees: table.trees.unwrap_or(forest.trees),
            depth: table.depth.unwrap_or(forest.depth),
            ..forest
        },
        unseen,
        again_after: table.learns_again_after,
    };
    if table.learns_again_after == Some(0) {
        let message = "the forest would learn all the time: give 1 flow or more";
        return Err(Mistake::at("learns-again-after", message));
    }
    // Whether a forest can grow does not depend on what it learns from.
    let ended = describe(&[Bytes::new(1)], learning.hints, &Rng::new(0));
    learning.train(&ended, &Rng::new(0)).map_err(Mistake::here)?;
    Ok(learning)
}

/// Default number of flows that a forest learns from: enough for ten trees of depth ten.
const LEARNED_FLOWS: u32 = 20_000;

impl Learning {
    /// Learns from flows that have ended.
    pub(crate) fn train(&self, ended: &[(NewFlow, Bytes)], rng: &Rng) -> Result<Model, String> {
        let settings = Settings { seed: rng.stream("forest").bits(), ..self.settings.clone() };
        let never_stopped = |_| ControlFlow::Continue(());
        Model::train(ended, &settings, Options::default(), &never_stopped)
            .map_err(|error| error.to_string())
    }
}
