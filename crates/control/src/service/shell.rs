//! The service's face: requests in, answers out.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thalweg_core::JobId;
use tokio::sync::oneshot;
use tokio::time;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Request, Response, Status, Streaming};

use super::desk::{self, Desk, Errand};
use crate::clock::milliseconds;
use crate::convert::{self, Malformed, Said};
use crate::message::FailureKind;
use crate::registry::{LinkId, Refusal};
use crate::v1;
use crate::v1::control_server::Control;

/// How long a stream may take to say who it is.
const JOIN_WITHIN: Duration = Duration::from_secs(10);

/// A handle of the desk. All handles are used by one thread.
#[derive(Clone)]
pub(super) struct Shell {
    desk: Arc<Mutex<Desk>>,
}

impl Shell {
    pub(super) fn new(desk: Desk) -> Shell {
        Shell { desk: Arc::new(Mutex::new(desk)) }
    }

    pub(super) fn tick(&self) {
        self.desk().tell(|registry, now| registry.tick(now));
    }

    pub(super) fn run(&self, errand: Errand) {
        self.desk().tell(|registry, now| match errand {
            Errand::Missing { job, sequence, missing } => {
                registry.explain(now, job, sequence, missing);
            }
            Errand::Fail { job, text } => {
                registry.fail_job(now, job, FailureKind::Internal, text);
            }
            Errand::Compare { job } => registry.compare_operations(job),
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
        // What a panic left behind is still the best there is.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears a rank until its stream ends.
    async fn listen(
        self,
        link: LinkId,
        mut closed: oneshot::Receiver<()>,
        mut inbound: Streaming<v1::FromRank>,
    ) {
        loop {
            let message = tokio::select! {
                message = inbound.message() => message,
                _ = &mut closed => return,
            };
            let said = match message {
                Ok(Some(message)) => convert::said(message),
                Ok(None) | Err(_) => break,
            };
            // A second join is as much nonsense as anything else.
            let Ok(Said::Later(said)) = said else { break };
            self.desk().tell(|registry, now| registry.hear(now, link, said));
        }
        self.desk().hang_up(link);
    }
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
        let mut inbound = request.into_inner();
        let first = time::timeout(JOIN_WITHIN, inbound.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("a stream begins with a join"))?;
        let said = first?.map(convert::said).transpose().map_err(malformed)?;
        let Some(Said::Join(join)) = said else {
            return Err(Status::invalid_argument("a stream begins with a join"));
        };
        let desk::Stream { link, messages, closed } = self.desk().attend(join).map_err(refused)?;
        tokio::spawn(self.clone().listen(link, closed, inbound));
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
