//! State of every fragment from the watermark on.

use std::collections::VecDeque;

use thalweg_core::{Dscp, Time};
use thalweg_wire::aggregate::Numbers;

use super::agreed::Terms;
use super::flight::Sent;
use super::send::How;
use crate::setup::Attempt;

/// The fragments that are not all complete.
#[derive(Clone, Debug)]
pub(super) struct Fragments {
    /// All below are complete.
    watermark: u64,
    /// From the watermark to the last one that something happened to.
    ring: VecDeque<Fragment>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Not sent in this epoch. The other fields mean nothing yet.
    Waiting,
    Sent,
    Complete,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment {
    pub state: State,
    pub terms: Terms,
    /// Bytes that a packet with its values occupies of a link.
    pub packet_bytes: u32,
    /// Priority of its packets.
    pub dscp: Dscp,
    /// Path of the first transmission of its values, as entropy.
    pub path: u16,
    /// True once it is known whether that one arrived.
    pub is_fate_known: bool,
    /// The first transmission of this attempt. An answer tells no more than that this one arrived.
    pub first_transmission: u64,
    /// The last transmission, be it a query.
    pub last_transmission: u64,
    /// When the last transmission left.
    pub sent_at: Time,
    /// Number of times that something was done because no answer came.
    pub tries: u32,
    /// True if later ones were answered, and the answer to it has to say why.
    pub is_overtaken: bool,
    /// True if time has run out, whatever came for others: then nothing tells that its answer is late.
    pub is_overdue: bool,
    /// True if it waits to have something done about it.
    pub is_due: bool,
    /// True if the values must be sent in floats, and were not yet.
    pub owes_floats: bool,
    /// True if there was but one transmission, so that its answer measures a round trip.
    pub is_measurable: bool,
    /// Form in which it must be sent because somebody asked for it.
    pub answer: Option<How>,
}

/// The first departure of a fragment in an epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch {
    pub terms: Terms,
    pub packet_bytes: u32,
    pub dscp: Dscp,
    pub path: u16,
    pub transmission: u64,
    pub now: Time,
    /// True if its answer measures a round trip.
    pub is_measurable: bool,
}

impl Fragment {
    const WAITING: Fragment = Fragment {
        state: State::Waiting,
        terms: Terms { aggregator: 0, attempt: Attempt(0), numbers: Numbers::Float },
        packet_bytes: 0,
        dscp: Dscp::of_priority(0),
        path: 0,
        is_fate_known: false,
        first_transmission: 0,
        last_transmission: 0,
        sent_at: Time::ZERO,
        tries: 0,
        is_overtaken: false,
        is_overdue: false,
        is_due: false,
        owes_floats: false,
        is_measurable: false,
        answer: None,
    };
}

impl Fragments {
    pub fn new(watermark: u64) -> Fragments {
        Fragments { watermark, ring: VecDeque::new() }
    }

    #[inline]
    pub fn watermark(&self) -> u64 {
        self.watermark
    }

    /// A fragment from the watermark on, if something happened to it or to a later one.
    #[inline]
    pub fn get(&self, sequence: u64) -> Option<&Fragment> {
        self.ring.get(sequence.checked_sub(self.watermark)? as usize)
    }

    /// [`Fragments::get`], for one that was sent and is not complete.
    #[inline]
    pub fn sent_mut(&mut self, sequence: u64) -> Option<&mut Fragment> {
        let place = sequence.checked_sub(self.watermark)?;
        self.ring.get_mut(place as usize).filter(|fragment| fragment.state == State::Sent)
    }

    #[inline]
    pub fn is_complete(&self, sequence: u64) -> bool {
        let is_complete = |fragment: &Fragment| fragment.state == State::Complete;
        sequence < self.watermark || self.get(sequence).is_some_and(is_complete)
    }

    /// True if an answer to this transmission would still be welcome, and nothing else is planned.
    #[inline]
    pub fn awaits(&self, sent: &Sent) -> bool {
        self.get(sent.item).is_some_and(|fragment| {
            fragment.state == State::Sent
                && fragment.last_transmission == sent.number
                && !fragment.is_due
        })
    }

    /// Time at which an awaited transmission left.
    #[inline]
    pub fn sent_at(&self, sent: &Sent) -> Time {
        self.get(sent.item).map_or(Time::NEVER, |fragment| fragment.sent_at)
    }

    /// A fragment leaves for the first time in this epoch. It is not complete.
    #[inline]
    pub fn launch(&mut self, sequence: u64, launch: Launch) {
        let Launch { terms, packet_bytes, dscp, path, transmission, now, is_measurable } = launch;
        let fragment = self.at(sequence);
        assert_eq!(fragment.state, State::Waiting, "fragment {sequence} leaves once in an epoch");
        *fragment = Fragment {
            state: State::Sent,
            terms,
            packet_bytes,
            dscp,
            path,
            first_transmission: transmission,
            last_transmission: transmission,
            sent_at: now,
            is_measurable,
            ..Fragment::WAITING
        };
    }

    /// A fragment that was not complete is now.
    #[inline]
    pub fn complete(&mut self, sequence: u64) {
        self.at(sequence).state = State::Complete;
        self.drop_complete();
    }

    /// All fragments from the watermark on that something happened to, and their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Fragment)> {
        (self.watermark..).zip(&self.ring)
    }

    /// Everything below counts as complete.
    pub fn complete_below(&mut self, sequence: u64) {
        if let Some(passed) = sequence.checked_sub(self.watermark) {
            self.ring.drain(..self.ring.len().min(passed as usize));
            self.watermark = sequence;
            self.drop_complete();
        }
    }

    /// Forgets what was sent, not what is complete: a new epoch begins.
    pub fn begin_anew(&mut self) {
        let incomplete = |fragment: &&mut Fragment| fragment.state != State::Complete;
        self.ring.iter_mut().filter(incomplete).for_each(|fragment| *fragment = Fragment::WAITING);
    }

    fn at(&mut self, sequence: u64) -> &mut Fragment {
        let place = (sequence - self.watermark) as usize;
        if place >= self.ring.len() {
            self.ring.resize(place + 1, Fragment::WAITING);
        }
        &mut self.ring[place]
    }

    #[inline]
    fn drop_complete(&mut self) {
        while self.ring.front().is_some_and(|fragment| fragment.state == State::Complete) {
            self.ring.pop_front();
            self.watermark += 1;
        }
    }
}
