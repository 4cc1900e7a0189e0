//! Switches and servers that die and come back, or do not.

use std::time::{Duration, Instant};

use crate::stage::{KNOWN, LIMIT, Stage, expect, say};

/// How long nobody is in the place of a daemon that is started again.
const AWAY: Duration = Duration::from_millis(300);

// spec: T-10 sockets
#[test]
fn a_switch_that_is_killed_and_started_again_costs_only_time() {
    let mut stage = Stage::new();
    let mut ranks = stage.job("steady", 3);
    say(&mut ranks, "sum 50000 60");
    for sum in ["sum 10", "sum 30"] {
        expect(&ranks, sum, LIMIT);
        stage.kill_switch();
        std::thread::sleep(AWAY);
        stage.start_switch();
    }
    expect(&ranks, "done", LIMIT);
}

// spec: T-10 sockets
#[test]
fn a_server_that_is_killed_and_started_again_costs_only_time() {
    let mut stage = Stage::new();
    let mut ranks = stage.job("steady", 3);
    say(&mut ranks, "sum 50000 60");
    for sum in ["sum 10", "sum 30"] {
        expect(&ranks, sum, LIMIT);
        stage.kill_server();
        std::thread::sleep(AWAY);
        stage.start_server();
    }
    expect(&ranks, "done", LIMIT);
    // The job is known again: other collectives and a second one of its kind work as before.
    say(&mut ranks, "max 100");
    expect(&ranks, "done", LIMIT);
}

#[test]
fn both_daemons_may_be_killed_at_once() {
    let mut stage = Stage::new();
    let mut ranks = stage.job("steady", 2);
    say(&mut ranks, "sum 50000 40");
    expect(&ranks, "sum 10", LIMIT);
    stage.kill_switch();
    stage.kill_server();
    stage.start_switch();
    stage.start_server();
    expect(&ranks, "done", LIMIT);
}

#[test]
fn a_server_that_stays_away_is_named() {
    let mut stage = Stage::new();
    let mut ranks = stage.job("orphaned", 3);
    say(&mut ranks, "sum 20000 1000000");
    expect(&ranks, "sum 5", LIMIT);
    let since = Instant::now();
    stage.kill_server();
    for rank in &ranks {
        let left = (since + KNOWN).saturating_duration_since(Instant::now());
        let error = rank.expect("error", left);
        println!("after {:?}: {error}", since.elapsed());
        assert!(error.contains(stage.server_at()), "{error}");
    }
}
