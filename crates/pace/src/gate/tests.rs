use thalweg_core::testing::DiscardOutbox;
use thalweg_core::{JobId, Rng};

use super::*;
use crate::testing::Trail;

const OVERHEAD_BYTES: u32 = 40;
const FULL: u32 = 1_460;
const FRAMING: Framing = Framing { segment_bytes: FULL, overhead_bytes: OVERHEAD_BYTES };

fn flow(number: u32) -> FlowId {
    FlowId { job: JobId(7), number }
}

fn at_ms(ms: u64) -> Time {
    Time::ZERO + Span::from_ms(ms)
}

/// Returns true if a packet may leave.
fn leaves(gate: &mut Gate, now: Time, bytes: u32, purpose: Purpose) -> bool {
    let mut sink = DiscardOutbox::default();
    Gated::new(&mut sink, gate, now).lend(BodySize::Length(bytes), purpose).is_some()
}

/// Full packets that leave until a moment, where somebody looks every half millisecond.
fn drive(gate: &mut Gate, from: Time, until: Time) -> u64 {
    let (mut now, mut packets) = (from, 0);
    while now < until {
        gate.handle_timeout(now);
        while leaves(gate, now, FULL, Purpose::Data) {
            packets += 1;
            assert!(packets < 100_000, "somebody holds it");
        }
        now += Span::from_us(500);
    }
    packets
}

/// Packets that pass a gate whose rates, between 50 Mbps and 1 Gbps, change with every slot. There is always something
/// to send behind it. The gate of another process is looked at up to half a millisecond late.
fn passed_gate(seed: u64, is_remote: bool) -> Trail {
    let slot = Span::from_ms(60);
    let pacer = match is_remote {
        true => SlotPacer::with_lag(Span::from_ms(20)),
        false => SlotPacer::with_burst(slot / 1_000),
    };
    let mut gate = Gate::new(Enforce::Rate, pacer, FRAMING, [flow(0)]);
    let late = if is_remote { Span::from_us(500) } else { Span::ZERO };
    if is_remote {
        gate = gate.with_idle_rate(Rate::from_bps(60_000_000));
    }
    gate.obey(Time::ZERO, Order::Hold(true));
    let mut rng = Rng::new(seed).stream("rates");
    let (mut trail, mut now, mut packets) = (Trail::new(slot), Time::ZERO, 0);
    for number in 0..60 {
        let end = Time::ZERO + slot * (number + 1);
        let rate = Rate::from_bps(50_000_000 + rng.below(950_000_001)).expect("a rate");
        let volume = rate.bytes_in(slot);
        trail.grant(volume);
        gate.obey(now, Order::Grant { flow: flow(0), rate: Some(rate), volume, until: end });
        while now < end {
            gate.handle_timeout(now);
            // Every tenth packet is a question, which passes and counts.
            let is_question = rng.below(10) == 0;
            let (bytes, purpose) =
                if is_question { (100, Purpose::Control) } else { (FULL, Purpose::Data) };
            if leaves(&mut gate, now, bytes, purpose) {
                trail.leave(now, Bytes::new(u64::from(bytes + OVERHEAD_BYTES)));
                packets += 1;
                assert!(packets < 1_000_000, "seed {seed}: somebody holds it");
            } else {
                now = gate.opens_at().min(end) + Span::from_ps(rng.below(late.as_ps() + 1));
            }
        }
        let mut passed = Bytes::ZERO;
        gate.settle(|sent| passed += sent.bytes);
        assert!(passed > Bytes::ZERO, "seed {seed}, slot {number}");
    }
    trail
}

// spec: C-09 machine
#[test]
fn rates_that_change_every_slot_are_kept_over_any_ten() {
    for seed in 0..20 {
        // A packet that has begun, and questions while the gate is closed: a tenth of few packets.
        let excess = Bytes::new(5 * 1_500);
        assert_eq!(passed_gate(seed, false).check(excess), Ok(()), "seed {seed}");
        // With late looks and a trickle, a few more.
        let excess = Bytes::new(16 * 1_500);
        assert_eq!(passed_gate(seed, true).check(excess), Ok(()), "seed {seed}, late");
    }
}

/// Orders of another process, by rate, of a job with two flows.
fn remote() -> Gate {
    let pacer = SlotPacer::with_lag(Span::from_ms(20));
    let gate = Gate::new(Enforce::Rate, pacer, FRAMING, [flow(0), flow(1)]);
    gate.with_idle_rate(Rate::from_bps(120_000_000))
}

// spec: C-09 machine
#[test]
fn grants_of_another_process_end_one_by_one_and_then_the_idle_rate_holds() {
    let mut gate = remote();
    let packets = drive(&mut gate, at_ms(0), at_ms(100));
    assert!((990..=1_210).contains(&packets), "nothing was ordered yet: {packets}");
    let rate = Rate::from_bps(600_000_000);
    let grant = |number, ms| Order::Grant {
        flow: flow(number),
        rate,
        volume: Bytes::new(1_500_000),
        until: at_ms(ms),
    };
    gate.obey(at_ms(120), grant(0, 180));
    gate.obey(at_ms(120), Order::Idle { flow: flow(1) });
    let packets = drive(&mut gate, at_ms(120), at_ms(180));
    assert!((3_400..=3_800).contains(&packets), "one at its rate, one idle: {packets}");
    let packets = drive(&mut gate, at_ms(180), at_ms(280));
    assert!((990..=1_210).contains(&packets), "the grant is over: {packets}");
    gate.obey(
        at_ms(300),
        Order::Grant { flow: flow(0), rate: None, volume: Bytes::ZERO, until: at_ms(360) },
    );
    gate.obey(
        at_ms(300),
        Order::Grant { flow: flow(1), rate: None, volume: Bytes::ZERO, until: at_ms(360) },
    );
    let packets = drive(&mut gate, at_ms(300), at_ms(360));
    assert!((1..=8).contains(&packets), "it waits, but for a trickle: {packets}");
}

// spec: C-09, C-13 machine
#[test]
fn what_passes_is_counted_in_turn_for_flows_that_may_send() {
    let mut gate = remote();
    for number in 0..2 {
        gate.obey(at_ms(0), Order::Idle { flow: flow(number) });
    }
    let (mut bytes, mut again) = (Bytes::ZERO, Bytes::ZERO);
    for packet in 0..4 {
        assert!(leaves(&mut gate, at_ms(50 + packet), FULL, Purpose::Data));
        assert!(leaves(&mut gate, at_ms(50 + packet), 100, Purpose::Retransmission));
        gate.settle(|sent| (bytes, again) = (bytes + sent.bytes, again + sent.again));
    }
    assert_eq!((bytes, again), (Bytes::new(4 * 1_500), Bytes::new(4 * 140)));
    let grant = Order::Grant { flow: flow(0), rate: None, volume: Bytes::ZERO, until: at_ms(120) };
    gate.obey(at_ms(60), grant);
    let mut counted = Vec::new();
    for _ in 0..3 {
        assert!(leaves(&mut gate, at_ms(60), 100, Purpose::Control));
        gate.settle(|sent| counted.push(sent.flow.number));
    }
    assert_eq!(counted, [1, 1, 1], "the first waits");
}

// spec: C-16 machine
#[test]
fn a_gate_of_another_process_holds_nothing_back_where_plans_are_budgets() {
    let pacer = SlotPacer::with_lag(Span::from_ms(20));
    let gate = Gate::new(Enforce::Class, pacer, FRAMING, [flow(0), flow(1)]);
    let mut gate = gate.with_idle_rate(Rate::from_bps(60_000_000));
    assert_eq!(gate.class(at_ms(0)), Turn::Out(LAST_CLASS), "nothing is known of the job");
    gate.obey(at_ms(0), Order::Hold(true));
    gate.obey(at_ms(0), Order::Class(4));
    let volume = Bytes::new(3_000);
    gate.obey(at_ms(0), Order::Grant { flow: flow(0), rate: None, volume, until: at_ms(60) });
    gate.obey(at_ms(0), Order::Idle { flow: flow(1) });
    for ms in [1, 2] {
        assert_eq!(gate.class(at_ms(ms)), Turn::In(4));
        assert_eq!(gate.next_send(at_ms(ms)), at_ms(ms));
        gate.on_send(at_ms(ms), flow(0), Bytes::new(1_500));
    }
    assert_eq!(gate.class(at_ms(3)), Turn::Out(5), "a flow with nothing planned has no budget");
    assert_eq!(gate.next_send(at_ms(3)), at_ms(3));
    gate.obey(at_ms(3), Order::Hold(false));
    assert_eq!(gate.class(at_ms(3)), Turn::In(4));
}
