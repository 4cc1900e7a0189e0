//! A board as a service.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use thalweg_pace::board::{Route, Stats, Wrong};
use thalweg_pace::{Board, Settings};
use tokio::sync::{mpsc, oneshot};
use tokio::time;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::InterceptorLayer;
use tonic::{Request, Response, Status};

use super::convert::Malformed;
use super::desk::{self, RequestError};
use super::{MESSAGE_BYTES_MAX, current_slot};
use crate::budget::{Budgets, CallBudgets, CallRate};
use crate::credentials::{Credentials, InForce};
use crate::service::{Acceptor, Ground, STOP_AFTER, ServiceError, Stage, TlsFiles};
use crate::v1;
use crate::v1::pacing_server::{Pacing, PacingServer};

/// Settings of a [`PacingService`].
pub struct PacingConfig {
    /// Address to listen on. Beyond loopback every caller needs a token.
    pub bind: SocketAddr,
    /// Credentials that callers need. Of signed tokens only those of operators are taken: an agent plans for all jobs of
    /// its host.
    pub credentials: Credentials,
    /// Certificate of the service, if it has one: then connections are encrypted.
    pub tls: Option<TlsFiles>,
    /// Settings that all hosts agree on.
    pub settings: Settings,
    /// The links of the switch.
    pub routes: Vec<Route>,
    /// Gets lines that are worth telling an operator. Called from the service's thread.
    pub on_note: Box<dyn Fn(String) + Send>,
}

/// A running service. Stops when dropped.
#[derive(Debug)]
pub struct PacingService {
    local_address: SocketAddr,
    board: Shared,
    credentials: InForce,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The board. Only counters are read from other threads than the service's.
#[derive(Clone, Debug)]
struct Shared(Arc<Mutex<Board>>);

impl PacingService {
    /// Starts a service in a thread of its own. Returns when it listens.
    pub fn start(config: PacingConfig) -> Result<PacingService, ServiceError> {
        let PacingConfig { bind, credentials, tls, settings, routes, on_note } = config;
        let ground = Ground::prepare(bind, &credentials, &budgets(), tls.as_ref())?;
        let local_address = ground.local_address;
        let credentials = ground.guard.credentials.clone();
        ground.warnings.iter().cloned().for_each(&on_note);
        let board = Shared(Arc::new(Mutex::new(Board::new(settings, routes))));
        let (stop, stopped) = oneshot::channel();
        let served = board.clone();
        let body = move || ground.run(|stage| run(stage, served, on_note, stopped));
        let thread = thread::Builder::new().name("thalweg-pacing".into()).spawn(body);
        let thread = thread.map_err(ServiceError::Thread)?;
        let (stop, thread) = (Some(stop), Some(thread));
        Ok(PacingService { local_address, board, credentials, stop, thread })
    }

    /// Replaces the credentials that callers need. Connections that are there stay.
    ///
    /// # Errors
    ///
    /// Credentials that a service would not start with. Then those before stay in force.
    pub fn replace_credentials(&self, credentials: &Credentials) -> Result<(), ServiceError> {
        self.credentials.replace(credentials, self.local_address)
    }

    /// Returns the address that it listens on.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// Returns what was counted so far.
    pub fn stats(&self) -> Stats {
        self.board.lock().stats()
    }

    /// Returns whether it serves.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for PacingService {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
    }
}

/// Limits of callers, who are operators. Every agent asks twice in each slot, so that the number of calls grows with that
/// of hosts.
fn budgets() -> Budgets {
    let (calls, calls_in_total) = (
        CallRate { per_s: 100_000, burst: 100_000 },
        CallRate { per_s: u32::MAX, burst: u32::MAX },
    );
    let calls = CallBudgets { calls, calls_in_total, ..CallBudgets::default() };
    Budgets { calls, ..Budgets::default() }
}

async fn run(
    stage: Stage,
    board: Shared,
    on_note: Box<dyn Fn(String) + Send>,
    stopped: oneshot::Receiver<()>,
) {
    let Stage { builder, listener, mut guard, connections } = stage;
    guard.is_for_operators = true;
    let (meter, refused, clock) = (guard.meter.clone(), guard.refused.clone(), guard.clock);
    let pacing = PacingServer::new(board).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let router = builder.layer(InterceptorLayer::new(guard)).add_service(pacing);
    let (end, ended) = oneshot::channel::<()>();
    let (accepted, incoming) = mpsc::channel(1);
    let acceptor = Acceptor {
        connections,
        meter,
        refused,
        note: on_note,
        clock,
        noted: None,
        held: VecDeque::new(),
    };
    tokio::spawn(acceptor.run(listener, accepted));
    let incoming = ReceiverStream::new(incoming);
    let serving = router.serve_with_incoming_shutdown(incoming, async { drop(ended.await) });
    let serving = tokio::spawn(serving);
    let _ = stopped.await;
    drop(end);
    // Connections that do not end by themselves end with the runtime.
    let _ = time::timeout(STOP_AFTER, serving).await;
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Board> {
        // Every call leaves the board whole, or had not begun to change it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// spec: C-10
#[tonic::async_trait]
impl Pacing for Shared {
    async fn fetch_feedback(
        &self,
        request: Request<v1::FetchFeedbackRequest>,
    ) -> Result<Response<v1::FetchFeedbackResponse>, Status> {
        let mut board = self.lock();
        let now = current_slot(board.settings());
        let answered = desk::fetch_feedback(&mut board, now, request.into_inner());
        answered.map(Response::new).map_err(status)
    }

    async fn update_schedule(
        &self,
        request: Request<v1::UpdateScheduleRequest>,
    ) -> Result<Response<v1::UpdateScheduleResponse>, Status> {
        let mut board = self.lock();
        let now = current_slot(board.settings());
        let answered = desk::update_schedule(&mut board, now, request.into_inner());
        answered.map(Response::new).map_err(status)
    }
}

fn status(problem: RequestError) -> Status {
    let text = problem.to_string();
    match problem {
        RequestError::Malformed(Malformed::Slotting { .. })
        | RequestError::Wrong(Wrong::Old { .. } | Wrong::Early { .. }) => {
            Status::failed_precondition(text)
        }
        RequestError::Wrong(Wrong::Replayed { .. }) => Status::already_exists(text),
        RequestError::Wrong(Wrong::Agents(_)) => Status::resource_exhausted(text),
        RequestError::Malformed(_)
        | RequestError::Wrong(Wrong::Flows { .. } | Wrong::Horizon(_) | Wrong::Volume(_)) => {
            Status::invalid_argument(text)
        }
    }
}
