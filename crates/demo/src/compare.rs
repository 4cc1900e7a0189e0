//! The same all-reduce by every way, on the same network.

use thalweg_console::Failure;

use super::cluster::Cluster;
use super::message::{Exercise, Report, Span, Way, Work};
use super::outcome::Measured;
use super::plan::Plan;
use super::progress::Progress;
use super::training::{Together, parse, start_workers};
use super::troupe::Troupe;

/// Workers of the first tenant sum its gradient `rounds` times by each of the ways, in turn.
pub(super) fn compare(
    troupe: &mut Troupe,
    cluster: &Cluster<'_>,
    ways: &[Way],
    loss: f64,
    plan: &Plan,
    progress: &mut Progress,
) -> Result<Vec<Measured>, Failure> {
    let tenant = &plan.tenants[0];
    let (values, rounds) = (tenant.parameters, plan.rounds);
    let work = Work::Compare(Exercise { ways: ways.to_vec(), values, rounds });
    let workers = start_workers(troupe, cluster, "comparison", tenant.workers, &work)?;
    let mut tallies: Vec<Tally> =
        ways.iter().map(|&way| Tally::new(way, rounds, workers.len())).collect();
    let mut done = 0;
    while done < workers.len() {
        let Some((from, line)) = troupe.listen()? else { continue };
        let Some(rank) = workers.iter().position(|&worker| worker == from) else { continue };
        match parse(&line)? {
            Report::Summed { way, sum, is_exact } => {
                for tally in tallies.iter_mut().filter(|tally| tally.way == way) {
                    tally.take(rank, sum, is_exact);
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
    troupe.dismiss(&workers)?;
    let bits = tenant.gradient_bits();
    Ok(tallies.into_iter().map(|tally| tally.measured(loss, bits)).collect())
}

/// What the workers have told of one way.
struct Tally {
    way: Way,
    rounds: Vec<Together>,
    /// How many rounds each rank has told of.
    told: Vec<usize>,
    is_exact: bool,
}

impl Tally {
    fn new(way: Way, rounds: usize, workers: usize) -> Tally {
        let rounds = vec![Together::default(); rounds];
        Tally { way, rounds, told: vec![0; workers], is_exact: true }
    }

    fn take(&mut self, rank: usize, sum: Span, is_exact: bool) {
        if let Some(round) = self.rounds.get_mut(self.told[rank]) {
            round.add(sum);
        }
        self.told[rank] += 1;
        self.is_exact &= is_exact;
    }

    fn measured(self, loss: f64, bits: f64) -> Measured {
        let workers = self.told.len() as u32;
        let sums_us: Vec<f64> = self.rounds.iter().filter_map(|sum| sum.span_us(workers)).collect();
        let is_exact = self.is_exact && sums_us.len() == self.rounds.len();
        Measured { way: self.way, loss, sums_us, bits, is_exact }
    }
}
