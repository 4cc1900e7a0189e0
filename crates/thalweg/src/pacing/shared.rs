//! State that the threads of a paced session share: orders of the agent, and bytes that have left.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_control::local;
use thalweg_core::{Bytes, JobId, NodeId, Rate, Span, Time};
use thalweg_net::{HostPacer, Network};
use thalweg_pace::agent::Order;
use thalweg_pace::gate::Framing;
use thalweg_pace::{Enforce, FlowId, Gate, SlotPacer};

/// What a late wake-up missed, up to this time, is made up for.
const LAG: Span = Span::from_ms(20);

/// Nothing moves for this long: what was handed over and has not left will not leave.
const SILENCE: Span = Span::from_ms(60);

/// An agent that has been silent for this long hangs: its rates no longer hold.
const SILENT_AFTER: Span = Span::from_ms(local::SILENT_AFTER.as_millis() as u64);

/// How long a rate holds that holds until further notice.
const LONG: Span = Span::from_s(3_600);

/// Most hosts that a session is paced to. Bytes to others are counted for none.
const HOSTS_MAX: usize = 1_024;

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
    /// Rates that were not taken up: their time counts from when the driver, whose clock it is, looks.
    granted: Vec<Granted>,
    /// By number, the flows of the session: one to each host.
    flows: Vec<Outgoing>,
    /// A message of the agent came since the driver looked.
    has_message: bool,
    /// Time at which the driver last found a message of the agent.
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
#[derive(Debug)]
struct Outgoing {
    to: Ipv4Addr,
    sent: u64,
    /// Bytes of late, which decide what part of the bytes to come are thought to go there.
    weight: u64,
    is_announced: bool,
    /// True if the agent leaves it alone: the host is this one.
    is_free: bool,
}

/// Counters of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Counts {
    pub(super) flow: u32,
    pub(super) to: Ipv4Addr,
    pub(super) is_announced: bool,
    pub(super) ready: u64,
    pub(super) sent: u64,
}

impl Shared {
    /// State of a session whose nodes are in that network.
    pub(super) fn new(network: Network) -> Shared {
        Shared { network, state: Mutex::default() }
    }

    /// The agent is there.
    pub(super) fn begin(&self, idle_bps: u64) {
        let mut state = self.lock();
        // Packets count as the driver counts them, with all that they occupy of a link.
        let framing = Framing { segment_bytes: 0, overhead_bytes: 0 };
        let flows = (0..state.flows.len() as u32).map(flow_id);
        let gate = Gate::new(Enforce::Rate, SlotPacer::with_lag(LAG), framing, flows);
        state.gate = Some(gate.with_idle_rate(Rate::from_bps(idle_bps)));
        state.has_message = true;
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

    /// Notes that bytes were handed over.
    pub(super) fn ready(&self, bytes: u64) {
        let mut state = self.lock();
        if state.handed_over <= state.sent {
            // Collectives differ in the hosts that they send to, and the last ones count most.
            state.flows.iter_mut().for_each(|flow| flow.weight /= 2);
        }
        state.handed_over = state.handed_over.max(state.sent).saturating_add(bytes);
    }

    // spec: C-18
    /// Counters of all flows, in all. What was handed over and has not left is thought to go where the last bytes went. What
    /// does not leave any more is given up: not everything that is handed over is sent by this thread.
    pub(super) fn counts(&self) -> Vec<Counts> {
        let mut state = self.lock();
        if state.now.since(state.moved_at) >= SILENCE {
            state.handed_over = state.handed_over.min(state.sent);
        }
        let backlog = u128::from(state.handed_over.saturating_sub(state.sent));
        let weights: u128 = state.flows.iter().map(|flow| u128::from(flow.weight)).sum();
        let counts = |(number, flow): (usize, &Outgoing)| {
            let part = backlog * u128::from(flow.weight) / weights.max(1);
            let part = u64::try_from(part).unwrap_or(u64::MAX);
            let Outgoing { to, sent, is_announced, .. } = *flow;
            Counts { flow: number as u32, to, is_announced, ready: sent.saturating_add(part), sent }
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
    }

    /// Counts what has left for a host.
    fn send_to(&mut self, now: Time, to: Ipv4Addr, wire_bytes: u64) {
        let known = self.flows.iter().position(|flow| flow.to == to);
        let number = known.unwrap_or(self.flows.len());
        if number == HOSTS_MAX {
            return;
        }
        let id = flow_id(number as u32);
        if known.is_none() {
            let (is_announced, is_free) = (false, false);
            self.flows.push(Outgoing { to, sent: 0, weight: 0, is_announced, is_free });
            self.gate.iter_mut().for_each(|gate| gate.add_flow(id));
        }
        let flow = &mut self.flows[number];
        flow.sent = flow.sent.saturating_add(wire_bytes);
        flow.weight = flow.weight.saturating_add(wire_bytes);
        if !flow.is_free {
            self.gate.iter_mut().for_each(|gate| gate.on_send(now, id, Bytes::new(wire_bytes)));
        }
    }
}

/// The name of a flow at the gate of its own session.
fn flow_id(number: u32) -> FlowId {
    FlowId { job: JobId(0), number }
}

/// The pacer of a driver.
pub(super) struct Paced(pub(super) Arc<Shared>);

impl HostPacer for Paced {
    fn next_send(&self, now: Time) -> Time {
        let mut state = self.0.lock();
        state.now = now;
        if std::mem::take(&mut state.has_message) {
            state.message_at = now;
        }
        state.take_up(now);
        if state.is_free || state.is_silent() || state.stays_here() {
            return now;
        }
        state.gate.as_mut().map_or(now, |gate| gate.next_send(now))
    }

    // spec: C-18
    fn on_send(&mut self, now: Time, to: NodeId, wire_bytes: Bytes) {
        let address = self.0.network.address(to).map(|address| address.ip());
        let mut state = self.0.lock();
        state.sent = state.sent.saturating_add(wire_bytes.as_u64());
        state.moved_at = now;
        if let Some(IpAddr::V4(host)) = address {
            state.send_to(now, host, wire_bytes.as_u64());
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::Rng;
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

    /// A session that an agent lets send 120 Mbps while nothing is planned, and its first packet.
    fn paced() -> (Arc<Shared>, Paced) {
        let shared = Arc::new(Shared::new(Network::of(OWN)));
        let mut paced = Paced(Arc::clone(&shared));
        assert_eq!(paced.next_send(at(100)), at(100), "no agent is there");
        shared.begin(120_000_000);
        paced.on_send(at(100), peer(2), PACKET);
        (shared, paced)
    }

    /// Bytes that leave from one moment to another, where the driver wakes up every half millisecond.
    fn drive(paced: &mut Paced, from_ms: u64, to_ms: u64) -> u64 {
        let mut sent = 0;
        for wake_up in from_ms * 2..to_ms * 2 {
            let now = Time::ZERO + Span::from_us(wake_up * 500);
            while paced.next_send(now) <= now {
                paced.on_send(now, peer(2), PACKET);
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
        let (shared, mut paced) = paced();
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
                    paced.on_send(now, peer(2), PACKET);
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
        shared.counts().iter().map(|counts| (counts.to, counts.ready, counts.sent)).collect()
    }

    #[test]
    fn what_does_not_leave_is_given_up() {
        let (shared, mut paced) = paced();
        shared.ready(998_500);
        paced.on_send(at(100), peer(2), Bytes::new(398_500));
        paced.next_send(at(110));
        assert_eq!(of(&shared), [(host(2), 1_000_000, 400_000)]);
        paced.next_send(at(170));
        assert_eq!(of(&shared), [(host(2), 400_000, 400_000)], "the rest goes another way");
        shared.ready(500);
        assert_eq!(of(&shared)[0].2, 400_000);
    }

    // spec: C-18 machine
    #[test]
    fn bytes_count_for_the_hosts_that_they_go_to_and_their_rates_add_up() {
        let (shared, mut paced) = paced();
        paced.on_send(at(100), peer(3), Bytes::new(4_500));
        shared.ready(80_000);
        let ready = of(&shared);
        assert_eq!(ready, [(host(2), 21_500, 1_500), (host(3), 64_500, 4_500)], "as the last went");
        // A ring follows: from now on all goes to one of them, and soon is expected to.
        paced.on_send(at(101), peer(3), Bytes::new(80_000));
        for step in 0..20 {
            shared.ready(10_000);
            paced.on_send(at(102 + step), peer(3), Bytes::new(10_000));
        }
        shared.ready(100_000);
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
}
