//! Who waits for what in a job.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_core::{Reminder, Span, Time};

use crate::message::{Diagnosis, Progress, Stall, Waits};
use crate::plane::Missing;

/// How long the same is not asked of the server again.
const ASK_GAP: Span = Span::from_ms(500);

/// The shortest time between two diagnoses that say the same.
const TELL_GAP: Span = Span::from_s(1);

/// The stalls of a job.
#[derive(Clone, Debug, Default)]
pub(super) struct Stalls {
    /// By rank, and by the tree that the rank waits in.
    by_rank: BTreeMap<(u32, u32), Ongoing>,
    /// The fragment that the server was last asked for, and when.
    asked: Option<(Fragment, Time)>,
    /// What it said of which fragment.
    answer: Option<(Fragment, Missing)>,
    /// Whom and what the last diagnosis named, and when it is repeated.
    told: Option<(Vec<u32>, Option<u64>, Reminder)>,
}

/// A fragment of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fragment {
    pub(super) tree: u32,
    pub(super) sequence: u64,
}

/// One rank's stall in one tree.
#[derive(Clone, Debug)]
pub(super) struct Ongoing {
    pub(super) stall: Stall,
    pub(super) began: Time,
    /// When the rank last said so.
    heard: Time,
}

impl Stalls {
    pub(super) fn note(&mut self, now: Time, (rank, tree): (u32, u32), stall: Stall) {
        let mut began = Time::from_ps(now.as_ps().saturating_sub(stall.since.as_ps()));
        if let Some(known) = self.by_rank.get(&(rank, tree)).filter(|known| {
            (known.stall.operation, &known.stall.waits) == (stall.operation, &stall.waits)
        }) {
            began = began.min(known.began);
        }
        self.by_rank.insert((rank, tree), Ongoing { stall, began, heard: now });
    }

    /// Ends the rank's stalls that it came past in a tree. Operations are counted in the first one.
    pub(super) fn progress(&mut self, (rank, tree): (u32, u32), progress: &Progress) {
        self.retain(|(of, at), known| {
            let is_past = match known.stall.waits {
                Waits::Fragment(sequence) => at == tree && progress.fragment > sequence,
                Waits::Ranks(_) => tree == 0 && progress.operation > known.stall.operation,
            };
            of != rank || !is_past
        });
    }

    pub(super) fn forget(&mut self, rank: u32) {
        self.retain(|(of, _), _| of != rank);
    }

    fn retain(&mut self, keeps: impl Fn((u32, u32), &Ongoing) -> bool) {
        if self.by_rank.is_empty() {
            return;
        }
        self.by_rank.retain(|at, known| keeps(*at, known));
        if self.by_rank.is_empty() {
            *self = Stalls::default();
        }
    }

    /// Ends the stalls that are not repeated.
    pub(super) fn expire(&mut self, now: Time, every: Span) {
        let is_over = |known: &Ongoing| now.since(known.heard) > every.max(TELL_GAP) * 3;
        self.retain(|_, known| !is_over(known));
    }

    /// The rank and the tree of the stall that explains the others: that of the lowest fragment of a tree, or else the
    /// oldest. Fragments of different trees say nothing of each other: of their stalls the oldest counts.
    // spec: F-04
    pub(super) fn first(&self) -> Option<((u32, u32), &Ongoing)> {
        let mut of_trees = BTreeMap::new();
        for (at, known) in &self.by_rank {
            let Waits::Fragment(sequence) = known.stall.waits else { continue };
            let order = (sequence, known.began);
            let first = of_trees.entry(at.1).or_insert((order, *at, known));
            if order < first.0 {
                *first = (order, *at, known);
            }
        }
        let first = of_trees.into_values().min_by_key(|(_, _, known)| known.began);
        let oldest = || self.by_rank.iter().min_by_key(|(_, known)| known.began);
        let first = first.map(|(_, at, known)| (at, known));
        first.or_else(|| oldest().map(|(at, known)| (*at, known)))
    }

    /// The fragment of the first stall, if it is about one.
    fn first_fragment(&self) -> Option<Fragment> {
        let ((_, tree), known) = self.first()?;
        match known.stall.waits {
            Waits::Fragment(sequence) => Some(Fragment { tree, sequence }),
            Waits::Ranks(_) => None,
        }
    }

    /// The fragment to ask the server for, if it is time.
    pub(super) fn question(&mut self, now: Time) -> Option<Fragment> {
        let fragment = self.first_fragment()?;
        let is_recent =
            |(asked, at): (Fragment, Time)| asked == fragment && now.since(at) < ASK_GAP;
        if self.asked.is_some_and(is_recent) {
            return None;
        }
        self.asked = Some((fragment, now));
        Some(fragment)
    }

    pub(super) fn answer(&mut self, fragment: Fragment, missing: Missing) {
        self.answer = Some((fragment, missing));
    }

    /// What the server said of a fragment.
    pub(super) fn answer_for(&self, fragment: Fragment) -> Option<&Missing> {
        self.answer.as_ref().filter(|(asked, _)| *asked == fragment).map(|(_, missing)| missing)
    }

    /// Whether the server was heard, where it has to be.
    pub(super) fn is_explained(&self) -> bool {
        let is_answered = |fragment| self.answer_for(fragment).is_some();
        !self.by_rank.is_empty() && self.first_fragment().is_none_or(is_answered)
    }

    /// The ranks that wait for a fragment.
    pub(super) fn waiting_for(&self, fragment: Fragment) -> impl Iterator<Item = u32> + '_ {
        let Fragment { tree, sequence } = fragment;
        let waits = move |((_, at), known): &(&(u32, u32), &Ongoing)| {
            *at == tree && known.stall.waits == Waits::Fragment(sequence)
        };
        self.by_rank.iter().filter(waits).map(|((rank, _), _)| *rank)
    }

    /// The ranks that all stalls of a rank wait for. None if it waits for a fragment, or for nothing.
    fn awaited_by(&self, rank: u32) -> Vec<u32> {
        let mut all = Vec::new();
        for (_, known) in self.by_rank.range((rank, 0)..=(rank, u32::MAX)) {
            match &known.stall.waits {
                Waits::Ranks(ranks) if !ranks.is_empty() => all.extend(ranks),
                _ => return Vec::new(),
            }
        }
        all
    }

    /// Whoever these wait for that waits for no rank itself; these, if they wait in a circle.
    pub(super) fn roots(&self, ranks: Vec<u32>) -> Vec<u32> {
        let (mut seen, mut roots) = (BTreeSet::new(), BTreeSet::new());
        let mut open = ranks.clone();
        while let Some(rank) = open.pop() {
            if !seen.insert(rank) {
                continue;
            }
            let awaited = self.awaited_by(rank);
            if awaited.is_empty() {
                roots.insert(rank);
            }
            open.extend(awaited);
        }
        if roots.is_empty() { ranks } else { roots.into_iter().collect() }
    }

    /// Whether a diagnosis says something new, or was not sent for a while. One that lasts is repeated after `every`,
    /// and then more and more rarely.
    pub(super) fn is_news(&mut self, now: Time, every: Span, diagnosis: &Diagnosis) -> bool {
        let Diagnosis { culprits, fragment, .. } = diagnosis;
        if let Some((whom, what, reminder)) = &mut self.told
            && (&*whom, &*what) == (culprits, fragment)
        {
            return reminder.is_due(now);
        }
        let reminder = Reminder::new(now, every.max(TELL_GAP));
        self.told = Some((culprits.clone(), *fragment, reminder));
        true
    }
}
