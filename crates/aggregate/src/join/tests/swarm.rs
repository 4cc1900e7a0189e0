//! Random lives of a job over a channel that loses, doubles and reorders, against what its processes
//! know to be true.

use proptest::prelude::*;
use thalweg_core::Rng;

use super::super::*;

const SERVER: NodeId = NodeId(90);

/// A worker process as it really is.
struct Worker {
    process: Process,
    membership: Membership,
    is_alive: bool,
    /// `None` until it adopts its first set-up.
    watermark: Option<u64>,
    /// The rounds of the answers it has sent.
    answered: Vec<u32>,
}

struct World {
    rng: Rng,
    registrar: Registrar,
    job: JobId,
    workers: Vec<Worker>,
    messages: Vec<Message>,
    instructions: Vec<Instruction>,
    /// Holder of each rank, from the registrar's verdict on each message.
    ranks: Vec<Option<Process>>,
    setup: Option<Arc<Setup>>,
    /// True if the registrar knows of it: not after a restart.
    setup_is_known: bool,
    /// Processes in the set-up.
    roster: Vec<Process>,
    /// Everybody in the last set-up had completed this when the current round began.
    job_watermark: u64,
    round: u32,
}

impl World {
    fn new(seed: u64, workers: u32) -> World {
        let mut registrar = Registrar::new(Rng::new(seed));
        let job = registrar.register(JobSpec::new(workers, vec![SERVER])).unwrap();
        let mut world = World {
            rng: Rng::new(seed).stream("world"),
            registrar,
            job,
            workers: Vec::new(),
            messages: Vec::new(),
            instructions: Vec::new(),
            ranks: vec![None; workers as usize],
            setup: None,
            setup_is_known: false,
            roster: Vec::new(),
            job_watermark: 0,
            round: 1,
        };
        (0..workers).for_each(|_| world.spawn());
        world
    }

    /// A new process: mostly on a new node, now and then on one that has had others.
    fn spawn(&mut self) {
        let life = self.workers.len() as u64;
        let node = NodeId(if self.rng.chance(0.3) { self.below(8) } else { life as u32 });
        let process = Process { node, life };
        let way = vec![vec![NodeId(100 + node.0 % 3), NodeId(103)]];
        let membership = Membership::new(self.job, process, way);
        self.messages.push(membership.join(None));
        let answered = Vec::new();
        self.workers.push(Worker {
            process,
            membership,
            is_alive: true,
            watermark: None,
            answered,
        });
    }

    fn below(&mut self, bound: usize) -> u32 {
        self.rng.below(bound as u64) as u32
    }

    fn any_rank(&mut self) -> u32 {
        self.below(self.ranks.len() + 1)
    }

    fn step(&mut self) {
        match self.below(100) {
            0..40 => self.deliver_message(),
            40..80 => self.deliver_instruction(),
            80..88 => {
                let chosen = self.below(self.workers.len()) as usize;
                let more = self.rng.below(50);
                let worker = &mut self.workers[chosen];
                if worker.is_alive {
                    worker.watermark = worker.watermark.map(|watermark| watermark + more);
                }
            }
            88 | 89 => {
                let chosen = self.below(self.workers.len()) as usize;
                self.workers[chosen].is_alive = false;
                self.spawn();
            }
            // Called lost: sometimes rightly, sometimes late.
            90..93 => {
                let chosen = self.below(self.workers.len()) as usize;
                let process = self.workers[chosen].process;
                self.messages.push(Message::Lost { job: self.job, process });
            }
            93 if self.ranks.len() > 2 => {
                let (round, rank) = (self.round, self.any_rank());
                self.messages.push(Message::GivenUp { job: self.job, round, rank });
            }
            94 if self.ranks.len() > 2 => {
                let chosen = self.below(self.workers.len()) as usize;
                self.messages.push(self.workers[chosen].membership.leave());
            }
            95 => {
                let process = Process { node: SERVER, life: self.rng.below(10) };
                self.messages.push(Message::ServerRestarted { process });
            }
            96 => self.registrar.remind(self.job).unwrap(),
            97 => self.restart_registrar(),
            _ => {
                let chosen = self.below(self.workers.len()) as usize;
                if self.workers[chosen].is_alive {
                    self.messages.push(self.workers[chosen].membership.join(None));
                }
            }
        }
        self.collect();
    }

    /// The registrar comes back without its memory, and with new channels. It goes on if anybody is
    /// there who remembers the job.
    fn restart_registrar(&mut self) {
        let is_there = |worker: &&Worker| worker.is_alive && self.roster.contains(&worker.process);
        let there = self.workers.iter().filter(is_there);
        let rounds = there.clone().flat_map(|worker| worker.answered.iter().copied());
        let remembers = |worker: &Worker| Some((worker.process, worker.watermark?));
        let (roster, watermarks): (Vec<Process>, Vec<u64>) = there.filter_map(remembers).unzip();
        let (Some(round), Some(&least)) = (rounds.max(), watermarks.iter().min()) else { return };
        self.messages.clear();
        self.instructions.clear();
        self.ranks.fill(None);
        self.round = round + 1;
        let spec = JobSpec::new(self.ranks.len() as u32, vec![SERVER]);
        self.registrar = Registrar::new(Rng::new(self.rng.bits()));
        self.registrar.restore(self.job, spec, round, roster, least).unwrap();
        self.setup_is_known = false;
        let there = self.workers.iter().filter(|worker| worker.is_alive);
        self.messages.extend(there.map(|worker| worker.membership.join(None)));
    }

    /// Takes one out of those in flight, in any order. Some stay, to come again; some get lost.
    fn pick<T: Clone>(rng: &mut Rng, from: &mut Vec<T>) -> Option<T> {
        if from.is_empty() {
            return None;
        }
        let chosen = rng.below(from.len() as u64) as usize;
        if rng.chance(0.2) {
            return Some(from[chosen].clone());
        }
        let picked = from.swap_remove(chosen);
        (!rng.chance(0.1)).then_some(picked)
    }

    fn deliver_message(&mut self) {
        let Some(message) = World::pick(&mut self.rng, &mut self.messages) else { return };
        // The job must not end under the test.
        let shrinks = matches!(message, Message::Leave { .. } | Message::GivenUp { .. });
        if !(shrinks && self.ranks.len() <= 1) {
            self.tell(message);
        }
    }

    /// Tells the registrar, and keeps the books.
    fn tell(&mut self, message: Message) {
        if self.registrar.handle(message.clone()) == Ok(Freshness::New) {
            match message {
                Message::Answer { process, rank, .. } => {
                    self.ranks[rank as usize] = Some(process);
                }
                Message::Lost { process, .. } => {
                    let held = self.ranks.iter_mut().filter(|holder| **holder == Some(process));
                    held.for_each(|holder| *holder = None);
                }
                Message::GivenUp { rank, .. } => drop(self.ranks.remove(rank as usize)),
                Message::Leave { process, .. } => {
                    self.ranks.retain(|&holder| holder != Some(process));
                }
                Message::Join { .. } | Message::Replan { .. } | Message::ServerRestarted { .. } => {
                }
            }
        }
        self.note_round();
        self.note_setup();
        self.collect();
    }

    fn collect(&mut self) {
        self.instructions.extend(std::iter::from_fn(|| self.registrar.poll()));
    }

    fn note_round(&mut self) {
        let round = self.registrar.round(self.job).expect("it is not over");
        if round == self.round {
            return;
        }
        assert_eq!(round, self.round + 1);
        self.round = round;
        let Some(setup) = &self.setup else { return };
        let watermark = |process: &Process| self.worker(*process).watermark;
        let least = self.roster.iter().map(|process| {
            // A process that has not received the set-up yet would begin where it says.
            watermark(process).unwrap_or(setup.resume_from)
        });
        self.job_watermark = least.min().expect("somebody is in a set-up");
    }

    fn worker(&self, process: Process) -> &Worker {
        self.workers.iter().find(|worker| worker.process == process).expect("it was made")
    }

    /// Every set-up is newer, has exactly the members, and nobody has to go back or is left behind.
    fn note_setup(&mut self) {
        let setup = self.registrar.setup(self.job).cloned();
        if setup == self.setup || (setup.is_none() && !self.setup_is_known) {
            return;
        }
        let setup = setup.expect("set-ups do not vanish");
        self.setup_is_known = true;
        if let Some(before) = &self.setup {
            assert!(setup.epoch > before.epoch && setup.resume_from >= before.resume_from);
        }
        assert_eq!(setup.epoch, self.round);
        let tree = &setup.trees[0];
        let members: Vec<Process> = self.ranks.iter().map(|holder| holder.unwrap()).collect();
        assert_eq!(tree.workers() as usize, members.len());
        for (rank, member) in (0..).zip(&members) {
            assert_eq!(tree.node(rank), member.node);
            let worker = self.worker(*member);
            assert!(worker.answered.contains(&setup.epoch), "a ghost has rank {rank}");
            assert!(worker.watermark.is_none_or(|watermark| watermark >= setup.resume_from));
        }
        assert!(setup.resume_from >= self.job_watermark, "some would have to go back");
        (self.setup, self.roster) = (Some(setup), members);
    }

    fn deliver_instruction(&mut self) {
        if let Some(instruction) = World::pick(&mut self.rng, &mut self.instructions) {
            self.obey(&instruction);
        }
    }

    /// All processes see all instructions, as if they shared a node.
    fn obey(&mut self, instruction: &Instruction) {
        for worker in self.workers.iter_mut().filter(|worker| worker.is_alive) {
            let watermark = worker.watermark.unwrap_or(u64::MAX);
            if let Some(answer) = worker.membership.answer(instruction, watermark) {
                let Instruction::Report { round, .. } = instruction else { unreachable!() };
                worker.answered.push(*round);
                self.messages.push(answer);
            }
            if let Some((rank, setup)) = worker.membership.adopt(instruction) {
                assert_eq!(setup.trees[0].node(rank), worker.process.node);
                worker.watermark = worker.watermark.or(Some(setup.resume_from));
            }
        }
    }

    /// From now on nothing is lost, and processes that died are called lost: the job must come together.
    fn settle(&mut self) {
        self.messages.clear();
        self.instructions.clear();
        for rank in (0..self.ranks.len() as u32).rev() {
            let Some(process) = self.ranks[rank as usize] else { continue };
            if !self.worker(process).is_alive {
                self.tell(Message::Lost { job: self.job, process });
            }
        }
        for _ in 0..6 {
            let empty = self.ranks.iter().filter(|holder| holder.is_none()).count();
            (0..empty).for_each(|_| self.spawn());
            self.registrar.remind(self.job).unwrap();
            for _ in 0..3 {
                std::mem::take(&mut self.messages).into_iter().for_each(|m| self.tell(m));
                self.collect();
                std::mem::take(&mut self.instructions).iter().for_each(|i| self.obey(i));
            }
        }
        assert_eq!(self.registrar.waits_for(self.job).count(), 0, "the round never ends");
        let setup = self.setup.clone().expect("it is set up");
        assert_eq!(setup.epoch, self.round);
    }
}

// spec: A-41 machine
proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn whatever_the_channel_does_set_ups_are_right(
        seed in any::<u64>(),
        workers in 1..7_u32,
        steps in 0..600_u32,
    ) {
        let mut world = World::new(seed, workers);
        (0..steps).for_each(|_| world.step());
        world.settle();
    }
}
