//! One policy on one cluster.

use std::time::Instant;

use serde::Deserialize;
use thalweg_core::{Rng, Span};
use thalweg_pace::Settings;

use super::ccml::Ccml;
use super::fair::Fair;
use super::mcs::Mcs;
use super::ours::{Ours, clock};
use super::{Arrivals, Cluster, Mix, Shape, World};
use crate::{FigureError, Point};

/// What all sizes of a plan share.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Network {
    pub(crate) gpus_per_server: u32,
    /// Of a server's, a rack's and a pod's link, each way.
    pub(crate) gbps: [u64; 3],
}

/// How large a run is.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Size {
    pub(crate) pods: usize,
    pub(crate) racks_per_pod: usize,
    pub(crate) servers_per_rack: usize,
    pub(crate) arrivals: Arrivals,
    /// Where to stop, if not when all jobs have ended.
    pub(crate) slots_max: Option<u64>,
}

/// What is run.
#[derive(Clone, Copy)]
pub(crate) struct Setup<'a> {
    pub(crate) network: &'a Network,
    pub(crate) mix: &'a Mix,
    pub(crate) size: Size,
}

/// Who decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    Ours,
    Ccml,
    Mcs,
    Fair,
}

/// What came of it.
#[derive(Clone)]
pub(crate) struct Outcome {
    /// Seconds from arrival to end, of every job that ended.
    pub(crate) completions_s: Vec<f64>,
    pub(crate) slots: u64,
    /// The most jobs that were there at once.
    pub(crate) jobs_most: usize,
    /// What decisions of ours took, and how many schedules tables refused.
    pub(crate) decisions_us: Vec<f64>,
    pub(crate) refusals: u64,
    /// What all of it took on this machine.
    pub(crate) elapsed_s: f64,
}

impl Who {
    pub(crate) const ALL: [Who; 4] = [Who::Ours, Who::Ccml, Who::Mcs, Who::Fair];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Who::Ours => "ours",
            Who::Ccml => "CCML",
            Who::Mcs => "MCS",
            Who::Fair => "fair sharing",
        }
    }
}

/// Everybody decides when a slot begins, and at once: ours has no use for the milliseconds that messages
/// take on a network, and keeps only the order in which hosts come.
pub(crate) fn settings() -> Settings {
    Settings {
        decide_after: Span::ZERO,
        decide_spread: Span::from_us(1),
        // Nothing is beside the jobs.
        estimates_links: false,
        ..Settings::default()
    }
}

impl Size {
    pub(crate) fn servers(&self) -> u64 {
        (self.pods * self.racks_per_pod * self.servers_per_rack) as u64
    }
}

impl Setup<'_> {
    /// Runs the jobs of a seed. Everybody gets the same jobs.
    pub(crate) fn run(&self, who: Who, point: &Point<'_>) -> Result<Outcome, FigureError> {
        let settings = settings();
        let rng = Rng::new(point.context.seed);
        let arrivals = &self.size.arrivals;
        let drawn = self.mix.draw(arrivals, settings.slot.as_s_f64(), &rng.stream("mix"));
        let unknown = || point.context.mistake("a model has no such name, or no plan");
        let jobs = drawn.ok_or_else(unknown)?;
        let mut world = World::new(Cluster::new(self.shape(), &settings), jobs, &rng);
        let mut ours = Ours::new(&world, settings, &rng.stream("moments"));
        let begin: Instant = clock();
        let mut jobs_most = 0;
        let watch = |progress: &super::Progress| {
            jobs_most = jobs_most.max(progress.running);
            let share = match self.size.slots_max {
                Some(most) => progress.slot as f64 / most as f64,
                None => progress.ended as f64 / arrivals.jobs as f64,
            };
            point.reached(share)?;
            Ok::<bool, FigureError>(self.size.slots_max.is_none_or(|most| progress.slot < most))
        };
        match who {
            Who::Ours => world.run(&mut ours, watch),
            Who::Ccml => world.run(&mut Ccml, watch),
            Who::Mcs => world.run(&mut Mcs, watch),
            Who::Fair => world.run(&mut Fair, watch),
        }?;
        let seconds = |slots: f64| slots * settings.slot.as_s_f64();
        Ok(Outcome {
            completions_s: world.completion_slots().into_iter().map(seconds).collect(),
            slots: world.slot,
            jobs_most,
            decisions_us: ours.decisions_us,
            refusals: ours.refusals,
            elapsed_s: begin.elapsed().as_secs_f64(),
        })
    }

    fn shape(&self) -> Shape {
        Shape {
            pods: self.size.pods,
            racks_per_pod: self.size.racks_per_pod,
            servers_per_rack: self.size.servers_per_rack,
            gpus_per_server: self.network.gpus_per_server,
            gbps: self.network.gbps,
        }
    }
}
