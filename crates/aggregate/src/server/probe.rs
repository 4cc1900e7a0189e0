//! Probes of switches: is it there?
//!
//! A switch that is asked for a contribution to a job that it does not know sends a notice to the server of that job, and
//! does nothing else. So a request of a job that nobody has is a probe, and the notice is the answer: neither needs a
//! format, or a switch that knows of it.
// spec: E-09

use std::collections::VecDeque;

use thalweg_core::{BodySize, FRAME_OVERHEAD_BYTES, JobId, NodeId, Outbox, Packet, Purpose, Tag};
use thalweg_transport::Envelope;
use thalweg_wire::Prefix;
use thalweg_wire::aggregate::{AggregateError, Branch, Identity, Notice, Request};
use thalweg_wire::tag::{self, Key, Secret};

/// The job of probes: an id that registries give to nobody, and so a key that no worker has.
pub(super) const PROBE_JOB: JobId = JobId(u64::MAX);

/// Epoch of the key of probes.
const PROBE_EPOCH: u32 = 0;

/// Most probes that wait to be sent. One more is not sent, which the next one makes good.
const PROBES_MAX: usize = 4_096;

/// The probes of a server.
#[derive(Debug)]
pub(super) struct Probes {
    me: NodeId,
    key: Option<Key>,
    waiting: VecDeque<NodeId>,
}

impl Probes {
    pub(super) fn new(me: NodeId, secret: Option<&Secret>) -> Probes {
        let key = secret.map(|secret| Key::derive(secret, PROBE_JOB, PROBE_EPOCH));
        Probes { me, key, waiting: VecDeque::new() }
    }

    pub(super) fn push(&mut self, switch: NodeId) {
        if self.waiting.len() < PROBES_MAX {
            self.waiting.push_back(switch);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Sends the probes that wait, as long as there is room.
    pub(super) fn send(&mut self, outbox: &mut dyn Outbox) {
        while outbox.room() > 0
            && let Some(&switch) = self.waiting.front()
        {
            let Some(mut packet) = outbox.lend(BodySize::Bytes(0), Purpose::Control) else {
                return;
            };
            let request = self.request();
            let envelope = Envelope {
                dst: switch,
                tag: Tag::training(),
                entropy: 0,
                overhead_bytes: FRAME_OVERHEAD_BYTES,
                key: self.key.as_ref(),
            };
            envelope.fill_sized(&mut packet, |header| request.encode(header));
            self.waiting.pop_front();
        }
    }

    /// Returns the switch that a packet of the probes' job comes from. Nobody where it is forged.
    pub(super) fn answer(
        &self,
        prefix: Prefix,
        packet: &Packet<'_>,
    ) -> Result<Option<NodeId>, AggregateError> {
        let notice = Notice::decode_checked(prefix, packet.header)?;
        let is_sealed = |key| tag::verify_sized(packet.header, packet.body.len(), key);
        let is_answer = prefix.epoch == PROBE_EPOCH && self.key.as_ref().is_none_or(is_sealed);
        Ok(is_answer.then_some(notice.switch))
    }

    fn request(&self) -> Request {
        let identity =
            Identity { job: PROBE_JOB, epoch: PROBE_EPOCH, sequence: 0, attempt: 0, operation: 0 };
        Request {
            identity,
            aggregator: 0,
            server: self.me,
            branch: Branch::new([1, 0, 0, 0], [0; 4]).expect("one switch above one worker"),
            level: 1,
            wanted: 1,
            bypass: false,
            afresh: false,
        }
    }
}
