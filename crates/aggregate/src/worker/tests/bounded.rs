use thalweg_values::Importance;
use thalweg_wire::aggregate::{Absent, Bounded, LossShare, SumImportance};

use super::*;
use crate::reliability::Reliability;

/// A tensor of two fragments that is exact, and one of four of which half may be missing.
fn bench(numeric: Numeric) -> Bench {
    let mut bench = Bench::new(setup().with(|parameters| parameters.numeric = numeric));
    bench.submit(&[1.0; 8]);
    let half = Reliability::Bounded(LossShare::from_parts(128));
    bench.worker.submit_with(bench.now, Tensor::from(vec![2.0; 14]), half);
    bench.sent();
    bench
}

fn answer_without(bench: &mut Bench, sequence: u64, ranks: &[u32], sums: &[f32]) {
    let absent = Absent::of(ranks.iter().copied(), 2);
    let parameter = Parameter { absent, ..bench.parameter(sequence) };
    let header = parameter.to_header();
    let mut body: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
    bench.deliver(header, Body::Bytes(&mut body), Ecn::Capable);
}

#[test]
fn queries_name_operations_that_need_not_be_exact() {
    let mut bench = bench(Numeric::Float);
    bench.expire();
    let queries: Vec<Query> = bench.sent().iter().map(Owned::query).collect();
    assert_eq!(
        queries.iter().map(|query| query.identity.sequence).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5]
    );
    let operation = |first_distance| {
        Some(Bounded { first_distance, fragments: 4, share: LossShare::from_parts(128) })
    };
    let expected = [None, None, operation(0), operation(1), operation(2), operation(3)];
    assert_eq!(queries.iter().map(|query| query.bounded).collect::<Vec<_>>(), expected);
}

// spec: A-23 machine
#[test]
fn what_is_repeated_in_floats_is_exact() {
    let mut bench = bench(fixed(1e6, false));
    bench.answer_with(Parameter { repeat: true, ..bench.parameter(2) });
    bench.sent();
    bench.expire();
    let sent = bench.sent();
    let bounded = |sequence: u64| {
        let mut queries = sent.iter().map(Owned::query);
        queries.find(|query| query.identity.sequence == sequence).map(|query| query.bounded)
    };
    assert_eq!(bounded(2), Some(None));
    assert!(bounded(3).flatten().is_some());
}

#[test]
fn the_end_tells_who_is_missing_where() {
    let mut bench = bench(Numeric::Float);
    bench.answer_values(0, &[3.0; 4]);
    bench.answer_values(1, &[3.0; 4]);
    answer_without(&mut bench, 5, &[1], &[7.0; 2]);
    answer_without(&mut bench, 3, &[0], &[5.0; 4]);
    bench.answer_values(4, &[6.0; 4]);
    bench.answer_values(2, &[8.0; 4]);
    let Some(Event::Finished { absences, .. }) = bench.worker.poll_event() else {
        panic!("the first is finished");
    };
    assert!(absences.is_empty(), "exact");
    let Some(Event::Finished { absences, missing_below: 0, operation }) = bench.worker.poll_event()
    else {
        panic!("the second is finished");
    };
    let absent =
        absences.fragments().map(|(fragment, ranks)| (fragment, ranks.collect::<Vec<_>>()));
    assert_eq!(absent.collect::<Vec<_>>(), [(1, vec![0]), (3, vec![1])]);
    assert_eq!(absences.fragment_values(), 4);
    let Some(Tensor::Values(sums)) = bench.worker.take(operation) else { panic!("values") };
    let expected = [[8.0; 4], [5.0; 4], [6.0; 4], [7.0; 4]].concat();
    assert_eq!(sums[..], expected[..14]);
}

// spec: A-41 machine
#[test]
fn what_is_supplied_says_who_is_missing() {
    let mut bench = bench(Numeric::Float);
    answer_without(&mut bench, 3, &[0], &[5.0; 4]);
    bench.answer_values(2, &[8.0; 4]);
    for (sequence, absent) in [(3, Absent::of([0], 2)), (2, None)] {
        bench.ask(bench.request(sequence));
        let [sent] = &bench.sent()[..] else { panic!("one result") };
        assert!(sent.gradient().result);
        assert_eq!(sent.gradient().absent, absent);
    }
    bench.ask(bench.request(4));
    assert_eq!(bench.sent()[0].gradient().absent, None, "its own values");
}

/// Three fragments of four are small, and one is large. Half of them may be missing.
fn uneven(importance: Importance) -> Bench {
    uneven_with(Config { importance, ..Config::default() })
}

fn uneven_with(config: Config) -> Bench {
    let control = Fixed { bytes: 1 << 20 }.into();
    let mut bench = Bench::with(setup(), Config { control, ..config });
    let half = Reliability::Bounded(LossShare::from_parts(128));
    let values = [1.0, 9.0, 2.0, 1.0].into_iter().flat_map(|value| [value; 4]);
    bench.worker.submit_with(bench.now, Tensor::from(values.collect::<Vec<f32>>()), half);
    bench
}

fn droppable(sent: &[Owned]) -> Vec<bool> {
    sent.iter().map(|sent| sent.meta.ecn == Ecn::NotCapable).collect()
}

// spec: M-04, M-20 machine
#[test]
fn large_values_are_important_and_the_others_may_be_dropped() {
    let mut bench = uneven(Importance::PacketMean);
    let sent = bench.sent();
    let expected = [false, true, true, false];
    let says = |its: bool| SumImportance::of(its);
    let found: Vec<_> = sent.iter().map(|sent| sent.gradient().importance).collect();
    assert_eq!(found, expected.map(says));
    assert_eq!(droppable(&sent), expected.map(|its| !its));
    bench.expire();
    let asked: Vec<_> = bench.sent().iter().map(|sent| sent.query().important).collect();
    assert_eq!(asked, expected);
    let importance = Importance::PacketMean;
    let config = Config { importance, droppable_ecn: Ecn::Capable, ..Config::default() };
    let sent = uneven_with(config).sent();
    let found: Vec<_> = sent.iter().map(|sent| sent.gradient().importance).collect();
    assert_eq!((found, droppable(&sent)), (expected.map(says).to_vec(), vec![false; 4]));
    let mut alike = uneven(Importance::All);
    let sent = alike.sent();
    assert_eq!(droppable(&sent), [false; 4]);
    assert!(sent.iter().all(|sent| sent.gradient().importance == SumImportance::UNKNOWN));
}

// spec: M-20 machine
#[test]
fn what_was_sent_before_and_what_would_be_too_much_is_not_dropped() {
    let mut bench = uneven(Importance::PacketMean);
    bench.sent();
    bench.ask(Request { restart: true, ..bench.request(0) });
    let again = bench.sent();
    assert_eq!(droppable(&again), [false]);
    assert_eq!(again[0].gradient().importance, SumImportance::NONE);

    let mut bench = uneven(Importance::PacketMean);
    let half = Reliability::Bounded(LossShare::from_parts(64));
    let small = Tensor::from([[1.0; 4], [2.0; 4]].concat().repeat(4));
    // A span of eight fragments: four of this one are sent at once, and a quarter of eight may be missing.
    bench.worker.submit_with(bench.now, small, half);
    bench.sent();
    for sequence in 0..4 {
        bench.answer_values(sequence, &[1.0; 4]);
    }
    for sequence in 4..6 {
        answer_without(&mut bench, sequence, &[1], &[1.0; 4]);
    }
    let sent = bench.sent();
    assert!(sent.iter().any(|sent| sent.gradient().importance == SumImportance::NONE));
    assert_eq!(droppable(&sent), [false; 4], "it may not be left out of more");
}
