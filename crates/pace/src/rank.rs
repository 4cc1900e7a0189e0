//! Order of jobs by what they have left.

use crate::load::FlowId;

/// The least urgent class of a job in its turn.
// spec: C-16
pub const LAST_TURN_CLASS: u8 = 6;

/// The class that is never without a part of a link.
// spec: C-16
pub const LAST_CLASS: u8 = 7;

/// Rank of a job: where a link has not enough for all, the plans of lower ranks stand.
///
/// A job's rank is what it has left to send, in quarters of an octave: who has little left is soon out of
/// the way of everybody. Once its turn has begun an eighth of it counts, so that it keeps its turn unless
/// somebody has far less. To stop and go on costs slots, as all hosts of a job have to do it together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rank(pub u8);

impl Rank {
    /// Behind everybody else.
    pub const LAST: Rank = Rank(u8::MAX);

    /// Rank of a job that has this number of bytes left.
    pub fn of_left(bytes: u64) -> Rank {
        let Some(octave) = bytes.checked_ilog2() else { return Rank(0) };
        let quarter = if octave < 2 { 0 } else { (bytes >> (octave - 2)) & 3 };
        Rank((octave * 4) as u8 + quarter as u8)
    }

    /// Class of a job in its turn: one for each octave of slots that it has left, from 1, the most urgent, to 6.
    // spec: C-16
    pub fn class(self, slot_bytes: u64) -> u8 {
        let halves = [1, 2, 4, 8, 16].map(|halves| slot_bytes.saturating_mul(halves) / 2);
        1 + halves.iter().filter(|&&most| self >= Rank::of_left(most)).count() as u8
    }

    /// The rank as a host repeats it that received it: a quarter of an octave less. So a rank becomes known to all
    /// hosts of a job, and is forgotten when it holds nowhere any more, though all repeat what they receive.
    // spec: C-16
    #[must_use]
    pub fn repeated(self) -> Rank {
        Rank(self.0.saturating_sub(1))
    }

    /// Rank of a job that has begun to send and has this number of bytes left.
    pub fn in_turn(bytes: u64) -> Rank {
        Rank::of_left(bytes / 8)
    }
}

/// A flow and its rank. Flows that are named alone come last, and so are equals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ranked {
    /// Name of the flow.
    pub flow: FlowId,
    /// Rank of its job.
    pub rank: Rank,
}

impl From<FlowId> for Ranked {
    fn from(flow: FlowId) -> Ranked {
        Ranked { flow, rank: Rank::LAST }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_rise_with_what_is_left() {
        let ranks: Vec<u8> = [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 1 << 40, u64::MAX]
            .map(|left| Rank::of_left(left).0)
            .into();
        assert_eq!(ranks, [0, 0, 4, 8, 9, 10, 11, 12, 12, 13, 160, 255]);
        assert_eq!(Rank::of_left(u64::MAX), Rank::LAST);
        assert!((0..10_000).is_sorted_by_key(Rank::of_left));
    }

    // spec: C-16 machine
    #[test]
    fn a_rank_that_is_only_repeated_fades() {
        let (much, little) = (Rank::of_left(1 << 30), Rank::of_left(1 << 20));
        // Two hosts, of which the one that had much left has little now.
        let (mut here, mut there) = (little, much);
        for _ in 0..20 {
            (here, there) = (little.max(there.repeated()), little.max(here.repeated()));
        }
        assert!(here.max(there) > little, "ten octaves take forty hops");
        for _ in 0..20 {
            (here, there) = (little.max(there.repeated()), little.max(here.repeated()));
        }
        assert_eq!((here, there), (little, little));
        assert_eq!(Rank(0).repeated(), Rank(0));
    }

    // spec: C-16 machine
    #[test]
    fn a_class_is_an_octave_of_slots() {
        let slot = 1 << 20;
        let class = |quarters: u64| Rank::of_left(slot * quarters / 4).class(slot);
        let classes = [0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 1_000].map(class);
        assert_eq!(classes, [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]);
        assert_eq!(Rank::LAST.class(slot), 6);
        assert!((0..10_000).is_sorted_by_key(|left| Rank::of_left(left * 999).class(75_000)));
    }
}
