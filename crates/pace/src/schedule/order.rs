//! The order in which slots are filled.

use crate::ahead::{Ahead, HORIZON_MAX, VOLUME_MAX};

/// As many slots as the number of a [`Place`] can tell apart.
pub(super) const PLACES: usize = 16;

/// A slot and its load in one number: slots are filled in the order of these.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place(u64);

impl Place {
    fn new(slot: usize, load: u64) -> Place {
        Place(load.min(VOLUME_MAX) * PLACES as u64 + slot as u64)
    }

    /// Index of the slot, counted from the first; less than [`PLACES`].
    pub(super) fn slot(self) -> usize {
        self.0 as usize % PLACES
    }

    pub(super) fn load(self) -> u64 {
        self.0 / PLACES as u64
    }
}

/// All slots, the least loaded first, and the earlier first among equals.
pub(super) fn by_load(loads: &Ahead) -> [Place; HORIZON_MAX] {
    let loads = loads.in_all();
    let mut places = std::array::from_fn(|slot| Place::new(slot, loads[slot]));
    sort(&mut places);
    places
}

/// Sorts by comparing the same pairs whatever they are, so without branches. The network is the shortest known for
/// twelve.
fn sort(places: &mut [Place; HORIZON_MAX]) {
    macro_rules! exchange {
        ($($low:literal $high:literal),+) => {$(
            let (one, other) = (places[$low], places[$high]);
            (places[$low], places[$high]) = (one.min(other), one.max(other));
        )+};
    }
    exchange!(0 8, 1 7, 2 6, 3 11, 4 10, 5 9);
    exchange!(0 1, 2 5, 3 4, 6 9, 7 8, 10 11);
    exchange!(0 2, 1 6, 5 10, 9 11);
    exchange!(0 3, 1 2, 4 6, 5 7, 8 11, 9 10);
    exchange!(1 4, 3 5, 6 8, 7 10);
    exchange!(1 3, 2 5, 6 9, 8 10);
    exchange!(2 3, 4 5, 6 7, 8 9);
    exchange!(4 6, 5 7);
    exchange!(3 4, 5 6, 7 8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ahead::Slot;

    /// A network that sorts all zeros and ones sorts everything.
    #[test]
    fn the_network_sorts() {
        for bits in 0..1_u64 << HORIZON_MAX {
            let mut places = std::array::from_fn(|at| Place(bits >> at & 1));
            sort(&mut places);
            assert!(places.is_sorted(), "{bits:b}");
        }
    }

    #[test]
    fn the_least_loaded_slot_comes_first_and_the_earlier_of_equals() {
        let places = by_load(&Ahead::of(Slot(0), &[9, 3, u64::MAX, 3, 2, 2, 2, 2, 2, 2, 2, 2]));
        let order: Vec<(usize, u64)> = places.iter().map(|it| (it.slot(), it.load())).collect();
        assert_eq!(order[..8], [4, 5, 6, 7, 8, 9, 10, 11].map(|slot| (slot, 2)));
        assert_eq!(order[8..], [(1, 3), (3, 3), (0, 9), (2, VOLUME_MAX)]);
    }
}
