//! Gradients: the table's actions, done.

use thalweg_core::{Body, Ecn, Meta, NodeId, Packet, Time, Verdict};
use thalweg_wire::Prefix;
use thalweg_wire::aggregate::{
    Branch, COLLISION, CONGESTED, GradientView, REPAIR, RESEND, RESULT, VALUE_BYTES,
};

use super::Switch;
use super::aggregator::Over;
use super::key::{Fragment, Key, Part};
use super::table::{self, Action, Class, Tier};
use crate::index;

/// A gradient that has come to a station.
pub(super) struct Arrival<'a> {
    pub(super) now: Time,
    meta: &'a mut Meta,
    pub(super) view: &'a mut GradientView,
    pub(super) body: Body<'a>,
    branch: Branch,
    /// The level of the station.
    level: u8,
    pub(super) part: Part,
    /// Place in the array at which it is summed.
    pub(super) place: u32,
}

impl Switch {
    pub(super) fn handle_gradient(
        &mut self,
        now: Time,
        prefix: Prefix,
        packet: Packet<'_>,
    ) -> Verdict<'_> {
        let Packet { meta, header, body } = packet;
        let Ok((view, branch)) = GradientView::check_mut(prefix, header) else {
            return self.drop_malformed();
        };
        let server = NodeId(view.server.get());
        if !body.len().is_multiple_of(view.value_bytes()) || server == self.config.me {
            return self.drop_malformed();
        }
        if !self.knows_server(now, &prefix, server) {
            return Verdict::Consume;
        }
        self.stats.gradients += 1;
        // spec: A-10
        if meta.ecn.is_congested() {
            view.flags |= CONGESTED;
            self.stats.marked += 1;
        }
        let level = view.level();
        let has_room = body.len() <= usize::from(self.config.values_max) * VALUE_BYTES;
        if !branch.has(level) || !has_room {
            // It was on its last stretch, or is longer than what is summed here.
            self.stats.passed += 1;
            view.set_levels(branch.end(), view.bitmap_level());
            meta.dst = server;
            return Verdict::Forward;
        }
        let part = Part {
            key: Key::of(&prefix, view, &branch, level, &body),
            bit: branch.bit(level),
            full: branch.full(level),
        };
        let upper_places = branch.places_above(level);
        let place = index::place(view.aggregator.get(), level, upper_places, self.array.len());
        self.step(&mut Arrival { now, meta, view, body, branch, level, part, place })
    }

    /// One step of the table.
    #[inline]
    fn step(&mut self, arrival: &mut Arrival<'_>) -> Verdict<'_> {
        let Arrival { now, place, level, .. } = *arrival;
        let found = self.array.find(now, place, &arrival.part, watermark(arrival.view));
        let tier = if level == 0 { Tier::First } else { Tier::Above };
        match table::action(found, class(arrival.view, &arrival.branch, level, tier), tier) {
            Action::Add => return self.add(arrival),
            Action::Take => return self.take_if_allowed(arrival),
            Action::Replace => {
                self.evict(arrival);
                return self.take_if_allowed(arrival);
            }
            Action::Drop => {
                self.array.mark(self.touch(now, place), place, arrival.view);
                self.stats.duplicates += 1;
                return Verdict::Consume;
            }
            Action::AddAndFlush => {
                self.merge(arrival);
                self.flush(arrival);
            }
            Action::Flush => {
                self.array.mark(now, place, arrival.view);
                self.flush(arrival);
            }
            Action::Discard => {
                self.free(place);
                self.stats.discarded += 1;
                self.pass_up(arrival);
            }
            Action::SendAgain => {
                self.array.mark(now, place, arrival.view);
                self.stats.sent_again += 1;
                self.send_on(arrival);
            }
            Action::PassUp => self.pass_up(arrival),
            Action::Bypass => self.bypass(arrival),
            Action::Collide => {
                // spec: A-03
                self.stats.collisions += 1;
                self.contend(arrival);
                arrival.view.flags |= COLLISION;
                self.bypass(arrival);
            }
        }
        Verdict::Forward
    }

    /// The fragment that is there is over.
    fn evict(&mut self, arrival: &Arrival<'_>) {
        let Arrival { now, place, part, .. } = arrival;
        match self.array.over(*now, *place, &part.key, watermark(arrival.view)) {
            Some(Over::Stale) => self.stats.freed_stale += 1,
            Some(Over::Passed) | None => self.stats.freed_by_watermark += 1,
        }
        self.free(*place);
    }

    /// The packet was turned away, perhaps by another job's.
    fn contend(&mut self, arrival: &Arrival<'_>) {
        let Arrival { now, place, part, .. } = arrival;
        if let Some(shares) = &mut self.shares
            && self.array.slot(*place).key.job() != part.key.job()
        {
            shares.contend(*now);
        }
    }

    // spec: T-06
    #[inline]
    fn take_if_allowed(&mut self, arrival: &mut Arrival<'_>) -> Verdict<'_> {
        if !self.has_its_share(arrival.now, arrival.part.key.job()) {
            return self.take(arrival);
        }
        self.stats.held_to_share += 1;
        self.bypass(arrival);
        Verdict::Forward
    }

    fn take(&mut self, arrival: &mut Arrival<'_>) -> Verdict<'_> {
        self.array.take(arrival);
        self.stats.taken += 1;
        if let Some(shares) = &mut self.shares {
            shares.take(arrival.part.key.job());
        }
        if self.array.occupied() == 1 {
            self.sweep.start(arrival.now);
        }
        self.send_on_if_full(arrival)
    }

    fn add(&mut self, arrival: &mut Arrival<'_>) -> Verdict<'_> {
        self.merge(arrival);
        self.send_on_if_full(arrival)
    }

    fn merge(&mut self, arrival: &Arrival<'_>) {
        let left = self.array.add(arrival);
        self.stats.added += 1;
        self.stats.overflowed += u64::from(left);
    }

    // spec: A-05
    fn send_on_if_full(&mut self, arrival: &mut Arrival<'_>) -> Verdict<'_> {
        if self.array.slot(arrival.place).bitmap != arrival.part.full {
            return Verdict::Consume;
        }
        self.stats.completed += 1;
        self.send_on(arrival);
        Verdict::Forward
    }

    /// The packet takes what there is with it.
    // spec: A-07
    fn flush(&mut self, arrival: &mut Arrival<'_>) {
        self.stats.flushed += 1;
        // spec: E-13
        let Fragment { identity, server, .. } = arrival.part.key.fragment();
        if let Some(group) = self.groups.index(identity.job, identity.epoch, server) {
            self.earn_absorbed(group, arrival.place, true);
        }
        self.send_on(arrival);
        self.free(arrival.place);
    }

    /// The packet takes a copy of the sum to the parent.
    fn send_on(&mut self, arrival: &mut Arrival<'_>) {
        self.array.copy_out(arrival.place, arrival.view, &mut arrival.body);
        let level = arrival.level;
        arrival.view.set_levels(level, level);
        // A queue that drops a sum drops all contributions in it.
        // spec: M-20
        if arrival.meta.ecn == Ecn::NotCapable {
            arrival.meta.ecn = Ecn::Capable;
        }
        self.go_up(arrival);
    }

    /// A resent packet goes on, so that the next switch frees what it has of the fragment.
    fn pass_up(&mut self, arrival: &mut Arrival<'_>) {
        self.stats.passed += 1;
        self.go_up(arrival);
    }

    /// Sends the packet to the server, and no switch along the path sums it.
    // spec: A-03
    fn bypass(&mut self, arrival: &mut Arrival<'_>) {
        self.stats.passed += 1;
        arrival.view.flags |= RESEND;
        arrival.view.set_levels(arrival.branch.end(), arrival.view.bitmap_level());
        arrival.meta.dst = NodeId(arrival.view.server.get());
    }

    /// To the parent, one level up; to the server where it is the parent or no parent is known.
    fn go_up(&mut self, arrival: &mut Arrival<'_>) {
        let fragment = arrival.part.key.fragment();
        let (parent, level) = self.above(arrival.now, &fragment, arrival.branch.end());
        arrival.view.set_levels(level, arrival.view.bitmap_level());
        arrival.meta.dst = parent;
    }
}

/// Class of the packet: its kind, and whether the station counts it.
#[inline]
fn class(view: &GradientView, branch: &Branch, level: u8, tier: Tier) -> Class {
    let is_whole = is_whole_child(view, branch, level);
    match view.flags & (RESEND | REPAIR | RESULT) {
        0 if is_whole => Class::Fresh,
        REPAIR if is_whole => Class::Repair,
        // What is resent above may be a part of a child: it frees, and is not summed.
        flags if flags & RESEND != 0 && flags & RESULT == 0 => match tier {
            Tier::First if !is_whole => Class::Odd,
            Tier::First | Tier::Above => Class::Resent,
        },
        _ => Class::Odd,
    }
}

/// True if the packet names one child of the station at this level, with everything below it: a
/// worker that enters here, or a station below that is full.
// spec: A-12
#[inline]
fn is_whole_child(view: &GradientView, branch: &Branch, level: u8) -> bool {
    let (bitmap, bitmap_level) = (view.bitmap.get(), view.bitmap_level());
    if bitmap_level == level {
        branch.enters_at(level) && bitmap == branch.bit(level)
    } else {
        bitmap_level + 1 == level && bitmap == branch.full(bitmap_level)
    }
}

#[inline]
fn watermark(view: &GradientView) -> u64 {
    view.sequence.get().saturating_sub(u64::from(view.watermark_distance.get()))
}
