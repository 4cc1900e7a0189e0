//! Random lives of a job whose streams break, whose processes die and whose registry forgets, against
//! what the processes know to be true.

use proptest::prelude::*;
use thalweg_aggregate::join::Process;
use thalweg_aggregate::server::SwitchPath;
use thalweg_core::{Rng, body_bytes_of_mtu, mtu_of_body_bytes};
use thalweg_transport::path::{NarrowPath, PathReport};
use thalweg_wire::aggregate::{BodyFormats, SwitchLimits};
use thalweg_wire::tag::Secret;

use thalweg_wire::tag::Key;

use super::super::*;
use crate::attendance::rounds::Rounds;
use crate::caller::NOWHERE;
use crate::message::{RankTicket, Resume, Welcome};

const SERVER: NodeId = NodeId(1);
const SECRET: Secret = Secret([3; 16]);
const DEADLINE: Span = Span::from_s(3_600);
/// MTUs of interfaces, and of the links between them.
const MTUS: [u16; 4] = [1_500, 2_048, 4_352, 9_000];

/// A process as it really is.
struct Client {
    rank: u32,
    process: Process,
    job: Option<JobId>,
    ticket: Option<Ticket>,
    /// The sending threads that it offers, one for each tree.
    threads: Vec<Thread>,
    /// Trees of the job, from the welcome on.
    trees: usize,
    /// MTU of its interface. `None` if it is of a release that announces none.
    mtu_bytes: Option<u16>,
    link: Option<LinkId>,
    /// Messages in flight, both ways, and the trees that they are about. Lost when the stream breaks.
    inbound: VecDeque<(u32, ToRank)>,
    outbound: VecDeque<(u32, FromRank)>,
}

/// A sending thread of a process.
#[derive(Clone, Default)]
struct Thread {
    rounds: Rounds,
    /// `None` until it adopts its first set-up.
    watermark: Option<u64>,
    /// True if it has answered a report and not yet got the set-up.
    is_paused: bool,
    /// The epoch it has.
    epoch: u32,
    /// Values of a fragment, which its worker cannot change.
    fragment_values: Option<u16>,
    span_fragments: Option<u16>,
    /// Round of the last report of its paths that the registry has, and the MTU that they carried.
    carried: Option<(u32, u16)>,
}

impl Client {
    /// Knowledge of the trees of its job.
    fn resumes(&self) -> Vec<Resume> {
        let known = self.threads.iter().take(self.trees);
        known.map(|thread| thread.rounds.resume(thread.watermark)).collect()
    }

    /// Node of one of its threads.
    fn node(&self, tree: u32) -> NodeId {
        NodeId(self.process.node.0 + 8_000 * tree)
    }
}

struct World {
    rng: Rng,
    registry: Registry,
    now: Time,
    next_link: u64,
    next_life: u64,
    clients: Vec<Client>,
    /// Streams of processes that died without a word. Some time later their kernels are silent for too long.
    half_open: Vec<LinkId>,
    /// Every set-up that was adopted. Nobody may have another of the same epoch.
    setups: BTreeMap<(JobId, u32), Arc<Setup>>,
    /// The epochs that the server has adopted since it started.
    server_epochs: BTreeMap<JobId, u32>,
    /// The last ticket of every rank of every job, which outlives its process.
    tickets: BTreeMap<(JobId, u32), RankTicket>,
    /// True while switches come and go, and change their limits.
    is_stormy: bool,
    /// MTU of the links in the middle, which nobody announces. It changes while it is stormy.
    middle_mtu_bytes: u16,
    /// Sending threads that the rank offers that offers fewest.
    threads: u32,
}

impl World {
    fn new(seed: u64, workers: u32, threads: u32) -> World {
        let mut rng = Rng::new(seed).stream("world");
        let registry = registry(&mut rng);
        let mut world = World {
            rng,
            registry,
            now: Time::ZERO,
            next_link: 0,
            next_life: 0,
            clients: Vec::new(),
            half_open: Vec::new(),
            setups: BTreeMap::new(),
            server_epochs: BTreeMap::new(),
            tickets: BTreeMap::new(),
            is_stormy: true,
            middle_mtu_bytes: 9_000,
            threads,
        };
        world.clients = (0..workers).map(|rank| world.spawn(rank)).collect();
        world
    }

    /// A new process for a rank, now and then on another node.
    fn spawn(&mut self, rank: u32) -> Client {
        self.next_life += 1;
        let node = NodeId(8 * (100 + rank + 100 * self.rng.below(3) as u32));
        let mtu_bytes = Some(self.draw_mtu()).filter(|_| self.rng.chance(0.95));
        Client {
            rank,
            process: Process { node, life: self.next_life },
            job: None,
            ticket: None,
            threads: vec![Thread::default(); (self.threads + rank % 2) as usize],
            trees: 1,
            mtu_bytes,
            link: None,
            inbound: VecDeque::new(),
            outbound: VecDeque::new(),
        }
    }

    /// An MTU, most often the largest.
    fn draw_mtu(&mut self) -> u16 {
        let at = self.rng.below(2 * MTUS.len() as u64) as usize;
        MTUS.get(at).copied().unwrap_or(9_000)
    }

    fn step(&mut self) {
        let chosen = self.rng.below(self.clients.len() as u64) as usize;
        match self.rng.below(100) {
            0..35 => self.deliver(chosen),
            35..65 => self.obey(chosen),
            65..78 => self.connect(chosen),
            78..84 => {
                let more = self.rng.below(50);
                let threads = &mut self.clients[chosen].threads;
                let at = self.rng.below(threads.len() as u64) as usize;
                let thread = &mut threads[at];
                if !thread.is_paused {
                    thread.watermark = thread.watermark.map(|watermark| watermark + more);
                }
            }
            84..91 => {
                self.now += Span::from_ms(300);
                self.registry.tick(self.now);
            }
            91 => self.notice_deaths(),
            92..95 => self.break_stream(chosen),
            // Some die without a word: the registry hears nothing of it.
            95 | 96 => self.kill(chosen),
            97 => self.restart(),
            98 => self.middle_mtu_bytes = self.draw_mtu(),
            _ => self.beat(),
        }
        self.act();
    }

    fn beat(&mut self) {
        for client in self.clients.iter_mut().filter(|client| client.link.is_some()) {
            client.outbound.push_back((0, FromRank::Progress(Default::default())));
        }
    }

    fn kill(&mut self, chosen: usize) {
        if self.rng.chance(0.5) {
            self.break_stream(chosen);
        }
        let Client { rank, link, .. } = self.clients[chosen];
        self.half_open.extend(link);
        self.clients[chosen] = self.spawn(rank);
    }

    /// Kernels of processes that died were silent for too long.
    fn notice_deaths(&mut self) {
        for link in std::mem::take(&mut self.half_open) {
            self.registry.hang_up(self.now, link, Ending::Silent(Span::from_s(2)));
        }
    }

    fn break_stream(&mut self, chosen: usize) {
        let client = &mut self.clients[chosen];
        if let Some(link) = client.link.take() {
            client.inbound.clear();
            client.outbound.clear();
            self.registry.hang_up(self.now, link, Ending::Closed);
        }
    }

    /// The registry, and the server with it, starts again with nothing.
    fn restart(&mut self) {
        self.registry = registry(&mut self.rng);
        self.half_open.clear();
        self.server_epochs.clear();
        for client in &mut self.clients {
            client.link = None;
            client.inbound.clear();
            client.outbound.clear();
        }
    }

    fn connect(&mut self, chosen: usize) {
        let workers = self.clients.len() as u32;
        let client = &mut self.clients[chosen];
        if client.link.is_some() {
            return;
        }
        let settings =
            Settings { failure_after: DEADLINE, join_timeout: DEADLINE, ..Settings::default() };
        let (name, resume) = ("swarm".to_owned(), client.ticket);
        let wanted = Registration { name, workers, settings, resume };
        let caller = Caller::trusted(NOWHERE);
        let job = self.registry.register(self.now, &caller, wanted);
        let job = job.expect("a member is always taken");
        let ticket = self.tickets.get(&(job, self.clients[chosen].rank)).copied();
        let client = &mut self.clients[chosen];
        if client.job.replace(job) != Some(job) {
            client.threads.iter_mut().for_each(|thread| thread.rounds = Rounds::default());
            client.inbound.clear();
        }
        let link = LinkId(self.next_link);
        self.next_link += 1;
        client.link = Some(link);
        let join = Join {
            job,
            rank: client.rank,
            process: client.process,
            host: format!("host {}", client.rank / 2),
            switch: client.rank.is_multiple_of(3).then_some(NodeId(400 + 8 * (client.rank % 2))),
            resumes: client.ticket.map_or_else(Vec::new, |_| client.resumes()),
            ticket,
            more_nodes: (1..client.threads.len() as u32).map(|tree| client.node(tree)).collect(),
            mtu_bytes: client.mtu_bytes,
        };
        match self.registry.attend(self.now, link, &caller, join) {
            Ok(()) => {}
            // The one before it seems to live.
            Err(Refusal::Taken { .. }) => self.clients[chosen].link = None,
            Err(other) => panic!("{other}"),
        }
    }

    fn deliver(&mut self, chosen: usize) {
        let client = &mut self.clients[chosen];
        let (Some(link), Some((tree, message))) = (client.link, client.outbound.pop_front()) else {
            return;
        };
        if let FromRank::Paths { round, report } = &message {
            // A path may become narrower when the round is over and its set-up is still in flight.
            let carried = &mut client.threads[tree as usize].carried;
            let before = carried.filter(|(of, _)| of == round);
            *carried = report.mtu_bytes.map(|carried| (*round, carried)).max(before);
        }
        self.registry.hear(self.now, link, tree, message);
    }

    fn obey(&mut self, chosen: usize) {
        let client = &mut self.clients[chosen];
        let Some((tree, told)) = client.inbound.pop_front() else { return };
        let thread = &mut client.threads[tree as usize];
        if !thread.rounds.admit(&told) {
            return;
        }
        match told {
            ToRank::Welcome(welcome) => self.enter(chosen, &welcome),
            ToRank::Report { round, seat } => {
                assert!(client.ticket.is_some(), "nobody is set up before it is welcomed");
                thread.is_paused = true;
                thread.rounds.answer(round);
                let watermark = thread.watermark;
                client.outbound.push_back((tree, FromRank::Answer { round, seat, watermark }));
            }
            ToRank::Adopt { seat, key, setup } => self.adopt((chosen, tree), seat, key, setup),
            ToRank::Failed(failure) => {
                let reasons =
                    ["registered again by other", "nobody remembers", "carries packets of"];
                let is_known = reasons.iter().any(|reason| failure.text.contains(reason));
                assert!(is_known, "{}", failure.text);
                let rank = client.rank;
                self.break_stream(chosen);
                self.clients[chosen] = self.spawn(rank);
            }
            ToRank::Joined { .. }
            | ToRank::Waiting { .. }
            | ToRank::Retire { .. }
            | ToRank::ReportOperations => {}
            ToRank::ProbePaths { round, mtu_bytes, nodes } => {
                self.report_paths((chosen, tree), round, mtu_bytes, &nodes);
            }
            ToRank::PathMtu { mtu_bytes } => {
                let own = client.mtu_bytes.unwrap_or(1_500);
                assert!(mtu_bytes <= own, "packets of {mtu_bytes} and an interface for {own}");
            }
            ToRank::Left { .. } => panic!("nobody leaves"),
            ToRank::Diagnosis(diagnosis) => panic!("nobody stalls: {}", diagnosis.text),
        }
    }

    /// The job is as all know it: with a tree for each thread that all ranks offer.
    fn enter(&mut self, chosen: usize, welcome: &Welcome) {
        let is_alone = self.clients.len() <= 2;
        let client = &mut self.clients[chosen];
        let trees = if is_alone { 1 } else { self.threads as usize };
        assert_eq!((welcome.lane_keys.len(), welcome.rounds.len()), (trees, trees));
        let place = &welcome.roster[client.rank as usize];
        for tree in 0..trees as u32 {
            assert_eq!(place.node_of(tree), Some(client.node(tree)));
        }
        assert_eq!(place.node_of(trees as u32), None);
        for (thread, round) in client.threads.iter_mut().zip(&welcome.rounds) {
            thread.rounds.hear(*round);
        }
        (client.ticket, client.trees) = (Some(welcome.ticket), trees);
    }

    /// A leader says what its paths carry, now and then nothing of one of them.
    fn report_paths(
        &mut self,
        (chosen, tree): (usize, u32),
        round: u32,
        asked: u16,
        nodes: &[NodeId],
    ) {
        let is_silent = self.is_stormy && self.rng.chance(0.05);
        let carried = asked.min(self.middle_mtu_bytes);
        let client = &mut self.clients[chosen];
        let narrow = NarrowPath { node: nodes[0], mtu_bytes: carried };
        let report = PathReport {
            mtu_bytes: Some(carried).filter(|_| !is_silent),
            narrow: Some(narrow).filter(|_| carried < asked && !is_silent),
            silent: Some(nodes[0]).filter(|_| is_silent),
        };
        client.outbound.push_back((tree, FromRank::Paths { round, report }));
    }

    /// Every set-up is newer, the same for all, and nobody has to go back behind what it has.
    fn adopt(&mut self, (chosen, tree): (usize, u32), seat: u32, key: Key, setup: Arc<Setup>) {
        let client = &mut self.clients[chosen];
        assert_eq!(key, Key::derive(&SECRET, setup.job, setup.epoch));
        let at = JobTree { job: client.job.expect("it is registered"), tree };
        assert_eq!(setup.job, at.id());
        assert_eq!(setup.trees[0].node(seat), client.node(tree));
        let mtu_bytes = client.mtu_bytes.unwrap_or(1_500);
        let client = &mut client.threads[tree as usize];
        assert!(setup.epoch > client.epoch || client.watermark.is_none());
        assert!(client.watermark.is_none_or(|watermark| watermark >= setup.resume_from));
        client.watermark = client.watermark.or(Some(setup.resume_from));
        let fragment_values = setup.parameters.fragment_values;
        let kept = *client.fragment_values.get_or_insert(fragment_values);
        assert_eq!(kept, fragment_values, "fragments stay as they are while the job lives");
        let needed = mtu_of_body_bytes(4 * u32::from(fragment_values));
        if let Some((_, carried)) = client.carried.filter(|(round, _)| *round == setup.epoch) {
            assert!(needed <= u32::from(carried), "paths carry {carried}, packets have {needed}");
        }
        assert!(needed <= mtu_bytes.into(), "interfaces carry less");
        let span_fragments = setup.parameters.span_fragments;
        let kept = *client.span_fragments.get_or_insert(span_fragments);
        assert_eq!(kept, span_fragments, "so does the span");
        (client.epoch, client.is_paused) = (setup.epoch, false);
        let known = self.setups.entry((setup.job, setup.epoch)).or_insert(Arc::clone(&setup));
        assert_eq!(*known, setup, "two set-ups of one epoch");
    }

    fn act(&mut self) {
        while let Some(action) = self.registry.poll() {
            match action {
                Action::Tell { link, tree, message } => {
                    if let ToRank::Joined { ticket } = message {
                        self.tickets.insert((ticket.job, ticket.rank), ticket);
                    }
                    let mut clients = self.clients.iter_mut();
                    if let Some(client) = clients.find(|client| client.link == Some(link)) {
                        client.inbound.push_back((tree, message));
                    }
                }
                Action::Close { link } => {
                    let mut clients = self.clients.iter_mut();
                    if let Some(client) = clients.find(|client| client.link == Some(link)) {
                        // Messages that were sent before still arrive.
                        client.link = None;
                        client.outbound.clear();
                    }
                }
                Action::Adopt { setup } => {
                    let before = self.server_epochs.insert(setup.job, setup.epoch);
                    assert!(before.is_none_or(|before| before < setup.epoch));
                }
                Action::Retire { job } => drop(self.server_epochs.remove(&job)),
                Action::AskMissing { .. } => panic!("nobody stalls"),
                Action::Probe { switch } => self.answer_probe(switch),
                Action::ProbePath { path, mtu_bytes } => self.answer_path(path, mtu_bytes),
                Action::Note(_) | Action::Warn(_) => {}
            }
        }
    }

    fn answer_probe(&mut self, switch: NodeId) {
        let mut limits = SwitchLimits {
            aggregators: 16,
            fragment_values: 64,
            formats: BodyFormats::FLOAT_AND_FIXED,
            cores: 1,
            mtu_bytes: 9_000,
        };
        if self.is_stormy {
            limits.aggregators = 1 + self.rng.below(16) as u32;
            limits.fragment_values = [32, 64, 128, 1_000, 2_200][self.rng.below(5) as usize];
            limits.mtu_bytes = self.draw_mtu();
        }
        if !self.is_stormy || self.rng.chance(0.5) {
            self.registry.switch_answered(self.now, switch, limits);
        }
    }

    fn answer_path(&mut self, path: SwitchPath, mtu_bytes: u16) {
        let is_lost = self.is_stormy && self.rng.chance(0.2);
        if mtu_bytes <= self.middle_mtu_bytes && !is_lost {
            let body_bytes = body_bytes_of_mtu(mtu_bytes).into();
            self.registry.path_answered(self.now, path, body_bytes);
        }
    }

    /// From now on nothing breaks: the job must come together.
    fn settle(&mut self) {
        self.is_stormy = false;
        self.notice_deaths();
        for _ in 0..40 {
            for chosen in 0..self.clients.len() {
                self.connect(chosen);
                self.act();
                while !self.clients[chosen].inbound.is_empty() {
                    self.obey(chosen);
                }
                while !self.clients[chosen].outbound.is_empty() {
                    self.deliver(chosen);
                    self.act();
                }
            }
            self.beat();
            self.now += Span::from_ms(300);
            self.registry.tick(self.now);
            self.act();
        }
        let job = self.clients[0].job.expect("it is registered");
        for at in self.registry.jobs[&job].all_trees() {
            let setup = self.registry.registrar.setup(at.id()).expect("it is set up");
            assert_eq!(self.server_epochs.get(&at.id()), Some(&setup.epoch));
            for client in &self.clients {
                assert_eq!(client.job, Some(job));
                let seat = self.registry.jobs[&job].seat_of(client.rank);
                let own = client.threads[at.tree as usize].epoch;
                let epoch = seat.map_or(own, |_| setup.epoch);
                assert_eq!(own, epoch, "rank {} is left behind in {at:?}", client.rank);
            }
        }
        // Whatever broke, it is one job.
        let listing = self.registry.listing();
        assert_eq!((listing.jobs.len(), listing.jobs[0].id), (1, job));
    }
}

fn registry(rng: &mut Rng) -> Registry {
    Registry::new(RegistryConfig {
        server: SERVER,
        server_cores: 1,
        mtu_bytes: 9_000,
        switch: None,
        network: Ipv4Addr::LOCALHOST,
        secrets: SECRET.into(),
        seed: rng.bits(),
        job_memory_bytes: u64::MAX,
        memory_bytes: u64::MAX,
        budgets: JobBudgets::default(),
    })
}

// spec: A-41, E-06, F-01, F-04 machine
proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn whatever_breaks_jobs_come_together(
        seed in any::<u64>(),
        workers in 1..7_u32,
        threads in 1..4_u32,
        steps in 0..600_u32,
    ) {
        let mut world = World::new(seed, workers, threads);
        (0..steps).for_each(|_| world.step());
        world.settle();
    }
}
