//! A Thalweg flow with rates that change every slot, over UDP from host to host.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use thalweg_console::Failure;
use thalweg_control::pacing::since_epoch;
use thalweg_core::{
    Bytes, HEADER_BYTES, Machine, NodeId, Outbox, Pacer, Packet, Rate, Reports, Span, Time, Verdict,
};
use thalweg_flow::{Config, Endpoint as Flows, Event, FlowTagger, Message, MessageConfig, Payload};
use thalweg_lab::Place;
use thalweg_net::{
    Departure, Driver, DriverConfig, Endpoint, EndpointConfig, HostPacer, Network, Peers,
};
use thalweg_pace::SlotPacer;
use thalweg_transport::control::Delay;

use super::sink::{Gains, slots};
use super::{BYTES_OF_MBPS, PacingArguments, compared, lab};
use crate::tools::sleep;

/// Mbps on the wire, slot by slot, over and over.
const RATES: &[u64] = &[50, 1_000, 200, 600, 100, 800, 400];
const SLOT: Span = Span::from_ms(60);
/// Longest delay of a wake-up that is made up for.
const LAG: Span = Span::from_ms(20);
/// A message; the next one starts when it has ended.
const MESSAGE_BYTES: u64 = 64 << 20;
const WARM_UP: Duration = Duration::from_millis(1_000);

/// Bytes that a packet occupies beside its body: Ethernet, IP, UDP and the header area.
const OVERHEAD_BYTES: u32 = 38 + 28 + HEADER_BYTES as u32;

pub(super) fn run(arguments: &PacingArguments) -> Result<Value, Failure> {
    eprintln!("flows: a Thalweg flow, 50 Mbps to 1 Gbps …");
    let lab = lab(2, "5gbit")?;
    let came = Arc::new(AtomicU64::new(0));
    let should_stop = AtomicBool::new(false);
    let Gains { first, bytes, late_us } = std::thread::scope(|scope| -> Result<_, Failure> {
        let receiver = open(lab.host(1), Arc::clone(&came))?;
        let to = receiver.local_address();
        let sender = open(lab.host(0), Arc::default())?;
        let stop = &should_stop;
        let ends = [
            scope.spawn(move || drive(receiver, None, stop)),
            scope.spawn(move || drive(sender, Some(to), stop)),
        ];
        sleep(WARM_UP);
        let measured = slots(&[Arc::clone(&came)], (arguments.seconds * 1_000 / 60) as usize);
        should_stop.store(true, Ordering::Relaxed);
        for end in ends {
            end.join().map_err(|_| Failure::Ran("a driver panicked".into()))??;
        }
        Ok(measured)
    })?;
    let mut found = Map::from_iter(compared("", RATES, first, &bytes[0], 2));
    found.insert("late_us".to_owned(), json!(late_us));
    Ok(Value::from(found))
}

fn open(place: &Place, came: Arc<AtomicU64>) -> Result<Driver<Counted>, Failure> {
    let config = Config {
        messages: MessageConfig {
            segment_bytes: 1_408,
            overhead_bytes: OVERHEAD_BYTES,
            ack_wire_bytes: OVERHEAD_BYTES,
            ..MessageConfig::default()
        },
        control: Delay::to(Span::from_ms(1)).into(),
        remembers_paths: true,
        min_rto: Span::from_ms(10),
        initial_rto: Span::from_ms(50),
        ..Config::default()
    };
    place.run(|| {
        let bind = (place.address(), 0).into();
        let endpoint = EndpointConfig { bind, ..EndpointConfig::default() };
        let endpoint = Endpoint::open_block(&endpoint).map_err(Failure::ran)?;
        let network = Network::of(endpoint.local_address().ip());
        let node = network.node(endpoint.local_address()).unwrap_or(NodeId(0));
        let flows = Flows::new(config).map_err(Failure::ran)?;
        let driver = DriverConfig { node, ..DriverConfig::default() };
        let machine = Counted { flows, came };
        Driver::new(driver, endpoint, Peers::in_network(network), machine).map_err(Failure::ran)
    })?
}

/// Runs one end; one that has somebody to send to always does.
fn drive(
    mut driver: Driver<Counted>,
    to: Option<std::net::SocketAddr>,
    should_stop: &AtomicBool,
) -> Result<(), Failure> {
    let to = to.and_then(|to| Network::of(to.ip()).node(to));
    if to.is_some() {
        driver.set_pacer(Some(Box::new(Scheduled::new(driver.now()))));
    }
    let mut is_sending = false;
    while !should_stop.load(Ordering::Relaxed) {
        if let Some(dst) = to.filter(|_| !is_sending) {
            let body = Payload::Length(Bytes::new(MESSAGE_BYTES));
            let message = Message { dst, body, tagger: FlowTagger::default(), entropy: 0 };
            let start = |machine: &mut Counted, now| machine.flows.start(now, message);
            driver.command(start, |_| {}).map_err(Failure::ran)?;
            is_sending = true;
        }
        let turn = driver.turn(|event| {
            is_sending &= !matches!(event, Event::Sent(_) | Event::Failed(_));
        });
        if turn.map_err(Failure::ran)?.is_idle {
            driver.wait(Duration::from_millis(10)).map_err(Failure::ran)?;
        }
    }
    Ok(())
}

/// Flows, and what came to them.
struct Counted {
    flows: Flows,
    came: Arc<AtomicU64>,
}

impl Machine for Counted {
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        self.came.fetch_add(packet.meta.wire_bytes.into(), Ordering::Relaxed);
        self.flows.handle_packet(now, packet)
    }

    fn handle_timeout(&mut self, now: Time) {
        self.flows.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        self.flows.poll_transmit(now, outbox);
    }

    fn has_backlog(&self) -> bool {
        self.flows.has_backlog()
    }

    fn poll_timeout(&self) -> Time {
        self.flows.poll_timeout()
    }
}

impl Reports for Counted {
    type Event = Event;

    fn poll_event(&mut self) -> Option<Event> {
        self.flows.poll_event()
    }
}

/// Grants itself the rate of every slot. What a slot was off by, the next one makes up for.
struct Scheduled {
    state: Mutex<Slots>,
    /// By how much the driver's clock is behind one that shows zero when rates begin anew.
    behind: Span,
}

struct Slots {
    pacer: SlotPacer,
    slot: Option<u64>,
    sent: u64,
    /// Bytes that should have left when the slot ends.
    due: u64,
}

impl Slots {
    fn begin(&mut self, now: Time, slot: u64, end: Time) {
        let asked = RATES[(slot % RATES.len() as u64) as usize] * BYTES_OF_MBPS;
        let is_first = self.slot.is_none();
        let owed = if is_first { 0 } else { self.due.saturating_sub(self.sent).min(asked) };
        let ahead = if is_first { 0 } else { self.sent.saturating_sub(self.due).min(asked) };
        let bytes = asked + owed - ahead;
        let rate = Rate::from_bps(bytes * 8 * 1_000 / 60);
        self.pacer.grant(now, rate, Bytes::new(bytes), end);
        (self.slot, self.due) = (Some(slot), self.sent + bytes);
    }
}

impl Scheduled {
    fn new(now: Time) -> Scheduled {
        let round = Span::from_ps(SLOT.as_ps() * RATES.len() as u64);
        let since = since_epoch().as_nanos() * 1_000 % u128::from(round.as_ps());
        let shown = now.as_ps() % round.as_ps();
        let behind = Span::from_ps((since as u64 + round.as_ps() - shown) % round.as_ps());
        let slots = Slots { pacer: SlotPacer::with_lag(LAG), slot: None, sent: 0, due: 0 };
        Scheduled { state: Mutex::new(slots), behind }
    }
}

impl HostPacer for Scheduled {
    fn next_send(&self, now: Time) -> Time {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = (now + self.behind).as_ps() / SLOT.as_ps();
        if state.slot != Some(slot) {
            state.begin(now, slot, Time::from_ps((slot + 1) * SLOT.as_ps() - self.behind.as_ps()));
        }
        state.pacer.next_send(now)
    }

    fn on_send(&mut self, now: Time, departure: &Departure<'_>) {
        let wire_bytes = departure.wire_bytes;
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.pacer.on_send(now, wire_bytes);
        state.sent += wire_bytes.as_u64();
    }
}
