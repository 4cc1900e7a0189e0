//! Processes that a test starts, listens to, stops and kills.
#![allow(dead_code, reason = "each test program uses its part")]

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use thalweg_lab::Place;

/// Environment variable that names the role of a child.
pub const ROLE: &str = "THALWEG_FAILURES_ROLE";

/// First character of lines that are for the parent.
pub const MARK: char = '@';

/// A child that obeys lines on its standard input. It ends with the test, whatever happens.
pub struct Process {
    name: String,
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<(Instant, String)>,
}

impl Process {
    /// Starts this program again, to run only the test `roles::child`, in a place of a lab, where there is one.
    pub fn start_in(role: &str, place: Option<&Place>) -> Process {
        let mut command = Command::new(env::current_exe().expect("this program has a path"));
        command.args(["roles::child", "--exact", "--nocapture"]).env(ROLE, role);
        Process::spawn(role, command, place)
    }

    /// Starts any program that speaks as `roles::child` does.
    pub fn spawn(name: &str, mut command: Command, place: Option<&Place>) -> Process {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(place) = place {
            place.enter(&mut command);
        }
        let mut child = command.spawn().expect("the program can be started");
        let stdin = child.stdin.take().expect("it is a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let (heard, lines) = channel();
        std::thread::spawn(move || {
            let marked = |line: String| Some(line.split_once(MARK)?.1.to_owned());
            for line in stdout.lines().map_while(Result::ok).filter_map(marked) {
                // A test that is over does not listen.
                let _ = heard.send((Instant::now(), line));
            }
        });
        Process { name: name.to_owned(), child, stdin, lines }
    }

    /// The number by which the system knows it.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Tells it something.
    pub fn say(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").expect("it listens");
    }

    /// Waits for a line that begins like this, and gives its rest. Others are passed over, but not an
    /// error that is not waited for.
    pub fn expect(&self, start: &str, within: Duration) -> String {
        self.expect_at(start, within).1
    }

    /// The same, with the moment at which the line came.
    pub fn expect_at(&self, start: &str, within: Duration) -> (Instant, String) {
        let end = Instant::now() + within;
        let mut last = String::from("nothing");
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let (at, line) = self.lines.recv_timeout(left).unwrap_or_else(|error| {
                let name = &self.name;
                panic!("{name}: no \"{start}\" within {within:?} ({error}), last heard: {last}")
            });
            if let Some(rest) = line.strip_prefix(start) {
                return (at, rest.trim().to_owned());
            }
            assert!(!line.starts_with("error"), "{}: {line}", self.name);
            last = line;
        }
    }

    /// Takes in all lines so far, and returns when those came that begin like this. An error ends the test.
    pub fn times_of(&self, start: &str) -> Vec<Instant> {
        let lines: Vec<(Instant, String)> = self.lines.try_iter().collect();
        let error = lines.iter().find(|(_, line)| line.starts_with("error"));
        assert!(error.is_none(), "{}: {error:?}", self.name);
        lines.into_iter().filter(|(_, line)| line.starts_with(start)).map(|(at, _)| at).collect()
    }

    /// Sends it a signal, by name.
    pub fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &id]).status();
        assert!(sent.is_ok_and(|status| status.success()), "{} cannot be signalled", self.name);
    }

    /// Waits until it is gone, and returns when that was.
    pub fn wait_end(&mut self, within: Duration) -> Instant {
        let end = Instant::now() + within;
        while self.child.try_wait().expect("it can be waited for").is_none() {
            assert!(Instant::now() < end, "{} is there {within:?} later", self.name);
            std::thread::sleep(Duration::from_millis(5));
        }
        Instant::now()
    }

    /// Kills it, without a chance to say goodbye.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
