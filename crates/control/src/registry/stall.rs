//! Waits of the ranks of a job.
//!
//! Reports come as often as the rate of messages allows, and a job of thousands of ranks has as many stalls in each tree. So a
//! report is only taken down. All stalls are gone through after a gap that grows with their number: the time for that is a small
//! share of the thread that serves all jobs, whatever ranks send.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_core::{Reminder, Span, Time};

use crate::bucket::Bucket;
use crate::budget::CallRate;
use crate::message::{Diagnosis, Progress, Stall, Waits};
use crate::plane::Missing;

/// Time for which the same is not asked of the server again.
const ASK_GAP: Span = Span::from_ms(500);

/// The shortest time between two diagnoses of a job.
pub(super) const TELL_GAP: Span = Span::from_s(1);

/// Diagnoses of a job that differ from the one before, in fifths: eight soon, and one in five seconds after that.
const DIAGNOSES: CallRate = CallRate { per_s: 1, burst: 8 * DIAGNOSIS_COST };
const DIAGNOSIS_COST: u32 = 5;

/// The shortest time between two looks at all stalls of a job, and what each stall and each rank that is named adds to it.
const LOOK_GAP: Span = Span::from_ms(100);
const LOOK_GAP_OF_STALL: Span = Span::from_us(10);
const LOOK_GAP_OF_NAME: Span = Span::from_us(1);

/// The stalls of a job.
#[derive(Clone, Debug, Default)]
pub(super) struct Stalls {
    /// By rank, and by the tree that the rank waits in.
    by_rank: BTreeMap<(u32, u32), Ongoing>,
    /// Number of ranks that all of them name.
    names: u64,
    /// When all stalls were looked at.
    looked: Option<Time>,
    /// The stall that explains the others, as of that look.
    first: Option<(u32, u32)>,
    /// True if ranks have reported since that look, or if what was found has still to be sent.
    is_new: bool,
    /// The fragment that the server was last asked for, and when.
    asked: Option<(Fragment, Time)>,
    /// The answer of the server, and the fragment that it is about.
    answer: Option<(Fragment, Missing)>,
    /// Ranks and fragment that the last diagnosis named, and when it is repeated.
    told: Option<(Vec<u32>, Option<u64>, Reminder)>,
    /// When the last diagnosis was sent, and the number that may be sent. They outlive the stalls.
    sent_at: Option<Time>,
    left: Option<Bucket>,
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
    /// When the rank last reported it.
    heard: Time,
}

impl Ongoing {
    fn names(&self) -> u64 {
        match &self.stall.waits {
            Waits::Fragment(_) => 0,
            Waits::Ranks(ranks) => ranks.len() as u64,
        }
    }
}

impl Stalls {
    pub(super) fn note(&mut self, now: Time, (rank, tree): (u32, u32), stall: Stall) {
        let mut began = Time::from_ps(now.as_ps().saturating_sub(stall.since.as_ps()));
        if let Some(known) = self.by_rank.get(&(rank, tree)).filter(|known| {
            (known.stall.operation, &known.stall.waits) == (stall.operation, &stall.waits)
        }) {
            began = began.min(known.began);
        }
        let ongoing = Ongoing { stall, began, heard: now };
        self.names += ongoing.names();
        let before = self.by_rank.insert((rank, tree), ongoing);
        self.names -= before.map_or(0, |before| before.names());
        self.is_new = true;
    }

    /// Ends the rank's stalls that it came past in a tree. Operations are counted in the first one.
    pub(super) fn progress(&mut self, (rank, tree): (u32, u32), progress: &Progress) {
        self.end_of_rank(rank, |at, known| match known.stall.waits {
            Waits::Fragment(sequence) => at == tree && progress.fragment > sequence,
            Waits::Ranks(_) => tree == 0 && progress.operation > known.stall.operation,
        });
    }

    pub(super) fn forget(&mut self, rank: u32) {
        self.end_of_rank(rank, |_, _| true);
    }

    /// Ends the stalls of a rank that are over, by their trees.
    fn end_of_rank(&mut self, rank: u32, is_over: impl Fn(u32, &Ongoing) -> bool) {
        let own = self.by_rank.range((rank, 0)..=(rank, u32::MAX));
        let over = own.filter(|((_, tree), known)| is_over(*tree, known)).map(|(at, _)| *at);
        self.end(over.collect());
    }

    fn end(&mut self, over: Vec<(u32, u32)>) {
        if over.is_empty() {
            return;
        }
        for at in over {
            self.names -= self.by_rank.remove(&at).map_or(0, |known| known.names());
        }
        if self.by_rank.is_empty() {
            let Stalls { looked, sent_at, left, .. } = *self;
            *self = Stalls { looked, sent_at, left, ..Stalls::default() };
        }
    }

    /// Looks at all stalls, unless that was done a moment ago: ends those that are not repeated, and finds the one that explains
    /// the others. Returns true if ranks should learn of them.
    // spec: E-12
    pub(super) fn look(&mut self, now: Time, every: Span) -> bool {
        let is_early = self.looked.is_some_and(|looked| now.since(looked) < self.look_gap());
        if self.by_rank.is_empty() || is_early {
            return false;
        }
        self.looked = Some(now);
        let is_over = |known: &Ongoing| now.since(known.heard) > every.max(TELL_GAP) * 3;
        let over = self.by_rank.iter().filter(|(_, known)| is_over(known)).map(|(at, _)| *at);
        self.end(over.collect());
        self.first = self.find_first();
        std::mem::take(&mut self.is_new)
    }

    #[cfg(test)]
    pub(super) fn is_there(&self) -> bool {
        !self.by_rank.is_empty()
    }

    /// When all stalls were looked at.
    #[cfg(test)]
    pub(super) fn looked(&self) -> Option<Time> {
        self.looked
    }

    /// Number of stalls, and of ranks that they name.
    #[cfg(test)]
    pub(super) fn size(&self) -> u64 {
        self.by_rank.len() as u64 + self.names
    }

    fn look_gap(&self) -> Span {
        let stalls = self.by_rank.len() as u64;
        LOOK_GAP + LOOK_GAP_OF_STALL * stalls + LOOK_GAP_OF_NAME * self.names
    }

    /// The rank and the tree of the stall that explains the others, as of the last look.
    pub(super) fn first(&self) -> Option<((u32, u32), &Ongoing)> {
        let at = self.first?;
        Some((at, self.by_rank.get(&at)?))
    }

    /// The stall of the lowest fragment of a tree, or else the oldest. Fragments of different trees say nothing of each other:
    /// of their stalls the oldest counts.
    // spec: F-04
    fn find_first(&self) -> Option<(u32, u32)> {
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
        let first = first.map(|(_, at, _)| at);
        first.or_else(|| oldest().map(|(at, _)| *at))
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

    /// Answer of the server about a fragment.
    pub(super) fn answer_for(&self, fragment: Fragment) -> Option<&Missing> {
        self.answer.as_ref().filter(|(asked, _)| *asked == fragment).map(|(_, missing)| missing)
    }

    /// Returns whether a stall explains the others, with the server's answer if it is about a fragment.
    pub(super) fn is_explained(&self) -> bool {
        let is_answered = |fragment| self.answer_for(fragment).is_some();
        self.first().is_some() && self.first_fragment().is_none_or(is_answered)
    }

    /// The ranks that wait for a fragment.
    pub(super) fn waiting_for(&self, fragment: Fragment) -> BTreeSet<u32> {
        let Fragment { tree, sequence } = fragment;
        let waits = |((_, at), known): &(&(u32, u32), &Ongoing)| {
            *at == tree && known.stall.waits == Waits::Fragment(sequence)
        };
        self.by_rank.iter().filter(waits).map(|((rank, _), _)| *rank).collect()
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

    /// The ranks that these wait for and that wait for no rank themselves; these, if they wait in a circle.
    pub(super) fn roots(&self, ranks: Vec<u32>) -> Vec<u32> {
        let (mut seen, mut roots) = (Vec::new(), BTreeSet::new());
        let mut open = ranks.clone();
        open.retain(|rank| is_first_time(&mut seen, *rank));
        while let Some(rank) = open.pop() {
            let awaited = self.awaited_by(rank);
            if awaited.is_empty() {
                roots.insert(rank);
            }
            open.extend(awaited.into_iter().filter(|rank| is_first_time(&mut seen, *rank)));
        }
        if roots.is_empty() { ranks } else { roots.into_iter().collect() }
    }

    /// Returns whether a diagnosis says something new, or was not sent for a while. One that lasts is repeated after `every`,
    /// and then more and more rarely. Ranks can have it differ each time: then few are sent.
    // spec: E-12
    pub(super) fn is_news(&mut self, now: Time, every: Span, diagnosis: &Diagnosis) -> bool {
        let Diagnosis { culprits, fragment, .. } = diagnosis;
        if let Some((whom, what, reminder)) = &mut self.told
            && (&*whom, &*what) == (culprits, fragment)
        {
            return reminder.is_due(now);
        }
        let left = self.left.get_or_insert_with(|| Bucket::new(DIAGNOSES, now));
        let is_early = self.sent_at.is_some_and(|sent_at| now.since(sent_at) < TELL_GAP);
        if is_early || !left.take_many(now, DIAGNOSIS_COST) {
            // It is sent after a later look, if it still holds.
            self.is_new = true;
            return false;
        }
        self.sent_at = Some(now);
        let reminder = Reminder::new(now, every.max(TELL_GAP));
        self.told = Some((culprits.clone(), *fragment, reminder));
        true
    }
}

/// Returns whether a rank was not seen, and takes it for seen.
fn is_first_time(seen: &mut Vec<bool>, rank: u32) -> bool {
    let at = rank as usize;
    if seen.len() <= at {
        seen.resize(at + 1, false);
    }
    !std::mem::replace(&mut seen[at], true)
}
