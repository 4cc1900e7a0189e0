//! A node that tensors are sent to: how fast, over which paths, which of them next.

use std::collections::BTreeSet;

use thalweg_core::{Bytes, NodeId, Rng, Span, Time};
use thalweg_transport::control::{Acked, SentPacket};
use thalweg_transport::{CongestionControl, Control, ControlStart, Controller, RttEstimator};
use thalweg_wire::deliver::Ack;

use crate::config::Config;
use crate::spray::Spray;

/// What waits to be sent to a peer, the most urgent first: rank, order of posting, place of the sender.
pub(crate) type Waiting = (u32, u64, u32);

pub(crate) struct Peer {
    control: CongestionControl,
    /// Random numbers of the control.
    rng: Rng,
    spray: Spray,
    rtt: RttEstimator,
    /// Packets until the next one that asks for an echo.
    until_echo: u32,
    /// Senders that have something to send.
    pub waiting: BTreeSet<Waiting>,
    /// With which rank and turn it stands among the peers that may be sent to.
    pub queued: Option<(u32, u64)>,
    /// Its rate does not allow the next packet yet.
    pub is_paced: bool,
}

impl Peer {
    pub fn new(config: &Config, node: NodeId, rng: &Rng) -> Peer {
        Peer {
            control: Control::from(config.rate).start(&control_start(config)),
            rng: rng.substream("control", u64::from(node.0)),
            spray: Spray::new(config.paths, rng.substream("spray", u64::from(node.0))),
            rtt: RttEstimator::new(config.waits),
            until_echo: 0,
            waiting: BTreeSet::new(),
            queued: None,
            is_paced: false,
        }
    }

    /// When its rate allows the next packet.
    #[inline]
    pub fn next_send(&self) -> Time {
        self.control.earliest_departure()
    }

    /// A data packet leaves. Returns its path, and whether it is its turn to ask for an echo.
    // spec: M-02, M-08
    #[inline]
    pub fn on_data(&mut self, config: &Config, now: Time, wire_bytes: u32) -> (u16, bool) {
        let bytes = Bytes::from(wire_bytes);
        // Echoes do not say what is in flight, and a rate needs no window.
        self.control.on_sent(&SentPacket { now, bytes, in_flight: Bytes::ZERO, priority: 0 });
        let is_due = self.until_echo == 0;
        self.until_echo = if is_due { config.echo_every - 1 } else { self.until_echo - 1 };
        (self.spray.next_path(), is_due)
    }

    /// The path of a question.
    pub fn path(&mut self) -> u16 {
        self.spray.next_path()
    }

    /// An echo came back.
    #[inline]
    pub fn on_echo(&mut self, config: &Config, now: Time, ack: &Ack) {
        let round_trip = now.since(ack.sent_at);
        self.rtt.sample(config.waits, round_trip);
        let acked = Acked {
            now,
            bytes: Bytes::from(config.echo_every) * u64::from(config.segment_bytes),
            congested: ack.congested,
            round_trip: Some(round_trip),
            priority: Some(ack.class),
            in_flight: Bytes::ZERO,
            in_recovery: false,
            transmission: 0,
            next_transmission: 0,
            info: None,
        };
        self.control.on_ack(&acked, &mut self.rng);
    }

    /// A probe was not answered in time.
    pub fn on_silence(&mut self, now: Time) {
        self.control.on_timeout(now);
    }

    /// How long to wait for an answer.
    pub fn timeout(&self, config: &Config) -> Span {
        self.rtt.timeout(config.waits)
    }

    /// How long the last packet takes to arrive, and its echo to come back. Not less than on a congested
    /// path: queues may have grown since the last echo, and what waits in them would be sent again.
    pub fn settling(&self, config: &Config) -> Span {
        self.rtt.expected().map_or(config.rate.high, |expected| expected.max(config.rate.high))
    }
}

fn control_start(config: &Config) -> ControlStart {
    let packet_bytes = u32::from(config.segment_bytes) + config.overhead_bytes;
    ControlStart { packet_bytes, initial_packets: 1 }
}
