//! The thread behind an attendance: connects, talks, connects again.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thalweg_aggregate::join::Process;
use thalweg_core::{JobId, Span, Time};
use tokio::sync::mpsc;
use tokio::time::{self, Interval, MissedTickBehavior};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use super::further::Further;
use super::rounds::Rounds;
use super::{AttendConfig, ControlEvent, Watermarks};
use crate::access::{Door, chain};
use crate::clock::{Clock, milliseconds};
use crate::connection::Watch;
use crate::convert;
use crate::message::{FromRank, Join, Progress, RankTicket, Ticket, ToRank};
use crate::registry::Registration;
use crate::settings::Settings;
use crate::v1;

/// Time between two tries.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// Longest time of one try.
const TRY_WITHIN: Span = Span::from_s(5);

/// Time between two messages that show the service that the rank lives.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// Time between two events that say that the service is out of reach.
const TOLD_EVERY: Span = Span::from_s(1);

/// Time that a rank that leaves has to report it.
const LEAVE_WITHIN: Span = Span::from_ms(500);

/// The shortest time that a try gets.
const TRY_LEAST: Span = Span::from_ms(300);

/// Time that the rest of a stream may take whose other end does not listen.
const REST_WITHIN: Duration = Duration::from_secs(1);

/// Number of jobs whose tickets are kept.
const TICKETS_MAX: usize = 4;

/// Messages that may wait for a service that does not listen before the stream is given up.
const QUEUE_MESSAGES: usize = 1_024;

pub(super) struct Call {
    config: AttendConfig,
    door: Door,
    commands: mpsc::UnboundedReceiver<(u32, FromRank)>,
    watermarks: Arc<Mutex<Watermarks>>,
    events: Box<dyn FnMut(u32, ControlEvent) + Send>,
    clock: Clock,
    /// The job as last registered.
    job: Option<JobId>,
    /// From the welcome on.
    ticket: Option<Ticket>,
    /// Of the rank, in the last jobs that it has joined: the members of an earlier one may come back.
    rank_tickets: Vec<RankTicket>,
    /// By tree.
    rounds: Vec<Rounds>,
    /// The last progress of the application's first thread, and its time.
    progress: (Time, Progress),
    further: Further,
    /// Message that ends the job, until the service knows.
    failing: Option<FromRank>,
    /// Number of operations, and when to stop trying to leave. `None` while it stays.
    leaving: Option<(u64, Time)>,
}

/// End of a connection, or of a try at one.
enum End {
    /// There is nothing more to do.
    Over,
    /// Worth another try.
    Broken(String),
    /// The service does not want us.
    Refused(String),
    /// The kernel of the service has not answered for this long.
    Silent(Span),
}

/// An open connection.
struct Line {
    watch: Watch,
    inbound: Streaming<v1::ToRank>,
    outbound: mpsc::Sender<v1::FromRank>,
}

impl Call {
    pub(super) fn new(
        config: AttendConfig,
        door: Door,
        commands: mpsc::UnboundedReceiver<(u32, FromRank)>,
        watermarks: Arc<Mutex<Watermarks>>,
        events: Box<dyn FnMut(u32, ControlEvent) + Send>,
    ) -> Call {
        let clock = Clock::start();
        Call {
            rank_tickets: Vec::from_iter(config.ticket),
            config,
            door,
            commands,
            watermarks,
            events,
            clock,
            job: None,
            ticket: None,
            rounds: Vec::new(),
            progress: (clock.now(), Progress::default()),
            further: Further::default(),
            failing: None,
            leaving: None,
        }
    }

    pub(super) async fn run(mut self) {
        let mut away = self.clock.now();
        let mut told = None;
        loop {
            let (end, was_there) = match self.connect(away).await {
                Ok(line) => (self.talk(line).await, true),
                Err(end) => (end, false),
            };
            if was_there {
                (away, told) = (self.clock.now(), None);
            }
            let text = match end {
                End::Over => return,
                End::Refused(text) => {
                    return self.report(ControlEvent::GaveUp { text, is_refused: true });
                }
                End::Silent(silence) => {
                    away = Time::from_ps(away.as_ps().saturating_sub(silence.as_ps()));
                    "its host does not answer".into()
                }
                End::Broken(text) => text,
            };
            if self.give_up(away, &mut told, text) || self.wait().await {
                return;
            }
        }
    }

    /// Time for which the service is looked for. One that was never there may start later than its ranks; one that was
    /// there and is gone has died, also while a job gathers.
    // spec: E-01, E-02
    fn looks_for(&self) -> Span {
        let Settings { failure_after, join_timeout, .. } = self.config.settings;
        if self.job.is_some() { failure_after } else { join_timeout }
    }

    /// Tells the application that the service is away, or that this was too long. Whether it was.
    fn give_up(&mut self, away: Time, told: &mut Option<Time>, text: String) -> bool {
        let now = self.clock.now();
        if self.leaving.is_some_and(|(_, leaving)| now >= leaving) {
            return true;
        }
        let since = now.since(away);
        if since >= self.looks_for() {
            let (endpoint, seconds) = (&self.config.access.endpoint, since.as_s_f64());
            let text =
                format!("no connection to the server at {endpoint} for {seconds:.1} s: {text}");
            self.report(ControlEvent::GaveUp { text, is_refused: false });
            return true;
        }
        if told.is_none_or(|told| now.since(told) >= TOLD_EVERY) {
            *told = Some(now);
            self.report(ControlEvent::Disconnected { since, text });
        }
        false
    }

    /// The rounds of a tree. Messages have at most as many trees as there can be.
    fn rounds_of(&mut self, tree: u32) -> &mut Rounds {
        let at = tree as usize;
        if self.rounds.len() <= at {
            self.rounds.resize(at + 1, Rounds::default());
        }
        &mut self.rounds[at]
    }

    /// Tells the application something about the job.
    fn report(&mut self, event: ControlEvent) {
        (self.events)(0, event);
    }

    /// Waits a little. Whether that is all there is to do.
    async fn wait(&mut self) -> bool {
        let mut pause = pin!(time::sleep(RETRY_AFTER));
        loop {
            tokio::select! {
                () = &mut pause => return false,
                command = self.commands.recv() => if self.keep(command) {
                    return true;
                },
            }
        }
    }

    /// Keeps what has to be sent later. Returns true if the sender of commands is gone.
    fn keep(&mut self, command: Option<(u32, FromRank)>) -> bool {
        let Some((tree, message)) = command else { return true };
        match message {
            FromRank::Progress(progress) if tree == 0 => {
                self.progress = (self.clock.now(), progress);
            }
            end @ (FromRank::Failing(_) | FromRank::Aborting { .. }) => {
                self.failing.get_or_insert(end);
            }
            FromRank::Leave { operations } => {
                self.leaving = Some((operations, self.clock.now() + LEAVE_WITHIN));
            }
            FromRank::Answer { round, .. } => self.rounds_of(tree).answer(round),
            FromRank::Progress(progress) => {
                self.further.keep(tree, progress);
            }
            // They are repeated.
            FromRank::Stalled(_) | FromRank::Operation { .. } | FromRank::Paths { .. } => {}
        }
        false
    }

    /// Tries to connect, for no longer than the service is looked for since it was away.
    async fn connect(&mut self, away: Time) -> Result<Line, End> {
        let tickets = self.rank_tickets.clone();
        let attempt = attempt(self.door.clone(), self.registration(), self.join(), tickets);
        let mut attempt = pin!(attempt);
        let began = self.clock.now();
        let end = (began + TRY_WITHIN).min((away + self.looks_for()).max(began + TRY_LEAST));
        let result = loop {
            let end = self.leaving.map_or(end, |(_, leaving)| end.min(leaving));
            let left = milliseconds(end.since(self.clock.now()));
            tokio::select! {
                result = &mut attempt => break result,
                () = time::sleep(Duration::from_millis(left)) => {
                    let tried = self.clock.now().since(began).as_s_f64();
                    break Err(End::Broken(format!("nothing came within {tried:.1} s")));
                }
                command = self.commands.recv() => {
                    if self.keep(command) {
                        return Err(End::Over);
                    }
                }
            }
        };
        let (job, line) = result?;
        line.watch.set_failure_after(self.config.settings.failure_after);
        if self.job.replace(job) != Some(job) {
            self.rounds.clear();
        }
        Ok(line)
    }

    fn registration(&self) -> Registration {
        Registration {
            name: self.config.name.clone(),
            workers: self.config.workers,
            settings: self.config.settings.clone(),
            resume: self.ticket,
        }
    }

    fn join(&self) -> Join {
        let watermarks = self.watermarks.lock().unwrap_or_else(PoisonError::into_inner);
        let resume = |(tree, rounds): (u32, &Rounds)| rounds.resume(watermarks.get(&tree).copied());
        // A welcome has named the rounds of all trees.
        let resumes = self.ticket.map(|_| (0..).zip(&self.rounds).map(resume).collect());
        Join {
            // Filled in when the job is registered.
            job: JobId::default(),
            rank: self.config.rank,
            process: Process { node: self.config.node, life: self.config.life },
            host: self.config.host.clone(),
            switch: self.config.switch,
            resumes: resumes.unwrap_or_default(),
            ticket: None,
            more_nodes: self.config.more_nodes.clone(),
            mtu_bytes: self.config.mtu_bytes,
        }
    }

    async fn talk(&mut self, mut line: Line) -> End {
        match self.converse(&mut line).await {
            // The reason may be in its last message.
            End::Broken(text) => {
                let rest = time::timeout(REST_WITHIN, self.hear_rest(&mut line)).await;
                rest.ok().flatten().unwrap_or(End::Broken(text))
            }
            end => end,
        }
    }

    async fn converse(&mut self, line: &mut Line) -> End {
        let mut heartbeat = heartbeat();
        if let Some(end) = self.catch_up(line) {
            return end;
        }
        loop {
            if let Some((_, leaving)) = self.leaving {
                let left = milliseconds(leaving.since(self.clock.now()));
                return leave(line, Duration::from_millis(left)).await;
            }
            let end = tokio::select! {
                message = line.inbound.message() => self.hear(message),
                command = self.commands.recv() => match command {
                    // The application is gone; the service will notice.
                    None => Some(End::Over),
                    Some((tree, message)) => self.say(line, tree, message),
                },
                _ = heartbeat.tick() => self.beat(line),
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Takes in what is left of a stream that nobody reads at the other end.
    async fn hear_rest(&mut self, line: &mut Line) -> Option<End> {
        while let Ok(Some(message)) = line.inbound.message().await {
            let end = self.hear(Ok(Some(message)));
            if end.is_some() {
                return end;
            }
        }
        None
    }

    /// Sends what was kept while there was no connection.
    fn catch_up(&mut self, line: &Line) -> Option<End> {
        let failing = self.failing.as_ref().map(|failing| line.say(0, failing));
        let leaving = self.leaving.map(|(operations, _)| FromRank::Leave { operations });
        failing.or_else(|| leaving.map(|leaving| line.say(0, &leaving))).flatten()
    }

    fn say(&mut self, line: &Line, tree: u32, message: FromRank) -> Option<End> {
        // Further threads take turns at heartbeats.
        let waits = tree > 0 && matches!(message, FromRank::Progress(_));
        let end = if waits { None } else { line.say(tree, &message) };
        self.keep(Some((tree, message)));
        end
    }

    fn beat(&mut self, line: &Line) -> Option<End> {
        if let Some(silence) = line.watch.silence(self.config.settings.failure_after) {
            return Some(End::Silent(silence));
        }
        // A service that is stopped misses heartbeats, and keeps its stream.
        if line.outbound.capacity() <= QUEUE_MESSAGES / 2 {
            return None;
        }
        let (at, progress) = self.progress;
        let since = progress.since + self.clock.now().since(at);
        let end = line.say(0, &FromRank::Progress(Progress { since, ..progress }));
        let further = self.further.next();
        let say = |(tree, progress)| line.say(tree, &FromRank::Progress(progress));
        end.or_else(|| further.and_then(say))
    }

    fn hear(&mut self, message: Result<Option<v1::ToRank>, Status>) -> Option<End> {
        let read = match message {
            Ok(Some(message)) => convert::read_to_rank(message),
            Ok(None) => return Some(End::Broken("the server ended the stream".into())),
            Err(status) => return Some(ended(&status)),
        };
        let (tree, told) = match read {
            Ok(read) => read,
            Err(error) => return Some(End::Refused(format!("the server: {error}"))),
        };
        if let ToRank::Welcome(welcome) = &told {
            for (tree, round) in (0..).zip(&welcome.rounds) {
                self.rounds_of(tree).hear(*round);
            }
        }
        if !self.rounds_of(tree).admit(&told) {
            return None;
        }
        let event = match told {
            ToRank::Joined { ticket } => {
                self.rank_tickets.retain(|known| known.job != ticket.job);
                self.rank_tickets.truncate(TICKETS_MAX - 1);
                self.rank_tickets.insert(0, ticket);
                ControlEvent::Joined { ticket }
            }
            ToRank::Welcome(welcome) => {
                self.ticket = Some(welcome.ticket);
                ControlEvent::Welcome(welcome)
            }
            ToRank::Waiting { missing } => ControlEvent::Waiting { missing },
            ToRank::ProbePaths { round, mtu_bytes, nodes } => {
                ControlEvent::ProbePaths { round, mtu_bytes, nodes }
            }
            ToRank::PathMtu { mtu_bytes } => ControlEvent::PathMtu { mtu_bytes },
            ToRank::Report { round, seat } => ControlEvent::Report { round, seat },
            ToRank::Adopt { seat, key, setup } => ControlEvent::Adopt { setup, seat, key },
            ToRank::Retire { round } => ControlEvent::Retire { round },
            ToRank::Diagnosis(diagnosis) => ControlEvent::Diagnosis(diagnosis),
            ToRank::ReportOperations => ControlEvent::ReportOperations,
            ToRank::Left { rank, operations } => ControlEvent::Left { rank, operations },
            ToRank::Failed(failure) => {
                self.report(ControlEvent::Failed(failure));
                return Some(End::Over);
            }
        };
        (self.events)(tree, event);
        None
    }
}

impl Line {
    /// Says something without waiting.
    fn say(&self, tree: u32, message: &FromRank) -> Option<End> {
        let sent = self.outbound.try_send(convert::write_from_rank(tree, message));
        sent.is_err().then(|| End::Broken("the server does not listen".into()))
    }
}

/// Waits until the service knows that this rank leaves.
async fn leave(line: &mut Line, within: Duration) -> End {
    let end = async { while let Ok(Some(_)) = line.inbound.message().await {} };
    let _ = time::timeout(within, end).await;
    End::Over
}

async fn attempt(
    door: Door,
    registration: Registration,
    mut join: Join,
    tickets: Vec<RankTicket>,
) -> Result<(JobId, Line), End> {
    let opened = door.open().await;
    let (mut client, watch) = opened.map_err(|error| End::Broken(chain(&error)))?;
    let request = convert::to_registration(&registration);
    let registered = client.register(request).await.map_err(|status| ended(&status))?.into_inner();
    join.job = convert::registered(registered).map_err(|error| End::Refused(error.to_string()))?;
    // The ticket of a rank in another job says nothing in this one.
    join.ticket = tickets.into_iter().find(|ticket| ticket.job == join.job);
    let (outbound, messages) = mpsc::channel(QUEUE_MESSAGES);
    // The queue is empty.
    let _ = outbound.try_send(convert::to_join(&join));
    let attended = client.attend(ReceiverStream::new(messages)).await;
    let inbound = attended.map_err(|status| ended(&status))?.into_inner();
    Ok((join.job, Line { watch, inbound, outbound }))
}

/// Returns the end that a status means: it may be worth another try.
fn ended(status: &Status) -> End {
    let text = status.message().to_owned();
    match status.code() {
        Code::InvalidArgument
        | Code::FailedPrecondition
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Unimplemented => End::Refused(text),
        _ => End::Broken(text),
    }
}

fn heartbeat() -> Interval {
    let mut heartbeat = time::interval(HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    heartbeat
}
