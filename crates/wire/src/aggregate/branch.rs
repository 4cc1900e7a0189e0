//! A worker's way up the tree of switches.

use std::fmt;

use thiserror::Error;

/// Number of levels of switches that a header can name.
pub const LEVELS: usize = 4;

/// The largest fan-in of a switch: one bit of a bitmap each.
pub const FAN_IN_MAX: u8 = 32;

/// Length of a branch in a header.
pub const BRANCH_BYTES: usize = 6;

/// Bits of a level: the fan-in in the lower six, the place in the upper five.
const LEVEL_BITS: u32 = 11;
const FAN_IN_BITS: u32 = 6;
/// A one in each level.
const ONES: u64 = 1 | 1 << LEVEL_BITS | 1 << (2 * LEVEL_BITS) | 1 << (3 * LEVEL_BITS);
const FAN_IN_MASK: u64 = (1 << FAN_IN_BITS) - 1;
const PLACE_MASK: u64 = (1 << (LEVEL_BITS - FAN_IN_BITS)) - 1;
/// The fan-ins of all levels.
const FAN_INS: u64 = FAN_IN_MASK * ONES;

/// Switches that a contribution passes, from the worker to the server: the number of children that each waits
/// for, and which of them this one is.
///
/// Level 0 is the switch of the worker's rack; the last level used is that of the server's rack. A
/// worker in the server's rack enters there: the levels below it are unused. Which levels are
/// used shows in their fan-ins.
///
/// It is held as it travels, 11 bits a level, level 0 in the lowest: every packet of aggregation has one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Branch(u64);

/// The part of a branch that all children of a switch share, as it travels.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SharedBranch([u8; BRANCH_BYTES]);

/// Reason why fan-ins and places do not describe a branch. The job's set-up is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BranchError {
    /// No switch to pass, not even a virtual one, leaves a worker without a place.
    #[error("all fan-ins are zero: at least one level must be used")]
    NoLevels,
    /// A used level above an unused one above a used one.
    #[error("level {0} is unused between used ones: the levels in use must be adjacent")]
    Gap(u8),
    /// More children than a bitmap has bits.
    #[error("the fan-in of level {level} is {fan_in}, at most {FAN_IN_MAX} fit a bitmap")]
    FanIn {
        /// The level.
        level: u8,
        /// Fan-in of the level.
        fan_in: u8,
    },
    /// Bits behind the last level.
    #[error("bits behind the last level of the branch are set: they must be zero")]
    Reserved,
    /// A child that the fan-in does not count.
    #[error("place {place} of level {level} is not below the fan-in (unused levels have place 0)")]
    Place {
        /// The level.
        level: u8,
        /// The place there.
        place: u8,
    },
}

impl Branch {
    /// The branch with these fan-ins, 0 where a level is unused, and the place among the children of
    /// each level's switch, counted from 0.
    #[inline]
    pub fn new(fan_ins: [u8; LEVELS], places: [u8; LEVELS]) -> Result<Branch, BranchError> {
        let is_used = |fan_in: &u8| *fan_in > 0;
        let (Some(entry), Some(last)) =
            (fan_ins.iter().position(is_used), fan_ins.iter().rposition(is_used))
        else {
            return Err(BranchError::NoLevels);
        };
        let mut word = 0;
        for (at, (fan_in, place)) in fan_ins.into_iter().zip(places).enumerate() {
            let level = at as u8;
            if fan_in > FAN_IN_MAX {
                return Err(BranchError::FanIn { level, fan_in });
            }
            if fan_in == 0 && (entry..last).contains(&at) {
                return Err(BranchError::Gap(level));
            }
            if place >= fan_in.max(1) {
                return Err(BranchError::Place { level, place });
            }
            let entry = u64::from(fan_in) | u64::from(place) << FAN_IN_BITS;
            word |= entry << (LEVEL_BITS * u32::from(level));
        }
        Ok(Branch(word))
    }

    /// The branch as it travels.
    #[inline]
    pub fn pack(&self) -> [u8; BRANCH_BYTES] {
        from_word(self.0)
    }

    /// Reads a branch as it travels.
    #[inline]
    pub fn unpack(packed: [u8; BRANCH_BYTES]) -> Result<Branch, BranchError> {
        let branch = Branch(to_word(packed));
        if branch.is_sound() { Ok(branch) } else { Err(branch.fault()) }
    }

    /// Returns whether the bits describe a branch. All levels are looked at together: a fan-in has 6 bits of the 11 of its
    /// level and a place has 5, so that no sum or difference reaches the next level.
    #[inline]
    const fn is_sound(&self) -> bool {
        const TOPS: u64 = ONES << (LEVEL_BITS - 1);
        const BELOW_TOP: u64 = (1 << (LEVEL_BITS - 1)) - 1;
        let fan_ins = self.0 & FAN_INS;
        let places = (self.0 >> FAN_IN_BITS) & (PLACE_MASK * ONES);
        let used = ((fan_ins + BELOW_TOP * ONES) & TOPS) >> (LEVEL_BITS - 1);
        let used_bits = used * ((1 << LEVEL_BITS) - 1);
        let lowest = used_bits & used_bits.wrapping_neg();
        let is_adjacent = (used_bits + lowest) & used_bits == 0;
        let is_small = (fan_ins + (BELOW_TOP - FAN_IN_MAX as u64) * ONES) & TOPS == 0;
        // The last place of a level is one less than its fan-in, and 0 where the level is unused.
        let is_counted = (((fan_ins - used) | TOPS) - places) & TOPS == TOPS;
        let has_no_more = self.0 >> (LEVEL_BITS * LEVELS as u32) == 0;
        used != 0 && is_adjacent && is_small && is_counted && has_no_more
    }

    /// The fault of bits that describe no branch.
    #[cold]
    fn fault(&self) -> BranchError {
        if self.0 >> (LEVEL_BITS * LEVELS as u32) != 0 {
            return BranchError::Reserved;
        }
        Branch::new(self.fan_ins(), self.places()).err().unwrap_or(BranchError::Reserved)
    }

    /// The level of the first switch on this branch.
    #[inline]
    pub fn entry(&self) -> u8 {
        ((self.0 & FAN_INS).trailing_zeros() / LEVEL_BITS) as u8
    }

    /// The level above the last switch: that of the server.
    #[inline]
    pub fn end(&self) -> u8 {
        let used_bits = u64::BITS - (self.0 & FAN_INS).leading_zeros();
        used_bits.div_ceil(LEVEL_BITS) as u8
    }

    /// Returns whether there is a switch at a level.
    #[inline]
    pub fn has(&self, level: u8) -> bool {
        self.fan_in(level) != 0
    }

    /// Returns whether a level is that of the first switch: [`Branch::entry`].
    #[inline]
    pub fn enters_at(&self, level: u8) -> bool {
        self.has(level) && (level == 0 || !self.has(level - 1))
    }

    /// Returns whether a level is that of the server: [`Branch::end`].
    #[inline]
    pub fn ends_at(&self, level: u8) -> bool {
        !self.has(level) && level > 0 && self.has(level - 1)
    }

    /// Number of children that the switch of a level waits for; 0 where the level is unused.
    #[inline]
    pub fn fan_in(&self, level: u8) -> u8 {
        (self.at_and_above(level) & FAN_IN_MASK) as u8
    }

    /// The place among the children of a level's switch; 0 where the level is unused.
    #[inline]
    fn place(&self, level: u8) -> u8 {
        (self.at_and_above(level) >> FAN_IN_BITS & PLACE_MASK) as u8
    }

    /// The bits of a level and those above it.
    #[inline]
    fn at_and_above(&self, level: u8) -> u64 {
        self.0.checked_shr(LEVEL_BITS * u32::from(level)).unwrap_or(0)
    }

    /// The bit of this contribution in the bitmap of a level; 0 where the level is unused.
    #[inline]
    pub fn bit(&self, level: u8) -> u32 {
        if self.has(level) { 1 << self.place(level) } else { 0 }
    }

    /// The bitmap of a level when all children have contributed; 0 where the level is unused.
    #[inline]
    pub fn full(&self, level: u8) -> u32 {
        // The shift stays in range: 64 bits hold one bit more than the largest fan-in needs.
        ((1_u64 << self.fan_in(level)) - 1) as u32
    }

    /// All fan-ins, from level 0.
    #[inline]
    pub fn fan_ins(&self) -> [u8; LEVELS] {
        [0, 1, 2, 3].map(|level| self.fan_in(level))
    }

    /// All places, from level 0.
    #[inline]
    pub fn places(&self) -> [u8; LEVELS] {
        [0, 1, 2, 3].map(|level| self.place(level))
    }

    /// The places above a level: what tells the switches of that level apart.
    #[inline]
    pub fn places_above(&self, level: u8) -> [u8; LEVELS] {
        // Most branches have nothing there.
        if self.at_and_above(level.saturating_add(1)) == 0 {
            return [0; LEVELS];
        }
        [0, 1, 2, 3].map(|at| if at > level { self.place(at) } else { 0 })
    }

    /// The part that all children of the switch at a level share: its fan-in, and everything above.
    #[inline]
    pub fn shared(&self, level: u8) -> SharedBranch {
        let shift = LEVEL_BITS * u32::from(level).min(LEVELS as u32 - 1);
        let below = (1_u64 << shift) - 1;
        SharedBranch(from_word(self.0 & !below & !(PLACE_MASK << (shift + FAN_IN_BITS))))
    }
}

impl fmt::Debug for Branch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fan_ins, places) = (self.fan_ins(), self.places());
        f.debug_struct("Branch").field("fan_ins", &fan_ins).field("places", &places).finish()
    }
}

impl SharedBranch {
    /// Nothing in common: no level is used.
    pub const NONE: SharedBranch = SharedBranch([0; BRANCH_BYTES]);

    /// The branch of a child whose place is 0 at the level and that enters there.
    #[inline]
    pub fn branch(&self) -> Branch {
        Branch(to_word(self.0))
    }
}

#[inline]
const fn to_word(packed: [u8; BRANCH_BYTES]) -> u64 {
    let [a, b, c, d, e, f] = packed;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

#[inline]
const fn from_word(word: u64) -> [u8; BRANCH_BYTES] {
    let [a, b, c, d, e, f, ..] = word.to_le_bytes();
    [a, b, c, d, e, f]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn levels_looked_at_together_or_one_by_one_say_the_same(
            fan_ins in prop::array::uniform4(prop_oneof![Just(0_u8), 1..=32_u8, 33..=63_u8]),
            places in prop::array::uniform4(prop_oneof![Just(0_u8), 0..=31_u8]),
        ) {
            let word = (0..LEVELS).fold(0, |word, at| {
                let entry = u64::from(fan_ins[at]) | u64::from(places[at]) << FAN_IN_BITS;
                word | entry << (LEVEL_BITS * at as u32)
            });
            let branch = Branch::new(fan_ins, places);
            prop_assert_eq!(Branch::unpack(from_word(word)), branch);
            if let Ok(branch) = branch {
                prop_assert_eq!((branch.fan_ins(), branch.places()), (fan_ins, places));
                for level in 0..=255 {
                    prop_assert_eq!(branch.enters_at(level), branch.entry() == level);
                    prop_assert_eq!(branch.ends_at(level), branch.end() == level);
                    prop_assert_eq!(branch.has(level), (branch.entry()..branch.end()).contains(&level));
                }
            }
        }
    }

    #[test]
    fn a_worker_below_two_switches() {
        let branch = Branch::new([8, 32, 0, 0], [5, 31, 0, 0]).unwrap();
        assert_eq!((branch.entry(), branch.end()), (0, 2));
        assert_eq!((branch.bit(0), branch.full(0)), (0b10_0000, 0xff));
        assert_eq!((branch.bit(1), branch.full(1)), (0x8000_0000, 0xffff_ffff));
        assert_eq!((branch.bit(2), branch.full(2)), (0, 0));
        assert_eq!((branch.bit(200), branch.fan_in(200)), (0, 0));
    }

    #[test]
    fn a_worker_in_the_servers_rack_enters_there() {
        let branch = Branch::new([0, 3, 0, 0], [0, 2, 0, 0]).unwrap();
        assert_eq!((branch.entry(), branch.end()), (1, 2));
        assert_eq!((branch.bit(0), branch.bit(1)), (0, 0b100));
    }

    #[test]
    fn contradictions_are_refused() {
        let error = |fan_ins, places| Branch::new(fan_ins, places).unwrap_err();
        assert_eq!(error([0; 4], [0; 4]), BranchError::NoLevels);
        assert_eq!(error([2, 0, 2, 0], [0; 4]), BranchError::Gap(1));
        assert_eq!(error([33, 0, 0, 0], [0; 4]), BranchError::FanIn { level: 0, fan_in: 33 });
        assert_eq!(error([4, 4, 4, 255], [0; 4]), BranchError::FanIn { level: 3, fan_in: 255 });
        assert_eq!(error([4, 2, 0, 0], [3, 2, 0, 0]), BranchError::Place { level: 1, place: 2 });
        assert_eq!(error([4, 2, 0, 0], [3, 1, 1, 0]), BranchError::Place { level: 2, place: 1 });
    }

    #[test]
    fn levels_have_eleven_bits_each() {
        let branch = Branch::new([4, 32, 0, 0], [3, 17, 0, 0]).unwrap();
        // 4 and 3 × 64 in the first eleven bits, 32 and 17 × 64 in the next.
        let word = 4_u64 + (3 << 6) + ((32 + (17 << 6)) << 11);
        assert_eq!(branch.pack(), word.to_le_bytes()[..6]);
        assert_eq!(Branch::unpack(branch.pack()), Ok(branch));
        for bit in 4..8 {
            let mut packed = branch.pack();
            packed[5] |= 1 << bit;
            assert_eq!(Branch::unpack(packed), Err(BranchError::Reserved), "bit {bit}");
        }
        let mut wide = branch.pack();
        wide[0] = 33;
        assert_eq!(Branch::unpack(wide), Err(BranchError::FanIn { level: 0, fan_in: 33 }));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_a_branch_that_packs_to_them(packed in any::<[u8; 6]>()) {
            if let Ok(branch) = Branch::unpack(packed) {
                prop_assert_eq!(branch.pack(), packed);
            }
        }

        #[test]
        fn children_of_a_switch_share_what_is_above_it(
            fan_ins in prop::array::uniform4(1..=FAN_IN_MAX),
            picks in any::<[u8; 4]>(),
            others in any::<[u8; 4]>(),
            level in 0..4_usize,
        ) {
            let places: [u8; 4] = std::array::from_fn(|at| picks[at] % fan_ins[at]);
            let branch = Branch::new(fan_ins, places).unwrap();
            let mut child = (fan_ins, places);
            for (below, other) in others.iter().enumerate().take(level + 1) {
                if below < level {
                    child.0[below] = other % FAN_IN_MAX + 1;
                }
                child.1[below] = other % child.0[below];
            }
            let child = Branch::new(child.0, child.1).unwrap();
            let at = level as u8;
            let shared = branch.shared(at);
            prop_assert_eq!(child.shared(at), shared);
            let above = shared.branch();
            prop_assert_eq!(Branch::unpack(above.pack()), Ok(above));
            prop_assert_eq!(branch.places_above(at), above.places());
            prop_assert_eq!(above.fan_ins()[level..].to_vec(), fan_ins[level..].to_vec());
            prop_assert_eq!(above.places()[level + 1..].to_vec(), places[level + 1..].to_vec());
            prop_assert_eq!(above.fan_ins()[..level].iter().sum::<u8>(), 0);
            prop_assert_eq!(above.places()[..=level].iter().sum::<u8>(), 0);
        }
    }
}
