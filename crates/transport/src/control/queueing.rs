//! Queues as round trips show them.
//!
//! A packet that is lost by chance says nothing about a queue, and a sender's own queue loses nothing: it only
//! delays packets and their acknowledgements. So the shortest round trip of a round is compared with the
//! shortest of the last seconds; the difference is queueing delay. The shortest, because a host that sleeps
//! between packets makes single ones late.

use thalweg_core::{Span, Time};

use super::classes::ClassFilter;
use super::{Acked, SampledClasses};

/// Losses of the last rounds: those of a small window are too short to judge by.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    pub acked: u64,
    pub lost: u64,
}

/// Judges rounds, by the round trips of some classes. A round is over when a packet that was sent after its beginning
/// is acknowledged.
#[derive(Clone, Debug)]
pub struct RoundJudge {
    /// Accepted queueing delay.
    target: Span,
    classes: ClassFilter,
    base: BaseRtt,
    /// First transmission of the next round.
    round_to: u64,
    /// Shortest round trip of this round.
    shortest: Option<Span>,
    /// Packets that were acknowledged in this round.
    acked: u64,
    losses: Losses,
}

/// Shortest round trip of the last seconds: that of the path without queues.
#[derive(Clone, Copy, Debug, Default)]
pub struct BaseRtt {
    /// Shortest of the current and of the last age.
    shortest: [Option<Span>; 2],
    age_ends: Time,
}

/// State of the queues in a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueState {
    /// Queues are nearly empty.
    Empty,
    /// Packets wait, at least half as long as accepted.
    Filling,
    /// Packets wait longer than accepted, or many were lost: a queue is full, though too short to delay packets. Go
    /// down to this share of the window, in thousandths.
    Crowded(u64),
}

/// Least share of the window that a round leaves, in thousandths: halving is enough for one round.
const LEAST_SHARE: u64 = 500;

/// Time for which the shortest round trip holds. A path that became longer is known after twice as long.
const BASE_AGE: Span = Span::from_s(10);

/// Acknowledged packets per loss up to which losses count as chance. A full queue loses more.
const CHANCE_LOSSES: u64 = 4;

/// Packets that a judgement of losses needs: with one loss by chance in ten packets, this many have enough
/// losses to look like a full queue once in ten thousand times.
const LOSSES_AMONG: u64 = 64;

/// Least number of acknowledged packets of a round. The shortest round trip of few is longer than the shortest of many,
/// so that a small window would see a queue where a large one does not, and shrink further. An acknowledgement of
/// several packets counts as all of them, though it has one round trip: flows of few acknowledgements would never be
/// judged.
const LEAST_PACKETS: u64 = 8;

impl Losses {
    /// Returns whether a full queue has lost the packets. Begins to count again when that is known.
    pub fn are_many(&mut self) -> bool {
        if self.acked + self.lost < LOSSES_AMONG {
            return false;
        }
        let Losses { acked, lost } = std::mem::take(self);
        lost * CHANCE_LOSSES > acked
    }
}

impl RoundJudge {
    /// A judge that accepts a queueing delay of `target` in the round trips of these classes.
    pub fn new(target: Span, classes: SampledClasses) -> RoundJudge {
        RoundJudge {
            target,
            classes: ClassFilter::new(classes),
            base: BaseRtt::default(),
            round_to: 0,
            shortest: None,
            acked: 0,
            losses: Losses::default(),
        }
    }

    /// Takes in an acknowledgement of this number of packets, and judges the round if that ends it.
    #[inline]
    pub fn on_ack(&mut self, acked: &Acked, packets: u64) -> Option<QueueState> {
        if !self.classes.admits(acked) {
            return None;
        }
        self.acked += packets;
        self.losses.acked += packets;
        if let Some(round_trip) = acked.round_trip {
            self.base.learn(acked.now, round_trip);
            self.shortest = shorter(self.shortest, round_trip);
        }
        if acked.transmission < self.round_to || self.acked < LEAST_PACKETS {
            return None;
        }
        let state = self.judge();
        self.round_to = acked.next_transmission;
        (self.shortest, self.acked) = (None, 0);
        state
    }

    /// Returns whether packets have to carry their class.
    #[inline]
    pub fn needs_info(&self) -> bool {
        self.classes.is_on()
    }

    /// Keeps what holds for another flow on the same path, whose transmissions are numbered from 0.
    pub fn restart(&mut self) {
        (self.round_to, self.shortest, self.acked) = (0, None, 0);
        self.losses = Losses::default();
    }

    /// Takes in a loss, of a control that does not answer losses itself.
    pub fn on_loss(&mut self) {
        self.losses.lost += 1;
    }

    fn judge(&mut self) -> Option<QueueState> {
        // Where every packet had to be repaired, nothing can be measured, and that says enough.
        if self.losses.are_many() {
            return Some(QueueState::Crowded(LEAST_SHARE));
        }
        let base = self.base.shortest()?;
        let waiting = self.shortest? - base;
        Some(if waiting >= self.target {
            let (accepted, found) = (base + self.target, base + waiting);
            let share = accepted.as_ps().saturating_mul(1_000) / found.as_ps().max(1);
            QueueState::Crowded(share.max(LEAST_SHARE))
        } else if waiting * 2 >= self.target {
            QueueState::Filling
        } else {
            QueueState::Empty
        })
    }
}

impl BaseRtt {
    /// Takes in a measured round trip.
    #[inline]
    pub fn learn(&mut self, now: Time, round_trip: Span) {
        if now >= self.age_ends {
            self.shortest = [None, self.shortest[0]];
            self.age_ends = now + BASE_AGE;
        }
        self.shortest[0] = shorter(self.shortest[0], round_trip);
    }

    /// Shortest round trip of the last seconds.
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
    use super::super::testing::acked;
    use super::*;

    const TARGET: Span = Span::from_ms(4);

    fn ack(
        judge: &mut RoundJudge,
        now: Time,
        (transmission, next_transmission): (u64, u64),
        round_trip: Option<Span>,
    ) -> Option<QueueState> {
        judge.on_ack(&Acked { now, transmission, next_transmission, round_trip, ..acked() }, 1)
    }

    /// One round of acknowledgements with these round trips, and a number of losses.
    fn round(judge: &mut RoundJudge, trips_ms: &[u64], lost: u64) -> Option<QueueState> {
        (0..lost).for_each(|_| judge.on_loss());
        let next = judge.round_to + 10;
        let (last, before) = trips_ms.split_last().expect("a round has an answer");
        // The shortest decides, so further ones that are longer change nothing.
        let others = LEAST_PACKETS as usize - 1 - before.len();
        for trip in before.iter().copied().chain(std::iter::repeat_n(99, others)) {
            assert_eq!(ack(judge, Time::ZERO, (0, next), Some(Span::from_ms(trip))), None);
        }
        let numbers = (judge.round_to, next);
        ack(judge, Time::ZERO, numbers, Some(Span::from_ms(*last)))
    }

    fn judge() -> RoundJudge {
        let mut judge = RoundJudge::new(TARGET, SampledClasses::All);
        judge.round_to = 1;
        assert_eq!(round(&mut judge, &[6, 2, 3], 0), Some(QueueState::Empty));
        judge
    }

    #[test]
    fn the_shortest_of_a_round_tells_how_long_packets_wait() {
        let mut judge = judge();
        assert_eq!(round(&mut judge, &[50, 3, 90], 0), Some(QueueState::Empty), "some were late");
        assert_eq!(round(&mut judge, &[5, 4, 9], 0), Some(QueueState::Filling));
        assert_eq!(round(&mut judge, &[12, 15], 0), Some(QueueState::Crowded(500)));
        assert_eq!(round(&mut judge, &[6], 0), Some(QueueState::Crowded(1_000)));
    }

    #[test]
    fn a_few_losses_are_chance_and_many_are_not() {
        let mut judge = judge();
        let rounds = |judge: &mut RoundJudge, lost: u64| -> Vec<_> {
            (0..8).filter_map(|_| round(judge, &[2; 8], lost)).collect()
        };
        assert_eq!(rounds(&mut judge, 1), [QueueState::Empty; 8]);
        let judgements = rounds(&mut judge, 3);
        let full = QueueState::Crowded(LEAST_SHARE);
        assert_eq!(judgements.iter().filter(|&&one| one == full).count(), 1);
        assert_eq!(rounds(&mut judge, 0), [QueueState::Empty; 8], "they are forgotten");
    }

    #[test]
    fn a_longer_path_is_believed_in_the_end() {
        let mut judge = judge();
        let mut now = Time::ZERO;
        let judgements: Vec<_> = (0..3)
            .map(|_| {
                now += BASE_AGE;
                let answer = |_| ack(&mut judge, now, (u64::MAX, 0), Some(Span::from_ms(20)));
                (0..LEAST_PACKETS).filter_map(answer).last()
            })
            .collect();
        assert_eq!(judgements[0], Some(QueueState::Crowded(LEAST_SHARE)));
        assert_eq!(judgements[1], Some(QueueState::Empty));
    }

    #[test]
    fn another_flow_knows_the_path() {
        let mut judge = judge();
        judge.restart();
        judge.round_to = 1;
        assert_eq!(round(&mut judge, &[12, 15], 0), Some(QueueState::Crowded(500)));
    }

    #[test]
    fn nothing_measured_says_nothing() {
        let mut judge = RoundJudge::new(TARGET, SampledClasses::All);
        let answers = |judge: &mut RoundJudge| -> Vec<_> {
            (0..LEAST_PACKETS).filter_map(|at| ack(judge, Time::ZERO, (at, 0), None)).collect()
        };
        assert_eq!(answers(&mut judge), []);
        (0..LOSSES_AMONG).for_each(|_| judge.on_loss());
        assert_eq!(answers(&mut judge), [QueueState::Crowded(LEAST_SHARE)], "but losses do");
    }
}
