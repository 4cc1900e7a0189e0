//! Fragments that are finished although contributions are missing.

use thalweg_wire::aggregate::{Absent, Bounded, LossShare, SumImportance};

use super::*;

/// Half of an operation of `fragments` fragments, from fragment 0 on, may be missing.
fn bounded(bench: &Bench, rank: u32, sequence: u64, fragments: u32) -> Query {
    let share = LossShare::from_parts(128);
    let operation = Bounded { first_distance: sequence as u32, fragments, share };
    Query { bounded: Some(operation), ..bench.query(rank, sequence, false) }
}

fn absent(sent: &[Sent]) -> Vec<Option<Vec<u32>>> {
    let ranks = |absent: Absent| absent.ranks(5).collect();
    sent.iter().map(|sent| sent.parameter().absent.map(ranks)).collect()
}

#[test]
fn a_query_finishes_what_lacks_little() {
    let mut bench = Bench::new(setup(&side_by_side()));
    bench.give_from(&[0, 1, 2, 4], 0, &fixed(&[7]));
    bench.ask(bounded(&bench, 2, 0, 8));
    let sent = bench.drain();
    assert_eq!(destinations(&sent), [100, 101, 4], "to everybody");
    assert_eq!(absent(&sent), vec![Some(vec![3]); 3]);
    assert_eq!(sent[0].body, fixed(&[28]));
    assert_eq!((bench.stats().left_out, bench.stats().completed), (1, 1));

    bench.give_from(&[3], 0, &fixed(&[100]));
    assert!(bench.drain().is_empty(), "too late");
    bench.ask(bounded(&bench, 3, 0, 8));
    let again = bench.drain();
    assert_eq!(destinations(&again), [3]);
    assert_eq!((again[0].meaning(), &again[0].body), (sent[0].meaning(), &sent[0].body));
}

#[test]
fn an_exact_query_waits_and_so_does_what_nobody_contributed_to() {
    let mut bench = Bench::new(setup(&side_by_side()));
    bench.give_from(&[0, 1, 2, 4], 0, &fixed(&[7]));
    bench.ask(bench.query(2, 0, false));
    assert_eq!(bench.drain()[0].request().identity.sequence, 0);
    bench.ask(bounded(&bench, 2, 1, 8));
    let asked = bench.drain();
    assert!(asked.iter().all(|sent| sent.request().identity.sequence == 1));
    bench.wait_us(60);
    bench.ask(bounded(&bench, 2, 1, 8));
    assert_eq!(bench.drain().len(), asked.len(), "still nothing to finish");
    assert_eq!((bench.stats().left_out, bench.stats().completed), (0, 0));
}

#[test]
fn nobody_is_left_out_of_more_than_its_share() {
    let mut bench = Bench::new(setup(&side_by_side()));
    for sequence in 0..3 {
        bench.give_from(&[0, 1, 2, 4], sequence, &fixed(&[1]));
        bench.ask(bounded(&bench, 0, sequence, 4));
    }
    let sent = bench.drain();
    let (asks, sums): (Vec<Sent>, Vec<Sent>) =
        sent.into_iter().partition(|sent| Parameter::decode(&sent.header).is_err());
    assert_eq!(absent(&sums), vec![Some(vec![3]); 6], "two of four");
    assert_eq!(destinations(&asks), [3], "the third is repaired");
    bench.give_from(&[0, 1, 2, 3], 3, &fixed(&[1]));
    bench.ask(bounded(&bench, 0, 3, 4));
    assert_eq!(absent(&bench.drain()), vec![Some(vec![4]); 3], "another worker's share");
    bench.give_from(&[3], 2, &fixed(&[1]));
    assert_eq!(absent(&bench.drain()), vec![None; 3]);
}

#[test]
fn a_station_that_says_nothing_is_asked_first() {
    let mut bench = Bench::new(setup(&side_by_side()));
    bench.give_from(&[0, 1, 4], 0, &fixed(&[1]));
    bench.ask(bounded(&bench, 0, 0, 8));
    let sent = bench.drain();
    assert_eq!((destinations(&sent), sent[0].request().bypass), (vec![101], false));
    bench.ask(bounded(&bench, 1, 0, 8));
    assert!(bench.drain().is_empty(), "it was just asked");
    bench.wait_us(60);
    bench.ask(bounded(&bench, 1, 0, 8));
    assert_eq!(absent(&bench.drain()), vec![Some(vec![2, 3]); 3]);
}

// spec: A-23 machine
#[test]
fn what_overflowed_is_repeated_with_everybody() {
    let mut bench = Bench::new(setup(&side_by_side()));
    bench.give_from(&[0, 1, 4], 0, &fixed(&[1]));
    bench.give(Gradient { overflow: true, ..bench.own(2, 0) }, &fixed(&[1]));
    bench.ask(bounded(&bench, 0, 0, 8));
    assert_eq!(destinations(&bench.drain()), [3], "asked");
    bench.give_from(&[3], 0, &fixed(&[1]));
    assert!(bench.drain().iter().all(|sent| sent.parameter().repeat));
    bench.give_floats_from(&[0, 1, 2, 4], 0, &floats(&[1.0]));
    bench.wait_us(60);
    bench.ask(bounded(&bench, 0, 0, 8));
    let sent = bench.drain();
    assert_eq!((destinations(&sent), sent[0].parameter().repeat), (vec![3], true));
}

// spec: A-41 machine
#[test]
fn a_new_epoch_keeps_what_was_left_out() {
    let mut bench = Bench::new(setup(&side_by_side()));
    for sequence in 0..2 {
        bench.give_from(&[0, 1, 2, 4], sequence, &fixed(&[1]));
        bench.ask(bounded(&bench, 0, sequence, 4));
    }
    bench.drain();
    bench.setup = Arc::new(Setup { epoch: 2, ..setup(&side_by_side()) });
    bench.server.adopt(bench.now, bench.setup.clone());
    bench.drain();
    bench.ask(bounded(&bench, 3, 1, 4));
    assert_eq!(absent(&bench.drain()), [Some(vec![3])], "it says the same");
    bench.give_from(&[0, 1, 2, 4], 2, &fixed(&[1]));
    bench.ask(bounded(&bench, 0, 2, 4));
    assert_eq!(destinations(&bench.drain()), [3], "the share is used up");
}

// spec: A-41 machine
#[test]
fn a_server_without_memory_is_exact_until_nothing_is_under_way() {
    let window = 2 * u64::from(SPAN) + 1;
    let mut bench = Bench::new(Setup { epoch: 2, resume_from: 10, ..setup(&side_by_side()) });
    let result = Gradient {
        result: true,
        numbers: Numbers::Float,
        absent: Absent::of([1], 5),
        identity: bench.identity(11, 1),
        watermark_distance: 0,
        ..bench.own(0, 11)
    };
    bench.give(result, &floats(&[4.0]));
    assert_eq!(absent(&bench.drain()), vec![Some(vec![1]); 3], "what is supplied says who");
    // Everybody is past the first fragments.
    for rank in 0..5 {
        bench.give(Gradient { watermark_distance: 0, ..bench.own(rank, 20) }, &fixed(&[1]));
    }
    bench.drain();
    for (first, left_out) in [(10 + window - 1, 0), (10 + window, 1)] {
        for rank in [0, 1, 2, 4] {
            let own = Gradient { watermark_distance: 6, ..bench.own(rank, first) };
            bench.give(own, &fixed(&[1]));
        }
        let share = LossShare::from_parts(128);
        let bounded = Bounded { first_distance: 0, fragments: 4, share };
        bench.ask(Query { bounded: Some(bounded), ..bench.query(0, first, false) });
        assert_eq!(bench.stats().left_out, left_out, "{first}");
    }
}

#[test]
fn the_window_moves_on_although_no_sum_is_whole() {
    let mut bench = Bench::new(setup(&side_by_side()));
    let last = 2 * u64::from(SPAN) + 1;
    for sequence in 0..last {
        let missing = sequence as u32 % 5;
        for rank in (0..5).filter(|rank| *rank != missing) {
            let watermark_distance = (sequence as u16).min(SPAN);
            bench.give(Gradient { watermark_distance, ..bench.own(rank, sequence) }, &fixed(&[1]));
        }
        bench.ask(Query {
            watermark_distance: (sequence as u16).min(SPAN),
            ..bounded(&bench, (missing + 1) % 5, sequence, 100)
        });
        bench.drain();
    }
    assert_eq!(bench.stats().left_out, last);
    let beyond = bench.stats().beyond;
    bench.give(Gradient { watermark_distance: SPAN, ..bench.own(0, last) }, &fixed(&[1]));
    for rank in 0..5 {
        bench.ask(Query { watermark_distance: 0, ..bounded(&bench, rank, last, 100) });
    }
    assert_eq!(bench.stats().beyond, beyond, "it knows that all ranks are there");
    assert_eq!(bench.server.missing(JOB, last - 1), Missing::Unknown, "and forgets what is over");
}

// spec: T-12 machine
#[test]
fn what_was_left_out_is_forgotten_when_an_epoch_begins_behind_it() {
    let mut bench = Bench::new(setup(&side_by_side()));
    bench.give_from(&[0, 1, 2, 4], 0, &fixed(&[7]));
    bench.ask(bounded(&bench, 2, 0, 8));
    assert_eq!(bench.stats().left_out, 1);
    let next = Setup { epoch: 2, resume_from: 8, ..setup(&side_by_side()) };
    bench.server.adopt(bench.now, Arc::new(next));
    bench.drain();
}

/// Contributions of all but rank 3, each of this importance.
fn give_important(bench: &mut Bench, sequence: u64, important: [bool; 4]) {
    for (rank, its) in [0, 1, 2, 4].into_iter().zip(important) {
        let importance = SumImportance::of(its);
        bench.give(Gradient { importance, ..bench.own(rank, sequence) }, &fixed(&[1]));
    }
}

// spec: M-20 machine
#[test]
fn what_is_not_important_is_left_out_first() {
    let mut bench = Bench::new(setup(&side_by_side()));
    give_important(&mut bench, 0, [false; 4]);
    bench.ask(bounded(&bench, 0, 0, 8));
    assert_eq!(absent(&bench.drain()), vec![Some(vec![3]); 3], "at once");

    give_important(&mut bench, 1, [true; 4]);
    bench.ask(bounded(&bench, 0, 1, 8));
    assert_eq!(destinations(&bench.drain()), [3], "asked for");
    bench.ask(bounded(&bench, 1, 1, 8));
    assert!(bench.drain().is_empty(), "it was just asked");
    bench.give_from(&[3], 1, &fixed(&[1]));
    assert_eq!(absent(&bench.drain()), vec![None; 3], "it has arrived");

    give_important(&mut bench, 2, [true; 4]);
    bench.ask(bounded(&bench, 0, 2, 8));
    assert_eq!(destinations(&bench.drain()), [3]);
    bench.wait_us(60);
    bench.ask(bounded(&bench, 0, 2, 8));
    assert_eq!(absent(&bench.drain()), vec![Some(vec![3]); 3], "nothing came");
}

// spec: M-20 machine
#[test]
fn where_contributions_disagree_the_one_who_asks_decides() {
    for important in [false, true] {
        let mut bench = Bench::new(setup(&side_by_side()));
        give_important(&mut bench, 0, [true, false, false, false]);
        bench.ask(Query { important, ..bounded(&bench, 0, 0, 8) });
        let sent = bench.drain();
        let expected: &[u32] = if important { &[3] } else { &[100, 101, 4] };
        assert_eq!(destinations(&sent), expected);
    }
}
