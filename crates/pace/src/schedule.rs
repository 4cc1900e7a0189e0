//! When a flow sends: Algorithm 1.

mod order;

use std::array;

use crate::ahead::{Ahead, HORIZON_MAX, Slot, VOLUME_MAX};
use crate::path::Feedback;

use order::{PLACES, Place};

/// Bytes that a flow sends in the coming slots.
///
/// In a slot it sends at [`rate`](Schedule::rate) until [`bytes`](Schedule::bytes) are sent, then
/// stops. The rate is all that is free; it is not lowered to stretch over the slot. Tables count the
/// bytes: what is left of a slot after a flow has stopped belongs to others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// By slot, what is sent.
    pub bytes: Ahead,
    /// By slot, how fast, as bytes in a whole slot; zero where nothing is sent.
    pub rate: Ahead,
    /// Bytes that did not fit: they must be planned again.
    pub remaining: u64,
}

impl Schedule {
    /// The last slot in which it sends, if it sends everything.
    pub fn finish(&self) -> Option<Slot> {
        let last = self.bytes.volumes().iter().rposition(|sent| *sent > 0).unwrap_or(0);
        (self.remaining == 0).then_some(self.bytes.first().after(last as u64))
    }
}

// spec: C-03
/// Places a volume into the slots of a path, at the least cost.
///
/// For every slot in which the flow could finish, the slots up to it are filled in the order of their
/// loads, the earlier first among equals. The cost of such a schedule is its finishing slot, counted
/// from 1, and for every slot its share of the narrowest link times the load's share of it. What does
/// not fit into all slots fills them.
pub fn plan(volume: u64, feedback: &Feedback, price_per_mille: u32) -> Schedule {
    let planner = Planner::new(feedback, price_per_mille);
    let [mut bytes, mut rate] = [Ahead::empty(feedback.slot(), feedback.load.volumes().len()); 2];
    planner.plan(volume, &mut bytes);
    planner.rates(&bytes, &mut rate);
    Schedule { bytes, rate, remaining: volume - bytes.total() }
}

/// The cost of a schedule as [`plan`] counts it, in thousandths of a slot times the square of the
/// narrowest link's volume. `None` where it leaves something unsent.
pub fn cost(schedule: &Schedule, feedback: &Feedback, price_per_mille: u32) -> Option<u128> {
    let slots = schedule.finish()?.since(feedback.slot()) + 1;
    let loads = feedback.load.volumes().iter();
    let priced = schedule.bytes.volumes().iter().zip(loads);
    let priced = priced.map(|(bytes, load)| u128::from(*bytes) * u128::from(*load)).sum::<u128>();
    Some(u128::from(slots) * unit(feedback) + priced * u128::from(price_per_mille))
}

/// Price of finishing one slot later.
fn unit(feedback: &Feedback) -> u128 {
    let narrowest = u128::from(feedback.narrowest.min(VOLUME_MAX));
    narrowest * narrowest * 1_000
}

/// Places volumes into the slots of one path.
///
/// What it does hardly depends on the numbers: they differ from flow to flow, so that branches would be
/// mispredicted half of the time.
pub(crate) struct Planner {
    first: Slot,
    slots: usize,
    /// Most slots that a schedule can have: without any, there is nothing to send either.
    order: [Place; HORIZON_MAX],
    /// Bytes that can be sent in a slot.
    free: [u64; PLACES],
    price: u128,
    unit: u128,
}

impl Planner {
    pub(crate) fn new(feedback: &Feedback, price_per_mille: u32) -> Planner {
        Planner {
            first: feedback.slot(),
            slots: feedback.load.volumes().len(),
            order: order::by_load(&feedback.load),
            free: limited(feedback),
            price: price_per_mille.into(),
            unit: unit(feedback),
        }
    }

    /// Nothing can be sent in the first slot any more.
    pub(crate) fn close_first(&mut self) {
        self.free[0] = 0;
    }

    /// Writes down what of a volume is sent in which slot, see [`plan`].
    pub(crate) fn plan(&self, volume: u64, sent: &mut Ahead) {
        *sent = Ahead::empty(self.first, self.slots);
        let first = self.first_finish(volume);
        if first >= self.slots {
            sent.volumes_mut().copy_from_slice(&self.free[..self.slots]);
        } else if self.priced_at_most(volume) < self.unit {
            // To wait for one more slot costs more than anything that could be saved.
            self.fill(volume, first, sent, |_, _| ());
        } else {
            self.fill_cheapest(volume, first, sent);
        }
    }

    /// Writes down how fast that is: at all that is free, where anything is sent.
    pub(crate) fn rates(&self, sent: &Ahead, rates: &mut Ahead) {
        let sent = sent.in_all();
        let rate = |slot: usize| self.free[slot] & ones_unless_zero(sent[slot]);
        *rates = Ahead::in_place(self.first, self.slots, array::from_fn(rate));
    }

    /// The first slot in which a volume can be sent to its end; behind all slots if it does not fit.
    fn first_finish(&self, volume: u64) -> usize {
        let (mut room, mut too_small) = (0, 0);
        for free in &self.free[..self.slots] {
            room += free;
            too_small += usize::from(room < volume);
        }
        too_small
    }

    /// Highest price of a volume that fits, besides the time it takes. It is at most twelve times the largest volume,
    /// so the product fits as well.
    fn priced_at_most(&self, volume: u64) -> u128 {
        let most_loaded = self.order[HORIZON_MAX - 1];
        u128::from(volume) * u128::from(most_loaded.load()) * self.price
    }

    /// Fills slots at the least cost, of schedules that finish in some slot or later.
    fn fill_cheapest(&self, volume: u64, first_finish: usize, best: &mut Ahead) {
        let mut least = u128::MAX;
        for finish in first_finish..self.slots {
            // Later ones cost at least their finishing slot.
            let waiting = (finish as u128 + 1) * self.unit;
            if waiting >= least {
                break;
            }
            let mut priced = 0;
            let mut sent = Ahead::empty(self.first, self.slots);
            self.fill(volume, finish, &mut sent, |placed, load| {
                priced += u128::from(placed) * u128::from(load);
            });
            let cost = waiting + priced * self.price;
            if cost < least {
                (least, *best) = (cost, sent);
            }
        }
    }

    /// Fills the slots up to one of them, which have room enough, and shows what is sent beside which load.
    #[inline]
    fn fill(&self, volume: u64, finish: usize, sent: &mut Ahead, mut show: impl FnMut(u64, u64)) {
        let free = self.free_until(finish);
        let sent = sent.in_all_mut();
        let mut before = 0;
        for place in &self.order {
            let room = free[place.slot()];
            let placed = room.min(volume.saturating_sub(before));
            before += room;
            sent[place.slot()] = placed;
            show(placed, place.load());
        }
    }

    /// Free bytes in the slots up to one of them, and nothing behind it.
    fn free_until(&self, finish: usize) -> [u64; PLACES] {
        /// Ones for every slot until the last, then zeros.
        const MASKS: [u64; 2 * PLACES] = {
            let mut masks = [0; 2 * PLACES];
            let mut slot = 0;
            while slot < PLACES {
                masks[slot] = u64::MAX;
                slot += 1;
            }
            masks
        };
        let masks = &MASKS[PLACES - 1 - finish % PLACES..];
        array::from_fn(|slot| self.free[slot] & masks[slot])
    }
}

/// Free bytes in the slots of a path, as far as sums of them cannot overflow.
fn limited(feedback: &Feedback) -> [u64; PLACES] {
    let slots = feedback.load.volumes().len();
    let mut free = [0; PLACES];
    let of_slots = free.iter_mut().zip(feedback.free.volumes()).take(slots);
    of_slots.for_each(|(free, volume)| *free = (*volume).min(VOLUME_MAX));
    free
}

/// All bits, of a volume that is not zero. None is larger than [`VOLUME_MAX`].
fn ones_unless_zero(volume: u64) -> u64 {
    (volume.wrapping_neg() as i64 >> 63) as u64
}

#[cfg(test)]
mod tests;
