//! Two TCP programs on one host, each with rates that change every slot.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use thalweg_console::Failure;
use thalweg_lab::Place;

use super::sink::{Gains, Sink, slots};
use super::{PacingArguments, compared, lab};
use crate::tools::{own_program, sleep};

/// Mbps, slot by slot, over and over. Lengths without a common factor, so that every pair meets.
const RATES: [&[u64]; 2] = [&[50, 1_000, 200, 600, 100, 800, 400], &[900, 50, 300, 700, 150]];
/// For programs to start, and connections to find their speed.
const WARM_UP: Duration = Duration::from_millis(1_500);

pub(super) fn run(arguments: &PacingArguments) -> Result<Value, Failure> {
    eprintln!("rates: two TCP programs on one host, 50 Mbps to 1 Gbps …");
    let lab = lab(2, "5gbit")?;
    let mut sinks = Vec::new();
    let mut programs = Vec::new();
    for (job, rates) in RATES.iter().enumerate() {
        let sink = Sink::start(lab.host(1))?;
        let rates: Vec<String> = rates.iter().map(|rate| format!("{rate}mbit")).collect();
        let rates = rates.join(",");
        let wrapper = ["agent", "run", "--job", &format!("job{job}"), "--rates", &rates, "--"];
        programs.push(Program::start(lab.host(0), &wrapper, &sink, 1 << 40, arguments.details)?);
        sinks.push(sink);
    }
    sleep(WARM_UP);
    let counters: Vec<_> = sinks.iter().map(Sink::counter).collect();
    let Gains { first, bytes, late_us } =
        slots(&counters, (arguments.seconds * 1_000 / 60) as usize);
    drop(programs);
    let mut found = serde_json::Map::new();
    found.insert("late_us".into(), json!(late_us));
    for (job, (rates, came)) in RATES.iter().zip(&bytes).enumerate() {
        found.extend(compared(&format!("job{job}_"), rates, first, came, 5));
    }
    Ok(Value::from(found))
}

/// A program at a place, under an enforcer. Ends with this, and what it started.
pub(super) struct Program(pub(super) Child);

impl Program {
    /// Sends this number of bytes to a sink, for as long as it takes. `wrapper` are the arguments before the command.
    pub(super) fn start(
        place: &Place,
        wrapper: &[&str],
        sink: &Sink,
        bytes: u64,
        details: bool,
    ) -> Result<Program, Failure> {
        let (to, bytes) = (sink.address().to_string(), bytes.to_string());
        Program::with(place, wrapper, &["--to", &to, "--bytes", &bytes], details)
    }

    /// The same with words of one's own.
    pub(super) fn with(
        place: &Place,
        wrapper: &[&str],
        words: &[&str],
        details: bool,
    ) -> Result<Program, Failure> {
        let own = own_program()?;
        let mut command = Command::new(&own);
        command.args(wrapper);
        if !wrapper.is_empty() {
            command.arg(&own);
        }
        command.arg("bench-stream").args(words);
        Program::spawn(place, command, details)
    }

    pub(super) fn spawn(
        place: &Place,
        mut command: Command,
        details: bool,
    ) -> Result<Program, Failure> {
        place.enter(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(if details { Stdio::inherit() } else { Stdio::null() });
        let child = command.spawn();
        child.map(Program).map_err(|error| Failure::Ran(format!("no program: {error}")))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Asked first, so that it can take away what it has made.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        for _ in 0..300 {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
