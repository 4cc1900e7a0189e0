//! No leak survives a dead job.

use std::ops::Range;

use thalweg_core::{Span, Time};

use super::Switch;

/// Walks round the array, once in every stale age, a slice at a time. So whatever becomes stale is
/// found within twice that age.
// spec: A-09
#[derive(Debug)]
pub(super) struct Sweep {
    /// When the next step is due. Means nothing while no aggregator is taken.
    due: Time,
    step_after: Span,
    steps_a_round: u64,
    slots: u32,
    slots_a_step: u32,
    next_slot: u32,
}

impl Sweep {
    pub(super) fn new(aggregators: u32, steps: u32, stale_after: Span) -> Sweep {
        Sweep {
            due: Time::NEVER,
            step_after: Span::from_ps((stale_after.as_ps() / u64::from(steps)).max(1)),
            steps_a_round: u64::from(steps),
            slots: aggregators,
            slots_a_step: aggregators.div_ceil(steps),
            next_slot: 0,
        }
    }

    /// The first aggregator was taken.
    pub(super) fn start(&mut self, now: Time) {
        self.due = now + self.step_after;
    }

    pub(super) fn due(&self) -> Time {
        self.due
    }

    /// Number of steps that are due. A driver that comes late makes up for it, with one round at most.
    fn steps_due(&mut self, now: Time) -> u64 {
        if now < self.due {
            return 0;
        }
        let steps = now.since(self.due).as_ps() / self.step_after.as_ps() + 1;
        self.due += self.step_after * steps;
        steps.min(self.steps_a_round)
    }

    /// The slots of the next step.
    fn step(&mut self) -> Range<u32> {
        let from = self.next_slot;
        let to = from.saturating_add(self.slots_a_step).min(self.slots);
        self.next_slot = if to == self.slots { 0 } else { to };
        from..to
    }
}

impl Switch {
    /// Takes the steps that are due.
    pub(super) fn sweep_due(&mut self, now: Time) {
        for _ in 0..self.sweep.steps_due(now) {
            if self.array.occupied() == 0 {
                return;
            }
            for place in self.sweep.step() {
                if self.array.is_stale(now, place) {
                    self.stats.freed_by_sweep += 1;
                    self.free(place);
                }
            }
        }
    }
}
