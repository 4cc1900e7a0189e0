//! Failures of jobs whose ranks have several sending threads: they are one job, with one error.

use thalweg_lab::Spec;
use thalweg_lab::testing::build_or_skip;

use crate::stage::{KNOWN, LIMIT, SHORT, Stage, expect, say};

/// Sending threads of every rank. A sum is short, so that they take turns.
const THREADS: u32 = 4;

fn stage() -> Stage {
    let mut stage = Stage::new();
    stage.threads = THREADS;
    stage
}

// spec: F-04, T-10 sockets
#[test]
fn a_server_that_is_started_again_restores_the_trees_of_all_threads() {
    let mut stage = stage();
    let mut ranks = stage.job("wide", 3);
    say(&mut ranks, "sum 50000 60");
    for sum in ["sum 10", "sum 30"] {
        expect(&ranks, sum, LIMIT);
        stage.kill_server();
        stage.start_server();
    }
    expect(&ranks, "done", LIMIT);
    let server = stage.server.as_mut().expect("it runs");
    server.say("jobs");
    assert_eq!(server.expect("jobs", LIMIT), "1", "all threads are of one job");
    // A sum of every thread, long enough to be divided, and another collective.
    say(&mut ranks, "sum 600000 2");
    expect(&ranks, "done", LIMIT);
    say(&mut ranks, "max 100");
    expect(&ranks, "done", LIMIT);
    say(&mut ranks, "leave");
    expect(&ranks, "left Ok", LIMIT);
}

// spec: F-04, E-01 sockets
#[test]
fn a_death_is_one_error_of_a_session_of_several_threads() {
    let stage = stage();
    let mut ranks = stage.job("wide", 3);
    say(&mut ranks, "sum 50000 100000");
    expect(&ranks, "sum 10", LIMIT);
    let dead = ranks.remove(1);
    dead.kill();
    let errors = expect(&ranks, "error [1]", KNOWN);
    assert_eq!(errors[0], errors[1]);
    assert!(errors[0].contains("rank 1") && errors[0].contains("died"), "{errors:?}");
    // A second error would end the test.
    assert!(ranks.iter().all(|rank| rank.times_of("done").is_empty()));
}

// spec: F-04 lab
#[test]
fn ranks_that_share_memory_sum_on_all_threads_of_their_leader() {
    let spec = Spec { hosts: 2, servers: 1, ..Spec::default() };
    let Some(lab) = build_or_skip(&spec) else { return };
    let mut stage = Stage::in_lab(SHORT, Some(lab));
    stage.threads = THREADS;
    let mut ranks: Vec<_> = (0..4).map(|rank| stage.sharing("wide", rank, 4)).collect();
    expect(&ranks, "joined", LIMIT);
    // Short sums, which threads take in turns, and long ones on all of them.
    for sums in ["sum 1000 9", "sum 600000 4", "max 100"] {
        say(&mut ranks, sums);
        expect(&ranks, "done", LIMIT);
    }
    say(&mut ranks, "leave");
    expect(&ranks, "left Ok", LIMIT);
}
