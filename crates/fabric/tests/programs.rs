//! Machines in switches, directors, and what the driver owes to both.

mod common;

use std::collections::VecDeque;

use common::{Probe, Shot, TEN_GBPS, check_drained, finish, link, serialization, star, us};
use thalweg_core::{
    Body, BodySize, Machine, NodeId, Outbox, Packet, Purpose, Relay, Reports, Span, Time, Verdict,
};
use thalweg_fabric::{
    Buffer, Bystander, Config, Director, DropReason, Fabric, Hosts, Intercept, Limit, Outage,
    Pause, Program,
};

/// Treatment of the packets that a switch is shown.
#[derive(Clone, Debug)]
enum Duty {
    Consume,
    /// As it is.
    Forward,
    ForwardTo(NodeId),
    Multicast(Vec<NodeId>),
}

/// A program that reports the number of each packet it is shown, and does its duty.
struct Recorder {
    duty: Duty,
    shown: Vec<u64>,
}

impl Recorder {
    fn program(duty: Duty, intercept: Intercept) -> Program {
        Program { machine: Box::new(Recorder { duty, shown: Vec::new() }), intercept }
    }
}

impl Machine for Recorder {
    fn handle_packet(&mut self, _now: Time, packet: Packet<'_>) -> Verdict<'_> {
        self.shown.push(common::read_stamp(packet.header).0);
        match &self.duty {
            Duty::Consume => Verdict::Consume,
            Duty::Forward => Verdict::Forward,
            Duty::ForwardTo(dst) => {
                packet.meta.dst = *dst;
                Verdict::Forward
            }
            Duty::Multicast(targets) => Verdict::Multicast(targets),
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, _outbox: &mut dyn Outbox) {}

    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }
}

impl Reports for Recorder {
    type Event = u64;

    fn poll_event(&mut self) -> Option<u64> {
        None
    }
}

/// Records every event that it receives.
#[derive(Default)]
struct Listener {
    events: Vec<(Time, NodeId, u64)>,
}

impl<M: Reports<Event = u64>> Director<M> for Listener {
    fn next_wake(&mut self) -> Time {
        Time::NEVER
    }

    fn handle_wake(&mut self, _now: Time, _hosts: &mut Hosts<'_, M>) {}

    fn handle_event(&mut self, now: Time, node: NodeId, event: u64, _hosts: &mut Hosts<'_, M>) {
        self.events.push((now, node, event));
    }
}

const SWITCH: NodeId = NodeId(3);

/// Host 0 sends four packets, in turn to host 1 and to the switch, which runs a program.
fn run_recorder(duty: Duty, intercept: Intercept) -> (Fabric<Probe>, Listener) {
    let plan = [1, 3, 1, 3].map(|dst| Shot::to(NodeId(dst)));
    let mut fabric = Fabric::new(star(3), &Config::default(), 1, |host| match host {
        NodeId(0) => Probe::new(plan),
        _ => Probe::default(),
    });
    fabric.install(SWITCH, Recorder::program(duty, intercept));
    let mut listener = Listener::default();
    finish(&mut fabric, &mut listener);
    (fabric, listener)
}

fn numbers(fabric: &Fabric<Probe>, host: u32) -> Vec<u64> {
    fabric.machine(NodeId(host)).numbers()
}

fn no_route(fabric: &Fabric<Probe>) -> u64 {
    fabric.stats().dropped_packets[DropReason::NoRoute as usize]
}

#[test]
fn a_program_sees_what_it_intercepts() {
    let shown = |fabric: &Fabric<Probe>| {
        fabric.program::<Recorder>(SWITCH).expect("it was installed").shown.clone()
    };
    let (fabric, _) = run_recorder(Duty::Consume, Intercept::Addressed);
    assert_eq!(shown(&fabric), [1, 3]);
    assert_eq!(numbers(&fabric, 1), [0, 2]);
    assert!(fabric.program::<Probe>(SWITCH).is_none());
    let (fabric, _) = run_recorder(Duty::Consume, Intercept::Everything);
    assert_eq!(shown(&fabric), [0, 1, 2, 3]);
    assert_eq!((numbers(&fabric, 1), fabric.stats().consumed_packets), (vec![], 4));
}

#[test]
fn without_a_program_nobody_is_at_a_switchs_address() {
    let plan = [1, 3, 1, 3].map(|dst| Shot::to(NodeId(dst)));
    let fabric = common::run_plan(&star(3), &Config::default(), plan);
    assert_eq!((numbers(&fabric, 1), no_route(&fabric)), (vec![0, 2], 2));
}

#[test]
fn forwarded_packets_go_where_the_program_says() {
    let (fabric, _) = run_recorder(Duty::ForwardTo(NodeId(2)), Intercept::Addressed);
    assert_eq!((numbers(&fabric, 1), numbers(&fabric, 2)), (vec![0, 2], vec![1, 3]));
    let (fabric, _) = run_recorder(Duty::ForwardTo(NodeId(0)), Intercept::Everything);
    assert_eq!(numbers(&fabric, 0), [0, 1, 2, 3], "back to the sender");
    // What stays addressed to the switch would go round for ever.
    let (fabric, _) = run_recorder(Duty::Forward, Intercept::Everything);
    assert_eq!((numbers(&fabric, 1), no_route(&fabric)), (vec![0, 2], 2));
    let (fabric, _) = run_recorder(Duty::ForwardTo(NodeId(77)), Intercept::Addressed);
    assert_eq!(no_route(&fabric), 2, "there is no node 77");
}

#[test]
fn multicast_reaches_everybody_named() {
    let everybody = [0, 1, 2].map(NodeId).to_vec();
    let (fabric, _) = run_recorder(Duty::Multicast(everybody), Intercept::Addressed);
    assert_eq!(numbers(&fabric, 0), [1, 3]);
    assert_eq!(numbers(&fabric, 1), [0, 1, 2, 3]);
    assert_eq!(numbers(&fabric, 2), [1, 3]);
    // The copies leave at the same moment over cables of the same length.
    let came = |host, index: usize| fabric.machine(NodeId(host)).arrivals[index].at;
    assert_eq!(came(0, 0), came(2, 0));
    let stats = fabric.stats();
    assert_eq!((stats.created_packets, stats.copied_packets), (4, 6));
}

#[test]
fn multicast_to_nobody_or_to_itself_leaks_nothing() {
    let (fabric, _) = run_recorder(Duty::Multicast(vec![]), Intercept::Addressed);
    assert_eq!((numbers(&fabric, 1), fabric.stats().copied_packets), (vec![0, 2], 0));
    let (fabric, _) = run_recorder(Duty::Multicast(vec![SWITCH, NodeId(99)]), Intercept::Addressed);
    assert_eq!((numbers(&fabric, 1), no_route(&fabric)), (vec![0, 2], 4));
}

/// Sends one packet of real bytes, or adds its own number to every byte of what it gets and sends
/// that on to host 0, which keeps it.
struct Scribe {
    me: NodeId,
    unsent: Option<Vec<u8>>,
    kept: Vec<(NodeId, Vec<u8>)>,
}

impl Machine for Scribe {
    fn handle_packet(&mut self, _now: Time, packet: Packet<'_>) -> Verdict<'_> {
        let Body::Bytes(bytes) = packet.body else { panic!("the bytes are real") };
        if self.me == NodeId(0) {
            self.kept.push((packet.meta.src, bytes.to_vec()));
            return Verdict::Consume;
        }
        bytes.iter_mut().for_each(|byte| *byte += self.me.0 as u8);
        packet.meta.src = self.me;
        packet.meta.dst = NodeId(0);
        Verdict::Forward
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, outbox: &mut dyn Outbox) {
        let Some(bytes) = self.unsent.take() else { return };
        let packet = outbox.lend(BodySize::Bytes(bytes.len() as u32), Purpose::Data).expect("room");
        packet.meta.dst = NodeId(4);
        packet.meta.wire_bytes = 1_500;
        let Body::Bytes(body) = packet.body else { panic!("asked for bytes") };
        body.copy_from_slice(&bytes);
    }

    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }
}

impl Reports for Scribe {
    type Event = u64;

    fn poll_event(&mut self) -> Option<u64> {
        None
    }
}

#[test]
fn copies_of_real_bytes_are_independent() {
    let text = vec![10, 20, 30, 40, 50];
    let mut fabric = Fabric::new(star(4), &Config::default(), 1, |me| {
        let unsent = (me == NodeId(0)).then(|| text.clone());
        Scribe { me, unsent, kept: Vec::new() }
    });
    // The target named first is the original's own sender: it keeps the bytes untouched.
    let duty = Duty::Multicast([0, 1, 2, 3].map(NodeId).to_vec());
    fabric.install(NodeId(4), Recorder::program(duty, Intercept::Addressed));
    finish(&mut fabric, &mut Bystander);
    let mut kept = fabric.machine(NodeId(0)).kept.clone();
    kept.sort();
    let with_added = |host: u8| text.iter().map(|byte| byte + host).collect::<Vec<u8>>();
    let expected: Vec<_> = (0..4).map(|host| (NodeId(host), with_added(host as u8))).collect();
    assert_eq!(kept, expected);
}

#[test]
fn a_programs_timers_go_off_on_the_picosecond() {
    let moments = [5, 1_000_003, 1_000_004, 77_000_000_001].map(Time::from_ps);
    let plan = moments.map(|at| Shot { at, bytes: 64, ..Shot::to(NodeId(0)) });
    let mut fabric = Fabric::new(star(2), &Config::default(), 1, |_| Probe::default());
    let machine = Box::new(Probe::new(plan));
    fabric.install(NodeId(2), Program { machine, intercept: Intercept::Addressed });
    finish(&mut fabric, &mut Bystander);
    let arrivals = &fabric.machine(NodeId(0)).arrivals;
    assert_eq!(arrivals.iter().map(|arrival| arrival.sent).collect::<Vec<_>>(), moments);
    let way = serialization(64, TEN_GBPS.rate) + TEN_GBPS.delay;
    assert_eq!(arrivals[3].at, moments[3] + way);
}

#[test]
fn a_program_may_send_more_than_a_batch_at_once() {
    let buffer = Buffer::PerPort { bytes: 1 << 30 };
    let config = Config { buffer, ..Config::default() };
    let mut fabric = Fabric::new(star(2), &config, 1, |_| Probe::default());
    let machine = Box::new(Probe::new(vec![Shot::to(NodeId(1)); 1_000]));
    fabric.install(NodeId(2), Program { machine, intercept: Intercept::Addressed });
    finish(&mut fabric, &mut Bystander);
    let arrivals = &fabric.machine(NodeId(1)).arrivals;
    assert_eq!(arrivals.len(), 1_000);
    assert!(arrivals.iter().all(|arrival| arrival.sent == Time::ZERO));
}

#[test]
fn events_of_hosts_reach_the_director_at_once() {
    let (fabric, listener) = run_recorder(Duty::Forward, Intercept::Everything);
    let hop = serialization(1_500, TEN_GBPS.rate) + TEN_GBPS.delay;
    assert_eq!(listener.events[0], (Time::ZERO + hop * 2, NodeId(1), 0));
    assert!(listener.events.is_sorted_by_key(|event| event.0));
    assert_eq!(listener.events.len() as u64, fabric.stats().consumed_packets);
}

/// Lets host 0 send one packet to host 1, and host 1 one back for each that it hears of, `rounds`
/// times.
struct Conductor {
    start: Time,
    has_started: bool,
    rounds: u32,
    turns: Vec<Time>,
}

impl Director<Probe> for Conductor {
    fn next_wake(&mut self) -> Time {
        if self.has_started { Time::NEVER } else { self.start }
    }

    fn handle_wake(&mut self, now: Time, hosts: &mut Hosts<'_, Probe>) {
        assert_eq!((now, hosts.len(), hosts.is_empty()), (self.start, 2, false));
        self.has_started = true;
        hosts.machine(NodeId(0)).send(Shot::to(NodeId(1)));
    }

    fn handle_event(&mut self, now: Time, node: NodeId, _: u64, hosts: &mut Hosts<'_, Probe>) {
        self.turns.push(now);
        hosts.machine(node).send(Shot::to(NodeId(1 - node.0)));
    }

    fn is_done(&mut self) -> bool {
        self.turns.len() as u32 == self.rounds
    }
}

#[test]
fn a_directors_command_takes_effect_in_the_same_moment() {
    let mut conductor =
        Conductor { start: us(3), has_started: false, rounds: 10, turns: Vec::new() };
    let mut fabric = Fabric::new(star(2), &Config::default(), 1, |_| Probe::default());
    assert_eq!(fabric.run(&mut conductor, Limit::until(Time::NEVER)), Pause::Done);
    let turn = (serialization(1_500, TEN_GBPS.rate) + TEN_GBPS.delay) * 2;
    let expected: Vec<Time> = (1..=10).map(|number| us(3) + turn * number).collect();
    assert_eq!(conductor.turns, expected);
    fabric.check().expect("a packet is still in flight");
}

#[test]
fn a_run_goes_on_where_it_was_and_never_back() {
    let plan = (0..10).map(|number| Shot { at: us(10 * number), ..Shot::to(NodeId(1)) });
    let mut plan = Some(Probe::new(plan));
    let mut fabric = Fabric::new(star(2), &Config::default(), 1, |host| match host {
        NodeId(0) => plan.take().expect("once"),
        _ => Probe::default(),
    });
    assert_eq!(fabric.run(&mut Bystander, Limit::until(us(55))), Pause::Limit);
    assert_eq!((fabric.now(), fabric.machine(NodeId(1)).arrivals.len()), (us(55), 6));
    assert_eq!(fabric.run(&mut Bystander, Limit::until(us(20))), Pause::Limit);
    assert_eq!(fabric.now(), us(55), "time does not go back");
    let no_events = Limit { until: Time::NEVER, events: 0 };
    assert_eq!(fabric.run(&mut Bystander, no_events), Pause::Limit);
    finish(&mut fabric, &mut Bystander);
    assert_eq!(fabric.machine(NodeId(1)).arrivals.len(), 10);
}

/// Decides only when it is asked for a packet: it reports that it sent one, and wants to be woken a
/// while later to send the next. Until it has sent all, it passes on what it gets.
struct LateDecider {
    peer: NodeId,
    unsent_packets: u32,
    next: Time,
    now: Time,
    reports: VecDeque<u64>,
}

impl Machine for LateDecider {
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        self.now = now;
        if self.unsent_packets == 0 {
            return Verdict::Consume;
        }
        packet.meta.dst = self.peer;
        Verdict::Forward
    }

    fn handle_timeout(&mut self, now: Time) {
        self.now = now;
    }

    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        if self.unsent_packets == 0 || now < self.next {
            return;
        }
        let Some(packet) = outbox.lend(BodySize::Length(0), Purpose::Data) else { return };
        packet.meta.dst = self.peer;
        packet.meta.wire_bytes = 1_500;
        self.now = now;
        self.unsent_packets -= 1;
        self.next = now + Span::from_us(100);
        self.reports.push_back(u64::from(self.unsent_packets));
    }

    fn poll_timeout(&self) -> Time {
        let wants_later = self.unsent_packets > 0 && self.next > self.now;
        if wants_later { self.next } else { Time::NEVER }
    }
}

impl Reports for LateDecider {
    type Event = u64;

    fn poll_event(&mut self) -> Option<u64> {
        self.reports.pop_front()
    }
}

#[test]
fn what_a_machine_decides_when_room_appears_is_reported_and_armed() {
    // Host 1 is passing on a packet of host 0's at the moment when it would like to send its first
    // own one. It is asked when the interface is free again, and then needs a timer for the second.
    let hop = serialization(1_500, TEN_GBPS.rate) + TEN_GBPS.delay;
    let through_switch = Time::ZERO + hop * 2;
    let host = |peer, unsent_packets, next| LateDecider {
        peer: NodeId(peer),
        unsent_packets,
        next,
        now: Time::ZERO,
        reports: VecDeque::new(),
    };
    let mut fabric = Fabric::new(star(3), &Config::default(), 1, |me| match me {
        NodeId(0) => host(1, 1, Time::ZERO),
        NodeId(1) => host(2, 2, through_switch + Span::from_ps(1)),
        _ => host(1, 0, Time::ZERO),
    });
    let mut listener = Listener::default();
    finish(&mut fabric, &mut listener);
    let free = through_switch + serialization(1_500, TEN_GBPS.rate);
    let of_host_1: Vec<_> = listener.events.iter().filter(|event| event.1 == NodeId(1)).collect();
    assert_eq!(of_host_1, [&(free, NodeId(1), 1), &(free + Span::from_us(100), NodeId(1), 0)]);
    assert_eq!(fabric.stats().created_packets, 3);
}

#[test]
fn a_hosts_memory_has_no_limit() {
    // A host multiplies one packet by five. Four of them wait at its interface, which is more than
    // a switch could hold.
    let buffer = Buffer::Shared { bytes: 4_000, alpha: 1.0 };
    let config = Config { buffer, ..Config::default() };
    let mut fabric = Fabric::new(star(2), &config, 1, |host| {
        let is_source = host == NodeId(1);
        let duty = if is_source { Duty::Multicast(vec![NodeId(0); 5]) } else { Duty::Consume };
        Recorder { duty, shown: Vec::new() }
    });
    let machine = Box::new(Probe::new([Shot::to(NodeId(1))]));
    fabric.install(NodeId(2), Program { machine, intercept: Intercept::Addressed });
    let one_event = Limit { until: Time::NEVER, events: 1 };
    while fabric.run(&mut Bystander, one_event) != Pause::Quiet {
        fabric.check().expect("the limit is that of switches");
    }
    check_drained(&fabric);
    assert_eq!(fabric.link_stats(link(fabric.topology(), 1, 2)).peak_queue_bytes, 6_000);
    assert_eq!(fabric.stats().consumed_packets, 6);
}

#[test]
fn a_program_sleeps_through_its_switchs_outage() {
    let plan = (0..10).map(|number| Shot { at: us(10 * number), ..Shot::to(NodeId(0)) });
    let outages = vec![Outage { node: NodeId(2), from: us(25), until: us(65) }];
    let config = Config { outages, ..Config::default() };
    let mut fabric = Fabric::new(star(2), &config, 1, |_| Probe::default());
    let machine = Box::new(Probe::new(plan));
    fabric.install(NodeId(2), Program { machine, intercept: Intercept::Addressed });
    finish(&mut fabric, &mut Bystander);
    let arrivals = &fabric.machine(NodeId(0)).arrivals;
    let sent: Vec<Time> = arrivals.iter().map(|arrival| arrival.sent).collect();
    let expected = [0, 10, 20, 65, 65, 65, 65, 70, 80, 90].map(us);
    assert_eq!(sent, expected, "it kept its memory and caught up");
}

#[test]
fn a_relay_on_every_host_passes_packets_round_for_ever() {
    let mut fabric = Fabric::new(star(5), &Config::default(), 1, |host| Relay {
        next: NodeId((host.0 + 1) % 5),
        unsent_packets: 1,
        body: BodySize::Length(1_000),
        wire_bytes: 1_500,
    });
    assert_eq!(fabric.run(&mut Bystander, Limit::until(us(340))), Pause::Limit);
    // A round of two hops takes 3.4 µs, and every packet is always on one.
    let stats = fabric.stats();
    assert_eq!((stats.created_packets, stats.consumed_packets, stats.dropped()), (5, 0, 0));
    assert_eq!(stats.packet_hops, 5 * 2 * 100);
    fabric.check().expect("five packets travel");
    assert_eq!(fabric.link_stats(link(fabric.topology(), 0, 5)).sent_packets, 101);
}

#[test]
fn an_idle_fabric_is_quiet_at_once() {
    let mut fabric = Fabric::new(star(2), &Config::default(), 1, |_| Probe::default());
    assert_eq!(fabric.run(&mut Bystander, Limit::until(us(1))), Pause::Quiet);
    check_drained(&fabric);
    assert_eq!((fabric.now(), fabric.stats().events), (Time::ZERO, 0));
}

/// Starts switches again with a program that consumes.
struct Replacer;

impl Director<Probe> for Replacer {
    fn next_wake(&mut self) -> Time {
        Time::NEVER
    }

    fn handle_wake(&mut self, _now: Time, _hosts: &mut Hosts<'_, Probe>) {}

    fn handle_event(&mut self, _: Time, _: NodeId, _: u64, _: &mut Hosts<'_, Probe>) {}

    fn handle_switch_restart(&mut self, _now: Time, switch: NodeId) -> Option<Program> {
        assert_eq!(switch, SWITCH);
        Some(Recorder::program(Duty::Consume, Intercept::Everything))
    }
}

#[test]
fn a_switch_starts_again_with_a_fresh_program() {
    let plan = (0..10).map(|number| Shot { at: us(10 * number), ..Shot::to(NodeId(1)) });
    let mut plan = Some(Probe::new(plan));
    let outages = vec![Outage { node: SWITCH, from: us(45), until: us(65) }];
    let config = Config { outages, ..Config::default() };
    let mut fabric = Fabric::new(star(3), &config, 1, |host| match host {
        NodeId(0) => plan.take().expect("built once"),
        _ => Probe::default(),
    });
    fabric.install(SWITCH, Recorder::program(Duty::Forward, Intercept::Everything));
    finish(&mut fabric, &mut Replacer);
    // Packets 0 to 4 are passed on, 5 and 6 meet nobody, the rest end in the new program.
    assert_eq!(numbers(&fabric, 1), [0, 1, 2, 3, 4]);
    assert_eq!(fabric.stats().dropped(), 2);
    assert_eq!(fabric.stats().consumed_packets, 5 + 3);
}
