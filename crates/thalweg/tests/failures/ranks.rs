//! Ranks that die, stop, leave, or do something else than the others.

use std::time::{Duration, Instant};

use crate::process::Process;
use crate::stage::{KNOWN, LIMIT, SHORT, Stage, Times, expect, say};

/// The error of all ranks, which has to be the same one, known in time.
pub fn common_error(ranks: &[Process], since: Instant, within: Duration) -> String {
    let left = (since + within).saturating_duration_since(Instant::now());
    let errors = expect(ranks, "error", left);
    println!("after {:?}: {}", since.elapsed(), errors[0]);
    assert!(errors.iter().all(|error| *error == errors[0]), "not the same: {errors:#?}");
    errors[0].clone()
}

// spec: E-01 sockets
#[test]
fn a_rank_that_dies_is_named_at_all_others() {
    let stage = Stage::new();
    let mut ranks = stage.job("deadly", 4);
    say(&mut ranks, "sum 20000 1000000");
    expect(&ranks, "sum 5", LIMIT);
    let since = Instant::now();
    ranks.remove(2).kill();
    let error = common_error(&ranks, since, KNOWN);
    assert!(error.starts_with("[2] rank 2 (127.0.0.1:"), "{error}");
    assert!(error.contains("its control connection closed without a goodbye"), "{error}");
    // Whatever comes later fails at once, alike.
    say(&mut ranks, "barrier");
    let again = expect(&ranks, "error", Duration::from_secs(1));
    assert!(again.iter().all(|again| *again == error), "{again:?}");
}

// spec: E-01 sockets
#[test]
fn a_rank_that_dies_between_operations_is_named_too() {
    let stage = Stage::new();
    let mut ranks = stage.job("deadly", 3);
    say(&mut ranks, "sum 1000 3");
    expect(&ranks, "done", LIMIT);
    let since = Instant::now();
    ranks.remove(0).kill();
    say(&mut ranks, "max 10");
    let error = common_error(&ranks, since, KNOWN);
    assert!(error.starts_with("[0] rank 0 (127.0.0.1:"), "{error}");
}

// spec: E-01 sockets
#[test]
fn a_rank_that_dies_while_others_join_is_named() {
    let stage = Stage::new();
    let mut ranks: Vec<Process> = (0..2).map(|rank| stage.rank("early", rank, 3)).collect();
    for rank in &ranks {
        rank.expect("waiting [2]", LIMIT);
    }
    let since = Instant::now();
    ranks.remove(1).kill();
    let error = common_error(&ranks, since, KNOWN);
    assert!(error.starts_with("[1] rank 1 (127.0.0.1:"), "{error}");
}

// spec: E-10 sockets
#[test]
fn a_job_that_failed_is_started_again_under_its_name() {
    let stage = Stage::new();
    for start in 0..2 {
        let mut ranks = stage.job("phoenix", 3);
        say(&mut ranks, "sum 5000 3");
        expect(&ranks, "done", LIMIT);
        if start == 0 {
            // A launcher kills the others when one of them has died, before any of them knows of it.
            ranks.into_iter().for_each(Process::kill);
        }
    }
}

// spec: E-01 sockets
#[test]
fn a_rank_that_is_stopped_is_named_and_may_go_on() {
    let stage = Stage::new();
    let mut ranks = stage.job("halting", 3);
    say(&mut ranks, "sum 20000 40");
    expect(&ranks, "sum 5", LIMIT);
    let since = Instant::now();
    ranks[1].signal("STOP");
    let others = [&ranks[0], &ranks[2]];
    let notes = others.map(|other| other.expect("stalled", Duration::from_millis(3_500)));
    println!("{}", notes[0]);
    assert!(notes.iter().all(|note| note.contains("rank 1 (")), "{notes:?}");
    // Far longer than a death takes.
    let end = since + 2 * SHORT.failure_after + Duration::from_secs(1);
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    ranks[1].signal("CONT");
    expect(&ranks, "done", LIMIT);
}

// spec: E-02 sockets
#[test]
fn an_operation_fails_at_its_deadline_and_names_who_is_missing() {
    let operation_timeout = Duration::from_secs(3);
    let stage = Stage::with(Times { operation_timeout, ..SHORT });
    let mut ranks = stage.job("late", 3);
    let since = Instant::now();
    for rank in [0, 2] {
        ranks[rank].say("sum 5000 1");
    }
    let error = common_error(&ranks[..1], since, operation_timeout + Duration::from_secs(2));
    assert!(since.elapsed() >= operation_timeout, "it came too early");
    assert!(error.starts_with("[1] ") && error.contains("timed out"), "{error}");
    assert!(error.contains("rank 1 (127.0.0.1:"), "{error}");
}

// spec: E-02 sockets
#[test]
fn joining_fails_at_its_deadline_and_names_who_is_missing() {
    let join_timeout = Duration::from_secs(2);
    let stage = Stage::with(Times { join_timeout, ..SHORT });
    let ranks: Vec<Process> = [0, 3].map(|rank| stage.rank("thin", rank, 4)).into();
    let since = Instant::now();
    let error = common_error(&ranks, since, LIMIT);
    assert!(error.starts_with("[1, 2] joining timed out after"), "{error}");
    assert!(error.contains("ranks 1, 2 did not come"), "{error}");
}

// spec: E-03 sockets
#[test]
fn a_rank_that_aborts_is_named_with_its_reason() {
    let stage = Stage::new();
    let mut ranks = stage.job("given-up", 3);
    for rank in [0, 2] {
        ranks[rank].say("sum 20000 1");
    }
    let since = Instant::now();
    ranks[1].say("abort enough");
    let took_ms = ranks[1].expect("aborted", LIMIT);
    assert!(took_ms.parse::<u64>().is_ok_and(|took_ms| took_ms < 200), "{took_ms} ms");
    ranks[1].say("barrier");
    let error = common_error(&ranks, since, SHORT.failure_after);
    assert_eq!(error, "[1] aborted by rank 1: enough");
}

// spec: E-01 sockets
#[test]
fn a_rank_that_leaves_while_others_need_it_fails_them_at_once() {
    let stage = Stage::new();
    let mut ranks = stage.job("parting", 3);
    say(&mut ranks, "sum 5000 2");
    expect(&ranks, "done", LIMIT);
    let mut first = ranks.remove(0);
    first.say("leave");
    assert_eq!(first.expect("left", LIMIT), "Ok(())");
    let since = Instant::now();
    say(&mut ranks, "sum 5000 1");
    let errors = expect(&ranks, "error", Duration::from_secs(1));
    println!("after {:?}: {errors:?}", since.elapsed());
    let error = "[0] rank 0 has left, and operation 2 needs it (reported by rank ";
    assert!(errors.iter().all(|text| text.starts_with(error)), "{errors:?}");
}

/// A stall of almost the deadline ends; then nobody waits for anything until the deadline is over.
fn check_recovery(name: &str, call: &str) {
    let operation_timeout = Duration::from_secs(4);
    let stage = Stage::with(Times { operation_timeout, ..SHORT });
    let mut ranks = stage.job(name, 2);
    let since = Instant::now();
    let wait_until = |share: f64| {
        let end = since + operation_timeout.mul_f64(share);
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
    };
    ranks[0].say(call);
    ranks[0].expect("stalled", operation_timeout);
    wait_until(0.7);
    ranks[1].say(call);
    expect(&ranks, "done", LIMIT);
    wait_until(1.5);
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
    let error = common_error(&ranks, since, Duration::from_secs(6));
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
