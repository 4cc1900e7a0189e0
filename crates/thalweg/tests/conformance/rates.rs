//! Time of sums with a loss bound beside exact ones, in a lab whose links lose packets.

use std::time::Instant;

use thalweg::{Collective, Policy, Reduce, ReduceOptions, Reliability, Session, SessionConfig};
use thalweg_core::Rate;
use thalweg_lab::Spec;
use thalweg_lab::testing::build_or_skip;

use crate::cluster::{Cluster, Ground};

const HOSTS: u32 = 8;
const LINK_MBPS: u32 = 100;

/// Values of a sum: 4 MiB.
const VALUES: usize = 1 << 20;

/// Sums of a run that are measured, after one that is not.
const SUMS: usize = 5;

/// Bound of sums that may lack something.
const BOUND: f64 = 0.1;

/// A sum of all ranks, of the slowest rank, in milliseconds: all of a run.
fn times(collective: Collective, bound: f64, loss: f64) -> Option<Vec<f64>> {
    let spec = Spec {
        hosts: HOSTS,
        rate: Rate::from_mbps(LINK_MBPS.into()),
        loss,
        per_packet: true,
        servers: 1,
        ..Spec::default()
    };
    let cluster = Cluster::start(Ground::Lab(build_or_skip(&spec)?), 0.0);
    let reliability = Reliability::bounded(bound).expect("a share");
    let policy = Policy::default().collective(collective).reliability(reliability);
    let change = |config: &mut SessionConfig| {
        (config.link_rate_mbps, config.threads) = (Some(LINK_MBPS), Some(1));
    };
    let sums = |session: &Session| (0..=SUMS).map(|_| sum(session, policy)).collect::<Vec<_>>();
    let (_, by_rank) = cluster.run(HOSTS, change, sums, |cluster| cluster);
    let slowest = |sum: usize| by_rank.iter().map(|times| times[sum]).fold(0.0, f64::max);
    Some((1..=SUMS).map(slowest).collect())
}

fn sum(session: &Session, policy: Policy) -> f64 {
    let values: Vec<f32> = (0..VALUES).map(|at| (at % 1_000) as f32).collect();
    session.barrier().wait().expect("it ends");
    let started = Instant::now();
    let options = ReduceOptions::new(Reduce::Sum).policy(policy);
    session.all_reduce(values, options).wait().expect("it ends");
    1e3 * started.elapsed().as_secs_f64()
}

/// Sums of 4 MiB over 8 hosts with links of 100 Mbps that carry packets one by one. Prints all times, in runs that alternate.
#[test]
#[ignore = "takes minutes, and a machine that does nothing else: run it with --nocapture"]
fn sums_with_a_bound_beside_exact_ones() {
    for collective in [Collective::Server, Collective::Ring, Collective::Aggregate] {
        for loss in [0.01, 0.03] {
            for bound in [0.0, BOUND, 0.0, BOUND] {
                let Some(mut times) = times(collective, bound, loss) else { return };
                let all: Vec<String> = times.iter().map(|time| format!("{time:.0}")).collect();
                times.sort_by(f64::total_cmp);
                let share = VALUES as f64 * 32.0 / (times[SUMS / 2] * 1e3 * f64::from(LINK_MBPS));
                println!(
                    "{collective:?}, {loss} lost, bound {bound}: {share:.3} of the line rate, ms {}",
                    all.join(" ")
                );
            }
        }
    }
}
