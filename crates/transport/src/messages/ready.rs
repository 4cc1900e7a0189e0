//! A queue of senders, by rank.

use std::collections::BTreeSet;

/// Names of senders that may send, each at most once, the smallest rank first. Where equals take turns, the
/// turn is part of the rank.
#[derive(Clone, Debug)]
pub struct Ready<R, N = u32> {
    ranked: BTreeSet<(R, N)>,
}

impl<R, N> Default for Ready<R, N> {
    fn default() -> Ready<R, N> {
        Ready { ranked: BTreeSet::new() }
    }
}

impl<R: Ord + Copy, N: Ord + Copy> Ready<R, N> {
    /// Puts somebody where its rank belongs, or takes it away if it has none. `queued` is the rank with
    /// which it stands here, if it does, and its owner keeps it.
    pub fn put(&mut self, name: N, queued: &mut Option<R>, wanted: Option<R>) {
        if *queued == wanted {
            return;
        }
        if let Some(rank) = queued.take() {
            self.ranked.remove(&(rank, name));
        }
        if let Some(rank) = wanted {
            self.ranked.insert((rank, name));
        }
        *queued = wanted;
    }

    /// The smallest rank, and whose it is.
    #[inline]
    pub fn first(&self) -> Option<(R, N)> {
        self.ranked.first().copied()
    }

    /// All of them, the smallest rank first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (R, N)> {
        self.ranked.iter().copied()
    }

    /// Returns whether nobody may send.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranked.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_stands_where_its_last_rank_belongs() {
        let mut ready = Ready::default();
        let mut queued = [None; 3];
        for (name, wanted) in [(0, Some(5)), (1, Some(7)), (2, Some(5)), (0, Some(9)), (2, None)] {
            ready.put(name, &mut queued[name], wanted);
        }
        assert_eq!(queued, [Some(9), Some(7), None]);
        assert_eq!(ready.iter().collect::<Vec<_>>(), [(7, 1), (9, 0)]);
        ready.put(1, &mut queued[1], None);
        assert_eq!((ready.first(), ready.is_empty()), (Some((9, 0)), false));
    }
}
