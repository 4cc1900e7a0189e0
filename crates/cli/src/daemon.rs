//! Common parts of `thalweg switch` and `thalweg server`: settings from a file, the secret, the line that says that
//! they are ready, and how they end.

mod logs;
mod renewal;
mod settings;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thalweg::daemon::{Secret, Secrets, exposure, read_secrets};
use thalweg::{Error, ErrorKind};
use thalweg_console::{Failure, files, interrupt};
use thalweg_net::Wait;

use thalweg::metrics::Endpoint;

pub(crate) use self::logs::{LogFormat, fail, say, say_events, set_format, warn};
pub(crate) use self::renewal::{Renewal, flags};

/// Secret of the daemons of one machine where nobody chose one. It is no secret.
const LOOPBACK_SECRET: Secret = Secret(*b"thalweg-loopback");

/// Time between two checks of a daemon for the order to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Command that writes a secret.
const WRITE_SECRET: &str = "thalweg secret new --out secret";

/// Options of every daemon beside its settings.
#[derive(Args)]
pub(crate) struct DaemonOptions {
    /// Read settings from a TOML file, whose keys are the names of the flags; a flag overrides its key
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// When ready, print one JSON document instead of a line of text
    #[arg(long)]
    json: bool,
    /// Form of lines on standard error: text, or one JSON document for each line with time, level and message
    #[arg(long, value_name = "FORMAT", default_value = "text", hide_possible_values = true)]
    log_format: LogFormat,
}

/// Name and version of the document of a daemon that is ready.
const READY: &str = "thalweg.ready/1";

impl DaemonOptions {
    /// Has lines on standard error the form that was asked for.
    pub(crate) fn begin(&self) {
        set_format(self.log_format);
    }

    /// Prints that a daemon is ready. Scripts wait for this line.
    pub(crate) fn announce(&self, ready: &Ready<'_>) -> Result<(), Failure> {
        let line = if self.json {
            serde_json::to_string(ready).map_err(Failure::ran)?
        } else {
            let place =
                ready.socket.map_or(ready.address.clone(), |path| path.display().to_string());
            format!("{} ready at {place}", ready.role)
        };
        files::print(&format!("{line}\n"))
    }

    /// The settings of the file; none without one.
    pub(crate) fn settings<S: DeserializeOwned + Default>(&self) -> Result<S, Failure> {
        settings::read(self.config.as_deref())
    }
}

/// A running daemon, as far as this program cares.
pub(crate) trait Daemon: Send + Sync + Sized + 'static {
    /// `switch` or `server`.
    const ROLE: &'static str;

    /// Address of its data path.
    fn address(&self) -> SocketAddr;

    /// True if its data path runs.
    fn is_running(&self) -> bool;

    /// Counters in the text format of Prometheus. `None` if its data path has ended.
    fn exposition(&self) -> Option<String>;

    /// Work so far, in a few words. `None` if its data path has ended.
    fn summary(&self) -> Option<String>;

    /// Ends it, and says what it died of if it already had.
    fn stop(self) -> Result<(), Error>;
}

/// The line of a daemon that is ready.
#[derive(Serialize)]
pub(crate) struct Ready<'a> {
    schema: &'static str,
    role: &'static str,
    address: String,
    metrics: Option<SocketAddr>,
    /// Of agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    socket: Option<&'a Path>,
}

impl<'a> Ready<'a> {
    /// A daemon that is reached at an address.
    pub(crate) fn new(
        role: &'static str,
        address: impl ToString,
        metrics: Option<SocketAddr>,
    ) -> Ready<'a> {
        Ready { schema: READY, role, address: address.to_string(), metrics, socket: None }
    }

    /// The same where jobs find it by a socket of this host.
    pub(crate) fn at(self, socket: &'a Path) -> Ready<'a> {
        Ready { socket: Some(socket), ..self }
    }
}

/// Runs a daemon until Ctrl-C, or until its data path ends. At `SIGHUP` it reads its files again.
pub(crate) fn run<D: Daemon>(
    daemon: D,
    metrics: Option<SocketAddr>,
    options: &DaemonOptions,
    renewal: &Renewal<'_, D>,
) -> Result<(), Failure> {
    interrupt::listen_as_daemon();
    let daemon = Arc::new(daemon);
    let serve_metrics = |bind| {
        let source = Arc::clone(&daemon);
        let about = format!("thalweg {} at {}", D::ROLE, daemon.address());
        serve_metrics(bind, about, move || source.exposition())
    };
    let endpoint = metrics.map(serve_metrics).transpose()?;
    let metrics = endpoint.as_ref().map(Endpoint::local_address);
    options.announce(&Ready::new(D::ROLE, daemon.address(), metrics))?;
    let mut hang_ups = interrupt::hang_ups();
    while !interrupt::is_asked() && daemon.is_running() {
        pause();
        if interrupt::hang_ups() != hang_ups {
            hang_ups = interrupt::hang_ups();
            renewal.run(&daemon);
        }
    }
    let summary = daemon.summary();
    drop(endpoint);
    // The server of metrics has let go of it.
    let stopped = Arc::into_inner(daemon).map_or(Ok(()), D::stop);
    stopped.map_err(|error| Failure::Ran(error.to_string()))?;
    if !interrupt::is_asked() {
        return Err(Failure::Ran(format!("the data path of the {} has ended", D::ROLE)));
    }
    say(format_args!("{} stopped: {}", D::ROLE, summary.unwrap_or_default()));
    Ok(())
}

/// The secrets of the cluster. Only where nobody else can reach the daemon there is a default.
// spec: T-06
pub(crate) fn secrets(file: Option<&Path>, bind: SocketAddr) -> Result<Secrets, Failure> {
    if bind.ip().is_unspecified() {
        return Err(Failure::Usage(format!(
            "{bind} says no address that others could send to: bind to the address of an interface, \
             such as 10.0.0.1:{}",
            bind.port()
        )));
    }
    match file {
        Some(file) => read(file),
        None if bind.ip().is_loopback() => {
            say("no --secret-file: using the well-known one, which is for loopback only");
            Ok(LOOPBACK_SECRET.into())
        }
        None => Err(Failure::Usage(format!(
            "{bind} can be reached from other machines, and without a secret anybody there could \
             forge sums: run `{WRITE_SECRET}`, give all switches and servers that file with \
             --secret-file, or bind to 127.0.0.1"
        ))),
    }
}

/// The secrets in a file.
pub(crate) fn read(file: &Path) -> Result<Secrets, Failure> {
    warn_of_exposure(file);
    read_secrets(file).map_err(|error| Failure::Usage(error.to_string()))
}

/// The token in a file, which others have to show.
pub(crate) fn token(file: &Path) -> Result<String, Failure> {
    warn_of_exposure(file);
    files::read(file).map(|text| text.trim().to_owned())
}

/// Warns the operator if other users of the machine can read a file.
pub(crate) fn warn_of_exposure(file: &Path) {
    if let Some(exposure) = exposure(file) {
        warn(exposure);
    }
}

/// Wait of a thread that has nothing to do.
pub(crate) fn wait_by(spin: Option<bool>) -> Wait {
    if spin == Some(true) { Wait::Spin } else { Wait::Sleep }
}

/// Why a daemon did not start: the settings are wrong, or the system is.
pub(crate) fn not_started(error: Error) -> Failure {
    match error.kind() {
        // Addresses that cannot share a network are settings as well.
        ErrorKind::Config | ErrorKind::Call | ErrorKind::Network => {
            Failure::Usage(error.to_string())
        }
        _ => Failure::Ran(error.to_string()),
    }
}

/// Serves metrics until the endpoint is dropped.
pub(crate) fn serve_metrics(
    bind: SocketAddr,
    about: String,
    source: impl Fn() -> Option<String> + Send + Sync + 'static,
) -> Result<Endpoint, Failure> {
    let endpoint = Endpoint::start(bind, about, source);
    let endpoint = endpoint.map_err(|error| {
        Failure::Usage(format!(
            "cannot serve metrics at {bind}: {error}; choose another --metrics address"
        ))
    })?;
    say(format_args!("metrics at http://{}/metrics", endpoint.local_address()));
    Ok(endpoint)
}

/// Sleeps for as long as a daemon may take to notice a signal.
#[expect(clippy::disallowed_methods, reason = "the program has nothing else to do")]
pub(crate) fn pause() {
    std::thread::sleep(LOOK_EVERY);
}
