//! When a flow sends: Algorithm 1.

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
    let mut search = Search::new(volume, feedback, price_per_mille);
    for finish in 0..feedback.load.volumes().len() {
        search.include(finish);
        if search.room < volume {
            continue;
        }
        // Later ones cost at least their finishing slot.
        if search.waiting(finish) >= search.least {
            break;
        }
        search.try_finish(finish);
    }
    search.into_schedule(feedback)
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

struct Search {
    volume: u64,
    loads: [u64; HORIZON_MAX],
    free: [u64; HORIZON_MAX],
    price: u128,
    unit: u128,
    /// The slots so far, the least loaded first.
    order: [usize; HORIZON_MAX],
    included: usize,
    /// What the slots so far hold together.
    room: u64,
    least: u128,
    best: [u64; HORIZON_MAX],
}

impl Search {
    fn new(volume: u64, feedback: &Feedback, price_per_mille: u32) -> Search {
        let clamped = |ahead: &Ahead| {
            let mut volumes = [0; HORIZON_MAX];
            let all = volumes.iter_mut().zip(ahead.volumes());
            all.for_each(|(to, from)| *to = (*from).min(VOLUME_MAX));
            volumes
        };
        Search {
            volume,
            loads: clamped(&feedback.load),
            free: clamped(&feedback.free),
            price: price_per_mille.into(),
            unit: unit(feedback),
            order: [0; HORIZON_MAX],
            included: 0,
            room: 0,
            least: u128::MAX,
            best: [0; HORIZON_MAX],
        }
    }

    /// Puts one more slot where its load belongs, behind those of the same load.
    fn include(&mut self, slot: usize) {
        let mut at = self.included;
        while at > 0 && self.loads[self.order[at - 1]] > self.loads[slot] {
            self.order[at] = self.order[at - 1];
            at -= 1;
        }
        self.order[at] = slot;
        self.included += 1;
        self.room += self.free[slot];
    }

    /// The cost of finishing there, without any price.
    fn waiting(&self, finish: usize) -> u128 {
        (finish as u128 + 1) * self.unit
    }

    /// Fills the slots so far, which have room enough, and keeps the result if it is the best.
    fn try_finish(&mut self, finish: usize) {
        let mut bytes = [0; HORIZON_MAX];
        let mut left = self.volume;
        let mut priced = 0;
        for &slot in &self.order[..self.included] {
            let placed = left.min(self.free[slot]);
            bytes[slot] = placed;
            priced += u128::from(placed) * u128::from(self.loads[slot]);
            left -= placed;
            if left == 0 {
                break;
            }
        }
        let cost = self.waiting(finish) + priced * self.price;
        if cost < self.least {
            (self.least, self.best) = (cost, bytes);
        }
    }

    fn into_schedule(self, feedback: &Feedback) -> Schedule {
        let fits = self.room >= self.volume;
        let chosen = if fits { &self.best } else { &self.free };
        let bytes = Ahead::of(feedback.slot(), &chosen[..feedback.load.volumes().len()]);
        let mut rate = bytes;
        for (rate, free) in rate.volumes_mut().iter_mut().zip(self.free) {
            *rate = if *rate > 0 { free } else { 0 };
        }
        let last = bytes.volumes().iter().rposition(|bytes| *bytes > 0).unwrap_or(0);
        Schedule {
            bytes,
            rate,
            finish: fits.then_some(feedback.slot().after(last as u64)),
            remaining: self.volume.saturating_sub(self.room),
        }
    }
}

#[cfg(test)]
mod tests;
