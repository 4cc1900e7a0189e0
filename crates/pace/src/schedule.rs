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
    for finish in 0..feedback.load.volumes().len() as u8 {
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
    search.into_schedule(feedback.slot())
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
    loads: &'a [u64],
    free: &'a [u64],
    price: u128,
    unit: u128,
    /// The slots so far, the least loaded first.
    order: Order,
    /// What the slots so far hold together.
    room: u64,
    least: u128,
    /// The order in which slots are filled at the least cost.
    best: Order,
}

/// Some of the slots, in some order.
#[derive(Clone, Copy)]
struct Order {
    slots: [u8; HORIZON_MAX],
    len: usize,
}

impl<'a> Search<'a> {
    fn new(volume: u64, feedback: &'a Feedback, price_per_mille: u32) -> Search<'a> {
        let order = Order { slots: [0; HORIZON_MAX], len: 0 };
        Search {
            volume,
            loads: feedback.load.volumes(),
            free: feedback.free.volumes(),
            price: price_per_mille.into(),
            unit: unit(feedback),
            order,
            room: 0,
            least: u128::MAX,
            best: order,
        }
    }

    fn load(&self, slot: u8) -> u64 {
        self.loads[usize::from(slot)].min(VOLUME_MAX)
    }

    fn free(&self, slot: u8) -> u64 {
        self.free.get(usize::from(slot)).map_or(0, |free| (*free).min(VOLUME_MAX))
    }

    /// Puts one more slot where its load belongs, behind those of the same load.
    fn include(&mut self, slot: u8) {
        let load = self.load(slot);
        let mut at = self.order.len;
        while at > 0 && self.load(self.order.slots[at - 1]) > load {
            self.order.slots[at] = self.order.slots[at - 1];
            at -= 1;
        }
        self.order.slots[at] = slot;
        self.order.len += 1;
        self.room += self.free(slot);
    }

    /// The cost of finishing there, without any price.
    fn waiting(&self, finish: u8) -> u128 {
        (u128::from(finish) + 1) * self.unit
    }

    /// Counts what it costs to fill the slots so far, which have room enough, and keeps their order if it
    /// is the best.
    fn try_finish(&mut self, finish: u8) {
        let mut priced = 0;
        self.fill(&self.order, |slot, placed| {
            priced += u128::from(placed) * u128::from(self.load(slot));
        });
        let cost = self.waiting(finish) + priced * self.price;
        if cost < self.least {
            (self.least, self.best) = (cost, self.order);
        }
    }

    /// Places the volume into slots, one after the other.
    fn fill(&self, order: &Order, mut place: impl FnMut(u8, u64)) {
        let mut left = self.volume;
        for &slot in &order.slots[..order.len] {
            let placed = left.min(self.free(slot));
            place(slot, placed);
            left -= placed;
            if left == 0 {
                break;
            }
        }
    }

    fn into_schedule(self, first: Slot) -> Schedule {
        let fits = self.room >= self.volume;
        let chosen = if fits { &self.best } else { &self.order };
        let mut bytes = Ahead::empty(first, self.loads.len());
        let mut rate = bytes;
        let mut last = 0;
        self.fill(chosen, |slot, placed| {
            let at = usize::from(slot);
            bytes.volumes_mut()[at] = placed;
            if placed > 0 {
                rate.volumes_mut()[at] = self.free(slot);
                last = last.max(at);
            }
        });
        Schedule {
            bytes,
            rate,
            finish: fits.then_some(first.after(last as u64)),
            remaining: self.volume.saturating_sub(self.room),
        }
    }
}

#[cfg(test)]
mod tests;
