//! Messages that may send, by rank.

use std::collections::BTreeSet;

/// Places of messages that may send, the smallest rank first.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    ranked: BTreeSet<(u32, u32)>,
}

impl Ready {
    /// Puts the message of a place where its rank belongs, or takes it away if it has none. `queued` is
    /// the rank with which it stands here, if it does.
    pub(crate) fn put(&mut self, slot: u32, queued: &mut Option<u32>, wanted: Option<u32>) {
        if *queued == wanted {
            return;
        }
        if let Some(rank) = queued.take() {
            self.ranked.remove(&(rank, slot));
        }
        if let Some(rank) = wanted {
            self.ranked.insert((rank, slot));
        }
        *queued = wanted;
    }

    /// The smallest rank, and whose it is.
    pub(crate) fn first(&self) -> Option<(u32, u32)> {
        self.ranked.first().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranked.is_empty()
    }
}
