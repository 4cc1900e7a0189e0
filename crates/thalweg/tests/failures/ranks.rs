//! Ranks that die, stop, or do something else than the others.

use std::time::{Duration, Instant};

use crate::process::Process;
use crate::stage::{KNOWN, LIMIT, PATIENCE, Stage, expect, say};

/// The error of all ranks, which has to be the same one, known in time.
fn common_error(ranks: &[Process], since: Instant) -> String {
    let errors = expect(ranks, "error", (since + KNOWN).saturating_duration_since(Instant::now()));
    println!("after {:?}: {}", since.elapsed(), errors[0]);
    assert!(errors.iter().all(|error| *error == errors[0]), "not the same: {errors:#?}");
    errors[0].clone()
}

#[test]
fn a_rank_that_dies_is_named_at_all_others() {
    let stage = Stage::new();
    let mut ranks = stage.job("deadly", 4);
    say(&mut ranks, "sum 20000 1000000");
    expect(&ranks, "sum 5", LIMIT);
    let since = Instant::now();
    ranks.remove(2).kill();
    let error = common_error(&ranks, since);
    assert!(error.starts_with("[2] ") && error.contains("rank 2"), "{error}");
    // Whatever comes later fails at once, alike.
    say(&mut ranks, "barrier");
    let again = expect(&ranks, "error", Duration::from_secs(1));
    assert!(again.iter().all(|again| *again == error), "{again:?}");
}

#[test]
fn a_rank_that_dies_between_operations_is_named_too() {
    let stage = Stage::new();
    let mut ranks = stage.job("deadly", 3);
    say(&mut ranks, "sum 1000 3");
    expect(&ranks, "done", LIMIT);
    let since = Instant::now();
    ranks.remove(0).kill();
    say(&mut ranks, "max 10");
    let error = common_error(&ranks, since);
    assert!(error.starts_with("[0] ") && error.contains("rank 0"), "{error}");
}

#[test]
fn a_rank_that_is_stopped_is_named_and_may_go_on() {
    let stage = Stage::new();
    let mut ranks = stage.job("halting", 3);
    say(&mut ranks, "sum 20000 40");
    expect(&ranks, "sum 5", LIMIT);
    ranks[1].signal("STOP");
    let others = [&ranks[0], &ranks[2]];
    let notes = others.map(|other| other.expect("stalled", Duration::from_millis(3_500)));
    ranks[1].signal("CONT");
    println!("{}", notes[0]);
    assert!(notes.iter().all(|note| note.contains("rank 1 (")), "{notes:?}");
    expect(&ranks, "done", LIMIT);
}

/// A stall of almost the patience ends; then nobody waits for anything until the patience is over.
fn check_recovery(name: &str, call: &str) {
    let stage = Stage::new();
    let mut ranks = stage.job(name, 2);
    let since = Instant::now();
    ranks[0].say(call);
    ranks[0].expect("stalled", PATIENCE);
    std::thread::sleep((since + PATIENCE.mul_f64(0.7)).saturating_duration_since(Instant::now()));
    ranks[1].say(call);
    expect(&ranks, "done", LIMIT);
    std::thread::sleep((since + PATIENCE.mul_f64(1.5)).saturating_duration_since(Instant::now()));
    say(&mut ranks, call);
    expect(&ranks, "done", LIMIT);
}

#[test]
fn a_stall_that_is_over_fails_nothing() {
    check_recovery("late", "sum 5000 1");
}

#[test]
fn a_stall_among_ranks_that_is_over_fails_nothing() {
    check_recovery("late", "max 500");
}

/// One call at each of three ranks. Everybody has to get the same error, which names somebody.
fn check_difference(name: &str, calls: [&str; 3]) {
    let stage = Stage::new();
    let mut ranks = stage.job(name, 3);
    say(&mut ranks, "sum 5000 2");
    expect(&ranks, "done", LIMIT);
    let since = Instant::now();
    for (rank, call) in ranks.iter_mut().zip(calls) {
        rank.say(call);
    }
    let error = common_error(&ranks, since);
    assert!(!error.starts_with("[]") && error.contains("rank "), "{error}");
}

#[test]
fn another_length_is_an_error() {
    check_difference("longer", ["sum 1000 1", "sum 900 1", "sum 1000 1"]);
}

#[test]
fn another_operation_is_an_error() {
    check_difference("other", ["sum 1000 1", "max 1000", "sum 1000 1"]);
}

#[test]
fn another_collective_among_ranks_is_an_error() {
    check_difference("mixed", ["max 100", "barrier", "max 100"]);
}
