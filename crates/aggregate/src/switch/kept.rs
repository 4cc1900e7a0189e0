//! Results that wait for the children that miss them.
//!
//! Where queries show that packets are lost, a result that frees an aggregator stays there. The aggregator is free: a
//! fragment that needs it takes it, and the result is gone. Until then a query for exactly this fragment is answered from
//! here, so that the server's link carries each result once, whatever the links below lose. The bits are those that came
//! from the server.
// spec: T-10

use thalweg_core::{Body, BodySize, Header, NodeId, Outbox, Purpose, Span, Time};
use thalweg_wire::aggregate::{ParameterView, Query};
use thalweg_wire::tag;

use super::Switch;
use super::aggregator::{ASKED, Aggregator, Array, KEPT};
use super::key::Fragment;
use super::outgoing::Task;
use crate::keys::Receiver;

/// Header and account of a result whose values are kept. Valid only with [`KEPT`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    /// The header of the result on its path down.
    header: Header,
    /// Time at which it was sent to all children.
    sent_at: Time,
    /// Children that have got it again, where the last of them did so less than an asking gap ago.
    repeated: u32,
}

/// Decision about a query for a result that is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// It is answered.
    Now,
    /// It comes too soon after the last answer.
    Held,
}

impl Kept {
    pub(super) const NONE: Kept =
        Kept { header: [0; size_of::<Header>()], sent_at: Time::ZERO, repeated: 0 };
}

impl Aggregator {
    /// Returns whether the result of a fragment is kept here.
    fn has_kept(&self, fragment: &Fragment) -> bool {
        self.is_empty() && self.marks & KEPT != 0 && self.key.fragment() == *fragment
    }
}

impl Array {
    /// Writes a result over the sum that it answers, which is about to be freed.
    #[inline]
    pub(super) fn keep(&mut self, now: Time, place: u32, result: &Header, body: &Body<'_>) {
        let slot = &mut self.slots[place as usize];
        let is_alike = body.len() as u32 == slot.key.body_bytes()
            && matches!(body, Body::Bytes(_)) == slot.key.has_bytes();
        if !is_alike {
            return;
        }
        slot.marks = KEPT;
        let mut header = *result;
        // A switch that gets it again makes copies that nobody has paid for yet.
        ParameterView::mark_unpaid(&mut header);
        self.kept[place as usize] = Kept { header, sent_at: now, repeated: 0 };
        if let Body::Bytes(body) = body {
            self.values_mut(place, body.len()).copy_from_slice(body);
        }
    }

    /// Time at which a result that is kept was sent to all children.
    fn kept_since(&self, place: u32, fragment: &Fragment) -> Option<Time> {
        self.slot(place).has_kept(fragment).then(|| self.kept[place as usize].sent_at)
    }

    /// Decides whether a child gets a result that is kept: at most once in a gap.
    fn repeat(&mut self, now: Time, place: u32, child: u32, gap: Span) -> Turn {
        let (slot, kept) = (&mut self.slots[place as usize], &mut self.kept[place as usize]);
        let asked_at = &mut self.asked_at[place as usize];
        if slot.marks & ASKED == 0 || now.since(*asked_at) >= gap {
            kept.repeated = 0;
        }
        if kept.repeated & child != 0 {
            return Turn::Held;
        }
        kept.repeated |= child;
        slot.marks |= ASKED;
        *asked_at = now;
        Turn::Now
    }
}

impl Switch {
    /// Answers a query with the result that is kept here, if there is one. `false` if the query is for others to answer.
    pub(super) fn repeat_kept(
        &mut self,
        now: Time,
        place: u32,
        query: &Query,
        fragment: &Fragment,
    ) -> bool {
        let Some(sent_at) = self.array.kept_since(place, fragment) else { return false };
        let child = query.branch.bit(fragment.level);
        if !self.list_children(fragment, child) {
            return false;
        }
        let to = self.listed[0];
        let receiver = if self.listed_workers > 0 { Receiver::Worker } else { Receiver::Switch };
        let Fragment { identity, server, .. } = fragment;
        let index = self.groups.index(identity.job, identity.epoch, *server);
        let Some(index) = index else { return false };
        let wire_bytes = self.array.slot(place).key.body_bytes() + self.config.overhead_bytes;
        let group = self.groups.at(index);
        // The worker had only what was sent before this result, which may still be in flight.
        let last_sent_at = query.last_received().and_then(|last| group.recent.sent_at(last));
        let has_crossed = last_sent_at.is_some_and(|last| last < sent_at);
        // spec: E-13
        if !has_crossed && !group.account.covers(wire_bytes.into()) {
            return false;
        }
        let turn = if has_crossed {
            Turn::Held
        } else {
            self.array.repeat(now, place, child, self.config.ask_gap)
        };
        match turn {
            Turn::Held => self.stats.asks_held += 1,
            Turn::Now => {
                let group = self.groups.at_mut(index);
                group.account.spend(wire_bytes.into());
                // That the worker has it says no longer when it came.
                group.recent.forget(fragment.identity.sequence);
                self.push(Task::Result { place, fragment: *fragment, to, receiver });
            }
        }
        true
    }

    /// Sends a result that is kept to a child, unless its aggregator has been taken since.
    pub(super) fn transmit_kept(
        &mut self,
        place: u32,
        fragment: &Fragment,
        (dst, receiver): (NodeId, Receiver),
        outbox: &mut dyn Outbox,
    ) {
        let slot = self.array.slot(place);
        if !slot.has_kept(fragment) {
            return;
        }
        let (key, header) = (slot.key, self.array.kept[place as usize].header);
        let bytes = key.body_bytes();
        let size = if key.has_bytes() { BodySize::Bytes(bytes) } else { BodySize::Length(bytes) };
        let Some(mut packet) = outbox.lend(size, Purpose::Retransmission) else { return };
        if let Body::Bytes(body) = &mut packet.body {
            body.copy_from_slice(self.array.values(place, body.len()));
        }
        let keys = self.fill(&mut packet, fragment.scope(), dst, |to| *to = header);
        if let Some(keys) = keys {
            let (covers_body, key) = (key.covers_body(), keys.to(receiver));
            tag::seal_packet(packet.header, &packet.body, covers_body, key);
        }
        self.stats.results_repeated += 1;
    }
}
