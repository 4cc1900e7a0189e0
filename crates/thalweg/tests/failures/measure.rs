//! Every failure in a lab, with the default settings: a table for people, and a document for programs.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use thalweg_lab::Spec;
use thalweg_lab::testing::build_or_skip;

use crate::deaths::{Death, Moment, RANKS, learn};
use crate::disturbances::{Disturbance, Slowdown, endure, slowdown, timed_spec};
use crate::process::Process;
use crate::restart::restart;
use crate::stage::{DEFAULT, Stage, expect, say};

/// The interpreter of training scripts, which has PyTorch and the wheel. Without it only sessions are measured.
const PYTHON: &str = "THALWEG_FAILURES_PYTHON";

/// File that the results are written to as JSON.
const JSON: &str = "THALWEG_FAILURES_JSON";

/// Labs at once: most of the time they wait.
const AT_ONCE: usize = 3;

/// Largest ratio of the time without a switch to that of a job that never had one.
const RATIO_MAX: f64 = 1.1;

/// Values of a sum that is timed: 1 MiB.
const TIMED_VALUES: usize = 1 << 18;

/// One row of the table.
struct Row {
    ranks: &'static str,
    event: String,
    moment: &'static str,
    /// Time until the last rank has its error, or the longest pause of a job that goes on.
    seconds: Option<f64>,
    is_right: bool,
    text: String,
}

type Case = Box<dyn FnOnce() -> Row + Send>;

/// `sudo scripts/failures_in_a_lab.py` prints the table.
#[test]
#[ignore = "takes minutes, and is for people"]
fn every_failure_in_a_lab() {
    if build_or_skip(&Spec { hosts: 1, ..Spec::default() }).is_none() {
        return;
    }
    let python = std::env::var_os(PYTHON).map(PathBuf::from);
    let mut all = cases("sessions", None);
    all.extend(endings());
    all.extend(python.iter().flat_map(|python| cases("DDP", Some(python))));
    all.extend(python.map(restarting));
    let mut rows = run(all);
    rows.push(without_switch());
    report(&rows);
}

/// The row of a restart alone: `sudo scripts/failures_in_a_lab.py --python … --restart`.
// spec: E-10 lab
#[test]
#[ignore = "needs PyTorch and the wheel, and is for people"]
fn a_restart_in_a_lab() {
    let Some(python) = std::env::var_os(PYTHON).map(PathBuf::from) else { return };
    if build_or_skip(&Spec { hosts: 1, ..Spec::default() }).is_some() {
        report(&run(vec![restarting(python)]));
    }
}

/// Prints the table, writes the document, and fails if a row is not as it has to be.
fn report(rows: &[Row]) {
    println!("{}", table(rows));
    if let Some(path) = std::env::var_os(JSON) {
        let document = Value::from_iter(rows.iter().map(Row::json));
        std::fs::write(path, format!("{document:#}\n")).expect("the file can be written");
    }
    let wrong = rows.iter().filter(|row| !row.is_right).count();
    assert_eq!(wrong, 0, "rows that are not as they have to be");
}

/// A cluster of its own, in a lab of its own.
fn stage(python: Option<&Path>) -> Stage {
    let lab = build_or_skip(&Spec { hosts: RANKS, servers: 1, ..Spec::default() });
    let mut stage = Stage::in_lab(DEFAULT, Some(lab.expect("there was one before")));
    stage.python = python.map(Path::to_owned);
    stage
}

fn cases(ranks: &'static str, python: Option<&Path>) -> Vec<Case> {
    let deaths = [
        (Death::Rank, "SIGKILL of rank 1"),
        (Death::Host, "link of rank 1's host down"),
        (Death::Server, "SIGKILL of the server, for good"),
    ];
    let moments = [
        (Moment::Operation, "during operations"),
        (Moment::Idle, "between operations"),
        (Moment::Joining, "while rank 3 is awaited"),
    ];
    let seconds = Duration::from_secs;
    let disturbances = [
        (Disturbance::Stop(seconds(30)), "SIGSTOP of rank 1, SIGCONT after 30 s"),
        (Disturbance::Server(seconds(3)), "SIGKILL of the server, started after 3 s"),
        (Disturbance::Switch(seconds(5)), "SIGKILL of the switch, started after 5 s"),
        (Disturbance::NoSwitch(seconds(20)), "SIGKILL of the switch, for good"),
    ];
    let python = python.map(Path::to_owned);
    let mut cases: Vec<Case> = Vec::new();
    for (death, event) in deaths {
        for (moment, name) in moments {
            let python = python.clone();
            cases.push(guarded(ranks, event, name, move || {
                let mut stage = stage(python.as_deref());
                let learned = learn(&mut stage, death, moment);
                let is_right = learned.after <= DEFAULT.known() && learned.is_named();
                (learned.after, is_right, learned.errors[0].clone())
            }));
        }
    }
    for (disturbance, event) in disturbances {
        for (moment, name) in moments {
            let python = python.clone();
            cases.push(guarded(ranks, event, name, move || {
                let pause = endure(&mut stage(python.as_deref()), disturbance, moment);
                (pause, true, "no error, every sum right".to_owned())
            }));
        }
    }
    cases
}

/// A rank that is killed under torchrun, on two hosts.
fn restarting(python: PathBuf) -> Case {
    guarded("DDP", "SIGKILL of rank 1, torchrun --max-restarts=1", "between steps", move || {
        let lab = build_or_skip(&Spec { hosts: 2, servers: 1, ..Spec::default() });
        let stage = Stage::in_lab(DEFAULT, Some(lab.expect("there was one before")));
        restart(&stage, &python)
    })
}

/// Ranks that end a job, or leave it, on purpose.
fn endings() -> [Case; 2] {
    const LAST: usize = RANKS as usize - 1;
    let abort = |stage: &Stage| {
        let mut ranks = stage.job("aborted", RANKS);
        say(&mut ranks[..LAST], "sum 20000 1");
        let since = Instant::now();
        ranks[LAST].say("abort reason");
        (ranks, since)
    };
    let leave = |stage: &Stage| {
        let mut ranks = stage.job("left", RANKS);
        ranks[LAST].say("leave");
        ranks[LAST].expect("left", stage.limit());
        let since = Instant::now();
        say(&mut ranks[..LAST], "sum 20000 1");
        (ranks, since)
    };
    let case = |event, end: fn(&Stage) -> (Vec<Process>, Instant)| {
        guarded("sessions", event, "during an operation", move || {
            let stage = stage(None);
            let (ranks, since) = end(&stage);
            let errors = expect(&ranks[..LAST], "error", stage.limit());
            let after = since.elapsed();
            (after, after <= DEFAULT.known(), errors[0].clone())
        })
    };
    [case("abort by rank 3", abort), case("rank 3 left before", leave)]
}

/// A case whose failure is a row as well.
fn guarded(
    ranks: &'static str,
    event: &str,
    moment: &'static str,
    body: impl FnOnce() -> (Duration, bool, String) + Send + 'static,
) -> Case {
    let event = event.to_owned();
    Box::new(move || match catch_unwind(AssertUnwindSafe(body)) {
        Ok((span, is_right, text)) => {
            Row { ranks, event, moment, seconds: Some(span.as_secs_f64()), is_right, text }
        }
        Err(panic) => {
            let literal = || panic.downcast_ref::<&str>().map(ToString::to_string);
            let text = panic.downcast_ref::<String>().cloned().or_else(literal).unwrap_or_default();
            Row { ranks, event, moment, seconds: None, is_right: false, text }
        }
    })
}

/// Runs a few cases at a time. Rows are in the order of the cases.
fn run(cases: Vec<Case>) -> Vec<Row> {
    let waiting: Mutex<VecDeque<(usize, Case)>> =
        Mutex::new(cases.into_iter().enumerate().collect());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let work = || {
        let mut rows = Vec::new();
        while let Some((at, case)) = next() {
            rows.push((at, case()));
        }
        rows
    };
    let mut rows = std::thread::scope(|scope| {
        let threads = Vec::from_iter((0..AT_ONCE).map(|_| scope.spawn(work)));
        let rows = threads.into_iter().flat_map(|thread| thread.join().expect("cases are guarded"));
        rows.collect::<Vec<(usize, Row)>>()
    });
    rows.sort_by_key(|(at, _)| *at);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// A job that lost its switch beside two that never had one. Nothing else runs meanwhile.
fn without_switch() -> Row {
    let lab = build_or_skip(&timed_spec()).expect("there was one before");
    let mut stage = Stage::in_lab(DEFAULT, Some(lab));
    let Slowdown { ratio, noise, median_ms } = slowdown(&mut stage, TIMED_VALUES);
    let text = format!(
        "{ratio:.2} times as slow as a job that never had one (two of those: {noise:.2}; median of 1 MiB at 100 Mbps: \
         {median_ms:.0} ms)"
    );
    let is_right = ratio <= RATIO_MAX * noise.max(1.0);
    let event = "planned without its switch".to_owned();
    Row { ranks: "sessions", event, moment: "afterwards", seconds: None, is_right, text }
}

impl Row {
    fn json(&self) -> Value {
        let Row { ranks, event, moment, seconds, is_right, text } = self;
        json!({
            "ranks": ranks,
            "event": event,
            "moment": moment,
            "seconds": seconds,
            "is_right": is_right,
            "text": text,
        })
    }
}

fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| ranks | event | when | error, or longest pause, after | as it has to be | outcome |\n\
         |---|---|---|---|---|---|\n",
    );
    for Row { ranks, event, moment, seconds, is_right, text: outcome } in rows {
        let after = seconds.map_or("–".to_owned(), |seconds| format!("{seconds:.1} s"));
        let right = if *is_right { "yes" } else { "NO" };
        text += &format!("| {ranks} | {event} | {moment} | {after} | {right} | {outcome} |\n");
    }
    text
}
