//! Ranks that have called different operations.

use thalweg_core::{Element, Fingerprint, Reduction};
use thalweg_wire::fingerprint::digest;

use super::*;
use crate::reliability::SumOptions;

/// The digests in what is sent, by fragment.
fn digests(bench: &mut Bench) -> Vec<u32> {
    bench.sent().iter().map(|packet| packet.gradient().identity.operation).collect()
}

// spec: E-11 machine
#[test]
fn packets_name_the_operation_that_was_called() {
    let mut bench = Bench::new(setup());
    bench.submit(&[1.0; 8]);
    bench.submit(&[1.0; 8]);
    let sum = Fingerprint::of_sum(Element::F32, 8);
    let mean = Fingerprint { reduction: Some(Reduction::Mean), ..sum };
    let options = SumOptions { fingerprint: Some(mean), ..SumOptions::default() };
    bench.worker.submit_with(bench.now, Tensor::from(vec![1.0; 8]), options);
    let [first, second, third] = [
        digest(&sum, Operation(0), 0),
        digest(&sum, Operation(1), 2),
        digest(&mean, Operation(2), 4),
    ];
    assert_eq!(digests(&mut bench), [first, first, second, second, third, third]);
    bench.expire();
    let queries: Vec<Query> = bench.sent().iter().map(Owned::query).collect();
    assert_eq!((queries[0].identity.operation, queries[5].identity.operation), (first, third));
}

// spec: E-11 machine
#[test]
fn fragments_that_were_numbered_later_name_their_operation() {
    let mut worker = Worker::new(Config::default()).unwrap();
    worker.submit(Time::ZERO, Tensor::Length(8));
    worker.submit(Time::ZERO, Tensor::Length(8));
    assert!(worker.adopt(Time::ZERO, Arc::new(setup()), 0));
    let sum = Fingerprint::of_sum(Element::F32, 8);
    let known: Vec<_> = (0..5).map(|sequence| worker.work.digest(sequence)).collect();
    let digests = [digest(&sum, Operation(0), 0), digest(&sum, Operation(1), 2)];
    let [first, second] = digests.map(Some);
    assert_eq!(known, [first, first, second, second, None]);
}

// spec: E-11 machine
#[test]
fn the_sum_of_another_operation_is_not_taken() {
    let mut bench = Bench::new(setup());
    let operation = bench.submit(&[1.0; 4]);
    bench.sent();
    let good = bench.parameter(0);
    let other = Identity { operation: good.identity.operation ^ 1, ..good.identity };
    for repeat in [false, true] {
        bench.answer_with(Parameter { identity: other, repeat, ..good });
    }
    assert_eq!(bench.finished(), []);
    assert_eq!((bench.worker.stats().ignored, bench.worker.stats().parameters), (2, 0));
    assert!(bench.sent().is_empty(), "nobody has asked for floats");
    bench.answer_values(0, &[2.0; 4]);
    assert_eq!(bench.finished(), [(operation.0, 0)]);
    bench.answer_with(Parameter { identity: other, ..good });
    assert_eq!(bench.worker.tensor(operation), Some(&Tensor::from(vec![2.0; 4])));
}

/// The contribution shows that ranks differ.
// spec: E-11 machine
#[test]
fn a_request_for_another_operation_is_answered_with_our_own() {
    let mut bench = Bench::new(setup());
    bench.submit_length(4);
    bench.sent();
    let good = bench.request(0);
    let other = Identity { operation: 5, ..good.identity };
    bench.ask(Request { identity: other, bypass: true, level: 1, ..good });
    let sent = bench.sent();
    assert_eq!(sent[0].gradient().identity, bench.identity(0));
}
