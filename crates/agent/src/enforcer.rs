//! The enforcer: makes a program obey, without its knowledge.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use thalweg_control::local::{AgentLink, Announced, FromJob, Obeys, SILENT_AFTER, ToJob};
use thalweg_control::pacing::since_epoch;
use thalweg_core::Rate;
use tracing::{info, warn};

use super::group::{Group, Members};
use super::guardian::{Guardian, Safeguards};
use super::limits::Limit;
use super::mark::Marker;
use super::originals::{self, Originals};
use super::pieces::ShortPieces;
use super::record::Record;
use super::scan::{Sockets, Total};
use crate::error::AgentError;
use crate::events::TARGET;
use crate::written::WrittenLimits;

/// Time between two looks at connections.
const LOOK_EVERY: Duration = Duration::from_millis(3);
/// Time between two searches for new connections.
const SCAN_EVERY: Duration = Duration::from_millis(15);
/// Longest time for a program that was asked to end.
const PATIENCE: Duration = Duration::from_secs(2);
/// Rate before the agent's first message.
const BEFORE_WELCOME_BPS: u64 = u64::MAX;

/// Settings of a program under an enforcer.
pub struct EnforcerConfig {
    /// Source of its rates.
    pub orders: Orders,
    /// The job's name.
    pub job: String,
    /// Bytes that it sends to each host in an iteration, if that is known.
    pub volume: Option<u64>,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Precautions for the case that this process hangs or is killed.
    pub safeguards: Safeguards,
    /// Returns true once the program should end.
    pub should_stop: Box<dyn Fn() -> bool>,
    /// Gets what became of every slot, where rates are given.
    pub on_record: Box<dyn FnMut(&Record)>,
}

/// Source of a program's rates.
#[derive(Clone, PartialEq, Debug)]
pub enum Orders {
    /// The agent that listens there.
    Agent(PathBuf),
    /// Nobody: all its connections together get these rates, one a slot, over and over.
    Rates {
        /// Duration of a slot. Slots are counted from 1970.
        slot: Duration,
        /// The rates.
        rates: Vec<Rate>,
    },
}

/// A program whose TCP connections obey rates.
pub struct Enforcer {
    config: EnforcerConfig,
    child: Child,
    sockets: Sockets,
    flows: BTreeMap<Ipv4Addr, Flow>,
    agent: Option<Agent>,
    /// Marks packets of the program. `None` without a control group or the permission.
    marker: Option<Marker>,
    idle_bps: u64,
    started: Instant,
    slot: Followed,
    /// The agent has been silent, and nothing is limited.
    is_silent: bool,
    /// Nobody would lift limits for this process, so it sets none.
    is_unguarded: bool,
    /// A limit of the program's own could not be written down, so that none is changed.
    is_unrecorded: bool,
    _pieces: ShortPieces,
    /// Limits that connections had of their own. `None` if they cannot be written down.
    originals: Option<Originals>,
    /// Ended last: until then something is changed on the host.
    guardian: Option<Guardian>,
}

/// The slot that a rate was last given for; 0 before the first.
#[derive(Default)]
struct Followed {
    number: u64,
    /// Bytes that had left when it began.
    sent: u64,
    /// Bytes that should have left when it ends.
    due: u64,
}

struct Flow {
    number: u32,
    limit: Limit,
    total: Total,
    is_announced: bool,
    reported: Option<Total>,
}

struct Agent {
    link: AgentLink,
    words: Receiver<Option<ToJob>>,
    /// Moment of its last message, or of a message that it has to answer.
    received_at: Instant,
}

impl Enforcer {
    /// Starts the program.
    pub fn start(config: EnforcerConfig) -> Result<Enforcer, AgentError> {
        let can_mark = Marker::is_permitted();
        let mut agent = match &config.orders {
            Orders::Agent(socket) => Some(join(socket, &config.job, can_mark)?),
            Orders::Rates { rates, .. } if rates.is_empty() => {
                return Err(AgentError::Config("no rates: give at least one".into()));
            }
            Orders::Rates { .. } => None,
        };
        originals::restore_left_over(&config.safeguards.state_dir);
        let guardian = Guardian::start(&config.safeguards)?;
        let pieces = ShortPieces::ask(&config.safeguards.state_dir);
        let (child, group, reason) = Group::start(&config.command)
            .map_err(|error| AgentError::Config(format!("{:?}: {error}", config.command)))?;
        if let Some(reason) = reason {
            warn!(
                target: TARGET, event = "no_control_group", job = config.job,
                "no control group ({reason}): processes are found by their parents"
            );
        }
        let marker = group.folder().filter(|_| can_mark && agent.is_some());
        let marker = marker.and_then(|folder| Marker::attach(folder).ok());
        if let (Orders::Agent(socket), true, None) = (&config.orders, can_mark, &marker) {
            // Without marks it keeps to rates.
            drop(agent.take());
            agent = Some(join(socket, &config.job, false)?);
        }
        if let Some(guardian) = &guardian {
            let watched = guardian.watch(group.members());
            watched.map_err(AgentError::system("the guardian of the host has ended"))?;
        }
        let state_dir = &config.safeguards.state_dir;
        let originals = begin_originals(state_dir, &config.job, group.members());
        // The line above reports a folder that is not writable.
        let written = WrittenLimits::begin(state_dir, group.members().first()).ok();
        Ok(Enforcer {
            config,
            child,
            sockets: Sockets::new(group, written),
            flows: BTreeMap::new(),
            agent,
            marker,
            idle_bps: BEFORE_WELCOME_BPS,
            started: clock(),
            slot: Followed::default(),
            is_silent: false,
            is_unguarded: false,
            is_unrecorded: false,
            _pieces: pieces,
            originals,
            guardian,
        })
    }

    /// Paces the program until it ends.
    pub fn run(mut self) -> Result<ExitStatus, AgentError> {
        let (mut scanned_at, mut stop_at) = (None::<Instant>, None::<Instant>);
        loop {
            if let Some(status) = self
                .child
                .try_wait()
                .map_err(AgentError::system("the program cannot be watched"))?
            {
                self.sockets.free();
                return Ok(status);
            }
            if (self.config.should_stop)() {
                if stop_at.is_none() {
                    self.sockets.ask_to_end();
                }
                if stop_at.get_or_insert_with(clock).elapsed() >= PATIENCE {
                    let _ = self.child.kill();
                }
            }
            if scanned_at.is_none_or(|at| at.elapsed() >= SCAN_EVERY) {
                self.sockets.scan();
                scanned_at = Some(clock());
            }
            self.sockets.look();
            self.count();
            if let Orders::Rates { slot, rates } = &self.config.orders {
                let (slot, rates) = (*slot, rates.clone());
                self.follow(slot, &rates);
            }
            self.beat();
            self.enforce();
            self.pause();
        }
    }

    /// Notes how far flows are, announces new ones, and reports.
    fn count(&mut self) {
        for (peer, total) in self.sockets.totals() {
            let number = self.flows.len() as u32;
            let limit = Limit::new(self.idle_bps);
            let flow = self.flows.entry(peer).or_insert(Flow {
                number,
                limit,
                total,
                is_announced: false,
                reported: None,
            });
            flow.total = total;
        }
        // An agent that hangs reads nothing, and would be waited for.
        let Some(agent) = self.agent.as_mut().filter(|_| !self.is_silent) else { return };
        for (peer, flow) in &mut self.flows {
            match agent.report(*peer, flow, self.config.volume) {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => return self.lose_agent("it does not listen"),
            }
        }
    }

    /// Gives the rate of the slot to all connections together. What a slot was off by, the next one makes
    /// up for, as far as it has room.
    fn follow(&mut self, slot: Duration, rates: &[Rate]) {
        let since = since_epoch().as_micros();
        let slot_us = slot.as_micros().max(1);
        let number = (since / slot_us) as u64;
        if number == self.slot.number || self.flows.is_empty() {
            return;
        }
        let sent = self.flows.values().map(|flow| flow.total.sent).sum();
        let rate_of = |slot: u64| rates[(slot % rates.len() as u64) as usize];
        let bytes_of =
            |slot: u64| (u128::from(rate_of(slot).as_bps()) * slot_us / 8_000_000) as u64;
        let before = std::mem::replace(&mut self.slot, Followed { number, sent, due: 0 });
        if before.number > 0 {
            (self.config.on_record)(&Record {
                slot: before.number,
                job: self.config.job.clone(),
                to: self.flows.keys().next().copied().unwrap_or(Ipv4Addr::UNSPECIFIED),
                granted_bps: rate_of(before.number).as_bps(),
                asked_bytes: bytes_of(before.number),
                // What is counted of connections that went away unseen goes with them.
                carried_bytes: sent.saturating_sub(before.sent),
            });
        }
        // A program that has nothing to send gathers no claim.
        let asked = bytes_of(number);
        let owed = before.due.saturating_sub(sent).min(asked);
        let ahead = if before.due > 0 { sent.saturating_sub(before.due).min(asked) } else { 0 };
        let bytes = asked + owed - ahead;
        self.slot.due = sent + bytes;
        let left = Duration::from_micros((slot_us - since % slot_us) as u64);
        let (now, share) = (self.started.elapsed(), self.flows.len() as u64);
        for flow in self.flows.values_mut() {
            let bps = rate_of(number).as_bps() / share;
            flow.limit.grant(now, flow.total.sent, bps, Some(bytes / share), Some(left));
        }
    }

    /// Gives the guardian a sign of life, and sets limits again that it has lifted meanwhile.
    // spec: E-14
    fn beat(&mut self) {
        let job = self.config.job.as_str();
        let originals = self.sockets.originals(false);
        if let Some(file) = &self.originals {
            let mut written = originals.iter().map(|(inode, limit)| file.keep(*inode, *limit));
            if let Some(Err(error)) = written.find(Result::is_err) {
                warn!(
                    target: TARGET, event = "unrecorded", job,
                    "limits of the program's own cannot be written down ({error}): it goes on unpaced"
                );
                self.is_unrecorded = true;
            }
        }
        let Some(guardian) = &mut self.guardian else { return };
        let mut kept = originals.iter().map(|(inode, limit)| guardian.keep(*inode, *limit));
        let kept = kept.find(Result::is_err).unwrap_or(Ok(()));
        match kept.and_then(|()| guardian.beat()) {
            Ok(done) => {
                if done.has_lifted {
                    self.sockets.handle_lifted();
                }
                if done.is_denied {
                    warn!(
                        target: TARGET, event = "unguarded", job,
                        "the guardian may not touch files of the program, and limits stay if this process \
                         hangs: run it as root"
                    );
                }
            }
            Err(error) => {
                warn!(
                    target: TARGET, event = "guardian_lost", job,
                    "the guardian has ended ({error}): starting another one"
                );
                self.guardian = self.replace_guardian();
                self.is_unguarded = self.guardian.is_none();
            }
        }
    }

    fn replace_guardian(&mut self) -> Option<Guardian> {
        let guardian = Guardian::start(&self.config.safeguards).ok().flatten()?;
        guardian.watch(self.sockets.members()).ok()?;
        for (inode, limit) in self.sockets.originals(true) {
            guardian.keep(inode, limit).ok()?;
        }
        Some(guardian)
    }

    /// Looks whether the agent still speaks: without it nothing is limited.
    // spec: E-14
    fn check_agent(&mut self, now: Duration) {
        let is_limited = |flow: &Flow| flow.limit.bps(now, flow.total.sent) != u64::MAX;
        let silent_for =
            self.agent.as_ref().map_or(Duration::ZERO, |agent| agent.received_at.elapsed());
        let is_silent = silent_for >= SILENT_AFTER && self.flows.values().any(is_limited);
        if is_silent == self.is_silent {
            return;
        }
        self.is_silent = is_silent;
        let job = self.config.job.as_str();
        if is_silent {
            warn!(
                target: TARGET, event = "unpaced", job,
                "the agent has been silent for {:.1} s: the program goes on unpaced until it is back",
                silent_for.as_secs_f64()
            );
        } else if self.agent.is_some() {
            info!(target: TARGET, event = "paced", job, "the agent is back: the program is paced");
        }
    }

    // spec: C-09
    fn enforce(&mut self) {
        let now = self.started.elapsed();
        self.check_agent(now);
        let is_free = self.is_silent || self.is_unguarded || self.is_unrecorded;
        let mut problem = None;
        for (peer, flow) in &self.flows {
            let bps = if is_free { u64::MAX } else { flow.limit.bps(now, flow.total.sent) };
            problem = self.sockets.limit(*peer, &flow.total, bps).or(problem);
        }
        if let Some(problem) = problem {
            warn!(
                target: TARGET, event = "unlimited", job = self.config.job,
                "a connection cannot be limited: {problem}"
            );
        }
    }

    /// Hears the agent until there is something to look at.
    fn pause(&mut self) {
        let now = self.started.elapsed();
        let changes =
            self.flows.values().filter_map(|flow| flow.limit.next_change(now, flow.total.sent));
        let mut pause = changes.map(|at| at.saturating_sub(now)).min().unwrap_or(LOOK_EVERY);
        if let Orders::Rates { slot, .. } = &self.config.orders {
            let (since, slot_us) = (since_epoch().as_micros(), slot.as_micros().max(1));
            pause = pause.min(Duration::from_micros((slot_us - since % slot_us) as u64));
        }
        let pause = pause.clamp(Duration::from_micros(200), LOOK_EVERY);
        let Some(agent) = &self.agent else { return sleep(pause) };
        match agent.words.recv_timeout(pause) {
            Ok(words) => {
                self.hear(words);
                while let Some(Ok(words)) = self.agent.as_ref().map(|agent| agent.words.try_recv())
                {
                    self.hear(words);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.lose_agent("it is gone"),
        }
    }

    fn hear(&mut self, words: Option<ToJob>) {
        let now = self.started.elapsed();
        if let Some(agent) = &mut self.agent {
            agent.received_at = clock();
        }
        match words {
            Some(ToJob::Welcome { idle_bps, .. }) => {
                self.idle_bps = idle_bps;
                self.flows.values_mut().for_each(|flow| flow.limit = Limit::new(idle_bps));
            }
            Some(ToJob::Rate { flow, bps, bytes, within_us }) => {
                let flow = self.flows.values_mut().find(|known| known.number == flow);
                if let Some(flow) = flow {
                    let within = within_us.map(Duration::from_micros);
                    flow.limit.grant(now, flow.total.sent, bps, bytes, within);
                }
            }
            Some(ToJob::Refused { reason }) => self.lose_agent(&reason),
            // Connections of a program have no classes.
            Some(ToJob::Class { .. } | ToJob::Hold { .. } | ToJob::Enter { .. }) => {}
            Some(ToJob::Leaf { mark }) => self.mark(mark),
            None => self.lose_agent("it has hung up"),
        }
    }

    // spec: C-16
    /// Marks packets of the program for its leaf at the interface of the host; 0 for none.
    fn mark(&mut self, mark: u32) {
        let marked = self.marker.as_ref().map(|marker| marker.set(mark));
        if let Some(Err(error)) = marked {
            warn!(
                target: TARGET, event = "unmarked", job = self.config.job,
                "packets of the program cannot be marked ({error}): they have no class"
            );
        }
    }

    /// Without an agent the program is free.
    fn lose_agent(&mut self, reason: &str) {
        if self.agent.take().is_none() {
            return;
        }
        warn!(
            target: TARGET, event = "unpaced", job = self.config.job,
            "the agent is lost: {reason}; the program goes on unpaced"
        );
        self.mark(0);
        self.idle_bps = u64::MAX;
        self.flows.values_mut().for_each(|flow| flow.limit = Limit::new(u64::MAX));
    }
}

impl Agent {
    /// Announces a flow, if it is new, and reports how far it is, if that has changed. Returns whether the agent
    /// has room for it.
    fn report(&mut self, to: Ipv4Addr, flow: &mut Flow, volume: Option<u64>) -> io::Result<bool> {
        if !flow.is_announced {
            let (relation, others) = (Default::default(), Vec::new());
            let (number, is_exact) = (flow.number, false);
            let new = Announced { flow: number, to, volume, is_exact, relation, others };
            if !self.link.say(&FromJob::Flow(new))? {
                return Ok(false);
            }
            flow.is_announced = true;
            // An agent has nothing to say of a program without flows.
            self.received_at = clock();
        }
        let Total { ready, sent, .. } = flow.total;
        if flow.reported.is_some_and(|before| (before.ready, before.sent) == (ready, sent)) {
            return Ok(true);
        }
        let has_room = self.link.say(&FromJob::report(flow.number, ready, sent))?;
        if has_room {
            flow.reported = Some(flow.total);
        }
        Ok(has_room)
    }
}

impl Drop for Enforcer {
    fn drop(&mut self) {
        // Connections outlive the enforcer where the program does.
        self.sockets.free();
    }
}

fn begin_originals(state_dir: &Path, job: &str, members: &Members) -> Option<Originals> {
    let begun = Originals::begin(state_dir, members);
    if let Err(error) = &begun {
        warn!(
            target: TARGET, event = "unrecorded", job,
            "limits of the program's own cannot be written to {} ({error}): they are lost if this process and its \
             guardian are both killed", state_dir.display()
        );
    }
    begun.ok()
}

fn join(socket: &Path, job: &str, leaf: bool) -> Result<Agent, AgentError> {
    let (sender, words) = channel();
    let obeys = Obeys { classes: false, leaf };
    let link = AgentLink::join(socket, job, obeys, move |words| drop(sender.send(words)));
    let link = link.map_err(|error| {
        let socket = socket.display();
        AgentError::Config(format!("no agent at {socket}: {error}; start one with `thalweg agent`"))
    })?;
    Ok(Agent { link, words, received_at: clock() })
}

#[expect(clippy::disallowed_methods, reason = "programs run in real time")]
fn clock() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "programs run in real time")]
fn sleep(span: Duration) {
    std::thread::sleep(span);
}
