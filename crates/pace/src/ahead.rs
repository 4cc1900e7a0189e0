//! Volumes of the coming slots.

/// The most slots that can be planned ahead.
pub const HORIZON_MAX: usize = 12;

/// The largest volume of a slot that is believed and counted with: 2 Pbps at 60 ms.
pub const VOLUME_MAX: u64 = 1 << 44;

/// A slot, counted from the start of time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Slot(pub u64);

impl Slot {
    /// The slot that comes `slots` later.
    pub const fn after(self, slots: u64) -> Slot {
        Slot(self.0.saturating_add(slots))
    }

    /// Number of slots between this one and an earlier one; zero if that one comes later.
    pub const fn since(self, earlier: Slot) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Bytes for each of some consecutive slots. It lies in place, so that a decision allocates nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ahead {
    first: Slot,
    len: usize,
    /// Only the first `len` count; the rest is zero.
    bytes: [u64; HORIZON_MAX],
}

impl Ahead {
    /// `len` slots from `first` on, at most [`HORIZON_MAX`], with the same volume each.
    pub fn filled(first: Slot, len: usize, bytes_each: u64) -> Ahead {
        let len = len.min(HORIZON_MAX);
        let mut bytes = [0; HORIZON_MAX];
        bytes[..len].fill(bytes_each);
        Ahead { first, len, bytes }
    }

    /// Nothing in `len` slots from `first` on.
    #[inline]
    pub fn empty(first: Slot, len: usize) -> Ahead {
        Ahead::in_place(first, len, [0; HORIZON_MAX])
    }

    /// `len` slots from `first` on, at most [`HORIZON_MAX`], with these volumes; the rest of them is zero.
    #[inline]
    pub(crate) fn in_place(first: Slot, len: usize, bytes: [u64; HORIZON_MAX]) -> Ahead {
        let len = len.min(HORIZON_MAX);
        debug_assert!(bytes[len..].iter().all(|volume| *volume == 0), "nothing beyond the horizon");
        Ahead { first, len, bytes }
    }

    /// The slots from `first` on with these volumes; what exceeds [`HORIZON_MAX`] is left out.
    pub fn of(first: Slot, volumes: &[u64]) -> Ahead {
        let mut ahead = Ahead::empty(first, volumes.len());
        let len = ahead.len;
        ahead.bytes[..len].copy_from_slice(&volumes[..len]);
        ahead
    }

    /// The slot that it begins with.
    pub const fn first(&self) -> Slot {
        self.first
    }

    /// The volumes, from the first slot on.
    pub fn volumes(&self) -> &[u64] {
        &self.bytes[..self.len]
    }

    /// Volumes by slot, for changes.
    pub fn volumes_mut(&mut self) -> &mut [u64] {
        &mut self.bytes[..self.len]
    }

    /// The volume of a slot, zero outside of what it covers.
    pub fn at(&self, slot: Slot) -> u64 {
        if slot < self.first {
            return 0;
        }
        self.volumes().get(slot.since(self.first) as usize).copied().unwrap_or(0)
    }

    /// All slots together.
    pub fn total(&self) -> u64 {
        self.volumes().iter().sum()
    }

    /// Adds what another has for the same slots, to a sum that has room for it.
    #[inline]
    pub(crate) fn add(&mut self, other: &Ahead) {
        self.change(other, |sum, part| sum + part);
    }

    /// Takes out what another has for the same slots, which is part of the sum.
    #[inline]
    pub(crate) fn subtract(&mut self, other: &Ahead) {
        self.change(other, |sum, part| sum - part);
    }

    /// Takes away what another has for the same slots, as far as there is any.
    pub(crate) fn take(&mut self, other: &Ahead) {
        self.change(other, u64::saturating_sub);
    }

    /// Changes every volume by what another has for the same slot. Nothing by nothing is nothing.
    #[inline]
    fn change(&mut self, other: &Ahead, with: impl Fn(u64, u64) -> u64) {
        if (self.first, self.len) == (other.first, other.len) {
            // All of them, whether they count or not: a loop of known length has no branches.
            let pairs = self.bytes.iter_mut().zip(&other.bytes);
            return pairs.for_each(|(own, other)| *own = with(*own, *other));
        }
        self.change_unlike(other, with);
    }

    #[cold]
    fn change_unlike(&mut self, other: &Ahead, with: impl Fn(u64, u64) -> u64) {
        let others = other.from(self.first);
        let pairs = self.volumes_mut().iter_mut().zip(others);
        pairs.for_each(|(own, other)| *own = with(*own, other));
    }

    /// The volumes from a slot on, zero outside of what it covers.
    pub(crate) fn from(&self, first: Slot) -> [u64; HORIZON_MAX] {
        std::array::from_fn(|at| self.at(first.after(at as u64)))
    }

    /// The volumes from the first slot on, as many as there can be, zero where there are none.
    #[inline]
    pub(crate) const fn in_all(&self) -> &[u64; HORIZON_MAX] {
        &self.bytes
    }

    /// The same to change. Where there are none, zeros must stay.
    #[inline]
    pub(crate) const fn in_all_mut(&mut self) -> &mut [u64; HORIZON_MAX] {
        &mut self.bytes
    }

    /// Lets time pass until `slot` is the first: passed slots are forgotten, new ones are empty.
    pub fn advance_to(&mut self, slot: Slot) {
        if slot <= self.first {
            return;
        }
        let passed = (slot.since(self.first) as usize).min(self.len);
        self.bytes.copy_within(passed..self.len, 0);
        self.bytes[self.len - passed..self.len].fill(0);
        self.first = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_slot_by_slot_or_all_at_once() {
        let mut ahead = Ahead::of(Slot(5), &[1, 2, 3]);
        ahead.advance_to(Slot(6));
        assert_eq!((ahead.first(), ahead.volumes()), (Slot(6), &[2, 3, 0][..]));
        ahead.advance_to(Slot(4));
        assert_eq!(ahead.first(), Slot(6), "time does not go back");
        ahead.advance_to(Slot(600));
        assert_eq!((ahead.first(), ahead.volumes()), (Slot(600), &[0, 0, 0][..]));
    }

    #[test]
    fn outside_there_is_nothing() {
        let ahead = Ahead::of(Slot(5), &[1, 2, 3]);
        let volumes: Vec<u64> = (3..10).map(|slot| ahead.at(Slot(slot))).collect();
        assert_eq!(volumes, [0, 0, 1, 2, 3, 0, 0]);
        assert_eq!(Ahead::of(Slot(0), &[1; 99]).volumes().len(), HORIZON_MAX);
    }
}
