//! Probes of switches: is it there, what are its limits, and what does the path carry?
// spec: E-06, E-09, F-01

use std::collections::VecDeque;

use thalweg_core::{BodySize, FRAME_OVERHEAD_BYTES, NodeId, Outbox, Packet, Purpose, Tag};
use thalweg_transport::Envelope;
use thalweg_wire::Prefix;
use thalweg_wire::aggregate::{AggregateError, Description, PROBE_EPOCH, PROBE_JOB, Probe};
use thalweg_wire::tag::{self, Key, Secret};

/// Most probes that wait to be sent. One more is not sent, which the next one makes good.
const PROBES_MAX: usize = 4_096;

/// A path between a server and a switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SwitchPath {
    /// The switch at its end.
    pub switch: NodeId,
    /// The switch that it leads by, if there is one.
    pub via: Option<NodeId>,
}

/// The probes of a server.
#[derive(Debug)]
pub(super) struct Probes {
    me: NodeId,
    key: Option<Key>,
    /// Probes that wait, and the lengths of their bodies.
    waiting: VecDeque<(SwitchPath, u16)>,
}

impl Probes {
    pub(super) fn new(me: NodeId, secret: Option<&Secret>) -> Probes {
        let key = secret.map(|secret| Key::derive(secret, PROBE_JOB, PROBE_EPOCH));
        Probes { me, key, waiting: VecDeque::new() }
    }

    pub(super) fn replace_secret(&mut self, secret: &Secret) {
        self.key = Some(Key::derive(secret, PROBE_JOB, PROBE_EPOCH));
    }

    pub(super) fn push(&mut self, path: SwitchPath, body_bytes: u16) {
        if self.waiting.len() < PROBES_MAX {
            self.waiting.push_back((path, body_bytes));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Sends the probes that wait, as long as there is room.
    pub(super) fn send(&mut self, outbox: &mut dyn Outbox) {
        while outbox.room() > 0
            && let Some(&(SwitchPath { switch, via }, body_bytes)) = self.waiting.front()
        {
            // Padding is zeros.
            let body = BodySize::Length(body_bytes.into());
            let Some(mut packet) = outbox.lend(body, Purpose::Control) else { return };
            let probe = Probe { server: self.me, switch, via };
            let envelope = Envelope {
                dst: via.unwrap_or(switch),
                tag: Tag::training(),
                entropy: 0,
                overhead_bytes: FRAME_OVERHEAD_BYTES,
                key: self.key.as_ref(),
            };
            envelope.fill_sized(&mut packet, |header| probe.encode(header));
            self.waiting.pop_front();
        }
    }

    /// Reads a packet of the probes' job. `None` where it is forged, or answers another server.
    pub(super) fn answer(
        &self,
        prefix: Prefix,
        packet: &Packet<'_>,
    ) -> Result<Option<Description>, AggregateError> {
        let description = Description::decode_checked(prefix, packet.header)?;
        let is_sealed = |key| tag::verify_sized(packet.header, packet.body.len(), key);
        let is_answer = description.server == self.me && self.key.as_ref().is_none_or(is_sealed);
        Ok(is_answer.then_some(description))
    }
}
