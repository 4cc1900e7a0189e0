//! The demo's processes: what they say, and that none is left behind.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use thalweg_console::{Failure, interrupt};

/// Longest time between two checks for Ctrl-C.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Longest time for a process to answer a question, or to end after the order to.
const PATIENCE: Duration = Duration::from_secs(20);

/// Processes that end when this is dropped. Each also ends by itself when its standard input does.
pub(super) struct Group {
    processes: Vec<Process>,
    sender: Sender<(usize, Output)>,
    outputs: Receiver<(usize, Output)>,
    /// Lines that came while another process was waited for.
    waiting: VecDeque<(usize, String)>,
}

struct Process {
    name: String,
    child: Child,
    orders: Option<ChildStdin>,
    /// Gives the last line that the process complained with.
    complaint: Option<JoinHandle<String>>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Working,
    /// It was ordered to go.
    Dismissed,
    Gone,
}

/// Output of a process.
enum Output {
    Line(String),
    End,
}

impl Group {
    pub(super) fn new() -> Group {
        let (sender, outputs) = channel();
        Group { processes: Vec::new(), sender, outputs, waiting: VecDeque::new() }
    }

    /// Starts a process, and gives its number.
    pub(super) fn start(&mut self, name: &str, command: &mut Command) -> Result<usize, Failure> {
        // In a group of its own Ctrl-C does not reach it: the demo decides what ends when.
        let spawned = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn();
        let mut child =
            spawned.map_err(|error| Failure::Ran(format!("{name} cannot be started: {error}")))?;
        let number = self.processes.len();
        if let Some(output) = child.stdout.take() {
            let sender = self.sender.clone();
            std::thread::spawn(move || forward(number, output, &sender));
        }
        let complaint = child.stderr.take().map(|errors| std::thread::spawn(|| last_line(errors)));
        let orders = child.stdin.take();
        let (name, state) = (name.to_owned(), State::Working);
        self.processes.push(Process { name, child, orders, complaint, state });
        Ok(number)
    }

    /// Tells a process something.
    pub(super) fn tell(&mut self, number: usize, line: &str) {
        if let Some(orders) = &mut self.processes[number].orders {
            // Who does not hear it has ended, and its end says why.
            let _ = orders.write_all(format!("{line}\n").as_bytes());
        }
    }

    /// Tells a process something, and waits for the line that it answers.
    #[expect(clippy::disallowed_methods, reason = "processes run in real time")]
    pub(super) fn ask(&mut self, number: usize, line: &str) -> Result<String, Failure> {
        self.tell(number, line);
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            match self.hear()? {
                Some((from, answer)) if from == number => return Ok(answer),
                Some(other) => self.waiting.push_back(other),
                None => {}
            }
        }
        let name = &self.processes[number].name;
        Err(Failure::Ran(format!("{name} does not answer for {} s", PATIENCE.as_secs())))
    }

    /// The next line of any process; `None` when nothing came for a moment. A process that ended
    /// without an order is a failure, as Ctrl-C is.
    pub(super) fn listen(&mut self) -> Result<Option<(usize, String)>, Failure> {
        match self.waiting.pop_front() {
            Some(line) => Ok(Some(line)),
            None => self.hear(),
        }
    }

    /// Tells processes to go, and waits until they have.
    #[expect(clippy::disallowed_methods, reason = "processes run in real time")]
    pub(super) fn dismiss(&mut self, numbers: &[usize]) -> Result<(), Failure> {
        for &number in numbers {
            self.processes[number].state = State::Dismissed;
            self.tell(number, "leave");
        }
        let until = Instant::now() + PATIENCE;
        let is_there = |group: &Group, number: usize| group.processes[number].state != State::Gone;
        while let Some(&late) = numbers.iter().find(|&&number| is_there(self, number)) {
            if let Some(line) = self.hear()? {
                self.waiting.push_back(line);
            }
            if Instant::now() >= until {
                let name = &self.processes[late].name;
                return Err(Failure::Ran(format!("{name} does not end when ordered to")));
            }
        }
        Ok(())
    }

    fn hear(&mut self) -> Result<Option<(usize, String)>, Failure> {
        if interrupt::is_asked() {
            return Err(Failure::Interrupted);
        }
        match self.outputs.recv_timeout(LOOK_EVERY) {
            Ok((from, Output::Line(line))) => Ok(Some((from, line))),
            Ok((from, Output::End)) => self.processes[from].end().map(|()| None),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(None),
        }
    }
}

impl Process {
    /// Ends a process whose output has ended, so that it has or will at once.
    fn end(&mut self) -> Result<(), Failure> {
        self.orders = None;
        let was_dismissed = self.state == State::Dismissed;
        self.state = State::Gone;
        let name = &self.name;
        let status = self.child.wait();
        let status = status.map_err(|error| Failure::Ran(format!("{name} is lost: {error}")))?;
        if was_dismissed && status.success() {
            return Ok(());
        }
        let complaint = self.complaint.take().and_then(|thread| thread.join().ok());
        let complaint = complaint.unwrap_or_default();
        let reason = complaint.strip_prefix("thalweg: ").unwrap_or(&complaint);
        Err(Failure::Ran(match reason {
            "" => format!("{name} ended with {status}"),
            reason => format!("{name} ended with {status}: {reason}"),
        }))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only for a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This program, for another process of it.
pub(super) fn own_program() -> Result<Command, Failure> {
    let path = std::env::current_exe()
        .map_err(|error| Failure::Ran(format!("cannot find this program's own file: {error}")))?;
    Ok(Command::new(path))
}

fn forward(number: usize, output: impl Read, sender: &Sender<(usize, Output)>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        // Nobody needs to listen.
        let _ = sender.send((number, Output::Line(line)));
    }
    let _ = sender.send((number, Output::End));
}

fn last_line(errors: impl Read) -> String {
    let lines = BufReader::new(errors).lines().map_while(Result::ok);
    // A panic ends with advice for developers.
    let says_why = |line: &String| !line.trim().is_empty() && !line.starts_with("note: ");
    lines.filter(says_why).last().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_process_answers_and_goes_when_ordered_to() {
        let mut group = Group::new();
        let echo = group.start("the echo", &mut shell("read a; echo \"<$a>\"; read b")).unwrap();
        assert_eq!(group.ask(echo, "one").unwrap(), "<one>");
        group.dismiss(&[echo]).unwrap();
    }

    #[test]
    fn an_end_that_nobody_asked_for_is_reported_with_its_reason() {
        let mut group = Group::new();
        let dying = group.start("worker 3", &mut shell("echo 'thalweg: no air' >&2; exit 4"));
        let failure = group.ask(dying.unwrap(), "go on").unwrap_err().to_string();
        assert_eq!(failure, "worker 3 ended with exit status: 4: no air");
    }

    #[test]
    fn lines_of_others_are_kept() {
        let mut group = Group::new();
        let first = group.start("first", &mut shell("echo early; read a; read b")).unwrap();
        let second = group.start("second", &mut shell("read a; sleep 0.2; echo late; read b"));
        assert_eq!(group.ask(second.unwrap(), "say").unwrap(), "late");
        assert_eq!(group.listen().unwrap(), Some((first, "early".to_owned())));
    }
}
