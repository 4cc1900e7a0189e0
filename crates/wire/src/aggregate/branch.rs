//! A worker's way up the tree of switches.

use thiserror::Error;

/// How many levels of switches a header has room for.
pub const LEVELS: usize = 4;

/// The largest fan-in of a switch: one bit of a bitmap each.
pub const FAN_IN_MAX: u8 = 32;

/// Length of a packed branch.
pub const BRANCH_BYTES: usize = 6;

/// Bits of a level in a packed branch: the fan-in in the lower six, the place in the upper five.
const LEVEL_BITS: u32 = 11;
const FAN_IN_BITS: u32 = 6;
const FAN_IN_MASK: u64 = (1 << FAN_IN_BITS) - 1;
const PLACE_MASK: u64 = (1 << (LEVEL_BITS - FAN_IN_BITS)) - 1;

/// Which switches a contribution passes, from the worker to the server: how many children each waits
/// for, and which of them this one is.
///
/// Level 0 is the switch of the worker's rack; the last level used is that of the server's rack. A
/// worker in the server's rack enters there: the levels below it are unused. Which levels are
/// used shows in their fan-ins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Branch {
    fan_ins: [u8; LEVELS],
    places: [u8; LEVELS],
}

/// Why fan-ins and places do not describe a branch. Whoever set up the job is at fault.
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
        /// Its fan-in.
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
        let branch = Branch { fan_ins, places };
        let (entry, end) = (branch.entry(), branch.end());
        if end == 0 {
            return Err(BranchError::NoLevels);
        }
        for (level, (fan_in, place)) in (0..).zip(fan_ins.into_iter().zip(places)) {
            if fan_in > FAN_IN_MAX {
                return Err(BranchError::FanIn { level, fan_in });
            }
            if fan_in == 0 && (entry..end).contains(&level) {
                return Err(BranchError::Gap(level));
            }
            if place >= fan_in.max(1) {
                return Err(BranchError::Place { level, place });
            }
        }
        Ok(branch)
    }

    /// The branch as it travels: 11 bits a level, level 0 in the lowest.
    #[inline]
    pub fn pack(&self) -> [u8; BRANCH_BYTES] {
        let level = |at: usize| {
            let entry = u64::from(self.fan_ins[at]) | u64::from(self.places[at]) << FAN_IN_BITS;
            entry << (LEVEL_BITS * at as u32)
        };
        from_word(level(0) | level(1) | level(2) | level(3))
    }

    /// Reads a branch as it travels.
    #[inline]
    pub fn unpack(packed: [u8; BRANCH_BYTES]) -> Result<Branch, BranchError> {
        let word = to_word(packed);
        if word >> (LEVEL_BITS * LEVELS as u32) != 0 {
            return Err(BranchError::Reserved);
        }
        // Every packet of aggregation comes through here, so all levels are looked at together: one byte each.
        let byte = |at: u32, shift: u32, mask: u64| {
            ((word >> (LEVEL_BITS * at + shift) & mask) as u32) << (u8::BITS * at)
        };
        let fan_ins = (0..4).fold(0, |all, at| all | byte(at, 0, FAN_IN_MASK));
        let places = (0..4).fold(0, |all, at| all | byte(at, FAN_IN_BITS, PLACE_MASK));
        let branch = Branch { fan_ins: fan_ins.to_le_bytes(), places: places.to_le_bytes() };
        if is_branch(fan_ins, places) {
            return Ok(branch);
        }
        Branch::new(branch.fan_ins, branch.places)
    }

    /// The level of the first switch on the way.
    #[inline]
    pub fn entry(&self) -> u8 {
        // Every gradient asks twice: the fan-ins as one number answer without a loop.
        (u32::from_le_bytes(self.fan_ins).trailing_zeros() / u8::BITS) as u8
    }

    /// The level above the last switch: that of the server.
    #[inline]
    pub fn end(&self) -> u8 {
        LEVELS as u8 - (u32::from_le_bytes(self.fan_ins).leading_zeros() / u8::BITS) as u8
    }

    /// How many children the switch of a level waits for; 0 where the level is unused.
    #[inline]
    pub fn fan_in(&self, level: u8) -> u8 {
        at_level(self.fan_ins, level)
    }

    /// The bit of this contribution in the bitmap of a level; 0 where the level is unused.
    #[inline]
    pub fn bit(&self, level: u8) -> u32 {
        if self.fan_in(level) == 0 { 0 } else { 1 << at_level(self.places, level) }
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
        self.fan_ins
    }

    /// All places, from level 0.
    #[inline]
    pub fn places(&self) -> [u8; LEVELS] {
        self.places
    }
}

/// What all children of the switch at a level have in common, of a packed branch: its fan-in, and everything
/// above. Places at the level and everything below it are zero.
#[inline]
pub fn shared_branch(packed: [u8; BRANCH_BYTES], level: u8) -> [u8; BRANCH_BYTES] {
    let shift = LEVEL_BITS * u32::from(level).min(LEVELS as u32 - 1);
    let below = (1_u64 << shift) - 1;
    from_word(to_word(packed) & !below & !(PLACE_MASK << (shift + FAN_IN_BITS)))
}

/// The entry of a level; 0 beyond the last one.
#[inline]
fn at_level(entries: [u8; LEVELS], level: u8) -> u8 {
    u32::from_le_bytes(entries).checked_shr(u8::BITS * u32::from(level)).unwrap_or(0) as u8
}

/// Returns whether fan-ins and places, a byte for each level, describe a branch. Fan-ins have 6 bits and places 5,
/// so that no sum or difference below reaches the next byte.
#[inline]
const fn is_branch(fan_ins: u32, places: u32) -> bool {
    const ONES: u32 = 0x0101_0101;
    const TOPS: u32 = 0x8080_8080;
    let used = ((fan_ins + 0x7f * ONES) & TOPS) >> 7;
    let used_bytes = used * 0xff;
    let lowest = used_bytes & used_bytes.wrapping_neg();
    let is_adjacent = used_bytes.wrapping_add(lowest) & used_bytes == 0;
    let is_small = (fan_ins + (0x7f - FAN_IN_MAX as u32) * ONES) & TOPS == 0;
    // The place of an unused level is 0, as if it had one child.
    let last_places = fan_ins + (ONES - used) - ONES;
    let is_counted = ((last_places | TOPS) - places) & TOPS == TOPS;
    used != 0 && is_adjacent && is_small && is_counted
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
            let words = (u32::from_le_bytes(fan_ins), u32::from_le_bytes(places));
            prop_assert_eq!(is_branch(words.0, words.1), Branch::new(fan_ins, places).is_ok());
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
            let shared = shared_branch(branch.pack(), at);
            prop_assert_eq!(shared_branch(child.pack(), at), shared);
            let above = Branch::unpack(shared).unwrap();
            prop_assert_eq!(above.fan_ins()[level..].to_vec(), fan_ins[level..].to_vec());
            prop_assert_eq!(above.places()[level + 1..].to_vec(), places[level + 1..].to_vec());
            prop_assert_eq!(above.fan_ins()[..level].iter().sum::<u8>(), 0);
            prop_assert_eq!(above.places()[..=level].iter().sum::<u8>(), 0);
        }
    }
}
