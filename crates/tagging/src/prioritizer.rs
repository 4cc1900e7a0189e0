//! Threads that observe, learn, and pass bounds on.
// spec

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use thalweg_core::{Bytes, Span, Time};
use thalweg_linux::{Connection, Connections};
use thalweg_prioritize::observer::{Observer, ObserverConfig, ObserverCounts, Seen, Service};
use thalweg_prioritize::online::Newest;
use thalweg_prioritize::tagger::PacketRule;
use thalweg_prioritize::{Model, NewFlow, Options, Settings};
use thiserror::Error;
use tracing::{info, warn};

use crate::{TARGET, TagCounts, Tags, files};

/// Shortest time between two lists.
const LIST_EVERY: Duration = Duration::from_millis(20);
/// Longest time between two lists.
const LIST_WITHIN: Duration = Duration::from_secs(1);
/// Lists get at most this share of one core, as its inverse: a host with many connections is listed less often.
const LISTING_SHARE: u32 = 20;

/// Reason why flows cannot be observed.
#[derive(Clone, Debug, Error)]
pub enum TaggingError {
    /// An interface is not there. The caller is at fault.
    #[error("there is no interface {0}: `ip link` lists them")]
    NoInterface(String),
    /// The operating system refused something.
    #[error("{what}: {why}")]
    System {
        /// The attempt that failed.
        what: &'static str,
        /// The system's own message.
        why: String,
    },
}

impl TaggingError {
    fn system(what: &'static str) -> impl FnOnce(io::Error) -> TaggingError {
        move |error| TaggingError::System { what, why: error.to_string() }
    }
}

/// Settings of a [`Prioritizer`].
#[derive(Clone, Debug)]
pub struct PriorityConfig {
    /// Interfaces whose packets get priorities; connections over the loopback interface count only if it is one of them.
    pub interfaces: Vec<String>,
    /// Rule for the priorities.
    pub rule: PacketRule,
    /// Settings of the observer. Its pause is that of the rule.
    pub observer: ObserverConfig,
    /// Bounds are given to flows. Otherwise all of them have priorities by the bytes that they have sent.
    pub gives_bounds: bool,
    /// Folder of the files with what was learned: read at the start, written with each new forest.
    pub learned: Option<PathBuf>,
}

/// State and counters of a [`Prioritizer`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PriorityStats {
    /// Counters of the observer.
    pub observed: ObserverCounts,
    /// Connections that are followed now.
    pub connections: u64,
    /// Services with a history.
    pub services: u64,
    /// Lists of connections.
    pub lists: u64,
    /// Times that reports of closed connections were lost.
    pub lost_reports: u64,
    /// Bounds that were set or removed.
    pub bounds_set: u64,
    /// Time from the start to the first forest that was learned, in milliseconds.
    pub first_forest_ms: Option<u64>,
    /// Counters of the program at egress. `None` if it could not be loaded.
    pub tags: Option<TagCounts>,
}

/// Observes, learns and tags until it is dropped.
pub struct Prioritizer {
    stats: Arc<Mutex<PriorityStats>>,
    should_stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    is_tagging: bool,
}

impl Prioritizer {
    /// Starts for the network namespace of the calling thread.
    pub fn start(config: PriorityConfig) -> Result<Prioritizer, TaggingError> {
        let observes = ObserverConfig { idle_after: config.rule.idle_after, ..config.observer };
        let services = u32::try_from(observes.services).unwrap_or(u32::MAX);
        let indices = indices(&config.interfaces)?;
        let tags = tagging(&config.rule, services.saturating_add(1), &indices);
        if let Err(error) = &tags {
            warn!(
                target: TARGET, event = "not_tagging",
                "packets of other programs get no priorities, only those of sessions: {error}; \
                 give the agent CAP_BPF and CAP_NET_ADMIN, or run it as root"
            );
        }
        let model = config.learned.as_deref().and_then(files::read);
        let observer = match model {
            Some(model) => Observer::with_model(observes, model),
            None => Observer::new(observes),
        };
        let connections = Connections::open()
            .map_err(TaggingError::system("TCP connections of the host cannot be listed"))?;
        let (should_stop, stats) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (work, to_train) = sync_channel(1);
        let (done, trained) = sync_channel(1);
        let (newest, learned) = (observer.newest(), config.learned);
        let is_tagging = tags.is_ok();
        let watcher = Watcher {
            started: clock(),
            observer,
            connections,
            tags: tags.ok(),
            gives_bounds: config.gives_bounds,
            has_loopback: config.interfaces.iter().any(|name| name == "lo"),
            stats: Arc::clone(&stats),
            own: PriorityStats::default(),
            work,
            trained,
        };
        let (stop, stop_training) = (Arc::clone(&should_stop), Arc::clone(&should_stop));
        let place = Place { newest, learned };
        let train = move || train(&to_train, &done, &place, &stop_training);
        let threads = vec![
            spawn("thalweg-observe", move || watcher.run(&stop))?,
            spawn("thalweg-train", train)?,
        ];
        Ok(Prioritizer { stats, should_stop, threads, is_tagging })
    }

    /// Returns whether packets get priorities.
    pub fn is_tagging(&self) -> bool {
        self.is_tagging
    }

    /// State and counters now, as of the latest list.
    pub fn stats(&self) -> PriorityStats {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether its threads work.
    pub fn is_running(&self) -> bool {
        self.threads.iter().all(|thread| !thread.is_finished())
    }
}

impl Drop for Prioritizer {
    fn drop(&mut self) {
        self.should_stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Loads the program and attaches it.
fn tagging(rule: &PacketRule, services: u32, indices: &[u32]) -> io::Result<Tags> {
    let mut tags = Tags::load(rule, services)?;
    indices.iter().try_for_each(|&index| tags.attach(index))?;
    Ok(tags)
}

/// The kernel's numbers of interfaces.
fn indices(names: &[String]) -> Result<Vec<u32>, TaggingError> {
    let of = |name: &String| {
        thalweg_linux::interface_index(name).ok_or_else(|| TaggingError::NoInterface(name.clone()))
    };
    names.iter().map(of).collect()
}

/// The thread that observes.
struct Watcher {
    started: Instant,
    observer: Observer,
    connections: Connections,
    tags: Option<Tags>,
    gives_bounds: bool,
    has_loopback: bool,
    stats: Arc<Mutex<PriorityStats>>,
    own: PriorityStats,
    work: SyncSender<Vec<(NewFlow, Bytes)>>,
    trained: Receiver<Trained>,
}

/// Report of the training thread.
struct Trained {
    took: Duration,
    is_new: bool,
}

impl Watcher {
    fn run(mut self, should_stop: &AtomicBool) {
        while !should_stop.load(Ordering::Relaxed) {
            let begin = clock();
            if let Err(error) = self.list() {
                warn!(target: TARGET, event = "list_failed", "connections cannot be listed: {error}");
            }
            self.learn();
            self.pass_bounds();
            self.publish();
            sleep((begin.elapsed() * (LISTING_SHARE - 1)).clamp(LIST_EVERY, LIST_WITHIN));
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + Span::from_ns(self.started.elapsed().as_nanos() as u64)
    }

    fn list(&mut self) -> io::Result<()> {
        let (now, has_loopback) = (self.now(), self.has_loopback);
        let observer = &mut self.observer;
        let lost = self.connections.closed(&mut |connection| {
            if let Some(seen) = seen(&connection, has_loopback) {
                observer.handle_closed(now, &seen);
            }
        })?;
        self.own.lost_reports += u64::from(lost);
        self.connections.list(&mut |connection| {
            if let Some(seen) = seen(&connection, has_loopback) {
                observer.handle_seen(now, &seen);
            }
        })?;
        observer.handle_listed(now);
        self.own.lists += 1;
        Ok(())
    }

    fn learn(&mut self) {
        let now = self.now();
        match self.trained.try_recv() {
            Ok(Trained { took, is_new }) => {
                self.observer.handle_trained(now, Span::from_ns(took.as_nanos() as u64), is_new);
                let counts = self.observer.counts();
                if is_new && counts.forests == 1 {
                    self.own.first_forest_ms = Some(self.started.elapsed().as_millis() as u64);
                    info!(
                        target: TARGET, event = "learned", flows = counts.flows,
                        "the first forest was learned, from {} flows", counts.flows
                    );
                }
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
        }
        if let Some(flows) = self.observer.take_due(now) {
            // The thread has nothing else to do: the observer hands out one set at a time.
            let _ = self.work.try_send(flows);
        }
    }

    fn pass_bounds(&mut self) {
        let now = self.now();
        while let Some((service, bounds)) = self.observer.poll_next(now) {
            let Some(tags) = self.tags.as_ref().filter(|_| self.gives_bounds) else { continue };
            match tags.set_next(&service, bounds) {
                Ok(()) => self.own.bounds_set += 1,
                // The flow has priorities by the bytes that it has sent.
                Err(error) => warn!(target: TARGET, event = "bounds_refused", "{error}"),
            }
        }
    }

    fn publish(&mut self) {
        self.own.observed = self.observer.counts();
        self.own.connections = self.observer.connections() as u64;
        self.own.services = self.observer.services() as u64;
        self.own.tags = self.tags.as_ref().and_then(|tags| tags.counts().ok());
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner) = self.own;
    }
}

/// A connection for the observer, if it leaves the host or connections within the host count.
fn seen(connection: &Connection, has_loopback: bool) -> Option<Seen> {
    let Connection { id, own, peer, sent_bytes, is_quiet } = *connection;
    let is_inside = peer.ip().is_loopback() || own.ip() == peer.ip();
    let service = Service::of(peer.ip(), own.port(), peer.port());
    let seen = Seen { id, own: own.ip(), service, sent: Bytes::new(sent_bytes), is_quiet };
    (has_loopback || !is_inside).then_some(seen)
}

/// The places where new models go.
struct Place {
    newest: Arc<Newest>,
    learned: Option<PathBuf>,
}

/// Trains what comes until the other thread has ended.
fn train(
    work: &Receiver<Vec<(NewFlow, Bytes)>>,
    done: &SyncSender<Trained>,
    place: &Place,
    should_stop: &AtomicBool,
) {
    let watch = |_| match should_stop.load(Ordering::Relaxed) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    while let Ok(flows) = work.recv() {
        let begin = clock();
        let model = Model::train(&flows, &Settings::default(), Options::default(), &watch);
        let is_new = model.is_ok();
        match model {
            Ok(model) => {
                if let Some(folder) = &place.learned
                    && let Err(error) = files::write(folder, &model, &flows)
                {
                    let folder = folder.display();
                    warn!(
                        target: TARGET, event = "unwritten",
                        "what was learned cannot be written to {folder}: {error}"
                    );
                }
                place.newest.publish(model);
            }
            Err(_) if should_stop.load(Ordering::Relaxed) => return,
            Err(error) => warn!(target: TARGET, event = "not_learned", "{error}"),
        }
        if done.send(Trained { took: begin.elapsed(), is_new }).is_err() {
            return;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "connections are observed in real time")]
fn clock() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "connections are observed in real time")]
fn sleep(span: Duration) {
    thread::sleep(span);
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, TaggingError> {
    let thread = thread::Builder::new().name(name.into()).spawn(body);
    thread.map_err(TaggingError::system("cannot start a thread"))
}

#[cfg(test)]
mod tests;
