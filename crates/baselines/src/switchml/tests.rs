use thalweg_core::testing::{OwnedBody, OwnedPacket, TestOutbox};
use thalweg_core::{HEADER_BYTES, JobId, Machine, NodeId, Operation, Reports, Span, Time, Verdict};
use thalweg_values::Tensor;
use thalweg_wire::aggregate::{Gradient, Numbers, Parameter, Scale};

use super::*;

const SWITCH: NodeId = NodeId(9);
const JOB: JobId = JobId(7);

fn values(packet: &OwnedPacket) -> Vec<i32> {
    packet.bytes().as_chunks::<4>().0.iter().map(|&bytes| i32::from_le_bytes(bytes)).collect()
}

/// Two workers, two slots, two values to a fragment, one step to the unit.
fn config(rank: u8) -> Config {
    let scale = Scale::new(1.0).unwrap();
    Config { slots: 2, fragment_values: 2, scale, ..Config::new(JOB, SWITCH, rank, 2) }
}

fn worker(rank: u8, values: &[f32]) -> Worker {
    let mut worker = Worker::new(config(rank)).unwrap();
    worker.submit(Time::ZERO, Tensor::from(values.to_vec()));
    worker
}

fn switch() -> Switch {
    let mut switch = Switch::new(SWITCH, 2);
    switch.allot(JOB, 2, vec![NodeId(0), NodeId(1)]).unwrap();
    switch
}

fn sent(worker: &mut Worker, now: Time) -> Vec<OwnedPacket> {
    let mut outbox = TestOutbox::default();
    worker.poll_transmit(now, &mut outbox);
    outbox.packets
}

/// A packet after it passed the switch, and its receivers.
fn passed(switch: &mut Switch, packet: &OwnedPacket) -> Option<(OwnedPacket, Vec<NodeId>)> {
    let mut packet = packet.clone();
    let to = match switch.handle_packet(Time::ZERO, packet.lend()) {
        Verdict::Consume => return None,
        Verdict::Forward => None,
        Verdict::Multicast(workers) => Some(workers.to_vec()),
    };
    let to = to.unwrap_or_else(|| vec![packet.meta.dst]);
    Some((packet, to))
}

fn ms(ms: u64) -> Time {
    Time::ZERO + Span::from_ms(ms)
}

#[test]
fn fragments_alternate_between_two_versions_of_their_slot() {
    let places: Vec<_> = (0..7).map(|sequence| place(sequence, 3)).collect();
    assert_eq!(places, [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (0, 0)]);
}

// spec: A-50 machine
#[test]
fn a_slot_is_multicast_when_all_have_contributed() {
    let (mut switch, mut zero, mut one) = (
        switch(),
        worker(0, &[1.0, 2.0, 3.0, 4.0, 5.0]),
        worker(1, &[10.0, 20.0, 30.0, 40.0, 50.0]),
    );
    let of_zero = sent(&mut zero, Time::ZERO);
    assert_eq!(of_zero.len(), 2, "the window is the pool");
    assert_eq!((of_zero[0].meta.dst, of_zero[0].meta.wire_bytes), (SWITCH, 138));
    assert!(of_zero.iter().all(|packet| passed(&mut switch, packet).is_none()));
    let of_one = sent(&mut one, Time::ZERO);
    let (mut result, to) = passed(&mut switch, &of_one[1]).unwrap();
    assert_eq!((values(&result), to), (vec![33, 44], vec![NodeId(0), NodeId(1)]));
    assert_eq!(result.meta.src, SWITCH);
    let parameter = Parameter::decode(&result.header).unwrap();
    assert_eq!((parameter.identity.sequence, parameter.aggregator), (1, 1));
    // Slot 1 has nothing more to do. Slot 0 has one more fragment, with a single value.
    zero.handle_packet(Time::ZERO, result.lend());
    assert_eq!(sent(&mut zero, Time::ZERO).len(), 0);
    let (mut result, _) = passed(&mut switch, &of_one[0]).unwrap();
    zero.handle_packet(Time::ZERO, result.lend());
    let next = sent(&mut zero, Time::ZERO);
    let gradient = Gradient::decode(&next[0].header).unwrap();
    assert_eq!((gradient.identity.sequence, gradient.identity.attempt), (2, 1));
    assert_eq!((values(&next[0]), gradient.aggregator), (vec![5], 0));
    assert_eq!(zero.tensor(Operation(0)), None);
}

// spec: A-50 machine
#[test]
fn a_lost_result_is_sent_again_to_who_lost_it_even_while_others_go_on() {
    let (mut switch, mut zero, mut one) = (switch(), worker(0, &[1.0; 8]), worker(1, &[2.0; 8]));
    let first = sent(&mut zero, Time::ZERO)[0].clone();
    passed(&mut switch, &first);
    assert!(passed(&mut switch, &first).is_none(), "it is there already");
    let (mut result, _) = passed(&mut switch, &sent(&mut one, Time::ZERO)[0]).unwrap();
    // Worker 0 loses it; worker 1 goes on in the other version.
    one.handle_packet(Time::ZERO, result.lend());
    assert!(passed(&mut switch, &sent(&mut one, Time::ZERO)[0]).is_none());
    assert_eq!(zero.poll_timeout(), ms(1));
    zero.handle_timeout(ms(1));
    let again = sent(&mut zero, ms(1));
    assert_eq!((again.len(), zero.stats().resent_packets), (2, 2));
    let (mut result, to) = passed(&mut switch, &again[0]).unwrap();
    assert_eq!((values(&result), to), (vec![3, 3], vec![NodeId(0)]));
    zero.handle_packet(ms(1), result.lend());
    let (result, to) = passed(&mut switch, &sent(&mut zero, ms(1))[0]).unwrap();
    assert_eq!((values(&result), to.len()), (vec![3, 3], 2));
    // What the network held back finds its fragment answered, then over.
    assert!(passed(&mut switch, &first).is_some());
    let stats = switch.stats();
    assert_eq!((stats.complete_packets, stats.repeated_packets, stats.known_packets), (2, 2, 1));
}

#[test]
fn old_packets_do_not_count_for_new_fragments() {
    let (mut switch, mut zero, mut one) = (switch(), worker(0, &[1.0; 20]), worker(1, &[2.0; 20]));
    let old = sent(&mut zero, Time::ZERO)[0].clone();
    passed(&mut switch, &old);
    let mut packets = sent(&mut one, Time::ZERO);
    for sequence in [0, 2] {
        let (mut result, _) = passed(&mut switch, &packets[0]).unwrap();
        zero.handle_packet(Time::ZERO, result.lend());
        one.handle_packet(Time::ZERO, result.lend());
        assert_eq!(Parameter::decode(&result.header).unwrap().identity.sequence, sequence);
        let next = sent(&mut zero, Time::ZERO)[0].clone();
        // The second time round only worker 1 comes to fragment 4, in the version of fragment 0.
        if sequence == 0 {
            passed(&mut switch, &next);
        }
        packets = sent(&mut one, Time::ZERO);
    }
    assert!(passed(&mut switch, &packets[0]).is_none());
    assert!(passed(&mut switch, &old).is_none(), "it would have completed fragment 4");
    assert_eq!(switch.stats().refused_packets, 1);
}

#[test]
fn a_result_is_taken_once_and_only_if_it_is_right() {
    let (mut switch, mut zero, mut one) = (switch(), worker(0, &[1.0; 2]), worker(1, &[2.0; 2]));
    passed(&mut switch, &sent(&mut zero, Time::ZERO)[0]);
    let (mut result, _) = passed(&mut switch, &sent(&mut one, Time::ZERO)[0]).unwrap();
    let good = Parameter::decode(&result.header).unwrap();
    let mut refuse = |change: &dyn Fn(&mut Parameter)| {
        let (mut packet, mut parameter) = (result.clone(), good);
        change(&mut parameter);
        parameter.encode(&mut packet.header);
        zero.handle_packet(Time::ZERO, packet.lend());
        assert_eq!(zero.poll_event(), None);
    };
    refuse(&|parameter| parameter.identity.sequence = 1);
    refuse(&|parameter| parameter.identity.sequence = u64::MAX);
    refuse(&|parameter| parameter.identity.attempt = 1);
    refuse(&|parameter| parameter.identity.epoch = 2);
    refuse(&|parameter| parameter.identity.job = JobId(8));
    refuse(&|parameter| parameter.numbers = Numbers::Float);
    let mut cut = OwnedPacket { body: OwnedBody::Bytes(vec![0; 4]), ..result.clone() };
    zero.handle_packet(Time::ZERO, cut.lend());
    zero.handle_packet(Time::ZERO, result.lend());
    zero.handle_packet(Time::ZERO, result.lend());
    assert_eq!(zero.poll_event(), Some(Event::Finished { operation: Operation(0) }));
    assert_eq!((zero.poll_event(), zero.poll_timeout()), (None, Time::NEVER));
    assert_eq!(zero.tensor(Operation(0)), Some(&Tensor::from(vec![3.0, 3.0])));
    assert_eq!(zero.stats().ignored_packets, 8);
    zero.release(Operation(0));
    assert_eq!(zero.tensor(Operation(0)), None);
    assert_eq!(zero.submit(Time::ZERO, Tensor::Length(0)), Operation(1));
    assert_eq!(zero.poll_event(), Some(Event::Finished { operation: Operation(1) }));
}

#[test]
fn packets_that_make_no_sense_are_refused() {
    let mut switch = switch();
    let packet = sent(&mut worker(0, &[1.0; 4]), Time::ZERO)[0].clone();
    let good = Gradient::decode(&packet.header).unwrap();
    let mut refuse = |change: &dyn Fn(&mut Gradient)| {
        let (mut packet, mut gradient) = (packet.clone(), good);
        change(&mut gradient);
        gradient.encode(&mut packet.header);
        assert!(passed(&mut switch, &packet).is_none());
    };
    refuse(&|gradient| gradient.identity.job = JobId(8));
    refuse(&|gradient| gradient.identity.epoch = 2);
    refuse(&|gradient| gradient.identity.attempt = 1);
    refuse(&|gradient| gradient.aggregator = 1);
    refuse(&|gradient| gradient.aggregator = u32::MAX);
    refuse(&|gradient| gradient.bitmap = 0b11);
    refuse(&|gradient| gradient.bitmap = 0b10);
    refuse(&|gradient| gradient.numbers = Numbers::Float);
    let mut noise = OwnedPacket { header: [0xa5; HEADER_BYTES], ..packet.clone() };
    noise.meta.dst = SWITCH;
    assert!(passed(&mut switch, &noise).is_none());
    let mut cut = sent(&mut worker(0, &[1.0; 4]), Time::ZERO)[0].clone();
    cut.body = OwnedBody::Bytes(cut.bytes()[..7].to_vec());
    assert!(passed(&mut switch, &cut).is_none(), "no whole values");
    assert_eq!(switch.stats().refused_packets, 10);
    assert_eq!(switch.stats().added_packets, 0);
    noise.meta.dst = NodeId(1);
    assert!(passed(&mut switch, &noise).is_some(), "not for the switch");
}

#[test]
fn slots_are_allotted_once() {
    let mut switch = Switch::new(SWITCH, 10);
    let workers = |count| (0..count).map(NodeId).collect::<Vec<_>>();
    assert_eq!(switch.allot(JobId(1), 6, workers(2)), Ok(()));
    assert_eq!(switch.allot(JobId(1), 1, workers(2)), Err(AllotError::SameJob(JobId(1))));
    let error = AllotError::Slots { asked: 5, free: 4 };
    assert_eq!(switch.allot(JobId(2), 5, workers(2)), Err(error));
    assert!(matches!(switch.allot(JobId(2), 0, workers(2)), Err(AllotError::Slots { .. })));
    assert_eq!(switch.allot(JobId(2), 4, workers(0)), Err(AllotError::Workers(0)));
    assert_eq!(switch.allot(JobId(2), 4, workers(33)), Err(AllotError::Workers(33)));
    assert_eq!(switch.allot(JobId(2), 4, workers(32)), Ok(()));
}

#[test]
fn impossible_workers_are_refused() {
    let error = |config: Config| Worker::new(config).unwrap_err();
    assert_eq!(error(Config { workers: 33, ..config(0) }), ConfigError::Workers(33));
    assert_eq!(error(config(2)), ConfigError::Rank { rank: 2, workers: 2 });
    assert_eq!(error(Config { slots: 0, ..config(0) }), ConfigError::Zero("slots"));
    let none = Config { fragment_values: 0, ..config(0) };
    assert_eq!(error(none), ConfigError::Zero("fragment_values"));
    let hasty = Config { timeout_after: Span::ZERO, ..config(0) };
    assert_eq!(error(hasty), ConfigError::Zero("timeout_after"));
}

#[test]
fn what_does_not_fit_is_counted() {
    let (mut switch, mut zero, mut one) =
        (switch(), worker(0, &[2e9, f32::NAN]), worker(1, &[2e9, 0.0]));
    passed(&mut switch, &sent(&mut zero, Time::ZERO)[0]);
    let (result, _) = passed(&mut switch, &sent(&mut one, Time::ZERO)[0]).unwrap();
    assert_eq!(values(&result), [i32::MAX, 0]);
    assert_eq!((zero.stats().clipped_packets, one.stats().clipped_packets), (1, 0));
    assert_eq!(switch.stats().saturated_packets, 1);
}
