//! Lives of jobs, one by one.

use thalweg_aggregate::join::Process;
use thalweg_aggregate::{AGGREGATORS, FRAGMENT_VALUES, JobParameters};
use thalweg_wire::aggregate::{BodyFormats, SwitchLimits};
use thalweg_wire::tag::Secret;

use thalweg_wire::tag::Key;

use super::*;
use crate::caller::NOWHERE;
use crate::message::{Diagnosis, Place, Progress, RankTicket, Resume, Stall, Waits, Welcome};
use crate::plane::Counters;

mod budgets;
mod credentials;
mod deaths;
mod failing;
mod joining;
mod paths;
mod planning;
mod resuming;
mod stalling;
mod swarm;
mod switching;
mod trees;
mod work;

const SECRET: Secret = Secret([7; 16]);
/// 10.1.0.1:4800.
const SERVER: NodeId = NodeId(0x0001_12c0);
/// 10.1.0.2:4808.
const SWITCH: NodeId = NodeId(0x0002_12c8);

/// Node of a rank: 10.1.1.{rank}:4808.
fn node(rank: u32) -> NodeId {
    NodeId(0x0100_12c8 + (rank << 16))
}

/// A registry, and what it wanted done since the last look.
struct Hall {
    registry: Registry,
    now: Time,
    next_link: u64,
    done: Vec<Action>,
    workers: u32,
    settings: Settings,
    job: JobId,
    /// Credentials of all calls.
    caller: Caller,
    /// The last stream of each rank.
    links: BTreeMap<u32, LinkId>,
    /// Limits that every switch reports. `None` for a test that answers by itself.
    limits: Option<SwitchLimits>,
    /// Actions since the last look, without the probes that were answered.
    wanted: Vec<Action>,
}

/// Limits of a switch that a job keeps without noticing.
const LIMITS: SwitchLimits = SwitchLimits {
    aggregators: AGGREGATORS,
    fragment_values: FRAGMENT_VALUES,
    formats: BodyFormats::ALL,
    cores: 1,
    mtu_bytes: 1_500,
};

impl Hall {
    fn new(workers: u32) -> Hall {
        Hall::with(workers, Settings::default())
    }

    fn with(workers: u32, settings: Settings) -> Hall {
        let mut hall = Hall { settings, ..Hall::empty(workers, 5) };
        hall.job = hall.register(None).unwrap();
        hall
    }

    fn empty(workers: u32, seed: u64) -> Hall {
        let config = RegistryConfig {
            server: SERVER,
            server_cores: 1,
            mtu_bytes: 9_000,
            switch: None,
            network: Ipv4Addr::new(10, 1, 0, 1),
            secrets: SECRET.into(),
            seed,
            job_memory_bytes: u64::MAX,
            memory_bytes: u64::MAX,
            budgets: JobBudgets {
                jobs: JOBS_MAX,
                unattended: JOBS_MAX,
                ranks: RANKS_MAX,
                trees: usize::MAX,
                ..JobBudgets::default()
            },
        };
        Hall {
            registry: Registry::new(config),
            now: Time::ZERO + Span::from_s(1_000),
            next_link: 0,
            done: Vec::new(),
            workers,
            settings: Settings::default(),
            job: JobId(0),
            caller: Caller::trusted(NOWHERE),
            links: BTreeMap::new(),
            limits: Some(LIMITS),
            wanted: Vec::new(),
        }
    }

    /// Ranks on as many hosts as there are names, all welcomed and set up in epoch 1.
    fn set_up(hosts: &[&str]) -> Hall {
        let mut hall = Hall::new(hosts.len() as u32);
        for (rank, host) in (0..).zip(hosts) {
            hall.attend(hall.join(rank, host)).unwrap();
        }
        hall.answer_all(1, None);
        hall.look();
        hall
    }

    /// All leaders answer in a round.
    fn answer_all(&mut self, round: u32, watermark: Option<u64>) {
        for (seat, leader) in (0..).zip(self.leaders()) {
            self.say(leader, FromRank::Answer { round, seat, watermark });
        }
    }

    fn leaders(&self) -> Vec<u32> {
        self.registry.jobs[&self.job].hosts.clone()
    }

    fn register(&mut self, resume: Option<Ticket>) -> Result<JobId, Refusal> {
        self.register_as("train", self.settings.clone(), resume)
    }

    fn register_as(
        &mut self,
        name: &str,
        settings: Settings,
        resume: Option<Ticket>,
    ) -> Result<JobId, Refusal> {
        let (name, workers) = (name.to_owned(), self.workers);
        let wanted = Registration { name, workers, settings, resume };
        self.registry.register(self.now, &self.caller, wanted)
    }

    fn join(&self, rank: u32, host: &str) -> Join {
        let process = Process { node: node(rank), life: u64::from(rank) };
        let host = host.to_owned();
        Join {
            job: self.job,
            rank,
            process,
            host,
            switch: None,
            resumes: Vec::new(),
            ticket: None,
            more_nodes: Vec::new(),
            mtu_bytes: None,
        }
    }

    /// The ticket of the process that has a rank in [`Hall::join`].
    fn ticket(&self, rank: u32) -> Option<RankTicket> {
        let process = self.join(rank, "").process;
        Some(self.registry.prover.rank_ticket(self.job, rank, process))
    }

    /// Another process comes for a rank, with the ticket of the one before it.
    fn successor(&self, rank: u32, host: &str) -> Join {
        let process = Process { node: node(rank), life: 99 };
        Join { process, ticket: self.ticket(rank), ..self.join(rank, host) }
    }

    fn attend(&mut self, join: Join) -> Result<LinkId, Refusal> {
        let link = LinkId(self.next_link);
        self.next_link += 1;
        let rank = join.rank;
        self.registry.attend(self.now, link, &self.caller, join)?;
        self.links.insert(rank, link);
        self.answer_probes();
        Ok(link)
    }

    fn say(&mut self, rank: u32, said: FromRank) {
        self.say_of(0, rank, said);
    }

    /// Says something of a tree.
    fn say_of(&mut self, tree: u32, rank: u32, message: FromRank) {
        self.registry.hear(self.now, self.links[&rank], tree, message);
    }

    fn hang_up(&mut self, rank: u32) {
        self.hang_up_as(rank, Ending::Closed);
    }

    fn hang_up_as(&mut self, rank: u32, ending: Ending) {
        self.registry.hang_up(self.now, self.links[&rank], ending);
    }

    /// Time passes in steps of 100 ms; those who are connected show that they live.
    fn pass(&mut self, span: Span) {
        let end = self.now + span;
        while self.now < end {
            self.now += Span::from_ms(100);
            for rank in self.links.clone().into_keys() {
                self.say(rank, FromRank::Progress(Progress::default()));
            }
            self.registry.tick(self.now);
        }
    }

    /// Actions since the last look.
    fn look(&mut self) -> &[Action] {
        self.answer_probes();
        self.done = std::mem::take(&mut self.wanted);
        &self.done
    }

    /// Has switches answer, if they do.
    fn answer_probes(&mut self) {
        while let Some(action) = self.registry.poll() {
            match (action, self.limits) {
                (Action::Probe { switch }, Some(limits)) => {
                    self.registry.switch_answered(self.now, switch, limits);
                }
                (action, _) => self.wanted.push(action),
            }
        }
    }

    /// Messages to a rank, as of the last look, without its ticket.
    fn sent_to(&self, rank: u32) -> Vec<ToRank> {
        let mine = |action: &Action| match action {
            Action::Tell { link, message, .. } if *link == self.links[&rank] => {
                Some(message.clone())
            }
            _ => None,
        };
        let is_ticket = |message: &ToRank| matches!(message, ToRank::Joined { .. });
        self.done.iter().filter_map(mine).filter(|message| !is_ticket(message)).collect()
    }

    /// Tickets that a rank got, as of the last look.
    fn tickets(&self, rank: u32) -> Vec<RankTicket> {
        let ticket = |action: &Action| match action {
            Action::Tell { link, message: ToRank::Joined { ticket }, .. } => {
                (*link == self.links[&rank]).then_some(*ticket)
            }
            _ => None,
        };
        self.done.iter().filter_map(ticket).collect()
    }

    fn notes(&self) -> Vec<&str> {
        let mut notes = Vec::new();
        for action in &self.done {
            if let Action::Note(text) | Action::Warn(text) = action {
                notes.push(text.as_str());
            }
        }
        notes
    }

    fn warnings(&self) -> Vec<&str> {
        let mut warnings = Vec::new();
        for action in &self.done {
            if let Action::Warn(text) = action {
                warnings.push(text.as_str());
            }
        }
        warnings
    }

    fn closed(&self, rank: u32) -> bool {
        self.done.contains(&Action::Close { link: self.links[&rank] })
    }

    fn setup(&self) -> &Setup {
        self.registry.registrar.setup(self.job).unwrap()
    }

    /// The one failure that was sent to a rank.
    fn failure(&self, rank: u32) -> Failure {
        let failed = |message: ToRank| match message {
            ToRank::Failed(failure) => Some((*failure).clone()),
            _ => None,
        };
        let all: Vec<Failure> = self.sent_to(rank).into_iter().filter_map(failed).collect();
        assert_eq!(all.len(), 1, "{:?}", self.done);
        all[0].clone()
    }

    fn diagnoses(&self, rank: u32) -> Vec<Diagnosis> {
        let diagnosis = |message: ToRank| match message {
            ToRank::Diagnosis(diagnosis) => Some((*diagnosis).clone()),
            _ => None,
        };
        self.sent_to(rank).into_iter().filter_map(diagnosis).collect()
    }

    fn welcomes(&self, rank: u32) -> Vec<Arc<Welcome>> {
        let welcome = |message: ToRank| match message {
            ToRank::Welcome(welcome) => Some(welcome),
            _ => None,
        };
        self.sent_to(rank).into_iter().filter_map(welcome).collect()
    }
}

fn progress(operation: u64, fragment: u64) -> FromRank {
    FromRank::Progress(Progress { operation, fragment, since: Span::ZERO })
}

fn stalled(operation: u64, waits: Waits, since: Span) -> FromRank {
    FromRank::Stalled(Stall { operation, waits, since })
}
