//! Protocol between jobs and the agent of their host: lines of JSON over a Unix socket.
//!
//! A job says [`FromJob::Join`] first, announces its flows with [`FromJob::Flow`], and then reports for
//! each of them how many bytes were handed over and how many have left, in all, a few times a slot. The
//! agent answers with [`ToJob::Rate`] whenever that changes, and renews rates that hold until further notice a few
//! times a second: those of an agent that has been silent for [`SILENT_AFTER`] no longer hold. Either side may hang up at any time: a job is
//! then free to send as it likes, and an agent forgets the job.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use thalweg_core::text::is_harmful;

/// The version of the protocol that is spoken here.
pub const VERSION: u32 = 1;
/// The longest line.
pub const LINE_BYTES: usize = 8 << 10;
/// The longest name of a job.
pub const NAME_BYTES: usize = 128;
/// The largest count of bytes that is believed: years at 400 Gbps. Sums of a few of them fit a number.
pub const COUNT_MAX: u64 = 1 << 60;
/// An agent renews the rates of a job a few times a second. One that has been silent for this long hangs: its rates no
/// longer hold, and the job sends as it likes until the next message.
pub const SILENT_AFTER: Duration = Duration::from_secs(1);
/// A job waits for this long until its agent takes a message.
const WRITE_WITHIN: Duration = Duration::from_millis(5);
/// Most flows that one flow depends on.
pub const OTHERS_MAX: usize = 64;

/// Message of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case", deny_unknown_fields)]
pub enum FromJob {
    /// Identifies the job. Always the first line.
    Join {
        /// The version of the protocol.
        version: u32,
        /// The job's name, the same on all its hosts.
        job: String,
        /// True if it can give its packets classes. Who cannot keeps to rates.
        #[serde(default, skip_serializing_if = "is_false")]
        classes: bool,
        /// True if the packets of its processes can be marked for a leaf at the interface of the host.
        #[serde(default, skip_serializing_if = "is_false")]
        leaf: bool,
    },
    /// It sends to a host.
    Flow(Announced),
    /// Progress of a flow, counted from its announcement.
    Report {
        /// Number of the flow.
        flow: u32,
        /// Bytes that were handed over. A guess that was too high may be taken back.
        ready: u64,
        /// Bytes that have left.
        sent: u64,
        /// Of these, bytes that have nothing to do with the flows that it depends on.
        #[serde(default, skip_serializing_if = "Unrelated::is_none")]
        unrelated: Unrelated,
    },
    /// It does not send there any more.
    Close {
        /// The flow's number.
        flow: u32,
    },
}

/// Bytes of a flow that have nothing to do with the flows it depends on: those of other collectives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unrelated {
    /// Bytes that were handed over.
    pub ready: u64,
    /// Bytes that have left.
    pub sent: u64,
}

impl Unrelated {
    fn is_none(&self) -> bool {
        *self == Unrelated::default()
    }
}

/// A flow of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Announced {
    /// A number of its own choice.
    pub flow: u32,
    /// The host.
    pub to: Ipv4Addr,
    /// Bytes that it sends there in an iteration. Without it the volume is guessed from the iteration before.
    #[serde(default)]
    pub volume: Option<u64>,
    /// True if reports count all that was handed over. Otherwise a part of it cannot be seen, as where only a socket can
    /// be looked into.
    #[serde(default, rename = "exact", skip_serializing_if = "is_false")]
    pub is_exact: bool,
    /// Dependence on other flows.
    #[serde(default)]
    pub relation: Dependence,
    /// The flows that it depends on: from which host to which.
    #[serde(default)]
    pub others: Vec<(Ipv4Addr, Ipv4Addr)>,
}

/// Dependence of a flow on others of its job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dependence {
    /// On none.
    #[default]
    Alone,
    /// To a parameter server; the others are what that sends.
    Aggregation,
    /// From a parameter server; the others are what that receives.
    Broadcast,
    /// To a switch that sums gradients; the others are those of all other workers.
    Summed {
        /// Bytes that it can be ahead of the slowest.
        window: u64,
    },
    /// In a ring; the other is its predecessor's.
    Ring {
        /// Bytes that it sends before it has received anything.
        own_chunk: u64,
    },
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// Message of the agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ToJob {
    /// It knows the job.
    Welcome {
        /// The version of the protocol.
        version: u32,
        /// Length of a slot.
        slot_us: u64,
        /// The rate of flows for which no rate was sent.
        idle_bps: u64,
        /// True if the job is ordered classes: then rates and bytes hold nothing back.
        #[serde(default, skip_serializing_if = "is_false")]
        by_class: bool,
    },
    /// Packets of the job are to have this mark, by which the interface of the host knows them: the agent orders their
    /// classes there, and rates are limits while others use the path.
    Leaf {
        /// The mark.
        mark: u32,
    },
    /// The class of the job in its turn, from 1, the most urgent.
    Class {
        /// The class.
        class: u8,
    },
    /// Notes that something is planned of the job, or nothing: then all that it sends is in its turn.
    Hold {
        /// True if something is.
        is_held: bool,
    },
    /// An iteration begins: the job is in its turn for this many bytes beside those that flows are granted.
    Enter {
        /// Number of bytes.
        bytes: u64,
        /// Time in which they may be used.
        within_us: u64,
    },
    /// Rate at which a flow may send from now on.
    Rate {
        /// The flow's number.
        flow: u32,
        /// The rate; 0 to wait.
        bps: u64,
        /// Bytes that it may send before it waits; without it there is no end.
        #[serde(default)]
        bytes: Option<u64>,
        /// Time for which that holds. After it the flow is as one for which no rate was sent.
        #[serde(default)]
        within_us: Option<u64>,
    },
    /// The job sent something wrong. The agent hangs up.
    Refused {
        /// Why.
        reason: String,
    },
}

/// Why a line says nothing.
#[derive(Debug, Error)]
pub enum LineError {
    /// The connection broke.
    #[error(transparent)]
    Broken(#[from] io::Error),
    /// It does not end.
    #[error("a line is longer than {LINE_BYTES} bytes: end lines with a line feed")]
    Long,
    /// It is something else.
    #[error("a line makes no sense: {0}")]
    Nonsense(String),
}

/// Reads lines.
#[derive(Debug)]
pub struct Lines<R> {
    source: BufReader<R>,
    line: Vec<u8>,
}

impl<R: Read> Lines<R> {
    /// Lines of that source.
    pub fn new(source: R) -> Lines<R> {
        Lines { source: BufReader::new(source), line: Vec::new() }
    }

    /// The next line; `None` at the end.
    pub fn next_line<T: for<'a> Deserialize<'a>>(&mut self) -> Result<Option<T>, LineError> {
        self.line.clear();
        let limit = LINE_BYTES as u64 + 1;
        let bytes = self.source.by_ref().take(limit).read_until(b'\n', &mut self.line)?;
        match bytes {
            0 => return Ok(None),
            _ if self.line.last() != Some(&b'\n') && bytes > LINE_BYTES => {
                return Err(LineError::Long);
            }
            _ => {}
        }
        serde_json::from_slice(&self.line)
            .map(Some)
            .map_err(|error| LineError::Nonsense(error.to_string()))
    }
}

/// Writes a line.
pub fn write_line(mut sink: impl Write, words: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(words).map_err(io::Error::other)?;
    line.push(b'\n');
    // In one piece, so that lines of several threads do not mix.
    sink.write_all(&line)
}

impl FromJob {
    /// A report of a flow of whose bytes none are unrelated.
    pub fn report(flow: u32, ready: u64, sent: u64) -> FromJob {
        FromJob::Report { flow, ready, sent, unrelated: Unrelated::default() }
    }

    /// Returns whether it could be meant.
    pub fn check(&self) -> Result<(), String> {
        match self {
            FromJob::Join { version, .. } if *version != VERSION => Err(format!(
                "version {version} is not spoken here, only {VERSION}: update the other"
            )),
            FromJob::Join { job, .. } => {
                let is_plain = !job.is_empty() && !job.contains(is_harmful);
                let fits = job.len() <= NAME_BYTES;
                let wrong =
                    || format!("a job's name has 1 to {NAME_BYTES} bytes that can be printed");
                (is_plain && fits).then_some(()).ok_or_else(wrong)
            }
            FromJob::Flow(Announced { others, .. }) if others.len() > OTHERS_MAX => {
                Err(format!("{} dependencies of a flow, and {OTHERS_MAX} may be", others.len()))
            }
            FromJob::Flow(Announced { volume: Some(count), .. })
            | FromJob::Report { ready: count, .. }
                if *count > COUNT_MAX =>
            {
                Err(format!("nothing sends {count} bytes: at most {COUNT_MAX} can be counted"))
            }
            FromJob::Report { ready, sent, .. } if sent > ready => {
                Err(format!("{sent} bytes have left and only {ready} were handed over"))
            }
            FromJob::Report { unrelated: Unrelated { ready, sent }, .. }
                if sent > ready || *ready > COUNT_MAX =>
            {
                Err(format!("{sent} unrelated bytes cannot have left of {ready}"))
            }
            _ => Ok(()),
        }
    }
}

/// Orders that a job can obey beside rates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Obeys {
    /// True if it can give its packets classes.
    pub classes: bool,
    /// True if the packets of its processes can be marked.
    pub leaf: bool,
}

/// A job's connection to the agent. Hangs up when dropped.
#[derive(Debug)]
pub struct AgentLink {
    stream: UnixStream,
    listener: Option<JoinHandle<()>>,
}

impl AgentLink {
    /// Joins. What the agent says is handed to `hear` on a thread of the link; `None` when it hangs up.
    /// The agent learns what the job can obey.
    pub fn join(
        socket: &Path,
        job: &str,
        obeys: Obeys,
        mut hear: impl FnMut(Option<ToJob>) + Send + 'static,
    ) -> io::Result<AgentLink> {
        let stream = UnixStream::connect(socket)?;
        let mut lines = Lines::new(stream.try_clone()?);
        let Obeys { classes, leaf } = obeys;
        let join = FromJob::Join { version: VERSION, job: job.to_owned(), classes, leaf };
        write_line(&stream, &join)?;
        stream.set_write_timeout(Some(WRITE_WITHIN))?;
        let body = move || {
            while let Ok(Some(words)) = lines.next_line() {
                hear(Some(words));
            }
            hear(None);
        };
        let listener = thread::Builder::new().name("thalweg-agent".into()).spawn(body)?;
        Ok(AgentLink { stream, listener: Some(listener) })
    }

    /// Sends a message. Returns whether the agent has room for it: if not, nothing of it was sent, and the job
    /// sends it again later.
    pub fn say(&self, words: &FromJob) -> io::Result<bool> {
        // The kernel takes a line whole or not at all: it is shorter than half of a socket's buffer.
        match write_line(&self.stream, words) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for AgentLink {
    fn drop(&mut self) {
        // It fails where the other side has hung up, which is as good.
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(listener) = self.listener.take() {
            // A panic of the thread was printed when it happened.
            let _ = listener.join();
        }
    }
}

#[cfg(test)]
mod tests;
