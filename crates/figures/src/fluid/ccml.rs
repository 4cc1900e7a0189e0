//! Jobs that are interleaved by their profiles.

use super::ports::{Ports, carry};
use super::world::{Policy, State, World};

/// Slots ahead over which profiles are compared.
const LOOK_AHEAD_SLOTS: u64 = 200;

/// Hosts know from profiles how long each job computes and sends. A new job is turned: it begins later, so that its
/// phases of sending meet those of the jobs on its servers least. Where phases meet nevertheless, hosts are unfair: who
/// began to send first goes first, so that phases move apart.
///
/// Hosts see their own links, not the network between them.
// spec: C-14
pub(crate) struct Ccml;

impl Policy for Ccml {
    fn admit(&mut self, world: &World, job: usize) -> u64 {
        let own = Profile::of(world, job);
        let neighbours: Vec<Profile> = (0..world.jobs.len())
            .filter(|other| *other != job && shares_servers(world, job, *other))
            .map(|other| Profile::of(world, other))
            .collect();
        let met = |wait: &u64| -> u64 {
            let slots = 0..LOOK_AHEAD_SLOTS;
            let sending = slots.filter(|slot| *slot >= *wait && own.sends_at(slot - wait));
            let count = |slot| neighbours.iter().filter(|other| other.sends_at(slot)).count();
            sending.map(|slot| count(slot) as u64).sum()
        };
        let turns = 0..own.period_slots().min(LOOK_AHEAD_SLOTS / 4);
        if neighbours.is_empty() { 0 } else { turns.min_by_key(met).unwrap_or(0) }
    }

    fn allocate(&mut self, world: &World, bytes: &mut [u64]) {
        let since = |job: &usize| match world.jobs[*job].state {
            State::Sending { since } => since,
            _ => u64::MAX,
        };
        let mut order = world.sending.clone();
        order.sort_by_key(|job| (since(job), *job));
        let mut ports = Ports::new(world);
        for job in order {
            let flows = world.jobs[job].flows.clone();
            let left = flows.map(|flow| (flow, world.flows[flow].remaining()));
            let left: Vec<(usize, u64)> = left.filter(|(_, left)| *left > 0).collect();
            ports.together(world, &left, 1.0, bytes);
        }
        carry(world, bytes, |_| true);
    }
}

fn shares_servers(world: &World, job: usize, other: usize) -> bool {
    let other = &world.jobs[other];
    let is_there = matches!(other.state, State::Computing { .. } | State::Sending { .. });
    is_there && world.jobs[job].servers.iter().any(|server| other.servers.contains(server))
}

/// When a job sends if it is alone, seen from now.
struct Profile {
    /// Until it sends first; nothing while it is sending.
    wait: u64,
    /// Slots that are left of the phase it is in, then.
    first: u64,
    compute: u64,
    send: u64,
}

impl Profile {
    fn of(world: &World, at: usize) -> Profile {
        let job = &world.jobs[at];
        let volumes = job.flows.clone().map(|flow| (flow, world.flows[flow].volume));
        let send = Ports::alone(world, volumes).ceil().max(1.0) as u64;
        let compute = job.spec.compute_slots.ceil() as u64;
        let (wait, first) = match job.state {
            State::Computing { until } => {
                ((until - world.slot as f64).max(0.0).ceil() as u64, send)
            }
            State::Sending { since } => (0, send.saturating_sub(world.slot - since).max(1)),
            State::Waiting | State::Ended => (compute, send),
        };
        Profile { wait, first, compute, send }
    }

    fn period_slots(&self) -> u64 {
        self.compute + self.send
    }

    fn sends_at(&self, slot: u64) -> bool {
        if slot < self.wait {
            return false;
        }
        let since = slot - self.wait;
        since < self.first || (since - self.first) % self.period_slots() >= self.compute
    }
}
