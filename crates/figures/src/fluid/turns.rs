//! Turns without gates: the job with the least left goes first, and nobody waits while a link is idle.

use thalweg_pace::Rank;

use super::ports::Ports;
use super::share::{Wish, max_min};
use super::world::{Policy, World};

/// Jobs in the order of the ranks of the pacing plane, of equals the earlier one first. Each takes what those before it have
/// left, all of its flows at once: broadcasts begin with the first sums.
///
/// It is what classes would give if messages took no time and there was a class for each rank.
// spec: C-16
pub(crate) struct Turns;

impl Policy for Turns {
    fn allocate(&mut self, world: &World, bytes: &mut [u64]) {
        let mut order: Vec<(Rank, usize)> =
            world.sending.iter().map(|job| (rank(world, *job), *job)).collect();
        order.sort_unstable();
        let mut left = world.cluster.capacity().to_vec();
        for (_, job) in order {
            take(world, job, &mut left, bytes);
        }
    }
}

/// The rank of what a job has left at the server where it needs most time for it.
fn rank(world: &World, job: usize) -> Rank {
    let flows = world.jobs[job].flows.clone().map(|flow| (flow, world.flows[flow].remaining()));
    let slots = Ports::alone(world, flows);
    let slot_bytes = world.cluster.capacity()[world.cluster.up(0)];
    Rank::of_left((slots * slot_bytes as f64) as u64)
}

/// Gives a job what links have left. What dependencies do not allow is shared once more among its flows, and goes to others
/// then.
fn take(world: &World, job: usize, left: &mut [u64], bytes: &mut [u64]) {
    let flows = world.jobs[job].flows.clone();
    for _ in 0..2 {
        let wish = |flow: usize| Wish {
            path: &world.flows[flow].path,
            most: world.flows[flow].remaining() - bytes[flow],
        };
        let wishes: Vec<Wish<'_>> = flows.clone().map(wish).collect();
        let shares = max_min(left, &wishes);
        let given: Vec<u64> =
            flows.clone().zip(shares).map(|(flow, share)| bytes[flow] + share).collect();
        flows.clone().zip(&given).for_each(|(flow, given)| bytes[flow] = *given);
        world.clip(job, bytes);
        for (flow, given) in flows.clone().zip(given) {
            let excess = given - bytes[flow];
            world.flows[flow].path.iter().for_each(|link| left[*link] += excess);
        }
    }
}
