//! Laws for any lines that jobs write to the agent of their host. The fuzz target calls it, and
//! so does a test of the library.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use thalweg_agent::scheduler::{Client, Output, Scheduler};
use thalweg_control::local::{Announced, FromJob, Lines, ToJob, VERSION};
use thalweg_core::{Rate, Rng, Span, Time};
use thalweg_pace::board::{
    AgentId, Answer, FLOWS_PER_MESSAGE, Plan, Prefix, Question, Route, Update, Verdict,
};
use thalweg_pace::path::Progress;
use thalweg_pace::{Ahead, Board, Feedback, Refusal, Settings, Slot};

/// The host's address.
pub const OWN: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// A line that begins so, behind its first byte, is what a switch answers to the last questions: numbers of eight
/// bytes.
pub const ANSWER: u8 = b'!';
/// And so, that it refuses the last plans.
pub const REFUSE: u8 = b'?';

/// So long passes before a line, as three bits of its first byte say.
const WAITS_MS: [u64; 8] = [0, 1, 3, 10, 29, 60, 150, 2_000];
/// The slot of the network in which everything begins.
const BASE: Slot = Slot(1_000_000);
const UPLINK_BPS: u64 = 1_000_000_000;
/// Bytes that the witness writes at a time, and their receiver.
const WITNESS_BYTES: u64 = 100_000;
const WITNESS_PEER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);
const WITNESS: Client = Client(4);
/// Most outputs of an input, for every flow that is known and once more.
const OUTPUTS_PER_FLOW: usize = 8;

/// Lines of four jobs: the first byte of each says whose it is and how long passes before it (two bits and three);
/// the rest is what the job writes, and nothing at all is that it hangs up. Beside them a fifth job, the witness,
/// does its work. Answers whether any line was taken in.
pub fn agent(bytes: &[u8]) -> bool {
    let mut stage = Stage::new();
    let mut accepted = false;
    for line in bytes.split(|&byte| byte == b'\n') {
        let [first, line @ ..] = line else { continue };
        let client = Client(u64::from(first & 3));
        stage.pass(Span::from_ms(WAITS_MS[usize::from(first >> 2 & 7)]));
        match line {
            [] => stage.hang_up(client),
            [ANSWER, numbers @ ..] => stage.answer(&mut Numbers(numbers)),
            [REFUSE, numbers @ ..] => stage.refuse(&mut Numbers(numbers)),
            _ => accepted |= stage.say(client, line),
        }
        stage.work();
    }
    stage.fall_silent();
    accepted
}

/// An agent, a switch, and what is known of the jobs.
struct Stage {
    main: Instance,
    /// The same without the jobs. As long as none of them has sent anything, the witness notices no difference.
    lone: Option<Instance>,
    now: Time,
    /// Clients that have joined.
    joined: BTreeSet<Client>,
    /// Reports of flows; those that stay on the host are not among them.
    flows: BTreeMap<(Client, u32), (u64, u64)>,
    witness: (u64, u64),
}

struct Instance {
    scheduler: Scheduler,
    switch: Board,
    sequence: u64,
    asked: (Slot, Vec<Question>),
    plans: Vec<Plan>,
    /// Messages to the witness.
    received: Vec<ToJob>,
}

impl Stage {
    fn new() -> Stage {
        let mut stage = Stage {
            main: Instance::new(),
            lone: Some(Instance::new()),
            now: Time::ZERO,
            joined: BTreeSet::new(),
            flows: BTreeMap::new(),
            witness: (0, 0),
        };
        stage.witness_says(FromJob::Join {
            version: VERSION,
            job: "witness".into(),
            classes: false,
            leaf: false,
        });
        stage.witness_says(FromJob::Flow(Announced {
            flow: 0,
            to: WITNESS_PEER,
            volume: None,
            is_exact: false,
            relation: Default::default(),
            others: Vec::new(),
        }));
        stage
    }

    /// Lets time pass, and everything happen that is due.
    fn pass(&mut self, span: Span) {
        self.now += span;
        let (now, flows) = (self.now, self.flows.len() + 1);
        self.main.pass(now, flows);
        if let Some(lone) = &mut self.lone {
            lone.pass(now, 1);
        }
        self.compare();
    }

    /// A job writes a line.
    fn say(&mut self, client: Client, line: &[u8]) -> bool {
        let words = match Lines::new(line).next_line::<FromJob>() {
            Ok(Some(words)) => words,
            Ok(None) => return false,
            Err(_) => {
                self.hang_up(client);
                return false;
            }
        };
        let done = self.main.scheduler.handle_job(self.now, client, words.clone());
        self.main.drain(self.now, self.flows.len() + 2);
        if done.is_err() {
            self.hang_up(client);
            return false;
        }
        match words {
            FromJob::Join { .. } => assert!(self.joined.insert(client), "it has joined twice"),
            _ => assert!(self.joined.contains(&client), "it has not joined"),
        }
        match words {
            FromJob::Flow(Announced { flow, to, .. }) if to != OWN => {
                let before = self.flows.insert((client, flow), (0, 0));
                assert!(before.is_none(), "a flow that is there already");
            }
            FromJob::Report { flow, ready, sent, .. } => {
                if let Some(counts) = self.flows.get_mut(&(client, flow)) {
                    assert!(counts.1 <= sent && sent <= ready, "counts that went back");
                    *counts = (ready, sent);
                    self.lone = None;
                }
            }
            FromJob::Close { flow } => drop(self.flows.remove(&(client, flow))),
            FromJob::Join { .. } | FromJob::Flow(_) => {}
        }
        true
    }

    fn hang_up(&mut self, client: Client) {
        self.main.scheduler.forget(self.now, client);
        self.joined.remove(&client);
        self.flows.retain(|(of, _), _| *of != client);
        self.main.drain(self.now, self.flows.len() + 1);
    }

    /// The witness has sent what it wrote, and writes more, unless there is much.
    fn work(&mut self) {
        let (ready, _) = self.witness;
        self.witness = (ready + WITNESS_BYTES, ready);
        self.witness_says(FromJob::report(0, self.witness.0, ready));
        self.compare();
    }

    fn witness_says(&mut self, words: FromJob) {
        for instance in [Some(&mut self.main), self.lone.as_mut()].into_iter().flatten() {
            let done = instance.scheduler.handle_job(self.now, WITNESS, words.clone());
            assert_eq!(done, Ok(()), "the witness does nothing wrong");
            instance.drain(self.now, self.flows.len() + 2);
        }
    }

    fn compare(&mut self) {
        let Some(lone) = &mut self.lone else { return self.main.received.clear() };
        assert_eq!(self.main.received, lone.received, "jobs that send nothing make a difference");
        self.main.received.clear();
        lone.received.clear();
    }

    /// A switch says anything at all.
    fn answer(&mut self, numbers: &mut Numbers) {
        let (slot, questions) = self.main.asked.clone();
        let slot = Slot((slot.0 + numbers.next() % 3).saturating_sub(1));
        let horizon = numbers.next() as usize % 14;
        let mut ahead = || {
            let volumes: Vec<u64> = (0..horizon).map(|_| numbers.next()).collect();
            Ahead::of(slot, &volumes)
        };
        let (load, free) = (ahead(), ahead());
        let feedback = Some(Feedback { load, free, narrowest: numbers.next() });
        let of = |question: &Question| {
            let others = question.others.iter().take(2);
            let progress = others.map(|&flow| Progress {
                flow,
                iteration: numbers.next() % 3,
                volume: numbers.next(),
            });
            Answer { feedback, progress: progress.collect(), rank: None }
        };
        let answers = questions.iter().map(of).collect();
        self.main.scheduler.handle_answers(self.now, 1, slot, &questions, answers);
        self.lone = None;
        self.main.drain(self.now, self.flows.len() + 1);
    }

    /// A switch refuses anything at all.
    fn refuse(&mut self, numbers: &mut Numbers) {
        let plans = self.main.plans.clone();
        let of = |plan: &Plan| {
            let slot = plan.plan.first().after(numbers.next() % 12);
            Verdict::Full(Refusal { slot, asked: plan.plan.at(slot), free: numbers.next() })
        };
        let verdicts: Vec<Verdict> = plans.iter().map(of).collect();
        self.main.scheduler.handle_verdicts(self.now, &plans, &verdicts);
        self.lone = None;
        self.main.drain(self.now, self.flows.len() + 1);
    }

    /// Everybody has sent everything: after a while nobody waits for anything, and when all have gone nothing is
    /// left.
    fn fall_silent(&mut self) {
        let (ready, _) = self.witness;
        self.witness_says(FromJob::report(0, ready, ready));
        let flows: Vec<_> = self.flows.iter().map(|(&id, &counts)| (id, counts)).collect();
        for ((client, flow), (ready, _)) in flows {
            let words = FromJob::report(flow, ready, ready);
            if self.main.scheduler.handle_job(self.now, client, words).is_err() {
                self.hang_up(client);
            }
            self.main.drain(self.now, self.flows.len() + 2);
        }
        self.pass(Span::from_s(2));
        let due = self.main.scheduler.poll_timeout();
        assert_eq!(due, Time::NEVER, "somebody waits, and nobody has anything to send");
        for client in 0..=WITNESS.0 {
            self.hang_up(Client(client));
        }
        self.pass(Span::from_ms(60));
        assert_eq!(self.main.scheduler.poll_timeout(), Time::NEVER, "nobody is there");
    }
}

impl Instance {
    fn new() -> Instance {
        let rate = Rate::from_bps(UPLINK_BPS).expect("a rate");
        let settings = Settings::default();
        let scheduler = Scheduler::new(OWN, rate, settings, BASE, &Rng::new(1)).expect("it works");
        let route = Route { to: Prefix::ALL, rate, is_each: true };
        Instance {
            scheduler,
            switch: Board::new(settings, vec![route]),
            sequence: 0,
            asked: (BASE, Vec::new()),
            plans: Vec::new(),
            received: Vec::new(),
        }
    }

    fn pass(&mut self, now: Time, flows: usize) {
        while self.scheduler.poll_timeout() <= now {
            let due = self.scheduler.poll_timeout();
            self.scheduler.handle_timeout(due);
            self.drain(due, flows);
            assert!(self.scheduler.poll_timeout() > due, "it is due again at once");
        }
    }

    /// Carries out what the scheduler wants; a switch takes all of it.
    fn drain(&mut self, now: Time, flows: usize) {
        let mut outputs = 0;
        let slot = BASE.after(Settings::default().slot_at(now).0);
        while let Some(output) = self.scheduler.poll() {
            outputs += 1;
            assert!(outputs <= OUTPUTS_PER_FLOW * (flows + 1), "it talks without end");
            match output {
                Output::Say(client, words) => self.say(client, words),
                Output::Ask(of, questions) => {
                    assert!(of == slot && questions.len() <= flows);
                    self.ask(now, slot, &questions);
                    self.asked = (slot, questions);
                    outputs = 0;
                }
                Output::Tell(of, plans) => {
                    assert!(of == slot && plans.len() <= flows);
                    self.tell(now, slot, &plans);
                    self.plans = plans;
                }
                Output::Note(record) => assert!(record.slot < slot.0),
                // Nobody here orders classes.
                Output::Leaves(leaves) => panic!("{leaves:?} without classes"),
            }
        }
    }

    fn say(&mut self, client: Client, words: ToJob) {
        if let ToJob::Rate { bps, .. } = &words {
            assert!(*bps <= UPLINK_BPS || *bps == u64::MAX, "faster than the link: {words:?}");
        }
        if client == WITNESS {
            let is_meant = match &words {
                ToJob::Welcome { .. } => true,
                ToJob::Rate { flow, bps, .. } => *flow == 0 && *bps <= UPLINK_BPS,
                ToJob::Refused { .. }
                | ToJob::Leaf { .. }
                | ToJob::Class { .. }
                | ToJob::Hold { .. }
                | ToJob::Enter { .. } => false,
            };
            assert!(is_meant, "the witness gets {words:?}");
            self.received.push(words);
        }
    }

    fn ask(&mut self, now: Time, slot: Slot, questions: &[Question]) {
        for questions in questions.chunks(FLOWS_PER_MESSAGE) {
            let answers = self.switch.fetch(slot, slot, questions);
            let answers = answers.expect("an agent asks what can be answered");
            self.scheduler.handle_answers(now, 0, slot, questions, answers);
        }
    }

    fn tell(&mut self, now: Time, slot: Slot, plans: &[Plan]) {
        for plans in plans.chunks(FLOWS_PER_MESSAGE) {
            self.sequence += 1;
            let (agent, sequence, plans) = (AgentId(1), self.sequence, plans.to_vec());
            let update = Update { agent, sequence, slot, plans };
            let verdicts = self.switch.update(slot, &update);
            let verdicts = verdicts.expect("an agent plans what can be taken in");
            self.scheduler.handle_verdicts(now, &update.plans, &verdicts);
        }
    }
}

/// Numbers out of bytes; zeros behind their end.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn next(&mut self) -> u64 {
        let (number, rest) = self.0.split_at(self.0.len().min(8));
        self.0 = rest;
        number.iter().rev().fold(0, |high, &low| high << 8 | u64::from(low))
    }
}
