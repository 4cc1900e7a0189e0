//! Bursts, which are all that can be seen of a training from outside.

use thalweg_core::{Span, Time};

/// Less than this is no burst: questions and answers of the program.
const BURST_BYTES: u64 = 16 << 10;

/// A burst is over when nothing has moved, and nothing was left to move, for this long.
const SILENCE: Span = Span::from_ms(30);

/// The counters of a flow, cut into bursts. An iteration sends what the one before sent, as far as
/// nobody says otherwise.
#[derive(Clone, Debug)]
pub struct Bursts {
    /// Bytes that may come behind those that can be seen, as long as nothing was learnt: a socket holds only a part of
    /// a tensor.
    unseen: u64,
    ready: u64,
    sent: u64,
    /// Bytes that had left when the current burst began.
    began_at: Option<u64>,
    /// Bytes that the current burst is thought to send.
    volume: u64,
    /// Bytes that the last one sent.
    last: u64,
    moved_at: Time,
}

/// Meaning of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Nothing that matters.
    Nothing,
    /// A burst has begun.
    Begun {
        /// Bytes that it will send.
        volume: u64,
        /// Bytes of them that can be sent.
        ready: u64,
        /// Bytes of them that have left.
        sent: u64,
    },
    /// It goes on.
    Moved {
        /// Bytes that it will send.
        volume: u64,
        /// Bytes more that can be sent.
        ready: u64,
        /// Bytes more that have left.
        sent: u64,
    },
}

impl Bursts {
    /// Nothing has moved. While nothing is known of a burst, this number of bytes is thought to follow.
    pub(super) fn new(unseen: u64) -> Bursts {
        Bursts {
            unseen,
            ready: 0,
            sent: 0,
            began_at: None,
            volume: 0,
            last: 0,
            moved_at: Time::ZERO,
        }
    }

    /// Takes in counters. `None` if more has left than there was, or less than before. What was handed
    /// over may become less: it was an estimate. `known` is the volume if the job has announced it.
    pub(super) fn report(
        &mut self,
        now: Time,
        (ready, sent): (u64, u64),
        known: Option<u64>,
    ) -> Option<Step> {
        if sent < self.sent || sent > ready {
            return None;
        }
        let (before_ready, before_sent) = (self.ready, self.sent);
        (self.ready, self.sent) = (ready, sent);
        if (ready, sent) != (before_ready, before_sent) {
            self.moved_at = now;
        }
        let backlog = ready - sent;
        let Some(began_at) = self.began_at else {
            if backlog.max(sent - before_sent) < BURST_BYTES {
                return Some(Step::Nothing);
            }
            self.began_at = Some(before_sent);
            let (ready, sent) = (ready - before_sent, sent - before_sent);
            self.volume = known.unwrap_or(self.last).max(ready + self.hidden(known));
            return Some(Step::Begun { volume: self.volume, ready, sent });
        };
        if ready - began_at > self.volume {
            self.volume = ready - began_at + self.hidden(known);
        }
        let (ready, sent) = (ready.saturating_sub(before_ready), sent - before_sent);
        Some(if ready == 0 && sent == 0 {
            Step::Nothing
        } else {
            Step::Moved { volume: self.volume, ready, sent }
        })
    }

    fn hidden(&self, known: Option<u64>) -> u64 {
        if known.is_some() || self.last > 0 { 0 } else { self.unseen }
    }

    /// Bytes that the current burst has sent, if it is over: all that was expected, or nothing more came.
    pub(super) fn end(&mut self, now: Time) -> Option<u64> {
        let began_at = self.began_at?;
        let sent = self.sent - began_at;
        let is_empty = self.ready == self.sent;
        let is_over = sent >= self.volume || now.since(self.moved_at) >= SILENCE;
        if !(is_empty && is_over) {
            return None;
        }
        (self.began_at, self.last) = (None, sent);
        Some(sent)
    }

    /// When it has to be looked at again.
    pub(super) fn due(&self) -> Time {
        match self.began_at {
            Some(_) if self.ready == self.sent => self.moved_at + SILENCE,
            _ => Time::NEVER,
        }
    }

    /// Bytes that have left in all.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// True if it is in a burst.
    pub(super) fn is_active(&self) -> bool {
        self.began_at.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_ms(ms)
    }

    #[test]
    fn the_second_burst_is_as_large_as_the_first() {
        let mut bursts = Bursts::new(100_000);
        let mut report = |ms, ready, sent| {
            let step = bursts.report(at(ms), (ready, sent), None).expect("it counts up");
            (step, bursts.end(at(ms)))
        };
        assert_eq!(report(0, 100, 100), (Step::Nothing, None), "too little");
        let begun = Step::Begun { volume: 200_000, ready: 100_000, sent: 0 };
        assert_eq!(report(1, 100_100, 100), (begun, None));
        let moved = Step::Moved { volume: 200_000, ready: 50_000, sent: 100_000 };
        assert_eq!(report(2, 150_100, 100_100), (moved, None));
        let moved = Step::Moved { volume: 200_000, ready: 0, sent: 50_000 };
        assert_eq!(report(3, 150_100, 150_100), (moved, None), "more may come");
        assert_eq!(report(33, 150_100, 150_100), (Step::Nothing, Some(150_000)), "nothing came");
        let begun = Step::Begun { volume: 150_000, ready: 20_000, sent: 0 };
        assert_eq!(report(100, 170_100, 150_100), (begun, None));
        let moved = Step::Moved { volume: 150_000, ready: 130_000, sent: 150_000 };
        assert_eq!(report(101, 300_100, 300_100), (moved, Some(150_000)), "all that was expected");
    }

    #[test]
    fn an_announced_volume_counts_until_it_is_exceeded() {
        let mut bursts = Bursts::new(100_000);
        let step = bursts.report(at(0), (50_000, 0), Some(80_000));
        assert_eq!(step, Some(Step::Begun { volume: 80_000, ready: 50_000, sent: 0 }));
        let step = bursts.report(at(1), (90_000, 0), Some(80_000));
        assert_eq!(step, Some(Step::Moved { volume: 90_000, ready: 40_000, sent: 0 }));
    }

    #[test]
    fn counters_that_go_back_are_noticed() {
        let mut bursts = Bursts::new(100_000);
        assert!(bursts.report(at(0), (100, 50), None).is_some());
        for wrong in [(100, 49), (100, 101)] {
            assert_eq!(bursts.report(at(1), wrong, None), None, "{wrong:?}");
        }
        assert_eq!(bursts.report(at(1), (99, 50), None), Some(Step::Nothing), "it was a guess");
    }
}
