//! Disturbances that cost nothing but time, and how much of it.

use std::time::{Duration, Instant};

use thalweg_core::Rate;
use thalweg_lab::Spec;

use crate::deaths::{JOB, Moment, RANKS, VICTIM, brought_to};
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

/// Disturbs a job at that moment. Returns the longest time between two sums of a rank, or, where ranks join, the time until
/// the last of them has joined. Ranks check every sum; one that is wrong, and any error, ends the test.
pub fn endure(stage: &mut Stage, disturbance: Disturbance, moment: Moment) -> Duration {
    let mut ranks = brought_to(stage, moment, VALUES);
    let since = Instant::now();
    let span = strike(stage, &ranks, disturbance);
    // Whatever comes next comes during the disturbance.
    match moment {
        Moment::Operation => {}
        Moment::Idle => say(&mut ranks, &format!("sum {VALUES} 1000000")),
        Moment::Joining => ranks.push(stage.rank(JOB, RANKS - 1, RANKS)),
    }
    std::thread::sleep(span);
    mend(stage, &ranks, disturbance);
    let over = Instant::now();
    let limit = stage.times.known() + stage.limit();
    let joined = (moment == Moment::Joining).then(|| {
        let joined = ranks.iter().map(|rank| rank.expect_at("joined", limit).0).max();
        say(&mut ranks, &format!("sum {VALUES} 1000000"));
        joined.expect("there are ranks").saturating_duration_since(since)
    });
    let gap = longest_pause(&ranks, since, over, over + 2 * limit);
    let pause = joined.unwrap_or(gap);
    println!("{disturbance:?}, {moment:?}: a pause of {pause:?}");
    pause
}

/// Waits for sums of all ranks after the disturbance. Returns the longest time between two of a rank.
fn longest_pause(ranks: &[Process], since: Instant, over: Instant, end: Instant) -> Duration {
    let mut sums = vec![Vec::new(); ranks.len()];
    let is_done = |sums: &Vec<Instant>| sums.iter().filter(|at| **at > over).count() >= SUMS_AFTER;
    while !sums.iter().all(is_done) {
        assert!(Instant::now() < end, "the job does not go on");
        std::thread::sleep(Duration::from_millis(50));
        let new = ranks.iter().map(|rank| rank.times_of("sum"));
        sums.iter_mut().zip(new).for_each(|(sums, new)| sums.extend(new));
    }
    sums.iter().map(|sums| longest_gap(since, sums)).max().unwrap_or_default()
}

/// Begins a disturbance. Returns how long it lasts.
fn strike(stage: &mut Stage, ranks: &[Process], disturbance: Disturbance) -> Duration {
    match disturbance {
        Disturbance::Stop(span) => {
            ranks[VICTIM].signal("STOP");
            span
        }
        Disturbance::Server(span) => {
            stage.kill_server();
            span
        }
        Disturbance::Switch(span) | Disturbance::NoSwitch(span) => {
            stage.kill_switch();
            span
        }
    }
}

/// Ends it, if it has an end.
fn mend(stage: &mut Stage, ranks: &[Process], disturbance: Disturbance) {
    match disturbance {
        Disturbance::Stop(_) => ranks[VICTIM].signal("CONT"),
        Disturbance::Server(_) => stage.start_server(),
        Disturbance::Switch(_) => stage.start_switch(),
        Disturbance::NoSwitch(_) => {}
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

/// A lab whose links are so slow that they decide how long a sum takes, and not the processors that all hosts share.
pub fn timed_spec() -> Spec {
    Spec { hosts: RANKS, servers: 1, rate: Rate::from_mbps(100), ..Spec::default() }
}

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
