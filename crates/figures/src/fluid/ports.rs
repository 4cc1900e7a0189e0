//! The cluster as one large switch: only servers' links count.

use super::fair::fill;
use super::world::World;

/// Bytes that servers' links have left in a slot.
pub(crate) struct Ports {
    left: Vec<u64>,
}

impl Ports {
    pub(crate) fn new(world: &World) -> Ports {
        Ports { left: world.cluster.capacity().to_vec() }
    }

    /// Time that these volumes of flows would take if nobody else were there, in slots.
    pub(crate) fn alone(world: &World, flows: impl Iterator<Item = (usize, u64)>) -> f64 {
        Ports::new(world).slots(world, &flows.collect::<Vec<_>>())
    }

    /// Lets flows send so that they end together, as soon as what is left allows; within `share` of the
    /// slot. Returns the part of the slot that they need for everything, if they get it.
    pub(crate) fn together(
        &mut self,
        world: &World,
        flows: &[(usize, u64)],
        share: f64,
        bytes: &mut [u64],
    ) -> Option<f64> {
        let slots = self.slots(world, flows);
        let part = if slots <= share { 1.0 } else { share / slots };
        for &(flow, volume) in flows {
            let given = if part >= 1.0 { volume } else { (volume as f64 * part) as u64 };
            bytes[flow] += given;
            for link in ends(world, flow) {
                self.left[link] = self.left[link].saturating_sub(given);
            }
        }
        (part >= 1.0).then_some(slots)
    }

    fn slots(&self, world: &World, flows: &[(usize, u64)]) -> f64 {
        let mut load: Vec<(usize, u64)> = Vec::new();
        for &(flow, volume) in flows {
            for link in ends(world, flow) {
                match load.iter_mut().find(|(known, _)| *known == link) {
                    Some((_, sum)) => *sum += volume,
                    None => load.push((link, volume)),
                }
            }
        }
        let slots = load.iter().filter(|(_, load)| *load > 0);
        slots.map(|(link, load)| *load as f64 / self.left[*link] as f64).fold(0.0, f64::max)
    }
}

/// Bytes that the network carries of rates that were decided without looking at it: flows share links fairly, and what
/// is left goes to flows that `may` have more.
pub(crate) fn carry(world: &World, bytes: &mut [u64], may: impl Fn(usize) -> bool) {
    let granted: Vec<u64> = bytes.to_vec();
    let mut left = world.cluster.capacity().to_vec();
    bytes.fill(0);
    let flows: Vec<usize> = world.active().collect();
    let wish = |flow: &usize| super::share::Wish {
        path: &world.flows[*flow].path,
        most: granted[*flow].min(world.flows[*flow].remaining()),
    };
    let wishes: Vec<_> = flows.iter().map(wish).collect();
    let shares = super::share::max_min(&mut left, &wishes);
    flows.iter().zip(shares).for_each(|(flow, share)| bytes[*flow] = share);
    fill(world, &mut left, bytes, may);
}

fn ends(world: &World, flow: usize) -> [usize; 2] {
    let flow = &world.flows[flow];
    [world.cluster.up(flow.from), world.cluster.down(flow.to)]
}
