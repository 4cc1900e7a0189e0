//! Disturbances that cost nothing but time, and how much of it.

use std::time::{Duration, Instant};

use crate::deaths::RANKS;
use crate::process::Process;
use crate::stage::{Stage, expect, say};

/// Values of a sum.
const VALUES: usize = 20_000;

/// Sums at every rank after a disturbance, until it is over.
const SUMS_AFTER: usize = 3;

/// A disturbance, and how long it lasts.
#[derive(Clone, Copy, Debug)]
pub enum Disturbance {
    /// A rank is stopped, and goes on.
    Stop(Duration),
    /// The server is killed, and started again.
    Server(Duration),
    /// The switch is killed, and started again.
    Switch(Duration),
    /// The switch is killed for good; measured for as long.
    NoSwitch(Duration),
}

/// Disturbs a job that sums without a pause. Returns the longest time between two sums of a rank. Ranks check every
/// sum; one that is wrong, and any error, ends the test.
pub fn endure(stage: &mut Stage, disturbance: Disturbance) -> Duration {
    let mut ranks = stage.job("disturbed", RANKS);
    say(&mut ranks, &format!("sum {VALUES} 1000000"));
    expect(&ranks, "sum 5", stage.limit());
    let mut sums = vec![Vec::new(); ranks.len()];
    let since = Instant::now();
    disturb(stage, &ranks, disturbance);
    let over = Instant::now();
    let end = over + stage.times.known() + stage.limit();
    let is_done = |sums: &Vec<Instant>| sums.iter().filter(|at| **at > over).count() >= SUMS_AFTER;
    while !sums.iter().all(is_done) {
        assert!(Instant::now() < end, "{disturbance:?}: the job does not go on");
        std::thread::sleep(Duration::from_millis(50));
        let new = ranks.iter().map(|rank| rank.times_of("sum"));
        sums.iter_mut().zip(new).for_each(|(sums, new)| sums.extend(new));
    }
    let pause = sums.iter().map(|sums| longest_gap(since, sums)).max().unwrap_or_default();
    println!("{disturbance:?}: a pause of {pause:?}");
    pause
}

fn disturb(stage: &mut Stage, ranks: &[Process], disturbance: Disturbance) {
    match disturbance {
        Disturbance::Stop(span) => {
            ranks[1].signal("STOP");
            std::thread::sleep(span);
            ranks[1].signal("CONT");
        }
        Disturbance::Server(span) => {
            stage.kill_server();
            std::thread::sleep(span);
            stage.start_server();
        }
        Disturbance::Switch(span) => {
            stage.kill_switch();
            std::thread::sleep(span);
            stage.start_switch();
        }
        Disturbance::NoSwitch(span) => {
            stage.kill_switch();
            std::thread::sleep(span);
        }
    }
}

/// The longest time between two moments, from the first one on.
fn longest_gap(first: Instant, moments: &[Instant]) -> Duration {
    let from = std::iter::once(&first).chain(moments);
    from.zip(moments).map(|(from, to)| to.duration_since(*from)).max().unwrap_or_default()
}

/// Times of a job that lost its switch, over those of jobs that never had one.
pub struct Slowdown {
    /// Median time of the job that lost its switch, over that of one that never had one.
    pub ratio: f64,
    /// The same of two jobs that never had one: the noise.
    pub noise: f64,
    /// Median time of a sum without a switch.
    pub median_ms: f64,
}

/// Sums of a turn, and turns of every job.
const TURN_SUMS: usize = 3;
const TURNS: usize = 9;

/// Lets three jobs take turns: one that has lost its switch, and two that never had one.
pub fn slowdown(stage: &mut Stage, values: usize) -> Slowdown {
    let mut lost = stage.job("lost", RANKS);
    stage.kill_switch();
    expect(&lost, "epoch 2", stage.times.known() * 2);
    let mut never = ["never", "never-either"].map(|name| stage.job_without_switch(name, RANKS));
    let mut times_ms = [const { Vec::new() }; 3];
    for turn in 0..=TURNS {
        let jobs = std::iter::once(&mut lost).chain(&mut never);
        for (ranks, times_ms) in jobs.zip(&mut times_ms) {
            let turn_ms = take_turn(ranks, values, stage.limit());
            // The first one finds out how much fits.
            times_ms.extend(turn_ms.into_iter().filter(|_| turn > 0));
        }
    }
    let [lost, never, again] = times_ms.map(median);
    Slowdown { ratio: lost / never, noise: again / never, median_ms: never }
}

/// Time of the slowest rank, for every sum of a turn.
fn take_turn(ranks: &mut [Process], values: usize, limit: Duration) -> Vec<f64> {
    say(ranks, &format!("time {values} {TURN_SUMS}"));
    let one = |_| {
        let took = expect(ranks, "took", limit).into_iter();
        took.map(|took| took.parse::<f64>().expect("a number")).fold(0.0, f64::max)
    };
    let times_ms = Vec::from_iter((0..TURN_SUMS).map(one));
    expect(ranks, "done", limit);
    times_ms
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
