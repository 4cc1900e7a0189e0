//! What round trips tell about queues.
//!
//! A packet that is lost by chance says nothing about a queue, and on a link that loses one packet in a
//! hundred, eight workers repair one fragment in twelve. And a sender's own queue loses nothing: it only
//! makes wait, its own answers too. So here the time that answers take decides. The shortest round trip
//! of a round is compared with the shortest of the last seconds; what is more was waiting. The shortest,
//! because a host that sleeps between packets makes single ones late.

use crate::time::{Span, Time};

/// What was lost lately, over several rounds: those of a small window are too short to tell.
#[derive(Clone, Debug, Default)]
struct Losses {
    answered: u64,
    lost: u64,
}

/// Judges rounds: a round is over when something that was sent after its beginning is answered.
#[derive(Clone, Debug)]
pub struct Delay {
    /// How much waiting is wanted.
    target: Span,
    base: Base,
    /// The first transmission of the next round.
    round_to: u64,
    /// The shortest round trip of this round.
    shortest: Option<Span>,
    /// Answers of this round.
    answered: u64,
    losses: Losses,
}

/// The shortest round trip of the last seconds: what a path takes when nothing waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Base {
    /// Of the current and of the last age.
    shortest: [Option<Span>; 2],
    age_ends: Time,
}

/// What a round says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judgement {
    /// Queues are nearly empty.
    Empty,
    /// There is some waiting, less than wanted.
    Filling,
    /// There is more waiting than wanted: go down to this share of the window, in thousandths.
    Crowded(u64),
    /// Much was lost: a queue is full, though it is too short to make anybody wait.
    Lossy,
}

/// How long the shortest round trip is believed. A path that became longer is known after twice that.
const BASE_AGE: Span = Span::from_s(10);

/// One in so many may be lost by chance. A full queue loses more.
const CHANCE_LOSSES: u64 = 4;

/// Of so many, losses by chance are not that many: where one in ten is lost, once in ten thousand times.
const LOSSES_AMONG: u64 = 64;

/// A round has at least so many. The shortest of few is longer than the shortest of many, so that a
/// small window would believe in a crowd where a large one does not, and become smaller.
const LEAST_ANSWERS: u64 = 8;

impl Losses {
    /// Whether a full queue has lost them. Begins to count anew when that can be told.
    fn are_many(&mut self) -> bool {
        if self.answered + self.lost < LOSSES_AMONG {
            return false;
        }
        let Losses { answered, lost } = std::mem::take(self);
        lost * CHANCE_LOSSES > answered
    }
}

impl Delay {
    /// Packets may wait for `target`.
    pub fn new(target: Span) -> Delay {
        Delay {
            target,
            base: Base::default(),
            round_to: 0,
            shortest: None,
            answered: 0,
            losses: Losses::default(),
        }
    }

    /// A transmission was answered; the round trip is known unless it was repeated. Judges the round if
    /// that ends it.
    pub fn on_answer(
        &mut self,
        now: Time,
        transmission: u64,
        next_transmission: u64,
        round_trip: Option<Span>,
    ) -> Option<Judgement> {
        self.answered += 1;
        self.losses.answered += 1;
        if let Some(round_trip) = round_trip {
            self.learn(now, round_trip);
        }
        if transmission < self.round_to || self.answered < LEAST_ANSWERS {
            return None;
        }
        let judgement = self.judge();
        self.round_to = next_transmission;
        (self.shortest, self.answered) = (None, 0);
        judgement
    }

    /// For another flow on the same path, whose transmissions are numbered from 0.
    pub fn restarted(&self) -> Delay {
        Delay { base: self.base, ..Delay::new(self.target) }
    }

    /// A packet had to be repaired.
    pub fn on_loss(&mut self) {
        self.losses.lost += 1;
    }

    fn learn(&mut self, now: Time, round_trip: Span) {
        self.base.learn(now, round_trip);
        self.shortest = shorter(self.shortest, round_trip);
    }

    fn judge(&mut self) -> Option<Judgement> {
        // Where everything had to be repaired, nothing can be measured, and that says enough.
        if self.losses.are_many() {
            return Some(Judgement::Lossy);
        }
        let base = self.base.shortest()?;
        let waiting = self.shortest? - base;
        Some(if waiting >= self.target {
            let (wanted, found) = (base + self.target, base + waiting);
            Judgement::Crowded(wanted.as_ps().saturating_mul(1_000) / found.as_ps().max(1))
        } else if waiting * 2 >= self.target {
            Judgement::Filling
        } else {
            Judgement::Empty
        })
    }
}

impl Base {
    /// Takes in a measured round trip.
    #[inline]
    pub fn learn(&mut self, now: Time, round_trip: Span) {
        if now >= self.age_ends {
            self.shortest = [None, self.shortest[0]];
            self.age_ends = now + BASE_AGE;
        }
        self.shortest[0] = shorter(self.shortest[0], round_trip);
    }

    /// The shortest of those that are still believed.
    #[inline]
    pub fn shortest(&self) -> Option<Span> {
        self.shortest.iter().flatten().min().copied()
    }
}

fn shorter(known: Option<Span>, round_trip: Span) -> Option<Span> {
    Some(known.map_or(round_trip, |span| span.min(round_trip)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Span = Span::from_ms(4);

    /// One round of answers with these round trips, and so many losses.
    fn round(delay: &mut Delay, trips_ms: &[u64], lost: u64) -> Option<Judgement> {
        (0..lost).for_each(|_| delay.on_loss());
        let next = delay.round_to + 10;
        let (last, before) = trips_ms.split_last().expect("a round has an answer");
        // The shortest decides, so further ones that are longer change nothing.
        let others = LEAST_ANSWERS as usize - 1 - before.len();
        for trip in before.iter().copied().chain(std::iter::repeat_n(99, others)) {
            assert_eq!(delay.on_answer(Time::ZERO, 0, next, Some(Span::from_ms(trip))), None);
        }
        delay.on_answer(Time::ZERO, delay.round_to, next, Some(Span::from_ms(*last)))
    }

    fn delay() -> Delay {
        let mut delay = Delay::new(TARGET);
        delay.round_to = 1;
        assert_eq!(round(&mut delay, &[6, 2, 3], 0), Some(Judgement::Empty));
        delay
    }

    #[test]
    fn the_shortest_of_a_round_tells_how_long_packets_wait() {
        let mut delay = delay();
        assert_eq!(round(&mut delay, &[50, 3, 90], 0), Some(Judgement::Empty), "some were late");
        assert_eq!(round(&mut delay, &[5, 4, 9], 0), Some(Judgement::Filling));
        assert_eq!(round(&mut delay, &[12, 15], 0), Some(Judgement::Crowded(500)));
        assert_eq!(round(&mut delay, &[6], 0), Some(Judgement::Crowded(1_000)));
    }

    #[test]
    fn a_few_losses_are_chance_and_many_are_not() {
        let mut delay = delay();
        let rounds = |delay: &mut Delay, lost: u64| -> Vec<_> {
            (0..8).filter_map(|_| round(delay, &[2; 8], lost)).collect()
        };
        assert_eq!(rounds(&mut delay, 1), [Judgement::Empty; 8]);
        let judgements = rounds(&mut delay, 3);
        assert_eq!(judgements.iter().filter(|&&one| one == Judgement::Lossy).count(), 1);
        assert_eq!(rounds(&mut delay, 0), [Judgement::Empty; 8], "they are forgotten");
    }

    #[test]
    fn a_longer_path_is_believed_in_the_end() {
        let mut delay = delay();
        let mut now = Time::ZERO;
        let judgements: Vec<_> = (0..3)
            .map(|_| {
                now += BASE_AGE;
                let answer = |_| delay.on_answer(now, u64::MAX, 0, Some(Span::from_ms(20)));
                (0..LEAST_ANSWERS).filter_map(answer).last()
            })
            .collect();
        assert_eq!(judgements[0], Some(Judgement::Crowded(300)));
        assert_eq!(judgements[1], Some(Judgement::Empty));
    }

    #[test]
    fn another_flow_knows_the_path() {
        let mut delay = delay().restarted();
        delay.round_to = 1;
        assert_eq!(round(&mut delay, &[12, 15], 0), Some(Judgement::Crowded(500)));
    }

    #[test]
    fn nothing_measured_says_nothing() {
        let mut delay = Delay::new(TARGET);
        let answers = |delay: &mut Delay| -> Vec<_> {
            (0..LEAST_ANSWERS).filter_map(|at| delay.on_answer(Time::ZERO, at, 0, None)).collect()
        };
        assert_eq!(answers(&mut delay), []);
        (0..LOSSES_AMONG).for_each(|_| delay.on_loss());
        assert_eq!(answers(&mut delay), [Judgement::Lossy], "but losses do");
    }
}
