//! The daemon: listens for jobs, asks switches, and carries out decisions.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Shutdown};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use thalweg_control::local::{FromJob, Lines, ToJob, write_line};
use thalweg_control::pacing::{FromSwitch, SwitchLink, since_epoch};
use thalweg_control::{Access, AccessError, random};
use thalweg_core::{NodeId, Rate, Rng, Time};
use thalweg_pace::board::{AgentId, FLOWS_PER_MESSAGE, Plan, Prefix, Question, Update, Verdict};
use thalweg_pace::{Enforce, Settings, Slot};
use thalweg_tagging::{Prioritizer, PriorityConfig, PriorityStats, TaggingError};
use tracing::{info, warn};

use crate::clock::{ClockSet, Reading, SlotClock};
use crate::error::AgentError;
use crate::events::TARGET;
use crate::guardian::{Guardian, Safeguards};
use crate::interface::{self, Interface, Leaf};
use crate::metrics;
use crate::originals;
use crate::pieces::ShortPieces;
use crate::record::Record;
use crate::scheduler::{Client, Output, Scheduler};
use crate::stats::{AgentStats, JobStats, TablesStats};

/// Most connections of jobs.
const CONNECTIONS_MAX: usize = 256;
/// Most inputs that wait. A job that sends faster than the agent reads waits, and fills no memory.
const INBOX: usize = 256;
/// Longest time that a job may not read before it is hung up on: nobody else waits for it.
const WRITE_WITHIN: Duration = Duration::from_millis(5);
/// Time between two messages that renew rates, and the most that the agent sleeps. A few of them may be late before
/// enforcers take the agent for lost.
const RENEW_EVERY: Duration = Duration::from_millis(250);

/// Settings of an [`AgentDaemon`].
pub struct AgentConfig {
    /// Path of the socket that jobs connect to.
    pub socket: PathBuf,
    /// The host's address, from which its flows leave.
    pub address: Ipv4Addr,
    /// The rate of its link.
    pub uplink: Rate,
    /// Settings that all hosts agree on.
    pub settings: Settings,
    /// Switches, and the hosts that they are asked for. Without any the agent goes by the tables of its
    /// own link.
    pub switches: Vec<(Prefix, Access)>,
    /// Precautions for the case that the agent is killed.
    pub safeguards: Safeguards,
    /// Priorities for flows of all programs of the host, if they have any.
    pub priorities: Option<PriorityConfig>,
    /// Gets what became of every slot, for every flow that had something to send.
    pub on_record: Box<dyn FnMut(&Record) + Send>,
}

/// Source of the time of an agent.
type ReadClocks = Box<dyn FnMut() -> Reading + Send>;

/// An agent on its own threads. Stops when dropped, and takes its socket away. Reports [events](crate::events).
pub struct AgentDaemon {
    socket: PathBuf,
    address: Ipv4Addr,
    inputs: SyncSender<Input>,
    threads: Vec<JoinHandle<()>>,
    clients: Clients,
    prioritizer: Option<Prioritizer>,
    _pieces: ShortPieces,
    /// Ended last: until then something is changed on the host.
    _guardian: Option<Guardian>,
}

/// Inputs of the agent's thread.
enum Input {
    Connected(Client, UnixStream),
    Message(Client, FromJob),
    /// It hung up, or sent an invalid message.
    Gone(Client, Option<String>),
    Switch(usize, FromSwitch),
    Count(SyncSender<AgentStats>),
    /// Another token for switches.
    Token(Option<String>, SyncSender<Result<(), AccessError>>),
    Stop,
}

/// Connections of jobs, so that they can be ended.
type Clients = Arc<Mutex<BTreeMap<Client, UnixStream>>>;

impl AgentDaemon {
    /// Listens, and starts.
    pub fn start(config: AgentConfig) -> Result<AgentDaemon, AgentError> {
        let started = instant();
        let read = move || Reading { wall: since_epoch(), steady: started.elapsed() };
        AgentDaemon::start_with(config, Box::new(read))
    }

    fn start_with(config: AgentConfig, mut clocks: ReadClocks) -> Result<AgentDaemon, AgentError> {
        let wrong = |error: &dyn std::fmt::Display| AgentError::Config(error.to_string());
        let clock = SlotClock::new(config.settings.slot, clocks());
        let (base, rng) = (clock.base(), Rng::new(draw()?));
        let scheduler = Scheduler::new(config.address, config.uplink, config.settings, base, &rng)
            .map_err(|error| wrong(&error))?;
        let listener = listen(&config.socket)?;
        let (inputs, inbox) = sync_channel(INBOX);
        let mut switches = Vec::new();
        for (number, (prefix, access)) in config.switches.into_iter().enumerate() {
            let (inputs, name) = (inputs.clone(), access.endpoint.clone());
            let hear = move |words| drop(inputs.send(Input::Switch(number, words)));
            let link = SwitchLink::start(access, config.settings, hear);
            let link = link.map_err(|error| wrong(&error))?;
            switches.push(Switch { prefix, name, link, sequence: 0 });
        }
        originals::restore_left_over(&config.safeguards.state_dir);
        interface::restore_at_start(&config.safeguards.state_dir);
        let guardian = Guardian::start(&config.safeguards)?;
        let pieces = ShortPieces::ask(&config.safeguards.state_dir);
        let by_class = config.settings.enforce == Enforce::Class;
        let wanted = by_class.then(|| (config.uplink, config.safeguards.state_dir.clone()));
        let prioritizer = config.priorities.map(Prioritizer::start).transpose();
        let prioritizer = prioritizer.map_err(tagging_error)?;
        let agent_thread = AgentThread {
            scheduler,
            interface: None,
            wanted,
            clock,
            clocks,
            renewed_at: None,
            agent: AgentId(draw()?),
            address: config.address,
            stats: stats_of(&switches),
            switches,
            streams: BTreeMap::new(),
            on_record: config.on_record,
        };
        let clients = Clients::default();
        let (sender, connections) = (inputs.clone(), Arc::clone(&clients));
        let threads = vec![
            spawn("thalweg-agent", move || agent_thread.run(&inbox))?,
            spawn("thalweg-accept", move || welcome(&listener, &sender, &connections))?,
        ];
        let AgentConfig { socket, address, .. } = config;
        let (_pieces, _guardian) = (pieces, guardian);
        Ok(AgentDaemon {
            socket,
            address,
            inputs,
            threads,
            clients,
            prioritizer,
            _pieces,
            _guardian,
        })
    }

    /// Path of the socket that jobs connect to.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// State and counters of the agent now. `None` if its thread has ended.
    pub fn stats(&self) -> Option<AgentStats> {
        let (answer, answered) = sync_channel(1);
        self.inputs.send(Input::Count(answer)).ok()?;
        answered.recv().ok()
    }

    /// The [metrics](thalweg::metrics) of the agent as they are now. `None` if its thread has ended.
    pub fn metrics(&self) -> Option<String> {
        let priorities = self.priorities();
        self.stats().map(|stats| metrics::agent(self.address, &stats, priorities.as_ref()))
    }

    /// Shows switches another token from now on, over other connections, for which their certificates are read again.
    ///
    /// # Errors
    ///
    /// [`Config`](AgentError::Config) if an agent would not start with it. Then the one before stays in force.
    pub fn replace_token(&self, token: Option<String>) -> Result<(), AgentError> {
        let (answer, answered) = sync_channel(1);
        let _ = self.inputs.send(Input::Token(token, answer));
        // An agent that has ended asks no switch.
        let replaced = answered.recv().unwrap_or(Ok(()));
        replaced.map_err(|error| AgentError::Config(error.to_string()))
    }

    /// State and counters of the part that gives priorities to flows, if there is one.
    pub fn priorities(&self) -> Option<PriorityStats> {
        self.prioritizer.as_ref().map(Prioritizer::stats)
    }

    /// True if all its threads run.
    pub fn is_running(&self) -> bool {
        let is_working = |threads: &[JoinHandle<()>]| threads.iter().all(|one| !one.is_finished());
        is_working(&self.threads) && self.prioritizer.as_ref().is_none_or(Prioritizer::is_running)
    }
}

impl Drop for AgentDaemon {
    fn drop(&mut self) {
        // The thread that accepts wakes up once more, finds that the agent has ended, and ends.
        let _ = self.inputs.send(Input::Stop);
        if let Some(first) = (!self.threads.is_empty()).then(|| self.threads.remove(0)) {
            let _ = first.join();
        }
        let _ = UnixStream::connect(&self.socket);
        let _ = fs::remove_file(&self.socket);
        for stream in lock(&self.clients).values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The thread that decides.
struct AgentThread {
    scheduler: Scheduler,
    /// The interface of the host, where its jobs have classes there.
    interface: Option<Interface>,
    /// Rate of the interface and folder of the file with what was there, until somebody needs classes. `None` where plans
    /// are rates, and once it was tried.
    wanted: Option<(Rate, PathBuf)>,
    clock: SlotClock,
    clocks: ReadClocks,
    /// Moment of the last renewal of rates, by the clock that nobody sets.
    renewed_at: Option<Duration>,
    agent: AgentId,
    address: Ipv4Addr,
    /// Processes and flows of its jobs are read from the scheduler when somebody asks.
    stats: AgentStats,
    switches: Vec<Switch>,
    streams: BTreeMap<Client, UnixStream>,
    on_record: Box<dyn FnMut(&Record) + Send>,
}

struct Switch {
    prefix: Prefix,
    name: String,
    link: SwitchLink,
    sequence: u64,
}

impl AgentThread {
    fn run(mut self, inbox: &Receiver<Input>) {
        loop {
            let now = self.now();
            let due = self.scheduler.poll_timeout().since(now).as_ps() / 1_000;
            let input = match inbox.recv_timeout(Duration::from_nanos(due).min(RENEW_EVERY)) {
                Ok(Input::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(input) => Some(input),
                Err(RecvTimeoutError::Timeout) => None,
            };
            if let Some(input) = input {
                self.take_in(input);
            }
            let now = self.now();
            if self.scheduler.poll_timeout() <= now {
                self.scheduler.handle_timeout(now);
            }
            self.renew(now);
            self.put_out();
        }
    }

    fn now(&mut self) -> Time {
        let set = self.clock.read((self.clocks)());
        if let Some(ClockSet { by_s, base }) = set {
            let address = self.address;
            warn!(
                target: TARGET, %address, event = "clock_set", by_s,
                "the clock of the host was set by {by_s:.3} s: slots have other numbers from now on"
            );
            self.scheduler.set_base(base);
        }
        self.clock.now()
    }

    fn renew(&mut self, now: Time) {
        let steady = (self.clocks)().steady;
        if self.renewed_at.is_none_or(|at| steady.saturating_sub(at) >= RENEW_EVERY) {
            self.renewed_at = Some(steady);
            self.scheduler.renew(now);
        }
    }

    fn take_in(&mut self, input: Input) {
        let now = self.now();
        match input {
            Input::Connected(client, stream) => {
                self.streams.insert(client, stream);
            }
            Input::Message(client, words) => self.handle_message(now, client, words),
            Input::Gone(client, reason) => self.send_off(client, reason),
            Input::Switch(number, words) => self.hear(number, words),
            // A caller that no longer waits does not need them.
            Input::Count(answer) => drop(answer.try_send(self.count())),
            Input::Token(token, answer) => drop(answer.try_send(self.replace_token(&token))),
            Input::Stop => {}
        }
        self.put_out();
    }

    fn replace_token(&self, token: &Option<String>) -> Result<(), AccessError> {
        self.switches.iter().try_for_each(|switch| switch.link.replace_token(token.clone()))
    }

    fn handle_message(&mut self, now: Time, from: Client, message: FromJob) {
        // Messages that were in flight when the process was disconnected do not count.
        if !self.streams.contains_key(&from) {
            return;
        }
        let joining = match &message {
            FromJob::Join { job, .. } => Some(job.clone()),
            _ => None,
        };
        if matches!(message, FromJob::Join { leaf: true, .. }) {
            self.take_interface();
        }
        match self.scheduler.handle_job(now, from, message) {
            Ok(()) => joining.into_iter().for_each(|job| self.note_join(job)),
            Err(reason) => self.send_off(from, Some(reason)),
        }
    }

    fn note_join(&mut self, job: String) {
        let address = self.address;
        info!(target: TARGET, %address, event = "joined", job, "job {job:?} joined");
        self.stats.joins += 1;
        self.stats.jobs.entry(job).or_default();
    }

    fn count(&self) -> AgentStats {
        let mut jobs = self.scheduler.jobs();
        for (name, job) in &mut jobs {
            let counted = self.stats.jobs.get(name).copied().unwrap_or_default();
            let JobStats { asked_bytes, carried_bytes, .. } = counted;
            *job = JobStats { asked_bytes, carried_bytes, ..*job };
        }
        AgentStats { jobs, ..self.stats.clone() }
    }

    /// Ends a connection, and says why if it is the job's fault.
    fn send_off(&mut self, client: Client, reason: Option<String>) {
        let Some(stream) = self.streams.remove(&client) else { return };
        if let Some(reason) = reason {
            let address = self.address;
            warn!(target: TARGET, %address, event = "refused", "a process was refused: {reason}");
            self.stats.refusals += 1;
            let _ = write_line(&stream, &ToJob::Refused { reason });
        }
        let _ = stream.shutdown(Shutdown::Both);
        let now = self.now();
        self.scheduler.forget(now, client);
        self.stats.jobs = self.count().jobs;
    }

    // spec: C-11
    fn hear(&mut self, number: usize, words: FromSwitch) {
        let (now, address) = (self.now(), self.address);
        let switch = self.switches[number].name.as_str();
        let tables = self.stats.switches.entry(switch.to_owned()).or_default();
        match words {
            FromSwitch::Found => {
                tables.is_connected = true;
                info!(
                    target: TARGET, %address, event = "tables_found", switch,
                    "the load tables of {switch} answer"
                );
            }
            FromSwitch::Lost(reason) => {
                *tables = TablesStats { is_connected: false, losses: tables.losses + 1 };
                warn!(
                    target: TARGET, %address, event = "tables_lost", switch,
                    "the load tables of {switch} are lost: {reason}; going on with those of the own link"
                );
            }
            FromSwitch::Refused(reason) => warn!(
                target: TARGET, %address, event = "tables_refused", switch,
                "{switch} refuses: {reason}"
            ),
            FromSwitch::Answers { slot, questions, answers } => {
                self.scheduler.handle_answers(now, number, slot, &questions, answers);
            }
            FromSwitch::Verdicts { update, verdicts } => {
                let is_full = |verdict: &&Verdict| matches!(verdict, Verdict::Full(_));
                self.stats.plans_refused += verdicts.iter().filter(is_full).count() as u64;
                self.scheduler.handle_verdicts(now, &update.plans, &verdicts);
            }
        }
    }

    fn put_out(&mut self) {
        while let Some(output) = self.scheduler.poll() {
            match output {
                Output::Say(client, words) => {
                    self.stats.rates += u64::from(matches!(words, ToJob::Rate { .. }));
                    let written =
                        self.streams.get(&client).map(|stream| write_line(stream, &words));
                    if let Some(Err(_)) = written {
                        self.send_off(client, Some("it does not listen".into()));
                    }
                }
                Output::Ask(slot, questions) => self.ask(slot, &questions),
                Output::Tell(slot, plans) => self.tell(slot, &plans),
                Output::Leaves(leaves) => self.order_leaves(&leaves),
                Output::Note(record) => {
                    if let Some(job) = self.stats.jobs.get_mut(&record.job) {
                        // A job reports what it likes: a sum that is too large is no reason to end.
                        job.asked_bytes = job.asked_bytes.saturating_add(record.asked_bytes);
                        job.carried_bytes = job.carried_bytes.saturating_add(record.carried_bytes);
                    }
                    (self.on_record)(&record);
                }
            }
        }
    }

    /// Puts classes at the interface, when the first job needs them. Without the permission programs keep to rates.
    // spec: C-16
    fn take_interface(&mut self) {
        let Some((uplink, state_dir)) = self.wanted.take() else { return };
        let address = self.address;
        match Interface::take(address, uplink, &state_dir) {
            Ok(interface) => {
                self.interface = Some(interface);
                self.scheduler.offer_leaves();
            }
            Err(error) => warn!(
                target: TARGET, %address, event = "no_classes",
                "the interface of the host gets no classes ({error}): programs under `thalweg agent run` keep to rates"
            ),
        }
    }

    // spec: C-16
    fn order_leaves(&mut self, leaves: &[Leaf]) {
        let ordered = self.interface.as_mut().map(|interface| interface.set(leaves));
        if let Some(Err(error)) = ordered {
            let address = self.address;
            warn!(
                target: TARGET, %address, event = "no_classes",
                "the classes of jobs at the interface cannot be changed ({error}): they are taken away"
            );
            self.interface = None;
        }
    }

    fn ask(&mut self, slot: Slot, questions: &[Question]) {
        for switch in &self.switches {
            let on_way = questions.iter().filter(|question| switch.prefix.contains(question.to));
            let on_way: Vec<Question> = on_way.cloned().collect();
            for questions in on_way.chunks(FLOWS_PER_MESSAGE) {
                self.stats.fetches += 1;
                switch.link.fetch(slot, questions.to_vec());
            }
        }
    }

    fn tell(&mut self, slot: Slot, plans: &[Plan]) {
        for switch in &mut self.switches {
            let on_way = |to: NodeId| switch.prefix.contains(to);
            let on_way = plans.iter().filter(|plan| on_way(plan.to));
            let on_way: Vec<Plan> = on_way.copied().collect();
            for plans in on_way.chunks(FLOWS_PER_MESSAGE) {
                switch.sequence += 1;
                self.stats.updates += 1;
                let (agent, sequence, plans) = (self.agent, switch.sequence, plans.to_vec());
                switch.link.update(Update { agent, sequence, slot, plans });
            }
        }
    }
}

/// The counters of an agent that asks these switches.
fn stats_of(switches: &[Switch]) -> AgentStats {
    let names = switches.iter().map(|switch| switch.name.clone());
    let switches = names.map(|name| (name, TablesStats::default())).collect();
    AgentStats { switches, ..AgentStats::default() }
}

fn tagging_error(error: TaggingError) -> AgentError {
    match error {
        TaggingError::NoInterface(_) => AgentError::Config(error.to_string()),
        TaggingError::System { what, why } => AgentError::System { what, why },
    }
}

/// Listens where nobody else does.
fn listen(socket: &Path) -> Result<UnixListener, AgentError> {
    let at = |what: &str| AgentError::Config(format!("{}: {what}", socket.display()));
    if UnixStream::connect(socket).is_ok() {
        return Err(at("another agent listens there: stop it, or choose another --socket"));
    }
    // What an agent that was killed left behind.
    let is_socket = fs::symlink_metadata(socket)
        .is_ok_and(|data| std::os::unix::fs::FileTypeExt::is_socket(&data.file_type()));
    if is_socket {
        let _ = fs::remove_file(socket);
    }
    let listener = UnixListener::bind(socket)
        .map_err(|error| at(&format!("cannot listen there: {error}; choose another --socket")))?;
    // Users that may write to it may slow jobs down.
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600))
        .map_err(AgentError::system("the socket cannot be protected"))?;
    Ok(listener)
}

/// Takes in jobs until the agent has gone.
fn welcome(listener: &UnixListener, inputs: &SyncSender<Input>, clients: &Clients) {
    for number in 0.. {
        let Ok((stream, _)) = listener.accept() else { continue };
        let client = Client(number);
        if lock(clients).len() >= CONNECTIONS_MAX {
            continue;
        }
        match accept_client(client, &stream, inputs, clients) {
            Ok(()) => {}
            // The agent has gone.
            Err(None) => return,
            Err(Some(_)) => {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

fn accept_client(
    client: Client,
    stream: &UnixStream,
    inputs: &SyncSender<Input>,
    clients: &Clients,
) -> Result<(), Option<io::Error>> {
    stream.set_write_timeout(Some(WRITE_WITHIN))?;
    inputs.send(Input::Connected(client, stream.try_clone()?)).map_err(|_| None)?;
    lock(clients).insert(client, stream.try_clone()?);
    let (lines, inputs, clients) = (stream.try_clone()?, inputs.clone(), Arc::clone(clients));
    let body = move || {
        listen_to(client, lines, &inputs);
        lock(&clients).remove(&client);
    };
    thread::Builder::new().name("thalweg-client".into()).spawn(body)?;
    Ok(())
}

/// Hears a job until it hangs up.
fn listen_to(client: Client, stream: UnixStream, inputs: &SyncSender<Input>) {
    let mut lines = Lines::new(stream);
    let reason = loop {
        match lines.next_line() {
            Ok(Some(words)) => {
                if inputs.send(Input::Message(client, words)).is_err() {
                    return;
                }
            }
            Ok(None) | Err(thalweg_control::local::LineError::Broken(_)) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    let _ = inputs.send(Input::Gone(client, reason));
}

#[expect(clippy::disallowed_methods, reason = "rates are renewed in real time")]
fn instant() -> Instant {
    Instant::now()
}

fn draw() -> Result<u64, AgentError> {
    random::draw().map_err(AgentError::system("the system gives no random numbers"))
}

fn lock(clients: &Clients) -> std::sync::MutexGuard<'_, BTreeMap<Client, UnixStream>> {
    clients.lock().unwrap_or_else(PoisonError::into_inner)
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, AgentError> {
    let thread = thread::Builder::new().name(name.into()).spawn(body);
    thread.map_err(AgentError::system("cannot start a thread"))
}

#[cfg(test)]
mod tests;
