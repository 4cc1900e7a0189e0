//! A window by queueing delay: queues stay short, and a loss by chance costs little.

use thalweg_core::Span;

use super::queueing::{QueueState, RoundJudge};
use super::window::Window;
use super::windowed::{Rule, Windowed};
use super::{Acked, ControlError, ControlStart, DelaySettings, SampledClasses, Settings};

/// Share of the window that a loss leaves when no packet had to wait. Chance lost the packet, or a queue too
/// short to delay packets: then it fills again soon.
const CHANCE_FACTOR: f64 = 0.9;

/// Settings of a window by queueing delay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delay {
    /// Time that packets may wait in queues.
    pub target: Span,
    /// Classes whose round trips are read.
    pub classes: SampledClasses,
}

impl Delay {
    /// Keeps queues at `target`, by the round trips of all classes.
    pub fn to(target: Span) -> Delay {
        Delay { target, classes: SampledClasses::All }
    }
}

impl Settings for Delay {
    type Running = Box<Windowed<DelayRule>>;

    fn start(&self, start: &ControlStart) -> Box<Windowed<DelayRule>> {
        Box::new(Windowed::begin(start, DelayRule::new(*self)))
    }

    fn check(&self) -> Result<(), ControlError> {
        if self.target == Span::ZERO {
            return Err(ControlError::Zero { control: "a window by delay", name: "target" });
        }
        Ok(())
    }

    fn by_delay(&mut self) -> DelaySettings<'_> {
        let (target, classes) = (Some(&mut self.target), Some(&mut self.classes));
        DelaySettings { target, classes, ..DelaySettings::default() }
    }
}

/// Slow start until packets wait, then a segment a round trip up to the target.
#[derive(Clone, Debug)]
pub(super) struct DelayRule {
    judge: RoundJudge,
    /// True if packets waited in the last round.
    is_filling: bool,
}

impl DelayRule {
    pub fn new(settings: Delay) -> DelayRule {
        let judge = RoundJudge::new(settings.target, settings.classes);
        DelayRule { judge, is_filling: false }
    }

    fn on_round(&mut self, window: &mut Window, state: QueueState) {
        self.is_filling = state != QueueState::Empty;
        match state {
            QueueState::Empty => {}
            QueueState::Filling => window.leave_slow_start(),
            QueueState::Crowded(thousandths) => window.cut(thousandths as f64 / 1_000.0),
        }
    }
}

impl Rule for DelayRule {
    const BETA: f64 = 0.7;

    fn loss_factor(&self) -> f64 {
        if self.is_filling { Self::BETA } else { CHANCE_FACTOR }
    }

    #[inline]
    fn needs_info(&self) -> bool {
        self.judge.needs_info()
    }

    fn grow(&mut self, window: &mut Window, acked: &Acked) {
        // The last packet of a message counts as a full one.
        let packets = (acked.bytes.as_u64() as f64 / window.segment) as u64;
        if let Some(state) = self.judge.on_ack(acked, packets.max(1)) {
            self.on_round(window, state);
        }
        window.grow_as_reno(acked);
    }

    fn restart(&mut self) {
        self.judge.restart();
    }
}

#[cfg(test)]
mod tests {
    use super::super::Controller;
    use super::super::testing::{Feeder, lost, windowed};
    use super::*;

    fn feeder(round_trip_us: u64) -> Feeder {
        Feeder { round_trip: Span::from_us(round_trip_us), ..Feeder::default() }
    }

    #[test]
    fn it_doubles_until_something_waits_and_shrinks_when_much_does() {
        let mut control = windowed(DelayRule::new(Delay::to(Span::from_ms(1))), 10);
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
        let mut control = windowed(DelayRule::new(Delay::to(Span::from_ms(1))), 100);
        control.on_loss(&lost(0, 1));
        assert_eq!(control.window().as_u64(), 90_000);
        control.rule.is_filling = true;
        control.on_loss(&lost(1, 2));
        assert_eq!(control.window().as_u64() / 100, 629, "seven tenths");
    }
}
