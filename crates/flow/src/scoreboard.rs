//! State of every packet of an outgoing message.
//!
//! Each packet is in one of four states: not sent, in flight, arrived, lost. Every transmission, resends
//! too, has the next number of its flow, and when the answer to a later one comes back while enough others
//! were sent in between, the earlier one is lost. A lost resend is found the same way, without a timer.
//!
//! A packet is sent again only after its last transmission was given up, so at any time at most one
//! transmission of it counts.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;

use thalweg_core::{Span, Time};
use thalweg_transport::control::Extent;
use thalweg_transport::messages::bits::{Arrivals, BitRing};
use thalweg_transport::{LossDetector, LossThreshold, PriorityLosses, Transmission};

use crate::config::LossDetection;

/// Most packets between an answered transmission and one that is not lost yet, however late packets come: as in Linux.
const MOST_REORDERING_PACKETS: u32 = 300;

/// The state of an outgoing message, in packets.
#[derive(Clone, Debug)]
pub(crate) struct Scoreboard {
    /// Number of packets of the message.
    packets: u32,
    /// The first packet that was never sent.
    next: u32,
    arrived: Arrivals,
    /// Starts where `arrived` does. Disjoint from it.
    lost: BitRing,
    lost_count: u32,
    /// Lost packets in the order they are sent again. Some may have arrived late after all.
    resend: VecDeque<u32>,
    /// Each transmission that was not given up.
    sent: LossDetector<Flying>,
    /// Finder of losses besides the timer and the order of transmissions.
    finder: Option<Box<Finder>>,
    next_transmission: u64,
    /// First transmission after a timeout that gave up the oldest packet only, until something is answered.
    probe: Option<NonZeroU32>,
}

/// The packet of a transmission, and the priority that it travels with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Flying {
    index: u32,
    priority: u8,
}

/// Finder of losses besides the timer and the order of transmissions.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "it is in a box, once for each place of a message")]
enum Finder {
    /// The receiver.
    Receiver(Asked),
    /// Order, and what order was wrong about.
    Adaptive(Episode),
    /// Priorities, here.
    Priorities(ByPriorities),
}

/// Packets that a receiver has asked for.
#[derive(Clone, Copy, Default, Debug)]
struct Asked {
    /// Packets below this one are not given up again because a receiver says so.
    end: u32,
    /// Transmissions of packets below this one since the last timeout are resends.
    timed_out_end: u32,
}

/// Transmissions that order showed to be lost since the window was last cut for one.
#[derive(Clone, Copy, Default, Debug)]
struct Episode {
    first: u64,
    /// Losses below this number belong to the same cut.
    end: u64,
    /// Number of those that have not arrived.
    missing: u32,
    /// The window before the cut.
    before: Extent,
}

impl Episode {
    fn on_loss(&mut self, number: u64, next_transmission: u64, window: Extent) {
        if number >= self.end {
            let (first, end) = (number, next_transmission);
            *self = Episode { first, end, missing: 0, before: window };
        }
        self.missing = self.missing.saturating_add(1);
    }

    /// A transmission that was given up was late. Returns the window before the cut, if all of them were.
    fn on_late(&mut self, number: u64) -> Option<Extent> {
        if number < self.first || self.missing == 0 {
            return None;
        }
        self.missing -= 1;
        if self.missing > 0 {
            return None;
        }
        self.end = number + 1;
        Some(self.before)
    }
}

#[derive(Clone, Debug)]
struct ByPriorities {
    losses: PriorityLosses<u32>,
    /// A packet was just found lost, or a probe is due: the window does not hold the next lost packet back.
    is_urgent: bool,
}

/// Times by which a sender finds losses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LossTimes {
    pub now: Time,
    /// Time that packets of one priority may come late.
    pub window: Span,
    /// Silence before a probe, once round trips are known.
    pub probe_after: Option<Span>,
}

/// Contents of an acknowledgement.
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

/// Effects of an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    /// Number of packets that are newly known to have arrived.
    pub arrived: u32,
    /// The last transmission that it showed to be lost.
    pub lost_transmission: Option<u64>,
    /// The window before the last cut, if all that the window was cut for was late.
    pub undone: Option<Extent>,
}

impl Answer {
    /// The packet that arrived, and those right before it.
    fn indices(&self) -> RangeInclusive<u32> {
        self.index - self.run.min(self.index)..=self.index
    }
}

impl Scoreboard {
    /// A scoreboard of no packets, for which a transmission is lost when one that left this many later was answered.
    pub fn new(reordering_packets: u32, detection: LossDetection) -> Scoreboard {
        let finder = match detection {
            LossDetection::ByOrder => None,
            LossDetection::ByPriority => Some(Finder::Receiver(Asked::default())),
            LossDetection::ByAdaptiveOrder => Some(Finder::Adaptive(Episode::default())),
            LossDetection::BySender => Some(Finder::Priorities(ByPriorities {
                losses: PriorityLosses::new(reordering_packets),
                is_urgent: false,
            })),
        };
        Scoreboard {
            packets: 0,
            next: 0,
            arrived: Arrivals::default(),
            lost: BitRing::default(),
            lost_count: 0,
            resend: VecDeque::new(),
            sent: LossDetector::new(LossThreshold::Sent(reordering_packets)),
            finder: finder.map(Box::new),
            next_transmission: 0,
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
        self.probe = None;
        match self.finder.as_deref_mut() {
            None => {}
            Some(Finder::Receiver(asked)) => *asked = Asked::default(),
            Some(Finder::Adaptive(episode)) => *episode = Episode::default(),
            Some(Finder::Priorities(found)) => {
                found.losses.reset();
                found.is_urgent = false;
            }
        }
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

    /// Number of transmissions that were not the first of their packet.
    pub fn retransmissions(&self) -> u32 {
        (self.next_transmission - u64::from(self.next)) as u32
    }

    /// True if a packet was sent, in any state.
    #[inline]
    pub fn was_sent(&self, index: u32) -> bool {
        index < self.next
    }

    /// True if there is a packet to send. New ones stay within `span_packets` of the first that
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

    /// Returns `true` if the next lost packet needs no room in the window.
    // spec: Q-15
    #[inline]
    pub fn is_urgent(&self) -> bool {
        match self.finder.as_deref() {
            Some(Finder::Priorities(found)) => found.is_urgent && self.lost_count > 0,
            _ => false,
        }
    }

    /// The packet that was chosen leaves, with a priority. Returns the number of its transmission.
    #[inline]
    pub fn on_sent(&mut self, index: u32, priority: u8) -> u64 {
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
        self.sent.on_sent(transmission, Flying { index, priority });
        if let Some(Finder::Priorities(found)) = self.finder.as_deref_mut() {
            found.losses.on_sent(transmission, priority, index);
            found.is_urgent = false;
        }
        transmission
    }

    /// Takes in an acknowledgement, where losses are found by order. `None`, and no change, if it speaks
    /// of what was never sent.
    #[inline]
    pub fn on_answer(&mut self, answer: &Answer, window: impl Fn() -> Extent) -> Option<Change> {
        let is_new = !self.arrived.contains(answer.index);
        let arrived = self.note_arrivals(answer)?;
        let mut undone = None;
        if let Some(Finder::Adaptive(episode)) = self.finder.as_deref_mut()
            && is_new
            && self.sent.widen(answer.transmission, MOST_REORDERING_PACKETS)
        {
            undone = episode.on_late(answer.transmission);
        }
        let lost_transmission = self.give_up_overtaken(answer.transmission, window);
        Some(Change { arrived, lost_transmission, undone })
    }

    /// Takes in an acknowledgement, where the receiver finds losses: `resend` says that the first packet
    /// that has not arrived is lost. `None`, and no change, if it speaks of what was never sent.
    // spec: Q-07
    #[inline]
    pub fn on_verdict(&mut self, answer: &Answer, resend: bool) -> Option<Change> {
        let arrived = self.note_arrivals(answer)?;
        let lost_transmission = if resend { self.give_up_asked(answer) } else { None };
        self.sent.pass_over(|sent| !self.arrived.contains(sent.item.index));
        Some(Change { arrived, lost_transmission, undone: None })
    }

    /// Takes in an acknowledgement, where the sender finds losses by priorities. `None`, and no change, if it speaks of
    /// what was never sent.
    // spec: Q-15
    pub fn on_answer_by_priority(&mut self, answer: &Answer, times: &LossTimes) -> Option<Change> {
        let priority = self.sent.find(answer.transmission).map(|flying| flying.priority);
        let arrived = self.note_arrivals(answer)?;
        let mut lost_transmission = None;
        if let Some(Finder::Priorities(found)) = self.finder.as_deref_mut() {
            lost_transmission = found.losses.on_answer(answer.transmission, priority);
        }
        lost_transmission = lost_transmission.max(self.give_up_due(times));
        self.sent.pass_over(|sent| !self.arrived.contains(sent.item.index));
        Some(Change { arrived, lost_transmission, undone: None })
    }

    /// Gives up what priorities show to be lost by now. Returns the last transmission of it.
    // spec: Q-15
    pub fn give_up_due(&mut self, times: &LossTimes) -> Option<u64> {
        let mut last_lost = None;
        while let Some(lost) = self.pop_shown(times.now) {
            self.mark_lost(lost.item);
            last_lost = last_lost.max(Some(lost.number));
        }
        self.set_times(times);
        last_lost
    }

    /// Removes and returns a transmission that priorities show to be lost by now.
    fn pop_shown(&mut self, now: Time) -> Option<Transmission<u32>> {
        let Some(Finder::Priorities(found)) = self.finder.as_deref_mut() else { return None };
        let is_awaited = |sent: &Transmission<u32>| !self.arrived.contains(sent.item);
        let lost = found.losses.pop_lost(now, is_awaited)?;
        found.is_urgent = true;
        Some(lost)
    }

    /// Has the oldest packet in flight sent once more, if it is time for that.
    // spec: Q-15
    pub fn probe_due(&mut self, times: &LossTimes) {
        let Some(Finder::Priorities(found)) = self.finder.as_deref_mut() else { return };
        let is_awaited = |sent: &Transmission<u32>| !self.arrived.contains(sent.item);
        if let Some(oldest) = found.losses.pop_probed(times.now, is_awaited) {
            found.is_urgent = true;
            self.mark_lost(oldest.item);
        }
        self.set_times(times);
    }

    /// Sets the times at which losses show and probes are due.
    pub fn set_times(&mut self, times: &LossTimes) {
        let Some(Finder::Priorities(found)) = self.finder.as_deref_mut() else { return };
        let is_awaited = |sent: &Transmission<u32>| !self.arrived.contains(sent.item);
        found.losses.set_times(times.now, (times.window, times.probe_after), is_awaited);
    }

    /// Time at which priorities show a loss or a probe is due, if nothing is answered until then.
    #[inline]
    pub fn loss_deadline(&self) -> Time {
        match self.finder.as_deref() {
            Some(Finder::Priorities(found)) => found.losses.deadline(),
            _ => Time::NEVER,
        }
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

    /// True if this transmission may have been of this packet. The packets of the oldest ones are forgotten.
    #[inline]
    fn was_sent_as(&self, index: u32, transmission: u64) -> bool {
        let oldest = self.sent.oldest().map_or(self.next_transmission, |sent| sent.number);
        let has_index = |flying: Flying| flying.index == index;
        transmission < oldest || self.sent.find(transmission).is_some_and(has_index)
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
    fn give_up_overtaken(&mut self, transmission: u64, window: impl Fn() -> Extent) -> Option<u64> {
        self.sent.on_answer(transmission);
        let mut last_lost = None;
        while let Some(lost) = self.sent.pop_lost(|sent| !self.arrived.contains(sent.item.index)) {
            self.mark_lost(lost.item.index);
            last_lost = Some(lost.number);
            if let Some(Finder::Adaptive(episode)) = self.finder.as_deref_mut() {
                episode.on_loss(lost.number, self.next_transmission, window());
            }
        }
        last_lost
    }

    /// Gives up the first packet that has not arrived, once, unless the timer sent it again after what the
    /// receiver answers: that may still be in flight. Returns its transmission.
    // spec: Q-07
    fn give_up_asked(&mut self, answer: &Answer) -> Option<u64> {
        let index = answer.cumulative;
        let is_first = index == self.arrived.cumulative() && self.was_sent(index);
        let Some(Finder::Receiver(asked)) = self.finder.as_deref_mut() else { return None };
        if !is_first || index < asked.end || self.lost.contains(index) {
            return None;
        }
        // Near the front: what arrived before it is forgotten.
        let transmission = self.sent.iter().find(|sent| sent.item.index == index)?.number;
        if index < asked.timed_out_end && transmission > answer.transmission {
            return None;
        }
        asked.end = index + 1;
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
        let is_awaited = |sent: &Transmission<Flying>| !self.arrived.contains(sent.item.index);
        if let Some(oldest) = self.sent.pop_expired(is_awaited, |_| true) {
            self.mark_lost(oldest.item.index);
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
        let is_before = |sent: &Transmission<Flying>| sent.number < probe;
        while let Some(lost) =
            self.sent.pop_expired(|sent| !self.arrived.contains(sent.item.index), is_before)
        {
            self.mark_lost(lost.item.index);
        }
        probe - 1
    }

    /// Gives up everything in flight. It is sent again in the order of the message.
    pub fn on_timeout(&mut self) {
        self.probe = None;
        self.sent.clear();
        match self.finder.as_deref_mut() {
            None => {}
            Some(Finder::Receiver(asked)) => asked.timed_out_end = self.next,
            // A timeout is not undone.
            Some(Finder::Adaptive(episode)) => {
                *episode = Episode { end: self.next_transmission, ..Episode::default() };
            }
            Some(Finder::Priorities(found)) => {
                found.losses.clear();
                found.is_urgent = false;
            }
        }
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
