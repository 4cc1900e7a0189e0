//! The time that one thread takes for the jobs of all.
// spec: E-12 machine

use std::time::{Duration, Instant};

use super::*;

/// A job of ranks on hosts of their own, each with its sending threads, under a name.
fn gather(hall: &mut Hall, name: &str, threads: u32, first: u32) -> JobId {
    let job = hall.register_as(name, hall.settings.clone(), None).unwrap();
    hall.job = job;
    for rank in 0..hall.workers {
        join(hall, rank, first + rank, threads);
    }
    job
}

fn join(hall: &mut Hall, rank: u32, place: u32, threads: u32) {
    let at = |thread: u32| NodeId((2 + place) << 16 | (8 * (1 + thread)));
    let process = Process { node: at(1), life: 1 };
    let more_nodes = (1..threads).map(|thread| at(1 + thread)).collect();
    let switch = Some(NodeId((0x8000 + place / 64) << 16 | 8));
    let join = Join { process, more_nodes, switch, ..hall.join(rank, &place.to_string()) };
    hall.attend(join).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn time<T>(what: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    what();
    start.elapsed()
}

fn drain(hall: &mut Hall) -> usize {
    hall.answer_probes();
    let wanted = std::mem::take(&mut hall.wanted);
    for action in &wanted {
        if let Action::Tell { message: ToRank::Failed(failure), .. } = action {
            panic!("{}", failure.text);
        }
    }
    wanted.len()
}

#[test]
#[ignore = "prints times"]
fn measure_the_work_of_large_jobs() {
    for (jobs, ranks, threads) in [(1, 4_096, 1), (1, 4_096, 32), (4, 4_096, 32), (4_000, 4, 1)] {
        let mut hall = Hall::empty(ranks, 5);
        hall.workers = ranks;
        let mut ids = Vec::new();
        let all = time(|| {
            for job in 0..jobs {
                ids.push(gather(&mut hall, &job.to_string(), threads, job * ranks));
                drain(&mut hall);
            }
        });
        let job = *ids.last().unwrap();
        assert!(hall.registry.jobs.contains_key(&job));
        hall.job = job;
        let answers = time(|| {
            for tree in 0..threads {
                for (seat, leader) in (0..).zip(hall.leaders()) {
                    hall.say_of(tree, leader, FromRank::Answer { round: 1, seat, watermark: None });
                }
                drain(&mut hall);
            }
        });
        let mut ticks = Vec::new();
        for _ in 0..20 {
            hall.now += Span::from_ms(100);
            ticks.push(time(|| hall.registry.tick(hall.now)));
            drain(&mut hall);
        }
        ticks.sort();
        println!("{ticks:?}");
        let tick = ticks[10] * 10;
        let back = time(|| {
            for _ in 0..10 {
                hall.hang_up(7 % ranks);
                join(&mut hall, 7 % ranks, (jobs - 1) * ranks + 7 % ranks, threads);
                drain(&mut hall);
            }
        });
        let registers = time(|| {
            for _ in 0..10 {
                let _ = hall.register_as("one more", Settings::default(), None);
                hall.registry.fail_job(hall.now, hall.registry.names["one more"], "x".into());
                drain(&mut hall);
            }
        });
        let leaves = time(|| {
            for rank in 0..ranks.min(100) {
                hall.say(rank, FromRank::Leave { operations: 1 });
                drain(&mut hall);
            }
        });
        let per = |all: Duration, count: u32| all.as_secs_f64() * 1e6 / f64::from(count);
        println!(
            "| {jobs} | {ranks} | {threads} | join {:.0} us | set-up {:.0} ms | tick {:.0} us | back {:.0} us | register {:.0} us | leave {:.0} us |",
            per(all, jobs * ranks),
            answers.as_secs_f64() * 1e3,
            per(tick, 10),
            per(back, 10),
            per(registers, 10),
            per(leaves, ranks.min(100)),
        );
    }
}
