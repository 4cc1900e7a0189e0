//! The registry with its streams and its data plane.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_aggregate::server::SwitchPath;
use thalweg_core::{JobId, NodeId, Span, Time};
use thalweg_wire::aggregate::SwitchLimits;
use thalweg_wire::tag::Secrets;
use tokio::sync::{mpsc, oneshot};

use super::ServiceNote;
use super::snapshot::COPY_GAP;
use super::unread::Unread;
use crate::budget::{Reason, Refused};
use crate::caller::Caller;
use crate::clock::Clock;
use crate::message::{Join, ToRank};
use crate::plane::{DataPlane, Missing};
use crate::registry::{Action, Ending, LinkId, Listing, Refusal, Registry};

/// Messages that may wait for a rank that does not listen before its stream is given up.
const QUEUE_MESSAGES: usize = 256;

/// Free places that are kept for messages that must not be lost. A rank that is stopped misses reports of stalls, and
/// keeps its stream.
const RESERVED_MESSAGES: usize = QUEUE_MESSAGES / 2;

/// Message from outside of the streams.
#[derive(Debug)]
pub(super) enum Errand {
    /// The data plane's answer.
    Missing { job: JobId, sequence: u64, missing: Missing },
    /// The data plane cannot serve a job.
    Fail { job: JobId, text: String },
    /// A job does not fit the budgets of the data plane.
    Refuse { job: JobId, reason: String },
    /// The data plane has contributions to different operations of a job.
    Compare { job: JobId },
    /// A switch has answered a probe.
    Answered { switch: NodeId, limits: SwitchLimits },
    /// A switch has answered a probe of its path.
    PathAnswered { path: SwitchPath, body_bytes: usize },
    /// The cluster has other secrets from now on.
    Secrets(Secrets),
    /// Somebody wants to know which jobs there are.
    List { answer: std::sync::mpsc::Sender<Arc<Listing>> },
}

/// Does what the registry wants done.
pub(super) struct Desk {
    pub(super) registry: Registry,
    pub(super) plane: Arc<dyn DataPlane>,
    pub(super) clock: Clock,
    streams: BTreeMap<LinkId, Outgoing>,
    next_link: u64,
    /// Number of messages to ranks.
    pub(super) sent: u64,
    /// The last listing, and the time until which it is shown again.
    listing: Option<(Time, Arc<Listing>)>,
    errands: mpsc::UnboundedSender<Errand>,
    on_note: Box<dyn Fn(ServiceNote) + Send>,
    refused: Refused,
}

/// Our end of a stream. Dropping it ends the stream.
struct Outgoing {
    /// With the trees that they are about.
    messages: mpsc::Sender<(u32, ToRank)>,
    unread: Unread,
    _is_open: oneshot::Sender<()>,
}

/// The other end of a stream.
pub(super) struct Stream {
    pub(super) link: LinkId,
    /// Silence of a kernel that means death in this job.
    pub(super) failure_after: Span,
    pub(super) messages: mpsc::Receiver<(u32, ToRank)>,
    pub(super) unread: Unread,
    /// Resolves when the stream has ended.
    pub(super) closed: oneshot::Receiver<()>,
}

impl Desk {
    pub(super) fn new(
        registry: Registry,
        plane: Arc<dyn DataPlane>,
        errands: mpsc::UnboundedSender<Errand>,
        on_note: Box<dyn Fn(ServiceNote) + Send>,
        refused: Refused,
    ) -> Desk {
        let (streams, clock) = (BTreeMap::new(), Clock::start());
        Desk {
            registry,
            plane,
            clock,
            streams,
            next_link: 0,
            sent: 0,
            listing: None,
            errands,
            on_note,
            refused,
        }
    }

    /// Opens a stream for a rank.
    pub(super) fn attend(&mut self, caller: &Caller, join: Join) -> Result<Stream, Refusal> {
        let link = LinkId(self.next_link);
        self.next_link += 1;
        let (sender, messages) = mpsc::channel(QUEUE_MESSAGES);
        let (_is_open, closed) = oneshot::channel();
        let unread = Unread::default();
        let outgoing = Outgoing { messages: sender, unread: unread.clone(), _is_open };
        self.streams.insert(link, outgoing);
        let failure_after = self.registry.failure_after(join.job);
        let attended = self.tell(|registry, now| registry.attend(now, link, caller, join));
        attended.inspect_err(|_| drop(self.streams.remove(&link)))?;
        Ok(Stream { link, failure_after, messages, unread, closed })
    }

    /// Forgets a stream that broke.
    pub(super) fn hang_up(&mut self, link: LinkId, ending: Ending) {
        self.streams.remove(&link);
        self.tell(|registry, now| registry.hang_up(now, link, ending));
    }

    /// Tells the registry something, and does what it wants done.
    pub(super) fn tell<T>(&mut self, what: impl FnOnce(&mut Registry, Time) -> T) -> T {
        let now = self.clock.now();
        let result = what(&mut self.registry, now);
        while let Some(action) = self.registry.poll() {
            self.act(now, action);
        }
        result
    }

    /// The jobs that there are. What takes long to list is listed rarely, however often somebody asks.
    // spec: E-12
    pub(super) fn listing(&mut self) -> Arc<Listing> {
        let now = self.clock.now();
        if let Some((_, listing)) = self.listing.as_ref().filter(|(until, _)| now < *until) {
            return Arc::clone(listing);
        }
        let listing = Arc::new(self.registry.listing());
        let after = self.clock.now();
        self.listing = Some((after + after.since(now) * COPY_GAP, Arc::clone(&listing)));
        listing
    }

    /// Tells the operator.
    pub(super) fn note(&self, text: String) {
        (self.on_note)(ServiceNote { is_warning: false, text });
    }

    /// Tells the operator about something that needs attention.
    pub(super) fn warn(&self, text: String) {
        (self.on_note)(ServiceNote { is_warning: true, text });
    }

    /// Ends all streams.
    pub(super) fn close(&mut self) {
        self.streams.clear();
    }

    fn act(&mut self, now: Time, action: Action) {
        match action {
            Action::Tell { link, tree, message } => {
                let Some(stream) = self.streams.get(&link) else { return };
                let can_be_lost = matches!(message, ToRank::Diagnosis(_) | ToRank::Waiting { .. });
                if can_be_lost && stream.messages.capacity() <= RESERVED_MESSAGES {
                    return;
                }
                self.sent += 1;
                // What it misses now it can never make up for.
                let is_lost = !stream.unread.enqueue(&message);
                if is_lost || stream.messages.try_send((tree, message)).is_err() {
                    self.refused.count(Reason::Unread);
                    self.streams.remove(&link);
                    self.registry.hang_up(now, link, Ending::Closed);
                }
            }
            Action::Close { link } => drop(self.streams.remove(&link)),
            Action::Adopt { setup } => self.plane.adopt(setup),
            Action::Retire { job } => self.plane.retire(job),
            Action::AskMissing { job, sequence } => {
                let errands = self.errands.clone();
                let answer = move |missing| {
                    // Nobody wants to know any more when the service has ended.
                    let _ = errands.send(Errand::Missing { job, sequence, missing });
                };
                self.plane.missing(job, sequence, Box::new(answer));
            }
            Action::Probe { switch } => self.plane.probe(switch),
            Action::ProbePath { path, mtu_bytes } => self.plane.probe_path(path, mtu_bytes),
            Action::Note(text) => self.note(text),
            Action::Warn(text) => self.warn(text),
        }
    }
}
