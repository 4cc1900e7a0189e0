use thalweg_core::Span;
use thalweg_pace::{Ahead, Feedback, Refusal};

use super::*;

const BASE: Slot = Slot(1_000_000);
const OWN: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// A slot of the own link.
const SLOT_BYTES: u64 = 7_500_000;

fn scheduler() -> Scheduler {
    let settings = Settings::default();
    Scheduler::new(OWN, Rate::from_gbps(1), settings, BASE, &Rng::new(1)).unwrap()
}

fn at(ms: u64) -> Time {
    Time::ZERO + Span::from_ms(ms)
}

fn join(name: &str) -> FromJob {
    FromJob::Join { version: VERSION, job: name.into(), classes: false, leaf: false }
}

fn flow(to: Ipv4Addr) -> FromJob {
    let (volume, relation, others) = (Some(SLOT_BYTES), Dependence::Alone, Vec::new());
    FromJob::Flow(Announced { flow: 0, to, volume, is_exact: false, relation, others })
}

fn report(ready: u64, sent: u64) -> FromJob {
    FromJob::report(0, ready, sent)
}

/// A job with one flow.
fn connected(scheduler: &mut Scheduler, client: u64) -> Client {
    let client = Client(client);
    for words in [join(&format!("job {}", client.0)), flow(PEER)] {
        scheduler.handle_job(at(1), client, words).unwrap();
    }
    client
}

fn drain(scheduler: &mut Scheduler) -> Vec<Output> {
    std::iter::from_fn(|| scheduler.poll()).collect()
}

/// The last rate that a job was given.
fn rate(outputs: &[Output], of: Client) -> Option<(u64, Option<u64>)> {
    outputs.iter().rev().find_map(|output| match output {
        Output::Say(client, ToJob::Rate { bps, bytes, .. }) if *client == of => {
            Some((*bps, *bytes))
        }
        _ => None,
    })
}

/// Lets the scheduler do everything that is due until then.
fn pass(scheduler: &mut Scheduler, until: Time) -> Vec<Output> {
    let mut outputs = drain(scheduler);
    while scheduler.poll_timeout() <= until {
        let due = scheduler.poll_timeout();
        scheduler.handle_timeout(due);
        outputs.extend(drain(scheduler));
    }
    outputs
}

// spec: C-08, C-11 machine
#[test]
fn without_a_switch_jobs_of_a_host_take_turns_by_its_own_table() {
    let mut scheduler = scheduler();
    let (first, second) = (connected(&mut scheduler, 1), connected(&mut scheduler, 2));
    assert_eq!(
        rate(&drain(&mut scheduler), second),
        Some((62_500_000, None)),
        "nothing to send yet"
    );
    for client in [first, second] {
        scheduler.handle_job(at(60), client, report(SLOT_BYTES, 0)).unwrap();
    }
    let outputs = pass(&mut scheduler, at(70));
    let plans: Vec<_> =
        outputs.iter().filter(|output| matches!(output, Output::Tell(..))).collect();
    assert!(!plans.is_empty(), "switches would get plans");
    let (now, later) = (rate(&outputs, first).unwrap(), rate(&outputs, second).unwrap());
    assert!(now.0 > 900_000_000 && now.1 > Some(6_000_000), "{now:?}");
    assert_eq!(later, (0, Some(0)), "the other waits");
    // The first sends everything and is done; the other has the next slot.
    scheduler.handle_job(at(115), first, report(SLOT_BYTES, SLOT_BYTES)).unwrap();
    let outputs = pass(&mut scheduler, at(130));
    assert!(rate(&outputs, second).unwrap().0 > 900_000_000, "{outputs:?}");
}

#[test]
fn what_switches_say_counts_in_their_slot_and_adds_up() {
    let mut scheduler = scheduler();
    let client = connected(&mut scheduler, 1);
    scheduler.handle_job(at(60), client, report(SLOT_BYTES, 0)).unwrap();
    let outputs = drain(&mut scheduler);
    let asked = outputs.iter().find_map(|output| match output {
        Output::Ask(slot, questions) => Some((*slot, questions.clone())),
        _ => None,
    });
    let (slot, questions) = asked.expect("it asks at once");
    assert_eq!((slot, questions[0].to), (BASE.after(1), node(PEER)));
    let says = |free| Answer {
        feedback: Some(Feedback {
            load: Ahead::filled(slot, 10, 0),
            free: Ahead::filled(slot, 10, free),
            narrowest: SLOT_BYTES,
        }),
        progress: Vec::new(),
        rank: None,
    };
    // The tightest counts, whichever answers last, and however often.
    for (switch, free) in [(0, 1_000_000), (1, 5_000_000), (1, 5_000_000)] {
        scheduler.handle_answers(at(61), switch, slot, &questions, vec![says(free)]);
    }
    let outputs = pass(&mut scheduler, at(70));
    let (bps, bytes) = rate(&outputs, client).unwrap();
    assert!(bytes <= Some(1_000_000) && bps <= 134_000_000, "{bps} {bytes:?}");
    // An answer about a slot that has passed does not count.
    scheduler.handle_job(at(119), client, report(SLOT_BYTES, 100_000)).unwrap();
    pass(&mut scheduler, at(120));
    scheduler.handle_answers(at(121), 0, slot, &questions, vec![says(0)]);
    let outputs = pass(&mut scheduler, at(130));
    assert!(rate(&outputs, client).unwrap().0 > 900_000_000, "{outputs:?}");
}

#[test]
fn a_refused_plan_is_made_again() {
    let mut scheduler = scheduler();
    let client = connected(&mut scheduler, 1);
    scheduler.handle_job(at(60), client, report(SLOT_BYTES, 0)).unwrap();
    let outputs = pass(&mut scheduler, at(70));
    let plans = outputs.iter().rev().find_map(|output| match output {
        Output::Tell(_, plans) => Some(plans.clone()),
        _ => None,
    });
    let plans = plans.expect("it tells");
    assert_eq!(plans[0].plan.first(), BASE.after(1));
    let refusal = Refusal { slot: BASE.after(1), asked: SLOT_BYTES, free: 100_000 };
    scheduler.handle_verdicts(at(70), &plans, &[Verdict::Full(refusal)]);
    let outputs = drain(&mut scheduler);
    assert!(rate(&outputs, client).unwrap().1 <= Some(100_000), "{outputs:?}");
    assert!(outputs.iter().any(|output| matches!(output, Output::Tell(..))));
}

#[test]
fn what_became_of_a_slot_is_written_down() {
    let mut scheduler = scheduler();
    let client = connected(&mut scheduler, 1);
    scheduler.handle_job(at(60), client, report(SLOT_BYTES, 0)).unwrap();
    let (granted, _) = rate(&pass(&mut scheduler, at(70)), client).unwrap();
    scheduler.handle_job(at(100), client, report(SLOT_BYTES, 4_000_000)).unwrap();
    let outputs = pass(&mut scheduler, at(130));
    let records = outputs.iter().filter_map(|output| match output {
        Output::Note(record) => Some(record),
        _ => None,
    });
    let records: Vec<_> = records.collect();
    assert_eq!(records.len(), 1, "{outputs:?}");
    assert_eq!((records[0].slot, records[0].carried_bytes), (BASE.0 + 1, 4_000_000));
    assert_eq!(records[0].granted_bps, granted, "not what it has got for the next slot");
    assert!(records[0].to_string().starts_with("{\"slot\":1000001,\"job\":\"job 1\""));
}

#[test]
fn words_out_of_order_are_refused_and_change_nothing() {
    let mut scheduler = scheduler();
    let client = Client(1);
    let mut refused = |words| scheduler.handle_job(at(1), client, words).unwrap_err();
    assert_eq!(refused(flow(PEER)), "join first");
    assert_eq!(refused(report(1, 1)), "join first");
    assert_eq!(refused(FromJob::Close { flow: 1 }), "join first");
    let client = connected(&mut scheduler, 1);
    let mut refused = |words| scheduler.handle_job(at(1), client, words).unwrap_err();
    assert!(refused(join("again")).contains("has joined already"));
    assert!(refused(flow(PEER)).contains("is there already"));
    assert!(refused(FromJob::Close { flow: 9 }).contains("no flow 9"));
    scheduler.handle_job(at(2), client, report(1_000, 500)).unwrap();
    let back = scheduler.handle_job(at(3), client, report(1_000, 400)).unwrap_err();
    assert!(back.contains("went back"), "{back}");
    // A process cannot send to the same host twice.
    let again = FromJob::Flow(Announced {
        flow: 1,
        to: PEER,
        volume: None,
        is_exact: false,
        relation: Dependence::Alone,
        others: Vec::new(),
    });
    let twice = scheduler.handle_job(at(3), client, again).unwrap_err();
    assert!(twice.contains("close that flow first"), "{twice}");
}

// spec: C-18 machine
#[test]
fn processes_of_one_job_share_a_flow_and_what_it_is_granted() {
    let mut scheduler = scheduler();
    let clients = [Client(1), Client(2)];
    for client in clients {
        scheduler.handle_job(at(1), client, join("job")).unwrap();
        scheduler.handle_job(at(1), client, flow(PEER)).unwrap();
    }
    assert_eq!(scheduler.flows.len(), 1);
    drain(&mut scheduler);
    scheduler.handle_job(at(60), clients[0], report(SLOT_BYTES / 4, 0)).unwrap();
    scheduler.handle_job(at(60), clients[1], report(SLOT_BYTES * 3 / 4, 0)).unwrap();
    let outputs = pass(&mut scheduler, at(70));
    let [small, large] = clients.map(|client| rate(&outputs, client).unwrap());
    assert!(small.0 + large.0 > 900_000_000 && large.0 / 2 > small.0, "{small:?} {large:?}");
    // One leaves, and takes what it had left to send with it.
    scheduler.handle_job(at(100), clients[0], report(SLOT_BYTES / 4, SLOT_BYTES / 4)).unwrap();
    scheduler.forget(at(101), clients[1]);
    assert_eq!(scheduler.flows.len(), 1, "the other has a part in it");
    pass(&mut scheduler, at(200));
    assert_eq!(scheduler.poll_timeout(), Time::NEVER, "all is sent");
    scheduler.forget(at(201), clients[0]);
    assert!(scheduler.flows.is_empty());
}

// spec: C-08 machine
#[test]
fn processes_of_one_job_do_not_begin_each_others_bursts_anew() {
    let mut scheduler = scheduler();
    for (client, to) in [(Client(1), PEER), (Client(2), Ipv4Addr::new(10, 77, 0, 3))] {
        scheduler.handle_job(at(1), client, join("job")).unwrap();
        scheduler.handle_job(at(1), client, flow(to)).unwrap();
    }
    scheduler.handle_job(at(60), Client(1), report(SLOT_BYTES / 2, 0)).unwrap();
    scheduler.handle_job(at(61), Client(1), report(SLOT_BYTES / 2, 1_000_000)).unwrap();
    scheduler.handle_job(at(62), Client(2), report(SLOT_BYTES, 0)).unwrap();
    scheduler.handle_job(at(63), Client(1), report(SLOT_BYTES, 1_000_000)).unwrap();
    let outputs = pass(&mut scheduler, at(70));
    for client in [Client(1), Client(2)] {
        assert!(rate(&outputs, client).unwrap().0 > 0, "{client:?} has something to send");
        scheduler.handle_job(at(150), client, report(SLOT_BYTES, SLOT_BYTES)).unwrap();
    }
    pass(&mut scheduler, at(1_000));
    assert_eq!(scheduler.poll_timeout(), Time::NEVER, "all is sent, and nobody waits");
}

#[test]
fn a_job_that_hangs_up_leaves_nothing() {
    let mut scheduler = scheduler();
    let client = connected(&mut scheduler, 1);
    scheduler.handle_job(at(60), client, report(SLOT_BYTES, 0)).unwrap();
    pass(&mut scheduler, at(70));
    scheduler.forget(at(71), client);
    assert!(scheduler.flows.is_empty() && scheduler.jobs.is_empty());
    assert_eq!(scheduler.agent.host().uplink().planned().total(), 0);
    scheduler.forget(at(72), client);
}

// spec: C-15 machine
#[test]
fn flows_within_the_host_are_left_alone() {
    let mut scheduler = scheduler();
    scheduler.handle_job(at(1), Client(1), join("a")).unwrap();
    scheduler.handle_job(at(1), Client(1), flow(OWN)).unwrap();
    assert_eq!(rate(&drain(&mut scheduler), Client(1)), Some((u64::MAX, None)));
    scheduler.handle_job(at(2), Client(1), report(SLOT_BYTES, 0)).unwrap();
    assert!(rate(&pass(&mut scheduler, at(70)), Client(1)).is_none());
}

#[test]
fn names_and_places_make_numbers() {
    assert_ne!(job_id("a"), job_id("b"));
    assert_eq!(flow_number(OWN, PEER), 0x0001_0002);
}

// spec: C-16 machine
#[test]
fn a_job_gets_its_class_where_its_process_knows_classes_and_rates_otherwise() {
    let settings = Settings { enforce: Enforce::Class, ..Settings::default() };
    let mut agent = Scheduler::new(OWN, Rate::from_gbps(1), settings, BASE, &Rng::new(1)).unwrap();
    let [knows, other, late] = [1, 2, 3].map(Client);
    let join = |name: &str, classes| {
        let job = name.into();
        FromJob::Join { version: VERSION, job, classes, leaf: false }
    };
    for (process, name, classes) in [(knows, "a", true), (other, "b", false)] {
        agent.handle_job(at(1), process, join(name, classes)).unwrap();
        agent.handle_job(at(1), process, flow(PEER)).unwrap();
    }
    let words = |outputs: &[Output], of| {
        let words = outputs.iter().filter_map(|output| match output {
            Output::Say(process, words) if *process == of => Some(words.clone()),
            _ => None,
        });
        words.collect::<Vec<_>>()
    };
    let welcomes = drain(&mut agent);
    for (process, expected) in [(knows, true), (other, false)] {
        let first = words(&welcomes, process).remove(0);
        assert!(matches!(first, ToJob::Welcome { by_class, .. } if by_class == expected));
        agent.handle_job(at(60), process, report(SLOT_BYTES, 0)).unwrap();
    }
    let outputs = pass(&mut agent, at(70));
    let first = words(&outputs, knows);
    for order in [
        ToJob::Enter { bytes: SLOT_BYTES, within_us: 120_000 },
        ToJob::Hold { is_held: true },
        // It has announced a slot.
        ToJob::Class { class: 3 },
    ] {
        assert!(first.contains(&order), "{order:?}: {first:?}");
    }
    assert!(words(&outputs, other).iter().all(|words| matches!(words, ToJob::Rate { .. })));
    // A process that joins the job later learns it as well.
    agent.handle_job(at(71), late, join("a", true)).unwrap();
    let outputs = drain(&mut agent);
    assert!(words(&outputs, late).contains(&ToJob::Class { class: 3 }), "{outputs:?}");
}

// spec: C-16 machine
#[test]
fn a_program_gets_a_leaf_and_no_rate_where_the_interface_has_classes() {
    let settings = Settings { enforce: Enforce::Class, ..Settings::default() };
    let scheduler =
        || Scheduler::new(OWN, Rate::from_gbps(1), settings, BASE, &Rng::new(1)).unwrap();
    let join = FromJob::Join { version: VERSION, job: "a".into(), classes: false, leaf: true };
    let has = |outputs: &[Output], wanted: fn(&ToJob) -> bool| {
        outputs.iter().any(|output| matches!(output, Output::Say(_, words) if wanted(words)))
    };
    let mut without = scheduler();
    without.handle_job(at(1), Client(1), join.clone()).unwrap();
    let outputs = drain(&mut without);
    assert!(!has(&outputs, |words| matches!(words, ToJob::Leaf { .. })), "it keeps to rates");
    let mut scheduler = scheduler();
    scheduler.offer_leaves();
    scheduler.handle_job(at(1), Client(1), join).unwrap();
    scheduler.handle_job(at(1), Client(1), flow(PEER)).unwrap();
    let outputs = drain(&mut scheduler);
    assert!(has(&outputs, |words| *words == ToJob::Leaf { mark: Leaf::mark(0) }));
    assert_eq!(rate(&outputs, Client(1)), Some((u64::MAX, None)), "nothing is planned");
    scheduler.handle_job(at(60), Client(1), report(SLOT_BYTES, 0)).unwrap();
    let outputs = pass(&mut scheduler, at(70));
    assert_eq!(rate(&outputs, Client(1)), Some((u64::MAX, None)), "nobody else uses the path");
    let last = outputs.iter().rev().find_map(|output| match output {
        Output::Leaves(leaves) => leaves.first().copied(),
        _ => None,
    });
    let leaf = last.expect("its leaf changes");
    assert!(leaf.is_busy && leaf.bps > 900_000_000 && leaf.priority < 7, "{leaf:?}");
    scheduler.forget(at(80), Client(1));
    let gone = drain(&mut scheduler);
    assert!(gone.iter().any(|output| {
        matches!(output, Output::Leaves(leaves) if leaves.iter().all(|leaf| leaf.bps == 0))
    }));
}
