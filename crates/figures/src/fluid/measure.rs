//! One policy on one cluster.

use std::time::Instant;

use serde::Deserialize;
use thalweg_core::{Rng, Span};
use thalweg_pace::Settings;
use thalweg_report::stats::{mean, percentile};

use super::ccml::Ccml;
use super::fair::Fair;
use super::mcs::Mcs;
use super::pacing::{Pacing, clock};
use super::turns::Turns;
use super::{Arrivals, Cluster, Mix, Shape, World};
use crate::study::{Bench, Cell, Measured};
use crate::{FigureError, Point};

/// Settings that all sizes of a plan share.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Network {
    gpus_per_server: u32,
    /// Of a server's, a rack's and a pod's link, each way.
    gbps: [u64; 3],
}

/// Size of a run.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Size {
    pods: usize,
    racks_per_pod: usize,
    servers_per_rack: usize,
    arrivals: Arrivals,
    /// Slot at which to stop, if not when all jobs have ended.
    slots_max: Option<u64>,
}

/// Settings of a plan besides the study.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Setup {
    network: Network,
    mix: Mix,
    /// Runs one after the other, so that the time of a decision does not depend on how many there are.
    #[serde(default)]
    serial: bool,
}

/// Settings by the choices of a cell.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Choices {
    policy: Who,
    size: Size,
}

/// Policy that decides.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Who {
    Pacing,
    Ccml,
    Mcs,
    Fair,
    Turns,
}

/// Everybody decides when a slot begins, and at once: the pacing plane has no use for the milliseconds that messages
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

impl Bench for Setup {
    type Common = ();

    fn is_serial(&self) -> bool {
        self.serial
    }

    fn measure(
        &self,
        (): &(),
        cell: &Cell<'_>,
        point: &Point<'_>,
    ) -> Result<Measured, FigureError> {
        self.run(cell.settings(point)?, point)
    }
}

impl Setup {
    /// Runs the jobs of a seed. Everybody gets the same jobs.
    fn run(&self, choices: Choices, point: &Point<'_>) -> Result<Measured, FigureError> {
        let Choices { policy, size } = choices;
        let settings = settings();
        let rng = Rng::new(point.context.seed);
        let arrivals = &size.arrivals;
        let drawn = self.mix.draw(arrivals, settings.slot.as_s_f64(), &rng.stream("mix"));
        let unknown = || point.context.mistake("a model has no such name, or no plan");
        let jobs = drawn.ok_or_else(unknown)?;
        let mut world = World::new(Cluster::new(self.shape(size), &settings), jobs, &rng);
        let mut pacing = Pacing::new(&world, settings, &rng.stream("moments"));
        let begin: Instant = clock();
        let mut jobs_most = 0;
        let watch = |progress: &super::Progress| {
            jobs_most = jobs_most.max(progress.running);
            let share = match size.slots_max {
                Some(most) => progress.slot as f64 / most as f64,
                None => progress.ended as f64 / arrivals.jobs as f64,
            };
            point.reached(share)?;
            Ok::<bool, FigureError>(size.slots_max.is_none_or(|most| progress.slot < most))
        };
        match policy {
            Who::Pacing => world.run(&mut pacing, watch),
            Who::Ccml => world.run(&mut Ccml, watch),
            Who::Mcs => world.run(&mut Mcs, watch),
            Who::Fair => world.run(&mut Fair, watch),
            Who::Turns => world.run(&mut Turns, watch),
        }?;
        let elapsed_s = begin.elapsed().as_secs_f64();
        let seconds = |slots: f64| slots * settings.slot.as_s_f64();
        let completions_s: Vec<f64> = world.completion_slots().into_iter().map(seconds).collect();
        let of = |values: &[f64], percent| percentile(values, percent).unwrap_or(f64::NAN);
        // How long decisions of MLCC took, and how many schedules tables refused.
        let Pacing { decisions_us, refusals, .. } = pacing;
        let numbers = [
            ("mean-completion-s", mean(&completions_s).unwrap_or(f64::NAN)),
            ("median-completion-s", of(&completions_s, 50.0)),
            ("p95-completion-s", of(&completions_s, 95.0)),
            ("slots", world.slot as f64),
            ("jobs-at-once", jobs_most as f64),
            ("decisions", decisions_us.len() as f64),
            ("median-decision", of(&decisions_us, 50.0)),
            ("p90-decision", of(&decisions_us, 90.0)),
            ("p99-decision", of(&decisions_us, 99.0)),
            ("refusals", refusals as f64),
            ("elapsed", elapsed_s * 1e6),
            ("ms-a-slot", elapsed_s * 1e3 / world.slot as f64),
        ];
        let points = |values: Vec<f64>| values.into_iter().map(|value| (0.0, value)).collect();
        Ok(Measured::of(numbers)
            .trace("completions", points(completions_s))
            .trace("decisions", points(decisions_us)))
    }

    fn shape(&self, size: Size) -> Shape {
        Shape {
            pods: size.pods,
            racks_per_pod: size.racks_per_pod,
            servers_per_rack: size.servers_per_rack,
            gpus_per_server: self.network.gpus_per_server,
            gbps: self.network.gbps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Context;
    use crate::study::Of;

    /// Everything but the clock follows from the seed.
    #[test]
    fn the_same_seed_gives_the_same_completions() {
        let context = Context::unwatched("mlcc-15", 7, 1);
        let form: Of<Setup> = context.figure.form(true);
        let cells = form.study.cells().unwrap();
        let pair = [cells[0].clone(), cells[0].clone()];
        let run = |cell: &Cell<'_>, point: &Point<'_>| form.bench.measure(&(), cell, point);
        let twice = context.each(&pair, Cell::label, run).unwrap();
        assert_eq!(twice[0].points("completions"), twice[1].points("completions"));
        assert_eq!(twice[0].points("completions").len(), 48, "as many as jobs");
        assert!(twice[0].number("decisions") > 1_000.0);
    }
}
