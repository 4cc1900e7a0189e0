//! Packets that a switch sends of its own accord.

use std::collections::VecDeque;

use thalweg_core::{
    Body, BodySize, Header, JobId, NodeId, Outbox, Packet, Purpose, Span, Tag, Time,
};
use thalweg_transport::Envelope;
use thalweg_wire::aggregate::{Identity, Notice, Query, Request};

use super::Switch;
use crate::index::bucket;

/// Something to send.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    /// The sum at this place: again if it is full, else what there is, for the server alone.
    Sum(u32),
    /// A request for what is missing.
    Request {
        /// What is asked.
        request: Request,
        /// Whom.
        to: NodeId,
    },
    /// A query on its way up.
    Query {
        /// What is asked.
        query: Query,
        /// Whom.
        to: NodeId,
    },
    /// That a tree is not known.
    Notice {
        /// What is said.
        notice: Notice,
        /// To whom.
        server: NodeId,
    },
}

/// How much can wait at once. Whoever misses what does not fit asks again.
const TASKS_MAX: usize = 1_024;

/// For how many trees the switch remembers that it sent a notice. Trees that share a place share its
/// notices, too: the other one is said after the gap.
const NOTICED_PLACES: usize = 64;

/// What waits for being sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    tasks: VecDeque<Task>,
    /// From when on the next notice can be sent, by a hash of the tree.
    notice_from: [Time; NOTICED_PLACES],
}

impl Outgoing {
    pub(super) fn new() -> Outgoing {
        Outgoing {
            tasks: VecDeque::with_capacity(TASKS_MAX),
            notice_from: [Time::ZERO; NOTICED_PLACES],
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

    /// Whether it is time for a notice about a tree. If so, not again before the gap is over.
    fn may_notice(&mut self, now: Time, job: JobId, server: NodeId, gap: Span) -> bool {
        let tree = job.0 ^ u64::from(server.0);
        let from = &mut self.notice_from[bucket(tree, NOTICED_PLACES)];
        let may = now >= *from;
        if may {
            *from = now + gap;
        }
        may
    }
}

impl Switch {
    /// Tells the server that its tree is not known.
    pub(super) fn notice(&mut self, now: Time, job: JobId, epoch: u32, server: NodeId) {
        self.stats.unknown_groups += 1;
        if self.outgoing.may_notice(now, job, server, self.config.ask_gap) {
            let notice = Notice { job, epoch, switch: self.config.me };
            self.push(Task::Notice { notice, server });
        }
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
                Task::Request { request, to } => {
                    let Identity { job, epoch, .. } = request.identity;
                    self.transmit_small(outbox, (job, epoch), to, |header| request.encode(header));
                }
                Task::Query { query, to } => {
                    let Identity { job, epoch, .. } = query.identity;
                    self.transmit_small(outbox, (job, epoch), to, |header| query.encode(header));
                }
                Task::Notice { notice, server } => {
                    self.stats.notices += 1;
                    let of = (notice.job, notice.epoch);
                    self.transmit_small(outbox, of, server, |header| notice.encode(header));
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
        let Identity { job, epoch, .. } = gradient.identity;
        self.fill(&mut packet, (job, epoch), dst, |header| gradient.encode(header));
        if let Body::Bytes(body) = packet.body {
            body.copy_from_slice(self.array.values(place, body.len()));
        }
        *if is_part { &mut self.stats.parts_sent } else { &mut self.stats.sent_again } += 1;
    }

    fn transmit_small(
        &mut self,
        outbox: &mut dyn Outbox,
        of: (JobId, u32),
        dst: NodeId,
        encode: impl FnOnce(&mut Header),
    ) {
        if let Some(mut packet) = outbox.lend(BodySize::Length(0), Purpose::Control) {
            self.fill(&mut packet, of, dst, encode);
        }
    }

    /// Addresses a packet of a job's epoch and seals it.
    // spec: T-06
    fn fill(
        &mut self,
        packet: &mut Packet<'_>,
        (job, epoch): (JobId, u32),
        dst: NodeId,
        encode: impl FnOnce(&mut Header),
    ) {
        let key = self.keyring.as_mut().map(|keyring| keyring.key(job, epoch));
        let envelope = Envelope {
            dst,
            tag: Tag::training(),
            entropy: job.0 as u16,
            overhead_bytes: self.config.overhead_bytes,
            key: key.as_ref(),
        };
        envelope.fill_sized(packet, encode);
    }
}
