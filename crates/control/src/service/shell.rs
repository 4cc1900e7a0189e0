//! The service's face: requests in, answers out.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thalweg_core::{JobId, Span};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{self, MissedTickBehavior};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::server::TlsConnectInfo;
use tonic::{Code, Extensions, Request, Response, Status, Streaming};

use super::desk::{self, Desk, Errand};
use crate::clock::milliseconds;
use crate::connection::Watch;
use crate::convert::{self, Malformed, Said};
use crate::registry::{Ending, LinkId, Refusal};
use crate::v1;
use crate::v1::control_server::Control;

/// How long a stream may take to say who it is.
const JOIN_WITHIN: Duration = Duration::from_secs(10);

/// How often a kernel is asked whether the other one answers.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A handle of the desk. All handles are used by one thread.
#[derive(Clone)]
pub(super) struct Shell {
    desk: Arc<Mutex<Desk>>,
    /// Gets a message when a part of the service has panicked.
    broken: mpsc::UnboundedSender<()>,
}

impl Shell {
    /// A handle, and what gets a message when a part of the service has panicked.
    pub(super) fn new(desk: Desk) -> (Shell, mpsc::UnboundedReceiver<()>) {
        let (broken, panics) = mpsc::unbounded_channel();
        (Shell { desk: Arc::new(Mutex::new(desk)), broken }, panics)
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
            Errand::List { answer } => {
                // Who no longer waits does not need it.
                let _ = answer.send(registry.summaries());
            }
        });
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
        let Listening { link, watch, failure_after, mut closed } = stream;
        let mut looks = time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ending = loop {
            let message = tokio::select! {
                message = inbound.message() => message,
                _ = looks.tick() => match watch.silence(failure_after) {
                    Some(silence) => break Ending::Silent(silence),
                    None => continue,
                },
                _ = &mut closed => return,
            };
            let said = match message {
                Ok(Some(message)) => convert::said(message),
                Ok(None) | Err(_) => break Ending::Closed,
            };
            // A second join is as much nonsense as anything else.
            let Ok(Said::Later(said)) = said else { break Ending::Closed };
            self.desk().tell(|registry, now| registry.hear(now, link, said));
        };
        self.desk().hang_up(link, ending);
    }
}

/// The stream of a rank, as its listener sees it.
struct Listening {
    link: LinkId,
    watch: Watch,
    failure_after: Span,
    /// Resolves when the service has ended the stream.
    closed: oneshot::Receiver<()>,
}

type Answers = Pin<Box<dyn Stream<Item = Result<v1::ToRank, Status>> + Send>>;

#[tonic::async_trait]
impl Control for Shell {
    type AttendStream = Answers;

    async fn register(
        &self,
        request: Request<v1::RegisterRequest>,
    ) -> Result<Response<v1::RegisterResponse>, Status> {
        let wanted = convert::registration(request.into_inner()).map_err(malformed)?;
        let job = self.desk().tell(|registry, now| registry.register(now, wanted));
        Ok(Response::new(v1::RegisterResponse { job: job.map_err(refused)?.0 }))
    }

    async fn attend(
        &self,
        request: Request<Streaming<v1::FromRank>>,
    ) -> Result<Response<Answers>, Status> {
        let watch = watch_of(request.extensions());
        let mut inbound = request.into_inner();
        let first = time::timeout(JOIN_WITHIN, inbound.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("a stream begins with a join"))?;
        let said = first?.map(convert::said).transpose().map_err(malformed)?;
        let Some(Said::Join(join)) = said else {
            return Err(Status::invalid_argument("a stream begins with a join"));
        };
        let attended = self.desk().attend(join).map_err(refused)?;
        let desk::Stream { link, failure_after, messages, closed } = attended;
        watch.set_failure_after(failure_after);
        let listening = Listening { link, watch, failure_after, closed };
        self.spawn(self.clone().listen(listening, inbound));
        // Turned into what travels only when it does: a set-up is large, and everybody gets it.
        let answers = ReceiverStream::new(messages).map(|told| Ok(convert::to_told(&told)));
        Ok(Response::new(Box::pin(answers)))
    }

    async fn topology(
        &self,
        _: Request<v1::TopologyRequest>,
    ) -> Result<Response<v1::TopologyResponse>, Status> {
        Ok(Response::new(self.desk().registry.topology()))
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
        let only = request.into_inner().job.map(JobId);
        let desk = self.desk();
        let counters = |job| {
            let counter = |(name, value)| v1::Counter { name, value };
            desk.plane.counters(job).into_iter().map(counter).collect()
        };
        let mut jobs = desk.registry.statistics(desk.clock.now(), only);
        jobs.iter_mut().for_each(|job| job.counters = counters(Some(JobId(job.job))));
        Ok(Response::new(v1::StatisticsResponse { jobs, counters: counters(None) }))
    }
}

/// The connection of a request, encrypted or not.
fn watch_of(extensions: &Extensions) -> Watch {
    let encrypted = extensions.get::<TlsConnectInfo<Watch>>().map(TlsConnectInfo::get_ref);
    extensions.get::<Watch>().or(encrypted).cloned().unwrap_or_default()
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
        | Refusal::Moved { .. } => Code::FailedPrecondition,
        Refusal::Ticket => Code::PermissionDenied,
        Refusal::TooManyJobs | Refusal::TooManyRanks => Code::ResourceExhausted,
        Refusal::UnknownJob => Code::NotFound,
        Refusal::Taken { .. } => Code::AlreadyExists,
        Refusal::Ending => Code::Aborted,
    };
    Status::new(code, refusal.to_string())
}
