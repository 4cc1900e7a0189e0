//! By the time that answers take: queues stay short, and a loss by chance costs little.

use thalweg_core::delay::{Delay, Judgement};
use thalweg_core::{Acked, Span};

use super::{Rule, Window};

/// What a round in a crowd leaves of the window at least: halving is enough for one round.
const LEAST_SHARE: f64 = 0.5;

/// What loss leaves of the window when nothing had to wait. Chance lost the packet, or a queue too short
/// to make anybody wait: then it fills again soon.
const CHANCE_FACTOR: f64 = 0.9;

/// Slow start until something waits, then a segment a round trip up to the target.
#[derive(Clone, Debug)]
pub(crate) struct DelayRule {
    delay: Delay,
    /// Whether something waited in the last round.
    is_filling: bool,
}

impl DelayRule {
    pub fn new(target: Span) -> DelayRule {
        DelayRule { delay: Delay::new(target), is_filling: false }
    }

    fn obey(&mut self, window: &mut Window, judgement: Judgement) {
        self.is_filling = judgement != Judgement::Empty;
        match judgement {
            Judgement::Empty => {}
            Judgement::Filling => window.cut(1.0),
            Judgement::Crowded(thousandths) => {
                window.cut((thousandths as f64 / 1_000.0).max(LEAST_SHARE));
            }
            Judgement::Lossy => window.cut(LEAST_SHARE),
        }
    }
}

impl Rule for DelayRule {
    const LOSS_FACTOR: f64 = 0.7;

    fn loss_factor(&self) -> f64 {
        if self.is_filling { Self::LOSS_FACTOR } else { CHANCE_FACTOR }
    }

    fn grow(&mut self, window: &mut Window, acked: &Acked) {
        let &Acked { now, transmission, next_transmission, round_trip, .. } = acked;
        let round_trip = Some(round_trip);
        if let Some(judgement) =
            self.delay.on_answer(now, transmission, next_transmission, round_trip)
        {
            self.obey(window, judgement);
        }
        window.grow_as_reno(acked);
    }

    fn restart(&mut self) {
        self.delay = self.delay.restarted();
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::{CongestionControl, Time};

    use super::super::testing::{Feeder, windowed};
    use super::*;

    fn feeder(round_trip_us: u64) -> Feeder {
        Feeder { round_trip: Span::from_us(round_trip_us), ..Feeder::default() }
    }

    #[test]
    fn it_doubles_until_something_waits_and_shrinks_when_much_does() {
        let mut control = windowed(DelayRule::new(Span::from_ms(1)), 10);
        let mut feeder = feeder(100);
        feeder.round(&mut control, 0);
        feeder.round(&mut control, 0);
        assert_eq!(control.window().as_u64(), 40_000);
        feeder.round_trip = Span::from_us(700);
        (0..3).for_each(|_| feeder.round(&mut control, 0));
        let level = control.window().as_u64();
        (0..3).for_each(|_| feeder.round(&mut control, 0));
        assert!(control.window().as_u64() < level + 4_000, "no longer doubles");
        feeder.round_trip = Span::from_us(2_200);
        (0..3).for_each(|_| feeder.round(&mut control, 0));
        assert!(control.window().as_u64() < level / 2 + 10_000);
    }

    #[test]
    fn a_loss_costs_more_when_packets_wait() {
        let mut control = windowed(DelayRule::new(Span::from_ms(1)), 100);
        control.on_loss(Time::ZERO);
        assert_eq!(control.window().as_u64(), 90_000);
        control.rule.is_filling = true;
        control.on_loss(Time::ZERO);
        assert_eq!(control.window().as_u64() / 100, 629, "seven tenths");
    }
}
