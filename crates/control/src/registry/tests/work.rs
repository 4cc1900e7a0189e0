//! The time that the thread of all jobs takes for large ones.
// spec: E-12 machine

use std::time::{Duration, Instant};

use prost::Message as _;

use super::*;
use crate::convert;

/// A rank on a host of its own, with its sending threads, below a switch of some ranks.
fn join(hall: &mut Hall, (rank, place): (u32, u32), (threads, below): (u32, u32)) {
    let at = |thread: u32| NodeId((2 + place) << 16 | (8 * thread));
    let process = Process { node: at(1), life: 1 };
    let more_nodes = (1..threads).map(|thread| at(1 + thread)).collect();
    let switch = Some(NodeId((0x8000 + place / below) << 16 | 8));
    let host = place.to_string();
    let join = Join { process, more_nodes, switch, ..hall.join(rank, &host) };
    hall.attend(join).unwrap();
}

fn gather(hall: &mut Hall, number: u32, size: (u32, u32)) -> JobId {
    hall.job = hall.register_as(&number.to_string(), hall.settings.clone(), None).unwrap();
    for rank in 0..hall.workers {
        join(hall, (rank, number * hall.workers + rank), size);
    }
    hall.job
}

/// Jobs whose trees have many switches each take turns, and none is left out.
#[test]
fn jobs_with_many_trees_take_turns_at_being_set_up() {
    let mut hall = Hall { workers: 64, ..Hall::empty(64, 5) };
    hall.limits = None;
    let jobs: Vec<JobId> = (0..5).map(|number| gather(&mut hall, number, (32, 1))).collect();
    let planned = |hall: &Hall| {
        let is_planned = |id: &&JobId| !hall.registry.jobs[*id].plan(31).unwrap().is_open;
        jobs.iter().filter(is_planned).count()
    };
    let work = hall.registry.jobs[&jobs[0]].work();
    assert_eq!(work, 32 * 65);
    // The token has used up what it has.
    let owner = hall.registry.jobs[&jobs[0]].owner;
    while hall.registry.set_ups.take(hall.now, owner, work) {}
    hall.now += Span::from_s(4);
    while hall.registry.set_ups.take(hall.now, owner, work) {}
    let mut counts = Vec::new();
    for _ in 0..20 {
        hall.now += Span::from_ms(20);
        hall.registry.tick(hall.now);
        counts.push(planned(&hall));
    }
    assert!(counts.windows(2).all(|pair| pair[1] <= pair[0] + 1), "{counts:?}");
    assert_eq!(counts.last(), Some(&5), "{counts:?}");
}

#[test]
fn a_rank_that_comes_back_is_asked_and_no_other() {
    let mut hall = Hall { workers: 3, ..Hall::empty(3, 5) };
    gather(&mut hall, 0, (2, 1));
    hall.look();
    hall.hang_up(1);
    join(&mut hall, (1, 1), (2, 1));
    hall.look();
    let reports = |hall: &Hall, rank| {
        let sent = hall.sent_to(rank).into_iter();
        sent.filter(|message| matches!(message, ToRank::Report { .. })).count()
    };
    assert_eq!([0, 1, 2].map(|rank| reports(&hall, rank)), [0, 2, 0]);
}

#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn time(what: impl FnOnce()) -> Duration {
    let start = Instant::now();
    what();
    start.elapsed()
}

/// Takes all that is wanted. Returns the time that it takes to encode the last welcome among it.
fn drain(hall: &mut Hall) -> Option<Duration> {
    hall.answer_probes();
    let wanted = std::mem::take(&mut hall.wanted);
    let welcome = wanted.into_iter().rev().find_map(|action| match action {
        Action::Tell { message: message @ ToRank::Welcome(_), .. } => Some(message),
        _ => None,
    })?;
    Some(time(|| assert!(convert::write_to_rank(0, &welcome).encode_to_vec().len() > 1)))
}

/// Times of sixty ticks, 100 ms apart.
fn ticks_of(hall: &mut Hall) -> Vec<Duration> {
    let tick = |_| {
        hall.now += Span::from_ms(100);
        let took = time(|| hall.registry.tick(hall.now));
        drain(hall);
        took
    };
    (0..60).map(tick).collect()
}

#[test]
#[ignore = "prints times"]
fn measure_the_work_of_large_jobs() {
    println!(
        "| jobs | ranks | threads | joins | welcome | answer | tick | longest | comes back | registers | leaves |"
    );
    let sizes = [
        (1, 4_096, 1, 64),
        (1, 4_096, 32, 64),
        (4, 4_096, 8, 64),
        (16, 1_024, 16, 1),
        (4_000, 4, 1, 4),
    ];
    for (jobs, ranks, threads, below) in sizes {
        let mut hall = Hall { workers: ranks, ..Hall::empty(ranks, 5) };
        let size = (threads, below);
        // Nodes that ranks call their switches, and that never answer.
        hall.limits = hall.limits.filter(|_| below > 1);
        let joins = time(|| {
            for number in 0..jobs {
                gather(&mut hall, number, size);
            }
        });
        let welcome = drain(&mut hall).expect("all are welcomed");
        let answers = time(|| {
            for tree in 0..threads {
                for (at, leader) in (0..).zip(hall.leaders()) {
                    hall.say_of(
                        tree,
                        leader,
                        FromRank::Answer { round: 1, seat: at, watermark: None },
                    );
                }
            }
        });
        drain(&mut hall);
        let ticks = ticks_of(&mut hall);
        let last = ((jobs - 1) * ranks..).zip(0..ranks.min(50));
        let back = time(|| {
            for (place, rank) in last.clone() {
                hall.hang_up(rank);
                join(&mut hall, (rank, place), size);
            }
        });
        drain(&mut hall);
        let registers = time(|| {
            for number in 0..10 {
                let name = format!("more {number}");
                // There may be no room for more jobs.
                let _ = hall.register_as(&name, Settings::default(), None);
            }
        });
        drain(&mut hall);
        let leaves = time(|| {
            for (_, rank) in last {
                hall.say(rank, FromRank::Leave { operations: 1 });
            }
        });
        let us = |all: Duration, count: u32| all.as_micros() as u32 / count;
        let all_ticks: Duration = ticks.iter().sum();
        println!(
            "| {jobs} | {ranks} | {threads} | {} | {} | {} | {} | {} | {} | {} | {} |",
            us(joins, jobs * ranks),
            us(welcome, 1),
            us(answers, ranks * threads),
            us(all_ticks, 60),
            us(*ticks.iter().max().unwrap(), 1),
            us(back, ranks.min(50)),
            us(registers, 10),
            us(leaves, ranks.min(50)),
        );
    }
}
