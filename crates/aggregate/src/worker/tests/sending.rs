use half::f16;
use thalweg_core::Tag;
use thalweg_transport::Control;
use thalweg_transport::control::{Aimd, Bbr, Delay};
use thalweg_values::Tensor;
use thalweg_wire::aggregate::Magnitude;
use thalweg_wire::tag::{self, Secret};

use super::*;
use crate::index;
use crate::reliability::Absences;

// spec: machine
#[test]
fn tensors_become_fragments_of_all_servers() {
    let other = NodeId(21);
    let mut bench = Bench::new(Setup { trees: vec![tree(SERVER), tree(other)], ..setup() });
    bench.submit(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, f32::NAN]);
    assert_eq!(bench.submit(&[0.5]), Operation(1));
    let sent = bench.sent();
    let gradients: Vec<Gradient> = sent.iter().map(Owned::gradient).collect();
    assert_eq!(gradients.iter().map(|g| g.identity.sequence).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(sent.iter().map(|p| p.bytes().len()).collect::<Vec<_>>(), [16, 16, 8, 4]);
    assert_eq!(
        gradients.iter().map(|g| g.server).collect::<Vec<_>>(),
        [SERVER, other, SERVER, other]
    );
    assert_eq!(gradients.iter().map(|g| g.watermark_distance).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(sent.iter().map(|p| p.meta.wire_bytes).collect::<Vec<_>>(), [116, 116, 108, 104]);
    for (sequence, (packet, gradient)) in sent.iter().zip(&gradients).enumerate() {
        assert_eq!((packet.meta.dst, packet.meta.ecn), (SWITCH, Ecn::Capable));
        assert_eq!(packet.meta.dscp, Tag::training().dscp);
        assert_eq!((gradient.identity.job, gradient.identity.epoch), (JOB, 1));
        assert_eq!(gradient.aggregator, index::first(JOB, sequence as u32, 1_000));
        assert_eq!((gradient.bitmap, gradient.bitmap_level, gradient.level), (0b10, 0, 0));
        assert_eq!(gradient.numbers, Numbers::Float);
        assert!(!gradient.resend && !gradient.repair && !gradient.result && !gradient.overflow);
    }
    assert_eq!(sent[1].floats(), [4.0, 5.0, 6.0, 7.0]);
    let [eight, nan] = sent[2].floats()[..] else { panic!("two values") };
    assert!(eight == 8.0 && nan.is_nan());
}

// spec: A-30 machine
#[test]
fn slots_come_again_after_a_span_and_linear_ones_after_all_aggregators() {
    let aggregators = |setup: Setup| -> Vec<u32> {
        let mut bench = Bench::new(setup);
        bench.submit_length(4 * 12);
        let mut sent = bench.sent();
        bench.answer(0..4);
        sent.extend(bench.sent());
        sent.iter().map(|packet| packet.gradient().aggregator).collect()
    };
    let hashed = aggregators(setup());
    assert_eq!(hashed[8..12], hashed[..4]);
    let few = aggregators(setup().with(|parameters| parameters.aggregators = 3));
    assert!(few[3..6] == few[..3] && few.iter().all(|&index| index < 3));
    let linear = aggregators(setup().with(|parameters| {
        parameters.aggregators = 5;
        parameters.indexing = Indexing::Linear;
    }));
    assert_eq!(linear, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]);
}

// spec: machine
#[test]
fn the_window_and_the_span_hold_fragments_back() {
    // 350 bytes: three packets of 116.
    let config = Config { control: Fixed { bytes: 350 }.into(), ..Config::default() };
    let mut bench = Bench::with(setup(), config);
    bench.submit_length(4 * 20);
    assert_eq!(bench.sent_sequences(), [0, 1, 2]);
    bench.answer([2]);
    assert_eq!(bench.sent_sequences(), [3]);
    bench.answer([0, 1]);
    assert_eq!(bench.sent_sequences(), [4, 5]);
    assert_eq!(bench.worker.watermark(), 3);

    let mut bench = Bench::new(setup());
    bench.submit_length(4 * 20);
    assert_eq!(bench.sent_sequences(), [0, 1, 2, 3, 4, 5, 6, 7]);
    bench.answer([1, 2]);
    assert_eq!(bench.sent_sequences(), []);
    bench.answer([0]);
    assert_eq!(bench.sent_sequences(), [8, 9, 10]);
}

#[test]
fn packets_wait_for_room() {
    let mut bench = Bench::new(setup());
    bench.submit_length(4 * 3);
    let mut wire = TestOutbox::with_room(NodeId(0), 2);
    bench.worker.poll_transmit(bench.now, &mut wire);
    assert_eq!(wire.packets.len(), 2);
    assert!(bench.worker.has_backlog());
    assert_eq!(bench.sent_sequences(), [2]);
}

// spec: A-32 machine
#[test]
fn sums_are_written_once_where_they_belong() {
    let mut bench = Bench::new(setup());
    let first = bench.submit(&[1.0; 6]);
    let second = bench.submit(&[2.0; 4]);
    bench.sent();
    bench.answer_values(2, &[20.0, 21.0, 22.0, f32::INFINITY]);
    assert_eq!(bench.finished(), [(1, 0)]);
    bench.answer_values(1, &[14.0, 15.0]);
    assert_eq!((bench.worker.watermark(), bench.worker.tensor(first)), (0, None));
    bench.answer_values(0, &[10.0, 11.0, 12.0, 13.0]);
    assert_eq!((bench.worker.watermark(), bench.finished()), (3, vec![(0, 0)]));
    bench.answer_values(0, &[99.0; 4]);
    let result = |operation| bench.worker.tensor(operation).unwrap().values().unwrap().to_vec();
    assert_eq!(result(first), [10.0, 11.0, 12.0, 13.0, 14.0, 15.0]);
    assert_eq!(result(second), [20.0, 21.0, 22.0, f32::INFINITY]);
    let stats = bench.worker.stats();
    assert_eq!((stats.parameters, stats.duplicates, stats.completed_bytes), (4, 1, 40));
    assert_eq!(bench.worker.poll_timeout(), Time::NEVER);
}

#[test]
fn sums_that_do_not_fit_are_ignored() {
    let mut bench = Bench::new(setup());
    bench.submit(&[1.0; 6]);
    bench.sent();
    bench.answer_values(1, &[9.0; 4]);
    bench.answer_values(0, &[9.0; 2]);
    bench.answer([0]);
    bench.answer_with(Parameter { server: SWITCH, ..bench.parameter(0) });
    bench.answer_with(Parameter {
        identity: Identity { job: JobId(8), ..bench.identity(0) },
        ..bench.parameter(0)
    });
    bench.answer_with(Parameter {
        identity: Identity { epoch: 0, ..bench.identity(0) },
        ..bench.parameter(0)
    });
    bench.answer_with(bench.parameter(2));
    assert_eq!((bench.worker.watermark(), bench.worker.stats().ignored), (0, 7));
}

// spec: A-31, T-09 machine
#[test]
fn fixed_point_is_scaled_and_what_does_not_fit_is_flagged() {
    let mut bench = Bench::new(setup().with(|parameters| parameters.numeric = fixed(100.0, false)));
    let operation = bench.submit(&[1.5, -0.014, 0.0, 2.0, 1.0, f32::NAN, 1.0, 1.0, 3e7]);
    let sent = bench.sent();
    let integers: Vec<i32> =
        sent[0].bytes().as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect();
    assert_eq!(integers, [150, -1, 0, 200]);
    let flags: Vec<bool> = sent.iter().map(|packet| packet.gradient().overflow).collect();
    assert_eq!(flags, [false, true, true]);
    let scale = Scale::new(100.0).unwrap();
    assert_eq!(sent[0].gradient().numbers, Numbers::Fixed(scale));

    // Another worker's scale does not matter: the header has that of the sum.
    let numbers = Numbers::Fixed(Scale::new(10.0).unwrap());
    let header = Parameter { numbers, ..bench.parameter(0) }.to_header();
    let mut body: Vec<u8> = [45_i32, -5, 0, 10].iter().flat_map(|sum| sum.to_le_bytes()).collect();
    bench.deliver(header, Body::Bytes(&mut body), Ecn::Capable);
    bench.answer_values(1, &[1.0, f32::NAN, 2.0, 2.0]);
    bench.answer_values(2, &[6e7]);
    let result = bench.worker.tensor(operation).unwrap().values().unwrap();
    assert_eq!(result[..5], [4.5, -0.5, 0.0, 1.0, 1.0]);
    assert!(result[5].is_nan() && result[8] == 6e7);
}

// spec: A-36 machine
#[test]
fn the_magnitude_of_the_next_window_travels_along() {
    let config = Config { control: Fixed { bytes: 350 }.into(), ..Config::default() };
    let magnitudes = |dynamic| -> Vec<Magnitude> {
        let mut bench = Bench::with(
            setup().with(|parameters| parameters.numeric = fixed(1.0, dynamic)),
            config,
        );
        let mut values = vec![1.0; 4 * 5];
        values[3 * 4 + 1] = -9.0;
        bench.submit(&values);
        bench.sent().iter().map(|packet| packet.gradient().next_magnitude).collect()
    };
    // Three packets fit the window: fragment 3 leaves when fragment 0 is answered.
    assert_eq!(magnitudes(true), [Magnitude::of(8.0), Magnitude::of(1.0), Magnitude::default()]);
    assert_eq!(magnitudes(false), [Magnitude::default(); 3]);
}

#[test]
fn tensors_without_values_send_the_same_headers() {
    let run = |tensor: Tensor| {
        let mut bench = Bench::new(setup());
        bench.worker.submit(bench.now, tensor);
        bench.sent()
    };
    let (values, lengths) = (run(Tensor::from(vec![1.0; 11])), run(Tensor::Length(11)));
    assert_eq!(values.len(), 3);
    for (value, length) in values.iter().zip(&lengths) {
        assert_eq!((value.header, value.meta), (length.header, length.meta));
        assert!(length.bytes().is_empty());
    }
}

#[test]
fn empty_tensors_finish_at_once_and_tensors_may_come_before_the_set_up() {
    let mut worker = Worker::new(Config::default()).unwrap();
    assert_eq!(worker.submit(Time::ZERO, Tensor::Length(5)), Operation(0));
    assert_eq!(worker.submit(Time::ZERO, Tensor::from(vec![])), Operation(1));
    assert_eq!(worker.submit(Time::ZERO, Tensor::Length(1)), Operation(2));
    let absences = Absences::default();
    let finished = Event::Finished { operation: Operation(1), missing_below: 0, absences };
    assert_eq!((worker.poll_event(), worker.poll_event()), (Some(finished), None));
    assert_eq!(*worker.tensor(Operation(1)).unwrap(), Tensor::from(vec![]));
    assert!(!worker.has_backlog());
    let mut bench =
        Bench { worker: Checked::new(worker), setup: Arc::new(setup()), now: Time::ZERO };
    assert!(bench.worker.adopt(bench.now, bench.setup.clone(), 1));
    assert_eq!(bench.sent_sequences(), [0, 1, 2]);
}

// spec: A-41 machine
#[test]
fn memory_is_kept_until_released_here_and_complete_everywhere() {
    let mut bench = Bench::new(setup());
    let operations = [(); 4].map(|()| bench.submit_length(4));
    bench.sent();
    bench.answer(0..3);
    let held = |bench: &Bench| operations.map(|operation| bench.worker.tensor(operation).is_some());
    bench.worker.release(operations[1]);
    assert_eq!(held(&bench), [true, true, true, false]);
    // All ranks have 0 and 1, says a copy of the packet for 2.
    bench.answer_with(Parameter { job_watermark_distance: 0, ..bench.parameter(2) });
    assert_eq!(bench.worker.job_watermark(), 2);
    assert_eq!(held(&bench), [true, false, true, false]);
    bench.worker.release(operations[0]);
    bench.worker.release(operations[2]);
    assert_eq!(held(&bench), [false, false, true, false]);
    bench.answer_with(Parameter { job_watermark_distance: 0, ..bench.parameter(3) });
    assert_eq!(held(&bench), [false, false, false, true]);
    bench.worker.release(Operation(99));
}

#[test]
fn headers_are_sealed_and_only_sealed_ones_are_taken() {
    let key = Key([3; 16]);
    let mut bench = Bench::new(setup());
    bench.worker.set_key(Some(key));
    bench.submit_length(4);
    assert!(tag::verify_sized(&bench.sent()[0].header, 16, &key));
    bench.answer([0]);
    assert_eq!((bench.worker.watermark(), bench.worker.stats().ignored), (0, 1));
    let mut header = bench.parameter(0).to_header();
    tag::seal_sized(&mut header, 16, &key);
    bench.deliver(header, Body::Length(12), Ecn::Capable);
    assert_eq!(bench.worker.stats().ignored, 2, "a body of another length");
    bench.deliver(header, Body::Length(16), Ecn::Capable);
    assert_eq!(bench.worker.watermark(), 1);
}

// spec: E-13 machine
#[test]
fn a_result_that_is_sealed_for_switches_is_not_taken() {
    let secret = Secret([3; 16]);
    let mut bench = Bench::new(setup());
    bench.worker.set_key(Some(Key::derive(&secret, JOB, 1)));
    bench.submit_length(4);
    bench.sent();
    let keys = [Key::stations(&secret, JOB, 1), Key::derive(&secret, JOB, 1)];
    for (key, watermark) in keys.into_iter().zip([0, 1]) {
        let mut header = bench.parameter(0).to_header();
        tag::seal_sized(&mut header, 16, &key);
        bench.deliver(header, Body::Length(16), Ecn::Capable);
        assert_eq!(bench.worker.watermark(), watermark);
    }
}

// spec: T-06 machine
#[test]
fn bodies_are_sealed_where_the_job_asks_for_it() {
    let key = Key([3; 16]);
    let mut bench = Bench::new(setup().with(|parameters| parameters.seals_bodies = true));
    bench.worker.set_key(Some(key));
    bench.worker.submit(bench.now, Tensor::from(vec![1.0, 2.0, 3.0, 4.0]));
    let sent = bench.sent();
    assert!(tag::verify_with_body(&sent[0].header, sent[0].bytes(), &key));
    let sums: Vec<u8> = [2.0_f32; 4].iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut header = bench.parameter(0).to_header();
    tag::seal_sized(&mut header, 16, &key);
    bench.deliver(header, Body::Bytes(&mut sums.clone()), Ecn::Capable);
    tag::seal_with_body(&mut header, &sums, &key);
    let mut changed = sums.clone();
    changed[2] ^= 1;
    bench.deliver(header, Body::Bytes(&mut changed), Ecn::Capable);
    assert_eq!((bench.worker.watermark(), bench.worker.stats().ignored), (0, 2));
    bench.deliver(header, Body::Bytes(&mut sums.clone()), Ecn::Capable);
    assert_eq!(bench.worker.watermark(), 1);
}

// spec: T-09 machine
#[test]
fn halves_that_travel_in_full_are_rounded_once() {
    let wide = setup().with(|parameters| parameters.widens_halves = true);
    let mut bench = Bench::new(wide);
    // 1, -2 and the smallest and largest numbers, in IEEE halves.
    let bits = [0x3c00, 0xc000, 0x0001, 0x7bff, 0x3c00];
    let operation = bench.worker.submit(bench.now, halves(&bits));
    let sent = bench.sent();
    assert_eq!(sent[0].floats(), [1.0, -2.0, 5.960_464_5e-8, 65_504.0]);
    assert_eq!(sent[1].floats(), [1.0]);
    bench.answer_values(0, &[2_049.0, f32::INFINITY, 1e-9, 1e9]);
    bench.answer_values(1, &[0.1]);
    assert_eq!(bench.finished(), [(0, 0)]);
    // 2049 lies between two halves and goes to the even one; 0.1 to its nearest.
    let sums = halves(&[0x6800, 0x7c00, 0x0000, 0x7c00, 0x2e66]);
    assert_eq!(*bench.worker.tensor(operation).unwrap(), sums);
}

fn halves(bits: &[u16]) -> Tensor {
    Tensor::F16(bits.iter().map(|&bits| f16::from_bits(bits)).collect())
}

// spec: T-07 machine
#[test]
fn what_is_waited_for_has_a_name_and_a_time() {
    let mut bench = Bench::new(setup());
    assert_eq!(bench.worker.waits_for(), None);
    bench.wait(Span::from_ms(5));
    let (first, second) = (bench.submit(&[1.0; 8]), bench.submit(&[1.0; 4]));
    let since = bench.now;
    bench.sent();
    bench.wait(Span::from_ms(1));
    let waiting = |operation, sequence, since| Some(Waiting { operation, sequence, since });
    assert_eq!(bench.worker.waits_for(), waiting(first, 0, since));
    bench.answer_values(2, &[2.0; 4]);
    assert_eq!(bench.worker.waits_for(), waiting(first, 0, bench.now), "something moved");
    bench.answer_values(0, &[2.0; 4]);
    assert_eq!(bench.worker.waits_for(), waiting(first, 1, bench.now));
    bench.answer_values(1, &[2.0; 4]);
    assert_eq!(bench.worker.waits_for(), None, "the second is finished, too");
    assert_eq!(bench.finished().len(), 2);
    assert_eq!(second.0, 1);
}

// spec: A-41 machine
#[test]
fn a_result_that_was_taken_is_kept_as_far_as_others_lack_it() {
    let mut bench = Bench::new(setup());
    let operation = bench.submit(&[1.0; 14]);
    bench.sent();
    for sequence in 0..3 {
        // The last one says that all ranks have the first fragment.
        let job_watermark_distance = if sequence == 2 { 1 } else { sequence as u16 };
        let parameter = Parameter { job_watermark_distance, ..bench.parameter(sequence) };
        let header = parameter.to_header();
        let mut body = [sequence as f32; 4].map(f32::to_le_bytes).concat();
        bench.deliver(header, Body::Bytes(&mut body), Ecn::Capable);
    }
    assert_eq!(bench.worker.take(operation), None, "it is not finished");
    bench.answer_values(3, &[3.0; 2]);
    let Some(Tensor::Values(sums)) = bench.worker.take(operation) else { panic!("no result") };
    assert_eq!(sums[..5], [0.0, 0.0, 0.0, 0.0, 1.0]);
    assert_eq!((sums.len(), bench.worker.take(operation)), (14, None));
    // A server that has forgotten everything asks.
    for sequence in [0, 1, 2, 3] {
        bench.ask(bench.request(sequence));
    }
    let supplied: Vec<_> =
        bench.sent().iter().map(|sent| (sent.sequence(), sent.floats())).collect();
    assert_eq!(supplied, [(1, vec![1.0; 4]), (2, vec![2.0; 4]), (3, vec![3.0; 2])]);
}

#[test]
fn every_control_of_the_kit_finishes_a_tensor() {
    let by_delay = [Delay::to(Span::from_us(50)).into(), Aimd::DELAY.into()];
    let named = Control::NAMES.iter().filter_map(|name| Control::named(name));
    for control in named.chain(by_delay) {
        let mut bench = Bench::with(setup(), Config { control, ..Config::default() });
        bench.submit_length(4 * 40);
        let mut steps = 0;
        while bench.finished().is_empty() {
            let sent = bench.sent_sequences();
            if sent.is_empty() {
                bench.expire();
            } else {
                bench.wait(Span::from_us(20));
                bench.answer(sent);
            }
            steps += 1;
            assert!(steps < 1_000, "{control:?} does not finish");
        }
        assert_eq!(bench.worker.stats().fragments_sent, 40, "{control:?}");
    }
}

#[test]
fn a_control_that_paces_holds_fragments_back() {
    let mut bench = Bench::with(setup(), Config { control: Bbr.into(), ..Config::default() });
    bench.submit_length(4 * 4);
    assert_eq!(bench.sent_sequences(), [0]);
    let gap = bench.expire();
    assert!(gap > Span::ZERO && gap < Span::from_us(10), "{gap}");
    assert_eq!(bench.sent_sequences(), [1]);
    assert_eq!(bench.expire(), gap, "one gap after another");
    assert_eq!(bench.sent_sequences(), [2]);
}

#[test]
fn what_is_sent_for_the_first_time_gives_way_to_repairs() {
    let mut bench = Bench::with(setup(), Config { control: Bbr.into(), ..Config::default() });
    bench.submit_length(4 * 4);
    assert_eq!(bench.sent_sequences(), [0]);
    let gap = bench.expire();
    assert_eq!(bench.sent_sequences(), [1]);
    for sequence in [0, 1] {
        bench.ask(bench.request(sequence));
    }
    assert_eq!(bench.sent_sequences(), [0, 1], "repairs are not held back");
    assert_eq!(bench.worker.stats().repairs, 2);
    assert_eq!(bench.expire(), gap * 3, "three packets have left since");
    assert_eq!(bench.sent_sequences(), [2]);
}
