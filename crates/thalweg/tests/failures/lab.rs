//! Hosts that die, in a lab: their kernels answer nobody any more. It needs root.

use std::time::Instant;

use thalweg_lab::Spec;
use thalweg_lab::testing::build_or_skip;

use crate::daemons::check_lost_switch;
use crate::deaths::{self, Death, Moment, RANKS};
use crate::disturbances::{Slowdown, slowdown, timed_spec};
use crate::ranks::common_error;
use crate::stage::{KNOWN, LIMIT, SHORT, Stage, expect, say};

fn stage() -> Option<Stage> {
    let lab = build_or_skip(&Spec { hosts: RANKS, servers: 1, ..Spec::default() })?;
    Some(Stage::in_lab(SHORT, Some(lab)))
}

// spec: E-01 lab
#[test]
fn a_host_whose_link_goes_down_is_named_at_all_others() {
    let Some(stage) = stage() else { return };
    let mut ranks = stage.job("cut-off", 3);
    say(&mut ranks, "sum 20000 1000000");
    expect(&ranks, "sum 5", LIMIT);
    let since = Instant::now();
    stage.lab().expect("it is there").host(1).take_down().expect("the link goes down");
    let cut_off = ranks.remove(1);
    let error = common_error(&ranks, since, KNOWN);
    assert!(error.starts_with("[1] rank 1 (10.77.0."), "{error}");
    assert!(error.contains("its host has not answered for"), "{error}");
    // It knows by itself, and cannot tell who of them died.
    let own = cut_off.expect("error", (since + KNOWN).saturating_duration_since(Instant::now()));
    println!("after {:?}: {own}", since.elapsed());
    assert!(own.contains(stage.server_at()), "{own}");
}

// spec: E-01 lab
#[test]
fn a_host_whose_link_goes_down_between_operations_is_named() {
    let Some(stage) = stage() else { return };
    deaths::check(stage, Death::Host, Moment::Idle);
}

// spec: E-01 lab
#[test]
fn a_host_whose_link_goes_down_while_ranks_join_is_named() {
    let Some(stage) = stage() else { return };
    deaths::check(stage, Death::Host, Moment::Joining);
}

// spec: E-01 lab
#[test]
fn a_server_whose_link_goes_down_is_named_at_all_ranks() {
    let Some(stage) = stage() else { return };
    let mut ranks = stage.job("headless", 3);
    say(&mut ranks, "sum 20000 1000000");
    expect(&ranks, "sum 5", LIMIT);
    let since = Instant::now();
    stage.lab().expect("it is there").server(0).take_down().expect("the link goes down");
    for rank in &ranks {
        let left = (since + KNOWN).saturating_duration_since(Instant::now());
        let error = rank.expect("error", left);
        println!("after {:?}: {error}", since.elapsed());
        assert!(error.contains(stage.server_at()), "{error}");
    }
}

// spec: E-09 lab
#[test]
fn a_switch_that_stays_away_is_planned_out_and_in_again() {
    let Some(stage) = stage() else { return };
    check_lost_switch(stage, "bypassed");
}

// spec: E-09 lab
#[test]
fn a_job_without_its_switch_is_about_as_fast_as_one_that_never_had_one() {
    let Some(lab) = build_or_skip(&timed_spec()) else { return };
    let mut stage = Stage::in_lab(SHORT, Some(lab));
    let Slowdown { ratio, noise, median_ms } = slowdown(&mut stage, 1 << 16);
    println!("{ratio:.3} times as slow, noise {noise:.3}, median {median_ms:.1} ms");
    // A machine that does other things beside does them to one job more than to another.
    let bound = 1.1 * noise.max(noise.recip()) + 0.05;
    assert!(ratio <= bound, "{ratio:.3} times as slow, noise {noise:.3}");
}
