//! The laws of a worker's accounts.

use thalweg_core::Check;
use thalweg_transport::Controller;

use super::fragments::{Fragment, State};
use super::{Epoch, Work, Worker};

// spec: T-12
impl Check for Worker {
    fn check(&self) {
        self.work.operations.check(&self.work.fragments);
        if let Some(epoch) = &self.epoch {
            epoch.check(&self.work);
        }
    }
}

impl Epoch {
    /// Looks at every fragment. Panics where bytes in flight are not those of fragments in flight, and where
    /// a fragment would wait for ever.
    fn check(&self, work: &Work) {
        self.flight.check();
        self.control.check();
        let watermark = work.fragments.watermark();
        assert!(self.next >= watermark, "what is complete is not sent");
        let mut in_flight_bytes = 0;
        for (sequence, fragment) in work.fragments.iter() {
            if sequence == watermark {
                assert_ne!(fragment.state, State::Complete, "the watermark is not complete");
            }
            if fragment.state == State::Sent {
                assert!(sequence < self.next, "fragment {sequence} was sent and is next");
                self.check_sent(sequence, fragment);
                let is_given_up = fragment.is_overtaken && self.control.frees_lost_packets();
                in_flight_bytes += if is_given_up { 0 } else { u64::from(fragment.packet_bytes) };
            }
        }
        assert_eq!(in_flight_bytes, self.in_flight_bytes, "bytes in flight are those of fragments");
    }

    /// A fragment without answer is in the queue that asks for it, or a timer will put it there.
    fn check_sent(&self, sequence: u64, fragment: &Fragment) {
        let last = fragment.last_transmission;
        assert!(
            fragment.first_transmission <= last,
            "the last transmission is not before the first"
        );
        if fragment.is_due {
            assert!(self.due.contains(&sequence), "fragment {sequence} is due and in no queue");
        } else {
            assert!(self.flight.is_timed(last), "fragment {sequence} is awaited without a timer");
        }
        if fragment.answer.is_some() {
            assert!(self.answers.contains(&sequence), "fragment {sequence} was asked for in vain");
        }
    }
}
