//! Settings of a session.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thalweg_aggregate::{JobParameters, Recovery};
use thalweg_control::Settings;
use thalweg_core::{NodeId, Span};
use thalweg_net::{Network, Offload, Wait, local_address_towards};

use crate::cancel::Cancel;
use crate::engine::Notes;
use crate::error::{Error, ErrorKind};
use crate::pacing::Pacing;
use crate::policy::Policy;
use crate::window::Window;

/// Settings of a [`Session`](crate::Session). Those of the job have to be the same at every rank.
#[derive(Clone)]
pub struct SessionConfig {
    /// Where the server is: `host:port`.
    pub server: String,
    /// The job's name. Ranks that say the same name work together.
    pub job: String,
    /// Which rank this is, from 0.
    pub rank: u32,
    /// How many ranks there are.
    pub ranks: u32,
    /// The switch of this rack, `host:port`. Default none: everything is summed at the server.
    pub switch: Option<String>,
    /// The address to send from and be reached at. Default: the one that reaches the server, and a free
    /// port.
    pub bind: Option<SocketAddr>,
    /// What lets the rank in, where the server asks for it.
    pub token: Option<String>,
    /// Who vouches for the server, where it uses TLS: a file with certificates.
    pub tls_ca: Option<PathBuf>,
    /// How sums are carried out. Its numeric is the job's.
    pub policy: Policy,
    /// Values of a fragment. Default [`FRAGMENT_VALUES`](thalweg_aggregate::FRAGMENT_VALUES).
    pub fragment_values: u16,
    /// How losses are repaired. Default selective.
    pub recovery: Recovery,
    /// Congestion control of sums in the network. Default by delay.
    pub window: Window,
    /// How many aggregators the switches have. Default 16,384.
    pub aggregators: u32,
    /// Time after which a rank counts as dead whose control connection closed, or whose host no longer answers: then
    /// the job fails at every rank. A server that is away for so long is given up, and a switch is planned out of the
    /// job. A process that is stopped or slow is alive. Default 10 s.
    pub failure_after: Duration,
    /// Time that an operation may not move before that is explained. Default 5 s.
    pub stall_after: Duration,
    /// Time that an operation may not move before it fails, with an error that names the ranks it waits for. Default
    /// 5 min.
    pub operation_timeout: Duration,
    /// Time that joining may take, until all ranks are there. The error names those that are missing. Default 5 min.
    pub join_timeout: Duration,
    /// Former name of `operation_timeout`, which it replaces where it is not zero. Default zero.
    #[deprecated(note = "renamed to `operation_timeout`")]
    pub patience: Duration,
    /// Interrupts the session from another thread. Default a token that nobody else has.
    pub cancel: Cancel,
    /// UDP ports to bind where `bind` names none, for firewalls. Every sending thread takes a block of eight that begins
    /// at a multiple of 8. Default any free ones.
    pub ports: Option<RangeInclusive<u16>>,
    /// Whether ranks of one host combine through shared memory. Default yes.
    pub share_memory: bool,
    /// Number of sending threads; a sum goes to the one that was given least so far. Default 1.
    /// The same at every rank.
    pub threads: u32,
    /// From how many source ports to send, 1 to 8. Default 1.
    pub paths: u16,
    /// Whether the kernel cuts and joins datagrams. Default where it can.
    pub offload: Offload,
    /// What to do when there is nothing to do. Default sleep.
    pub wait: Wait,
    /// Room for what the interface has not sent yet. Default 80 KiB: less than the queue of a slow
    /// interface, so that the kernel says that there is no room instead of dropping what is too much.
    pub send_buffer_bytes: usize,
    /// Who says when to send. Default nobody.
    pub pacing: Pacing,
    /// Who is told of what goes on. Default nobody.
    pub notes: Notes,
    /// Share of the packets received that the session drops, for tests of what networks do. Default 0.
    #[doc(hidden)]
    pub drop_share: f64,
}

/// Something that people may want to know.
#[derive(Clone, PartialEq, Debug)]
pub enum Note {
    /// The job waits for these ranks to begin.
    Waiting(Vec<u32>),
    /// The job was set up, for the first time or again.
    SetUp {
        /// The how manyth time.
        epoch: u32,
    },
    /// An operation does not move, and why.
    Stalled(String),
    /// The agent of the host is gone. The job goes on, and sends when it likes.
    Unpaced(String),
    /// The server does not answer. The job goes on when it does again in time.
    Disconnected(String),
    /// Values vanish in fixed point: they are not zero, are at most half a step of the scale, and were summed
    /// as zero. Reported when that first happens, and again whenever the number has doubled.
    Underflowed {
        /// Number of such values that this rank has sent so far.
        values: u64,
        /// Steps to 1 in use.
        scale: f32,
    },
    /// Sums often left the range of fixed point, so a dynamic scale was lowered. What is at most half of the
    /// new step vanishes from now on.
    Rescaled {
        /// Steps to 1 in use.
        scale: f32,
    },
}

impl SessionConfig {
    /// The defaults.
    #[expect(deprecated, reason = "the former name still works")]
    pub fn new(
        server: impl Into<String>,
        job: impl Into<String>,
        rank: u32,
        ranks: u32,
    ) -> SessionConfig {
        let defaults = Settings::default();
        let parameters = defaults.parameters;
        SessionConfig {
            server: server.into(),
            job: job.into(),
            rank,
            ranks,
            switch: None,
            bind: None,
            token: None,
            tls_ca: None,
            policy: Policy::default(),
            fragment_values: parameters.fragment_values,
            recovery: parameters.recovery,
            window: Window::default(),
            aggregators: parameters.aggregators,
            failure_after: duration(defaults.failure_after),
            stall_after: duration(defaults.stall_after),
            operation_timeout: duration(defaults.operation_timeout),
            join_timeout: duration(defaults.join_timeout),
            patience: Duration::ZERO,
            cancel: Cancel::new(),
            ports: None,
            share_memory: true,
            threads: 1,
            paths: 1,
            offload: Offload::Kernel,
            wait: Wait::Sleep,
            send_buffer_bytes: 80 << 10,
            pacing: Pacing::Off,
            notes: Arc::new(|_| {}),
            drop_share: 0.0,
        }
    }

    /// What the ranks of the job agree on.
    pub(super) fn settings(&self) -> Result<Settings, Error> {
        if self.rank >= self.ranks {
            let text = format!("rank {} of {} ranks: count them from 0", self.rank, self.ranks);
            return Err(Error::config(text));
        }
        let numeric = self.policy.numeric.bodies().ok_or_else(|| {
            Error::config("the scale of fixed point has to be positive and finite")
        })?;
        let parameters = JobParameters {
            fragment_values: self.fragment_values,
            numeric,
            recovery: self.recovery,
            aggregators: self.aggregators,
            ..JobParameters::default()
        };
        let settings = Settings {
            parameters,
            failure_after: span(self.failure_after),
            stall_after: span(self.stall_after),
            operation_timeout: span(self.operation_timeout()),
            join_timeout: span(self.join_timeout),
        };
        settings.check(self.ranks)?;
        Ok(settings)
    }

    /// Deadline of operations, under its former name too.
    #[expect(deprecated, reason = "the former name still works")]
    pub(super) fn operation_timeout(&self) -> Duration {
        if self.patience.is_zero() { self.operation_timeout } else { self.patience }
    }

    pub(super) fn server_address(&self) -> Result<SocketAddr, Error> {
        resolve("server", &self.server)
    }

    pub(super) fn switch_node(&self, network: Network) -> Result<Option<NodeId>, Error> {
        let Some(switch) = &self.switch else { return Ok(None) };
        let address = resolve("switch", switch)?;
        match network.node(address) {
            Some(node) if network.address(node) == Some(address) => Ok(Some(node)),
            _ => Err(Error::config(format!(
                "the switch at {address} is in another network, or its port is no multiple of 8"
            ))),
        }
    }

    /// The address to bind: the one that packets to the server leave from.
    pub(super) fn bind_address(&self, server: SocketAddr) -> Result<SocketAddr, Error> {
        if let Some(bind) = self.bind {
            return Ok(bind);
        }
        local_address_towards(server).map_err(|error| {
            let text = format!("there is no route to the server {server}: {error}");
            Error::caused(ErrorKind::Network, text, error)
        })
    }

    /// What ranks that can share memory have in common.
    pub(super) fn host_identity(&self, own: SocketAddr) -> String {
        if self.share_memory {
            thalweg_shared::host_identity()
        } else {
            // Nobody else is there.
            own.to_string()
        }
    }
}

fn resolve(what: &str, text: &str) -> Result<SocketAddr, Error> {
    let mut found = text.to_socket_addrs().map_err(|error| {
        let kind = match error.kind() {
            // It is no address at all.
            io::ErrorKind::InvalidInput => ErrorKind::Config,
            _ => ErrorKind::Network,
        };
        let text = format!("cannot find the {what} \"{text}\": write it as host:port ({error})");
        Error::caused(kind, text, error)
    })?;
    let no_address = || format!("cannot find the {what} \"{text}\": its name has no address");
    found.next().ok_or_else(|| Error::new(ErrorKind::Network, no_address()))
}

fn span(duration: Duration) -> Span {
    Span::from_ns(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 1_000))
}

fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.as_ps() / 1_000)
}
