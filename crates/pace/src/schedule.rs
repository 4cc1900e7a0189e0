//! When a flow sends: Algorithm 1.

use std::array;

use crate::ahead::{Ahead, HORIZON_MAX, Slot};
use crate::path::Feedback;

/// No volume of a slot is larger than this (2 Pbps at 60 ms), so that costs fit their numbers.
const VOLUME_MAX: u64 = 1 << 44;

/// What a flow sends in the coming slots.
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
    /// The last slot in which it sends, if it sends everything.
    pub finish: Option<Slot>,
    /// What did not fit: to be planned again.
    pub remaining: u64,
}

// spec: C-03
/// Places a volume into the slots of a path, at the least cost.
///
/// For every slot in which the flow could finish, the slots up to it are filled in the order of their
/// loads, the earlier first among equals. The cost of such a schedule is its finishing slot, counted
/// from 1, and for every slot its share of the narrowest link times the load's share of it. What does
/// not fit into all slots fills them.
pub fn plan(volume: u64, feedback: &Feedback, price_per_mille: u32) -> Schedule {
    let mut limits = [[0; HORIZON_MAX]; 2];
    let mut search = Search::new(volume, feedback, &mut limits, price_per_mille);
    let mut room = 0;
    for finish in 0..search.slots {
        search.include(finish);
        room += search.free[finish];
        if room < volume {
            continue;
        }
        // Later ones cost at least their finishing slot.
        if search.waiting(finish) >= search.least {
            break;
        }
        search.try_finish(finish);
    }
    if room < volume { search.fill_all(volume - room) } else { search.best_schedule() }
}

/// The cost of a schedule as [`plan`] counts it, in thousandths of a slot times the square of the
/// narrowest link's volume. `None` where it leaves something unsent.
pub fn cost(schedule: &Schedule, feedback: &Feedback, price_per_mille: u32) -> Option<u128> {
    let slots = schedule.finish?.since(feedback.slot()) + 1;
    let loads = feedback.load.volumes().iter();
    let priced = schedule.bytes.volumes().iter().zip(loads);
    let priced = priced.map(|(bytes, load)| u128::from(*bytes) * u128::from(*load)).sum::<u128>();
    Some(u128::from(slots) * unit(feedback) + priced * u128::from(price_per_mille))
}

/// What it costs to finish one slot later.
fn unit(feedback: &Feedback) -> u128 {
    let narrowest = u128::from(feedback.narrowest.min(VOLUME_MAX));
    narrowest * narrowest * 1_000
}

struct Search<'a> {
    volume: u64,
    first: Slot,
    slots: usize,
    loads: &'a [u64; HORIZON_MAX],
    free: &'a [u64; HORIZON_MAX],
    price: u128,
    unit: u128,
    /// The slots so far, the least loaded first.
    order: [Place; PLACES],
    least: u128,
    /// What is sent at the least cost.
    best: [u64; HORIZON_MAX],
}

/// As many as the number of a [`Place`]'s slot can tell apart, so that none is out of bounds.
const PLACES: usize = 16;

/// A slot and its load in one number: slots are filled in the order of these.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place(u64);

impl Place {
    fn new(slot: usize, load: u64) -> Place {
        Place(load * PLACES as u64 + slot as u64)
    }

    fn slot(self) -> usize {
        self.0 as usize % PLACES
    }

    fn load(self) -> u64 {
        self.0 / PLACES as u64
    }
}

impl<'a> Search<'a> {
    fn new(
        volume: u64,
        feedback: &'a Feedback,
        [loads, free]: &'a mut [[u64; HORIZON_MAX]; 2],
        price_per_mille: u32,
    ) -> Search<'a> {
        Search {
            volume,
            first: feedback.slot(),
            slots: feedback.load.volumes().len(),
            loads: limited(&feedback.load, loads),
            free: limited(&feedback.free, free),
            price: price_per_mille.into(),
            unit: unit(feedback),
            order: [Place(0); PLACES],
            least: u128::MAX,
            best: [0; HORIZON_MAX],
        }
    }

    /// Puts one more slot where its load belongs, behind those of the same load.
    fn include(&mut self, slot: usize) {
        let place = Place::new(slot, self.loads[slot]);
        let mut at = slot;
        while at > 0 && self.order[at - 1] > place {
            self.order[at] = self.order[at - 1];
            at -= 1;
        }
        self.order[at] = place;
    }

    /// The cost of finishing there, without any price.
    fn waiting(&self, finish: usize) -> u128 {
        (finish as u128 + 1) * self.unit
    }

    /// Fills the slots so far, which have room enough, and keeps that if it costs the least.
    fn try_finish(&mut self, finish: usize) {
        let mut sent = [0; PLACES];
        let mut priced = 0;
        let mut left = self.volume;
        for place in &self.order[..=finish] {
            let placed = left.min(self.free[place.slot()]);
            sent[place.slot()] = placed;
            priced += u128::from(placed) * u128::from(place.load());
            left -= placed;
            if left == 0 {
                break;
            }
        }
        let cost = self.waiting(finish) + priced * self.price;
        if cost < self.least {
            self.least = cost;
            self.best.copy_from_slice(&sent[..HORIZON_MAX]);
        }
    }

    /// The schedule that costs the least.
    fn best_schedule(&self) -> Schedule {
        let last = self.best.iter().rposition(|sent| *sent > 0).unwrap_or(0);
        self.schedule(&self.best, Some(self.first.after(last as u64)), 0)
    }

    /// All slots are filled, and something remains.
    fn fill_all(&self, remaining: u64) -> Schedule {
        self.schedule(self.free, None, remaining)
    }

    fn schedule(
        &self,
        sent: &[u64; HORIZON_MAX],
        finish: Option<Slot>,
        remaining: u64,
    ) -> Schedule {
        let rate = |slot: usize| if sent[slot] > 0 { self.free[slot] } else { 0 };
        let ahead = |volumes| Ahead::in_place(self.first, self.slots, volumes);
        Schedule { bytes: ahead(*sent), rate: ahead(array::from_fn(rate)), finish, remaining }
    }
}

/// Volumes, none of them too large to count with.
fn limited<'a>(volumes: &'a Ahead, limited: &'a mut [u64; HORIZON_MAX]) -> &'a [u64; HORIZON_MAX] {
    let all = volumes.in_all();
    if all.iter().fold(0, |any, volume| any | volume) < VOLUME_MAX {
        return all;
    }
    *limited = all.map(|volume| volume.min(VOLUME_MAX));
    limited
}

#[cfg(test)]
mod tests;
