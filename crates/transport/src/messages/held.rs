//! Acknowledgements that answer several packets.
//!
//! While packets of a message arrive in order, their acknowledgement waits for the next ones. It is sent when a sender
//! needs it, when it answers enough packets, or when it has waited long enough. What shows a loss or a mark does not
//! wait.
// spec: F-06

use thalweg_core::{Span, Time, Timers};

use super::config::MAX_ACK_BATCH_PACKETS;
use crate::endpoint::Reply;

/// Packets that are answered one by one after one out of order: as many as show their sender that it was lost.
const SINGLE_PACKETS: u32 = 4;

/// Time at which an acknowledgement is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckTime {
    /// It may wait for later packets of the message.
    Later {
        /// Place of the message.
        slot: u32,
        /// Arrival of the packet.
        arrived: Time,
    },
    /// At once, and in place of one that waits if it says the same and more.
    Now {
        /// Place of the message.
        slot: u32,
    },
    /// At once, of a message of which nothing waits.
    Alone,
}

/// Order in which the packets of a message arrive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sequence {
    /// The packet after the last one that came.
    next: u32,
    /// First of the packets that came one by one, up to the last one.
    run_from: u32,
    /// Further packets that are answered one by one.
    singles: u32,
}

impl Sequence {
    /// A packet came.
    #[inline]
    pub fn note(&mut self, index: u32) {
        if index == self.next {
            self.singles = self.singles.saturating_sub(1);
        } else {
            self.run_from = index;
            self.singles = SINGLE_PACKETS;
        }
        self.next = index.saturating_add(1);
    }

    /// Returns whether packets came in order for a while.
    #[inline]
    pub fn is_calm(&self) -> bool {
        self.singles == 0
    }

    /// Number of packets that came one by one before the last one, which is `index`.
    #[inline]
    pub fn run(&self, index: u32) -> u16 {
        // Fits 16 bits.
        index.saturating_sub(self.run_from).min(MAX_ACK_BATCH_PACKETS) as u16
    }
}

/// An acknowledgement that waits.
#[derive(Debug)]
struct HeldAck {
    reply: Reply,
    /// Packets that it answers.
    packets: u32,
    /// Arrival of the last of them.
    arrived: Time,
    /// When it leaves at the latest.
    due: Time,
}

/// Acknowledgements that wait for further packets, at most one for each message that arrives.
#[derive(Debug)]
pub(crate) struct HeldAcks {
    /// By place of the message.
    places: Vec<Option<HeldAck>>,
    timers: Timers,
    max_packets: u32,
    delay: Span,
}

impl HeldAcks {
    /// None yet. Each answers at most `max_packets` and waits for at most `delay`.
    pub fn new(max_packets: u32, delay: Span) -> HeldAcks {
        HeldAcks { places: Vec::new(), timers: Timers::default(), max_packets, delay }
    }

    /// Has the answer to a packet wait, together with that to the packets before it. Returns one that has to be
    /// sent now: this one if it answers enough packets, or an earlier one of another class.
    pub fn hold(&mut self, slot: u32, arrived: Time, reply: Reply) -> Option<Reply> {
        let place = slot as usize;
        if place >= self.places.len() {
            self.places.resize_with(place + 1, || None);
        }
        let earlier = self.places[place].take();
        let (earlier, released) = match earlier {
            Some(held) if held.reply.class != reply.class => (None, Some(held.reply)),
            held => (held, None),
        };
        let (packets, due) = match earlier {
            Some(held) => (held.packets + 1, held.due),
            None => (1, arrived + self.delay),
        };
        if packets >= self.max_packets {
            return Some(reply);
        }
        self.places[place] = Some(HeldAck { reply, packets, arrived, due });
        self.timers.arm(slot, due);
        released
    }

    /// Takes back the answer that waits for a message, since a later one is sent now. Returns it if the later one
    /// does not say the same.
    #[inline]
    pub fn supersede(&mut self, slot: u32, later: &Reply) -> Option<Reply> {
        let earlier = self.places.get_mut(slot as usize)?.take()?.reply;
        let (old, says) = (&earlier.ack, &later.ack);
        let is_in_run = (says.index - u32::from(says.run)..=says.index).contains(&old.index);
        let is_covered = old.index < says.cumulative || is_in_run;
        // A mark is that of the packet which had it, and of none before.
        let is_same = is_covered && !says.congested && earlier.class == later.class;
        (!is_same).then_some(earlier)
    }

    /// When an answer has waited long enough next.
    #[inline]
    pub fn next_release(&self) -> Time {
        self.timers.next()
    }

    /// An answer that has waited long enough.
    pub fn pop_due(&mut self, now: Time) -> Option<Reply> {
        while let Some(slot) = self.timers.pop_due(now) {
            let place = &mut self.places[slot as usize];
            match place.take_if(|held| held.due <= now) {
                Some(HeldAck { mut reply, arrived, .. }) => {
                    // The time that it waited is no part of the round trip.
                    reply.ack.sent_at += now.since(arrived);
                    return Some(reply);
                }
                // The one that the timer was for has left, and another one waits.
                None => place.iter().for_each(|held| self.timers.arm(slot, held.due)),
            }
        }
        None
    }

    /// Panics where an answer waits without a timer, or for more packets than it may.
    // spec: T-12
    pub fn check(&self) {
        for (slot, held) in (0..).zip(&self.places) {
            let Some(held) = held else { continue };
            assert!(self.timers.armed(slot) <= held.due, "an answer that waits has a timer");
            let is_some = (1..self.max_packets).contains(&held.packets);
            assert!(is_some, "an answer to {} packets waits", held.packets);
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::{JobId, NodeId, TrafficClass};
    use thalweg_wire::flow::Ack;

    use super::*;

    const DELAY: Span = Span::from_us(100);

    fn at(us: u64) -> Time {
        Time::ZERO + Span::from_us(us)
    }

    /// The answer to a packet of which all before have come, `run` of them one by one.
    fn reply(index: u32, run: u16) -> Reply {
        let ack = Ack {
            job: JobId(1),
            epoch: 0,
            flow: 1,
            sent_at: at(1_000),
            sack: 0,
            cumulative: index + 1,
            index,
            transmission: index,
            congested: false,
            resend: false,
            class: 0,
            run,
        };
        Reply { dst: NodeId(2), entropy: 0, class: TrafficClass::Ordinary, ack }
    }

    fn index(reply: Option<Reply>) -> Option<u32> {
        reply.map(|reply| reply.ack.index)
    }

    // spec: F-06 machine
    #[test]
    fn one_answer_leaves_for_a_batch() {
        let mut held = HeldAcks::new(4, DELAY);
        let released: Vec<_> =
            (0..9).map(|packet| index(held.hold(3, at(0), reply(packet, 0)))).collect();
        let expected = [None, None, None, Some(3), None, None, None, Some(7), None];
        assert_eq!(released, expected);
        held.check();
        assert_eq!(held.next_release(), at(100));
    }

    #[test]
    fn an_answer_waits_for_a_time_that_is_no_part_of_the_round_trip() {
        let mut held = HeldAcks::new(64, DELAY);
        assert_eq!(index(held.hold(0, at(10), reply(0, 0))), None);
        assert_eq!(index(held.hold(0, at(50), reply(1, 1))), None);
        assert_eq!(index(held.pop_due(at(109))), None, "the first one is not due");
        let released = held.pop_due(at(130)).expect("the first one is due");
        assert_eq!((released.ack.index, released.ack.sent_at), (1, at(1_080)));
        assert_eq!(index(held.pop_due(at(1_000))), None);
        held.check();
    }

    #[test]
    fn a_later_answer_takes_the_place_of_one_that_says_less() {
        let supersede = |later: Reply| {
            let mut held = HeldAcks::new(64, DELAY);
            assert_eq!(index(held.hold(0, at(0), reply(7, 0))), None);
            let earlier = held.supersede(0, &later);
            assert_eq!(index(held.supersede(0, &later)), None, "it is gone");
            held.check();
            index(earlier)
        };
        assert_eq!(supersede(reply(8, 0)), None);
        let gap = |index, run| {
            let mut gap = reply(index, run);
            gap.ack.cumulative = 3;
            gap
        };
        assert_eq!(supersede(gap(9, 2)), None, "packet 7 is in its run");
        assert_eq!(supersede(gap(9, 1)), Some(7));
        assert_eq!(supersede(gap(6, 6)), Some(7));
        let mut marked = reply(8, 1);
        marked.ack.congested = true;
        assert_eq!(supersede(marked), Some(7), "packet 7 was not marked");
        let other = Reply { class: TrafficClass::Training, ..reply(8, 1) };
        assert_eq!(supersede(other), Some(7));
    }

    #[test]
    fn a_packet_out_of_order_has_the_next_ones_answered_one_by_one() {
        let mut sequence = Sequence::default();
        let mut note = |index| {
            sequence.note(index);
            (sequence.is_calm(), sequence.run(index))
        };
        assert_eq!([note(0), note(1), note(2)], [(true, 0), (true, 1), (true, 2)]);
        assert_eq!([note(4), note(5), note(6), note(7)].map(|(calm, _)| calm), [false; 4]);
        assert_eq!([note(8), note(9)], [(true, 4), (true, 5)]);
        assert_eq!([note(3), note(10)], [(false, 0), (false, 0)], "one that was sent again");
    }
}
