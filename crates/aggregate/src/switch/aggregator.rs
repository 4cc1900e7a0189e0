//! The array of aggregators, made at start.

use thalweg_core::{Body, JobId, Span, Time};
use thalweg_values::sum;
use thalweg_wire::aggregate::{
    CONGESTED, Gradient, GradientView, Magnitude, OVERFLOW, SumImportance,
};

use super::gradients::Arrival;
use super::kept::Kept;
use super::key::{Fragment, Key, Part};
use super::table::Found;

/// One aggregator without its values. All that a step looks at lies in one cache line.
// spec: A-01
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Aggregator {
    /// Means nothing in an empty aggregator.
    pub(super) key: Key,
    /// The children that have contributed. None in an empty aggregator.
    pub(super) bitmap: u32,
    /// [`CONGESTED`] and [`OVERFLOW`] of any part, the [importance](IMPORTANCE_SHIFT) of all, [`QUEUED`] and [`ASKED`];
    /// in an empty aggregator [`KEPT`] and [`ASKED`].
    pub(super) marks: u8,
    next_magnitude: u8,
    /// The largest of all parts: the least watermark.
    watermark_distance: u16,
    /// When a packet of the fragment was last seen.
    pub(super) touched: Time,
}

const _: () = assert!(size_of::<Aggregator>() == 64, "a step looks at one cache line");

/// Lower of two bits of [`Aggregator::marks`]: the importance of the contributions.
const IMPORTANCE_SHIFT: u8 = 2;
/// Bit of [`Aggregator::marks`]: the aggregator is free, and the result of its last fragment is still there.
pub(super) const KEPT: u8 = 1 << 5;
/// Bit of [`Aggregator::marks`]: the sum waits for being sent again.
const QUEUED: u8 = 1 << 6;
/// Bit of [`Aggregator::marks`]: there is a time at which the children were asked, or got the result again.
pub(super) const ASKED: u8 = 1 << 7;

/// Why a fragment is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Over {
    /// It was not touched for the stale age.
    Stale,
    /// The watermark of its job is beyond it.
    Passed,
}

/// All aggregators.
#[derive(Debug)]
pub(super) struct Array {
    pub(super) slots: Vec<Aggregator>,
    /// The values of all slots, one after the other, and then as much once more: sums of 16-bit values have twice as many
    /// bytes as bodies. They lie apart so that sums of 32-bit values stay as close to each other as they can.
    pub(super) values: Vec<u8>,
    /// Offset of the first slot's values.
    pub(super) values_from: usize,
    pub(super) slot_bytes: usize,
    /// When the children were last asked, or got the result again, by slot. Apart, because few steps look at it.
    pub(super) asked_at: Vec<Time>,
    /// Number of times that the sum was sent before it was full, by slot. Valid only with [`ASKED`].
    pub(super) handed_over: Vec<u32>,
    /// Results that are kept, by slot. Their values lie where the sums were.
    pub(super) kept: Vec<Kept>,
    stale_after: Span,
    occupied: u32,
}

/// Alignment of values for vector instructions.
const ALIGNMENT: usize = 64;

impl Aggregator {
    const EMPTY: Aggregator = Aggregator {
        key: Key::NONE,
        bitmap: 0,
        marks: 0,
        next_magnitude: 0,
        watermark_distance: 0,
        touched: Time::ZERO,
    };

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.bitmap == 0
    }

    /// The importance of the contributions in it.
    fn importance(&self) -> SumImportance {
        SumImportance::from_bits(self.marks >> IMPORTANCE_SHIFT)
    }

    /// The children that are missing.
    pub(super) fn missing(&self) -> u32 {
        self.key.full() & !self.bitmap
    }

    /// The header of the sum as it would travel up, asked for; its level is the station's own.
    pub(super) fn header(&self) -> Option<Gradient> {
        let Fragment { identity, server, level, .. } = self.key.fragment();
        let (aggregator, numbers) = (self.key.aggregator(), self.key.numbers()?);
        Some(Gradient {
            watermark_distance: self.watermark_distance,
            bitmap: self.bitmap,
            bitmap_level: level,
            level,
            next_magnitude: Magnitude::from_exponent(self.next_magnitude),
            importance: self.importance(),
            congested: self.marks & CONGESTED != 0,
            overflow: self.marks & OVERFLOW != 0,
            repair: true,
            ..Gradient::fresh(identity, aggregator, numbers, server, self.key.branch())
        })
    }
}

impl Array {
    /// An array of empty aggregators, each with room for a number of values of 32 bits, or twice as many of 16.
    pub(super) fn new(aggregators: u32, values_max: u16, stale_after: Span) -> Array {
        let count = aggregators as usize;
        let slot_bytes = (usize::from(values_max) * 4).next_multiple_of(ALIGNMENT);
        let values = vec![0; 2 * count * slot_bytes + ALIGNMENT];
        // The pointer decides about speed only; it can say `usize::MAX`.
        let values_from = values.as_ptr().align_offset(ALIGNMENT) % ALIGNMENT;
        Array {
            slots: vec![Aggregator::EMPTY; count],
            values,
            values_from,
            slot_bytes,
            asked_at: vec![Time::ZERO; count],
            handed_over: vec![0; count],
            kept: vec![Kept::NONE; count],
            stale_after,
            occupied: 0,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    #[inline]
    pub(super) fn occupied(&self) -> u32 {
        self.occupied
    }

    #[inline]
    pub(super) fn slot(&self, place: u32) -> &Aggregator {
        &self.slots[place as usize]
    }

    /// All that are not empty.
    pub(super) fn taken(&self) -> impl Iterator<Item = &Aggregator> {
        self.slots.iter().filter(|slot| !slot.is_empty())
    }

    /// Content of the aggregator that a gradient with this watermark finds.
    #[inline]
    pub(super) fn find(&self, now: Time, place: u32, part: &Part, watermark: u64) -> Found {
        let slot = self.slot(place);
        if slot.is_empty() {
            return Found::Empty;
        }
        if slot.key != part.key {
            return match self.over(now, place, &part.key, watermark) {
                Some(_) => Found::Over,
                None => Found::Other,
            };
        }
        if slot.bitmap & part.bit == 0 {
            Found::Unseen
        } else if slot.bitmap == part.full {
            Found::Full
        } else {
            Found::Seen
        }
    }

    /// Reason why the fragment that is there is over, seen from a packet with this key and watermark, if it is.
    // spec: A-09
    pub(super) fn over(&self, now: Time, place: u32, key: &Key, watermark: u64) -> Option<Over> {
        if self.is_stale(now, place) {
            Some(Over::Stale)
        } else if self.slot(place).key.is_passed_by(key, watermark) {
            Some(Over::Passed)
        } else {
            None
        }
    }

    /// True if the aggregator is taken, but was not touched for the stale age.
    pub(super) fn is_stale(&self, now: Time, place: u32) -> bool {
        let slot = self.slot(place);
        !slot.is_empty() && now.since(slot.touched) >= self.stale_after
    }

    /// The aggregator of a fragment, if it is there.
    pub(super) fn find_fragment(&self, place: u32, fragment: &Fragment) -> Option<&Aggregator> {
        let slot = self.slot(place);
        (!slot.is_empty() && slot.key.fragment() == *fragment).then_some(slot)
    }

    /// A gradient takes an empty aggregator.
    // spec: A-02
    #[inline]
    pub(super) fn take(&mut self, arrival: &Arrival<'_>) {
        let Arrival { now, place, part, view, body, .. } = arrival;
        let slot = &mut self.slots[*place as usize];
        assert!(slot.is_empty(), "an aggregator is taken when it is empty");
        self.occupied += 1;
        *slot = Aggregator {
            key: part.key,
            bitmap: part.bit,
            marks: marks(view),
            next_magnitude: view.next_magnitude,
            watermark_distance: view.watermark_distance.get(),
            touched: *now,
        };
        let Body::Bytes(body) = body else { return };
        match part.key.half() {
            None => self.values_mut(*place, body.len()).copy_from_slice(body),
            Some(half) => self.take_halves(half, *place, body),
        }
    }

    /// A gradient of the same fragment is added. Says whether the sum left the range.
    // spec, M-20
    #[inline]
    pub(super) fn add(&mut self, arrival: &Arrival<'_>) -> bool {
        let Arrival { now, place, part, view, body, .. } = arrival;
        let slot = &mut self.slots[*place as usize];
        assert!(slot.bitmap & part.bit == 0, "a child is added to a sum once");
        slot.bitmap |= part.bit;
        slot.marks |= marks(view);
        slot.next_magnitude = slot.next_magnitude.max(view.next_magnitude);
        let distance = view.watermark_distance.get();
        slot.watermark_distance = slot.watermark_distance.max(distance);
        slot.touched = *now;
        let Body::Bytes(body) = body else { return false };
        let is_over = slot.marks & OVERFLOW != 0;
        if let Some(half) = part.key.half() {
            self.add_halves(half, *place, body);
            return false;
        }
        let sum = self.values_mut(*place, body.len());
        if part.key.is_float() {
            sum::add_float(sum, body);
            return false;
        }
        if is_over {
            return false;
        }
        let left = sum::add_fixed(sum, body);
        if left {
            self.slots[*place as usize].marks |= OVERFLOW;
        }
        left
    }

    /// A gradient that is in the sum already leaves its mark.
    // spec
    pub(super) fn mark(&mut self, now: Time, place: u32, view: &GradientView) {
        let slot = &mut self.slots[place as usize];
        slot.marks |= view.flags & CONGESTED;
        slot.touched = now;
    }

    /// The sum goes into a gradient of the same fragment.
    // spec
    #[inline]
    pub(super) fn copy_out(&self, place: u32, view: &mut GradientView, body: &mut Body<'_>) {
        let slot = self.slot(place);
        view.bitmap.set(slot.bitmap);
        view.flags |= slot.marks & (CONGESTED | OVERFLOW);
        view.set_importance(slot.importance());
        view.next_magnitude = slot.next_magnitude;
        view.watermark_distance.set(slot.watermark_distance);
        if let Body::Bytes(body) = body {
            self.write_out(place, body);
        }
    }

    /// The sum as it is sent.
    #[inline]
    pub(super) fn write_out(&self, place: u32, body: &mut [u8]) {
        match self.slot(place).key.half() {
            None => body.copy_from_slice(self.values(place, body.len())),
            Some(half) => self.round_halves(half, place, body),
        }
    }

    #[inline]
    pub(super) fn free(&mut self, place: u32) -> Option<JobId> {
        let slot = &mut self.slots[place as usize];
        if slot.is_empty() {
            return None;
        }
        slot.bitmap = 0;
        self.occupied -= 1;
        Some(slot.key.job())
    }

    /// True if the children of a sum may be asked now. If so, not again before the gap is over.
    // spec: T-10
    pub(super) fn may_ask(&mut self, now: Time, place: u32, gap: Span, touched: Time) -> bool {
        let slot = &mut self.slots[place as usize];
        let asked_at = &mut self.asked_at[place as usize];
        slot.touched = touched;
        if slot.marks & ASKED == 0 {
            self.handed_over[place as usize] = 0;
        } else if now.since(*asked_at) < gap {
            return false;
        }
        slot.marks |= ASKED;
        *asked_at = now;
        true
    }

    /// [`may_ask`](Array::may_ask) for what is sent on of a sum. If that is bounded, it is sent at most as often as
    /// children have contributed to it: the server takes each for a contribution, which pays for results.
    // spec: E-13
    pub(super) fn may_hand_over(
        &mut self,
        now: Time,
        place: u32,
        gap: Span,
        touched: Time,
        is_bounded: bool,
    ) -> bool {
        if !self.may_ask(now, place, gap, touched) {
            return false;
        }
        let slot = &self.slots[place as usize];
        let handed_over = &mut self.handed_over[place as usize];
        *handed_over += 1;
        !is_bounded || *handed_over <= slot.bitmap.count_ones()
    }

    /// Bytes of the contributions to a sum that have not left the switch. A sum that was sent on went with one of them.
    // spec: E-13
    pub(super) fn absorbed_bytes(&self, place: u32, is_sent_on: bool, overhead_bytes: u32) -> u64 {
        let slot = self.slot(place);
        let handed_over =
            if slot.marks & ASKED != 0 { self.handed_over[place as usize] } else { 0 };
        let left = handed_over.saturating_add(is_sent_on.into());
        let absorbed = slot.bitmap.count_ones().saturating_sub(left);
        u64::from(absorbed) * u64::from(slot.key.body_bytes() + overhead_bytes)
    }

    /// Notes that the sum must be sent again. `false` if it was noted before.
    pub(super) fn enqueue(&mut self, touched: Time, place: u32) -> bool {
        let slot = &mut self.slots[place as usize];
        slot.touched = touched;
        let is_new = slot.marks & QUEUED == 0;
        slot.marks |= QUEUED;
        is_new
    }

    /// Takes that note back.
    pub(super) fn dequeue(&mut self, place: u32) {
        self.slots[place as usize].marks &= !QUEUED;
    }

    /// The sum that was noted for being sent again, if it is still there.
    pub(super) fn queued(&self, place: u32) -> Option<&Aggregator> {
        let slot = self.slot(place);
        (!slot.is_empty() && slot.marks & QUEUED != 0).then_some(slot)
    }

    /// Recounts. Panics where a bitmap names others than children, or the aggregators that are taken are not those
    /// that were counted.
    // spec: T-12
    pub(super) fn check(&self) {
        for slot in &self.slots {
            assert_eq!(slot.bitmap & !slot.key.full(), 0, "only children are in a sum");
            let is_free = slot.is_empty() || slot.marks & KEPT == 0;
            assert!(is_free, "a result is kept in a free aggregator");
        }
        assert_eq!(self.occupied, self.taken().count() as u32, "aggregators that are taken");
    }

    #[inline]
    pub(super) fn values(&self, place: u32, bytes: usize) -> &[u8] {
        let from = self.values_from + place as usize * self.slot_bytes;
        &self.values[from..from + bytes]
    }

    #[inline]
    pub(super) fn values_mut(&mut self, place: u32, bytes: usize) -> &mut [u8] {
        let from = self.values_from + place as usize * self.slot_bytes;
        &mut self.values[from..from + bytes]
    }
}

/// Bits that a contribution leaves in [`Aggregator::marks`].
#[inline]
fn marks(view: &GradientView) -> u8 {
    view.flags & (CONGESTED | OVERFLOW) | view.importance().bits() << IMPORTANCE_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: T-12 machine
    #[test]
    #[should_panic(expected = "only children are in a sum")]
    fn a_contribution_from_nobody_is_noticed() {
        let mut array = Array::new(4, 4, Span::from_ms(100));
        array.check();
        array.slots[2].bitmap = 1;
        array.check();
    }

    // spec: T-12 machine
    #[test]
    #[should_panic(expected = "aggregators that are taken")]
    fn an_aggregator_that_was_not_counted_is_noticed() {
        let mut array = Array::new(4, 4, Span::from_ms(100));
        array.occupied = 1;
        array.check();
    }
}
