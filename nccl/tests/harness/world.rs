//! Processes, one for each rank, and what they exchange: NCCL's bootstrap.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time after which the processes of a scenario are ended, which is a failure.
const LIMIT: Duration = Duration::from_secs(60);

/// Line of a process that has ended.
const ENDED: &str = "ended";

/// A process that plays NCCL for one rank.
pub struct Rank {
    pub rank: usize,
    pub ranks: usize,
}

impl Rank {
    pub fn new(rank: usize, ranks: usize) -> Rank {
        Rank { rank, ranks }
    }

    /// Sends a line to the process that started this one.
    pub fn say(&self, line: &str) {
        println!("{line}");
        std::io::stdout().flush().expect("the parent is there");
    }

    /// Gathers bytes of all ranks, as NCCL's bootstrap does.
    pub fn gather(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.say(&format!("gather {}", hex(bytes)));
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).expect("the parent is there");
        let all: Vec<Vec<u8>> = line.trim().split(' ').map(bytes_of).collect();
        assert_eq!(all.len(), self.ranks, "an answer for each rank: {line:?}");
        all
    }

    /// Waits for all ranks.
    pub fn barrier(&self) {
        self.gather(b"-");
    }
}

/// A function that gets marks: the rank, and its line.
type OnMark = dyn FnMut(usize, &str) + std::panic::UnwindSafe;

/// The processes of a scenario.
pub struct World {
    name: &'static str,
    ranks: usize,
    variables: Vec<(Option<usize>, String, String)>,
    /// Ranks that kill themselves.
    dying: Vec<usize>,
    /// Called with every mark of a rank.
    on_mark: Box<OnMark>,
}

impl World {
    pub fn new(name: &'static str, ranks: usize) -> World {
        let variables = Vec::new();
        let world =
            World { name, ranks, variables, dying: Vec::new(), on_mark: Box::new(|_, _| {}) };
        world.set("THALWEG_INTERFACE", "lo").set("THALWEG_FAILURE_AFTER", "2")
    }

    /// Sets a variable at all ranks.
    pub fn set(mut self, name: &str, value: &str) -> World {
        self.variables.push((None, name.into(), value.into()));
        self
    }

    /// Sets a variable at one rank.
    pub fn set_at(mut self, rank: usize, name: &str, value: &str) -> World {
        self.variables.push((Some(rank), name.into(), value.into()));
        self
    }

    /// Expects a rank to kill itself.
    pub fn dying(mut self, rank: usize) -> World {
        self.dying.push(rank);
        self
    }

    /// Calls a function with the marks of ranks.
    pub fn on_mark(
        mut self,
        call: impl FnMut(usize, &str) + std::panic::UnwindSafe + 'static,
    ) -> World {
        self.on_mark = Box::new(call);
        self
    }

    /// Runs all ranks. Panics unless all of them end well, and in time.
    pub fn run(mut self) {
        let (sender, lines) = channel();
        let mut children: Vec<Process> = (0..self.ranks)
            .map(|rank| {
                let mut process = self.start(rank);
                let output = process.child.stdout.take().expect("it has a pipe");
                let sender = sender.clone();
                std::thread::spawn(move || {
                    for line in BufReader::new(output).lines().map_while(Result::ok) {
                        if sender.send((rank, line)).is_err() {
                            return;
                        }
                    }
                    // It has ended, and the parent may have ended waiting.
                    let _ = sender.send((rank, ENDED.into()));
                });
                process
            })
            .collect();
        drop(sender);
        let problem = self.serve(&lines, &mut children);
        for process in &mut children {
            // A process that has ended is not killed.
            let _ = process.child.kill();
        }
        let exits: Vec<ExitStatus> = children
            .iter_mut()
            .map(|process| process.child.wait().expect("it was started"))
            .collect();
        assert_eq!(problem, None, "{}: {exits:?}", self.name);
        for (rank, exit) in exits.iter().enumerate() {
            assert_eq!(
                exit.success(),
                !self.dying.contains(&rank),
                "{}: rank {rank}: {exit}",
                self.name
            );
        }
    }

    fn start(&self, rank: usize) -> Process {
        let program = std::env::current_exe().expect("this program has a path");
        let mut command = Command::new(program);
        command.args(["rank", self.name, &rank.to_string(), &self.ranks.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        for (only, name, value) in &self.variables {
            if only.is_none_or(|only| only == rank) {
                command.env(name, value);
            }
        }
        let mut child = command.spawn().expect("a process can be started");
        let input = child.stdin.take().expect("it has a pipe");
        Process { child, input, gathered: None }
    }

    /// Answers the ranks until all have closed their output. Returns the first problem.
    fn serve(
        &mut self,
        lines: &Receiver<(usize, String)>,
        children: &mut [Process],
    ) -> Option<String> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let (rank, line) = match lines.recv_timeout(left) {
                Ok(received) => received,
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    return Some(format!("not done within {LIMIT:?}"));
                }
            };
            if let Some(bytes) = line.strip_prefix("gather ") {
                children[rank].gathered = Some(bytes.to_owned());
            } else if line == ENDED {
                let exit = children[rank].child.wait().expect("it was started");
                if !exit.success() && !self.dying.contains(&rank) {
                    return Some(format!("rank {rank}: {exit}"));
                }
            } else if line != "ok" {
                (self.on_mark)(rank, &line);
            }
            if children.iter().all(|process| process.gathered.is_some()) {
                let all: Vec<String> =
                    children.iter_mut().filter_map(|process| process.gathered.take()).collect();
                for process in children.iter_mut() {
                    // One that is gone is found out by its status.
                    let _ = writeln!(process.input, "{}", all.join(" "));
                }
            }
        }
    }
}

/// A process, and the bytes that it has given to a gather.
struct Process {
    child: Child,
    input: ChildStdin,
    gathered: Option<String>,
}

/// The library, which cargo builds beside this program, under the name that NCCL looks for.
pub fn library() -> PathBuf {
    let program = std::env::current_exe().expect("this program has a path");
    let built = program.with_file_name("libnccl_net_thalweg.so");
    assert!(built.is_file(), "{} is not built", built.display());
    built
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16).expect("a digit") as u8;
    hex.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}
