//! Processes, one for each rank, and what they exchange: NCCL's bootstrap.

use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use thalweg_plugin::bootstrap::{self, Event, Processes};

/// Time after which the processes of a scenario are ended, which is a failure.
const LIMIT: Duration = Duration::from_secs(60);

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
        self.bootstrap().say(line).expect("the parent is there");
    }

    /// Gathers bytes of all ranks, as NCCL's bootstrap does.
    pub fn gather(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.bootstrap().gather(bytes).expect("the parent is there")
    }

    /// Waits for all ranks.
    pub fn barrier(&self) {
        self.bootstrap().barrier().expect("the parent is there");
    }

    fn bootstrap(&self) -> bootstrap::Rank {
        bootstrap::Rank { rank: self.rank, ranks: self.ranks }
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
        let commands = (0..self.ranks).map(|rank| self.command(rank)).collect();
        let mut processes = Processes::start(commands).expect("processes can be started");
        let problem = self.serve(&mut processes);
        let exits: Vec<ExitStatus> = processes.end();
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

    fn command(&self, rank: usize) -> Command {
        let program = std::env::current_exe().expect("this program has a path");
        let mut command = Command::new(program);
        command.args(["rank", self.name, &rank.to_string(), &self.ranks.to_string()]);
        for (only, name, value) in &self.variables {
            if only.is_none_or(|only| only == rank) {
                command.env(name, value);
            }
        }
        command
    }

    /// Serves the ranks until all have ended. Returns the first problem.
    fn serve(&mut self, processes: &mut Processes) -> Option<String> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match processes.next(left) {
                Ok(None) => return None,
                Ok(Some(Event::Ended(rank, exit))) => {
                    if !exit.success() && !self.dying.contains(&rank) {
                        return Some(format!("rank {rank}: {exit}"));
                    }
                }
                Ok(Some(Event::Line(rank, line))) if line != "ok" => (self.on_mark)(rank, &line),
                Ok(Some(Event::Line(..))) => {}
                Err(_) => return Some(format!("not done within {LIMIT:?}")),
            }
        }
    }
}

/// The library, which cargo builds beside this program, under the name that NCCL looks for.
pub fn library() -> PathBuf {
    let program = std::env::current_exe().expect("this program has a path");
    let built = program.with_file_name("libnccl_net_thalweg.so");
    assert!(built.is_file(), "{} is not built", built.display());
    built
}
