//! Times until every other rank has its error, with the default settings. For people: it prints a table.

use std::time::{Duration, Instant};

use crate::process::Process;
use crate::stage::{LIMIT, Stage, Times, expect, say};

const DEFAULT: Times = Times {
    failure_after: Duration::from_secs(10),
    stall_after: Duration::from_secs(5),
    operation_timeout: Duration::from_secs(300),
    join_timeout: Duration::from_secs(300),
};

/// The longest time until a rank has its error, and its text.
fn row(what: &str, ranks: &[Process], since: Instant) {
    let mut last = String::new();
    for rank in ranks {
        last = rank.expect("error", Duration::from_secs(60));
    }
    println!("| {what} | {:.1} s | {last} |", since.elapsed().as_secs_f64());
}

/// `cargo test -p thalweg --test failures -- --ignored --nocapture measure`
#[test]
#[ignore = "takes a minute, and is for people"]
fn times_until_every_rank_has_its_error() {
    println!("| what happens | until the last rank has its error | its text |\n|---|---|---|");
    let started = |name: &str| {
        let stage = Stage::with(DEFAULT);
        let mut ranks = stage.job(name, 4);
        say(&mut ranks, "sum 20000 1000000");
        expect(&ranks, "sum 5", LIMIT);
        (stage, ranks, Instant::now())
    };
    let (_stage, mut ranks, since) = started("killed");
    ranks.remove(2).kill();
    row("SIGKILL of rank 2 during an operation", &ranks, since);

    let stage = Stage::with(DEFAULT);
    let mut ranks: Vec<Process> = (0..3).map(|rank| stage.rank("joining", rank, 4)).collect();
    ranks.iter().for_each(|rank| drop(rank.expect("waiting [3]", LIMIT)));
    let since = Instant::now();
    ranks.remove(2).kill();
    row("SIGKILL of rank 2 while rank 3 is awaited", &ranks, since);

    let stage = Stage::with(DEFAULT);
    let mut ranks = stage.job("aborted", 4);
    say(&mut ranks[..3], "sum 20000 1");
    let since = Instant::now();
    ranks[3].say("abort reason");
    row("abort by rank 3", &ranks[..3], since);

    let stage = Stage::with(DEFAULT);
    let mut ranks = stage.job("left", 4);
    ranks[3].say("leave");
    ranks[3].expect("left", LIMIT);
    let since = Instant::now();
    say(&mut ranks[..3], "sum 20000 1");
    row("an operation that rank 3 has left before", &ranks[..3], since);

    let (mut stage, ranks, since) = started("headless");
    stage.kill_server();
    row("SIGKILL of the server for good", &ranks, since);

    let (_stage, mut ranks, since) = started("stopped");
    ranks[1].signal("STOP");
    let others = [&ranks[0], &ranks[2], &ranks[3]];
    let note = others.map(|rank| rank.expect("stalled", LIMIT));
    println!(
        "| SIGSTOP of rank 1: explained | {:.1} s | {} |",
        since.elapsed().as_secs_f64(),
        note[2]
    );
    std::thread::sleep((since + Duration::from_secs(30)).saturating_duration_since(Instant::now()));
    ranks[1].signal("CONT");
    let last = ranks.iter_mut().map(|rank| rank.expect("sum", LIMIT)).last();
    println!("| SIGCONT after 30 s | no error | sum {} |", last.unwrap_or_default());
}
