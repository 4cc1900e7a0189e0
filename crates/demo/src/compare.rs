//! The same all-reduce by every way, on the same network.

use thalweg_console::Failure;

use super::cluster::Cluster;
use super::group::Group;
use super::message::{Exercise, Report, Span, Way, Work};
use super::outcome::Measured;
use super::plan::Plan;
use super::progress::Progress;
use super::training::{Together, parse, start_workers};

/// Workers of the first tenant sum its gradient `rounds` times by each of the ways, in turn.
pub(super) fn compare(
    group: &mut Group,
    cluster: &Cluster<'_>,
    ways: &[Way],
    loss: f64,
    plan: &Plan,
    progress: &mut Progress,
) -> Result<Vec<Measured>, Failure> {
    let tenant = &plan.tenants[0];
    let (values, rounds) = (tenant.parameters, plan.rounds);
    let work = Work::Compare(Exercise { ways: ways.to_vec(), values, rounds });
    let workers = start_workers(group, cluster, "comparison", tenant.workers, &work)?;
    let mut all_results: Vec<Results> =
        ways.iter().map(|&way| Results::new(way, rounds, workers.len())).collect();
    let mut done = 0;
    while done < workers.len() {
        let Some((from, line)) = group.listen()? else { continue };
        let Some(rank) = workers.iter().position(|&worker| worker == from) else { continue };
        match parse(&line)? {
            Report::Summed { way, sum, is_exact } => {
                for results in all_results.iter_mut().filter(|results| results.way == way) {
                    results.take(rank, sum, is_exact);
                }
                if rank == 0 {
                    progress.round();
                }
            }
            Report::Compared => done += 1,
            Report::Note(note) => progress.say(&format!("comparison: {note}")),
            _ => {}
        }
    }
    group.dismiss(&workers)?;
    let bits = tenant.gradient_bits();
    Ok(all_results.into_iter().map(|results| results.measured(loss, bits)).collect())
}

/// Reports of the workers about one collective.
struct Results {
    way: Way,
    rounds: Vec<Together>,
    /// Number of rounds that each rank has reported.
    reported: Vec<usize>,
    is_exact: bool,
}

impl Results {
    fn new(way: Way, rounds: usize, workers: usize) -> Results {
        let rounds = vec![Together::default(); rounds];
        Results { way, rounds, reported: vec![0; workers], is_exact: true }
    }

    fn take(&mut self, rank: usize, sum: Span, is_exact: bool) {
        if let Some(round) = self.rounds.get_mut(self.reported[rank]) {
            round.add(sum);
        }
        self.reported[rank] += 1;
        self.is_exact &= is_exact;
    }

    fn measured(self, loss: f64, bits: f64) -> Measured {
        let workers = self.reported.len() as u32;
        let sums_us: Vec<f64> = self.rounds.iter().filter_map(|sum| sum.span_us(workers)).collect();
        let is_exact = self.is_exact && sums_us.len() == self.rounds.len();
        Measured { way: self.way, loss, sums_us, bits, is_exact }
    }
}
