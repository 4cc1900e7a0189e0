//! Daemons whose standard error cannot be written: its disk is full, its reader is gone, or nobody reads it.

use std::fs::OpenOptions;
use std::io::{Write, pipe};
use std::process::Stdio;

use serde_json::Value;
use thalweg::{Reduce, Session};

use crate::process::{Daemon, thalweg};

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
fn lines_are_text_or_documents_as_every_daemon_is_configured() {
    let socket = std::env::temp_dir().join(format!("thalweg-{}-lines", std::process::id()));
    let socket = socket.display().to_string();
    let bind = ["--bind", "127.0.0.1:0"];
    let agent = ["--address", "10.77.0.1", "--rate", "1gbit", "--socket", &socket];
    let metrics = ["--metrics", "127.0.0.1:0"];
    for (role, own) in [("switch", &bind[..]), ("server", &bind), ("agent", &agent)] {
        let logged = |format: &[&str]| {
            let daemon = Daemon::start_at(role, &[own, &metrics, format].concat(), Stdio::piped());
            let ended = daemon.terminate();
            assert_eq!(ended.code, Some(0), "{}", ended.stderr);
            ended.stderr
        };
        let texts = logged(&[]);
        let documents = logged(&["--log-format", "json"]);
        let message = |line: &str| {
            let line: Value = serde_json::from_str(line).expect("every line is a document");
            assert!(line["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{line}");
            let message = line["message"].as_str().expect("a text");
            format!("{}{message}", if line["level"] == "info" { "" } else { "warning: " })
        };
        let messages: Vec<String> = documents.lines().map(message).collect();
        let last = messages.last().expect("it logs something");
        assert!(last.starts_with(&format!("{role} stopped")), "{documents}");
        let text = |line: &str| line.split_once(' ').expect("the time and a text").1.to_owned();
        let texts: Vec<String> = texts.lines().map(text).collect();
        assert_eq!((texts.last(), texts.len()), (Some(last), messages.len()), "the same in both");
    }
    let refused = thalweg(&["switch", "--bind", "127.0.0.1:4801", "--log-format", "json"]);
    assert_eq!(refused.status.code(), Some(2));
    let lines = String::from_utf8(refused.stderr).expect("UTF-8");
    let last = lines.lines().next_back().expect("it says why");
    let last: Value = serde_json::from_str(last).expect("a document");
    assert_eq!(last["level"], "error");
    assert!(last["message"].as_str().is_some_and(|why| why.contains("multiple of 8")), "{last}");
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
