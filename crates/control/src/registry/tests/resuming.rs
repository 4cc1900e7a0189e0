use thalweg_wire::tag::Generation;

use crate::message::LANES;
use crate::proof::{PROOF_BYTES, Proof};

use super::*;

fn ticket(job: JobId) -> Ticket {
    Prover::new(&[SECRET]).ticket(job, None)
}

/// A registry that knows nothing, and a job that two ranks remember.
fn restarted(workers: u32) -> Hall {
    let mut hall = Hall::empty(workers, 6);
    hall.job = JobId(0xabcd_0000);
    hall
}

fn remembering(hall: &Hall, rank: u32, host: &str, round: u32, watermark: u64) -> Join {
    let resumes = vec![Resume {
        round,
        watermark: Some(watermark),
        fragment_values: Some(352),
        span_fragments: Some(4_096),
        sends_halves: Some(true),
    }];
    Join { resumes, ..member(hall, rank, host) }
}

/// A rank that had joined before the registry forgot it.
fn member(hall: &Hall, rank: u32, host: &str) -> Join {
    Join { ticket: hall.ticket(rank), ..hall.join(rank, host) }
}

// spec: A-41 machine
#[test]
fn a_registry_that_restarts_goes_on_with_the_same_job() {
    let mut hall = restarted(3);
    let job = hall.job;
    assert_eq!(hall.register(Some(ticket(job))), Ok(job));
    assert_eq!(hall.register(Some(ticket(job))), Ok(job));
    hall.attend(remembering(&hall, 0, "a", 4, 700)).unwrap();
    hall.attend(Join { resumes: vec![Resume::default()], ..member(&hall, 1, "a") }).unwrap();
    hall.look();
    assert_eq!(hall.sent_to(1), [ToRank::Waiting { missing: [2].into() }]);
    hall.attend(remembering(&hall, 2, "b", 5, 690)).unwrap();
    hall.look();
    assert_eq!(hall.welcomes(1)[0].ticket, ticket(job));
    // Above all rounds that any rank knows.
    assert!(hall.sent_to(0).contains(&ToRank::Report { round: 6, seat: 0 }));
    hall.say(0, FromRank::Answer { round: 6, seat: 0, watermark: Some(700) });
    hall.say(2, FromRank::Answer { round: 6, seat: 1, watermark: Some(695) });
    hall.look();
    assert_eq!((hall.setup().job, hall.setup().epoch, hall.setup().resume_from), (job, 6, 695));
    assert!(matches!(hall.sent_to(2)[..], [ToRank::Adopt { seat: 1, .. }]));
}

// spec: A-41 machine
#[test]
fn a_newcomer_among_members_begins_where_they_are() {
    let mut hall = restarted(2);
    // The newcomer is faster, and registers a job that nobody knows.
    let stranger = hall.register(None).unwrap();
    let join = Join { job: stranger, ..hall.join(1, "b") };
    let link = hall.attend(join.clone()).unwrap();
    hall.look();
    assert_eq!(hall.register(Some(ticket(hall.job))), Ok(hall.job));
    assert!(hall.look().contains(&Action::Close { link }), "it shall register again");
    assert_eq!(hall.attend(join), Err(Refusal::Ended));
    assert_eq!(hall.register(None), Ok(hall.job));
    let newcomer = Join { ticket: None, ..hall.successor(1, "b") };
    let error = hall.attend(newcomer);
    assert_eq!(error, Err(Refusal::NotYours { rank: 1, since: None }), "rank 1 had joined before");
    hall.attend(hall.successor(1, "b")).unwrap();
    hall.attend(remembering(&hall, 0, "a", 2, 50)).unwrap();
    hall.say(0, FromRank::Answer { round: 3, seat: 0, watermark: Some(50) });
    hall.say(1, FromRank::Answer { round: 3, seat: 1, watermark: None });
    assert_eq!((hall.setup().epoch, hall.setup().resume_from), (3, 50));
}

#[test]
fn who_was_only_welcomed_knows_which_epochs_were_used() {
    let mut hall = restarted(2);
    hall.register(Some(ticket(hall.job))).unwrap();
    let resumes = vec![Resume { round: 3, ..Resume::default() }];
    hall.attend(Join { resumes, ..member(&hall, 0, "a") }).unwrap();
    hall.attend(hall.successor(1, "b")).unwrap();
    hall.look();
    assert_eq!(hall.welcomes(1)[0].rounds, [4]);
    hall.answer_all(4, None);
    assert_eq!((hall.setup().epoch, hall.setup().resume_from), (4, 1 << 48));
}

#[test]
fn where_all_leaders_are_new_the_job_is_over() {
    let mut hall = restarted(2);
    hall.register(Some(ticket(hall.job))).unwrap();
    let resumes = vec![Resume { round: 3, ..Resume::default() }];
    hall.attend(Join { resumes, ..member(&hall, 1, "a") }).unwrap();
    hall.attend(hall.successor(0, "a")).unwrap();
    hall.look();
    assert!(hall.failure(1).text.ends_with("nobody remembers the job"));
}

// spec: T-06 machine
#[test]
fn a_job_goes_on_with_the_secret_that_it_began_with() {
    let mut hall = restarted(1);
    hall.registry.secrets = Secrets::both(Secret([8; 16]), SECRET).unwrap();
    let job = hall.job;
    assert_eq!(hall.register(Some(ticket(job))), Ok(job));
    hall.attend(remembering(&hall, 0, "a", 4, 700)).unwrap();
    hall.look();
    assert_eq!(hall.welcomes(0)[0].ticket, ticket(job));
    hall.answer_all(5, Some(700));
    hall.look();
    assert_eq!(hall.setup().parameters.generation, Some(Generation::Odd));
    let key = Key::derive(&SECRET, job, 5);
    assert!(matches!(hall.sent_to(0)[..], [ToRank::Adopt { key: own, .. }] if own == key));
    let other = hall.register_as("other", Settings::default(), None).unwrap();
    let parameters = hall.registry.jobs[&other].settings.parameters;
    assert_eq!(parameters.generation, Some(Generation::Even), "of the current secret");
}

#[test]
fn nobody_takes_over_a_job_without_its_ticket() {
    let mut hall = restarted(1);
    let wrong = [
        Ticket { job: hall.job, proof: Proof([0; PROOF_BYTES]) },
        Ticket { job: hall.job, ..ticket(JobId(hall.job.0 + 8)) },
        Ticket { job: hall.job, proof: hall.ticket(0).unwrap().proof },
        Prover::new(&[Secret([8; 16])]).ticket(hall.job, None),
        ticket(JobId(hall.job.0 + 1)),
    ];
    for ticket in wrong {
        assert_eq!(hall.register(Some(ticket)), Err(Refusal::Ticket));
    }
    hall.register(Some(ticket(hall.job))).unwrap();
    let other = hall.register_as("other", Settings::default(), Some(ticket(hall.job)));
    assert!(matches!(other, Err(Refusal::Differs { .. })), "one job, one name");
}

// spec: F-04, E-04 machine
#[test]
fn a_ticket_of_a_tree_or_of_a_lane_is_none_of_a_job() {
    let mut hall = restarted(1);
    assert_eq!(JobTree::of(hall.job).tree, 0);
    for tree in 0..TREES_MAX {
        let own = JobTree { job: hall.job, tree }.id();
        for lane in 0..=LANES as u64 {
            let id = JobId(own.0 + lane);
            if id != hall.job {
                assert_eq!(hall.register(Some(ticket(id))), Err(Refusal::Ticket), "{id:?}");
            }
        }
    }
}

#[test]
fn whoever_does_not_come_back_is_named() {
    let mut hall = restarted(4);
    hall.register(Some(ticket(hall.job))).unwrap();
    hall.attend(remembering(&hall, 1, "a", 1, 5)).unwrap();
    hall.pass(Span::from_ms(9_900));
    assert_eq!(hall.registry.jobs(), 1);
    hall.pass(Span::from_ms(100));
    hall.look();
    let text = "ranks 0, 2, 3 did not come back since the server restarted 10.0 s ago";
    let culprits = vec![0, 2, 3];
    assert_eq!(hall.failure(1), Failure::new(FailureKind::Peer, text, culprits));
    // A rank that comes late is sent the same.
    assert_eq!(hall.register(Some(ticket(hall.job))), Ok(hall.job));
    hall.attend(remembering(&hall, 0, "a", 1, 5)).unwrap();
    hall.look();
    assert_eq!(hall.failure(0).text, text);
}

// spec: E-04 machine
#[test]
fn a_ticket_beats_a_name() {
    let mut hall = restarted(1);
    let old = hall.job;
    hall.job = hall.register(None).unwrap();
    hall.attend(hall.join(0, "a")).unwrap();
    assert_eq!(hall.registry.jobs[&hall.job].hosts, [0], "it has begun");
    hall.look();
    assert_eq!(hall.register(Some(ticket(old))), Ok(old));
    hall.look();
    let text = hall.failure(0).text;
    assert!(
        text.starts_with("the ranks of another job \"train\" came back after a restart"),
        "{text}"
    );
    let squatters = hall.job;
    hall.job = old;
    hall.attend(remembering(&hall, 0, "a", 2, 5)).unwrap();
    hall.look();
    assert_eq!(hall.welcomes(0)[0].ticket, ticket(old));
    assert_eq!(hall.register(Some(ticket(squatters))), Ok(squatters), "it failed, and learns why");
}

#[test]
fn of_two_jobs_with_tickets_the_first_has_the_name() {
    let mut hall = restarted(1);
    hall.register(Some(ticket(hall.job))).unwrap();
    let error = hall.register(Some(ticket(JobId(hall.job.0 + (1 << 32)))));
    assert_eq!(error, Err(Refusal::NameTaken { name: "train".into() }));
}

#[test]
fn epochs_that_are_used_up_fail_the_job() {
    let mut hall = restarted(1);
    hall.register(Some(ticket(hall.job))).unwrap();
    hall.attend(remembering(&hall, 0, "a", u32::MAX, 5)).unwrap();
    hall.look();
    assert!(hall.failure(0).text.contains("epochs are used up"));
}
