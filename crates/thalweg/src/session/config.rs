//! Settings of a session.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::daemon::{MTU_RANGE, is_mtu};
use thalweg_aggregate::{JobParameters, Recovery};
use thalweg_control::registry::NAME_BYTES_MAX;
use thalweg_control::{Settings, TREES_MAX};
use thalweg_core::text::is_harmful;
use thalweg_core::{NodeId, Rate, Span};
use thalweg_net::{Network, Offload, PORTS_PER_NODE, Wait, link_rate_of, local_address_towards};

use crate::cancel::Cancel;
use crate::daemon::default_threads;
use crate::error::{Error, ErrorKind};
use crate::lossy::PacketLimit;
use crate::pacing::Pacing;
use crate::policy::Policy;
use crate::tagging::Tagging;
use crate::tap::Tap;
use crate::tuning::Sending;
use crate::window::Window;

/// Settings of a [`Session`](crate::Session), as data. [`Session::builder`](crate::Session::builder) sets them one by
/// one. Those of the job have to be the same at every rank.
#[derive(Clone)]
#[non_exhaustive]
pub struct SessionConfig {
    /// The server, `host:port`.
    pub server: String,
    /// Name of the job, 1 to 256 bytes. Ranks that give the same name work together.
    pub job: String,
    /// This rank, from 0.
    pub rank: u32,
    /// Number of ranks of the job.
    pub ranks: u32,
    /// The switch of this rack, `host:port`. Default no switch: where no rank and no server names one, the hosts sum by
    /// themselves ([`Collective::Direct`](crate::Collective::Direct)).
    pub switch: Option<String>,
    /// Address to send from and to be reached at. The port is a multiple of 8, or 0 for a free one. Default: the
    /// address that reaches the server, and a free port. Further sending threads have ports 16 after the one before.
    pub bind: Option<SocketAddr>,
    /// Token that lets the rank in, where the server asks for one.
    pub token: Option<String>,
    /// File with the certificates that vouch for the server, where it uses TLS.
    pub tls_ca: Option<PathBuf>,
    /// Policy of reductions where a call does not say. Its numeric is the job's.
    pub policy: Policy,
    /// Without effect: switches say how long fragments may be.
    #[deprecated(note = "switches say this themselves: configure the switch")]
    pub fragment_values: u16,
    /// Repair of losses, the job's. Default selective.
    pub recovery: Recovery,
    /// True if the seals of packets that are summed in the network also cover the values, so that nobody on their path
    /// can change them. Without it only headers and lengths are covered. The job's. Default false.
    pub seals_bodies: bool,
    /// True if values of `f16` and `bf16` travel in single precision where the network sums them: partial sums are then
    /// not rounded, and take twice the bytes. The job's. Default false: they travel as they are, and every switch and the
    /// server round their sums once.
    pub widens_halves: bool,
    /// Congestion control of sums in the network, of flows and of deliveries. Default by delay.
    pub window: Window,
    /// Without effect: switches say how many aggregators they have.
    #[deprecated(note = "switches say this themselves: configure the switch")]
    pub aggregators: u32,
    /// Time after which a rank counts as dead whose control connection closed, or whose host no longer answers: then
    /// the job fails at every rank. A server that is away for so long is given up, and a switch is planned out of the
    /// job. A process that is stopped or slow is alive. The job's. Default 10 s.
    pub failure_after: Duration,
    /// Time without progress after which an operation, or the wait for ranks that have not joined, is explained by a
    /// warning. The job's. Default 5 s.
    pub stall_after: Duration,
    /// Time without progress after which an operation fails, with an error that names the ranks it waits for. The
    /// job's. Default 5 min.
    pub operation_timeout: Duration,
    /// Time until all ranks have joined. The error names those that are missing. The job's. Default 5 min.
    pub join_timeout: Duration,
    /// Former name of `operation_timeout`, which it replaces where it is not zero. Default zero.
    #[deprecated(note = "renamed to `operation_timeout`")]
    pub patience: Duration,
    /// Interrupts the session from another thread. Default a token that nobody else has.
    pub cancel: Cancel,
    /// UDP ports to bind where `bind` names none, for firewalls. Every sending thread takes a block of eight that begins
    /// at a multiple of 8. Default any free ones.
    pub ports: Option<RangeInclusive<u16>>,
    /// Combination with other ranks of this host through shared memory. Default yes.
    pub share_memory: bool,
    /// Most sending threads, at most 32. The rank joins once for all of them, and offers fewer where it finds no ports for more.
    /// The job has the smallest number of all ranks'. A sum of megabytes is spread over all of
    /// them, a short one goes to the one that was given least so far. Default `None`: one for every 4 Gbps of the host's
    /// link and for every 10 Gbps of the links of all ranks, at most a quarter of the cores, 1 to 4.
    pub threads: Option<u32>,
    /// Rate of the host's link in Mbps, for the default number of sending threads. Default `None`: what the driver of the
    /// interface reports. Virtual interfaces report nothing of use, and then only cores count.
    // spec: F-04
    pub link_rate_mbps: Option<u32>,
    /// Classes of the packets of deliveries: of bounded sums by servers and rings, and of what the session
    /// [posts](crate::Session::post_send). Default front layers first.
    // spec: M-14
    pub tagging: Tagging,
    /// Number of source ports to send from, 1 to 8. Default 1. Routers with several equal paths choose one by the port.
    /// Deliveries and what ranks send to switches take all ports in turn, a batch of packets each, and leave those that lose more
    /// than the others; a message of a flow takes one.
    // spec: M-21
    pub paths: u16,
    /// Segmentation and coalescing of datagrams by the kernel. Default where it can.
    pub offload: Offload,
    /// Largest packet that the rank sends and receives, IP header included: 576 to 9,000 bytes. The job has the least of
    /// all ranks, switches and the server, and less where a path carries less. Default `None`: the MTU of the interface.
    // spec: F-01
    pub mtu_bytes: Option<u16>,
    /// Behaviour of sending threads while there is nothing to do. Default sleep.
    pub wait: Wait,
    /// Most bytes of the socket's send buffer. On a slow interface it is shorter: about two milliseconds of what the
    /// interface sends. Default 80 KiB: less than the queue of a slow interface, so that the kernel reports that the queue is
    /// full instead of dropping the excess.
    pub send_buffer_bytes: usize,
    /// Source of send times. Default none: at once.
    pub pacing: Pacing,
    /// Address at which the session serves its [metrics](crate::metrics), port 0 for a free one. Default none.
    pub metrics: Option<SocketAddr>,
    /// Share of the packets received that the session drops, for tests of what networks do. Default 0.
    #[doc(hidden)]
    pub drop_share: f64,
    /// Longest packets that reach the session, for tests of paths that become narrow. Default as long as any.
    #[doc(hidden)]
    pub packet_limit: PacketLimit,
    /// Looks at the packets received, and loses or delays some, for tests. Default none.
    #[doc(hidden)]
    pub tap: Option<Tap>,
}

impl SessionConfig {
    /// The defaults.
    #[expect(
        deprecated,
        reason = "former names and settings without effect work for one more release"
    )]
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
            seals_bodies: parameters.seals_bodies,
            widens_halves: parameters.widens_halves,
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
            threads: None,
            link_rate_mbps: None,
            tagging: Tagging::default(),
            paths: 1,
            offload: Offload::Kernel,
            mtu_bytes: None,
            wait: Wait::Sleep,
            send_buffer_bytes: 80 << 10,
            pacing: Pacing::Off,
            metrics: None,
            drop_share: 0.0,
            packet_limit: PacketLimit::default(),
            tap: None,
        }
    }

    /// Checks all that can be checked before anything starts.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config), with a text that begins with the name of the setting.
    pub fn check(&self) -> Result<(), Error> {
        let (rank, ranks) = (self.rank, self.ranks);
        let is_printable = |text: &String| text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        let checks = [
            (rank < ranks, format!("rank is {rank} of {ranks}: count ranks from 0")),
            (
                self.mtu_bytes.is_none_or(is_mtu),
                format!("mtu_bytes is {}: {MTU_RANGE}", self.mtu_bytes.unwrap_or(0)),
            ),
            (is_address(&self.server), format!("server is {:?}: write host:port", self.server)),
            (
                (1..=NAME_BYTES_MAX).contains(&self.job.len()) && !self.job.contains(is_harmful),
                format!(
                    "job is {:?}: name it with 1 to {NAME_BYTES_MAX} bytes and no control or invisible characters",
                    self.job
                ),
            ),
            (
                self.switch.as_deref().is_none_or(is_address),
                format!("switch is {:?}: write host:port", self.switch.as_deref().unwrap_or("")),
            ),
            (
                self.token.as_ref().is_none_or(is_printable),
                "token has characters beyond printable ASCII, which no header carries".to_owned(),
            ),
            (
                self.threads.is_none_or(|threads| (1..=TREES_MAX).contains(&threads)),
                format!("threads is {}: choose 1 to {TREES_MAX}", self.threads.unwrap_or(0)),
            ),
            (
                self.link_rate_mbps != Some(0),
                "link_rate_mbps is 0: leave it out where it is unknown".to_owned(),
            ),
            (
                (1..=PORTS_PER_NODE).contains(&self.paths),
                format!("paths is {}: choose 1 to {PORTS_PER_NODE}", self.paths),
            ),
            (
                (0.0..=1.0).contains(&self.drop_share),
                format!("drop_share is {}: choose 0 to 1", self.drop_share),
            ),
        ];
        if let Some((_, text)) = checks.into_iter().find(|(is_valid, _)| !is_valid) {
            return Err(Error::config(text));
        }
        self.settings().map(drop)
    }

    /// Most sending threads of this rank, which sends from an address of this host.
    // spec: F-04
    pub(super) fn threads_max(&self, own: IpAddr) -> u32 {
        // There are at most as many hosts as ranks, and ranks of one host are not known yet.
        self.threads.unwrap_or_else(|| default_threads(self.link_rate(own), self.ranks))
    }

    /// Rate of the link of this host, which sends from an address of it. `None` if nothing is known.
    fn link_rate(&self, own: IpAddr) -> Option<Rate> {
        match self.link_rate_mbps {
            Some(mbps) => Rate::from_bps(u64::from(mbps) * 1_000_000),
            None => link_rate_of(own),
        }
    }

    /// Settings that all transports of the session have in common.
    // spec: M-19, M-21
    pub(super) fn sending(&self, own: IpAddr) -> Sending {
        Sending { window: self.window, paths: self.paths, link_rate: self.link_rate(own) }
    }

    /// Names of settings that were given and have no effect.
    // spec: E-06
    #[expect(deprecated, reason = "a program that still gives them is warned")]
    pub(super) fn unused(&self) -> Vec<&'static str> {
        let defaults = JobParameters::default();
        let settings = [
            ("fragment_values", self.fragment_values != defaults.fragment_values),
            ("aggregators", self.aggregators != defaults.aggregators),
        ];
        settings.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name).collect()
    }

    /// The settings with which a rank joins the job again, within the time that operations have.
    // spec: F-01
    pub(super) fn rejoining(self) -> SessionConfig {
        // The others learn of the path within `failure_after`, and come by themselves.
        let join_timeout = self.join_timeout.min(2 * self.failure_after);
        let join_timeout = join_timeout.min(self.operation_deadline());
        SessionConfig { join_timeout, ..self }
    }

    /// Settings that the ranks of the job agree on.
    pub(super) fn settings(&self) -> Result<Settings, Error> {
        let numeric = self.policy.numeric.bodies();
        let numeric = numeric.ok_or_else(|| {
            Error::config("policy: the scale of fixed point has to be positive and finite")
        })?;
        let SessionConfig { recovery, seals_bodies, widens_halves, .. } = *self;
        let defaults = Settings::default().parameters;
        let parameters =
            JobParameters { numeric, recovery, seals_bodies, widens_halves, ..defaults };
        let settings = Settings {
            parameters,
            failure_after: span(self.failure_after),
            stall_after: span(self.stall_after),
            operation_timeout: span(self.operation_deadline()),
            join_timeout: span(self.join_timeout),
        };
        settings.check(self.ranks)?;
        Ok(settings)
    }

    /// The deadline of operations, under whichever name it was given.
    #[expect(deprecated, reason = "the former name still works")]
    pub(super) fn operation_deadline(&self) -> Duration {
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

    /// Name that ranks have in common which can share memory.
    pub(super) fn host_identity(&self, own: SocketAddr) -> String {
        if self.share_memory {
            thalweg_shared::host_identity()
        } else {
            // Nobody else is there.
            own.to_string()
        }
    }
}

/// Returns whether a text has the form of an address.
fn is_address(text: &str) -> bool {
    let port = |port: &str| port.parse::<u16>().is_ok();
    text.rsplit_once(':').is_some_and(|(host, number)| !host.is_empty() && port(number))
}

impl fmt::Debug for SessionConfig {
    /// Leaves out the token.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = formatter.debug_struct("SessionConfig");
        out.field("server", &self.server).field("job", &self.job);
        out.field("rank", &self.rank).field("ranks", &self.ranks);
        out.field("switch", &self.switch).field("bind", &self.bind).field("policy", &self.policy);
        out.finish_non_exhaustive()
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
