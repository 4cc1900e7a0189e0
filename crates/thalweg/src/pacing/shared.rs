//! State that the threads of a paced session share: orders of the agent, and bytes that have left.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_control::local::{self, Dependence};
use thalweg_core::{Bytes, JobId, Rate, Span, Time};
use thalweg_net::{Departure, HostPacer, Network};
use thalweg_pace::agent::Order;
use thalweg_pace::gate::{Framing, Turn};
use thalweg_pace::{Enforce, FlowId, Gate, SlotPacer};
use thalweg_stack::{ClassSource, Packets, Policy};
use thalweg_transport::JobClass;
use thalweg_wire::peek;

use super::relations::Declared;

/// Most time that a late wake-up makes up for.
const LAG: Span = Span::from_ms(20);

/// Nothing moves for this long: what was handed over and has not left will not leave.
const SILENCE: Span = Span::from_ms(60);

/// The same where it is known what has to leave, so that only other ranks can be late.
const LONG_SILENCE: Span = Span::from_s(1);

/// An agent that has been silent for this long hangs: its rates no longer hold.
const SILENT_AFTER: Span = Span::from_ms(local::SILENT_AFTER.as_millis() as u64);

/// Time for which a rate holds that holds until further notice.
const LONG: Span = Span::from_s(3_600);

/// Most hosts that a session is paced to. Bytes to others are counted for none.
const HOSTS_MAX: usize = 1_024;

/// Packets that leave in one class, at least: far less than a slot has, and enough for long batches.
const CLASS_BURST_PACKETS: usize = 64;

/// State that the threads of a paced session share.
#[derive(Debug)]
pub(super) struct Shared {
    network: Network,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// True when the agent is gone.
    is_free: bool,
    /// Obeys the agent. `None` before that has sent anything.
    gate: Option<Gate>,
    /// True if the agent orders classes, and no rates.
    by_class: bool,
    /// Length of a slot.
    slot: Span,
    /// Orders that were not taken up: their time counts from when a driver, whose clock it is, looks.
    granted: Vec<Granted>,
    class: Option<u8>,
    hold: Option<bool>,
    enter: Option<(Bytes, Span)>,
    /// By number, the flows of the session: one to each host.
    flows: Vec<Outgoing>,
    /// Jobs whose packets count where flows are compared with those that they depend on.
    related: Vec<JobId>,
    /// True once it is known on what flows depend. Nothing is announced before.
    is_declared: bool,
    /// Number of sums that have not ended.
    sums: u64,
    /// A message of the agent came since a driver looked.
    has_message: bool,
    /// Time at which a driver last found a message of the agent.
    message_at: Time,
    handed_over: u64,
    sent: u64,
    moved_at: Time,
    now: Time,
}

/// A rate of the agent.
#[derive(Clone, Copy, Debug)]
struct Granted {
    flow: u32,
    bps: u64,
    bytes: Option<u64>,
    within: Option<Span>,
}

/// A flow of the session to a host.
#[derive(Clone, Debug)]
struct Outgoing {
    to: Ipv4Addr,
    relation: Dependence,
    others: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Bytes that were handed over, as far as it is known that they go there.
    handed_over: u64,
    sent: u64,
    /// Of these, bytes that have nothing to do with the flows that it depends on.
    unrelated: u64,
    /// Bytes of late, which decide what part of the bytes to come are thought to go there.
    weight: u64,
    is_announced: bool,
    /// True if the agent leaves it alone: the host is this one.
    is_free: bool,
}

impl Outgoing {
    fn new(to: Ipv4Addr) -> Outgoing {
        Outgoing {
            to,
            relation: Dependence::Alone,
            others: Vec::new(),
            handed_over: 0,
            sent: 0,
            unrelated: 0,
            weight: 0,
            is_announced: false,
            is_free: false,
        }
    }
}

/// Counters of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Counts {
    pub(super) flow: u32,
    pub(super) is_announced: bool,
    pub(super) ready: u64,
    pub(super) sent: u64,
    pub(super) unrelated: u64,
}

impl Shared {
    /// State of a session whose nodes are in that network.
    pub(super) fn new(network: Network) -> Shared {
        Shared { network, state: Mutex::default() }
    }

    /// The agent is there, and orders classes or rates.
    pub(super) fn begin(&self, idle_bps: u64, slot_us: u64, by_class: bool) {
        let mut state = self.lock();
        // Packets count as the driver counts them, with all that they occupy of a link.
        let framing = Framing { segment_bytes: 0, overhead_bytes: 0 };
        let flows = (0..state.flows.len() as u32).map(flow_id);
        let enforce = if by_class { Enforce::Class } else { Enforce::Rate };
        let gate = Gate::new(enforce, SlotPacer::with_lag(LAG), framing, flows);
        state.gate = Some(gate.with_idle_rate(Rate::from_bps(idle_bps)));
        (state.by_class, state.has_message) = (by_class, true);
        state.slot = Span::from_us(slot_us.min(LONG.as_ps() / 1_000_000));
    }

    /// The agent grants a rate.
    pub(super) fn grant(&self, flow: u32, bps: u64, bytes: Option<u64>, within_us: Option<u64>) {
        let within = within_us.map(|us| Span::from_us(us.min(LONG.as_ps() / 1_000_000)));
        let mut state = self.lock();
        state.has_message = true;
        if let Some(flow) = state.flows.get_mut(flow as usize) {
            flow.is_free = bps == u64::MAX;
        }
        // The last rate of a flow counts.
        state.granted.retain(|granted| granted.flow != flow);
        if (flow as usize) < state.flows.len() {
            state.granted.push(Granted { flow, bps, bytes, within });
        }
    }

    // spec: C-16
    /// The agent names the class of the job in its turn.
    pub(super) fn set_class(&self, class: u8) {
        let mut state = self.lock();
        (state.class, state.has_message) = (Some(class), true);
    }

    /// The agent says whether anything is planned of the job.
    pub(super) fn hold(&self, is_held: bool) {
        let mut state = self.lock();
        (state.hold, state.has_message) = (Some(is_held), true);
    }

    /// The agent says that an iteration begins, with a budget of urgent bytes.
    pub(super) fn enter(&self, bytes: u64, within_us: u64) {
        let within = Span::from_us(within_us.min(LONG.as_ps() / 1_000_000));
        let mut state = self.lock();
        (state.enter, state.has_message) = (Some((Bytes::new(bytes), within)), true);
    }

    // spec: C-18
    /// All ranks are there, and it is known on what the flows of this one depend: their counters begin here. Packets of
    /// `related` jobs count for that, others do not.
    pub(super) fn declare(&self, declared: Vec<Declared>, related: &[JobId]) {
        let mut state = self.lock();
        let mut flows = std::mem::take(&mut state.flows);
        flows.iter_mut().for_each(|flow| *flow = Outgoing::new(flow.to));
        for Declared { to, relation, others } in declared {
            let known = flows.iter().position(|flow| flow.to == to);
            let at = known.unwrap_or(flows.len());
            if at == HOSTS_MAX {
                break;
            }
            if known.is_none() {
                flows.push(Outgoing::new(to));
                let id = flow_id(at as u32);
                state.gate.iter_mut().for_each(|gate| gate.add_flow(id));
            }
            (flows[at].relation, flows[at].others) = (relation, others);
        }
        (state.handed_over, state.sent) = (0, 0);
        (state.flows, state.is_declared) = (flows, true);
        state.related = related.to_vec();
    }

    /// The announcement of a flow, once the agent is there and it is known on what it depends. Where plans are rates,
    /// nothing may be held back that nobody knew of: then counters are a guess, and nothing depends on them.
    // spec: C-17, C-18
    pub(super) fn announcement(&self, number: u32) -> Option<local::Announced> {
        let state = self.lock();
        let flow = state.flows.get(number as usize)?;
        if !state.is_declared || state.gate.is_none() {
            return None;
        }
        let (relation, others) = match state.by_class {
            true => (flow.relation, flow.others.clone()),
            false => (Dependence::Alone, Vec::new()),
        };
        let (to, is_exact) = (flow.to, state.by_class);
        Some(local::Announced { flow: number, to, volume: None, is_exact, relation, others })
    }

    /// A flow was announced to the agent, which has to answer.
    pub(super) fn announce(&self, flow: u32) {
        let mut state = self.lock();
        state.has_message = true;
        if let Some(flow) = state.flows.get_mut(flow as usize) {
            flow.is_announced = true;
        }
    }

    /// Returns whether the agent was silent for so long that its rates no longer hold.
    pub(super) fn is_silent(&self) -> bool {
        self.lock().is_silent()
    }

    /// The agent is gone.
    pub(super) fn release(&self) {
        self.lock().is_free = true;
    }

    /// Notes that the bytes of a sum were handed over, which go to these hosts.
    pub(super) fn ready(&self, routes: &[(Ipv4Addr, u64)]) {
        let mut state = self.lock();
        if state.handed_over <= state.sent {
            // Collectives differ in the hosts that they send to, and the last ones count most.
            state.flows.iter_mut().for_each(|flow| flow.weight /= 2);
        }
        let bytes = routes.iter().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        state.handed_over = state.handed_over.max(state.sent).saturating_add(bytes);
        state.sums += 1;
        for (to, bytes) in routes {
            if let Some(flow) = state.flows.iter_mut().find(|flow| flow.to == *to) {
                flow.handed_over = flow.handed_over.max(flow.sent).saturating_add(*bytes);
            }
        }
    }

    // spec: C-17
    /// A sum has ended. When all have, nothing of what was handed over is left, however well it was estimated.
    pub(super) fn end_sum(&self) {
        let mut state = self.lock();
        state.sums = state.sums.saturating_sub(1);
        if state.sums == 0 {
            state.flows.iter_mut().for_each(|flow| flow.handed_over = flow.sent);
        }
    }

    // spec: C-18
    /// Counters of all flows, in all. Where the agent orders rates, what was handed over and has not left is thought to go
    /// where the last bytes went. What does not leave any more is given up: not everything that is handed over is sent by
    /// this process.
    pub(super) fn counts(&self) -> Vec<Counts> {
        let mut state = self.lock();
        let still_for = state.now.since(state.moved_at);
        if still_for >= SILENCE {
            state.handed_over = state.handed_over.min(state.sent);
        }
        if still_for >= LONG_SILENCE {
            state.flows.iter_mut().for_each(|flow| flow.handed_over = flow.sent);
        }
        let backlog = u128::from(state.handed_over.saturating_sub(state.sent));
        let weights: u128 = state.flows.iter().map(|flow| u128::from(flow.weight)).sum();
        let by_class = state.by_class;
        let counts = |(number, flow): (usize, &Outgoing)| {
            let part = backlog * u128::from(flow.weight) / weights.max(1);
            let part = u64::try_from(part).unwrap_or(u64::MAX);
            let Outgoing { sent, handed_over, unrelated, is_announced, .. } = *flow;
            let ready = if by_class { handed_over.max(sent) } else { sent.saturating_add(part) };
            let unrelated = if by_class { unrelated } else { 0 };
            Counts { flow: number as u32, is_announced, ready, sent, unrelated }
        };
        state.flows.iter().enumerate().map(counts).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    // spec: E-14
    fn is_silent(&self) -> bool {
        let is_limited = self.flows.iter().any(|flow| flow.is_announced && !flow.is_free);
        is_limited && !self.has_message && self.now.since(self.message_at) >= SILENT_AFTER
    }

    /// True if the agent leaves all flows alone.
    fn stays_here(&self) -> bool {
        !self.flows.is_empty() && self.flows.iter().all(|flow| flow.is_free)
    }

    /// True if nothing is held back, and packets have no class.
    fn is_unpaced(&self) -> bool {
        self.is_free || self.is_silent() || self.stays_here()
    }

    /// Takes in the time of a driver, and obeys the agent.
    fn look(&mut self, now: Time) {
        self.now = self.now.max(now);
        if std::mem::take(&mut self.has_message) {
            self.message_at = self.now;
        }
        self.take_up(self.now);
    }

    /// Obeys the agent.
    fn take_up(&mut self, now: Time) {
        let Some(gate) = &mut self.gate else { return };
        for Granted { flow, bps, bytes, within } in self.granted.drain(..) {
            let flow = flow_id(flow);
            gate.obey(
                now,
                match within {
                    None if bytes.is_none() => Order::Idle { flow },
                    _ => Order::Grant {
                        flow,
                        rate: Rate::from_bps(bps).filter(|_| bytes != Some(0)),
                        volume: Bytes::new(bytes.unwrap_or(u64::MAX)),
                        until: now + within.unwrap_or(LONG),
                    },
                },
            );
        }
        let enter = self.enter.take();
        let enter = enter
            .map(|(bytes, within)| Order::Enter { bytes: bytes.as_u64(), until: now + within });
        let orders =
            [self.class.take().map(Order::Class), self.hold.take().map(Order::Hold), enter];
        orders.into_iter().flatten().for_each(|order| gate.obey(now, order));
    }

    /// Counts what has left for a host, of a job if that is known.
    fn send_to(&mut self, to: Ipv4Addr, job: Option<JobId>, wire_bytes: u64) {
        let now = self.now;
        let known = self.flows.iter().position(|flow| flow.to == to);
        let number = known.unwrap_or(self.flows.len());
        if number == HOSTS_MAX {
            return;
        }
        let id = flow_id(number as u32);
        if known.is_none() {
            self.flows.push(Outgoing::new(to));
            self.gate.iter_mut().for_each(|gate| gate.add_flow(id));
        }
        let is_related = job.is_some_and(|job| self.related.contains(&job));
        let flow = &mut self.flows[number];
        flow.sent = flow.sent.saturating_add(wire_bytes);
        flow.weight = flow.weight.saturating_add(wire_bytes);
        if !is_related {
            flow.unrelated = flow.unrelated.saturating_add(wire_bytes);
        }
        if !flow.is_free {
            self.gate.iter_mut().for_each(|gate| gate.on_send(now, id, Bytes::new(wire_bytes)));
        }
    }

    // spec: C-16
    /// The class of all packets. `None` where the agent orders none.
    fn class(&self) -> Option<JobClass> {
        let gate = self.gate.as_ref().filter(|_| self.by_class)?;
        let values = |job_classes, class| {
            Policy { job_classes }.dscp(Packets::Values { class, layer: None })
        };
        if self.is_unpaced() {
            return Some(JobClass::InTurn(values(false, None)));
        }
        Some(match gate.class(self.now) {
            Turn::In(class) => JobClass::InTurn(values(true, Some(class))),
            Turn::Out(class) => {
                JobClass::OutOfTurn { dscp: values(true, Some(class)), patience: self.slot }
            }
        })
    }
}

/// The name of a flow at the gate of its own session.
fn flow_id(number: u32) -> FlowId {
    FlowId { job: JobId(0), number }
}

/// The part of a sending thread in its session: the pacer of its driver, and the class of its packets.
#[derive(Clone)]
pub(super) struct Paced {
    shared: Arc<Shared>,
    /// Time of the session when the clock of the thread's driver began, and the other way round: one of them is zero.
    ahead: Span,
    behind: Span,
}

impl Paced {
    /// For a thread whose driver shows `driver` at time `session` of the session.
    pub(super) fn new(shared: Arc<Shared>, session: Time, driver: Time) -> Paced {
        Paced { shared, ahead: session.since(driver), behind: driver.since(session) }
    }

    /// Time of the session.
    fn of_session(&self, driver: Time) -> Time {
        Time::ZERO + (driver + self.ahead).since(Time::ZERO + self.behind)
    }

    fn of_driver(&self, session: Time) -> Time {
        if session == Time::NEVER {
            return Time::NEVER;
        }
        Time::ZERO + (session + self.behind).since(Time::ZERO + self.ahead)
    }
}

impl HostPacer for Paced {
    fn next_send(&self, now: Time) -> Time {
        let mut state = self.shared.lock();
        state.look(self.of_session(now));
        if state.by_class || state.is_unpaced() {
            return now;
        }
        let session = state.now;
        let next = state.gate.as_mut().map_or(session, |gate| gate.next_send(session));
        if next <= session { now } else { self.of_driver(next) }
    }

    // spec: C-18
    fn on_send(&mut self, now: Time, departure: &Departure<'_>) {
        let address = self.shared.network.address(departure.to).map(|address| address.ip());
        let job = peek(departure.header).ok().map(|prefix| prefix.job);
        let wire_bytes = departure.wire_bytes.as_u64();
        let mut state = self.shared.lock();
        state.now = state.now.max(self.of_session(now));
        state.sent = state.sent.saturating_add(wire_bytes);
        state.moved_at = state.now;
        if let Some(IpAddr::V4(host)) = address {
            state.send_to(host, job, wire_bytes);
        }
    }

    fn is_open(&self) -> bool {
        self.shared.lock().by_class
    }

    fn burst_packets(&self) -> usize {
        let by_class = self.shared.lock().by_class;
        if by_class { CLASS_BURST_PACKETS } else { thalweg_net::PACED_BURST_PACKETS }
    }
}

// spec: C-16
impl ClassSource for Paced {
    fn class(&mut self, now: Time) -> Option<JobClass> {
        let now = self.of_session(now);
        let mut state = self.shared.lock();
        state.look(now);
        state.class()
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::{NodeId, Rng};
    use thalweg_pace::testing::Trail;

    use super::*;

    const PACKET: Bytes = Bytes::new(1_500);
    const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_ms(ms)
    }

    fn host(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, last)
    }

    /// A node on a host.
    fn peer(last: u8) -> NodeId {
        Network::of(OWN).node((host(last), 4_800).into()).expect("an address of the network")
    }

    /// A packet of no known job leaves for a host.
    fn leave(paced: &mut Paced, now: Time, last: u8, wire_bytes: Bytes) {
        let header = &[0; thalweg_core::HEADER_BYTES];
        paced.on_send(now, &Departure { to: peer(last), header, wire_bytes });
    }

    /// A session that an agent lets send 120 Mbps while nothing is planned, and its first packet.
    fn paced() -> (Arc<Shared>, Paced) {
        paced_from(at(100))
    }

    /// The same from another time on.
    fn paced_from(now: Time) -> (Arc<Shared>, Paced) {
        let shared = Arc::new(Shared::new(Network::of(OWN)));
        let mut paced = Paced::new(Arc::clone(&shared), Time::ZERO, Time::ZERO);
        assert_eq!(paced.next_send(now), now, "no agent is there");
        shared.begin(120_000_000, 60_000, false);
        shared.declare(Vec::new(), &[]);
        leave(&mut paced, now, 2, PACKET);
        (shared, paced)
    }

    /// Bytes that leave from one moment to another, where the driver wakes up every half millisecond.
    fn drive(paced: &mut Paced, from_ms: u64, to_ms: u64) -> u64 {
        let mut sent = 0;
        for wake_up in from_ms * 2..to_ms * 2 {
            let now = Time::ZERO + Span::from_us(wake_up * 500);
            while paced.next_send(now) <= now {
                leave(paced, now, 2, PACKET);
                sent += PACKET.as_u64();
                assert!(sent < 100_000_000, "somebody holds it");
            }
        }
        sent
    }

    // spec: C-09 machine
    #[test]
    fn rates_of_the_agent_are_obeyed() {
        let (shared, mut paced) = paced();
        let sent = drive(&mut paced, 1_000, 2_000);
        assert!((14_900_000..=15_400_000).contains(&sent), "idle: {sent}");
        shared.grant(0, 800_000_000, Some(3_000_000), Some(60_000));
        let sent = drive(&mut paced, 2_000, 2_060);
        assert!((3_000_000..=3_020_000).contains(&sent), "3 MB and then a trickle: {sent}");
        shared.grant(0, 0, Some(0), Some(60_000));
        let sent = drive(&mut paced, 2_060, 2_120);
        assert!((1..=12_000).contains(&sent), "waits: {sent}");
        let sent = drive(&mut paced, 2_120, 2_620);
        assert!((7_400_000..=8_200_000).contains(&sent), "idle again: {sent}");
        shared.release();
        assert_eq!(paced.next_send(at(3_121)), at(3_121));
    }

    // spec: E-14 machine
    #[test]
    fn rates_of_an_agent_that_is_silent_do_not_hold_until_it_is_back() {
        let (shared, mut paced) = paced();
        let sent = drive(&mut paced, 1_000, 3_000);
        assert!(!shared.is_silent(), "no flow was announced: {sent}");
        shared.announce(0);
        let sent = drive(&mut paced, 3_000, 4_000);
        assert!((14_900_000..=15_400_000).contains(&sent) && !shared.is_silent(), "{sent}");
        assert_eq!(paced.next_send(at(4_000)), at(4_000), "it was silent for a second");
        assert!(shared.is_silent());
        shared.grant(0, 120_000_000, None, None);
        let sent = drive(&mut paced, 10_000, 10_500);
        assert!((7_400_000..=8_200_000).contains(&sent), "it is back: {sent}");
        assert!(!shared.is_silent());
    }

    /// Packets that leave a session whose agent grants another rate for every slot, between 50 Mbps and 1 Gbps. The
    /// driver is woken up to half a millisecond late.
    fn granted_anew(seed: u64) -> Trail {
        let slot = Span::from_ms(60);
        let (shared, mut paced) = paced_from(Time::ZERO);
        let mut rng = Rng::new(seed).stream("rates");
        let (mut trail, mut now) = (Trail::new(slot), Time::ZERO);
        for number in 0..60 {
            let end = Time::ZERO + slot * (number + 1);
            let rate = Rate::from_bps(50_000_000 + rng.below(950_000_001)).expect("a rate");
            let volume = rate.bytes_in(slot);
            trail.grant(volume);
            let within_us = end.since(now).as_ps() / 1_000_000;
            shared.grant(0, rate.as_bps(), Some(volume.as_u64()), Some(within_us));
            while now < end {
                let next = paced.next_send(now);
                if next <= now {
                    leave(&mut paced, now, 2, PACKET);
                    trail.leave(now, PACKET);
                } else {
                    now = next.min(end) + Span::from_ps(rng.below(500_000_000));
                }
            }
        }
        trail
    }

    // spec: C-09 machine
    #[test]
    fn rates_that_change_every_slot_are_kept_over_any_ten() {
        for seed in 0..20 {
            // A packet that has begun; and while it waits for the slot's end, the trickle.
            assert_eq!(granted_anew(seed).check(PACKET * 6), Ok(()), "seed {seed}");
        }
    }

    fn of(shared: &Shared) -> Vec<(Ipv4Addr, u64, u64)> {
        let to = |flow: u32| shared.lock().flows[flow as usize].to;
        let counts = shared.counts();
        counts.iter().map(|counts| (to(counts.flow), counts.ready, counts.sent)).collect()
    }

    #[test]
    fn what_does_not_leave_is_given_up() {
        let (shared, mut paced) = paced();
        shared.ready(&[(host(2), 998_500)]);
        leave(&mut paced, at(100), 2, Bytes::new(398_500));
        paced.next_send(at(110));
        assert_eq!(of(&shared), [(host(2), 1_000_000, 400_000)]);
        paced.next_send(at(170));
        assert_eq!(of(&shared), [(host(2), 400_000, 400_000)], "the rest goes another way");
        shared.ready(&[(host(2), 500)]);
        assert_eq!(of(&shared)[0].2, 400_000);
    }

    // spec: C-18 machine
    #[test]
    fn bytes_count_for_the_hosts_that_they_go_to_and_their_rates_add_up() {
        let (shared, mut paced) = paced();
        leave(&mut paced, at(100), 3, Bytes::new(4_500));
        shared.ready(&[(host(9), 80_000)]);
        let ready = of(&shared);
        assert_eq!(ready, [(host(2), 21_500, 1_500), (host(3), 64_500, 4_500)], "as the last went");
        // A ring follows: from now on all goes to one of them, and soon is expected to.
        leave(&mut paced, at(101), 3, Bytes::new(80_000));
        for step in 0..20 {
            shared.ready(&[(host(9), 10_000)]);
            leave(&mut paced, at(102 + step), 3, Bytes::new(10_000));
        }
        shared.ready(&[(host(9), 100_000)]);
        let parts: Vec<u64> = shared.counts().iter().map(|flow| flow.ready - flow.sent).collect();
        assert!(parts[0] < 100 && parts[1] > 99_000, "{parts:?}");
        // One of them may send, and the other waits: together they send what the first may.
        shared.grant(0, 0, Some(0), Some(60_000));
        shared.grant(1, 80_000_000, Some(600_000), Some(60_000));
        let sent = drive(&mut paced, 2_000, 2_060);
        assert!((580_000..=620_000).contains(&sent), "{sent}");
        // Flows that stay on this host are left alone.
        shared.grant(0, u64::MAX, None, None);
        assert!(!shared.lock().stays_here());
        shared.grant(1, u64::MAX, None, None);
        assert_eq!(paced.next_send(at(2_070)), at(2_070));
    }

    /// A session whose agent orders classes, of which nothing is planned.
    fn classed() -> (Arc<Shared>, Paced) {
        let shared = Arc::new(Shared::new(Network::of(OWN)));
        let paced = Paced::new(Arc::clone(&shared), Time::ZERO, Time::ZERO);
        shared.begin(60_000_000, 60_000, true);
        (shared, paced)
    }

    /// Priority of packets, and whether it is the turn of the job.
    fn class(paced: &mut Paced, now: Time) -> (u8, bool) {
        let class = paced.class(now).expect("the agent orders classes");
        assert_eq!(class.dscp().class(), thalweg_core::TrafficClass::Training);
        (class.dscp().priority(), class.is_in_turn())
    }

    // spec: C-16 machine
    #[test]
    fn packets_have_the_class_of_the_job_and_none_waits() {
        let (shared, mut paced) = classed();
        shared.hold(true);
        shared.set_class(3);
        shared.enter(4_500, 120_000);
        assert_eq!(class(&mut paced, at(10)), (3, true), "an iteration begins");
        for _ in 0..3 {
            assert_eq!(paced.next_send(at(11)), at(11));
            leave(&mut paced, at(11), 2, PACKET);
        }
        assert_eq!(class(&mut paced, at(12)), (4, false), "its budget is spent");
        assert!(matches!(
            paced.class(at(12)),
            Some(JobClass::OutOfTurn { patience, .. }) if patience == Span::from_ms(60)
        ));
        assert_eq!(paced.next_send(at(12)), at(12), "nothing waits");
        assert!(paced.is_open());
        shared.grant(0, 1_000, Some(1_500), Some(48_000));
        shared.set_class(2);
        assert_eq!(class(&mut paced, at(12)), (2, true));
        leave(&mut paced, at(13), 2, PACKET);
        assert_eq!(class(&mut paced, at(13)), (3, false));
        shared.grant(0, 60_000_000, None, None);
        assert_eq!(
            class(&mut paced, at(14)),
            (3, false),
            "a flow with nothing planned adds nothing"
        );
        shared.hold(false);
        assert_eq!(class(&mut paced, at(15)), (2, true), "nothing is planned of the job");
        shared.release();
        assert_eq!(class(&mut paced, at(16)), (7, true), "as without an agent");
    }

    // spec: C-16 machine
    #[test]
    fn there_is_no_class_where_the_agent_orders_rates() {
        let (_, mut paced) = paced();
        assert_eq!(paced.class(at(200)), None);
        assert!(!paced.is_open());
    }

    // spec: C-17 machine
    #[test]
    fn what_was_handed_over_is_known_until_its_sum_ends() {
        let (shared, mut paced) = classed();
        let relation = Dependence::Ring { own_chunk: 9 };
        let others = vec![(host(1), host(2))];
        leave(&mut paced, at(1), 3, PACKET);
        shared.declare(vec![Declared { to: host(2), relation, others: others.clone() }], &[]);
        let [first, ring] = [0, 1].map(|flow| shared.announcement(flow).expect("it is declared"));
        assert_eq!((first.to, first.relation), (host(3), Dependence::Alone));
        assert_eq!((ring.to, ring.relation, ring.others), (host(2), relation, others));
        assert!(first.is_exact && ring.is_exact);
        shared.ready(&[(host(2), 10_000)]);
        leave(&mut paced, at(2), 2, Bytes::new(3_000));
        assert_eq!(of(&shared), [(host(3), 0, 0), (host(2), 10_000, 3_000)]);
        // Other ranks are late.
        paced.next_send(at(900));
        assert_eq!(of(&shared)[1], (host(2), 10_000, 3_000));
        shared.ready(&[(host(2), 5_000)]);
        shared.end_sum();
        assert_eq!(of(&shared)[1].1, 15_000, "another one has not ended");
        shared.end_sum();
        assert_eq!(of(&shared)[1].1, 3_000, "what was estimated too high is taken back");
    }

    // spec: C-05, C-06, C-18 machine
    #[test]
    fn bytes_of_other_jobs_are_counted_apart() {
        let (shared, mut paced) = classed();
        shared.declare(Vec::new(), &[JobId(7)]);
        for (job, bytes) in [(7, 1_000), (8, 500)] {
            let word = thalweg_wire::pace::Word {
                job: JobId(job),
                epoch: 0,
                flow: 0,
                direction: thalweg_wire::pace::Direction::Ask,
                slot: 1,
                slots: 10,
                has_plan: false,
                is_summed: false,
                refused: None,
                iteration: 0,
                volume: 0,
            };
            let (header, wire_bytes) = (&word.to_header(), Bytes::new(bytes));
            paced.on_send(at(1), &Departure { to: peer(2), header, wire_bytes });
        }
        let counts = shared.counts()[0];
        assert_eq!((counts.sent, counts.unrelated), (1_500, 500));
    }

    #[test]
    fn threads_with_clocks_of_their_own_share_the_time_of_the_session() {
        let shared = Arc::new(Shared::new(Network::of(OWN)));
        let late = Paced::new(Arc::clone(&shared), at(5_000), at(200));
        assert_eq!((late.of_session(at(300)), late.of_driver(at(5_100))), (at(5_100), at(300)));
        let early = Paced::new(shared, at(100), at(400));
        assert_eq!((early.of_session(at(500)), early.of_driver(at(200))), (at(200), at(500)));
        assert_eq!(early.of_driver(Time::NEVER), Time::NEVER);
    }
}
