//! Division of an operation on data of one length among the ranks.
//!
//! Every one of these operations is the same two steps. Those who have data *give* each owner of a
//! slice their bytes of it; the owner combines them, chunk by chunk, and *shares* every chunk with
//! those who are to have it.
//!
//! | | slices of | given by | shared with |
//! |---|---|---|---|
//! | all-reduce | every rank | everybody | everybody |
//! | reduce-scatter | every rank, by its count | everybody | nobody |
//! | reduce | every rank | everybody | the root |
//! | broadcast | every rank but the root | the root | everybody but the root |
//!
//! So no link carries the data more than about twice, whatever the number of ranks. The root of a
//! broadcast sends it once: W − 1 copies from its link would take W − 1 times as long. Nobody waits for
//! a whole slice either, as chunks are passed on while others arrive. The price is the second trip,
//! which short data does not pay: then one rank combines it all, for a reduce the root, otherwise the
//! ranks in turn, and the root of a broadcast sends it to everybody.

use std::ops::Range;

use thalweg_core::{Fingerprint, OperationKind};

use super::config::Place;
use crate::plan::part;

/// The table of one operation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// The bytes that each rank works on.
    pub slices: Vec<Option<Range<usize>>>,
    pub givers: Group,
    pub readers: Group,
}

/// A set of ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Group {
    Nobody,
    Everybody,
    Only(u32),
    AllBut(u32),
}

impl Group {
    pub fn has(self, rank: u32) -> bool {
        match self {
            Group::Nobody => false,
            Group::Everybody => true,
            Group::Only(one) => rank == one,
            Group::AllBut(one) => rank != one,
        }
    }
}

impl Layout {
    /// The table of a reduction of `bytes` bytes. `turn` says who combines short data.
    pub fn of_reduction(place: &Place, of: &Fingerprint, turn: u64, bytes: u64) -> Layout {
        let value_bytes = of.element.map_or(1, |element| element.bytes()) as u64;
        let is_reduce = of.kind == OperationKind::Reduce;
        let root = of.root.unwrap_or(0);
        // Between two ranks, the root of a reduce receives as much either way.
        let is_direct = bytes <= place.direct_bytes || (is_reduce && place.ranks == 2);
        // Smaller than the number of ranks, which has 32 bits.
        let turn = if is_reduce { root } else { (turn % u64::from(place.ranks)) as u32 };
        let slice = |rank: u32| match is_direct {
            true => (rank == turn).then(|| indices(0..bytes)),
            false => {
                let values = part(0..bytes / value_bytes, place.ranks.into(), rank.into());
                Some(indices(values.start * value_bytes..values.end * value_bytes))
            }
        };
        Layout {
            slices: (0..place.ranks).map(slice).collect(),
            givers: Group::Everybody,
            readers: if is_reduce { Group::Only(root) } else { Group::Everybody },
        }
    }

    /// The table of a reduce-scatter, whose counts were checked.
    pub fn of_counts(counts: &[u64], value_bytes: usize) -> Layout {
        let mut end = 0;
        let slice = |&count: &u64| {
            let start = end;
            end += count as usize * value_bytes;
            Some(start..end)
        };
        let slices = counts.iter().map(slice).collect();
        Layout { slices, givers: Group::Everybody, readers: Group::Nobody }
    }

    /// The table of a broadcast of `bytes` bytes.
    pub fn of_broadcast(place: &Place, root: u32, bytes: u64) -> Layout {
        let is_direct = bytes <= place.direct_bytes;
        let slice = |rank: u32| {
            // The others, counted through.
            let index = if rank < root { rank } else { rank.wrapping_sub(1) };
            (rank != root).then(|| match is_direct {
                true => indices(0..bytes),
                false => indices(part(0..bytes, u64::from(place.ranks - 1), index.into())),
            })
        };
        Layout {
            slices: (0..place.ranks).map(slice).collect(),
            givers: Group::Only(root),
            readers: if is_direct { Group::Nobody } else { Group::AllBut(root) },
        }
    }
}

/// Bytes that are in memory have indices.
fn indices(range: Range<u64>) -> Range<usize> {
    range.start as usize..range.end as usize
}

#[cfg(test)]
mod tests {
    use thalweg_core::{Element, NodeId};

    use super::*;
    use crate::mesh::Config;

    fn place(ranks: u32) -> Place {
        let mut config = Config::new((0..ranks).map(NodeId).collect(), 0);
        config.direct_bytes = 16;
        config.check().expect("the settings work")
    }

    fn reduction(kind: OperationKind, root: Option<u32>) -> Fingerprint {
        Fingerprint { root, element: Some(Element::F64), ..Fingerprint::new(kind) }
    }

    #[test]
    fn slices_are_whole_values() {
        let layout =
            Layout::of_reduction(&place(3), &reduction(OperationKind::AllReduce, None), 5, 64);
        assert_eq!(layout.slices, [Some(0..16), Some(16..40), Some(40..64)]);
        assert_eq!((layout.givers, layout.readers), (Group::Everybody, Group::Everybody));
        let layout = Layout::of_counts(&[2, 0, 1], 8);
        assert_eq!(layout.slices, [Some(0..16), Some(16..16), Some(16..24)]);
        assert_eq!(layout.readers, Group::Nobody);
    }

    #[test]
    fn one_rank_combines_short_data() {
        let layout =
            Layout::of_reduction(&place(3), &reduction(OperationKind::AllReduce, None), 5, 16);
        assert_eq!(layout.slices, [None, None, Some(0..16)], "it is the turn of rank 5 mod 3");
        let layout =
            Layout::of_reduction(&place(3), &reduction(OperationKind::Reduce, Some(1)), 5, 0);
        assert_eq!(layout.slices, [None, Some(0..0), None]);
        assert_eq!(layout.readers, Group::Only(1));
        let layout =
            Layout::of_reduction(&place(2), &reduction(OperationKind::Reduce, Some(1)), 5, 64);
        assert_eq!(layout.slices, [None, Some(0..64)]);
    }

    #[test]
    fn the_root_of_a_broadcast_sends_long_data_once() {
        let layout = Layout::of_broadcast(&place(4), 1, 30);
        assert_eq!(layout.slices, [Some(0..10), None, Some(10..20), Some(20..30)]);
        assert_eq!((layout.givers, layout.readers), (Group::Only(1), Group::AllBut(1)));
        let layout = Layout::of_broadcast(&place(3), 0, 16);
        assert_eq!(layout.slices, [None, Some(0..16), Some(0..16)]);
        assert_eq!(layout.readers, Group::Nobody);
        assert_eq!(Layout::of_broadcast(&place(1), 0, 30).slices, [None]);
    }
}
