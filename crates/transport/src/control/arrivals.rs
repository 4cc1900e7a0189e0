//! The rate at which packets arrive, as their receiver reports it.

use thalweg_core::{Rate, Span};

use super::ArrivalCount;

/// Measures the rate between two reports that are a round trip apart.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ArrivalMeter {
    /// Report at which the current measurement began.
    begun: Option<ArrivalCount>,
    rate: Option<Rate>,
}

impl ArrivalMeter {
    /// Rate of the last measurement. `None` until there is one.
    #[inline]
    pub fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// Takes in a report. A measurement lasts for `round_trip` at least: over less, packets come in bursts.
    pub fn on_report(&mut self, report: ArrivalCount, round_trip: Span) {
        let Some(begun) = self.begun else {
            self.begun = Some(report);
            return;
        };
        if report.at <= begun.at || report.at.since(begun.at) < round_trip {
            return;
        }
        let bytes = report.bytes.wrapping_sub(begun.bytes);
        let lasted = report.at.since(begun.at);
        // What a receiver reports may be wrong; the rate that follows is at most that of the link.
        let bps = u128::from(bytes) * 8_000_000_000_000 / u128::from(lasted.as_ps());
        self.rate = Rate::from_bps(u64::try_from(bps).unwrap_or(u64::MAX));
        self.begun = Some(report);
    }

    /// Nothing was in flight: the time until the next report says nothing about the network.
    pub fn pause(&mut self) {
        self.begun = None;
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::Time;

    use super::*;

    fn report(us: u64, bytes: u64) -> ArrivalCount {
        ArrivalCount { at: Time::ZERO + Span::from_us(us), bytes }
    }

    // spec: M-18 machine
    #[test]
    fn a_measurement_lasts_for_a_round_trip() {
        let mut meter = ArrivalMeter::default();
        let mut rate = |us, bytes| {
            meter.on_report(report(us, bytes), Span::from_us(10));
            meter.rate().map(|rate| rate.as_bps() / 1_000_000)
        };
        assert_eq!(rate(100, 50_000), None, "one report is no rate");
        assert_eq!(rate(105, 90_000), None, "a burst");
        assert_eq!(rate(110, 62_500), Some(10_000));
        assert_eq!(rate(109, 0), Some(10_000), "an older report comes late");
        assert_eq!(rate(130, 65_000), Some(1_000));
    }

    // spec: M-18 machine
    #[test]
    fn a_pause_is_not_measured() {
        let mut meter = ArrivalMeter::default();
        let round_trip = Span::from_us(10);
        for own in [report(0, 0), report(10, 12_500)] {
            meter.on_report(own, round_trip);
        }
        meter.pause();
        for own in [report(1_000, 13_000), report(1_010, 25_500)] {
            meter.on_report(own, round_trip);
        }
        assert_eq!(meter.rate(), Some(Rate::from_gbps(10)));
    }

    #[test]
    fn counts_wrap_and_lies_do_no_harm() {
        let mut meter = ArrivalMeter::default();
        meter.on_report(report(0, u64::MAX - 499), Span::from_us(1));
        meter.on_report(report(8, 500), Span::from_us(1));
        assert_eq!(meter.rate(), Some(Rate::from_gbps(1)), "1,000 bytes in 8 µs");
        meter.on_report(ArrivalCount { at: Time::from_ps(9_000_000), bytes: 0 }, Span::ZERO);
        assert!(meter.rate().is_some_and(|rate| rate > Rate::from_gbps(1_000)));
        meter.on_report(report(20, 0), Span::ZERO);
        assert_eq!(meter.rate(), None, "nothing arrived");
    }
}
