//! Max-min fair sharing, as ideal congestion control would have it.

use super::share::{Wish, max_min};
use super::world::{Policy, World};

/// Every flow has its max-min fair share.
pub(crate) struct Fair;

impl Policy for Fair {
    fn allocate(&mut self, world: &World, bytes: &mut [u64]) {
        let mut left = world.cluster.capacity().to_vec();
        fill(world, &mut left, bytes, |_| true);
    }
}

/// Shares what links have left among active flows that `may` have more, on top of what they have. What
/// dependencies do not allow is given back and shared once more.
pub(crate) fn fill(
    world: &World,
    left: &mut [u64],
    bytes: &mut [u64],
    may: impl Fn(usize) -> bool,
) {
    for _ in 0..2 {
        let flows: Vec<usize> = world.active().filter(|flow| may(*flow)).collect();
        let wish = |flow: &usize| Wish {
            path: &world.flows[*flow].path,
            most: world.flows[*flow].remaining() - bytes[*flow],
        };
        let wishes: Vec<Wish<'_>> = flows.iter().map(wish).collect();
        let shares = max_min(left, &wishes);
        for (flow, share) in flows.iter().zip(shares) {
            bytes[*flow] += share;
        }
        give_back(world, left, bytes);
    }
}

/// Returns to links what flows cannot use because of those they depend on.
fn give_back(world: &World, left: &mut [u64], bytes: &mut [u64]) {
    for &job in &world.sending {
        let before: Vec<u64> = bytes[world.jobs[job].flows.clone()].to_vec();
        world.clip(job, bytes);
        for (flow, before) in world.jobs[job].flows.clone().zip(before) {
            let excess = before - bytes[flow];
            world.flows[flow].path.iter().for_each(|link| left[*link] += excess);
        }
    }
}
