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
    by_rank: BTreeMap<u32, Ongoing>,
    /// The fragment that the server was last asked for, and when.
    asked: Option<(u64, Time)>,
    /// What it said of which fragment.
    answer: Option<(u64, Missing)>,
    /// Whom and what the last diagnosis named, and when it is repeated.
    told: Option<(Vec<u32>, Option<u64>, Reminder)>,
}

/// One rank's stall.
#[derive(Clone, Debug)]
pub(super) struct Ongoing {
    pub(super) stall: Stall,
    pub(super) began: Time,
    /// When the rank last said so.
    heard: Time,
}

impl Stalls {
    pub(super) fn note(&mut self, now: Time, rank: u32, stall: Stall) {
        let mut began = Time::from_ps(now.as_ps().saturating_sub(stall.since.as_ps()));
        if let Some(known) = self.by_rank.get(&rank).filter(|known| {
            (known.stall.operation, &known.stall.waits) == (stall.operation, &stall.waits)
        }) {
            began = began.min(known.began);
        }
        self.by_rank.insert(rank, Ongoing { stall, began, heard: now });
    }

    /// Ends the rank's stall if it came further.
    pub(super) fn progress(&mut self, rank: u32, progress: &Progress) {
        let is_past = |known: &Ongoing| match known.stall.waits {
            Waits::Fragment(sequence) => progress.fragment > sequence,
            Waits::Ranks(_) => progress.operation > known.stall.operation,
        };
        if self.by_rank.get(&rank).is_some_and(is_past) {
            self.forget(rank);
        }
    }

    pub(super) fn forget(&mut self, rank: u32) {
        self.by_rank.remove(&rank);
        if self.by_rank.is_empty() {
            *self = Stalls::default();
        }
    }

    /// Ends the stalls that are not repeated.
    pub(super) fn expire(&mut self, now: Time, every: Span) {
        let is_over = |known: &Ongoing| now.since(known.heard) > every.max(TELL_GAP) * 3;
        let over = self.by_rank.iter().filter(|(_, known)| is_over(known)).map(|(rank, _)| *rank);
        for rank in over.collect::<Vec<u32>>() {
            self.forget(rank);
        }
    }

    /// The stall that explains the others: at the lowest fragment, or else the oldest.
    pub(super) fn first(&self) -> Option<(u32, &Ongoing)> {
        let order = |known: &Ongoing| match known.stall.waits {
            Waits::Fragment(sequence) => (sequence, known.began),
            Waits::Ranks(_) => (u64::MAX, known.began),
        };
        self.by_rank
            .iter()
            .min_by_key(|(_, known)| order(known))
            .map(|(&rank, known)| (rank, known))
    }

    /// The fragment to ask the server for, if it is time.
    pub(super) fn question(&mut self, now: Time) -> Option<u64> {
        let Waits::Fragment(sequence) = self.first()?.1.stall.waits else { return None };
        let is_recent = |(asked, at): (u64, Time)| asked == sequence && now.since(at) < ASK_GAP;
        if self.asked.is_some_and(is_recent) {
            return None;
        }
        self.asked = Some((sequence, now));
        Some(sequence)
    }

    pub(super) fn answer(&mut self, sequence: u64, missing: Missing) {
        self.answer = Some((sequence, missing));
    }

    /// What the server said of a fragment.
    pub(super) fn answer_for(&self, sequence: u64) -> Option<&Missing> {
        self.answer.as_ref().filter(|(asked, _)| *asked == sequence).map(|(_, missing)| missing)
    }

    /// Whether the server was heard, where it has to be.
    pub(super) fn is_explained(&self) -> bool {
        self.first().is_some_and(|(_, known)| match known.stall.waits {
            Waits::Fragment(sequence) => self.answer_for(sequence).is_some(),
            Waits::Ranks(_) => true,
        })
    }

    /// The ranks that wait for a fragment.
    pub(super) fn waiting_for(&self, sequence: u64) -> impl Iterator<Item = u32> + '_ {
        let waits = move |known: &Ongoing| known.stall.waits == Waits::Fragment(sequence);
        self.by_rank.iter().filter(move |(_, known)| waits(known)).map(|(rank, _)| *rank)
    }

    /// Whoever these wait for that waits for no rank itself; these, if they wait in a circle.
    pub(super) fn roots(&self, ranks: Vec<u32>) -> Vec<u32> {
        let (mut seen, mut roots) = (BTreeSet::new(), BTreeSet::new());
        let mut open = ranks.clone();
        while let Some(rank) = open.pop() {
            if !seen.insert(rank) {
                continue;
            }
            match self.by_rank.get(&rank).map(|known| &known.stall.waits) {
                Some(Waits::Ranks(others)) if !others.is_empty() => open.extend(others),
                _ => drop(roots.insert(rank)),
            }
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
