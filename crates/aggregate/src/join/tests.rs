use thalweg_wire::aggregate::Branch;
use thalweg_wire::prefix::EPOCH_MAX;

use super::*;
use crate::parameters::JobParameters;
use crate::tree::TreeError;

mod swarm;

/// Two racks below the switches 100 and 101; the server 90 in the rack of switch 102.
const SERVER: NodeId = NodeId(90);
const RACK_0: [u32; 2] = [100, 102];
const RACK_1: [u32; 2] = [101, 102];
const SERVERS_RACK: [u32; 1] = [102];

/// A registrar with one job, and the instructions that it sent last.
struct Bench {
    registrar: Registrar,
    job: JobId,
    sent: Vec<Instruction>,
}

impl Bench {
    fn new(workers: u32) -> Bench {
        let mut registrar = Registrar::new(Rng::new(5));
        let job = registrar.register(JobSpec::new(workers, vec![SERVER])).unwrap();
        Bench { registrar, job, sent: Vec::new() }
    }

    /// Five workers: two in the first rack, two in the second, one beside the server.
    fn set_up() -> Self {
        let mut bench = Bench::new(5);
        let ways: [&[u32]; 5] = [&RACK_0, &RACK_1, &SERVERS_RACK, &RACK_0, &RACK_1];
        for (rank, way) in (0..).zip(ways) {
            bench.join(rank, 0).unwrap();
            bench.answer(1, rank, (rank, 0), way, Memory::Lost).unwrap();
        }
        bench
    }

    fn handle(&mut self, message: Message) -> Result<Freshness, JoinError> {
        let freshness = self.registrar.handle(message);
        self.sent = std::iter::from_fn(|| self.registrar.poll()).collect();
        freshness
    }

    fn join(&mut self, node: u32, life: u64) -> Result<Freshness, JoinError> {
        let process = Process { node: NodeId(node), life };
        self.handle(Message::Join { job: self.job, process, rank: None })
    }

    fn answer(
        &mut self,
        round: u32,
        rank: u32,
        (node, life): (u32, u64),
        way: &[u32],
        memory: Memory,
    ) -> Result<Freshness, JoinError> {
        let process = Process { node: NodeId(node), life };
        let paths = vec![way.iter().copied().map(NodeId).collect()];
        self.handle(Message::Answer { job: self.job, process, round, rank, paths, memory })
    }

    fn lose(&mut self, (node, life): (u32, u64)) -> Result<Freshness, JoinError> {
        let process = Process { node: NodeId(node), life };
        self.handle(Message::Lost { job: self.job, process })
    }

    fn restart_server(&mut self, node: NodeId, life: u64) -> Result<Freshness, JoinError> {
        self.handle(Message::ServerRestarted { process: Process { node, life } })
    }

    fn setup(&self) -> &Setup {
        self.registrar.setup(self.job).unwrap()
    }

    fn waits_for(&self) -> Vec<u32> {
        self.registrar.waits_for(self.job).collect()
    }

    /// Processes that were asked to report, as (node, rank).
    fn asked(&self, of_round: u32) -> Vec<(u32, u32)> {
        let asked = |instruction: &Instruction| match *instruction {
            Instruction::Report { process, round, rank, .. } if round == of_round => {
                Some((process.node.0, rank))
            }
            _ => None,
        };
        self.sent.iter().filter_map(asked).collect()
    }

    /// Workers that were instructed to adopt, as (node, rank).
    fn adopters(&self) -> Vec<(u32, u32)> {
        let adopter = |instruction: &Instruction| match instruction {
            Instruction::AdoptWorker { process, rank, .. } => Some((process.node.0, *rank)),
            _ => None,
        };
        self.sent.iter().filter_map(adopter).collect()
    }
}

fn branch(fan_ins: [u8; 2], places: [u8; 2]) -> Branch {
    let four = |[low, high]: [u8; 2]| [low, high, 0, 0];
    Branch::new(four(fan_ins), four(places)).unwrap()
}

const KEPT: fn(u64) -> Memory = |watermark| Memory::Kept { watermark };

// spec: A-40 machine
#[test]
fn the_first_set_up_has_ranks_and_the_fan_ins_of_the_topology() {
    let bench = Bench::set_up();
    assert_eq!(bench.adopters(), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]);
    let Some(Instruction::AdoptServer { node: SERVER, life: None, setup }) = bench.sent.first()
    else {
        panic!("the server is instructed first: {:?}", bench.sent);
    };
    assert_eq!((setup.job, setup.epoch, setup.resume_from), (bench.job, 1, 0));
    assert_eq!((setup.parameters.fragment_values, setup.parameters.overhead_bytes), (352, 130));
    let tree = &setup.trees[0];
    assert_eq!(tree.branch(0), branch([2, 3], [0, 0]));
    assert_eq!(tree.branch(1), branch([2, 3], [0, 1]));
    assert_eq!(tree.branch(2), branch([0, 3], [0, 2]));
    assert_eq!(tree.branch(3), branch([2, 3], [1, 0]));
    assert_eq!(tree.branch(4), branch([2, 3], [1, 1]));
}

// spec: A-40 machine
#[test]
fn every_job_has_an_id_of_its_own_and_there_is_an_end_of_them() {
    let mut registrar = Registrar::new(Rng::new(1));
    let spec = || JobSpec::new(1, vec![SERVER]);
    let mut ids: Vec<JobId> = (0..JOBS_MAX).map(|_| registrar.register(spec()).unwrap()).collect();
    assert_eq!(registrar.register(spec()), Err(RegisterError::TooManyJobs(JOBS_MAX)));
    let first = ids[0];
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), JOBS_MAX);
    registrar.end(first).unwrap();
    assert_eq!(registrar.end(first), Err(JoinError::UnknownJob(first)));
    let again = registrar.register(spec()).unwrap();
    assert!(!ids.contains(&again));
    let none = registrar.register(JobSpec::new(0, vec![SERVER]));
    assert_eq!(none, Err(SpecError::Workers(0).into()));
}

// spec: A-41 machine
#[test]
fn a_crashed_worker_comes_back_on_another_rack_and_fan_ins_follow() {
    let mut bench = Bench::set_up();
    assert_eq!(bench.lose((3, 0)), Ok(Freshness::New));
    assert_eq!(bench.asked(2), [(0, 0), (1, 1), (2, 2), (4, 4)]);
    assert_eq!(bench.waits_for(), [0, 1, 2, 3, 4]);
    bench.answer(2, 0, (0, 0), &RACK_0, KEPT(70)).unwrap();
    bench.answer(2, 1, (1, 0), &RACK_1, KEPT(75)).unwrap();
    bench.answer(2, 2, (2, 0), &SERVERS_RACK, KEPT(64)).unwrap();
    bench.answer(2, 4, (4, 0), &RACK_1, KEPT(90)).unwrap();
    assert_eq!(bench.waits_for(), [3], "the one that is gone");
    bench.join(33, 0).unwrap();
    assert_eq!(bench.asked(2), [(33, 3)]);
    bench.answer(2, 3, (33, 0), &RACK_1, Memory::Lost).unwrap();
    assert_eq!(bench.adopters(), [(0, 0), (1, 1), (2, 2), (33, 3), (4, 4)]);
    let retired = Instruction::Retire { node: NodeId(3), job: bench.job, round: 2 };
    assert_eq!(bench.sent[0], retired, "a process that was called dead may live");
    let setup = bench.setup();
    assert_eq!((setup.epoch, setup.resume_from), (2, 64));
    assert_eq!(setup.trees[0].branch(0), branch([1, 3], [0, 0]));
    assert_eq!(setup.trees[0].branch(3), branch([3, 3], [1, 1]));
    assert_eq!(setup.trees[0].node(3), NodeId(33));
}

// spec: E-06 machine
#[test]
fn other_parameters_hold_from_the_next_set_up() {
    let mut cluster = Bench::set_up();
    let before = *cluster.setup().parameters;
    let parameters = JobParameters { aggregators: 7, ..before };
    let checked = parameters.check().unwrap();
    cluster.registrar.set_parameters(cluster.job, checked).unwrap();
    cluster.restart_server(SERVER, 7).unwrap();
    for (rank, way) in (0..).zip([&RACK_0[..], &RACK_1, &SERVERS_RACK, &RACK_0, &RACK_1]) {
        assert_eq!(*cluster.setup().parameters, before);
        cluster.answer(2, rank, (rank, 0), way, KEPT(70)).unwrap();
    }
    assert_eq!((cluster.setup().epoch, *cluster.setup().parameters), (2, parameters));
    let unknown = cluster.registrar.set_parameters(JobId(1), checked);
    assert_eq!(unknown, Err(JoinError::UnknownJob(JobId(1))));
}

// spec: A-41 machine
#[test]
fn a_restarted_server_makes_everybody_report() {
    let mut bench = Bench::set_up();
    assert_eq!(bench.restart_server(SERVER, 7), Ok(Freshness::New));
    assert_eq!(bench.asked(2), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]);
    assert_eq!(bench.restart_server(SERVER, 7), Ok(Freshness::Again));
    assert!(bench.sent.is_empty());
    let way: [&[u32]; 5] = [&RACK_0, &RACK_1, &SERVERS_RACK, &RACK_0, &RACK_1];
    for rank in 0..5 {
        let memory = KEPT(100 + u64::from(rank));
        bench.answer(2, rank, (rank, 0), way[rank as usize], memory).unwrap();
    }
    assert_eq!((bench.setup().epoch, bench.setup().resume_from), (2, 100));
    assert!(matches!(bench.sent[0], Instruction::AdoptServer { node: SERVER, .. }));
    // While a round is open, its set-up serves as well.
    bench.lose((0, 0)).unwrap();
    assert_eq!(bench.restart_server(SERVER, 8), Ok(Freshness::New));
    assert_eq!((bench.sent.len(), bench.registrar.round(bench.job)), (0, Some(3)));
    let nobody = bench.restart_server(NodeId(91), 1);
    assert_eq!(nobody, Err(JoinError::UnknownServer(NodeId(91))));
}

// spec: A-41 machine
#[test]
fn who_leaves_takes_its_rank_along() {
    let mut bench = Bench::set_up();
    let leave = Message::Leave { job: bench.job, process: Process { node: NodeId(1), life: 0 } };
    assert_eq!(bench.handle(leave.clone()), Ok(Freshness::New));
    assert_eq!(bench.asked(2), [(0, 0), (2, 1), (3, 2), (4, 3)], "ranks above move down");
    let retire = Instruction::Retire { node: NodeId(1), job: bench.job, round: 2 };
    assert_eq!(bench.sent.last(), Some(&retire));
    assert_eq!(bench.handle(leave), Ok(Freshness::Again));
    assert_eq!(bench.sent, [retire]);
    let ways: [&[u32]; 4] = [&RACK_0, &SERVERS_RACK, &RACK_0, &RACK_1];
    for (rank, node) in (0..).zip([0, 2, 3, 4]) {
        bench.answer(2, rank, (node, 0), ways[rank as usize], KEPT(8)).unwrap();
    }
    assert_eq!(bench.adopters(), [(0, 0), (2, 1), (3, 2), (4, 3)]);
    assert_eq!((bench.setup().epoch, bench.setup().trees[0].workers()), (2, 4));
    assert_eq!(bench.setup().trees[0].branch(3), branch([1, 3], [0, 2]));
    // Nobody will come for the rank.
    bench.lose((0, 0)).unwrap();
    let given_up = Message::GivenUp { job: bench.job, round: 3, rank: 0 };
    assert_eq!(bench.handle(given_up.clone()), Ok(Freshness::New));
    assert_eq!(bench.handle(given_up), Ok(Freshness::Stale), "not the next one too");
    assert_eq!(bench.asked(4).len() + bench.waits_for().len(), 3);
}

#[test]
fn when_the_last_one_leaves_the_job_is_over() {
    let mut bench = Bench::new(1);
    bench.join(4, 0).unwrap();
    bench.answer(1, 0, (4, 0), &RACK_0, Memory::Lost).unwrap();
    let process = Process { node: NodeId(4), life: 0 };
    bench.handle(Message::Leave { job: bench.job, process }).unwrap();
    let retire = |node| Instruction::Retire { node, job: bench.job, round: 2 };
    assert!(bench.sent.contains(&retire(NodeId(4))) && bench.sent.contains(&retire(SERVER)));
    assert_eq!(bench.join(5, 0), Err(JoinError::UnknownJob(bench.job)));
}

// spec: A-41 machine
#[test]
fn when_nobody_remembers_old_numbers_are_not_used_again() {
    let mut bench = Bench::new(2);
    for (rank, life) in [(0, 0), (1, 0)] {
        bench.answer(1, rank, (rank, life), &RACK_0, Memory::Lost).unwrap();
    }
    assert_eq!(bench.setup().resume_from, 0);
    bench.lose((0, 0)).unwrap();
    bench.lose((1, 0)).unwrap();
    bench.answer(3, 0, (0, 1), &RACK_0, Memory::Lost).unwrap();
    bench.answer(3, 1, (1, 1), &RACK_0, Memory::Lost).unwrap();
    assert_eq!((bench.setup().epoch, bench.setup().resume_from), (3, 1 << 48));
    // From here on a watermark of the old age is a lie, as is one of the next.
    bench.lose((0, 1)).unwrap();
    let (least, limit) = (1 << 48, 1 << 49);
    for watermark in [5, limit] {
        let error = JoinError::Watermark { watermark, least, limit };
        assert_eq!(bench.answer(4, 1, (1, 1), &RACK_0, KEPT(watermark)), Err(error));
    }
    assert_eq!(bench.answer(4, 1, (1, 1), &RACK_0, KEPT(least)), Ok(Freshness::New));
}

#[test]
fn a_failure_in_the_middle_of_a_round_voids_its_answers() {
    let mut bench = Bench::set_up();
    bench.lose((0, 0)).unwrap();
    bench.answer(2, 1, (1, 0), &RACK_1, KEPT(10)).unwrap();
    assert_eq!(bench.lose((1, 0)), Ok(Freshness::New));
    assert_eq!(bench.lose((1, 0)), Ok(Freshness::Again), "it is lost already");
    assert_eq!(bench.answer(2, 1, (1, 0), &RACK_1, KEPT(10)), Ok(Freshness::Stale));
    assert_eq!(bench.answer(2, 2, (2, 0), &SERVERS_RACK, KEPT(10)), Ok(Freshness::Stale));
    assert_eq!(bench.waits_for(), [0, 1, 2, 3, 4]);
    // It was not dead after all, and its memory still counts.
    bench.join(1, 0).unwrap();
    assert_eq!(bench.asked(3), [(1, 0)]);
    assert_eq!(bench.answer(3, 0, (1, 0), &RACK_1, KEPT(10)), Ok(Freshness::New));
}

#[test]
fn who_was_replaced_cannot_bring_its_memory_back() {
    let mut bench = Bench::new(1);
    bench.answer(1, 0, (1, 0), &RACK_0, Memory::Lost).unwrap();
    bench.lose((1, 0)).unwrap();
    bench.answer(2, 0, (2, 0), &RACK_0, Memory::Lost).unwrap();
    assert_eq!(bench.lose((1, 0)), Ok(Freshness::Again), "a late copy means nobody");
    bench.lose((2, 0)).unwrap();
    assert_eq!(bench.answer(3, 0, (1, 0), &RACK_0, KEPT(5)), Err(JoinError::Outdated));
    assert_eq!(bench.answer(3, 0, (1, 0), &RACK_0, Memory::Lost), Ok(Freshness::New));
}

#[test]
fn repeated_messages_are_answered_again_and_change_nothing() {
    let mut bench = Bench::new(2);
    assert_eq!(bench.join(7, 0), Ok(Freshness::New));
    assert_eq!(bench.join(7, 0), Ok(Freshness::Again));
    assert_eq!(bench.asked(1), [(7, 0)], "the same rank");
    assert_eq!(bench.answer(1, 0, (7, 0), &RACK_0, Memory::Lost), Ok(Freshness::New));
    assert_eq!(bench.answer(1, 0, (7, 0), &RACK_0, Memory::Lost), Ok(Freshness::Again));
    assert_eq!(bench.join(7, 0), Ok(Freshness::Again));
    assert!(bench.sent.is_empty(), "it has answered");
    bench.join(8, 0).unwrap();
    bench.answer(1, 1, (8, 0), &RACK_1, Memory::Lost).unwrap();
    // A process that missed the set-up repeats its answer.
    assert_eq!(bench.answer(1, 0, (7, 0), &RACK_0, Memory::Lost), Ok(Freshness::Again));
    assert_eq!(bench.adopters(), [(7, 0)]);
    assert_eq!(bench.join(8, 0), Ok(Freshness::Again));
    assert_eq!(bench.adopters(), [(8, 1)]);
    bench.registrar.remind(bench.job).unwrap();
    bench.sent = std::iter::from_fn(|| bench.registrar.poll()).collect();
    assert_eq!((bench.sent.len(), bench.adopters()), (3, vec![(7, 0), (8, 1)]));
}

#[test]
fn offers_to_the_dead_do_not_keep_a_rank_from_the_living() {
    let mut bench = Bench::new(2);
    for node in [7, 8, 9] {
        bench.join(node, 0).unwrap();
    }
    assert_eq!(bench.asked(1), [(9, 0)], "the oldest offer is made again");
    assert_eq!(bench.answer(1, 0, (9, 0), &RACK_0, Memory::Lost), Ok(Freshness::New));
    let holder = Process { node: NodeId(9), life: 0 };
    let late = bench.answer(1, 0, (7, 0), &RACK_0, Memory::Lost);
    assert_eq!(late, Err(JoinError::Taken { rank: 0, holder }));
    bench.join(7, 0).unwrap();
    assert_eq!(bench.asked(1), [(7, 1)]);
    assert_eq!(bench.answer(1, 1, (8, 0), &RACK_0, Memory::Lost), Ok(Freshness::New));
    assert_eq!(bench.join(7, 0), Err(JoinError::Full));
}

#[test]
fn a_process_that_restarted_in_place_is_not_taken_for_the_old_one() {
    let mut bench = Bench::set_up();
    let holder = Process { node: NodeId(3), life: 0 };
    assert_eq!(bench.join(3, 1), Err(JoinError::Taken { rank: 3, holder }));
    let answer = bench.answer(1, 3, (3, 1), &RACK_0, Memory::Lost);
    assert_eq!(answer, Err(JoinError::Taken { rank: 3, holder }));
    bench.lose((3, 0)).unwrap();
    assert_eq!(bench.join(3, 1), Ok(Freshness::New));
    assert_eq!(bench.answer(2, 3, (3, 1), &RACK_0, Memory::Lost), Ok(Freshness::New));
}

#[test]
fn nonsense_is_refused_and_changes_nothing() {
    let mut bench = Bench::new(2);
    let strange = JobId(bench.job.0 ^ 1);
    let nobody = Process { node: NodeId(9), life: 0 };
    let lost = Message::Lost { job: strange, process: nobody };
    assert_eq!(bench.handle(lost), Err(JoinError::UnknownJob(strange)));
    assert_eq!(bench.lose((9, 0)), Ok(Freshness::Again));
    let given_up = |round, rank| Message::GivenUp { job: bench.job, round, rank };
    let (early, unknown) = (given_up(2, 0), given_up(1, 2));
    assert_eq!(bench.handle(early), Err(JoinError::Future { round: 2, current: 1 }));
    assert_eq!(bench.handle(unknown), Err(JoinError::UnknownRank { rank: 2, workers: 2 }));
    let process = Process { node: NodeId(1), life: 0 };
    let join = Message::Join { job: bench.job, process, rank: Some(u32::MAX) };
    let error = JoinError::UnknownRank { rank: u32::MAX, workers: 2 };
    assert_eq!(bench.handle(join), Err(error));
    let long = bench.answer(1, 0, (1, 0), &[1, 2, 3, 4, 5], Memory::Lost);
    assert_eq!(long, Err(JoinError::LongPath(5)));
    let early = bench.answer(1, 0, (1, 0), &RACK_0, KEPT(0));
    assert_eq!(early, Err(JoinError::Outdated), "nobody has a memory of what never was");
    let answer = Message::Answer {
        job: bench.job,
        process,
        round: 1,
        rank: 0,
        paths: vec![],
        memory: Memory::Lost,
    };
    assert_eq!(bench.handle(answer), Err(JoinError::Paths { given: 0, servers: 1 }));
    assert_eq!((bench.registrar.round(bench.job), bench.waits_for()), (Some(1), vec![0, 1]));
}

#[test]
fn ways_that_form_no_tree_can_be_corrected() {
    let mut bench = Bench::new(2);
    bench.answer(1, 0, (1, 0), &[100, 103], Memory::Lost).unwrap();
    let error = JoinError::Tree(TreeError::TwoParents(NodeId(100)));
    assert_eq!(bench.answer(1, 1, (2, 0), &RACK_0, Memory::Lost), Err(error));
    assert_eq!(bench.waits_for(), [1]);
    bench.answer(1, 0, (1, 0), &RACK_0, Memory::Lost).unwrap();
    assert_eq!(bench.answer(1, 1, (2, 0), &RACK_0, Memory::Lost), Ok(Freshness::New));
    assert_eq!(bench.setup().epoch, 1);
}

const fn process(node: u32, life: u64) -> Process {
    Process { node: NodeId(node), life }
}

// spec: A-41 machine
#[test]
fn a_registrar_that_forgot_goes_on_with_what_the_workers_know() {
    let roster = vec![process(1, 11), process(2, 22)];
    let mut registrar = Registrar::new(Rng::new(5));
    let job = JobId(0xabc0);
    let spec = JobSpec::new(3, vec![SERVER]);
    registrar.restore(job, spec, 6, roster, 500).unwrap();
    let mut bench = Bench { registrar, job, sent: Vec::new() };
    assert_eq!(bench.registrar.round(job), Some(7));
    assert_eq!(bench.join(1, 11), Ok(Freshness::New));
    assert_eq!(bench.asked(7), [(1, 0)]);
    let early = bench.answer(6, 0, (1, 11), &RACK_0, KEPT(500));
    assert_eq!(early, Ok(Freshness::Stale), "an answer to the registrar before");
    // The least that anybody had is the least that anybody can have.
    let (least, limit) = (500, 1 << 48);
    let gone_back = Err(JoinError::Watermark { watermark: 499, least, limit });
    assert_eq!(bench.answer(7, 0, (1, 11), &RACK_0, KEPT(499)), gone_back);
    bench.answer(7, 0, (1, 11), &RACK_0, KEPT(510)).unwrap();
    bench.answer(7, 1, (2, 22), &RACK_1, KEPT(505)).unwrap();
    let stranger = bench.answer(7, 2, (3, 33), &RACK_1, KEPT(505));
    assert_eq!(stranger, Err(JoinError::Outdated), "it was not in the last set-up");
    bench.answer(7, 2, (3, 33), &RACK_1, Memory::Lost).unwrap();
    assert_eq!(bench.adopters(), [(1, 0), (2, 1), (3, 2)]);
    assert_eq!((bench.setup().job, bench.setup().epoch, bench.setup().resume_from), (job, 7, 505));
}

// spec: A-41 machine
#[test]
fn a_restored_job_that_nobody_remembers_begins_an_age_above_the_watermark() {
    let begin = |watermark| {
        let mut registrar = Registrar::new(Rng::new(5));
        let job = JobId(4);
        let spec = JobSpec::new(1, vec![SERVER]);
        registrar.restore(job, spec, 1, vec![process(1, 1)], watermark).unwrap();
        let mut bench = Bench { registrar, job, sent: Vec::new() };
        bench.answer(2, 0, (1, 2), &RACK_0, Memory::Lost)?;
        Ok(bench.setup().resume_from)
    };
    assert_eq!(begin(0), Ok(1 << 48));
    assert_eq!(begin((1 << 48) + 7), Ok(1 << 49));
    assert_eq!(begin(u64::MAX - 1), Err(JoinError::WornOut(JobId(4))));
}

#[test]
fn ids_that_are_brought_along_do_not_collide() {
    let mut registrar = Registrar::new(Rng::new(1));
    let spec = || JobSpec::new(1, vec![SERVER]);
    let drawn = Registrar::new(Rng::new(1)).register(spec()).unwrap();
    registrar.restore(drawn, spec(), 1, vec![], 0).unwrap();
    assert_eq!(registrar.register_as(drawn, spec()), Err(RegisterError::Taken(drawn)));
    let again = registrar.restore(drawn, spec(), 1, vec![], 0);
    assert_eq!(again, Err(RegisterError::Taken(drawn)));
    assert_ne!(registrar.register(spec()).unwrap(), drawn, "the same would have been drawn");
    let crowd = vec![process(1, 1); WORKERS_MAX as usize + 1];
    let error = RegisterError::Roster(4_097);
    assert_eq!(registrar.restore(JobId(8), spec(), 1, crowd, 0), Err(error));
    let last = registrar.restore(JobId(8), spec(), EPOCH_MAX, vec![], 0);
    assert_eq!(last, Err(RegisterError::WornOut(JobId(8))));
    assert_eq!(registrar.register_as(JobId(8), spec()), Ok(()), "nothing of it stayed");
}

#[test]
fn a_member_adopts_only_what_it_answered_for() {
    let bench = Bench::set_up();
    let process = Process { node: NodeId(3), life: 1 };
    let report = |process, round| Instruction::Report { process, job: bench.job, round, rank: 3 };
    let adopt = |process, epoch| {
        let setup = Arc::new(Setup { epoch, ..bench.setup().clone() });
        Instruction::AdoptWorker { process, rank: 3, setup }
    };
    let mut member = Membership::new(bench.job, process, vec![vec![]]);
    let predecessor = Process { life: 0, ..process };
    assert_eq!(member.answer(&report(predecessor, 1), 9), None);
    assert_eq!(member.adopt(&adopt(process, 1)), None, "it was never asked");
    let first = member.answer(&report(process, 1), 9);
    let Some(Message::Answer { memory: Memory::Lost, round: 1, rank: 3, .. }) = first else {
        panic!("nothing to remember before the first set-up: {first:?}");
    };
    assert_eq!(member.adopt(&adopt(predecessor, 1)), None);
    assert_eq!(member.adopt(&adopt(process, 1)).map(|(rank, _)| rank), Some(3));
    assert_eq!(member.adopt(&adopt(process, 1)), None, "once");
    let later = member.answer(&report(process, 4), 9);
    let Some(Message::Answer { memory: Memory::Kept { watermark: 9 }, .. }) = later else {
        panic!("{later:?}");
    };
    assert_eq!(member.answer(&report(process, 3), 9), None, "an old report");
    assert_eq!(member.adopt(&adopt(process, 3)), None);
    assert!(member.adopt(&adopt(process, 4)).is_some());
}
