//! Costs of an iteration of a job, once the first ones have found their aggregators.

use serde::Deserialize;
use thalweg_core::{NodeId, Span};
use thalweg_scenario::{Progress, Run, Scenario};

use crate::runs::{self, run_stepwise};
use crate::simulated::{Simulated, files};
use crate::study::{Bench, Cell, Measured};
use crate::{FigureError, Point};

/// Time between two looks at a run: several fit while workers compute, when nothing is sent.
const STEP: Span = Span::from_us(10);

/// Settings of a plan besides the study.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Iterations {
    warm_up: usize,
    /// Bytes of all frames of a tensor.
    tensor_wire_bytes: f64,
    run: Simulated,
}

/// Counters up to some moment.
#[derive(Clone, Default)]
struct Counts {
    /// By host.
    received_bytes: Vec<u64>,
    all_links_bytes: u64,
    gradient_bytes: Option<u64>,
}

// spec: A-13
impl Bench for Iterations {
    type Common = ();

    fn measure(
        &self,
        (): &(),
        cell: &Cell<'_>,
        point: &Point<'_>,
    ) -> Result<Measured, FigureError> {
        let file = self.run.file(cell).map_err(|reason| point.context.mistake(reason))?;
        let scenario = runs::scenario(point, file, &files::load)?;
        let workers = cell.number("workers");
        let mut at_warm = None;
        let mut at_end = Counts::default();
        let look = |run: &mut Run<'_>, progress: &Progress| {
            let is_warm = progress.finished_sums as f64 >= workers * self.warm_up as f64;
            if is_warm && at_warm.is_none() {
                at_warm = Some(Counts::of(run, &scenario));
            }
            if progress.ended.is_some() {
                at_end = Counts::of(run, &scenario);
            }
        };
        let outcome = run_stepwise(&scenario, STEP, point, None, look)?;
        let job = &outcome.jobs[0];
        let iterations_us: Vec<f64> =
            job.iterations.iter().map(|span| (*span - job.compute).as_us_f64()).collect();
        let later_us = &iterations_us[self.warm_up..];
        let at_warm = at_warm.unwrap_or_default();
        let tensors = |bytes: u64, iterations: usize| {
            bytes as f64 / (self.tensor_wire_bytes * iterations as f64)
        };
        let by_host = at_end.received_bytes.iter().zip(&at_warm.received_bytes);
        let busiest = by_host.map(|(end, warm)| end - warm).max().unwrap_or(0);
        let all_links = at_end.all_links_bytes - at_warm.all_links_bytes;
        let first_server = at_warm.gradient_bytes.map(|warm| tensors(warm, self.warm_up));
        let server = at_end.gradient_bytes.zip(at_warm.gradient_bytes);
        let server = server.map(|(end, warm)| tensors(end - warm, later_us.len()));
        let fewest_sums = job.sums_at.iter().map(Vec::len).min().unwrap_or(0);
        Ok(Measured::of([
            // From the last gradient's being ready until all workers have the sum.
            ("time", later_us.iter().sum::<f64>() / later_us.len() as f64),
            ("first-time", iterations_us[0]),
            // Bytes over the busiest cable into a host, at the server of in-network aggregation, and over all links
            // for each worker, in tensors.
            ("busiest-host", tensors(busiest, later_us.len())),
            ("server", server.unwrap_or(f64::NAN)),
            ("first-server", first_server.unwrap_or(f64::NAN)),
            ("all-links", tensors(all_links, later_us.len()) / workers),
            ("fewest-sums", fewest_sums as f64),
        ]))
    }
}

impl Counts {
    fn of(run: &mut Run<'_>, scenario: &Scenario) -> Counts {
        let topology = scenario.topology();
        let mut counts =
            Counts { received_bytes: vec![0; topology.hosts() as usize], ..Counts::default() };
        for link in topology.links() {
            let bytes = run.link_stats(link).sent_bytes;
            counts.all_links_bytes += bytes;
            let (_, to) = topology.link_ends(link);
            if topology.is_host(to) {
                counts.received_bytes[to.index()] += bytes;
            }
        }
        let mut servers = (0..topology.hosts()).map(NodeId);
        let stats = servers.find_map(|host| run.server_stats(host, 0));
        counts.gradient_bytes = stats.map(|stats| stats.gradient_bytes);
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Context;
    use crate::study::Of;

    /// Costs of one variant with this number of workers, at the quick size.
    fn cost(variant: &str, workers: f64) -> Measured {
        let context = Context::unwatched("atp-scale", 5, 1);
        let form: Of<Iterations> = context.figure.form(true);
        let is_wanted = |cell: &Cell<'_>| {
            cell.number("workers") == workers && cell.choice("variant").unwrap().name == variant
        };
        let cells: Vec<_> = form.study.cells().unwrap().into_iter().filter(is_wanted).collect();
        let measure = |cell: &Cell<'_>, point: &Point<'_>| form.bench.measure(&(), cell, point);
        context.each(&cells, Cell::label, measure).unwrap().remove(0)
    }

    /// Bytes by formula. Acknowledgements come on top: 64 bytes for a packet of 1,538.
    #[test]
    fn traffic_is_what_formulas_say() {
        let acknowledged = 1.0 + 64.0 / 1_538.0;
        let server = cost("parameter server", 8.0);
        assert!((8.0..8.1 * acknowledged).contains(&server.number("busiest-host")), "{server:?}");
        // Each worker is reached over six links, and reaches the server over six.
        assert!((12.0..12.1 * acknowledged).contains(&server.number("all-links")), "{server:?}");
        let ring = cost("ring", 8.0);
        // Two tensors less one eighth of each, and as many acknowledgements.
        assert!((1.75..1.77 * acknowledged).contains(&ring.number("busiest-host")), "{ring:?}");
        assert!(server.number("server").is_nan() && ring.number("server").is_nan());
    }

    // spec: A-13 simulator
    #[test]
    fn a_thousand_workers_get_every_sum_and_the_server_one() {
        for levels in ["two levels", "three levels"] {
            let cost = cost(levels, 1_024.0);
            let counted = (cost.number("fewest-sums"), cost.number("server"));
            assert_eq!(counted, (2.0, 1.0), "{levels}: {cost:?}");
            // A tensor of 64 frames takes 7.9 µs at 100 Gbps, the way to the server and back 12 µs.
            assert!((19.9..25.0).contains(&cost.number("time")), "{levels}: {cost:?}");
        }
    }
}
