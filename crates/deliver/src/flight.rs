//! Packets in flight to a peer, as far as echoes show.
//!
//! Few packets ask for an echo. One that does stands for all that left since the one before it: their bytes are
//! in flight until the echo comes, until echoes of later packets show that it will not, or until the tensor
//! ends.

use std::collections::BTreeMap;

use thalweg_core::Time;
use thalweg_transport::{LossDetector, LossThreshold};

/// Later echoes that show a packet or its echo to be lost. Packets take many paths, and a tenth of them asks.
const REORDERING: LossThreshold = LossThreshold::Answered(3);

/// Packets to one peer.
#[derive(Debug)]
pub(crate) struct Flight {
    /// Number of the next packet. All packets to the peer are numbered.
    next: u64,
    /// Bytes of all packets in flight.
    bytes: u64,
    /// Bytes among them that left since a packet last asked for an echo.
    unasked_bytes: u64,
    /// Bytes that each packet without echo stands for, by the place of its tensor, its departure and its number.
    asked: BTreeMap<(u32, Time, u64), u64>,
    detector: LossDetector<(u32, Time)>,
}

/// A packet that asked for an echo.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Asked {
    /// Number of the packet.
    pub number: u64,
    /// Bytes that it stands for.
    pub bytes: u64,
}

impl Flight {
    pub fn new() -> Flight {
        Flight {
            next: 0,
            bytes: 0,
            unasked_bytes: 0,
            asked: BTreeMap::new(),
            detector: LossDetector::new(REORDERING),
        }
    }

    /// Number of the next packet.
    #[inline]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Bytes in flight.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that left since a packet last asked for an echo.
    #[inline]
    pub fn unasked_bytes(&self) -> u64 {
        self.unasked_bytes
    }

    /// A packet of a tensor leaves. Returns its number.
    #[inline]
    pub fn on_sent(&mut self, now: Time, tensor: u32, bytes: u64, asks: bool) -> u64 {
        let number = self.next;
        self.next += 1;
        self.bytes += bytes;
        self.unasked_bytes += bytes;
        if asks {
            let bytes = std::mem::take(&mut self.unasked_bytes);
            self.asked.insert((tensor, now, number), bytes);
            self.detector.on_sent(number, (tensor, now));
        }
        number
    }

    /// An echo of a packet of a tensor came. Returns the packet, unless it was given up or an echo of it came
    /// before.
    #[inline]
    pub fn on_echo(&mut self, tensor: u32, sent_at: Time) -> Option<Asked> {
        let first = (tensor, sent_at, 0);
        let (&key, &bytes) = self.asked.range(first..=(tensor, sent_at, u64::MAX)).next()?;
        self.settle(key);
        self.detector.on_answer(key.2);
        Some(Asked { number: key.2, bytes })
    }

    /// Removes and returns a packet whose echo is lost, as later ones show.
    #[inline]
    pub fn pop_lost(&mut self) -> Option<u64> {
        let lost = self.detector.pop_lost(|sent| {
            let (tensor, sent_at) = sent.item;
            self.asked.contains_key(&(tensor, sent_at, sent.number))
        })?;
        let (tensor, sent_at) = lost.item;
        self.settle((tensor, sent_at, lost.number));
        Some(lost.number)
    }

    /// Nothing of a tensor counts as in flight any more. Returns the last packet of it that asked for an echo,
    /// for all that did.
    pub fn on_end(&mut self, tensor: u32) -> Option<Asked> {
        let mut ended: Option<Asked> = None;
        let last = (tensor, Time::NEVER, u64::MAX);
        while let Some((&key, &bytes)) = self.asked.range((tensor, Time::ZERO, 0)..=last).next() {
            self.settle(key);
            let before = ended.map_or(0, |ended| ended.bytes);
            ended = Some(Asked { number: key.2, bytes: before + bytes });
        }
        ended
    }

    /// Nothing counts as in flight any more.
    pub fn give_up(&mut self) {
        self.bytes = 0;
        self.unasked_bytes = 0;
        self.asked.clear();
        self.detector.clear();
    }

    fn settle(&mut self, key: (u32, Time, u64)) {
        let bytes = self.asked.remove(&key).expect("a packet is settled once");
        self.bytes -= bytes;
    }

    /// Panics where bytes in flight are not those of packets.
    // spec: T-12
    pub fn check(&self) {
        let asked: u64 = self.asked.values().sum();
        assert_eq!(asked + self.unasked_bytes, self.bytes, "bytes in flight are those of packets");
        let is_found = |key: &(u32, Time, u64)| self.detector.find(key.2).is_some();
        assert!(self.asked.keys().all(is_found), "a packet without echo may be found to be lost");
        self.detector.check();
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::Span;

    use super::*;

    fn at(us: u64) -> Time {
        Time::ZERO + Span::from_us(us)
    }

    /// Packets of 100 bytes of two tensors in turn, one every microsecond; every third asks.
    fn flight(packets: u64) -> Flight {
        let mut flight = Flight::new();
        for number in 0..packets {
            let tensor = (number / 3 % 2) as u32;
            assert_eq!(flight.on_sent(at(number), tensor, 100, number % 3 == 2), number);
            flight.check();
        }
        flight
    }

    #[test]
    fn an_echo_answers_for_what_left_since_the_last_question_and_once() {
        let mut flight = flight(8);
        assert_eq!((flight.bytes(), flight.unasked_bytes()), (800, 200));
        assert_eq!(flight.on_echo(0, at(5)), None, "the packet is of the other tensor");
        assert_eq!(flight.on_echo(1, at(5)), Some(Asked { number: 5, bytes: 300 }));
        assert_eq!(flight.on_echo(1, at(5)), None, "it came before");
        assert_eq!(flight.on_echo(1, at(4)), None, "it did not ask");
        flight.check();
        assert_eq!(flight.bytes(), 500);
    }

    #[test]
    fn packets_of_the_same_moment_are_distinct() {
        let mut flight = Flight::new();
        (0..3).for_each(|_| _ = flight.on_sent(at(1), 7, 10, true));
        let echoes = [(); 4].map(|()| flight.on_echo(7, at(1)).map(|asked| asked.number));
        assert_eq!(echoes, [Some(0), Some(1), Some(2), None]);
    }

    #[test]
    fn three_later_echoes_show_a_loss() {
        let mut flight = flight(15);
        for number in [5, 8] {
            flight.on_echo((number / 3 % 2) as u32, at(number)).expect("it is in flight");
            assert_eq!(flight.pop_lost(), None);
        }
        flight.on_echo(1, at(11)).expect("it is in flight");
        assert_eq!((flight.pop_lost(), flight.pop_lost()), (Some(2), None));
        assert_eq!(flight.bytes(), 300);
        assert_eq!(flight.on_echo(0, at(2)), None, "it was given up");
        flight.check();
    }

    #[test]
    fn a_tensor_that_ends_leaves_nothing_behind() {
        let mut flight = flight(13);
        assert_eq!(flight.on_end(0), Some(Asked { number: 8, bytes: 600 }));
        assert_eq!(flight.on_end(0), None);
        flight.check();
        assert_eq!(flight.bytes(), 700);
        flight.give_up();
        flight.check();
        assert_eq!((flight.bytes(), flight.next(), flight.on_end(1)), (0, 13, None));
    }
}
