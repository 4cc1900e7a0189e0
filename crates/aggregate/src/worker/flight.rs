//! Transmissions that are not answered, and detection of those that are lost.
//!
//! Transmissions are numbered, queries and resends too. Each is in one queue for time and in one for
//! overtaking, which counts only among fragments of the same server.

use thalweg_core::{Span, Time};
use thalweg_transport::{LossDetector, LossThreshold, Transmission};

use super::fragments::Fragments;

/// One transmission, and the sequence number of its fragment.
pub(super) type Sent = Transmission<u64>;

#[derive(Clone, Debug)]
pub(super) struct Flight {
    next_transmission: u64,
    /// All transmissions, in their order.
    in_order: LossDetector<u64>,
    shards: Vec<Shard>,
    /// Overtaken, but too soon after the last thing that was done about them.
    held: LossDetector<u64>,
}

#[derive(Clone, Debug)]
struct Shard {
    /// Transmissions to the server that were not overtaken.
    in_order: LossDetector<u64>,
    /// The fragment whose answer came last.
    answered_last: Option<u64>,
}

impl Flight {
    /// `loss_threshold` later ones must be answered; 0 for no number.
    pub fn new(shards: usize, loss_threshold: u32) -> Flight {
        let in_order = LossDetector::new(LossThreshold::Answered(loss_threshold));
        Flight {
            next_transmission: 0,
            in_order: LossDetector::by_time(),
            shards: vec![Shard { in_order, answered_last: None }; shards],
            held: LossDetector::by_time(),
        }
    }

    #[inline]
    pub fn next_transmission(&self) -> u64 {
        self.next_transmission
    }

    /// Something about a fragment leaves. Returns its number.
    #[inline]
    pub fn send(&mut self, shard: usize, sequence: u64) -> u64 {
        let transmission = self.next_transmission;
        self.next_transmission += 1;
        self.in_order.on_sent(transmission, sequence);
        self.shards[shard].in_order.on_sent(transmission, sequence);
        transmission
    }

    /// A transmission was answered, each one once.
    #[inline]
    pub fn on_answer(&mut self, shard: usize, sequence: u64, transmission: u64) {
        let shard = &mut self.shards[shard];
        shard.answered_last = Some(sequence);
        shard.in_order.on_answer(transmission);
    }

    /// The fragment whose answer came last from this server.
    pub fn answered_last(&self, shard: usize) -> Option<u64> {
        self.shards[shard].answered_last
    }

    /// The next transmission that enough later ones have overtaken.
    // spec: A-33
    #[inline]
    pub fn pop_overtaken(&mut self, shard: usize, fragments: &Fragments) -> Option<Sent> {
        self.shards[shard].in_order.pop_lost(|sent| fragments.awaits(sent))
    }

    /// Forgets the order of what is in flight: later packets overtake it, and only time shows whether it is lost.
    // spec: C-16
    pub fn forget_order(&mut self) {
        for shard in &mut self.shards {
            shard.in_order.forget();
        }
    }

    /// Keeps an overtaken transmission for later.
    pub fn hold(&mut self, sent: Sent) {
        self.held.on_sent(sent.number, sent.item);
    }

    /// The next one that was kept and whose transmission is older than `age`.
    #[inline]
    pub fn pop_held(&mut self, now: Time, age: Span, fragments: &Fragments) -> Option<Sent> {
        let is_old = |sent: &Sent| fragments.sent_at(sent) + age <= now;
        self.held.pop_expired(|sent| fragments.awaits(sent), is_old)
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
        let is_late = |sent: &Sent| fragments.sent_at(sent).max(calm_from) + timeout <= now;
        self.in_order.pop_expired(|sent| fragments.awaits(sent), is_late)
    }

    /// The oldest transmission that is still awaited.
    pub fn oldest(&self, fragments: &Fragments) -> Option<Sent> {
        self.in_order.iter().find(|sent| fragments.awaits(sent)).copied()
    }

    /// When it left.
    pub fn oldest_sent_at(&self, fragments: &Fragments) -> Option<Time> {
        Some(fragments.sent_at(&self.oldest(fragments)?))
    }

    /// Returns whether a transmission that is not answered will time out.
    pub fn is_timed(&self, transmission: u64) -> bool {
        self.in_order.find(transmission).is_some()
    }

    /// Panics where transmissions are not numbered in their order.
    pub fn check(&self) {
        self.in_order.check();
        self.shards.iter().for_each(|shard| shard.in_order.check());
    }

    /// Passes over what is no longer awaited, so that the oldest is quickly found.
    #[inline]
    pub fn tidy(&mut self, fragments: &Fragments) {
        self.in_order.pass_over(|sent| fragments.awaits(sent));
    }
}
