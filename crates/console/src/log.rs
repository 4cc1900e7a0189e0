//! Lines for people on standard error, which stop nobody.
//!
//! A thread writes them. A reader that has stopped, as a pager that waits for a key does, blocks that thread and not
//! those that have something to say; lines that it does not keep up with are dropped. A log whose disk is full, or whose
//! reader is gone, stops nothing either.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use thalweg_core::text::printable;

/// Most lines that wait to be written.
const LINES_MAX: usize = 1_024;

/// Longest wait for the last lines of a program.
const LAST_WITHIN: Duration = Duration::from_millis(500);

/// Input of the thread.
enum Entry {
    Line(String),
    /// Answered when everything before it is written.
    Last(SyncSender<()>),
}

/// The thread, from the first line on. `None` where the system gives none.
static THREAD: OnceLock<Option<SyncSender<Entry>>> = OnceLock::new();

/// Writes a line to standard error, soon. Characters that could harm a terminal are written as numbers: a
/// line may name what others have sent.
pub fn log(line: impl Display) {
    let line = clean(&line.to_string());
    match THREAD.get_or_init(start) {
        // There is nobody to report a dropped line to.
        Some(thread) => drop(thread.try_send(Entry::Line(line))),
        None => write(&line),
    }
}

/// Waits until all lines are written, or half a second if they cannot be. For the end of a program.
pub fn finish() {
    let Some(Some(thread)) = THREAD.get() else { return };
    let (written, is_written) = sync_channel(1);
    if thread.try_send(Entry::Last(written)).is_ok() {
        // A reader that is late does without them.
        let _ = is_written.recv_timeout(LAST_WITHIN);
    }
}

fn clean(line: &str) -> String {
    line.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

fn start() -> Option<SyncSender<Entry>> {
    let (entries, waiting) = sync_channel(LINES_MAX);
    let body = move || write_all(&waiting);
    thread::Builder::new().name("thalweg-log".into()).spawn(body).ok().map(|_| entries)
}

fn write_all(waiting: &Receiver<Entry>) {
    for entry in waiting {
        match entry {
            Entry::Line(line) => write(&line),
            Entry::Last(written) => drop(written.send(())),
        }
    }
}

fn write(line: &str) {
    // There is nobody left to report it to.
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_cannot_harm_a_terminal() {
        assert_eq!(clean("job \u{1b}[2J\u{202e}gpj\nnext"), "job \\u{1b}[2J\\u{202e}gpj\nnext");
    }
}
