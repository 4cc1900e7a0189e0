//! Switches and servers that die and come back, or do not.

use std::time::{Duration, Instant};

use crate::deaths::{self, Death, Moment};
use crate::stage::{KNOWN, LIMIT, Stage, expect, say};

/// Time between the end of a daemon and its restart.
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

/// A switch that stays away is planned out, and in again when it is back. Every sum is checked by its rank.
// spec: E-09 sockets
#[test]
fn a_switch_that_stays_away_is_planned_out_and_in_again() {
    check_lost_switch(Stage::new(), "bypassed");
}

/// Kills the switch of a job for good, and starts it again when the job is planned without it.
pub fn check_lost_switch(mut stage: Stage, name: &str) {
    let mut ranks = stage.job(name, 3);
    say(&mut ranks, "sum 20000 1000000");
    expect(&ranks, "sum 5", LIMIT);
    let since = Instant::now();
    stage.kill_switch();
    expect(&ranks, "epoch 2", KNOWN + KNOWN);
    println!("planned out after {:?}", since.elapsed());
    for rank in &ranks {
        println!("{:?}: {}", since.elapsed(), rank.expect("sum", LIMIT));
    }
    stage.start_switch();
    let since = Instant::now();
    expect(&ranks, "epoch 3", LIMIT);
    println!("planned in after {:?}", since.elapsed());
    expect(&ranks, "sum", LIMIT);
    let switch = stage.switch.as_mut().expect("it runs");
    let end = Instant::now() + LIMIT;
    let mut completed = 0_u64;
    while completed == 0 {
        assert!(Instant::now() < end, "the switch sums nothing");
        std::thread::sleep(Duration::from_millis(100));
        switch.say("snapshot");
        completed = switch.expect("completed", LIMIT).parse().expect("a number");
    }
    expect(&ranks, "sum", LIMIT);
}

// spec: E-01 sockets
#[test]
fn a_server_that_stays_away_is_named() {
    deaths::check(Stage::new(), Death::Server, Moment::Operation);
}

// spec: E-01 sockets
#[test]
fn a_server_that_dies_between_operations_is_named() {
    deaths::check(Stage::new(), Death::Server, Moment::Idle);
}

/// Ranks wait for a server that was never there until they have joined, and not for one that died.
// spec: E-01, E-02 sockets
#[test]
fn a_server_that_dies_while_ranks_join_is_named() {
    deaths::check(Stage::new(), Death::Server, Moment::Joining);
}
