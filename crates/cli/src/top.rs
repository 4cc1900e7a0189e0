//! `thalweg top`: what daemons do, live.

mod fetch;
mod picture;
mod screen;
mod text;

use std::io::{self, IsTerminal};
use std::time::Duration;

use clap::Args;
use thalweg_console::{Failure, files, interrupt};
use thalweg_core::Span;

use self::picture::{Picture, Watched};

/// Arguments of `thalweg top`.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct TopArguments {
    /// Addresses of daemons' metrics, host:port, as given to their --metrics
    #[arg(value_name = "ADDR", default_value = "127.0.0.1:9464", value_parser = address)]
    addresses: Vec<String>,
    /// Time between two requests to each daemon; rates are over this time
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print tables once and end; the default if standard output is not a terminal
    #[arg(long)]
    once: bool,
    /// Print one JSON document and end
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Press q or Ctrl-C to leave. Rates need two requests, so --once takes one interval. With --once or --json the
exit code is 1 if a daemon did not answer.

Examples:
  thalweg top
      the daemon that was started with --metrics 127.0.0.1:9464
  thalweg top 10.0.3.1:9464 10.0.3.2:9464
      a switch and a server; jobs get their names from servers
  thalweg top --json 10.0.3.1:9464 | jq '.daemons[0].packets_per_s'
      one number, for programs";

/// Runs it.
pub(crate) fn top(arguments: &TopArguments) -> Result<(), Failure> {
    if arguments.once || arguments.json || !io::stdout().is_terminal() {
        return once(arguments);
    }
    interrupt::count();
    screen::show(&arguments.addresses, arguments.interval)
        .map_err(|error| Failure::Ran(format!("the terminal: {error}")))
}

/// Looks twice, one interval apart.
fn once(arguments: &TopArguments) -> Result<(), Failure> {
    let watched = fetch::twice(&arguments.addresses, arguments.interval);
    let picture = Picture::of(&watched);
    let printed = if arguments.json {
        text::json(&picture, arguments.interval)
    } else {
        text::tables(&picture)
    };
    files::print(&printed)?;
    let silent: Vec<String> = watched.iter().filter_map(Watched::trouble).collect();
    if silent.is_empty() { Ok(()) } else { Err(Failure::Ran(silent.join("; "))) }
}

fn address(text: &str) -> Result<String, String> {
    let is_one = |(host, port): (&str, &str)| {
        !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok()
    };
    match text.rsplit_once(':').is_some_and(is_one) {
        true => Ok(text.to_owned()),
        false => Err("write it as host:port, such as 127.0.0.1:9464".into()),
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let span: Span = text.parse().map_err(|error| format!("{error}"))?;
    let interval = Duration::from_nanos(span.as_ps() / 1_000);
    let range = Duration::from_millis(100)..=Duration::from_secs(3_600);
    if range.contains(&interval) { Ok(interval) } else { Err("give 100ms to 3600s".into()) }
}
