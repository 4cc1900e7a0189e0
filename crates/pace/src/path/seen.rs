//! The bandwidth that was seen lately.

use crate::settings::Settings;

/// Number of slots that are remembered.
const SLOTS: usize = 4;
/// Number of busy slots of which one asks for more than was seen, and the next as well if it got it.
const PROBE_EVERY: u64 = 8;
/// Divisor of the seen bandwidth that gives the excess of a probe: a quarter.
const PROBE_PART: u64 = 4;
/// A slot is busy when at least this much of what was thought usable was planned for it.
const BUSY: (u64, u64) = (7, 8);
/// Part of its plan with which a flow lacked nothing: acknowledgements of the other direction,
/// ends of messages and late wake-ups take a little of every slot. Else a link would seem to get narrower
/// with every slot that is not perfect.
const ENOUGH: (u64, u64) = (7, 8);
/// A link that carried nothing for a while, whatever the reason, is still asked for this part of its
/// capacity: from nothing no probe would ever lead up again.
const FLOOR_PART: u64 = 32;

/// The largest of the last four values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recent {
    values: [u64; SLOTS],
    next: usize,
}

impl Recent {
    /// As if this value had been seen all the time.
    pub fn new(value: u64) -> Recent {
        Recent { values: [value; SLOTS], next: 0 }
    }

    /// Takes in the value of one more slot.
    pub fn push(&mut self, value: u64) {
        self.values[self.next] = value;
        self.next = (self.next + 1) % SLOTS;
    }

    /// The largest.
    pub fn max(&self) -> u64 {
        self.values.iter().copied().max().unwrap_or(0)
    }
}

/// Bandwidth of a link that scheduled flows can use beside unscheduled traffic.
///
/// What counts is what left, not what arrived: a packet that got lost in flight was carried. So loss
/// alone lowers nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    capacity: u64,
    busy: Recent,
    /// Busy slots that have asked for no more than was seen, since the last one that asked for more.
    content_slots: u64,
    is_estimated: bool,
}

impl Seen {
    /// A link of which nothing is known but its capacity.
    pub fn new(capacity: u64) -> Seen {
        Seen { capacity, busy: Recent::new(capacity), content_slots: 0, is_estimated: true }
    }

    /// A link of which that is all that counts, or not: [`Settings::estimates_links`].
    pub(crate) fn of(settings: &Settings, capacity: u64) -> Seen {
        if settings.estimates_links { Seen::new(capacity) } else { Seen::whole(capacity) }
    }

    /// A link all of which can be used, whatever is observed.
    pub fn whole(capacity: u64) -> Seen {
        Seen { is_estimated: false, ..Seen::new(capacity) }
    }

    /// Bytes that the undisturbed link carries in a slot.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    // spec: C-04
    /// The most that was carried in the last four busy slots; every now and then, and as long as it helps, a
    /// quarter more, since a link that is never asked for more would never show more.
    pub fn usable(&self) -> u64 {
        let seen = self.busy.max().max(self.capacity / FLOOR_PART);
        let asked = if self.is_probe() { seen.saturating_add(seen / PROBE_PART + 1) } else { seen };
        asked.min(self.capacity)
    }

    // spec: C-04, C-12, C-13
    /// Takes in a slot that has ended. One for which little was planned says nothing about the link.
    pub fn observe(&mut self, planned: u64, carried: u64) {
        if !self.is_estimated || planned == 0 || !reaches(planned, BUSY, self.usable()) {
            return;
        }
        let is_enough = reaches(carried, ENOUGH, planned);
        // A probe that got more is followed by another: after a moment without bandwidth, all of it is soon used again.
        self.content_slots = match self.is_probe() {
            true if is_enough => self.content_slots,
            true => 0,
            false => self.content_slots + 1,
        };
        let seen = if is_enough { carried.max(planned) } else { carried };
        self.busy.push(seen.min(self.capacity));
    }

    fn is_probe(&self) -> bool {
        self.content_slots == PROBE_EVERY - 1
    }
}

/// True if a value is at least this part of another.
fn reaches(value: u64, (part, whole): (u64, u64), of: u64) -> bool {
    u128::from(value) * u128::from(whole) >= u128::from(of) * u128::from(part)
}
