//! What was sent and not answered, and how that shows to be lost.
//!
//! Transmissions are numbered, queries and resends too. Each is in one queue for time and in one for
//! overtaking, which counts only among fragments of the same server. Entries of what was answered, or
//! sent again since, are passed over when they come to the front, so that everything costs constant
//! time for each transmission.

use std::collections::VecDeque;

use thalweg_core::{Span, Time};

use super::fragments::Fragments;

/// One transmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sent {
    pub transmission: u64,
    pub sequence: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Flight {
    next_transmission: u64,
    /// How many later ones must be answered; 0 for no number.
    loss_threshold: usize,
    /// All transmissions, in their order.
    in_order: VecDeque<Sent>,
    shards: Vec<Shard>,
    /// Overtaken, but too soon after the last thing that was done about them.
    held: VecDeque<Sent>,
}

#[derive(Clone, Debug, Default)]
struct Shard {
    /// Its transmissions that were not overtaken.
    in_order: VecDeque<Sent>,
    /// The largest numbers that were answered, smallest first, at most as many as the threshold.
    answered: Vec<u64>,
    /// The fragment whose answer came last.
    heard: Option<u64>,
}

impl Flight {
    pub fn new(shards: usize, loss_threshold: u32) -> Flight {
        Flight {
            next_transmission: 0,
            loss_threshold: loss_threshold as usize,
            in_order: VecDeque::new(),
            shards: vec![Shard::default(); shards],
            held: VecDeque::new(),
        }
    }

    #[inline]
    pub fn next_transmission(&self) -> u64 {
        self.next_transmission
    }

    /// Something about a fragment leaves. Returns its number.
    #[inline]
    pub fn send(&mut self, shard: usize, sequence: u64) -> u64 {
        let sent = Sent { transmission: self.next_transmission, sequence };
        self.next_transmission += 1;
        self.in_order.push_back(sent);
        self.shards[shard].in_order.push_back(sent);
        sent.transmission
    }

    /// A transmission was answered, each one once.
    #[inline]
    pub fn on_answer(&mut self, shard: usize, sequence: u64, transmission: u64) {
        let Shard { answered, heard, .. } = &mut self.shards[shard];
        *heard = Some(sequence);
        let place = answered.partition_point(|&number| number < transmission);
        if answered.len() < self.loss_threshold {
            answered.insert(place, transmission);
        } else if place > 0 {
            // The smallest makes room.
            answered[..place].rotate_left(1);
            answered[place - 1] = transmission;
        }
    }

    /// The fragment whose answer came last from this server.
    pub fn heard(&self, shard: usize) -> Option<u64> {
        self.shards[shard].heard
    }

    /// The next transmission that enough later ones have overtaken.
    // spec: A-33
    #[inline]
    pub fn pop_overtaken(&mut self, shard: usize, fragments: &Fragments) -> Option<Sent> {
        let shard = &mut self.shards[shard];
        let is_enough = shard.answered.len() == self.loss_threshold;
        let lost_below = shard.answered.first().copied().filter(|_| is_enough).unwrap_or(0);
        while let Some(&sent) = shard.in_order.front() {
            let is_awaited = fragments.awaits(&sent);
            if is_awaited && sent.transmission >= lost_below {
                return None;
            }
            shard.in_order.pop_front();
            if is_awaited {
                return Some(sent);
            }
        }
        None
    }

    /// Keeps an overtaken transmission for later.
    pub fn hold(&mut self, sent: Sent) {
        self.held.push_back(sent);
    }

    /// The next one that was kept and whose transmission is older than `age`.
    #[inline]
    pub fn pop_held(&mut self, now: Time, age: Span, fragments: &Fragments) -> Option<Sent> {
        pop_aged(&mut self.held, fragments, |sent_at| sent_at + age <= now)
    }

    /// The next transmission that was not answered in time, in their order. Whatever left before
    /// `calm_from` counts from there.
    // spec: A-33
    pub fn pop_expired(
        &mut self,
        now: Time,
        calm_from: Time,
        timeout: Span,
        fragments: &Fragments,
    ) -> Option<Sent> {
        pop_aged(&mut self.in_order, fragments, |sent_at| sent_at.max(calm_from) + timeout <= now)
    }

    /// The oldest transmission that is still awaited.
    pub fn oldest(&self, fragments: &Fragments) -> Option<Sent> {
        self.in_order.iter().find(|sent| fragments.awaits(sent)).copied()
    }

    /// When it left.
    pub fn oldest_sent_at(&self, fragments: &Fragments) -> Option<Time> {
        fragments.get(self.oldest(fragments)?.sequence).map(|fragment| fragment.sent_at)
    }

    /// Returns whether a transmission that is not answered will time out.
    pub fn is_timed(&self, transmission: u64) -> bool {
        self.in_order.binary_search_by_key(&transmission, |sent| sent.transmission).is_ok()
    }

    /// Panics where transmissions are not numbered in their order.
    pub fn check(&self) {
        let queues = self.shards.iter().map(|shard| &shard.in_order).chain([&self.in_order]);
        for queue in queues {
            let numbers = queue.iter().map(|sent| sent.transmission);
            assert!(numbers.is_sorted(), "transmissions leave in the order of their numbers");
            let last = queue.back().map(|sent| sent.transmission);
            let is_known = last.is_none_or(|last| last < self.next_transmission);
            assert!(is_known, "the next transmission has the next number");
        }
        let answered = self.shards.iter().map(|shard| &shard.answered);
        for answered in answered {
            let is_kept = answered.is_sorted() && answered.len() <= self.loss_threshold;
            assert!(is_kept, "as many answers are kept as the threshold needs, in their order");
        }
    }

    /// Passes over what is no longer awaited, so that the oldest is quickly found.
    #[inline]
    pub fn tidy(&mut self, fragments: &Fragments) {
        pop_aged(&mut self.in_order, fragments, |_| false);
    }
}

/// The front of a queue if its time has come. Passes over what is no longer awaited.
#[inline]
fn pop_aged(
    queue: &mut VecDeque<Sent>,
    fragments: &Fragments,
    is_due: impl Fn(Time) -> bool,
) -> Option<Sent> {
    while let Some(&sent) = queue.front() {
        let fragment = fragments.get(sent.sequence).filter(|_| fragments.awaits(&sent));
        if let Some(fragment) = fragment
            && !is_due(fragment.sent_at)
        {
            return None;
        }
        queue.pop_front();
        if fragment.is_some() {
            return Some(sent);
        }
    }
    None
}
