//! A worker as a process of its own: `thalweg demo-worker`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use thalweg::{Collective, Error, Policy, Reduce, ReduceOptions, Session};
use thalweg_console::{Failure, files};
use thalweg_core::Digest;
use thalweg_train::Shard;

use super::cluster::TOKEN;
use super::learner::Learner;
use super::lifeline::Lifeline;
use super::message::{Assignment, Exercise, Lesson, Report, Span, Trained, Way, Work};

/// Rounds that are not measured: windows have to open first.
const WARM_UP_ROUNDS: usize = 3;
/// Longest absence of a worker, or time without progress, before the job fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// Does what the first line of standard input says, waits for another line, and leaves.
pub fn worker() -> Result<(), Failure> {
    let orders = Lifeline::hold();
    let assignment = serde_json::from_str::<Assignment>(&orders.next()?);
    let assignment =
        assignment.map_err(|error| Failure::Ran(format!("no such assignment: {error}")))?;
    // Examples are made before the others are kept waiting.
    let session = match &assignment.work {
        Work::Train(lesson) => {
            let learner = Learner::new(lesson)?;
            let session = join(&assignment)?;
            train(&session, lesson, learner)?;
            session
        }
        Work::Compare(exercise) => {
            let session = join(&assignment)?;
            compare(&session, exercise)?;
            session
        }
    };
    orders.next()?;
    session.leave().map_err(Failure::ran)
}

fn join(assignment: &Assignment) -> Result<Session, Failure> {
    let Assignment { server, switch, job, rank, ranks, .. } = assignment;
    thalweg::internal::listen(|event| {
        if event.is_warning {
            // Without a reader there is nobody to report to.
            let _ = say(&Report::Note(event.text.clone()));
        }
    });
    Session::builder(server, job)
        .rank(*rank, *ranks)
        .switch(switch)
        .token(TOKEN)
        .policy(Policy::default().collective(Collective::Aggregate))
        // Every worker counts as a host of its own, so that all values pass the network.
        .share_memory(false)
        .operation_timeout(PATIENCE)
        .join()
        .map_err(Failure::ran)
}

fn train(session: &Session, lesson: &Lesson, mut learner: Learner) -> Result<(), Failure> {
    let shard = Shard::new(session.rank() as usize, session.ranks() as usize);
    for step in 0..lesson.steps {
        let (loss, gradient, examples) = learner.gradient(step, shard);
        let gradient = gradient.to_vec();
        let reduce = || session.all_reduce(gradient, Reduce::Sum).wait();
        let (result, sum) = timed(reduce);
        let result = result.map_err(Failure::ran)?.values;
        say(&Report::Step { step, loss, examples, sum })?;
        // They take turns in computing the sum again: the work of one more worker.
        let ranks = session.ranks() as usize;
        if step % ranks == session.rank() as usize {
            let is_right = learner.is_right(step, &result, ranks);
            say(&Report::Checked { is_right })?;
        }
        learner.learn(step, result);
        // They all hold the same.
        if session.rank() == 0
            && let Some(accuracy) = learner.test_after(step)
        {
            say(&Report::Tested { step, accuracy })?;
        }
    }
    let counters = session.counters().map_err(Failure::ran)?.worker;
    let mut digest = Digest::default();
    learner.parameters().iter().for_each(|value| digest.add(u64::from(value.to_bits())));
    say(&Report::Trained(Trained {
        digest: digest.to_string(),
        parameters: learner.parameters().iter().map(|value| value.to_bits()).collect(),
        repairs: counters.repairs,
        queries: counters.queries,
    }))
}

fn compare(session: &Session, exercise: &Exercise) -> Result<(), Failure> {
    let (rank, ranks) = (session.rank(), session.ranks());
    for round in 0..WARM_UP_ROUNDS + exercise.rounds {
        let own: Vec<f32> = (0..exercise.values).map(|at| value(rank, round, at)).collect();
        let sums: Vec<f32> = (0..exercise.values)
            .map(|at| (0..ranks).map(|rank| value(rank, round, at)).sum())
            .collect();
        // The ways take turns, so that whatever else the machine does slows all of them.
        for &way in &exercise.ways {
            session.barrier().wait().map_err(Failure::ran)?;
            let own = own.clone();
            let options = ReduceOptions::new(Reduce::Sum).collective(way.collective());
            let (result, sum) = timed(|| session.all_reduce(own, options).wait());
            let is_exact = result.map_err(Failure::ran)?.values == sums;
            if round >= WARM_UP_ROUNDS {
                say(&Report::Summed { way, sum, is_exact })?;
            }
        }
    }
    say(&Report::Compared)
}

/// Value that a rank contributes: small integers, whose sums are exact in any order.
fn value(rank: u32, round: usize, at: usize) -> f32 {
    ((at * 7 + round * 5 + rank as usize * 13) % 101) as f32 - 50.0
}

fn timed<T>(work: impl FnOnce() -> Result<T, Error>) -> (Result<T, Error>, Span) {
    let began_us = now_us();
    let result = work();
    (result, Span { began_us, ended_us: now_us() })
}

/// The machine's clock: the one that all processes share.
#[expect(clippy::disallowed_methods, reason = "processes are measured in real time")]
fn now_us() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1e6
}

fn say(report: &Report) -> Result<(), Failure> {
    let line = serde_json::to_string(report).expect("reports are plain data");
    files::print(&format!("{line}\n"))
}

impl Way {
    fn collective(self) -> Collective {
        match self {
            Way::Aggregate => Collective::Aggregate,
            Way::Ring => Collective::Ring,
            Way::Server => Collective::Server,
        }
    }
}
