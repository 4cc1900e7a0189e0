//! How fast packets arrive, seen from their sender (draft-cheng-iccrg-delivery-rate-estimation).

use std::collections::VecDeque;

use thalweg_core::{Acked, Span, Time};

/// Compares, for each answer, what had arrived when its packet left with what has arrived now.
///
/// A message has all its bytes from the start, so nobody ever waits for an application in the middle of it,
/// and no sample has to be left out for that.
#[derive(Clone, Debug, Default)]
pub(super) struct DeliveryRate {
    delivered_bytes: u64,
    delivered_at: Time,
    /// When the packet left that was answered last: where the next interval of sending begins.
    first_sent_at: Time,
    /// Of transmissions that are newer than what was answered.
    sent: VecDeque<Snapshot>,
    /// The number of the first of them.
    first_transmission: u64,
}

/// What was known when a packet left.
#[derive(Clone, Copy, Debug)]
struct Snapshot {
    sent_at: Time,
    delivered_bytes: u64,
    delivered_at: Time,
    first_sent_at: Time,
}

/// What an answer shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sample {
    /// What had arrived when the answered packet left.
    pub prior_delivered_bytes: u64,
    /// What has arrived since then.
    pub bytes: u64,
    /// In so long: the longer one of sending it and of hearing of it.
    pub interval: Span,
}

impl DeliveryRate {
    pub fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes
    }

    /// The next transmission left.
    pub fn on_send(&mut self, now: Time, is_alone: bool) {
        if is_alone {
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        self.sent.push_back(Snapshot {
            sent_at: now,
            delivered_bytes: self.delivered_bytes,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
        });
    }

    /// Something arrived. None if a later packet has shown more already.
    pub fn on_ack(&mut self, acked: &Acked) -> Option<Sample> {
        self.delivered_bytes += acked.bytes.as_u64();
        self.delivered_at = acked.now;
        let place = acked.transmission.checked_sub(self.first_transmission)? as usize;
        let snapshot = *self.sent.get(place)?;
        self.sent.drain(..=place);
        self.first_transmission = acked.transmission + 1;
        self.first_sent_at = snapshot.sent_at;
        let sending = snapshot.sent_at.since(snapshot.first_sent_at);
        let hearing = acked.now.since(snapshot.delivered_at);
        Some(Sample {
            prior_delivered_bytes: snapshot.delivered_bytes,
            bytes: self.delivered_bytes - snapshot.delivered_bytes,
            interval: sending.max(hearing),
        })
    }

    /// Transmissions are numbered from 0 again.
    pub fn restart(&mut self) {
        self.sent.clear();
        self.first_transmission = 0;
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::Bytes;

    use super::*;

    fn at(us: u64) -> Time {
        Time::ZERO + Span::from_us(us)
    }

    fn ack(rate: &mut DeliveryRate, us: u64, transmission: u64) -> Option<(u64, u64, u64)> {
        let acked = Acked {
            now: at(us),
            bytes: Bytes::new(1_000),
            congested: false,
            round_trip: Span::from_us(10),
            in_flight: Bytes::new(1_000),
            in_recovery: false,
            transmission,
            next_transmission: transmission + 1,
        };
        let sample = rate.on_ack(&acked)?;
        Some((sample.prior_delivered_bytes, sample.bytes, sample.interval.as_ps() / 1_000_000))
    }

    #[test]
    fn a_sample_spans_what_arrived_while_its_packet_was_on_the_way() {
        let mut rate = DeliveryRate::default();
        // Four packets, 1 µs apart; answers come 2 µs apart from 10 µs on.
        (0..4).for_each(|us| rate.on_send(at(us), us == 0));
        assert_eq!(ack(&mut rate, 10, 0), Some((0, 1_000, 10)));
        rate.on_send(at(10), false);
        assert_eq!(ack(&mut rate, 12, 1), Some((0, 2_000, 12)));
        assert_eq!(ack(&mut rate, 14, 2), Some((0, 3_000, 14)));
        assert_eq!(ack(&mut rate, 16, 3), Some((0, 4_000, 16)));
        // Left when one had arrived, at 10 µs.
        assert_eq!(ack(&mut rate, 20, 4), Some((1_000, 4_000, 10)));
    }

    #[test]
    fn answers_that_come_at_once_do_not_count_as_fast() {
        let mut rate = DeliveryRate::default();
        (0..4).for_each(|index| rate.on_send(at(100 * index), index == 0));
        assert_eq!(ack(&mut rate, 310, 0), Some((0, 1_000, 310)));
        (1..4).for_each(|index| assert!(ack(&mut rate, 310, index).is_some()));
        // Sent in 100 µs from the packet before, answered in 1 µs from the answer before.
        rate.on_send(at(400), false);
        assert_eq!(ack(&mut rate, 401, 4), Some((4_000, 1_000, 100)));
    }

    #[test]
    fn what_a_later_packet_has_shown_is_no_sample() {
        let mut rate = DeliveryRate::default();
        (0..3).for_each(|us| rate.on_send(at(us), us == 0));
        assert!(ack(&mut rate, 10, 2).is_some());
        assert_eq!(ack(&mut rate, 11, 1), None);
        assert_eq!(rate.delivered_bytes(), 2_000, "it arrived all the same");
        assert_eq!(ack(&mut rate, 12, 9), None, "nor is what never left");
    }

    #[test]
    fn another_flow_counts_on() {
        let mut rate = DeliveryRate::default();
        rate.on_send(at(0), true);
        rate.on_send(at(0), false);
        assert!(ack(&mut rate, 10, 0).is_some());
        rate.restart();
        rate.on_send(at(50), true);
        assert_eq!(ack(&mut rate, 60, 0), Some((1_000, 1_000, 10)));
    }
}
