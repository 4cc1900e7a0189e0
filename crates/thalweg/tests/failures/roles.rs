//! Roles of a child: it is a switch, a server or a rank, and obeys lines on its standard input.

use std::fmt::Display;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use thalweg::daemon::{ServerDaemon, ServerDaemonConfig, SwitchDaemon, SwitchDaemonConfig};
use thalweg::internal::Event;
use thalweg::{Cancel, Error, Reduce, Session, SessionConfig};
use thalweg_wire::tag::Secret;

use crate::interrupts;
use crate::process::{MARK, ROLE};
use crate::stage::{NO_SWITCH, TOKEN};

/// Secret that all daemons of a test share.
const SECRET: Secret = Secret([5; 16]);

#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    match role.split(' ').collect::<Vec<_>>()[..] {
        ["switch", bind] => switch(bind),
        ["server", bind, switch] => server(bind, switch),
        ["rank", server, switch, job, rank, ranks, failure, stall, operation, join, threads] => {
            let span = |text: &str| Duration::from_millis(number(text));
            let config = Session::builder(server, job);
            let config = if switch == NO_SWITCH { config } else { config.switch(switch) };
            let config = config
                .rank(number(rank) as u32, number(ranks) as u32)
                .threads(number(threads) as u32)
                .share_memory(false)
                .token(TOKEN)
                .failure_after(span(failure))
                .stall_after(span(stall))
                .operation_timeout(span(operation))
                .join_timeout(span(join));
            thalweg::internal::listen(note);
            attend(config.config());
        }
        ["sharing", server, switch, job, rank, ranks, threads] => {
            let config = Session::builder(server, job)
                .switch(switch)
                .rank(number(rank) as u32, number(ranks) as u32)
                .threads(number(threads) as u32)
                .token(TOKEN)
                .operation_timeout(Duration::from_secs(20));
            attend(config.config());
        }
        ["interruptible", server, job, wait] => interruptible(server, job, wait),
        _ => panic!("no role {role}"),
    }
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

/// Tells the parent.
fn tell(line: impl Display) {
    let mut out = io::stdout().lock();
    // A parent that is gone needs nothing.
    let _ = writeln!(out, "\n{MARK}{line}").and_then(|()| out.flush());
}

fn commands() -> impl Iterator<Item = String> {
    io::stdin().lines().map_while(Result::ok)
}

fn switch(bind: &str) {
    let config = SwitchDaemonConfig::new(bind.parse().expect("an address"), SECRET);
    let switch = SwitchDaemon::start(&config).expect("the address is free");
    tell(format_args!("at {}", switch.address()));
    for _ in commands() {
        let snapshot = switch.snapshot().expect("it runs");
        let (occupancy, completed) = (snapshot.occupancy, snapshot.switch.completed);
        tell(format_args!("held {} {occupancy:?}", occupancy.values().sum::<u32>()));
        tell(format_args!("completed {completed}"));
    }
}

fn server(bind: &str, switch: &str) {
    let mut config = ServerDaemonConfig::new(bind.parse().expect("an address"), SECRET);
    config.switch = Some(switch.parse().expect("an address"));
    config.token = Some(TOKEN.into());
    let server = ServerDaemon::start(&config).expect("the address is free");
    tell(format_args!("at {}", server.address()));
    for _ in commands() {
        tell(format_args!("jobs {}", server.snapshot().expect("it runs").jobs.len()));
    }
}

fn note(event: &Event) {
    let field = |name| event.field(name).unwrap_or_default();
    match field("event") {
        "stalled" => tell(format_args!("stalled {}", event.text)),
        "waiting" => tell(format_args!("waiting {}", field("ranks"))),
        "set_up" => tell(format_args!("epoch {}", field("epoch"))),
        _ => {}
    }
}

fn attend(config: SessionConfig) {
    let session = match Session::join(config) {
        Ok(session) => session,
        Err(error) => return tell_error(&error),
    };
    tell("joined");
    for command in commands() {
        let done = match command.split(' ').collect::<Vec<_>>()[..] {
            ["abort", reason] => {
                let began = Instant::now();
                session.abort(reason);
                tell(format_args!("aborted {}", began.elapsed().as_millis()));
                continue;
            }
            ["leave"] => {
                let left = session.leave();
                return tell(format_args!("left {left:?}"));
            }
            ["sum", values, times] => sums(&session, number(values) as usize, number(times)),
            ["time", values, times] => timed(&session, number(values) as usize, number(times)),
            ["max", values] => most(&session, number(values) as usize),
            ["barrier"] => session.barrier().wait(),
            _ => panic!("no command {command}"),
        };
        match done {
            Ok(()) => tell("done"),
            Err(error) => tell_error(&error),
        }
    }
}

/// Rank 0 of two, whose program ends with the wait that Ctrl-C interrupts.
fn interruptible(server: &str, job: &str, wait: &str) {
    let cancel = Cancel::new();
    let pressed = cancel.clone();
    ctrlc::set_handler(move || pressed.cancel("Ctrl-C")).expect("no other handler");
    tell("listening");
    let config = Session::builder(server, job).rank(0, 2).share_memory(false).cancel(cancel);
    let ended = config.join().and_then(|session| {
        tell("joined");
        interrupts::wait_of(wait)(&session)
    });
    match ended {
        Ok(()) => tell("done"),
        Err(error) => tell_error(&error),
    }
}

fn tell_error(error: &Error) {
    tell(format_args!("error {:?} {error}", error.ranks()));
}

/// Value that a rank contributes: a small integer, so that sums are exact.
fn value(rank: u32, operation: u64, at: usize) -> f32 {
    ((at as u64 * 7 + u64::from(rank) * 13 + operation * 31) % 101) as f32 - 50.0
}

fn sums(session: &Session, values: usize, times: u64) -> Result<(), Error> {
    let (rank, ranks) = (session.rank(), session.ranks());
    for operation in 0..times {
        let own = (0..values).map(|at| value(rank, operation, at)).collect();
        let own: Vec<f32> = own;
        let sum = session.all_reduce(own, Reduce::Sum).wait()?.values;
        let expected = |at| (0..ranks).map(|rank| value(rank, operation, at)).sum::<f32>();
        let is_right = sum.iter().enumerate().all(|(at, value)| *value == expected(at));
        assert!(is_right && sum.len() == values, "rank {rank}: sum {operation} is wrong");
        tell(format_args!("sum {operation}"));
    }
    Ok(())
}

/// Sums that begin together, and how long each took here, in milliseconds.
fn timed(session: &Session, values: usize, times: u64) -> Result<(), Error> {
    for _ in 0..times {
        session.barrier().wait()?;
        let began = Instant::now();
        let sum = session.all_reduce(vec![1.0_f32; values], Reduce::Sum).wait()?.values;
        let took_ms = began.elapsed().as_secs_f64() * 1e3;
        assert_eq!(sum, vec![session.ranks() as f32; values]);
        tell(format_args!("took {took_ms}"));
    }
    Ok(())
}

fn most(session: &Session, values: usize) -> Result<(), Error> {
    let most = session.all_reduce(vec![session.rank(); values], Reduce::Max).wait()?;
    assert_eq!(most.values, vec![session.ranks() - 1; values]);
    Ok(())
}
