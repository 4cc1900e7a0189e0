use super::*;
use crate::message::{Lesson, Subject};

/// Two workers that came to these parameters, and one process that came to `alone`.
fn outcome(workers: [&[f32]; 2], alone: &[f32]) -> TenantOutcome {
    let lesson = Lesson { subject: Subject::Stripes, seed: 1, steps: 2, data: None };
    TenantOutcome {
        tenant: Tenant { name: "B".into(), workers: 2, lesson, parameters: 2 },
        training: Training {
            losses: vec![2.0, 1.0],
            tests: vec![(0, 0.5), (1, 0.9)],
            sums_us: vec![1.0, 3.0],
            parameters: workers.map(<[f32]>::to_vec).to_vec(),
            digests: vec!["d".into(), "d".into()],
            sums_checked: 2,
            sums_wrong: 0,
            repairs: 0,
            queries: 0,
            server: JobCounters { completed: 100, added: 110 },
        },
        reference: Reference {
            losses: vec![2.0, 1.0],
            tests: vec![(0, 0.5), (1, 0.9)],
            parameters: alone.to_vec(),
        },
    }
}

#[test]
fn equal_bits_near_those_of_one_process_are_as_they_should_be() {
    let outcome = outcome([&[1.0, 2.0], &[1.0, 2.0]], &[1.0, 2.001]);
    assert_eq!(outcome.problems(), Vec::<String>::new());
    assert!(outcome.is_identical());
    assert!((outcome.largest_difference() - 0.001).abs() < 1e-6);
    // 64 bits in 2 µs, and 10 of 100 additions left to the server.
    assert!((outcome.goodput_bps() - 32e6).abs() < 1.0);
    assert!((outcome.aggregated_share() - 0.9).abs() < 1e-9);
}

#[test]
fn whatever_is_wrong_is_named() {
    let problems = outcome([&[1.0, 2.0], &[1.0, 2.5]], &[1.0, 2.0]).problems();
    assert_eq!(problems, ["B: parameters of two workers are 5e-1 apart"]);
    let signs = outcome([&[0.0, 2.0], &[-0.0, 2.0]], &[0.0, 2.0]);
    assert!(!signs.is_identical(), "equal numbers may be other bits");
    assert!(outcome([&[f32::NAN, 2.0]; 2], &[1.0, 2.0]).largest_difference().is_nan());
    let mut wrong = outcome([&[1.0, 2.0]; 2], &[1.0, 2.0]);
    wrong.training.sums_wrong = 1;
    assert_eq!(wrong.problems(), ["B: of 2 sums 2 were computed again, and 1 were wrong"]);
    let mut worse = outcome([&[1.0, 2.0]; 2], &[1.0, 2.0]);
    worse.reference.tests.push((2, 0.93));
    assert_eq!(
        worse.problems(),
        ["B: accuracy is 0.9000, one process has 0.9300, more than 0.02 apart"]
    );
}

#[test]
fn wrong_sums_are_named() {
    let measured =
        |is_exact| Measured { way: Way::Ring, loss: 0.0, sums_us: vec![4.0], bits: 8.0, is_exact };
    let outcome = |is_exact| Outcome {
        tenants: Vec::new(),
        comparison: vec![measured(is_exact)],
        links: Links::None { reason: String::new() },
        switch: SwitchCounters::default(),
        took: Duration::ZERO,
    };
    assert!(outcome(true).problems().is_empty());
    assert_eq!(outcome(false).problems(), ["sums by ring at 0 loss are wrong"]);
}
