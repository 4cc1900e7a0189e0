//! From tasks to packets.

use thalweg_core::{Body, BodySize, NodeId, Outbox, Purpose, Tag};
use thalweg_transport::Envelope;
use thalweg_wire::aggregate::{Announcement, Parameter, Request, StationBytes};
use thalweg_wire::tag::Key;

use super::credit::Charge;
use super::job::{Job, Site};
use super::judge::{Lacking, State};
use super::positions;
use super::queue::{Progress, Task};
use super::ring::Place;
use super::slot::Values;
use crate::keys::Receiver;
use crate::setup::Setup;
use crate::tree::Top;

/// Node that is asked for what is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owing {
    /// A station of which nothing is there.
    Station(Top),
    /// A worker, directly.
    Worker(u32),
}

/// Outcome of sending a parameter packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Put {
    /// There was no room.
    NoRoom,
    /// A result that is not paid for, and was not sent.
    Unpaid,
    /// A result was sent.
    Result,
    /// The wish for floats was sent.
    Repeat,
}

/// Node that a packet is sent to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Target {
    node: NodeId,
    receiver: Receiver,
    /// Number of workers that a switch may send it on to; 1 for a worker.
    workers: u32,
}

impl Target {
    fn worker(node: NodeId) -> Target {
        Target { node, receiver: Receiver::Worker, workers: 1 }
    }
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
        let to = site.receiver(node);
        let put = site.put_parameter(to, is_again, outbox);
        if put == Put::NoRoom {
            return Some(Progress::NoRoom);
        }
        let is_over = is_last || put == Put::Unpaid;
        site.place.slot.outgoing.tell = (!is_over).then_some(next + 1);
        self.count(put, is_again);
        Some(if is_over { Progress::Finished } else { Progress::More })
    }

    fn send_answer(&mut self, sequence: u64, outbox: &mut dyn Outbox) -> Option<Progress> {
        let mut site = self.pending(sequence)?;
        let lacking = site.place.slot.outgoing.answer?;
        // It may get it with all others.
        if site.place.slot.outgoing.tell.is_some() {
            site.place.slot.outgoing.answer = None;
            return None;
        }
        let to = match lacking {
            Lacking::Worker(rank) => Target::worker(site.tree.node(rank)),
            Lacking::Switch(node) => site.receiver(node),
        };
        let put = site.put_parameter(to, true, outbox);
        if put == Put::NoRoom {
            return Some(Progress::NoRoom);
        }
        site.place.slot.outgoing.answer = None;
        let is_awaited = matches!(lacking, Lacking::Switch(_)) && put != Put::Unpaid;
        self.stats.parameters_awaited += u64::from(is_awaited);
        self.count(put, true);
        None
    }

    fn count(&mut self, put: Put, is_again: bool) {
        match put {
            Put::NoRoom => {}
            Put::Unpaid => self.stats.withheld += 1,
            Put::Repeat => self.stats.repeats_sent += 1,
            Put::Result => {
                self.stats.parameters += 1;
                self.stats.parameters_again += u64::from(is_again);
            }
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
                let to = Target::worker(site.tree.node(worker));
                site.put_parameter(to, true, outbox) != Put::NoRoom
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
    /// A node right below the server.
    fn receiver(&self, node: NodeId) -> Target {
        let tops = self.tops.iter().filter(|top| top.at == node);
        match tops.map(|top| top.positions).sum() {
            0 => Target::worker(node),
            workers => Target { node, receiver: Receiver::Switch, workers },
        }
    }

    /// Returns whether the sum came whole from every node right below, in one packet each: what it was made of has stayed with
    /// switches, and pays for copies of the result there.
    fn is_summed_below(&self) -> bool {
        let (workers, slot) = (self.tree.workers(), &self.place.slot);
        let below: u32 = self.tops.iter().map(|top| top.positions).sum();
        let children = workers - below + self.tops.len() as u32;
        slot.contributors == workers && slot.packets == children
    }

    /// Sends workers the result, or the wish for floats. A result is sent only if it is paid for. A wish for
    /// floats is a header, and switches withhold it no more than servers do.
    // spec: E-13
    fn put_parameter(&mut self, to: Target, is_again: bool, outbox: &mut dyn Outbox) -> Put {
        let slot = &*self.place.slot;
        let parameter = slot.parameter(self.setup, self.tree.server(), self.job_watermark);
        let body_bytes = if parameter.repeat { 0 } else { slot.body_bytes };
        let size = match slot.body {
            Values::Real(_) if !parameter.repeat => BodySize::Bytes(body_bytes),
            _ => BodySize::Length(body_bytes),
        };
        let wire_bytes = self.setup.parameters.overhead_bytes.saturating_add(body_bytes);
        let charge = if parameter.repeat {
            Some(Charge::of_all(wire_bytes, to.workers))
        } else {
            let is_with_switches = !is_again && self.is_summed_below();
            self.credit.charge(wire_bytes, to.workers, is_with_switches)
        };
        let Some(charge) = charge else { return Put::Unpaid };
        let paid = charge.for_all && to.receiver == Receiver::Switch;
        let parameter = Parameter { paid, ..parameter };
        let purpose = if parameter.repeat { Purpose::Control } else { Purpose::of_data(is_again) };
        let Some(mut packet) = outbox.lend(size, purpose) else { return Put::NoRoom };
        self.credit.spend(charge);
        let key = self.keys.as_ref().map(|keys| keys.to(to.receiver));
        let mut envelope = envelope(self.setup, key, to.node);
        // spec: M-03, C-16
        envelope.tag.dscp = slot.dscp.unwrap_or(envelope.tag.dscp);
        if let (Values::Real(values), Body::Bytes(body), false) =
            (&slot.body, &mut packet.body, parameter.repeat)
        {
            body.copy_from_slice(values);
        }
        let covers_body = self.setup.parameters.seals_bodies;
        envelope.fill_covering(&mut packet, covers_body, |header| parameter.encode(header));
        if parameter.repeat { Put::Repeat } else { Put::Result }
    }

    fn put_request(&mut self, owing: Owing, outbox: &mut dyn Outbox) -> bool {
        let slot = &*self.place.slot;
        let Some(mut packet) = outbox.lend(BodySize::Length(0), Purpose::Control) else {
            return false;
        };
        let (to, branch, level, wanted, bypass) = match owing {
            Owing::Station(top) => {
                let Top { at: node, branch, ask_level, wanted, positions: workers, .. } = top;
                let to = Target { node, receiver: Receiver::Switch, workers };
                (to, branch, ask_level, wanted, false)
            }
            Owing::Worker(rank) => {
                let branch = self.tree.branch(rank);
                (Target::worker(self.tree.node(rank)), branch, branch.end(), 1, true)
            }
        };
        // Every worker below a station may be asked because of it.
        // spec: E-13
        self.credit.spend(Charge::of_all(self.setup.parameters.overhead_bytes, to.workers));
        let request = Request {
            identity: slot.identity(self.setup, slot.attempt),
            aggregator: slot.aggregator,
            server: self.tree.server(),
            branch,
            level,
            wanted,
            bypass,
            restart: false,
        };
        let key = self.keys.as_ref().map(|keys| keys.to(to.receiver));
        let envelope = envelope(self.setup, key, to.node);
        envelope.fill_sized(&mut packet, |header| request.encode(header));
        true
    }

    /// The first one from an index on that owes something, and the index after. A station is asked if
    /// nothing at all of it is there: a part that came past it would overlap with its sum.
    // spec: T-10
    fn next_owing(&self, from: u32) -> Option<(Owing, u32)> {
        let Place { slot, positions: taken, .. } = &self.place;
        if slot.state == State::Done {
            return None;
        }
        let bypass = slot.state == State::Floats || slot.asked.is_some_and(|asked| asked.1);
        let position = positions::first_missing(taken, from..self.tree.workers())?;
        let above = self.tops.iter().find(|top| !bypass && top.below().contains(&position));
        match above.filter(|top| positions::count(taken, top.below()) == 0) {
            Some(top) => Some((Owing::Station(*top), top.below().end)),
            None => Some((Owing::Worker(self.tree.rank_at(position)), position + 1)),
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
