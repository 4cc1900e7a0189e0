//! How much of a registry one caller may use.
// spec: E-12 machine

use std::net::Ipv4Addr;

use super::*;

fn limited(jobs: usize, unattended: usize, ranks: usize) -> Hall {
    let mut hall = Hall::empty(3, 5);
    hall.registry.budgets = JobBudgets { jobs, unattended, ranks };
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
