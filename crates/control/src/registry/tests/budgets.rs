//! Limits of what one caller may use of a registry.
// spec: E-12 machine

use std::net::Ipv4Addr;

use super::*;

fn limited(jobs: usize, unattended: usize, ranks: usize) -> Hall {
    let mut hall = Hall::empty(3, 5);
    hall.registry.budgets = JobBudgets { jobs, unattended, ranks, ..JobBudgets::default() };
    hall
}

fn at(last: u8) -> Caller {
    Caller::trusted(Ipv4Addr::new(10, 1, 9, last).into())
}

/// Registers a job under a number.
fn register(hall: &mut Hall, number: u32) -> Result<JobId, Refusal> {
    hall.register_as(&number.to_string(), Settings::default(), None)
}

/// A rank in a place of its own.
fn attend(hall: &mut Hall, job: JobId, rank: u32, place: u32) -> Result<LinkId, Refusal> {
    let process = Process { node: node(place), life: place.into() };
    let join = hall.join(rank, "a");
    hall.attend(Join { job, process, ..join })
}

#[test]
fn registrations_of_one_caller_leave_room_for_others() {
    let mut hall = Hall::empty(3, 5);
    hall.registry.budgets = JobBudgets::default();
    hall.caller = at(1);
    let made = (0..JOBS_MAX as u32).filter(|number| register(&mut hall, *number).is_ok()).count();
    assert_eq!(made, JobBudgets::default().unattended);
    hall.caller = at(2);
    let job = register(&mut hall, 1_000_000).expect("another has budgets of its own");
    assert!(attend(&mut hall, job, 0, 1).is_ok());
}

#[test]
fn jobs_that_nobody_has_joined_are_few() {
    let mut hall = limited(9, 2, 99);
    let first = register(&mut hall, 0).unwrap();
    register(&mut hall, 1).unwrap();
    let error = register(&mut hall, 2).unwrap_err();
    assert_eq!(error, Refusal::Unattended { limit: 2 });
    let text =
        "the budget of registrations of this token is used up: no rank has joined 2 of its jobs";
    assert_eq!(error.to_string(), text);
    attend(&mut hall, first, 0, 1).unwrap();
    assert!(register(&mut hall, 2).is_ok(), "one has been joined");
    hall.pass(UNATTENDED_FOR);
    assert_eq!(hall.registry.jobs(), 1, "those that nobody joins are forgotten");
    assert!(register(&mut hall, 3).is_ok());
}

#[test]
fn jobs_and_ranks_of_one_caller_have_a_limit() {
    let mut hall = limited(3, 9, 4);
    let jobs: Vec<JobId> = (0..3).map(|number| register(&mut hall, number).unwrap()).collect();
    assert_eq!(register(&mut hall, 3), Err(Refusal::JobsOfToken { limit: 3 }));
    assert_eq!(register(&mut hall, 0), Ok(jobs[0]), "it is there already");
    for (at, rank) in [0, 1, 0, 1].into_iter().enumerate() {
        attend(&mut hall, jobs[at / 2], rank, at as u32).unwrap();
    }
    assert_eq!(attend(&mut hall, jobs[2], 0, 9), Err(Refusal::RanksInJobs { limit: 4 }));
    assert!(attend(&mut hall, jobs[0], 0, 0).is_ok(), "it comes back");
    hall.caller = at(2);
    let other = register(&mut hall, 4).expect("another has budgets of its own");
    assert!(attend(&mut hall, other, 0, 9).is_ok());
}

/// Registers a job of two hosts, has both join and answer, and returns why it failed, if it did.
fn set_up(hall: &mut Hall, number: u32) -> Option<Arc<Failure>> {
    let job = register(hall, number).unwrap();
    hall.job = job;
    for (rank, host) in [(0, "a"), (1, "b")] {
        let process = Process { node: node(2 * number + rank), life: 1 };
        hall.attend(Join { process, ..hall.join(rank, host) }).unwrap();
    }
    // A job that is refused has ended, and its ranks are not asked.
    if hall.registry.jobs.contains_key(&job) {
        hall.answer_all(1, None);
    }
    hall.look();
    hall.done.iter().find_map(|action| match action {
        Action::Tell { message: ToRank::Failed(failure), .. } => Some(Arc::clone(failure)),
        _ => None,
    })
}

/// Most bytes of a job of two hosts with default settings.
fn default_bytes() -> u64 {
    thalweg_aggregate::server::needed_bytes(&Settings::default().parameters, 2)
}

#[test]
fn the_jobs_of_one_caller_leave_memory_for_others() {
    let mut hall = Hall { workers: 2, ..Hall::empty(2, 5) };
    hall.registry.budgets.memory_bytes = 2 * default_bytes() + 1;
    hall.caller = at(1);
    assert_eq!((set_up(&mut hall, 0), set_up(&mut hall, 1)), (None, None));
    let first = hall.registry.names["0"];
    let failure = set_up(&mut hall, 2).expect("the budget is used up");
    assert_eq!(failure.kind, FailureKind::Refused);
    let mib = default_bytes().div_ceil(1 << 20);
    let (both, budget) = (2 * default_bytes(), 2 * default_bytes() + 1);
    let [both, budget] = [both, budget].map(|bytes| bytes.div_ceil(1 << 20));
    let text = format!(
        "the job is refused: the job needs {mib} MiB of the server, and other jobs of its token have {both} of the \
         {budget} MiB that those of one token may take: end one of them, or start the server with a larger \
         --token-memory"
    );
    assert_eq!(failure.text, text);
    hall.caller = at(2);
    assert_eq!(set_up(&mut hall, 3), None, "another has a budget of its own");
    let listing = hall.registry.listing();
    let reserved: Vec<u64> = listing.memory_bytes_by_holder.values().copied().collect();
    assert_eq!(reserved, [2 * default_bytes(), default_bytes()]);
    assert_eq!((listing.refused.token_memory, listing.jobs.len()), (1, 3));
    // Another set-up of a job is no second job, and one that is over gives its memory back.
    hall.job = first;
    hall.registry.tell_registrar(hall.now, JobTree::of(first), Message::Replan { job: first });
    hall.registry.set_up(hall.now, JobTree::of(first), None);
    hall.look();
    assert_eq!(hall.registry.listing().jobs.len(), 3);
    hall.registry.fail_job(hall.now, first, "it ends".into());
    hall.look();
    hall.caller = at(1);
    assert_eq!(set_up(&mut hall, 4), None);
}

/// Four callers take all memory of a server with four cores by jobs of its first core, and none of them more than the share
/// of one: the budgets hold for all cores together.
// spec: F-03 machine
#[test]
fn memory_is_counted_over_all_cores() {
    let mut hall = Hall { workers: 2, ..Hall::empty(2, 5) };
    hall.registry.cluster.server_cores = 4;
    hall.registry.memory_bytes = 4 * default_bytes();
    hall.registry.budgets.memory_bytes = default_bytes();
    for caller in 0..4 {
        hall.caller = at(caller);
        assert_eq!(set_up(&mut hall, 2 * u32::from(caller)), None);
        assert_eq!(hall.setup().trees[0].server(), SERVER, "the first core has all of them");
        let failure = set_up(&mut hall, 2 * u32::from(caller) + 1).expect("it has its share");
        assert!(failure.text.contains("larger --token-memory"), "{failure:?}");
        hall.done.clear();
    }
    hall.caller = at(4);
    let failure = set_up(&mut hall, 8).expect("nothing is left");
    assert_eq!(failure.kind, FailureKind::Refused);
    let mib = default_bytes().div_ceil(1 << 20);
    let all = (4 * default_bytes()).div_ceil(1 << 20);
    let text = format!(
        "the job is refused: the job needs {mib} MiB of the server, and other jobs have {all} of its {all} MiB: end one \
         of them, use another server, or start this one with a larger --memory"
    );
    assert_eq!(failure.text, text);
    assert_eq!(hall.registry.listing().refused.memory, 1);
    // The memory of a job that has ended is there at once, for jobs of every core.
    let first = hall.registry.names["0"];
    hall.registry.fail_job(hall.now, first, "it ends".into());
    hall.look();
    hall.done.clear();
    assert_eq!(set_up(&mut hall, 9), None);
}

/// The budget of a token bounds that of a job: a job alone is slowed down to it, not refused.
#[test]
fn a_job_that_is_alone_is_slowed_down_to_the_memory_of_its_token() {
    let mut hall = Hall { workers: 2, ..Hall::empty(2, 5) };
    hall.registry.budgets.memory_bytes = default_bytes() / 2;
    assert_eq!(set_up(&mut hall, 0), None);
    let span = hall.setup().parameters.span_fragments;
    assert!((64..Settings::default().parameters.span_fragments).contains(&span), "{span}");
    let needed = thalweg_aggregate::server::memory_bytes(hall.setup(), SERVER);
    assert_eq!(hall.registry.listing().memory_bytes_by_holder.values().sum::<u64>(), needed);
    assert!(needed <= default_bytes() / 2);
}

#[test]
fn budgets_are_named_where_they_are_counted() {
    let reasons = [
        Refusal::JobsOfToken { limit: 1 },
        Refusal::TooManyJobs,
        Refusal::Unattended { limit: 1 },
        Refusal::RanksInJobs { limit: 1 },
        Refusal::TooManyRanks,
    ]
    .map(|refusal| refusal.reason().map(crate::budget::Reason::name));
    let expected = ["jobs", "jobs", "unattended", "ranks", "ranks"].map(Some);
    assert_eq!(reasons, expected);
}

/// A token could have all ranks of its job welcomed and set up again by each process that takes the place of one.
#[test]
fn a_job_whose_ranks_are_replaced_all_the_time_is_welcomed_at_a_rate() {
    let mut hall = Hall::set_up(&["a", "b"]);
    let owner = hall.registry.jobs[&hall.job].owner;
    for size in [(4_096, 1), (100, 1), (1, 1)] {
        while hall.registry.welcomes.take(hall.now, owner, size) {}
    }
    hall.hang_up(1);
    hall.attend(hall.successor(1, "b")).unwrap();
    hall.look();
    assert!(hall.welcomes(0).is_empty() && hall.sent_to(1).is_empty(), "it waits");
    hall.pass(Span::from_ms(200));
    hall.look();
    assert_eq!((hall.welcomes(0).len(), hall.welcomes(1).len()), (1, 1));
}
