//! Tokens and tickets: who reaches which job, and whose a rank is.
// spec: E-04 machine

use super::*;
use crate::token::{Pattern, Role, Token};

fn tenant(id: u64, jobs: &str, ranks_max: u32) -> Caller {
    let jobs = Pattern::new(jobs).unwrap();
    Caller::with_token(Token { id, role: Role::Tenant, jobs, ranks_max, expires: u64::MAX })
}

fn operator() -> Caller {
    let jobs = Pattern::new("*").unwrap();
    let role = Role::Operator;
    Caller::with_token(Token { id: 77, role, jobs, ranks_max: 1, expires: u64::MAX })
}

#[test]
fn a_token_registers_and_joins_the_jobs_that_it_names() {
    let mut hall = Hall::empty(2, 5);
    hall.caller = tenant(1, "train*", 2);
    hall.job = hall.register(None).unwrap();
    hall.attend(hall.join(0, "a")).unwrap();
    let not_covered = || Refusal::NotCovered { name: "train".into() };
    hall.caller = tenant(2, "other", 2);
    assert_eq!(hall.register(None), Err(not_covered()));
    assert_eq!(hall.attend(hall.join(1, "b")), Err(not_covered()), "an id is no right");
    let ticket = hall.registry.prover.ticket(hall.job, None);
    assert_eq!(hall.register(Some(ticket)), Err(not_covered()), "nor is a ticket");
    hall.caller = tenant(3, "train", 1);
    let too_many = || Refusal::RanksOfToken { workers: 2, limit: 1 };
    assert_eq!(hall.register(None), Err(too_many()));
    assert_eq!(hall.attend(hall.join(1, "b")), Err(too_many()));
    hall.caller = tenant(4, "train", 2);
    hall.attend(hall.join(1, "b")).unwrap();
    hall.look();
    assert_eq!(hall.welcomes(0).len(), 1);
}

#[test]
fn the_reason_of_a_failure_is_for_members() {
    let mut hall = Hall::set_up(&["a", "b"]);
    hall.say(1, FromRank::Aborting { reason: "a secret of alice".into() });
    hall.caller = tenant(2, "other", 2);
    let error = hall.attend(hall.join(0, "a"));
    assert_eq!(error, Err(Refusal::NotCovered { name: "train".into() }));
    hall.caller = tenant(1, "train", 2);
    hall.attend(hall.join(0, "a")).unwrap();
    hall.look();
    assert!(hall.failure(0).text.contains("a secret of alice"));
}

#[test]
fn tenants_see_their_own_jobs_and_operators_all() {
    let mut hall = Hall::empty(1, 5);
    for (name, switch) in [("mine", SWITCH), ("theirs", NodeId(0x0009_12c8))] {
        let job = hall.register_as(name, Settings::default(), None).unwrap();
        let rank = u32::from(name == "mine");
        let join = Join { job, rank: 0, switch: Some(switch), ..hall.join(rank, name) };
        hall.attend(join).unwrap();
    }
    let view = hall.registry.view(hall.now);
    let counters = Counters { total: vec![("packets", 3)], ..Counters::default() };
    let seen = |caller: &Caller| {
        let topology = view.topology(caller);
        let statistics = view.statistics(caller, None, &counters);
        // Memory for them is taken before they are made.
        // spec: E-12 machine
        let bytes =
            [prost::Message::encoded_len(&topology), prost::Message::encoded_len(&statistics)];
        let most = [view.topology_bytes(caller), view.statistics_bytes(caller, None, &counters)];
        assert!(bytes[0] <= most[0] && bytes[1] <= most[1], "{bytes:?} {most:?}");
        let names: Vec<String> = topology.jobs.iter().map(|job| job.name.clone()).collect();
        assert_eq!(names, statistics.jobs.iter().map(|job| job.name.clone()).collect::<Vec<_>>());
        assert_eq!(topology.switches.len(), topology.descriptions.len());
        (names, topology.switches, statistics.counters.len())
    };
    let mine = (vec!["mine".to_owned()], vec!["10.1.0.2:4808".to_owned()], 0);
    assert_eq!(seen(&tenant(1, "mine", 1)), mine);
    assert_eq!(seen(&tenant(1, "nothing", 1)).0, Vec::<String>::new());
    for caller in [operator(), Caller::trusted(NOWHERE)] {
        let (names, switches, counters) = seen(&caller);
        assert_eq!((names.len(), switches.len(), counters), (2, 2, 1));
    }
}

#[test]
fn a_process_gets_the_ticket_of_its_rank_before_anything_else() {
    let mut hall = Hall::new(2);
    hall.attend(hall.join(1, "a")).unwrap();
    let first = hall.look().iter().find_map(|action| match action {
        Action::Tell { message, .. } => Some(message.clone()),
        _ => None,
    });
    let ticket = hall.ticket(1).unwrap();
    assert_eq!(first, Some(ToRank::Joined { ticket }));
    hall.hang_up(1);
    hall.attend(hall.join(1, "a")).unwrap();
    hall.look();
    assert_eq!(hall.tickets(1), [ticket], "it is the same process");
}

/// Takes a rank that another process has or had: in a job that gathers, in one that has begun, and in one that
/// was forgotten, with the rank's ticket and without.
#[test]
fn a_rank_belongs_to_the_process_that_took_it() {
    let wrong = |hall: &Hall| {
        let process = Process { node: node(1), life: 98 };
        let others = hall.registry.prover.rank_ticket(hall.job, 0, hall.join(0, "").process);
        let stale = hall.registry.prover.rank_ticket(hall.job, 1, process);
        let forged = RankTicket { process, ..hall.ticket(1).unwrap() };
        let foreign = Prover::new(&[Secret([8; 16])]);
        let foreign = foreign.rank_ticket(hall.job, 1, hall.join(1, "").process);
        let elsewhere = hall.registry.prover.rank_ticket(JobId(8), 1, hall.join(1, "").process);
        [None, Some(others), Some(stale), Some(forged), Some(foreign), Some(elsewhere)]
    };
    for is_begun in [false, true] {
        let mut hall = Hall::new(3);
        let ranks = if is_begun { 3 } else { 2 };
        for rank in 0..ranks {
            hall.attend(hall.join(rank, &rank.to_string())).unwrap();
        }
        let heir = hall.successor(1, "1");
        let taken = hall.attend(heir.clone());
        assert!(matches!(taken, Err(Refusal::Taken { rank: 1, .. })), "it is connected");
        hall.hang_up(1);
        hall.now += Span::from_s(2);
        for ticket in wrong(&hall) {
            let stranger = hall.attend(Join { ticket, ..heir.clone() });
            if is_begun {
                let since = Some(Span::from_s(2));
                assert_eq!(stranger, Err(Refusal::NotYours { rank: 1, since }), "{ticket:?}");
            } else {
                assert!(stranger.is_ok(), "nothing is lost");
                hall.hang_up(1);
                // The next one is not the one before it either.
                hall.attend(hall.join(1, "1")).unwrap();
                hall.hang_up(1);
            }
        }
        hall.attend(heir).unwrap();
    }
}

#[test]
fn a_rank_whose_kernel_is_silent_may_come_back_and_is_not_replaced() {
    let mut hall = Hall::new(2);
    hall.attend(hall.join(0, "a")).unwrap();
    hall.hang_up_as(0, Ending::Silent(Span::from_s(3)));
    let stranger = Join { ticket: None, ..hall.successor(0, "a") };
    assert!(matches!(hall.attend(stranger), Err(Refusal::NotYours { rank: 0, .. })));
    hall.attend(hall.join(0, "a")).unwrap();
}

#[test]
fn a_ticket_is_worth_nothing_once_another_process_has_used_it() {
    let mut hall = Hall::set_up(&["a", "b"]);
    hall.hang_up(1);
    let second = hall.successor(1, "b");
    hall.attend(second.clone()).unwrap();
    hall.hang_up(1);
    let process = Process { node: node(1), life: 100 };
    let third = Join { process, ..second.clone() };
    assert!(matches!(hall.attend(third.clone()), Err(Refusal::NotYours { .. })), "of the first");
    let ticket = Some(hall.registry.prover.rank_ticket(hall.job, 1, second.process));
    hall.attend(Join { ticket, ..third }).unwrap();
}

#[test]
fn a_ticket_of_a_job_that_ended_opens_nothing() {
    let mut hall = Hall::set_up(&["a", "b"]);
    let ticket = hall.registry.prover.ticket(hall.job, None);
    for rank in 0..2 {
        hall.say(rank, FromRank::Leave { operations: 1 });
    }
    assert_eq!(hall.registry.jobs(), 0);
    assert_eq!(hall.register(Some(ticket)), Err(Refusal::Ended));
    let member = Join { ticket: hall.ticket(0), ..hall.join(0, "a") };
    assert_eq!(hall.attend(member.clone()), Err(Refusal::Ended));
    hall.pass(Span::from_s(10_000));
    assert_eq!(hall.register(Some(ticket)), Err(Refusal::Ended));
    assert_eq!(hall.attend(member), Err(Refusal::Ended));
}

#[test]
fn a_ticket_of_a_job_that_failed_opens_nothing_after_its_reason_is_forgotten() {
    let mut hall = Hall::set_up(&["a", "b"]);
    let ticket = hall.registry.prover.ticket(hall.job, None);
    hall.say(0, FromRank::Aborting { reason: "enough".into() });
    assert_eq!(hall.register(Some(ticket)), Ok(hall.job), "to learn the reason");
    hall.links.clear();
    hall.pass(Span::from_s(601));
    assert_eq!(hall.register(Some(ticket)), Err(Refusal::Ended));
    assert_eq!(hall.attend(hall.join(0, "a")), Err(Refusal::Ended));
    assert_eq!(hall.registry.jobs(), 0);
}

#[test]
fn ranks_are_where_ranks_can_be() {
    let mut hall = Hall::new(3);
    hall.attend(Join { switch: Some(SWITCH), ..hall.join(0, "a") }).unwrap();
    let at = |node: u32| {
        let process = Process { node: NodeId(node), life: 9 };
        Join { process, ..hall.join(1, "b") }
    };
    let joins = [0, 0x0107_0000, 0x0107_12c9, 0x0107_0001].map(at);
    let (servers, switchs) = (at(SERVER.0), at(SWITCH.0));
    let own = Join { switch: Some(NodeId(0x0107_12c8)), ..at(0x0107_12c8) };
    let odd = Join { switch: Some(NodeId(0x0107_12c9)), ..at(0x0107_12c8) };
    let right = at(0x0107_12c8);
    for join in joins {
        let error = hall.attend(join);
        assert!(matches!(error, Err(Refusal::Node { what: "rank", .. })), "{error:?}");
    }
    assert!(matches!(hall.attend(servers), Err(Refusal::ServersNode { .. })));
    assert!(matches!(hall.attend(switchs), Err(Refusal::SwitchsNode { .. })), "it has answered");
    assert!(matches!(hall.attend(own), Err(Refusal::SwitchsNode { .. })));
    assert!(matches!(hall.attend(odd), Err(Refusal::Node { what: "switch", .. })));
    hall.limits = None;
    let named = Join { switch: Some(NodeId(0x0107_12c8)), ..hall.join(2, "c") };
    hall.attend(named).unwrap();
    hall.attend(right).expect("to be named as a switch makes nobody one");
}
