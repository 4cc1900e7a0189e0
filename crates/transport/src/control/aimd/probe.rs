//! Probes of the base round trip at moments that all senders share.
//!
//! A sender that begins beside another job meets a queue, takes it for the length of the path, and adds a queue
//! of its own. To the other job that is congestion: it would give way until little is left of it. So from time
//! to time all jobs let the packets in flight arrive, at the same moment as far as their clocks agree, and see
//! the path without a queue. Then all mean the same by congestion, and get the same share.
//!
//! Times of different hosts have different epochs, so the moment is one of the clock that hosts share. Without
//! such a clock no sender probes: one that probes alone sees the queues of the others, and loses its share for
//! nothing.

use thalweg_core::{Span, Time};

/// Interval between base-RTT probes. It divides one second, since a shared phase is known modulo one second.
const EVERY: Span = Span::from_ms(500);
const _: () = assert!(Span::from_s(1).as_ps().is_multiple_of(EVERY.as_ps()));

/// Duration of a probe: longer than queues are, and than clocks that are kept by NTP differ.
const LASTS: Span = Span::from_ms(4);

/// Delay after the moment up to which a probe begins. A later one would be alone.
const MARGIN: Span = Span::from_ms(20);

/// State of the probes of one sender.
#[derive(Clone, Debug, Default)]
pub(super) struct BaseRttProbe {
    /// Time that the clock of all hosts showed at [`Time::ZERO`]. `None` if hosts share no clock.
    shared_phase: Option<Span>,
    /// Beginning of the latest probe.
    began: Time,
    is_probing: bool,
}

impl BaseRttProbe {
    pub fn new(shared_phase: Option<Span>) -> BaseRttProbe {
        BaseRttProbe { shared_phase, ..BaseRttProbe::default() }
    }

    /// Returns whether as little as possible should be in flight.
    #[inline]
    pub fn is_probing(&self) -> bool {
        self.is_probing
    }

    /// An acknowledgement came.
    #[inline]
    pub fn on_ack(&mut self, now: Time) {
        if self.is_probing {
            self.is_probing = now.since(self.began) < LASTS;
        } else if now.since(self.began) > MARGIN
            && let Some(phase) = self.shared_phase
        {
            let shared = now.since(Time::ZERO) + phase;
            let past_moment = Span::from_ps(shared.as_ps() % EVERY.as_ps());
            self.is_probing = past_moment < MARGIN;
            if self.is_probing {
                self.began = now;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_senders_probe_at_the_full_half_second() {
        let mut probe = BaseRttProbe::new(Some(Span::ZERO));
        let mut is_probing_at = |ms: u64| {
            probe.on_ack(Time::ZERO + Span::from_ms(ms));
            probe.is_probing()
        };
        assert!(!is_probing_at(700) && !is_probing_at(999));
        assert!(is_probing_at(1_002) && is_probing_at(1_005));
        assert!(!is_probing_at(1_009), "it was seen");
        assert!(!is_probing_at(1_015) && !is_probing_at(1_019), "once is enough");
        assert!(!is_probing_at(2_050), "too late");
        assert!(is_probing_at(3_000));
    }

    /// The moments of a clock that hosts share at which one of them probes, in milliseconds. Its driver began
    /// when that clock showed `epoch_ms`.
    fn moments(epoch_ms: u64, shared_phase: Option<Span>) -> Vec<u64> {
        let mut probe = BaseRttProbe::new(shared_phase);
        let mut is_probing = |ms: u64| {
            let was_probing = probe.is_probing();
            probe.on_ack(Time::ZERO + Span::from_ms(ms - epoch_ms));
            probe.is_probing() && !was_probing
        };
        (3_000..6_000).filter(|&ms| is_probing(ms)).collect()
    }

    #[test]
    fn hosts_whose_epochs_differ_probe_together() {
        for epoch_ms in [0, 120, 999, 2_250] {
            let phase = Span::from_ms(epoch_ms % 1_000);
            let expected = [3_000, 3_500, 4_000, 4_500, 5_000, 5_500];
            assert_eq!(moments(epoch_ms, Some(phase)), expected, "{epoch_ms}");
        }
    }

    #[test]
    fn no_sender_probes_without_a_shared_clock() {
        assert_eq!(moments(120, None), []);
    }
}
