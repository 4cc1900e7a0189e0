//! Ranks that have called different operations.

use thalweg_wire::aggregate::{Bounded, LossShare};

use super::*;

const OTHER: u32 = OPERATION + 1;

fn differing(gradient: Gradient) -> Gradient {
    let identity = Identity { operation: OTHER, ..gradient.identity };
    Gradient { identity, ..gradient }
}

fn event(bench: &mut Bench) -> Option<Event> {
    bench.server.poll_event()
}

// spec: E-11 machine
#[test]
fn contributions_to_another_operation_are_not_added_and_are_reported_once() {
    let mut bench = Bench::new(setup(&side_by_side()));
    bench.give_from(&[0, 1, 2, 4], 3, &fixed(&[7]));
    for _ in 0..3 {
        bench.give(differing(bench.own(3, 3)), &fixed(&[7]));
    }
    assert_eq!(event(&mut bench), Some(Event::Differs { job: JOB, sequence: 3 }));
    bench.give(differing(bench.own(0, 3)), &fixed(&[7]));
    bench.give_from(&[0], 4, &fixed(&[7]));
    bench.give(differing(bench.own(1, 4)), &fixed(&[7]));
    assert_eq!(event(&mut bench), None, "once");
    assert!(bench.drain().is_empty());
    assert_eq!((bench.stats().differing, bench.stats().added), (5, 5));
    assert_eq!(bench.server.missing(JOB, 3), Missing::Ranks(vec![3]));
    // Operations that ranks agree on are still summed.
    bench.give_all(5, &fixed(&[1]));
    assert_eq!(bench.drain().len(), 3);
}

// spec: E-11 machine
#[test]
fn nobody_is_left_out_of_a_sum_once_ranks_differ() {
    let share = LossShare::from_parts(128);
    let bounded = |bench: &Bench, sequence| {
        let operation = Bounded { first_distance: 0, fragments: 100, share };
        Query { bounded: Some(operation), ..bench.query(0, sequence, false) }
    };
    let mut bench = Bench::new(setup(&side_by_side()));
    bench.give_from(&[0, 1, 2, 4], 0, &fixed(&[7]));
    bench.ask(bounded(&bench, 0));
    assert_eq!((bench.stats().completed, bench.stats().left_out), (1, 1));
    bench.give_from(&[0, 1, 2, 4], 1, &fixed(&[7]));
    bench.give(differing(bench.own(3, 1)), &fixed(&[7]));
    for _ in 0..3 {
        bench.wait_us(60);
        bench.ask(bounded(&bench, 1));
    }
    assert_eq!((bench.stats().completed, bench.stats().left_out), (1, 1));
    assert_eq!(event(&mut bench), Some(Event::Differs { job: JOB, sequence: 1 }));
}

// spec: E-11 machine
#[test]
fn a_query_shows_that_ranks_differ() {
    let other = |bench: &Bench, rank, sequence| {
        let query = bench.query(rank, sequence, true);
        Query { identity: Identity { operation: OTHER, ..query.identity }, ..query }
    };
    let mut bench = Bench::new(setup(&side_by_side()));
    bench.ask(bench.query(0, 2, true));
    bench.drain();
    bench.ask(other(&bench, 1, 2));
    assert_eq!(event(&mut bench), Some(Event::Differs { job: JOB, sequence: 2 }));
    // So does one about a sum that is there: it is not handed out.
    let mut bench = Bench::new(setup(&side_by_side()));
    bench.give_all(2, &fixed(&[1]));
    bench.drain();
    bench.wait_us(60);
    bench.ask(other(&bench, 1, 2));
    assert!(bench.drain().is_empty());
    assert_eq!(event(&mut bench), Some(Event::Differs { job: JOB, sequence: 2 }));
}

// spec: E-11, A-41 machine
#[test]
fn results_of_another_epoch_belong_to_their_operation() {
    let mut bench = Bench::new(setup(&side_by_side()));
    bench.give_all(2, &fixed(&[1]));
    bench.give(bench.own(0, 3), &fixed(&[1]));
    bench.give(differing(bench.own(1, 3)), &fixed(&[1]));
    assert!(event(&mut bench).is_some());
    bench.drain();
    bench.setup = Arc::new(Setup { epoch: 2, ..setup(&side_by_side()) });
    bench.server.adopt(bench.now, bench.setup.clone());
    bench.drain();
    bench.give(differing(bench.own(0, 2)), &fixed(&[1]));
    let again = Event::Differs { job: JOB, sequence: 2 };
    assert_eq!(event(&mut bench), Some(again), "once in an epoch");
    assert!(bench.drain().is_empty());
    bench.give(bench.own(0, 2), &fixed(&[1]));
    assert_eq!(bench.drain()[0].parameter().identity, bench.identity(2, 0));
}

// spec: E-11, A-41 machine
#[test]
fn a_result_is_taken_for_its_own_operation() {
    let mut in_floats_setup = setup(&side_by_side());
    let parameters = JobParameters { numeric: Numeric::Float, ..*in_floats_setup.parameters };
    in_floats_setup.parameters = parameters.check().unwrap();
    let mut bench = Bench::new(in_floats_setup);
    bench.give(bench.own(0, 0), &floats(&[1.0]));
    let result = Gradient { result: true, ..bench.own(1, 0) };
    bench.give(differing(result), &floats(&[5.0]));
    assert_eq!((bench.stats().adopted, bench.stats().differing), (0, 1));
    bench.give(result, &floats(&[5.0]));
    assert_eq!(bench.drain()[0].body, floats(&[5.0]));
}
