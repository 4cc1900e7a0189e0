//! Daemons whose standard error cannot be written: its disk is full, its reader is gone, or nobody reads it.

use std::fs::OpenOptions;
use std::io::{Write, pipe};
use std::process::Stdio;

use thalweg::{Reduce, Session};

use crate::process::Daemon;

/// Bytes of a pipe's buffer.
const PIPE_BYTES: usize = 65_536;

/// Two ranks sum through a switch and a server with such a standard error, which then end as others do.
fn check(stderr: impl Fn() -> Stdio) {
    let switch = Daemon::start_with("switch", &[], stderr());
    let server = Daemon::start_with("server", &["--switch", switch.address()], stderr());
    let sum = |rank| {
        let builder = Session::builder(server.address(), "unheard").rank(rank, 2);
        let session = builder.switch(switch.address()).share_memory(false).join()?;
        let sum = session.all_reduce(vec![1.0_f32; 1_000], Reduce::Sum).wait()?;
        session.leave()?;
        Ok::<_, thalweg::Error>(sum.values)
    };
    std::thread::scope(|scope| {
        for rank in [0, 1].map(|rank| scope.spawn(move || sum(rank))) {
            let sum = rank.join().expect("no rank panics");
            assert_eq!(sum.expect("the daemons go on"), [2.0; 1_000]);
        }
    });
    assert_eq!((server.terminate().code, switch.terminate().code), (Some(0), Some(0)));
}

#[test]
fn a_log_on_a_full_disk_stops_no_daemon() {
    check(|| OpenOptions::new().write(true).open("/dev/full").expect("Linux has it").into());
}

#[test]
fn a_log_whose_reader_is_gone_stops_no_daemon() {
    check(|| pipe().expect("the system gives a pipe").1.into());
}

/// As a pager that waits for a key.
#[test]
fn a_log_that_nobody_reads_stops_no_daemon() {
    let (_unread, mut written) = pipe().expect("the system gives a pipe");
    written.write_all(&[b'.'; PIPE_BYTES - 64]).expect("it fits");
    check(|| written.try_clone().expect("the system has room").into());
}
