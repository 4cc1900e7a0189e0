//! What became of every packet of an outgoing message.
//!
//! Each packet is in one of four states: not sent, on the way, arrived, lost. Every transmission, resends
//! too, has the next number of its flow, and when the answer to a later one comes back while enough others
//! were sent in between, the earlier one is lost. A lost resend is found the same way, without a timer.
//!
//! A packet is sent again only after its last transmission was given up, so at any time at most one
//! transmission of it counts.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;

use thalweg_transport::messages::bits::{Arrivals, BitRing};
use thalweg_transport::{LossDetector, LossThreshold, Transmission};

/// The state of an outgoing message, in packets.
#[derive(Clone, Debug)]
pub(crate) struct Scoreboard {
    /// How many packets the message has.
    packets: u32,
    /// The first packet that was never sent.
    next: u32,
    arrived: Arrivals,
    /// Starts where `arrived` does. Disjoint from it.
    lost: BitRing,
    lost_count: u32,
    /// Lost packets in the order they are sent again. Some may have arrived late after all.
    resend: VecDeque<u32>,
    /// The packet of each transmission that was not given up.
    sent: LossDetector<u32>,
    next_transmission: u64,
    /// Packets below this one are not given up again because a receiver says so.
    asked_end: u32,
    /// What was sent of packets below this one since the last timeout was sent again.
    timed_out_end: u32,
    /// First transmission after a timeout that gave up the oldest packet only, until something is answered.
    probe: Option<NonZeroU32>,
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// The packet that arrived, and the transmission that brought it.
    pub index: u32,
    pub transmission: u64,
    /// All packets below this one have arrived.
    pub cumulative: u32,
    /// Bit `i` says that packet `cumulative + 1 + i` has arrived.
    pub sack: u64,
    /// Number of packets right before `index` that have arrived as well; at most `index`.
    pub run: u32,
}

/// What an acknowledgement changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    /// How many packets are now known to have arrived that were not before.
    pub arrived: u32,
    /// The last transmission that it showed to be lost.
    pub lost_transmission: Option<u64>,
}

impl Answer {
    /// The packet that arrived, and those right before it.
    fn indices(&self) -> RangeInclusive<u32> {
        self.index - self.run.min(self.index)..=self.index
    }
}

impl Scoreboard {
    /// A scoreboard of no packets.
    pub fn new(threshold: LossThreshold) -> Scoreboard {
        Scoreboard {
            packets: 0,
            next: 0,
            arrived: Arrivals::default(),
            lost: BitRing::default(),
            lost_count: 0,
            resend: VecDeque::new(),
            sent: LossDetector::new(threshold),
            next_transmission: 0,
            asked_end: 0,
            timed_out_end: 0,
            probe: None,
        }
    }

    /// Begins a message. Keeps the memory of the last one.
    pub fn reset(&mut self, packets: u32) {
        self.packets = packets;
        self.next = 0;
        self.arrived.reset();
        self.lost.reset(0);
        self.lost_count = 0;
        self.resend.clear();
        self.sent.reset();
        self.next_transmission = 0;
        self.asked_end = 0;
        self.timed_out_end = 0;
        self.probe = None;
    }

    #[inline]
    pub fn is_complete(&self) -> bool {
        self.arrived.cumulative() == self.packets
    }

    #[inline]
    pub fn in_flight_packets(&self) -> u32 {
        self.next - self.arrived.total() - self.lost_count
    }

    #[inline]
    pub fn next_transmission(&self) -> u64 {
        self.next_transmission
    }

    /// How many transmissions were not the first of their packet.
    pub fn retransmissions(&self) -> u32 {
        (self.next_transmission - u64::from(self.next)) as u32
    }

    /// Whether a packet was sent, whatever became of it.
    #[inline]
    pub fn was_sent(&self, index: u32) -> bool {
        index < self.next
    }

    /// Whether there is a packet to send. New ones stay within `span_packets` of the first that
    /// has not arrived.
    #[inline]
    pub fn has_work(&self, span_packets: u32) -> bool {
        self.lost_count > 0 || self.may_send_new(span_packets)
    }

    #[inline]
    fn may_send_new(&self, span_packets: u32) -> bool {
        self.next < self.packets && self.next - self.arrived.cumulative() < span_packets
    }

    /// The packet to send next: lost ones first.
    #[inline]
    pub fn choose(&mut self, span_packets: u32) -> Option<u32> {
        if self.lost_count > 0 {
            return self.first_lost();
        }
        self.may_send_new(span_packets).then_some(self.next)
    }

    fn first_lost(&mut self) -> Option<u32> {
        while let Some(&index) = self.resend.front() {
            if self.lost.contains(index) {
                return Some(index);
            }
            self.resend.pop_front();
        }
        None
    }

    /// The packet that was chosen is on the way. Returns the number of its transmission.
    #[inline]
    pub fn on_sent(&mut self, index: u32) -> u64 {
        if index == self.next {
            self.next += 1;
        } else {
            assert!(self.lost.contains(index), "packet {index} is sent again and was not lost");
            self.resend.pop_front();
            self.lost.remove(index);
            self.lost_count -= 1;
        }
        let transmission = self.next_transmission;
        self.next_transmission += 1;
        self.sent.on_sent(transmission, index);
        transmission
    }

    /// Takes in an acknowledgement, where losses are found by order. `None`, and no change, if it speaks
    /// of what was never sent.
    #[inline]
    pub fn on_answer(&mut self, answer: &Answer) -> Option<Change> {
        let arrived = self.note_arrivals(answer)?;
        let lost_transmission = self.give_up_overtaken(answer.transmission);
        Some(Change { arrived, lost_transmission })
    }

    /// Takes in an acknowledgement, where the receiver finds losses: `resend` says that the first packet
    /// that has not arrived is lost. `None`, and no change, if it speaks of what was never sent.
    // spec: Q-07
    #[inline]
    pub fn on_verdict(&mut self, answer: &Answer, resend: bool) -> Option<Change> {
        let arrived = self.note_arrivals(answer)?;
        let lost_transmission = if resend { self.give_up_asked(answer) } else { None };
        self.sent.pass_over(|sent| !self.arrived.contains(sent.item));
        Some(Change { arrived, lost_transmission })
    }

    /// Updates what has arrived, and says how much that changed.
    #[inline]
    fn note_arrivals(&mut self, answer: &Answer) -> Option<u32> {
        if !self.is_plausible(answer) {
            return None;
        }
        let before = self.arrived.total();
        self.arrived.insert_below(answer.cumulative);
        if answer.run > 0 {
            self.note_run(answer);
        } else {
            self.arrived.insert(answer.index);
        }
        if answer.sack != 0 {
            self.arrived.insert_sack(answer.cumulative, answer.sack);
        }
        if self.lost_count > 0 {
            self.drop_arrived_from_lost(answer);
        } else {
            self.lost.advance(self.arrived.cumulative());
        }
        assert!(
            self.arrived.total() <= self.next && self.next <= self.packets,
            "{} of {} packets have arrived, {} were sent",
            self.arrived.total(),
            self.packets,
            self.next
        );
        Some(self.arrived.total() - before)
    }

    /// The packets of an answer to several.
    fn note_run(&mut self, answer: &Answer) {
        // Highest first: the lowest may move the start.
        answer.indices().rev().for_each(|index| {
            self.arrived.insert(index);
        });
    }

    #[inline]
    fn is_plausible(&self, answer: &Answer) -> bool {
        let sack_end =
            u64::from(answer.cumulative) + 1 + u64::from(64 - answer.sack.leading_zeros());
        let sack_was_sent = answer.sack == 0 || sack_end <= u64::from(self.next);
        self.was_sent(answer.index)
            && answer.cumulative <= self.next
            && sack_was_sent
            && self.was_sent_as(answer.index, answer.transmission)
    }

    /// Whether this transmission may have been of this packet. What the oldest ones were is forgotten.
    #[inline]
    fn was_sent_as(&self, index: u32, transmission: u64) -> bool {
        let oldest = self.sent.oldest().map_or(self.next_transmission, |sent| sent.number);
        transmission < oldest || self.sent.find(transmission) == Some(index)
    }

    /// Keeps lost and arrived packets disjoint.
    fn drop_arrived_from_lost(&mut self, answer: &Answer) {
        self.lost_count -= self.lost.advance(self.arrived.cumulative());
        answer.indices().for_each(|index| self.drop_from_lost(index));
        let mut sack = answer.sack;
        while sack != 0 {
            self.drop_from_lost(answer.cumulative + 1 + sack.trailing_zeros());
            sack &= sack - 1;
        }
    }

    fn drop_from_lost(&mut self, index: u32) {
        if self.lost.contains(index) {
            self.lost.remove(index);
            self.lost_count -= 1;
        }
    }

    /// Gives up what an answered transmission has overtaken. Returns the last transmission of it.
    #[inline]
    fn give_up_overtaken(&mut self, transmission: u64) -> Option<u64> {
        self.sent.on_answer(transmission);
        let mut last_lost = None;
        while let Some(lost) = self.sent.pop_lost(|sent| !self.arrived.contains(sent.item)) {
            self.mark_lost(lost.item);
            last_lost = Some(lost.number);
        }
        last_lost
    }

    /// Gives up the first packet that has not arrived, once, unless the timer sent it again after what the
    /// receiver answers: that may still be on its way. Returns its transmission.
    // spec: Q-07
    fn give_up_asked(&mut self, answer: &Answer) -> Option<u64> {
        let index = answer.cumulative;
        let is_first = index == self.arrived.cumulative() && self.was_sent(index);
        if !is_first || index < self.asked_end || self.lost.contains(index) {
            return None;
        }
        // Near the front: what arrived before it is forgotten.
        let transmission = self.sent.iter().find(|sent| sent.item == index)?.number;
        if index < self.timed_out_end && transmission > answer.transmission {
            return None;
        }
        self.asked_end = index + 1;
        self.mark_lost(index);
        Some(transmission)
    }

    fn mark_lost(&mut self, index: u32) {
        assert!(!self.lost.contains(index), "packet {index} is lost once until it is sent again");
        self.lost.insert(index);
        self.lost_count += 1;
        self.resend.push_back(index);
    }

    /// Gives up the oldest transmission in flight, where losses are found by order: its packet is sent again, and the
    /// answer shows what became of the others.
    pub fn on_probe(&mut self) {
        let is_awaited = |sent: &Transmission<u32>| !self.arrived.contains(sent.item);
        if let Some(oldest) = self.sent.pop_expired(is_awaited, |_| true) {
            self.mark_lost(oldest.item);
            // One was sent before, so it is not 0; answers have 32 bits as well.
            self.probe = NonZeroU32::new(self.next_transmission as u32);
        }
    }

    /// Takes in the first transmission that is answered after a probe. Where it is the probe or a later one, all that
    /// left before it and was not answered is lost: it had a timeout longer to arrive. An earlier one was late, and
    /// says nothing. Returns the last transmission before the probe if that is lost.
    #[inline]
    pub fn on_probe_answered(&mut self, answered: u64) -> Option<u64> {
        let probe = u64::from(self.probe.take()?.get());
        (answered >= probe).then(|| self.give_up_before(probe))
    }

    fn give_up_before(&mut self, probe: u64) -> u64 {
        let is_before = |sent: &Transmission<u32>| sent.number < probe;
        while let Some(lost) =
            self.sent.pop_expired(|sent| !self.arrived.contains(sent.item), is_before)
        {
            self.mark_lost(lost.item);
        }
        probe - 1
    }

    /// Gives up everything on the way. It is sent again in the order of the message.
    pub fn on_timeout(&mut self) {
        self.timed_out_end = self.next;
        self.probe = None;
        self.sent.clear();
        self.resend.clear();
        self.lost.reset(self.arrived.cumulative());
        self.lost_count = 0;
        for index in self.arrived.cumulative()..self.next {
            if !self.arrived.contains(index) {
                self.mark_lost(index);
            }
        }
    }
}

mod check;
#[cfg(test)]
mod tests;
