//! Two jobs on one switch.

use std::time::{Duration, Instant};

use crate::stage::{KNOWN, LIMIT, Stage, expect, say};

// spec, T-06 sockets
#[test]
fn a_job_that_dies_harms_no_other_and_leaves_nothing() {
    let mut stage = Stage::new();
    let mut dying = stage.job("dying", 2);
    let mut living = stage.job("living", 2);
    say(&mut dying, "sum 100000 1000000");
    say(&mut living, "sum 20000 100");
    expect(&dying, "sum 3", LIMIT);
    expect(&living, "sum 10", LIMIT);
    // What the other one sends now waits in the switch for the first one.
    dying.remove(0).kill();
    let switch = stage.switch.as_mut().expect("it runs");
    let held = |switch: &mut crate::process::Process| {
        switch.say("snapshot");
        let held = switch.expect("held", LIMIT);
        let count = held.split(' ').next().and_then(|count| count.parse().ok());
        (count.unwrap_or(u32::MAX), held)
    };
    println!("one rank is dead: {}", held(switch).1);
    dying.remove(0).kill();
    let since = Instant::now();
    println!("both are dead: {}", held(switch).1);
    expect(&living, "done", LIMIT);
    // The stale age of the daemon is a second; a sweep takes as long.
    let end = Instant::now() + Duration::from_secs(4);
    while held(switch).0 > 0 {
        assert!(Instant::now() < end, "still held: {}", held(switch).1);
        std::thread::sleep(Duration::from_millis(50));
    }
    // The server forgets the dead job when nobody came back.
    let server = stage.server.as_mut().expect("it runs");
    let mut jobs = String::new();
    while jobs != "1" {
        assert!(since.elapsed() < KNOWN, "{jobs} jobs at the server");
        std::thread::sleep(Duration::from_millis(50));
        server.say("snapshot");
        jobs = server.expect("jobs", LIMIT);
    }
    say(&mut living, "sum 20000 10");
    expect(&living, "done", LIMIT);
}
