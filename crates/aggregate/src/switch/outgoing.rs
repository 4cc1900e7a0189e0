//! Packets that a switch sends of its own accord.

use std::collections::VecDeque;

use thalweg_core::{Body, BodySize, Header, NodeId, Outbox, Packet, Purpose, Span, Tag, Time};
use thalweg_transport::Envelope;
use thalweg_wire::aggregate::{Identity, Notice, Query, Request};
use thalweg_wire::tag::{self, Generation};

use super::Switch;
use super::key::Fragment;
use super::keyring::Scope;
use crate::index::bucket;
use crate::keys::{Keys, Receiver};

/// Something to send.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    /// The sum at this place: again if it is full, else what there is, for the server alone.
    Sum(u32),
    /// A result that is kept at a place, to a child that lacks it.
    Result {
        /// The place.
        place: u32,
        /// The fragment, whose result may be gone by then.
        fragment: Fragment,
        /// The child.
        to: NodeId,
        /// Kind of the child.
        receiver: Receiver,
    },
    /// A request for what is missing.
    Request {
        /// Request that is sent.
        request: Request,
        /// Destination.
        to: NodeId,
        /// Generation of the key.
        generation: Generation,
        /// Kind of the node that is asked.
        receiver: Receiver,
    },
    /// A query that is passed on up the tree.
    Query {
        /// Query that is passed on.
        query: Query,
        /// Destination.
        to: NodeId,
        /// Generation of the key.
        generation: Generation,
    },
    /// That a tree is not known.
    Notice {
        /// Notice that is sent.
        notice: Notice,
        /// Recipient.
        server: NodeId,
        /// Generation of the key.
        generation: Generation,
    },
}

/// Most tasks that wait at once. A node that misses what does not fit asks again.
const TASKS_MAX: usize = 1_024;

/// For how many trees the switch remembers that it sent a notice. Trees that share a place share its
/// notices as well: the other one is sent after the gap.
const NOTICED_PLACES: usize = 64;

/// Notices that a switch sends in its life to nodes that only workers have named as servers. They let a switch that has just
/// started learn of its servers within a round trip. A server probes the switches of its jobs every second as well, so that
/// a switch whose notices were used up by a tenant knows its servers after that; and from then on no packet of a worker
/// makes the switch send to a node that no server has named.
// spec: E-13
pub(super) const STRANGERS_MAX: u32 = 1_024;

/// Tasks that wait for the interface.
#[derive(Debug)]
pub(super) struct Outgoing {
    tasks: VecDeque<Task>,
    /// From when on the next notice can be sent, by a hash of the tree.
    notice_from: [Time; NOTICED_PLACES],
    /// The same for nodes of which nobody knows that they are servers: one time for all of them, however many jobs a tenant
    /// has and however many nodes it names.
    stranger_from: Time,
    /// Number of those that may still be sent.
    strangers_left: u32,
}

impl Outgoing {
    pub(super) fn new() -> Outgoing {
        Outgoing {
            tasks: VecDeque::with_capacity(TASKS_MAX),
            notice_from: [Time::ZERO; NOTICED_PLACES],
            stranger_from: Time::ZERO,
            strangers_left: STRANGERS_MAX,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Returns whether the sum at a place waits to be sent.
    pub(super) fn has_sum(&self, place: u32) -> bool {
        self.tasks.iter().any(|task| matches!(task, Task::Sum(own) if *own == place))
    }

    /// Number of tasks that wait, which is bounded.
    pub(super) fn check(&self) {
        assert!(self.tasks.len() <= TASKS_MAX, "the number of tasks is bounded");
    }

    /// Keeps a task, if there is room.
    pub(super) fn push(&mut self, task: Task) -> bool {
        let has_room = self.tasks.len() < TASKS_MAX;
        if has_room {
            self.tasks.push_back(task);
        }
        has_room
    }
}

/// Returns whether it is time for a notice. If so, not again before the gap is over.
fn is_due(from: &mut Time, now: Time, gap: Span) -> bool {
    let is_due = now >= *from;
    if is_due {
        *from = now + gap;
    }
    is_due
}

impl Switch {
    /// Tells the server that its tree is not known.
    pub(super) fn notice(&mut self, now: Time, scope: Scope, server: NodeId) {
        self.stats.unknown_groups += 1;
        let tree = bucket(scope.job.0 ^ u64::from(server.0), NOTICED_PLACES);
        if is_due(&mut self.outgoing.notice_from[tree], now, self.config.ask_gap) {
            self.push_notice(scope, server);
        }
    }

    /// Tells a node that a worker has named as its server that its tree is not known. All jobs together cause one such
    /// notice in a gap, whomever their packets name, and [`STRANGERS_MAX`] in the life of a switch.
    // spec: E-13
    #[cold]
    pub(super) fn notice_stranger(&mut self, now: Time, scope: Scope, server: NodeId) {
        let Outgoing { stranger_from, strangers_left, .. } = &mut self.outgoing;
        if *strangers_left > 0 && is_due(stranger_from, now, self.config.ask_gap) {
            *strangers_left -= 1;
            self.push_notice(scope, server);
        }
    }

    fn push_notice(&mut self, scope: Scope, server: NodeId) {
        let Scope { job, epoch, generation } = scope;
        let notice = Notice { job, epoch, switch: self.config.me };
        self.push(Task::Notice { notice, server, generation });
    }

    /// Keeps a task, or counts that there was no room.
    pub(super) fn push(&mut self, task: Task) -> bool {
        let is_kept = self.outgoing.push(task);
        self.stats.queue_full += u64::from(!is_kept);
        is_kept
    }

    /// Sends what waits, as long as there is room.
    pub(super) fn transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        while outbox.room() > 0
            && let Some(task) = self.outgoing.tasks.pop_front()
        {
            match task {
                Task::Sum(place) => self.transmit_sum(now, place, outbox),
                Task::Result { place, fragment, to, receiver } => {
                    self.transmit_kept(place, &fragment, (to, receiver), outbox);
                }
                Task::Request { request, to, generation, receiver } => {
                    let Identity { job, epoch, .. } = request.identity;
                    let scope = Scope { job, epoch, generation };
                    let encode = |header: &mut Header| request.encode(header);
                    self.transmit_small(outbox, scope, (to, receiver), encode);
                }
                Task::Query { query, to, generation } => {
                    let Identity { job, epoch, .. } = query.identity;
                    let scope = Scope { job, epoch, generation };
                    let encode = |header: &mut Header| query.encode(header);
                    // As workers seal them.
                    self.transmit_small(outbox, scope, (to, Receiver::Worker), encode);
                }
                Task::Notice { notice, server, generation } => {
                    self.stats.notices += 1;
                    let scope = Scope { job: notice.job, epoch: notice.epoch, generation };
                    let encode = |header: &mut Header| notice.encode(header);
                    self.transmit_small(outbox, scope, (server, Receiver::Switch), encode);
                }
            }
        }
    }

    /// A full sum once more, or a part of one past all others, unless it is gone.
    // spec: T-10
    fn transmit_sum(&mut self, now: Time, place: u32, outbox: &mut dyn Outbox) {
        let Some(slot) = self.array.queued(place) else { return };
        let (key, header, is_part) = (slot.key, slot.header(), slot.missing() != 0);
        self.array.dequeue(place);
        let Some(mut gradient) = header else { return };
        let end = gradient.branch.end();
        let above = self.above(now, &key.fragment(), end);
        let (dst, level) = if is_part { (gradient.server, end) } else { above };
        gradient.level = level;
        (gradient.resend, gradient.repair) = (is_part, !is_part);
        let bytes = key.body_bytes();
        let size = if key.has_bytes() { BodySize::Bytes(bytes) } else { BodySize::Length(bytes) };
        let Some(mut packet) = outbox.lend(size, Purpose::Retransmission) else { return };
        if let Body::Bytes(body) = &mut packet.body {
            self.array.write_out(place, body);
        }
        let keys =
            self.fill(&mut packet, key.fragment().scope(), dst, |header| gradient.encode(header));
        if let Some(keys) = keys {
            tag::seal_packet(packet.header, &packet.body, key.covers_body(), &keys.job);
        }
        *if is_part { &mut self.stats.parts_sent } else { &mut self.stats.sent_again } += 1;
    }

    fn transmit_small(
        &mut self,
        outbox: &mut dyn Outbox,
        scope: Scope,
        (dst, receiver): (NodeId, Receiver),
        encode: impl FnOnce(&mut Header),
    ) {
        if let Some(mut packet) = outbox.lend(BodySize::Length(0), Purpose::Control) {
            let keys = self.fill(&mut packet, scope, dst, encode);
            if let Some(keys) = keys {
                tag::seal(packet.header, keys.to(receiver));
            }
        }
    }

    /// Addresses a packet of a job's epoch. Returns the keys to seal it with, if there are any.
    // spec: T-06
    pub(super) fn fill(
        &mut self,
        packet: &mut Packet<'_>,
        scope: Scope,
        dst: NodeId,
        encode: impl FnOnce(&mut Header),
    ) -> Option<Keys> {
        let envelope = Envelope {
            dst,
            tag: Tag::training(),
            entropy: scope.job.0 as u16,
            overhead_bytes: self.config.overhead_bytes,
            key: None,
        };
        envelope.fill_sized(packet, encode);
        self.keyring.as_mut().and_then(|keyring| keyring.keys(scope))
    }
}
