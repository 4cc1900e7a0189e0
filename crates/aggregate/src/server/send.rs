//! From tasks to packets.

use thalweg_core::{Body, BodySize, NodeId, Outbox, Purpose, Tag};
use thalweg_transport::Envelope;
use thalweg_wire::aggregate::{Announcement, Request, StationBytes};
use thalweg_wire::tag::Key;

use super::job::{Job, Site};
use super::judge::State;
use super::queue::{Progress, Task};
use super::ring::Place;
use super::seats;
use super::slot::Values;
use crate::keys::Receiver;
use crate::setup::Setup;
use crate::tree::Top;

/// Who is asked for what is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owing {
    /// A station of which nothing is there.
    Station(Top),
    /// A worker, straight.
    Worker(u32),
}

impl Job {
    /// Sends the next packet of a task.
    pub(super) fn send(&mut self, task: Task, outbox: &mut dyn Outbox) -> Progress {
        let sent = match task {
            Task::Tell(sequence) => self.send_to_all(sequence, outbox),
            Task::Answer(sequence) => self.send_answer(sequence, outbox),
            Task::Ask(sequence) => self.send_ask(sequence, outbox),
            Task::Announce(shard, group) => {
                self.send_announcement(shard as usize, group as usize, outbox)
            }
        };
        // A task whose fragment is over has nothing to send.
        sent.unwrap_or(Progress::Finished)
    }

    fn send_to_all(&mut self, sequence: u64, outbox: &mut dyn Outbox) -> Option<Progress> {
        let mut site = self.pending(sequence)?;
        let next = site.place.slot.outgoing.tell?;
        let nodes = site.tree.top_nodes();
        let is_last = next + 1 >= nodes.len();
        let (node, is_again) = (*nodes.get(next)?, site.place.slot.outgoing.is_again);
        let to = (node, site.receiver(node));
        let Some(is_repeat) = site.put_parameter(to, is_again, outbox) else {
            return Some(Progress::NoRoom);
        };
        site.place.slot.outgoing.tell = (!is_last).then_some(next + 1);
        self.count_parameter(is_repeat, is_again);
        Some(if is_last { Progress::Finished } else { Progress::More })
    }

    fn send_answer(&mut self, sequence: u64, outbox: &mut dyn Outbox) -> Option<Progress> {
        let mut site = self.pending(sequence)?;
        let worker = site.place.slot.outgoing.answer?;
        // It may get it with all others.
        if site.place.slot.outgoing.tell.is_some() {
            site.place.slot.outgoing.answer = None;
            return None;
        }
        let to = (site.tree.node(worker), Receiver::Worker);
        let Some(is_repeat) = site.put_parameter(to, true, outbox) else {
            return Some(Progress::NoRoom);
        };
        site.place.slot.outgoing.answer = None;
        self.count_parameter(is_repeat, true);
        None
    }

    fn count_parameter(&mut self, is_repeat: bool, is_again: bool) {
        if is_repeat {
            self.stats.repeats_sent += 1;
        } else {
            self.stats.parameters += 1;
            self.stats.parameters_again += u64::from(is_again);
        }
    }

    /// Asks the next one that owes something: for floats if these are wanted, else for its part.
    // spec: T-10
    fn send_ask(&mut self, sequence: u64, outbox: &mut dyn Outbox) -> Option<Progress> {
        let mut site = self.pending(sequence)?;
        let from = site.place.slot.outgoing.ask?;
        let Some((owing, next)) = site.next_owing(from) else {
            site.place.slot.outgoing.ask = None;
            return None;
        };
        let wants_floats = site.place.slot.state == State::Floats;
        let is_sent = match owing {
            Owing::Worker(worker) if wants_floats => {
                let to = (site.tree.node(worker), Receiver::Worker);
                site.put_parameter(to, true, outbox).is_some()
            }
            _ => site.put_request(owing, outbox),
        };
        if !is_sent {
            return Some(Progress::NoRoom);
        }
        site.place.slot.outgoing.ask = Some(next);
        *if wants_floats { &mut self.stats.repeats_sent } else { &mut self.stats.requests } += 1;
        Some(Progress::More)
    }

    fn send_announcement(
        &mut self,
        shard: usize,
        group: usize,
        outbox: &mut dyn Outbox,
    ) -> Option<Progress> {
        let setup = &*self.setup;
        let known = self.shards[shard].as_mut()?.groups.get_mut(group)?;
        let group = &known.group;
        let body_bytes = Announcement::body_bytes(group.stations.len()) as u32;
        let Some(mut packet) = outbox.lend(BodySize::Bytes(body_bytes), Purpose::Control) else {
            return Some(Progress::NoRoom);
        };
        let announcement = Announcement {
            job: setup.job,
            epoch: setup.epoch,
            server: self.me,
            parent: group.parent,
            level: group.level,
            stations: group.stations.len() as u8,
            switches: std::array::from_fn(|at| group.stations.get(at).map_or(0, |it| it.switches)),
        };
        let key = self.keys.as_ref().map(|keys| keys.to(Receiver::Switch));
        let envelope = envelope(setup, key, group.switch);
        if let Body::Bytes(body) = &mut packet.body {
            let size = Announcement::body_bytes(1);
            for (station, bytes) in group.stations.iter().zip(body.chunks_exact_mut(size)) {
                write_station(&StationBytes::new(station.upper_places, &station.children), bytes);
            }
        }
        let covers_body = setup.parameters.seals_bodies;
        envelope.fill_covering(&mut packet, covers_body, |header| announcement.encode(header));
        known.is_queued = false;
        self.stats.announcements += 1;
        None
    }
}

impl Site<'_> {
    /// Kind of a node right below the server.
    fn receiver(&self, node: NodeId) -> Receiver {
        let is_switch = self.tops.iter().any(|top| top.at == node);
        if is_switch { Receiver::Switch } else { Receiver::Worker }
    }

    /// Sends what workers are told, and says whether it was the wish for floats. `None` if there was
    /// no room.
    fn put_parameter(
        &mut self,
        (to, receiver): (NodeId, Receiver),
        is_again: bool,
        outbox: &mut dyn Outbox,
    ) -> Option<bool> {
        let slot = &*self.place.slot;
        let parameter = slot.parameter(self.setup, self.tree.server(), self.everyone);
        let body_bytes = if parameter.repeat { 0 } else { slot.body_bytes };
        let size = match slot.body {
            Values::Real(_) if !parameter.repeat => BodySize::Bytes(body_bytes),
            _ => BodySize::Length(body_bytes),
        };
        let purpose = if parameter.repeat { Purpose::Control } else { Purpose::of_data(is_again) };
        let mut packet = outbox.lend(size, purpose)?;
        let key = self.keys.as_ref().map(|keys| keys.to(receiver));
        let envelope = envelope(self.setup, key, to);
        if let (Values::Real(values), Body::Bytes(body), false) =
            (&slot.body, &mut packet.body, parameter.repeat)
        {
            body.copy_from_slice(values);
        }
        let covers_body = self.setup.parameters.seals_bodies;
        envelope.fill_covering(&mut packet, covers_body, |header| parameter.encode(header));
        Some(parameter.repeat)
    }

    fn put_request(&mut self, owing: Owing, outbox: &mut dyn Outbox) -> bool {
        let slot = &*self.place.slot;
        let Some(mut packet) = outbox.lend(BodySize::Length(0), Purpose::Control) else {
            return false;
        };
        let ((to, receiver), branch, level, wanted, bypass) = match owing {
            Owing::Station(top) => {
                ((top.at, Receiver::Switch), top.branch, top.ask_level, top.wanted, false)
            }
            Owing::Worker(rank) => {
                let branch = self.tree.branch(rank);
                ((self.tree.node(rank), Receiver::Worker), branch, branch.end(), 1, true)
            }
        };
        let request = Request {
            identity: slot.identity(self.setup, slot.attempt),
            aggregator: slot.aggregator,
            server: self.tree.server(),
            branch,
            level,
            wanted,
            bypass,
            afresh: false,
        };
        let key = self.keys.as_ref().map(|keys| keys.to(receiver));
        let envelope = envelope(self.setup, key, to);
        envelope.fill_sized(&mut packet, |header| request.encode(header));
        true
    }

    /// The first one from a seat on that owes something, and the seat after. A station is asked if
    /// nothing at all of it is there: a part that came past it would overlap with its sum.
    // spec: T-10
    fn next_owing(&self, from: u32) -> Option<(Owing, u32)> {
        let Place { slot, seats: taken, .. } = &self.place;
        if slot.state == State::Done {
            return None;
        }
        let straight = slot.state == State::Floats || slot.asked.is_some_and(|asked| asked.1);
        let seat = seats::first_missing(taken, from..self.tree.workers())?;
        let of_top = |top: &Top| top.first_seat..top.first_seat + top.seats;
        let above = self.tops.iter().find(|top| !straight && of_top(top).contains(&seat));
        match above.filter(|top| seats::count(taken, of_top(top)) == 0) {
            Some(top) => Some((Owing::Station(*top), of_top(top).end)),
            None => Some((Owing::Worker(self.tree.rank_at(seat)), seat + 1)),
        }
    }
}

/// Returns the envelope of a packet of a job.
fn envelope<'a>(setup: &Setup, key: Option<&'a Key>, dst: NodeId) -> Envelope<'a> {
    Envelope {
        dst,
        tag: Tag::training(),
        // Packets of a job stay on one path, in order.
        entropy: setup.job.0 as u16,
        overhead_bytes: setup.parameters.overhead_bytes,
        key,
    }
}

/// The bytes of a station, in the order of its fields.
fn write_station(station: &StationBytes, out: &mut [u8]) {
    let words = station.children.iter().map(|child| child.to_bytes());
    let words = [station.places, station.count.to_bytes()].into_iter().chain(words);
    out.as_chunks_mut::<4>().0.iter_mut().zip(words).for_each(|(out, word)| *out = word);
}
