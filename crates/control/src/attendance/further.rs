//! Progress of the further sending threads of a rank.
// spec: E-12, F-04

use std::collections::BTreeMap;

use crate::message::Progress;

/// The last progress of each further thread that the service has not got. They take turns, so that a rank with many threads
/// sends no more than one with few: a service reads every stream at a rate that one rank needs.
#[derive(Debug, Default)]
pub(super) struct Further {
    kept: BTreeMap<u32, Progress>,
    /// The tree whose turn was last.
    last: u32,
}

impl Further {
    /// Keeps the latest progress of a tree.
    pub(super) fn keep(&mut self, tree: u32, progress: Progress) {
        self.kept.insert(tree, progress);
    }

    /// The progress of the tree whose turn it is.
    pub(super) fn next(&mut self) -> Option<(u32, Progress)> {
        let later = self.kept.range(self.last.saturating_add(1)..).next();
        let (&tree, _) = later.or_else(|| self.kept.first_key_value())?;
        self.last = tree;
        Some((tree, self.kept.remove(&tree)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: F-04 machine
    #[test]
    fn threads_take_turns_with_their_last_progress() {
        let mut further = Further::default();
        let progress = |fragment| Progress { fragment, ..Progress::default() };
        for fragment in 0..3 {
            (1..4).for_each(|tree| further.keep(tree, progress(fragment)));
        }
        assert_eq!(further.next(), Some((1, progress(2))));
        further.keep(1, progress(3));
        assert_eq!([further.next(), further.next()], [2, 3].map(|tree| Some((tree, progress(2)))));
        assert_eq!((further.next(), further.next()), (Some((1, progress(3))), None));
    }
}
