//! Settings that all schedulers and tables of a cluster must share.

use thalweg_core::{Rate, Span, Time};
use thiserror::Error;

use crate::ahead::{HORIZON_MAX, Slot};
use crate::divide::Fraction;

/// The settings of the pacing plane. All hosts and tables of a cluster have the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Length of a slot. The paper found 60 ms best: shorter ones pass before feedback has spread,
    /// in longer ones rates stay wrong for longer.
    pub slot: Span,
    /// K: how many slots are planned ahead, the current one included.
    pub horizon_slots: usize,
    /// Price of a load, in thousandths: with 1,000 a full slot of one's own volume in a slot that
    /// the path's narrowest link already has full costs as much as to finish one slot later.
    pub price_per_mille: u32,
    /// Excess of a flow's plan over the bytes it has left, in thousandths. Slots carry a little less than was
    /// planned, and a rest that found no place would wait behind all that others have planned; what is not
    /// needed is given back.
    pub spare_per_mille: u32,
    /// Effect of a plan on packets.
    pub enforce: Enforce,
    /// Bytes that a plan covers. The published rule plans an iteration as soon as its first bytes are ready.
    pub covers: Covers,
    /// True if a flow that used less than half of its plan for a slot, and did not rest, gives up half of what it
    /// has in the next one until its host decides again. As published it keeps all.
    pub reclaims_unused: bool,
    /// True if the bandwidth for scheduled flows is estimated from what they got. Otherwise it is the link's whole
    /// capacity: to share it with traffic that nobody schedules, which comes and goes within
    /// slots, is left to the flows' congestion control.
    pub estimates_links: bool,
    /// Slots after which a table forgets a flow that has not been planned again. A sender plans in
    /// every slot; two messages in a row may get lost.
    pub stale_after_slots: u64,
    /// A host decides this long after a slot began, or later: the first packets' answers must be back.
    pub decide_after: Span,
    /// Decisions of hosts are spread over this much time.
    pub decide_spread: Span,
    /// Packets of a flow that leave at line rate when a slot begins, to fetch the feedback.
    pub probe_packets: u32,
}

/// Effect of a plan on packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Enforce {
    /// It limits rates, as published: what was not granted waits.
    Rate,
    /// It is a budget of urgent bytes: what was not granted leaves in the last class. Jobs are in one order at all hosts
    /// and links: by what they have left, and of equals the one of the lower name first.
    // spec: C-16
    Class,
}

/// Bytes that a plan covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Covers {
    /// All that is left of an iteration, as published.
    Iteration,
    /// Bytes that are ready, and those that became ready as early in the iteration before: a slot that is reserved
    /// for bytes that do not exist is lost.
    Ready,
}

impl Default for Settings {
    // spec: C-07
    fn default() -> Settings {
        Settings {
            slot: Span::from_ms(60),
            horizon_slots: 10,
            price_per_mille: 1_000,
            spare_per_mille: 62,
            enforce: Enforce::Rate,
            covers: Covers::Iteration,
            reclaims_unused: false,
            estimates_links: true,
            stale_after_slots: 3,
            decide_after: Span::from_ms(1),
            decide_spread: Span::from_ms(5),
            probe_packets: 3,
        }
    }
}

/// The invalid setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SettingsError {
    /// Nothing could be planned, or more than fits a schedule.
    #[error("{0} slots cannot be planned ahead: give 1 to {HORIZON_MAX}")]
    Horizon(usize),
    /// Hosts would decide when the slot is over.
    #[error("decisions end {decided} after the start of slots of {slot}: give longer slots")]
    SlotTooShort {
        /// The length of a slot.
        slot: Span,
        /// When the last host has decided.
        decided: Span,
    },
    /// Tables would forget what was just planned.
    #[error("tables that forget after 0 slots hold nothing: give at least 1")]
    NoMemory,
}

impl Settings {
    /// Checks that the settings can be used.
    pub fn check(&self) -> Result<(), SettingsError> {
        if !(1..=HORIZON_MAX).contains(&self.horizon_slots) {
            return Err(SettingsError::Horizon(self.horizon_slots));
        }
        let decided = self.decide_after + self.decide_spread;
        if decided >= self.slot {
            return Err(SettingsError::SlotTooShort { slot: self.slot, decided });
        }
        if self.stale_after_slots == 0 { Err(SettingsError::NoMemory) } else { Ok(()) }
    }

    /// Excess of a flow's plan over the bytes it has left.
    pub(crate) fn spare(&self) -> Fraction {
        Fraction::new(self.spare_per_mille.into(), 1_000)
    }

    /// Makes bits a second of bytes a slot.
    pub(crate) fn bps(&self) -> Fraction {
        Fraction::new(8_000_000_000_000, self.slot.as_ps())
    }

    /// The slot that a moment lies in.
    pub fn slot_at(&self, now: Time) -> Slot {
        Slot(now.as_ps() / self.slot.as_ps().max(1))
    }

    /// When a slot begins.
    pub fn start_of(&self, slot: Slot) -> Time {
        Time::ZERO + self.slot * slot.0
    }

    /// Bytes that a link of that rate carries in a slot.
    pub fn bytes_a_slot(&self, rate: Rate) -> u64 {
        rate.bytes_in(self.slot).as_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: C-07 machine
    #[test]
    fn the_defaults_are_the_papers_and_both_can_be_set() {
        let defaults = Settings::default();
        assert_eq!((defaults.slot, defaults.horizon_slots), (Span::from_ms(60), 10));
        assert_eq!(defaults.check(), Ok(()));
        let other = Settings { slot: Span::from_ms(20), horizon_slots: 4, ..defaults };
        assert_eq!(other.check(), Ok(()));
        assert_eq!(other.slot_at(Time::ZERO + Span::from_ms(59)), Slot(2));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = Settings::default();
        let refused = |settings: Settings| settings.check().is_err();
        assert!(refused(Settings { horizon_slots: 0, ..good }));
        assert!(refused(Settings { horizon_slots: HORIZON_MAX + 1, ..good }));
        assert!(refused(Settings { slot: Span::from_ms(6), ..good }));
        assert!(refused(Settings { slot: Span::ZERO, ..good }));
        assert!(refused(Settings { stale_after_slots: 0, ..good }));
    }

    #[test]
    fn rates_and_volumes_agree() {
        let settings = Settings::default();
        let volume = settings.bytes_a_slot(Rate::from_gbps(10));
        assert_eq!(volume, 75_000_000);
        assert_eq!(settings.bps().of(volume), 10_000_000_000);
        assert_eq!(settings.bps().of(0), 0);
    }
}
