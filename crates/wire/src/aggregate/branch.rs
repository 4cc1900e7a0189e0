//! A worker's way up the tree of switches.

use thiserror::Error;

/// How many levels of switches a header has room for.
pub const LEVELS: usize = 4;

/// The largest fan-in of a switch: one bit of a bitmap each.
pub const FAN_IN_MAX: u8 = 32;

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
        self.fan_ins.get(usize::from(level)).copied().unwrap_or(0)
    }

    /// The bit of this contribution in the bitmap of a level; 0 where the level is unused.
    #[inline]
    pub fn bit(&self, level: u8) -> u32 {
        let place = self.places.get(usize::from(level)).copied().unwrap_or(0);
        if self.fan_in(level) == 0 { 0 } else { 1 << place }
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
