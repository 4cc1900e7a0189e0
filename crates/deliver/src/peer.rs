//! A node that tensors are sent to: how fast, over which paths, which of them next.

use thalweg_core::{Bytes, NodeId, Rng, Span, Time};
use thalweg_transport::control::{Acked, ArrivalCount, Lost, PacketInfos, SentPacket};
use thalweg_transport::messages::Ready;
use thalweg_transport::{
    CheckedControl, CongestionControl, ControlStart, Controller, Paths, RttEstimator,
};
use thalweg_wire::deliver::Ack;

use crate::config::Config;
use crate::flight::{Asked, Flight};

/// Least number of echoes that the packets of a full window ask for.
const ECHOES_PER_WINDOW: u64 = 4;

/// Rank of a sender among those that wait to send to a peer: the more urgent first, then in the order of posting.
pub(crate) type Waiting = (u32, u64);

pub(crate) struct Peer {
    control: CongestionControl,
    /// Random numbers of the control.
    rng: Rng,
    flight: Flight,
    /// States that the control gave to packets that asked for an echo.
    infos: PacketInfos,
    /// Losses of packets below this number belong to a window that was cut already.
    recovery_end: u64,
    /// When a packet last left or an echo came.
    active_at: Time,
    pub paths: Paths,
    rtt: RttEstimator,
    /// Packets until the next one that asks for an echo.
    until_echo: u32,
    /// Places of senders that have something to send.
    pub waiting: Ready<Waiting>,
    /// Rank and turn among the peers that may be sent to, while it is one of them.
    pub queued: Option<(u32, u64)>,
    /// Reason why the next packet may not leave yet.
    pub held: Option<Held>,
}

/// Reason why a packet may not leave yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Held {
    /// The control paces.
    Pace,
    /// The window is full.
    Window,
}

/// A packet of a tensor that leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    /// Place of the tensor.
    pub tensor: u32,
    /// Bytes that it occupies of a link.
    pub wire_bytes: u32,
    /// Strict priority, 0 the most urgent.
    pub priority: u8,
    /// True for the last packet of a pass.
    pub is_last: bool,
    /// Number of nodes that send to the same receiver at the same time.
    pub senders: u32,
}

impl Peer {
    pub fn new(config: &Config, control: &CheckedControl, node: NodeId, rng: &Rng) -> Peer {
        Peer {
            control: control.start(&control_start(config)),
            rng: rng.substream("control", u64::from(node.0)),
            flight: Flight::new(),
            infos: PacketInfos::default(),
            recovery_end: 0,
            active_at: Time::ZERO,
            paths: Paths::new(config.path_settings(), rng.substream("spray", u64::from(node.0))),
            rtt: RttEstimator::new(config.waits),
            until_echo: 0,
            waiting: Ready::default(),
            queued: None,
            held: None,
        }
    }

    /// Why the next packet may not leave now, and until when at most.
    #[inline]
    pub fn holds(&self, config: &Config, now: Time) -> Option<(Held, Time)> {
        if !self.has_room(config) {
            return Some((Held::Window, self.overdue_at(config)));
        }
        let earliest = self.control.earliest_departure();
        (earliest > now).then_some((Held::Pace, earliest))
    }

    /// True if the window has room for a full packet. A packet always may be in flight.
    #[inline]
    pub fn has_room(&self, config: &Config) -> bool {
        let packet_bytes = u64::from(control_start(config).packet_bytes);
        let in_flight = self.flight.bytes();
        in_flight == 0 || in_flight.saturating_add(packet_bytes) <= self.control.window().as_u64()
    }

    /// When the echo of a packet in flight is overdue.
    fn overdue_at(&self, config: &Config) -> Time {
        self.active_at + self.timeout(config)
    }

    /// A data packet leaves. Returns its path, and whether it asks for an echo.
    // spec: M-02, M-08
    #[inline]
    pub fn on_data(&mut self, config: &Config, now: Time, departure: Departure) -> (u16, bool) {
        let Departure { tensor, wire_bytes, priority, is_last, senders } = departure;
        if self.flight.bytes() == 0 && now.since(self.active_at) >= self.idle_after() {
            self.control.on_burst(senders);
        }
        let (bytes, in_flight) = (Bytes::from(wire_bytes), Bytes::new(self.flight.bytes()));
        let info = self.control.on_sent(&SentPacket { now, bytes, in_flight, priority });
        let is_due = self.until_echo == 0;
        self.until_echo = if is_due { config.echo_every - 1 } else { self.until_echo - 1 };
        let unasked_bytes = self.flight.unasked_bytes() + bytes.as_u64();
        let is_window_due = unasked_bytes >= self.control.window().as_u64() / ECHOES_PER_WINDOW;
        let asks = is_due || is_last || is_window_due;
        let number = self.flight.on_sent(now, tensor, bytes.as_u64(), asks);
        if let Some(info) = info.filter(|_| asks) {
            self.infos.push(number, info);
        }
        self.active_at = now;
        (self.paths.next_batched(), asks)
    }

    /// An echo of a packet of a tensor came back.
    #[inline]
    pub fn on_echo(&mut self, config: &Config, now: Time, tensor: u32, ack: &Ack) {
        let round_trip = now.since(ack.sent_at);
        self.rtt.sample(config.waits, round_trip);
        self.rtt.stop_backing_off();
        self.active_at = now;
        let in_flight = Bytes::new(self.flight.bytes());
        let asked = self.flight.on_echo(tensor, ack.sent_at);
        let acked = Acked {
            congested: ack.congested,
            round_trip: Some(round_trip),
            priority: Some(ack.class),
            arrived: Some(ArrivalCount { bytes: ack.arrived_bytes, at: ack.arrived_at }),
            ..self.acked(now, asked, in_flight)
        };
        self.control.on_ack(&acked, &mut self.rng);
        while let Some(transmission) = self.flight.pop_lost() {
            let next_transmission = self.flight.next();
            if self.control.on_loss(&Lost { now, transmission, next_transmission }) {
                self.recovery_end = next_transmission;
            }
        }
    }

    /// The receiver of a tensor has enough: what was in flight of it has arrived, or need not.
    pub fn on_stop(&mut self, now: Time, tensor: u32) {
        let in_flight = Bytes::new(self.flight.bytes());
        let Some(asked) = self.flight.on_end(tensor) else { return };
        let acked = self.acked(now, Some(asked), in_flight);
        self.control.on_ack(&acked, &mut self.rng);
    }

    /// A tensor is given up, and with it what was in flight.
    pub fn on_end(&mut self, tensor: u32) {
        self.flight.on_end(tensor);
    }

    /// Answer to a packet and those that it stands for. Of one that was given up before, no bytes are new.
    fn acked(&mut self, now: Time, asked: Option<Asked>, in_flight: Bytes) -> Acked {
        let next_transmission = self.flight.next();
        let Asked { number, bytes } = asked.unwrap_or_default();
        Acked {
            now,
            bytes: Bytes::new(bytes),
            congested: false,
            round_trip: None,
            priority: None,
            in_flight,
            in_recovery: number < self.recovery_end,
            transmission: number,
            next_transmission,
            info: asked.and_then(|asked| self.infos.take(asked.number)),
            arrived: None,
        }
    }

    /// A probe was not answered in time.
    pub fn on_silence(&mut self, now: Time) {
        self.control.on_timeout(now);
        self.flight.give_up();
        self.infos.clear();
        self.recovery_end = self.flight.next();
    }

    /// Gives up what is in flight if the window is full and no echo came in time. Returns whether it did.
    pub fn expire(&mut self, config: &Config, now: Time) -> bool {
        let is_overdue = !self.has_room(config) && self.overdue_at(config) <= now;
        if is_overdue {
            self.on_silence(now);
            self.rtt.back_off();
        }
        is_overdue
    }

    /// Panics where its accounts are wrong.
    pub fn check(&self) {
        self.flight.check();
        self.control.check();
    }

    /// Time without a packet in flight after which the next ones are a burst of their own: a round trip. None before one
    /// was measured: then nothing was sent.
    fn idle_after(&self) -> Span {
        self.rtt.expected().unwrap_or(Span::ZERO)
    }

    /// Time to wait for an answer.
    pub fn timeout(&self, config: &Config) -> Span {
        self.rtt.timeout(config.waits)
    }

    /// Time that the last packet takes to arrive, and its echo to come back. Not less than on a congested
    /// path: queues may have grown since the last echo, and what waits in them would be sent again.
    pub fn settling(&self, config: &Config) -> Span {
        self.rtt.expected().map_or(config.settling, |expected| expected.max(config.settling))
    }
}

fn control_start(config: &Config) -> ControlStart {
    let packet_bytes = u32::from(config.segment_bytes) + config.overhead_bytes;
    ControlStart { packet_bytes, initial_packets: config.initial_window_packets }
}
