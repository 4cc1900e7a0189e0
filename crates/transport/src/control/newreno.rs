//! NewReno: halve on loss, add a segment a round trip (RFC 5681, RFC 6582).

use super::windowed::{Rule, Windowed};
use super::{ControlStart, Settings};

/// NewReno. It halves the window on loss and on marks alike (RFC 3168).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NewReno;

impl Settings for NewReno {
    type Running = Windowed<NewReno>;

    fn start(&self, start: &ControlStart) -> Windowed<NewReno> {
        Windowed::begin(start, NewReno)
    }
}

impl Rule for NewReno {
    const BETA: f64 = 0.5;
}

#[cfg(test)]
mod tests {
    use thalweg_core::Bytes;

    use super::super::Controller;
    use super::super::testing::{Feeder, lost, windowed};
    use super::*;

    #[test]
    fn slow_start_doubles_and_congestion_avoidance_adds_one() {
        let mut feeder = Feeder::default();
        let mut reno = windowed(NewReno, 10);
        feeder.round(&mut reno, 0);
        assert_eq!(reno.window(), Bytes::new(20_000));
        reno.on_loss(&lost(0, 10));
        assert_eq!(reno.window(), Bytes::new(10_000));
        feeder.round(&mut reno, 0);
        // Each of the ten divides by a slightly larger window than the one before.
        let exact = (0..10).fold(10_000.0, |window, _| window + 1_000_000.0 / window);
        assert_eq!(reno.window(), Bytes::new(exact as u64));
        assert!(exact > 10_900.0 && exact < 11_000.0);
    }

    #[test]
    fn a_window_of_marks_halves_once() {
        let mut feeder = Feeder::default();
        let mut reno = windowed(NewReno, 40);
        feeder.round(&mut reno, 40);
        assert_eq!(reno.window(), Bytes::new(20_000), "and holds for the rest of the window");
    }
}
