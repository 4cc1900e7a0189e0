//! Settings of a session, one by one.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use thalweg_aggregate::Recovery;
use thalweg_net::{Offload, Wait};

use super::{Session, SessionConfig};
use crate::cancel::Cancel;
use crate::error::Error;
use crate::pacing::Pacing;
use crate::policy::Policy;
use crate::tagging::Tagging;
use crate::window::Window;

/// Settings of a [`Session`] that has not joined yet, from [`Session::builder`].
///
/// The defaults are those of [`SessionConfig`]. Settings *of the job* have to be the same at every rank.
#[derive(Clone, Debug)]
#[must_use = "nothing joins before `join`"]
pub struct SessionBuilder {
    config: SessionConfig,
}

impl SessionBuilder {
    pub(super) fn new(server: String, job: String) -> SessionBuilder {
        // Without ranks no rank is valid: the program has to say which one it is.
        SessionBuilder { config: SessionConfig::new(server, job, 0, 0) }
    }

    /// This rank, from 0, and the number of ranks of the job. The only setting without a default.
    pub fn rank(mut self, rank: u32, ranks: u32) -> SessionBuilder {
        (self.config.rank, self.config.ranks) = (rank, ranks);
        self
    }

    /// The switch of this rack, `host:port`. Default no switch: everything is summed at the server.
    pub fn switch(mut self, switch: impl ToString) -> SessionBuilder {
        self.config.switch = Some(switch.to_string());
        self
    }

    /// Token that lets the rank in, where the server asks for one.
    pub fn token(mut self, token: impl Into<String>) -> SessionBuilder {
        self.config.token = Some(token.into());
        self
    }

    /// Address to send from and to be reached at. The port is a multiple of 8, or 0 for a free one. Default: the
    /// address that reaches the server.
    pub fn bind(mut self, bind: SocketAddr) -> SessionBuilder {
        self.config.bind = Some(bind);
        self
    }

    /// File with the certificates that vouch for the server, where it uses TLS.
    pub fn tls_ca(mut self, tls_ca: impl Into<PathBuf>) -> SessionBuilder {
        self.config.tls_ca = Some(tls_ca.into());
        self
    }

    /// Policy of reductions where a call does not say. Its numeric is the job's.
    pub fn policy(mut self, policy: Policy) -> SessionBuilder {
        self.config.policy = policy;
        self
    }

    /// Has no effect: switches say how long fragments may be.
    #[deprecated(note = "switches say this themselves: configure the switch")]
    #[expect(deprecated, reason = "it is taken for one more release")]
    pub fn fragment_values(mut self, fragment_values: u16) -> SessionBuilder {
        self.config.fragment_values = fragment_values;
        self
    }

    /// Repair of losses, the job's. Default selective.
    pub fn recovery(mut self, recovery: Recovery) -> SessionBuilder {
        self.config.recovery = recovery;
        self
    }

    /// Seals of packets that are summed in the network also cover the values, so that nobody on their path can change
    /// them. The job's. Default false.
    pub fn seals_bodies(mut self, seals_bodies: bool) -> SessionBuilder {
        self.config.seals_bodies = seals_bodies;
        self
    }

    /// Values of `f16` and `bf16` travel in single precision where the network sums them: partial sums are then not
    /// rounded, and take twice the bytes. The job's. Default false.
    // spec: F-02
    pub fn widens_halves(mut self, widens_halves: bool) -> SessionBuilder {
        self.config.widens_halves = widens_halves;
        self
    }

    /// Congestion control of sums in the network, of flows and of deliveries. Default by delay.
    pub fn window(mut self, window: Window) -> SessionBuilder {
        self.config.window = window;
        self
    }

    /// Has no effect: switches say how many aggregators they have.
    #[deprecated(note = "switches say this themselves: configure the switch")]
    #[expect(deprecated, reason = "it is taken for one more release")]
    pub fn aggregators(mut self, aggregators: u32) -> SessionBuilder {
        self.config.aggregators = aggregators;
        self
    }

    /// Time without progress after which an operation, or the wait for ranks that have not joined, is explained by a
    /// warning, the job's. Default 5 s.
    pub fn stall_after(mut self, stall_after: Duration) -> SessionBuilder {
        self.config.stall_after = stall_after;
        self
    }

    /// Time after which a rank counts as dead whose control connection closed, or whose host no longer answers. The
    /// job's. Default 10 s.
    pub fn failure_after(mut self, failure_after: Duration) -> SessionBuilder {
        self.config.failure_after = failure_after;
        self
    }

    /// Time without progress after which an operation fails, the job's. Default 5 min.
    pub fn operation_timeout(mut self, operation_timeout: Duration) -> SessionBuilder {
        self.config.operation_timeout = operation_timeout;
        self
    }

    /// Former name of [`operation_timeout`](SessionBuilder::operation_timeout).
    #[deprecated(note = "renamed to `operation_timeout`")]
    pub fn patience(self, patience: Duration) -> SessionBuilder {
        self.operation_timeout(patience)
    }

    /// Time until all ranks have joined, the job's. Default 5 min.
    pub fn join_timeout(mut self, join_timeout: Duration) -> SessionBuilder {
        self.config.join_timeout = join_timeout;
        self
    }

    /// Token that interrupts the session from another thread.
    pub fn cancel(mut self, cancel: Cancel) -> SessionBuilder {
        self.config.cancel = cancel;
        self
    }

    /// UDP ports to bind where [`bind`](SessionBuilder::bind) names none. Every sending thread takes a block of eight
    /// that begins at a multiple of 8. Default any free ones.
    pub fn ports(mut self, ports: RangeInclusive<u16>) -> SessionBuilder {
        self.config.ports = Some(ports);
        self
    }

    /// Combination with other ranks of this host through shared memory. Default yes.
    pub fn share_memory(mut self, share_memory: bool) -> SessionBuilder {
        self.config.share_memory = share_memory;
        self
    }

    /// Most sending threads; the job has the smallest number of all ranks'. Default one for every 4 Gbps of the host's
    /// link and for every 10 Gbps of the links of all ranks, at most a quarter of the cores, 1 to 4.
    pub fn threads(mut self, threads: u32) -> SessionBuilder {
        self.config.threads = Some(threads);
        self
    }

    /// Rate of the host's link in Mbps, for the default number of sending threads. Default what the driver of the
    /// interface reports.
    pub fn link_rate_mbps(mut self, link_rate_mbps: u32) -> SessionBuilder {
        self.config.link_rate_mbps = Some(link_rate_mbps);
        self
    }

    /// Classes of the packets of deliveries. Default front layers first.
    // spec: M-14
    pub fn tagging(mut self, tagging: Tagging) -> SessionBuilder {
        self.config.tagging = tagging;
        self
    }

    /// Number of source ports to send from, 1 to 8. Default 1.
    pub fn paths(mut self, paths: u16) -> SessionBuilder {
        self.config.paths = paths;
        self
    }

    /// Segmentation and coalescing of datagrams by the kernel. Default where it can.
    pub fn offload(mut self, offload: Offload) -> SessionBuilder {
        self.config.offload = offload;
        self
    }

    /// Largest packet that the rank sends and receives, 576 to 9,000 bytes. Default the MTU of the interface.
    pub fn mtu_bytes(mut self, mtu_bytes: u16) -> SessionBuilder {
        self.config.mtu_bytes = Some(mtu_bytes);
        self
    }

    /// Behaviour of sending threads while there is nothing to do. Default sleep.
    pub fn wait(mut self, wait: Wait) -> SessionBuilder {
        self.config.wait = wait;
        self
    }

    /// Most bytes of the socket's send buffer, which is shorter on a slow interface. Default 80 KiB.
    pub fn send_buffer_bytes(mut self, send_buffer_bytes: usize) -> SessionBuilder {
        self.config.send_buffer_bytes = send_buffer_bytes;
        self
    }

    /// Source of send times. Default none: at once.
    pub fn pacing(mut self, pacing: Pacing) -> SessionBuilder {
        self.config.pacing = pacing;
        self
    }

    /// Address at which the session serves its [metrics](crate::metrics), port 0 for a free one. Default none.
    pub fn metrics(mut self, metrics: SocketAddr) -> SessionBuilder {
        self.config.metrics = Some(metrics);
        self
    }

    /// The settings as data.
    pub fn config(self) -> SessionConfig {
        self.config
    }

    /// Joins the job, and waits until all of its ranks have joined.
    ///
    /// # Errors
    ///
    /// As [`Session::join`].
    pub fn join(self) -> Result<Session, Error> {
        Session::join(self.config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    // spec: E-08 machine
    #[test]
    fn an_invalid_setting_is_named_before_anything_starts() {
        let valid = || Session::builder("127.0.0.1:4808", "job").rank(0, 2);
        let refused = |builder: SessionBuilder, setting: &str| {
            let error = builder.config().check().expect_err(setting);
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().starts_with(setting), "{error}");
        };
        valid().config().check().expect("it is valid");
        refused(Session::builder("127.0.0.1:4808", "job"), "rank");
        refused(valid().rank(2, 2), "rank");
        refused(Session::builder("127.0.0.1", "job").rank(0, 2), "server");
        refused(Session::builder("127.0.0.1:4808", "").rank(0, 2), "job");
        refused(valid().switch("nowhere"), "switch");
        refused(valid().threads(0), "threads");
        refused(valid().link_rate_mbps(0), "link_rate_mbps");
        refused(valid().paths(9), "paths");
        refused(valid().token("\n"), "token");
        refused(valid().operation_timeout(Duration::ZERO), "operation_timeout");
    }

    #[expect(deprecated, reason = "the former name still works")]
    #[test]
    fn the_deadline_of_operations_has_a_former_name() {
        let patience = Duration::from_secs(7);
        let builder = Session::builder("127.0.0.1:4808", "job").rank(0, 2);
        let timeout =
            |config: SessionConfig| config.settings().expect("valid").operation_timeout.as_s_f64();
        assert_eq!(timeout(builder.clone().patience(patience).config()), 7.0);
        let mut config = builder.config();
        assert_eq!(timeout(config.clone()), 300.0);
        config.patience = patience;
        assert_eq!(timeout(config), 7.0);
    }

    #[test]
    #[expect(deprecated, reason = "a program that still gives them is warned")]
    fn settings_without_effect_are_taken_and_named() {
        let valid = || Session::builder("127.0.0.1:4808", "job").rank(0, 2);
        assert!(valid().config().unused().is_empty());
        let given = valid().fragment_values(0).aggregators(7).config();
        given.check().expect("they have no effect");
        assert_eq!(given.unused(), ["fragment_values", "aggregators"]);
        let (with, without) = (given.settings(), valid().config().settings());
        assert_eq!(with.expect("it is valid"), without.expect("it is valid"));
    }
}
