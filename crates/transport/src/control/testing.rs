//! Acknowledgements for tests of controls.

use thalweg_core::{Bytes, Rng, Span, Time};

use super::window::Window;
use super::windowed::{Rule, Windowed};
use super::{Acked, Controller, Lost};

/// Bytes of a full packet.
pub const SEGMENT: Bytes = Bytes::new(1_000);

/// An acknowledgement of one packet, 10 µs after it left, with ten packets in flight.
pub fn acked() -> Acked {
    Acked {
        now: Time::ZERO,
        bytes: SEGMENT,
        congested: false,
        round_trip: Some(Span::from_us(10)),
        priority: None,
        in_flight: Bytes::new(10_000),
        in_recovery: false,
        transmission: 0,
        next_transmission: 10,
        info: None,
        arrived: None,
    }
}

/// A loss of one transmission.
pub fn lost(transmission: u64, next_transmission: u64) -> Lost {
    Lost { now: Time::ZERO, transmission, next_transmission }
}

/// Random numbers for controls that do not draw.
pub fn rng() -> Rng {
    Rng::new(1)
}

/// A window that follows a rule.
pub fn windowed<R: Rule>(rule: R, initial_packets: u32) -> Windowed<R> {
    Windowed::new(Window::new(SEGMENT, initial_packets), rule)
}

/// Acknowledges one full packet of 1,000 bytes at a time, with a full window in flight, and numbers
/// transmissions as if every acknowledgement let one packet out.
pub struct Feeder {
    pub now: Time,
    pub transmission: u64,
    pub round_trip: Span,
}

impl Default for Feeder {
    fn default() -> Feeder {
        Feeder { now: Time::ZERO, transmission: 0, round_trip: Span::from_us(100) }
    }
}

impl Feeder {
    pub fn ack(&mut self, control: &mut impl Controller, congested: bool) {
        let window_packets = control.window().as_u64() / 1_000;
        let acked = Acked {
            now: self.now,
            congested,
            round_trip: Some(self.round_trip),
            in_flight: control.window(),
            transmission: self.transmission,
            next_transmission: self.transmission + window_packets,
            ..acked()
        };
        control.on_ack(&acked, &mut rng());
        self.transmission += 1;
    }

    /// One window of acknowledgements, the first `marked` of them congested.
    pub fn round(&mut self, control: &mut impl Controller, marked: u64) {
        let packets = control.window().as_u64() / 1_000;
        for packet in 0..packets {
            self.ack(control, packet < marked);
        }
        self.now += self.round_trip;
    }
}
