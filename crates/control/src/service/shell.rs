//! The service's face: requests in, answers out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prost::Message;
use thalweg_core::{JobId, Span};
use tokio::sync::{mpsc, oneshot};
use tokio::task;
use tokio::time::{self, MissedTickBehavior};
use tokio_stream::Empty;
use tonic::{Code, Request, Response, Status, Streaming};

use super::desk::{self, Desk, Errand};
use super::guard::{Guard, caller_of};
use super::meter::{SharedMeter, StreamPermit};
use super::sending::Messages;
use super::snapshot::{Snapshot, Snapshots};
use super::unread::{self, Rooms, Unread};
use crate::budget::{Reason, Refused};
use crate::caller::{Caller, Holder};
use crate::clock::{Clock, milliseconds};
use crate::connection::{Watch, watch_of};
use crate::convert::{self, Malformed, StreamMessage};
use crate::plane::DataPlane;
use crate::registry::{Ending, LinkId, Refusal};
use crate::v1;
use crate::v1::control_server::Control;
use crate::versions::{VersionError, Versions};
use thalweg_core::text::printable;

/// Time that a stream may take to say who it is.
const JOIN_WITHIN: Duration = Duration::from_secs(10);

/// Time between two questions to a kernel whether the other one answers.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Time after which a stream that sent too much is looked at again.
const HELD_FOR: Duration = Duration::from_millis(25);

/// Time of the thread that it takes to send a small message, about.
const TELL_COST: Span = Span::from_us(2);

/// A handle of the registry. All handles are used by one thread.
#[derive(Clone)]
pub(super) struct Shell {
    desk: Arc<Mutex<Desk>>,
    /// Gets a message when a part of the service has panicked.
    broken: mpsc::UnboundedSender<()>,
    snapshots: Snapshots,
    plane: Arc<dyn DataPlane>,
    meter: SharedMeter,
    refused: Refused,
    clock: Clock,
}

impl Shell {
    /// A handle, and what gets a message when a part of the service has panicked.
    pub(super) fn new(desk: Desk, guard: &Guard) -> (Shell, mpsc::UnboundedReceiver<()>) {
        let (broken, panics) = mpsc::unbounded_channel();
        let shell = Shell {
            plane: Arc::clone(&desk.plane),
            clock: desk.clock,
            desk: Arc::new(Mutex::new(desk)),
            broken,
            snapshots: Snapshots::default(),
            meter: guard.meter.clone(),
            refused: guard.refused.clone(),
        };
        (shell, panics)
    }

    /// Runs a task. If it panics, the service ends: its users notice that, and not that a part is missing.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let broken = self.broken.clone();
        tokio::spawn(async move {
            if tokio::spawn(task).await.is_err_and(|error| error.is_panic()) {
                // A service that has ended needs no reason to.
                let _ = broken.send(());
            }
        });
    }

    pub(super) fn tick(&self) {
        self.desk().tell(|registry, now| registry.tick(now));
    }

    pub(super) fn run(&self, errand: Errand) {
        if let Errand::List { answer } = errand {
            // Who no longer waits does not need it.
            let _ = answer.send(self.desk().listing());
            return;
        }
        self.desk().tell(|registry, now| match errand {
            Errand::Missing { job, sequence, missing } => {
                registry.explain(now, job, sequence, missing);
            }
            Errand::Fail { job, text } => registry.fail_job(now, job, text),
            Errand::Refuse { job, reason } => registry.refuse_job(now, job, &reason),
            Errand::Compare { job } => registry.compare_operations(job),
            Errand::Answered { switch, limits } => {
                registry.switch_answered(now, switch, limits);
            }
            Errand::PathAnswered { path, body_bytes } => {
                registry.path_answered(now, path, body_bytes);
            }
            Errand::Secrets(secrets) => registry.replace_secrets(secrets),
            Errand::List { .. } => {}
        });
    }

    /// Tells the registry something because of a caller, whose time it takes.
    // spec: E-12
    fn timed<T>(&self, holder: Holder, what: impl FnOnce(&mut Desk) -> T) -> T {
        let mut service = self.desk();
        let (began, before) = (self.clock.now(), service.sent);
        let result = what(&mut service);
        let now = self.clock.now();
        let time = now.since(began) + TELL_COST * (service.sent - before);
        drop(service);
        self.meter.spend(now, holder, time);
        result
    }

    /// Checks that a caller has time of the thread left.
    fn check_time(&self, caller: &Caller) -> Result<(), Status> {
        if self.meter.has_time(self.clock.now(), caller.holder) {
            return Ok(());
        }
        let text = "the budget of this token is used up: its calls and messages take more than a share of the server's \
                    time";
        Err(self.exhausted((Reason::Time, text.into())))
    }

    /// Tells the operator.
    pub(super) fn note(&self, text: String) {
        self.desk().note(text);
    }

    /// Ends all streams.
    pub(super) fn close(&self) {
        self.desk().close();
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(|poisoned| {
            // What a panic left behind lasts until the service has ended.
            let _ = self.broken.send(());
            PoisonError::into_inner(poisoned)
        })
    }

    /// Hears a rank until its stream ends, or until its kernel no longer answers.
    // spec: E-01
    async fn listen(self, stream: Listening, mut inbound: Streaming<v1::FromRank>) {
        let Listening { link, watch, failure_after, mut closed, permit, unread, rooms } = stream;
        let (mut messages, mut is_held) = (permit.messages(self.clock.now()), false);
        let mut looks = time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ending = loop {
            let message = tokio::select! {
                message = inbound.message(), if !is_held => message,
                // A sender that is read more slowly has to wait: the window of its connection is full.
                // spec: E-12
                () = time::sleep(HELD_FOR), if is_held => {
                    is_held = permit.may_read(self.clock.now(), &mut messages).is_err();
                    continue;
                }
                _ = looks.tick() => match watch.silence(failure_after) {
                    Some(silence) => break Some(Ending::Silent(silence)),
                    // spec: E-12
                    None if unread.is_blocking(self.clock.now(), &rooms) => {
                        self.refused.count(Reason::Unread);
                        watch.close();
                        break Some(Ending::Closed);
                    }
                    None => continue,
                },
                _ = &mut closed => break None,
            };
            let said = match message {
                Ok(Some(message)) => convert::read_from_rank(message),
                Ok(None) | Err(_) => break Some(Ending::Closed),
            };
            // A second join is as much nonsense as anything else.
            let Ok(StreamMessage::Later(tree, message)) = said else { break Some(Ending::Closed) };
            self.timed(permit.holder(), |service| {
                service.tell(|registry, now| registry.hear(now, link, tree, message));
            });
            let allowed = permit.may_read(self.clock.now(), &mut messages);
            is_held = allowed.inspect_err(|reason| self.refused.count(*reason)).is_err();
        };
        self.expect_read(&watch, &unread);
        if let Some(ending) = ending {
            self.timed(permit.holder(), |service| service.hang_up(link, ending));
        }
    }

    /// Closes a connection that does not take, for long, what memory is held for.
    // spec: E-12
    fn expect_read(&self, watch: &Watch, unread: &Unread) {
        let (watch, overdue, refused) = (watch.clone(), unread.overdue(), self.refused.clone());
        tokio::spawn(async move {
            if overdue.await {
                refused.count(Reason::Unread);
                watch.close();
            }
        });
    }

    /// Makes an answer about all jobs of at most this size on another thread, once there is memory of the caller's budget for it,
    /// which it holds until the connection has taken it.
    // spec: E-12
    async fn counted<T: Message + Send + 'static>(
        &self,
        (watch, holder): (Watch, Holder),
        most_bytes: usize,
        answer: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let now = self.clock.now();
        let Some(unread) = self.meter.rooms(now, holder).reserve(now, most_bytes).await else {
            let text = "answers that were not read take all the memory that this token has for them, or all have";
            return Err(self.exhausted((Reason::Unread, text.into())));
        };
        self.expect_read(&watch, &unread);
        // There may be thousands of jobs in it.
        let answer = task::spawn_blocking(answer).await;
        let answer = answer.map_err(|_| Status::internal("the answer could not be made"))?;
        unread.answer(&answer);
        let mut answer = Response::new(answer);
        answer.extensions_mut().insert(unread);
        Ok(answer)
    }

    /// A recent copy of all jobs, for a caller that has listings left.
    async fn look(&self, caller: &Caller) -> Result<Arc<Snapshot>, Status> {
        let now = self.clock.now();
        self.meter.list(now, caller.holder).map_err(|used_up| self.exhausted(used_up))?;
        let take = || {
            let began = self.clock.now();
            let view = self.desk().registry.view(began);
            (view, self.clock.now().since(began))
        };
        Ok(self.snapshots.get(now, &self.plane, take).await)
    }

    fn open_stream(&self, caller: &Caller) -> Result<StreamPermit, Status> {
        let opened = self.meter.open(self.clock.now(), caller.holder);
        opened.map_err(|used_up| self.exhausted(used_up))
    }

    fn exhausted(&self, (reason, text): (Reason, String)) -> Status {
        self.refused.count(reason);
        Status::resource_exhausted(text)
    }

    /// The status of a refusal, which is counted.
    fn refused(&self, refusal: Refusal) -> Status {
        if let Some(reason) = refusal.reason() {
            self.refused.count(reason);
        }
        refused(refusal)
    }

    /// Both sides learn that they do not understand each other: the operator from a line, the rank from the status.
    // spec: E-05
    fn misunderstood(&self, name: &str, error: VersionError) -> Status {
        self.refused.count(Reason::Version);
        let name = printable(name);
        self.desk().warn(format!("job {name:?}: a rank was refused: {error}"));
        Status::failed_precondition(error.to_string())
    }
}

/// The stream of a rank, as its listener sees it.
struct Listening {
    link: LinkId,
    watch: Watch,
    failure_after: Span,
    /// Resolves when the service has ended the stream.
    closed: oneshot::Receiver<()>,
    /// Counts the stream until it ends.
    permit: StreamPermit,
    /// Large messages that were not read.
    unread: Unread,
    /// Memory that they may take.
    rooms: Rooms,
}

/// Stream in place of a rank's [`Messages`].
type Answers = Empty<Result<v1::ToRank, Status>>;

#[tonic::async_trait]
impl Control for Shell {
    type AttendStream = Answers;

    async fn register(
        &self,
        request: Request<v1::RegisterRequest>,
    ) -> Result<Response<v1::RegisterResponse>, Status> {
        let caller = caller_of(request.extensions())?;
        let request = request.into_inner();
        let theirs = Versions::from_message(request.versions);
        Versions::check(theirs, Versions::OWN)
            .map_err(|error| self.misunderstood(&request.name, error))?;
        let wanted = convert::registration(request).map_err(malformed)?;
        self.check_time(&caller)?;
        let job = self.timed(caller.holder, |service| {
            service.tell(|registry, now| registry.register(now, &caller, wanted))
        });
        let job = job.map_err(|refusal| self.refused(refusal))?;
        Ok(Response::new(convert::to_registered(job)))
    }

    async fn attend(
        &self,
        request: Request<Streaming<v1::FromRank>>,
    ) -> Result<Response<Answers>, Status> {
        let (watch, caller) = (watch_of(request.extensions()), caller_of(request.extensions())?);
        let permit = self.open_stream(&caller)?;
        let mut inbound = request.into_inner();
        let first = time::timeout(JOIN_WITHIN, inbound.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("a stream begins with a join"))?;
        let said = first?.map(convert::read_from_rank).transpose().map_err(malformed)?;
        let Some(StreamMessage::Join(join)) = said else {
            return Err(Status::invalid_argument("a stream begins with a join"));
        };
        let is_back = self.desk().registry.is_back(&join);
        if watch.is_kept() && !is_back {
            let text =
                "the server has no descriptors left for new connections: raise its `ulimit -n`";
            return Err(self.exhausted((Reason::Descriptors, text.into())));
        }
        self.check_time(&caller)?;
        let attended = self.timed(caller.holder, |service| service.attend(&caller, join));
        let attended = attended.map_err(|refusal| self.refused(refusal))?;
        let desk::Stream { link, failure_after, messages, unread, closed } = attended;
        // A connection that may not stay is closed soon.
        let _ = watch.prove(caller.holder, is_back);
        watch.set_failure_after(failure_after);
        let rooms = permit.rooms(self.clock.now());
        let (meter, clock, holder) = (self.meter.clone(), self.clock, caller.holder);
        let spend = Box::new(move |time| meter.spend(clock.now(), holder, time));
        let answers = unread::Answers::new(messages, rooms.clone(), unread.clone(), clock, spend);
        let sent = unread.clone();
        let listening = Listening { link, watch, failure_after, closed, permit, unread, rooms };
        self.spawn(self.clone().listen(listening, inbound));
        let mut response = Response::new(tokio_stream::empty());
        response.extensions_mut().insert(sent);
        response.extensions_mut().insert(Messages::new(answers));
        Ok(response)
    }

    async fn topology(
        &self,
        request: Request<v1::TopologyRequest>,
    ) -> Result<Response<v1::TopologyResponse>, Status> {
        let (watch, caller) = (watch_of(request.extensions()), caller_of(request.extensions())?);
        let (seen, holder) = (self.look(&caller).await?, caller.holder);
        let most_bytes = seen.view.topology_bytes(&caller);
        self.counted((watch, holder), most_bytes, move || seen.view.topology(&caller)).await
    }

    async fn health(
        &self,
        _: Request<v1::HealthRequest>,
    ) -> Result<Response<v1::HealthResponse>, Status> {
        let desk = self.desk();
        Ok(Response::new(v1::HealthResponse {
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_ms: milliseconds(desk.clock.elapsed()),
            jobs: desk.registry.jobs() as u32,
        }))
    }

    async fn statistics(
        &self,
        request: Request<v1::StatisticsRequest>,
    ) -> Result<Response<v1::StatisticsResponse>, Status> {
        let (watch, caller) = (watch_of(request.extensions()), caller_of(request.extensions())?);
        let only = request.into_inner().job.map(JobId);
        let (seen, holder) = (self.look(&caller).await?, caller.holder);
        let most_bytes = seen.view.statistics_bytes(&caller, only, &seen.counters);
        let answer = move || seen.view.statistics(&caller, only, &seen.counters);
        self.counted((watch, holder), most_bytes, answer).await
    }
}

fn malformed(error: Malformed) -> Status {
    Status::invalid_argument(error.to_string())
}

/// Tells a client whether it may try again.
fn refused(refusal: Refusal) -> Status {
    let code = match &refusal {
        Refusal::Name { .. } | Refusal::Settings(_) | Refusal::UnknownRank { .. } => {
            Code::InvalidArgument
        }
        Refusal::Differs { .. }
        | Refusal::NameTaken { .. }
        | Refusal::SameNode { .. }
        | Refusal::ServersNode { .. }
        | Refusal::SwitchsNode { .. }
        | Refusal::Node { .. }
        | Refusal::Moved { .. }
        | Refusal::Threads { .. } => Code::FailedPrecondition,
        Refusal::Ticket
        | Refusal::Ended
        | Refusal::NotCovered { .. }
        | Refusal::RanksOfToken { .. } => Code::PermissionDenied,
        Refusal::TooManyJobs
        | Refusal::TooManyRanks
        | Refusal::JobsOfToken { .. }
        | Refusal::Unattended { .. }
        | Refusal::RanksInJobs { .. } => Code::ResourceExhausted,
        Refusal::UnknownJob => Code::NotFound,
        // The job that has the rank may fail or end.
        Refusal::Taken { .. } | Refusal::NotYours { .. } => Code::AlreadyExists,
        Refusal::Ending => Code::Aborted,
    };
    Status::new(code, refusal.to_string())
}
