//! Daemons as processes.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A daemon that runs, and is gone when the test ends.
pub struct Daemon {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// `None` where it goes elsewhere.
    stderr: Option<JoinHandle<()>>,
    log: Arc<Mutex<String>>,
    /// The line that says that it is ready.
    pub ready: String,
}

/// End of a daemon.
pub struct Ended {
    pub code: Option<i32>,
    /// Output after it was ready.
    pub stdout: String,
    pub stderr: String,
}

impl Daemon {
    /// Starts one on a free port of loopback, and waits until it is ready.
    pub fn start(role: &str, more: &[&str]) -> Daemon {
        Daemon::start_with(role, more, Stdio::piped())
    }

    /// The same with another standard error.
    pub fn start_with(role: &str, more: &[&str], stderr: Stdio) -> Daemon {
        Daemon::start_at(role, &[&["--bind", "127.0.0.1:0"], more].concat(), stderr)
    }

    /// The same where the arguments say.
    pub fn start_at(role: &str, more: &[&str], stderr: Stdio) -> Daemon {
        let program = env!("CARGO_BIN_EXE_thalweg");
        let mut command = Command::new(program);
        command.arg(role).args(more);
        let command = command.stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().expect("the program starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let log = Arc::new(Mutex::new(String::new()));
        let read = |stderr: ChildStderr| {
            let log = Arc::clone(&log);
            std::thread::spawn(move || {
                for line in BufReader::new(stderr).lines() {
                    let line = line.expect("it says things in UTF-8");
                    log.lock().expect("no panic").push_str(&format!("{line}\n"));
                }
            })
        };
        let stderr = child.stderr.take().map(read);
        let mut ready = String::new();
        stdout.read_line(&mut ready).expect("it says things in UTF-8");
        let mut daemon = Daemon { child, stdout, stderr, log, ready };
        if daemon.ready.is_empty() {
            panic!("{role} {more:?} is not ready: {}", daemon.end().stderr);
        }
        daemon
    }

    /// Address of a daemon that was started without `--json`.
    pub fn address(&self) -> &str {
        self.ready.trim().rsplit(' ').next().expect("a split has a part")
    }

    /// Asks it to end, and waits until it has.
    pub fn terminate(self) -> Ended {
        self.end_by("-TERM")
    }

    /// Sends it a signal, and waits until it has ended.
    pub fn end_by(mut self, signal: &str) -> Ended {
        self.signal(signal);
        self.end()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.expect("there is such a program").success());
    }

    /// Waits until it has written a line with these words to standard error.
    #[expect(clippy::disallowed_methods, reason = "a process takes real time")]
    pub fn wait_for(&self, words: &str) {
        let end = Instant::now() + Duration::from_secs(20);
        while !self.log().contains(words) {
            assert!(Instant::now() < end, "{words:?} is missing in:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Forgets its standard error so far.
    pub fn forget_log(&self) {
        self.log().clear();
    }

    /// Returns its standard error so far.
    fn log(&self) -> MutexGuard<'_, String> {
        self.log.lock().expect("no panic")
    }

    fn end(&mut self) -> Ended {
        let code = self.child.wait().expect("it was started").code();
        let mut stdout = String::new();
        self.stdout.read_to_string(&mut stdout).expect("it says things in UTF-8");
        if let Some(thread) = self.stderr.take() {
            thread.join().expect("no panic");
        }
        Ended { code, stdout, stderr: self.log().clone() }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the program to its end.
pub fn thalweg(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_thalweg");
    Command::new(program).args(arguments).stdin(Stdio::null()).output().expect("it starts")
}

/// The one line of a program that refuses its input.
pub fn refusal(arguments: &[&str]) -> String {
    let output = thalweg(arguments);
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert!(output.stdout.is_empty(), "nothing is ready");
    let lines: Vec<&str> = stderr.lines().filter(|line| line.starts_with("thalweg: ")).collect();
    let [line] = lines[..] else { panic!("{arguments:?}: {stderr}") };
    line.to_owned()
}
