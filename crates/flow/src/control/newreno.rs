//! NewReno: halve on loss, add a segment a round trip (RFC 5681, RFC 6582).

use super::Rule;

/// Halves the window on loss and on marks alike (RFC 3168), and grows it as all rules do that say
/// nothing else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewReno;

impl Rule for NewReno {
    const LOSS_FACTOR: f64 = 0.5;
}

#[cfg(test)]
mod tests {
    use thalweg_core::{Bytes, CongestionControl, Time};

    use super::super::testing::{Feeder, windowed};
    use super::*;

    #[test]
    fn slow_start_doubles_and_congestion_avoidance_adds_one() {
        let mut feeder = Feeder::default();
        let mut reno = windowed(NewReno, 10);
        feeder.round(&mut reno, 0);
        assert_eq!(reno.window(), Bytes::new(20_000));
        reno.on_loss(Time::ZERO);
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
