//! Processes, one for each rank, and what they exchange before they are connected: NCCL's bootstrap.
//!
//! A rank writes lines to its standard output and reads answers from its standard input. The process that started them
//! answers a gather when all ranks have come to it, and gets every other line.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Begins a line that gives bytes to a gather.
const GATHER: &str = "gather ";

/// The process of one rank.
#[derive(Clone, Copy, Debug)]
pub struct Rank {
    /// Number of this rank.
    pub rank: usize,
    /// Number of ranks.
    pub ranks: usize,
}

impl Rank {
    /// Sends a line to the process that started this one.
    pub fn say(&self, line: &str) -> io::Result<()> {
        let mut output = io::stdout().lock();
        writeln!(output, "{line}").and_then(|()| output.flush())
    }

    /// Gathers bytes of all ranks, in their order.
    pub fn gather(&self, bytes: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        self.say(&format!("{GATHER}{}", hex(bytes)))?;
        let mut line = String::new();
        io::stdin().read_line(&mut line)?;
        let all: Option<Vec<Vec<u8>>> = line.trim().split(' ').map(bytes_of).collect();
        all.filter(|all| all.len() == self.ranks).ok_or_else(|| {
            let text = format!("{} ranks are expected, and this came: {line:?}", self.ranks);
            io::Error::new(io::ErrorKind::InvalidData, text)
        })
    }

    /// Waits for all ranks.
    pub fn barrier(&self) -> io::Result<()> {
        self.gather(b"-").map(drop)
    }
}

/// The processes of all ranks. Those that run are killed when this is dropped.
pub struct Processes {
    processes: Vec<Process>,
    lines: Receiver<(usize, Option<String>)>,
}

/// A process, and the bytes that it has given to a gather.
struct Process {
    child: Child,
    input: ChildStdin,
    gathered: Option<String>,
}

/// An event of a process.
#[derive(Debug)]
pub enum Event {
    /// A rank has sent a line.
    Line(usize, String),
    /// The process of a rank has ended.
    Ended(usize, ExitStatus),
}

/// No event within the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late;

impl Processes {
    /// Starts a process for each command, in the order of ranks.
    pub fn start(commands: Vec<Command>) -> io::Result<Processes> {
        let (sender, lines) = channel();
        let mut started = Processes { processes: Vec::new(), lines };
        for (rank, mut command) in commands.into_iter().enumerate() {
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            let (input, output) = (child.stdin.take(), child.stdout.take());
            let input = input.expect("it has a pipe");
            started.processes.push(Process { child, input, gathered: None });
            let sender = sender.clone();
            let output = BufReader::new(output.expect("it has a pipe"));
            std::thread::spawn(move || forward(rank, output, &sender));
        }
        Ok(started)
    }

    /// Answers gathers until a rank sends another line or ends. `None` when all have ended.
    pub fn next(&mut self, within: Duration) -> Result<Option<Event>, Late> {
        loop {
            let (rank, line) = match self.lines.recv_timeout(within) {
                Ok(received) => received,
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => return Err(Late),
            };
            let Some(line) = line else {
                let exit = self.processes[rank].child.wait().expect("it was started");
                return Ok(Some(Event::Ended(rank, exit)));
            };
            let Some(bytes) = line.strip_prefix(GATHER) else {
                return Ok(Some(Event::Line(rank, line)));
            };
            self.processes[rank].gathered = Some(bytes.to_owned());
            self.answer();
        }
    }

    /// Ends all processes that run. Returns the status of each.
    pub fn end(mut self) -> Vec<ExitStatus> {
        self.kill()
    }

    fn answer(&mut self) {
        if self.processes.iter().all(|process| process.gathered.is_some()) {
            let all: Vec<String> =
                self.processes.iter_mut().filter_map(|process| process.gathered.take()).collect();
            for process in &mut self.processes {
                // One that is gone is found out by its status.
                let _ = writeln!(process.input, "{}", all.join(" "));
            }
        }
    }

    fn kill(&mut self) -> Vec<ExitStatus> {
        for process in &mut self.processes {
            // A process that has ended is not killed.
            let _ = process.child.kill();
        }
        let wait = |process: &mut Process| process.child.wait().expect("it was started");
        self.processes.iter_mut().map(wait).collect()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Forwards lines of a rank until it closes its output, which is `None`.
fn forward(rank: usize, output: impl BufRead, to: &Sender<(usize, Option<String>)>) {
    let lines = output.lines().map_while(Result::ok).map(Some);
    for line in lines.chain([None]) {
        if to.send((rank, line)).is_err() {
            return;
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    hex.as_bytes().chunks(2).map(byte).collect()
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
    fn bytes_of_all_ranks_are_gathered_in_their_order() {
        let rank = |bytes: &str| shell(&format!("echo gather {bytes}; read all; echo got $all"));
        let mut processes = Processes::start(vec![rank("0a"), rank("ff00")]).unwrap();
        let mut got = Vec::new();
        while let Some(event) = processes.next(Duration::from_secs(20)).unwrap() {
            match event {
                Event::Line(_, line) => got.push(line),
                Event::Ended(_, exit) => assert!(exit.success()),
            }
        }
        assert_eq!(got, ["got 0a ff00"; 2]);
        assert_eq!(bytes_of(&hex(&[0, 7, 255])), Some(vec![0, 7, 255]));
        assert_eq!((bytes_of("0g"), bytes_of("")), (None, Some(vec![])));
    }

    #[test]
    fn processes_that_do_not_end_are_late_and_then_killed() {
        let mut processes =
            Processes::start(vec![shell("exec sleep 60"), shell("exit 3")]).unwrap();
        assert!(matches!(processes.next(Duration::from_secs(20)), Ok(Some(Event::Ended(1, _)))));
        assert_eq!(processes.next(Duration::from_millis(100)).unwrap_err(), Late);
        let exits = processes.end();
        assert_eq!((exits[0].code(), exits[1].code()), (None, Some(3)));
    }
}
