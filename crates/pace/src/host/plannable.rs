//! The volume that a flow may plan.

use crate::ahead::{Ahead, HORIZON_MAX};
use crate::divide::Fraction;

/// The volume that a flow may plan from the current slot on, counted from what it has sent.
pub(super) struct Plannable {
    /// Bytes that it can send in the current slot, if the network lets it.
    pub(super) sendable: u64,
    /// Bytes that are left of the iteration.
    pub(super) remaining: u64,
    /// By slot, bytes that it can send until the slot ends. `None` if all that remains is planned, ready or not.
    pub(super) until: Option<[u64; HORIZON_MAX]>,
    /// Part that a flow plans beyond what it has left.
    pub(super) spare: Fraction,
}

impl Plannable {
    /// The whole volume, of which `sent` bytes leave without a plan.
    pub(super) fn total_after(&self, sent: u64) -> u64 {
        match &self.until {
            None => self.with_spare(self.remaining.saturating_sub(sent)),
            Some(until) => self.with_spare(until[HORIZON_MAX - 1].saturating_sub(sent)),
        }
    }

    // spec: C-17
    /// Moves what a plan has before it can be sent to later slots, as far as those are free. `sent` bytes leave
    /// beside the plan.
    pub(super) fn keep(&self, sent: u64, free: &Ahead, plan: &mut Ahead) {
        let Some(until) = &self.until else { return };
        let (mut planned, mut early) = (sent, 0);
        let slots = plan.volumes_mut().iter_mut().zip(free.volumes()).zip(until);
        for ((volume, free), until) in slots {
            let room = self.with_spare(*until).saturating_sub(planned);
            let wanted = *volume + early;
            *volume = wanted.min(room).min((*free).max(*volume));
            early = wanted - *volume;
            planned += *volume;
        }
    }

    fn with_spare(&self, volume: u64) -> u64 {
        volume.saturating_add(self.spare.of(volume))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ahead::Slot;

    fn plannable(until: &[u64]) -> Plannable {
        let last = until[until.len() - 1];
        let until = std::array::from_fn(|at| until.get(at).copied().unwrap_or(last));
        let spare = Fraction::new(0, 1);
        Plannable { sendable: until[0], remaining: 1_000, until: Some(until), spare }
    }

    // spec: C-17 machine
    #[test]
    fn bytes_are_planned_when_they_can_be_sent_and_not_before() {
        let kept = |until: &[u64], free: &[u64], plan: &[u64], sent| {
            let mut plan = Ahead::of(Slot(3), plan);
            plannable(until).keep(sent, &Ahead::of(Slot(3), free), &mut plan);
            plan.volumes().to_vec()
        };
        assert_eq!(kept(&[10, 20, 30], &[10, 10, 10], &[10, 10, 10], 0), [10, 10, 10]);
        assert_eq!(kept(&[0, 20, 20], &[9, 15, 9], &[9, 0, 9], 0), [0, 9, 9]);
        assert_eq!(kept(&[0, 5, 9], &[9, 9, 9], &[9, 0, 0], 0), [0, 5, 4]);
        assert_eq!(kept(&[0, 0, 9], &[9, 9, 2], &[9, 0, 0], 0), [0, 0, 2], "no room is left");
        assert_eq!(kept(&[8, 8, 8], &[0, 9, 9], &[0, 5, 5], 6), [0, 2, 0], "six leave anyway");
        assert_eq!(plannable(&[1, 7]).total_after(3), 4);
    }

    #[test]
    fn an_iteration_is_planned_as_a_whole() {
        let plannable = Plannable { until: None, ..plannable(&[0]) };
        let mut plan = Ahead::of(Slot(3), &[9, 9]);
        plannable.keep(0, &Ahead::of(Slot(3), &[0, 0]), &mut plan);
        assert_eq!((plan.volumes(), plannable.total_after(1)), (&[9, 9][..], 999));
    }
}
