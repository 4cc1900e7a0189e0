//! Order of events in time.
//!
//! The loop has a fixed set of *sources*: every link (its next arrival), every machine (its next
//! timeout) and a few odd ones. Each has at most one pending moment. Nearly all moments lie within a
//! few link delays, so they are kept on a wheel of short time buckets, found by the bits of a map;
//! the rest wait in a heap until the wheel comes round to them. Arming a source and finding the next
//! one both take a handful of instructions, however many sources there are.

mod wheel;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use thalweg_core::{Span, Time};

use wheel::Wheel;

/// The pending moments of all sources, in total order: by time, then by the order of arming.
#[derive(Debug)]
pub struct Agenda {
    wheel: Wheel,
    /// Moments beyond the wheel's horizon, and old ones of sources that were armed anew since.
    later: BinaryHeap<Reverse<(Time, u64, u32)>>,
    /// The earliest moment in `later`.
    next_later: Time,
    sources: Vec<Source>,
    sequence: u64,
}

/// A source's pending moment.
#[derive(Clone, Copy, Debug)]
struct Source {
    at: Time,
    /// Order of arming. An entry of `later` with another one is an old one.
    sequence: u64,
    /// Neighbours in the same bucket of the wheel.
    previous: u32,
    next: u32,
    place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Idle,
    Wheel,
    Later,
}

const NOBODY: u32 = u32::MAX;

impl Agenda {
    /// Most sources that an agenda can hold.
    pub const MAX_SOURCES: usize = 1 << 20;

    /// An agenda of `sources` idle sources, most of whose moments lie within `horizon` of now.
    pub fn new(sources: usize, horizon: Span) -> Agenda {
        let idle = Source {
            at: Time::NEVER,
            sequence: 0,
            previous: NOBODY,
            next: NOBODY,
            place: Place::Idle,
        };
        Agenda {
            wheel: Wheel::new(sources, horizon),
            later: BinaryHeap::new(),
            next_later: Time::NEVER,
            sources: vec![idle; sources],
            sequence: 0,
        }
    }

    /// Sets the pending moment of a source, replacing the one it had. [`Time::NEVER`] makes it idle.
    #[inline]
    pub fn set(&mut self, source: u32, at: Time) {
        if self.sources[source as usize].place == Place::Wheel {
            self.wheel.remove(source, &mut self.sources);
        }
        self.sequence += 1;
        let entry = &mut self.sources[source as usize];
        entry.at = at;
        entry.sequence = self.sequence;
        if at == Time::NEVER {
            entry.place = Place::Idle;
        } else if self.wheel.reaches(at) {
            self.wheel.insert(source, &mut self.sources);
        } else {
            entry.place = Place::Later;
            self.later.push(Reverse((at, self.sequence, source)));
            self.next_later = self.next_later.min(at);
        }
    }

    /// The next moment and its source. It stays pending until it is set anew.
    #[inline]
    pub fn next(&mut self) -> Option<(Time, u32)> {
        if let Some(source) = self.wheel.first() {
            return Some((self.sources[source as usize].at, source));
        }
        self.drop_old();
        self.later.peek().map(|&Reverse((at, _, source))| (at, source))
    }

    /// Turns the wheel. No moment before `now` may be pending, or be set from here on.
    #[inline]
    pub fn advance(&mut self, now: Time) {
        self.wheel.turn_to(now);
        if self.wheel.reaches(self.next_later) {
            self.bring_in();
        }
    }

    /// Puts on the wheel what it now reaches.
    #[cold]
    fn bring_in(&mut self) {
        while let Some(&Reverse((at, sequence, source))) = self.later.peek() {
            if !self.wheel.reaches(at) {
                break;
            }
            self.later.pop();
            if self.is_current(sequence, source) {
                self.wheel.insert(source, &mut self.sources);
            }
        }
        self.note_later();
    }

    #[cold]
    fn drop_old(&mut self) {
        while let Some(&Reverse((_, sequence, source))) = self.later.peek() {
            if self.is_current(sequence, source) {
                break;
            }
            self.later.pop();
        }
        self.note_later();
    }

    fn note_later(&mut self) {
        self.next_later = self.later.peek().map_or(Time::NEVER, |&Reverse((at, ..))| at);
    }

    fn is_current(&self, sequence: u64, source: u32) -> bool {
        let entry = &self.sources[source as usize];
        entry.sequence == sequence && entry.place == Place::Later
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const HORIZON: Span = Span::from_ps(8_192);

    fn at(ps: u64) -> Time {
        Time::from_ps(ps)
    }

    #[test]
    fn ties_go_by_order_of_arming() {
        let mut agenda = Agenda::new(3, HORIZON);
        agenda.set(2, at(5));
        agenda.set(0, at(5));
        agenda.set(1, at(4));
        assert_eq!(agenda.next(), Some((at(4), 1)));
        agenda.set(1, at(6));
        assert_eq!(agenda.next(), Some((at(5), 2)));
        agenda.set(2, Time::NEVER);
        assert_eq!(agenda.next(), Some((at(5), 0)));
        agenda.set(0, at(9));
        assert_eq!(agenda.next(), Some((at(6), 1)));
    }

    #[test]
    fn far_moments_come_in_turn() {
        let mut agenda = Agenda::new(2, HORIZON);
        assert_eq!(agenda.next(), None);
        agenda.set(0, at(1_000_000));
        agenda.set(0, at(2_000_000));
        agenda.set(1, at(3));
        assert_eq!(agenda.next(), Some((at(3), 1)));
        agenda.set(1, Time::NEVER);
        assert_eq!(agenda.next(), Some((at(2_000_000), 0)));
        agenda.advance(at(1_999_999));
        agenda.set(1, at(2_000_000));
        assert_eq!(agenda.next(), Some((at(2_000_000), 0)), "armed before the other");
    }

    proptest! {
        /// Steps arm a source some way from now, near and far, or make it idle; then time moves on
        /// to what is next, or part of the way.
        #[test]
        fn agrees_with_a_sorted_list(
            steps in prop::collection::vec(
                (0..13u32, prop::option::of(prop_oneof![0..40u64, 0..20_000u64]), any::<bool>()),
                1..300,
            ),
        ) {
            let mut agenda = Agenda::new(13, HORIZON);
            let mut model = BTreeMap::new();
            let mut now = 0;
            for (order, (source, after, moves)) in steps.into_iter().enumerate() {
                let moment = after.map_or(Time::NEVER, |after| at(now + after));
                agenda.set(source, moment);
                model.remove(&source);
                if after.is_some() {
                    model.insert(source, (moment, order));
                }
                let least = model.iter().min_by_key(|(_, key)| **key);
                let least = least.map(|(source, (moment, _))| (*moment, *source));
                prop_assert_eq!(agenda.next(), least);
                if let (Some((moment, _)), true) = (least, moves) {
                    now = moment.as_ps();
                    agenda.advance(moment);
                    prop_assert_eq!(agenda.next(), least);
                }
            }
        }
    }
}
