//! A window that does not move.

use thalweg_core::{Bytes, Rng, Time};

use super::aimd::floor_bytes;
use super::{Acked, ControlStart, Controller, Lost, Settings};

/// Settings of a window that does not move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fixed {
    /// The window, at least two packets.
    pub bytes: u64,
}

/// A window of the same size at all times.
#[derive(Clone, Copy, Debug)]
pub(super) struct FixedWindow(Bytes);

impl Settings for Fixed {
    type Running = FixedWindow;

    fn start(&self, start: &ControlStart) -> FixedWindow {
        FixedWindow(Bytes::new(self.bytes.max(floor_bytes(start))))
    }
}

impl Controller for FixedWindow {
    fn on_ack(&mut self, _acked: &Acked, _rng: &mut Rng) -> bool {
        false
    }

    fn on_loss(&mut self, _lost: &Lost) -> bool {
        false
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn window(&self) -> Bytes {
        self.0
    }

    fn frees_lost_packets(&self) -> bool {
        false
    }

    fn restart(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::super::testing::{acked, lost, rng};
    use super::*;

    #[test]
    fn nothing_moves_it() {
        let start = ControlStart { packet_bytes: 1_500, initial_packets: 10 };
        let mut fixed = Fixed { bytes: 50_000 }.start(&start);
        assert!(!fixed.on_loss(&lost(0, 1)));
        fixed.on_ack(&Acked { congested: true, ..acked() }, &mut rng());
        fixed.on_timeout(Time::ZERO);
        assert_eq!(fixed.window(), Bytes::new(50_000));
        assert_eq!(Fixed { bytes: 0 }.start(&start).window(), Bytes::new(3_000));
    }
}
