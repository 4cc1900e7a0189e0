//! One rank's part in a job.

mod builder;
mod config;
mod deliver;
mod exchange;
mod lane;
mod lent;
mod memory;
mod missing;
mod options;
mod part;
mod parts;
mod ports;
mod reduce;
mod route;
mod spread;
mod team;

use std::net::SocketAddr;
use std::sync::Arc;

pub use self::builder::SessionBuilder;
pub use self::config::SessionConfig;
pub use self::deliver::{Delivered, ReceivePost, SendPost};
pub use self::memory::{ByteMemory, Memory};
pub use self::missing::Reduced;
pub use self::options::ReduceOptions;
use self::part::{Calls, Part};
use self::parts::Parts;
use crate::counters::Counters;
use crate::error::{Error, ErrorKind};
use crate::events::{Note, Notes};
use crate::handle::Handle;
use crate::metrics::{self, Endpoint};
use crate::policy::Policy;
use crate::tagging::Tagging;

/// One rank's part in a job.
///
/// All ranks make the same calls in the same order; they need not wait for each other. A call returns
/// at once, with a [`Handle`](crate::Handle) to wait for; many operations may be in flight. Results of sums are the
/// same bits at every rank.
///
/// **Failures.** A rank whose process or host dies fails the job at every rank within
/// [`failure_after`](SessionConfig::failure_after) and two seconds; the error has the rank, its address and the evidence.
/// An operation that does not progress is explained after a while, by an [event](crate::guide#events): which rank, which
/// fragment, which link, since when. If that lasts until [`operation_timeout`](SessionConfig::operation_timeout), the job fails at every
/// rank with the same error. A rank that leaves while others still need it fails them at once. A switch or a server that
/// is started again in time costs nothing but time.
///
/// **Paths that become narrower.** An operation that is under way when a path of the job no longer carries its packets fails
/// with [`Path`](crate::ErrorKind::Path) and an error that has both ends and both sizes. The session goes on: its ranks meet
/// again, and the next operations use shorter packets. Ranks end operations at different moments, so that some have the
/// result, which is right, of an operation that fails at others. Those that have yet to call an operation that others had
/// begun get the error when they call it, so that the next operation is the same at every rank. A program that goes on
/// after such an error has its ranks agree on what they repeat. A job in which values were [sent](Session::send) from
/// rank to rank is over.
// spec: E-08, F-01
pub struct Session {
    /// The process that joined. A child that inherits this is not the rank.
    pid: u32,
    rank: u32,
    ranks: u32,
    /// Number of hosts.
    hosts: u32,
    policy: Policy,
    /// Classes of the packets of deliveries.
    tagging: Tagging,
    /// Serves the metrics, if it has an address to. It uses the sending threads, so it goes before them.
    endpoint: Option<Endpoint>,
    metrics: Arc<metrics::Source>,
    parts: Arc<Parts>,
}

impl Session {
    /// Begins to join a job: the server, `host:port`, and the name of the job. Ranks that give the same name work
    /// together.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # use thalweg::daemon::{SwitchDaemon, SwitchDaemonConfig};
    /// # use thalweg::daemon::{Secret, ServerDaemon, ServerDaemonConfig};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let loopback = "127.0.0.1:0".parse()?;
    /// # let daemon = ServerDaemon::start(&ServerDaemonConfig::new(loopback, Secret([7; 16])))?;
    /// # let (server, rank, ranks) = (daemon.address().to_string(), 0, 1);
    /// # let switch = SwitchDaemon::start(&SwitchDaemonConfig::new(loopback, Secret([7; 16])))?;
    /// # let switch = switch.address();
    /// let session = thalweg::Session::builder(server, "resnet")
    ///     .rank(rank, ranks)
    ///     .switch(switch)
    ///     .operation_timeout(Duration::from_secs(60))
    ///     .join()?;
    /// # session.leave()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(server: impl Into<String>, job: impl Into<String>) -> SessionBuilder {
        SessionBuilder::new(server.into(), job.into())
    }

    /// Joins a job, and waits until all of its ranks have joined.
    ///
    /// # Errors
    ///
    /// - [`Config`](crate::ErrorKind::Config) if a setting is invalid, which is checked before anything starts, if the
    ///   ranks differ in one, or if the server refuses the rank: another process has it, or the token is wrong.
    /// - [`System`](crate::ErrorKind::System) if this host has no socket, thread or memory, if the address for metrics is
    ///   in use, or if the agent of [`Pacing`](crate::Pacing) is not there.
    /// - [`Network`](crate::ErrorKind::Network) if the server has no address, is in another network, cannot be reached,
    ///   or does not answer for [`failure_after`](SessionConfig::failure_after).
    /// - [`Timeout`](crate::ErrorKind::Timeout) if ranks are missing after
    ///   [`join_timeout`](SessionConfig::join_timeout). [`Error::ranks`] has them.
    /// - [`Peer`](crate::ErrorKind::Peer) if a rank that had joined, or its host, died meanwhile.
    /// - [`Aborted`](crate::ErrorKind::Aborted) if a rank ended the job, or [`cancel`](SessionConfig::cancel) was
    ///   cancelled.
    /// - [`Internal`](crate::ErrorKind::Internal) if the library has a defect.
    pub fn join(config: SessionConfig) -> Result<Session, Error> {
        config.check()?;
        let notes = Notes::new(&config.job, config.rank);
        config.unused().into_iter().for_each(|setting| notes.send(Note::Unused { setting }));
        let part = Part::join(&config, Arc::default(), Arc::new(Calls::default()))?;
        let metrics = Arc::new(metrics::Source::new(&config.job, config.rank));
        metrics.set_part(part.lanes.address(), part.lanes.posts());
        let endpoint = config.metrics.map(|bind| serve(bind, &metrics)).transpose()?;
        let (rank, ranks, policy) = (config.rank, config.ranks, config.policy);
        let tagging = config.tagging.clone();
        let (hosts, source) = (part.hosts.count(), Arc::clone(&metrics));
        let parts = Parts::begin_with(config, part, move |part| {
            source.set_part(part.lanes.address(), part.lanes.posts());
        });
        let pid = std::process::id();
        Ok(Session { pid, rank, ranks, hosts, policy, tagging, endpoint, metrics, parts })
    }

    /// This rank, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of ranks of the job.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Number of hosts that the ranks are on, as far as memory is shared.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// Number of sending threads: the smallest that any rank offers, and one where all ranks are on one host.
    pub fn threads(&self) -> u32 {
        self.metrics.threads()
    }

    /// Policy of reductions where a call does not say.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Counters of the first sending thread.
    ///
    /// # Errors
    ///
    /// As [`Session::counters_of`].
    pub fn counters(&self) -> Result<Counters, Error> {
        self.counters_of(0)
    }

    /// Counters of one of the sending threads. After a path became narrow they begin anew.
    ///
    /// # Errors
    ///
    /// [`Call`](crate::ErrorKind::Call) if there is no such thread, [`Closed`](crate::ErrorKind::Closed) if it has
    /// ended, [`Path`](crate::ErrorKind::Path) while ranks meet again.
    pub fn counters_of(&self, thread: usize) -> Result<Counters, Error> {
        let post = self.parts.post(thread)?;
        let post = post.ok_or_else(|| Error::call(format!("there is no thread {thread}")))?;
        metrics::counters_of(&post)
    }

    /// Metrics of the session as they are now, in Prometheus' text format: counters of each sending thread,
    /// round-trip times, and times of operations.
    ///
    /// # Errors
    ///
    /// [`Closed`](crate::ErrorKind::Closed) if a sending thread has ended.
    pub fn metrics(&self) -> Result<String, Error> {
        self.metrics.read()
    }

    /// Address where the metrics are served, if the session was given one.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.endpoint.as_ref().map(Endpoint::local_address)
    }

    /// Ends the job for all ranks, and returns at once. Operations that are under way here fail with
    /// [`Aborted`](crate::ErrorKind::Aborted), and so does everything later; all other ranks fail within `failure_after`
    /// with an error that has the rank and the reason.
    // spec: E-03
    pub fn abort(&self, reason: impl AsRef<str>) {
        self.parts.abort(reason.as_ref());
    }

    /// Leaves the job when everything that was begun has ended, and others have what they need of this rank. Waits for
    /// them for `failure_after` at most, and no longer than 5 s.
    ///
    /// # Errors
    ///
    /// The failure of the job if it failed, of a kind that [every handle](crate::Handle#errors) may have;
    /// [`Closed`](crate::ErrorKind::Closed) in a child of the process that joined.
    pub fn leave(self) -> Result<(), Error> {
        if self.is_own() { self.parts.leave() } else { Err(Error::closed()) }
    }

    /// Begins an operation of a kind, at once or when ranks have met again.
    fn begin<T: Send + 'static>(
        &self,
        kind: &'static str,
        begin: impl FnOnce(&Part) -> Handle<T> + Send + 'static,
    ) -> Handle<T> {
        self.metrics.times.watch(kind, self.parts.begin(begin))
    }

    /// Returns whether this is the process that joined.
    fn is_own(&self) -> bool {
        std::process::id() == self.pid
    }
}

impl Drop for Session {
    /// Leaves without waiting for what is under way, within a second. Other ranks that need this one fail. In a child
    /// of the process that joined nothing happens: the session is its parent's.
    fn drop(&mut self) {
        if self.is_own() {
            return self.parts.close();
        }
        // Threads that the child does not have may hold locks.
        std::mem::forget((self.endpoint.take(), Arc::clone(&self.parts)));
    }
}

/// Serves the metrics of a session.
fn serve(bind: SocketAddr, metrics: &Arc<metrics::Source>) -> Result<Endpoint, Error> {
    let about = metrics.about();
    let source = Arc::clone(metrics);
    Endpoint::start(bind, about, move || source.read().ok()).map_err(|error| {
        let text = format!("cannot serve metrics at {bind}: {error}");
        Error::caused(ErrorKind::System, text, error)
    })
}

/// An operation ends with values of the type that it began with.
fn other_type() -> Error {
    Error::internal("an operation ended with values of another type than it began with")
}
