//! Coflows with start-after dependencies: the job that needs the network least goes first.

use thalweg_pace::Relation;

use super::ports::{Ports, carry};
use super::world::{Policy, World};

/// A coflow is what servers aggregate, or what they broadcast, or a ring. A broadcast starts after the
/// aggregation has ended. A ring's members send a chunk after the chunk before has arrived, which is
/// what the ring is anyhow.
///
/// Coflows are served by what is left of their job's iteration at its tightest server, the shortest
/// first, and flows of a coflow end together. What is left over goes to everybody who may send.
// spec: C-14
pub(crate) struct Mcs;

impl Policy for Mcs {
    fn allocate(&mut self, world: &World, bytes: &mut [u64]) {
        let mut order: Vec<(f64, usize)> =
            world.sending.iter().map(|job| (remaining_slots(world, *job), *job)).collect();
        order.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let mut ports = Ports::new(world);
        let mut is_open = vec![false; world.flows.len()];
        for (_, job) in order {
            let mut share = 1.0;
            for (at, stage) in stages(world, job).into_iter().enumerate() {
                // Only what may send from the beginning of the slot can use what is left of it.
                stage.iter().for_each(|(flow, _)| is_open[*flow] = at == 0);
                let Some(used) = ports.together(world, &stage, share, bytes) else { break };
                share -= used;
            }
        }
        carry(world, bytes, |flow| is_open[flow]);
    }
}

/// Slots that a job needs for the rest of this iteration, if nobody else were there.
pub(super) fn remaining_slots(world: &World, job: usize) -> f64 {
    stages(world, job).iter().map(|stage| Ports::alone(world, stage.iter().copied())).sum()
}

/// The coflows that are left, in their order.
fn stages(world: &World, job: usize) -> Vec<Vec<(usize, u64)>> {
    let of = |is_last: bool| -> Vec<(usize, u64)> {
        let flows = world.jobs[job].flows.clone();
        let of_stage = flows.filter(|flow| {
            (world.flows[*flow].relation == Relation::Broadcast) == is_last
                && world.flows[*flow].remaining() > 0
        });
        of_stage.map(|flow| (flow, world.flows[flow].remaining())).collect()
    };
    [of(false), of(true)].into_iter().filter(|stage| !stage.is_empty()).collect()
}
