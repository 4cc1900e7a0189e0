use thalweg_core::Span;
use thalweg_pace::{Ahead, Feedback, Refusal};

use super::*;

const BASE: Slot = Slot(1_000_000);
const OWN: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// A slot of the own link.
const SLOT_BYTES: u64 = 7_500_000;

fn office() -> Office {
    let settings = Settings::default();
    Office::new(OWN, Rate::from_gbps(1), settings, BASE, &Rng::new(1)).unwrap()
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
fn seated(office: &mut Office, seat: u64) -> Seat {
    let seat = Seat(seat);
    for words in [join(&format!("job {}", seat.0)), flow(PEER)] {
        office.handle_job(at(1), seat, words).unwrap();
    }
    seat
}

fn drain(office: &mut Office) -> Vec<Output> {
    std::iter::from_fn(|| office.poll()).collect()
}

/// The last rate that a job was given.
fn rate(outputs: &[Output], of: Seat) -> Option<(u64, Option<u64>)> {
    outputs.iter().rev().find_map(|output| match output {
        Output::Say(seat, ToJob::Rate { bps, bytes, .. }) if *seat == of => Some((*bps, *bytes)),
        _ => None,
    })
}

/// Lets the office do everything that is due until then.
fn pass(office: &mut Office, until: Time) -> Vec<Output> {
    let mut outputs = drain(office);
    while office.poll_timeout() <= until {
        let due = office.poll_timeout();
        office.handle_timeout(due);
        outputs.extend(drain(office));
    }
    outputs
}

// spec: C-08, C-11 machine
#[test]
fn without_a_switch_jobs_of_a_host_take_turns_by_its_own_table() {
    let mut office = office();
    let (first, second) = (seated(&mut office, 1), seated(&mut office, 2));
    assert_eq!(rate(&drain(&mut office), second), Some((62_500_000, None)), "nothing to send yet");
    for seat in [first, second] {
        office.handle_job(at(60), seat, report(SLOT_BYTES, 0)).unwrap();
    }
    let outputs = pass(&mut office, at(70));
    let told: Vec<_> = outputs.iter().filter(|output| matches!(output, Output::Tell(..))).collect();
    assert!(!told.is_empty(), "switches would be told");
    let (now, later) = (rate(&outputs, first).unwrap(), rate(&outputs, second).unwrap());
    assert!(now.0 > 900_000_000 && now.1 > Some(6_000_000), "{now:?}");
    assert_eq!(later, (0, Some(0)), "the other waits");
    // The first sends everything and is done; the other has the next slot.
    office.handle_job(at(115), first, report(SLOT_BYTES, SLOT_BYTES)).unwrap();
    let outputs = pass(&mut office, at(130));
    assert!(rate(&outputs, second).unwrap().0 > 900_000_000, "{outputs:?}");
}

#[test]
fn what_switches_say_counts_in_their_slot_and_adds_up() {
    let mut office = office();
    let seat = seated(&mut office, 1);
    office.handle_job(at(60), seat, report(SLOT_BYTES, 0)).unwrap();
    let outputs = drain(&mut office);
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
        office.handle_answers(at(61), switch, slot, &questions, vec![says(free)]);
    }
    let outputs = pass(&mut office, at(70));
    let (bps, bytes) = rate(&outputs, seat).unwrap();
    assert!(bytes <= Some(1_000_000) && bps <= 134_000_000, "{bps} {bytes:?}");
    // An answer about a slot that has passed does not count.
    office.handle_job(at(119), seat, report(SLOT_BYTES, 100_000)).unwrap();
    pass(&mut office, at(120));
    office.handle_answers(at(121), 0, slot, &questions, vec![says(0)]);
    let outputs = pass(&mut office, at(130));
    assert!(rate(&outputs, seat).unwrap().0 > 900_000_000, "{outputs:?}");
}

#[test]
fn a_refused_plan_is_made_again() {
    let mut office = office();
    let seat = seated(&mut office, 1);
    office.handle_job(at(60), seat, report(SLOT_BYTES, 0)).unwrap();
    let outputs = pass(&mut office, at(70));
    let plans = outputs.iter().rev().find_map(|output| match output {
        Output::Tell(_, plans) => Some(plans.clone()),
        _ => None,
    });
    let plans = plans.expect("it tells");
    assert_eq!(plans[0].plan.first(), BASE.after(1));
    let refusal = Refusal { slot: BASE.after(1), asked: SLOT_BYTES, free: 100_000 };
    office.handle_verdicts(at(70), &plans, &[Verdict::Full(refusal)]);
    let outputs = drain(&mut office);
    assert!(rate(&outputs, seat).unwrap().1 <= Some(100_000), "{outputs:?}");
    assert!(outputs.iter().any(|output| matches!(output, Output::Tell(..))));
}

#[test]
fn what_became_of_a_slot_is_written_down() {
    let mut office = office();
    let seat = seated(&mut office, 1);
    office.handle_job(at(60), seat, report(SLOT_BYTES, 0)).unwrap();
    let (granted, _) = rate(&pass(&mut office, at(70)), seat).unwrap();
    office.handle_job(at(100), seat, report(SLOT_BYTES, 4_000_000)).unwrap();
    let outputs = pass(&mut office, at(130));
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
    let mut office = office();
    let seat = Seat(1);
    let mut refused = |words| office.handle_job(at(1), seat, words).unwrap_err();
    assert_eq!(refused(flow(PEER)), "join first");
    assert_eq!(refused(report(1, 1)), "join first");
    assert_eq!(refused(FromJob::Close { flow: 1 }), "join first");
    let seat = seated(&mut office, 1);
    let mut refused = |words| office.handle_job(at(1), seat, words).unwrap_err();
    assert!(refused(join("again")).contains("has joined already"));
    assert!(refused(flow(PEER)).contains("is there already"));
    assert!(refused(FromJob::Close { flow: 9 }).contains("no flow 9"));
    office.handle_job(at(2), seat, report(1_000, 500)).unwrap();
    let back = office.handle_job(at(3), seat, report(1_000, 400)).unwrap_err();
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
    let twice = office.handle_job(at(3), seat, again).unwrap_err();
    assert!(twice.contains("close that flow first"), "{twice}");
}

// spec: C-18 machine
#[test]
fn processes_of_one_job_share_a_flow_and_what_it_is_granted() {
    let mut office = office();
    let seats = [Seat(1), Seat(2)];
    for seat in seats {
        office.handle_job(at(1), seat, join("job")).unwrap();
        office.handle_job(at(1), seat, flow(PEER)).unwrap();
    }
    assert_eq!(office.flows.len(), 1);
    drain(&mut office);
    office.handle_job(at(60), seats[0], report(SLOT_BYTES / 4, 0)).unwrap();
    office.handle_job(at(60), seats[1], report(SLOT_BYTES * 3 / 4, 0)).unwrap();
    let outputs = pass(&mut office, at(70));
    let [small, large] = seats.map(|seat| rate(&outputs, seat).unwrap());
    assert!(small.0 + large.0 > 900_000_000 && large.0 / 2 > small.0, "{small:?} {large:?}");
    // One leaves, and takes what it had left to send with it.
    office.handle_job(at(100), seats[0], report(SLOT_BYTES / 4, SLOT_BYTES / 4)).unwrap();
    office.forget(at(101), seats[1]);
    assert_eq!(office.flows.len(), 1, "the other has a part in it");
    pass(&mut office, at(200));
    assert_eq!(office.poll_timeout(), Time::NEVER, "all is sent");
    office.forget(at(201), seats[0]);
    assert!(office.flows.is_empty());
}

// spec: C-08 machine
#[test]
fn processes_of_one_job_do_not_begin_each_others_bursts_anew() {
    let mut office = office();
    for (seat, to) in [(Seat(1), PEER), (Seat(2), Ipv4Addr::new(10, 77, 0, 3))] {
        office.handle_job(at(1), seat, join("job")).unwrap();
        office.handle_job(at(1), seat, flow(to)).unwrap();
    }
    office.handle_job(at(60), Seat(1), report(SLOT_BYTES / 2, 0)).unwrap();
    office.handle_job(at(61), Seat(1), report(SLOT_BYTES / 2, 1_000_000)).unwrap();
    office.handle_job(at(62), Seat(2), report(SLOT_BYTES, 0)).unwrap();
    office.handle_job(at(63), Seat(1), report(SLOT_BYTES, 1_000_000)).unwrap();
    let outputs = pass(&mut office, at(70));
    for seat in [Seat(1), Seat(2)] {
        assert!(rate(&outputs, seat).unwrap().0 > 0, "{seat:?} has something to send");
        office.handle_job(at(150), seat, report(SLOT_BYTES, SLOT_BYTES)).unwrap();
    }
    pass(&mut office, at(1_000));
    assert_eq!(office.poll_timeout(), Time::NEVER, "all is sent, and nobody waits");
}

#[test]
fn a_job_that_hangs_up_leaves_nothing() {
    let mut office = office();
    let seat = seated(&mut office, 1);
    office.handle_job(at(60), seat, report(SLOT_BYTES, 0)).unwrap();
    pass(&mut office, at(70));
    office.forget(at(71), seat);
    assert!(office.flows.is_empty() && office.jobs.is_empty());
    assert_eq!(office.agent.host().uplink().planned().total(), 0);
    office.forget(at(72), seat);
}

// spec: C-15 machine
#[test]
fn flows_within_the_host_are_left_alone() {
    let mut office = office();
    office.handle_job(at(1), Seat(1), join("a")).unwrap();
    office.handle_job(at(1), Seat(1), flow(OWN)).unwrap();
    assert_eq!(rate(&drain(&mut office), Seat(1)), Some((u64::MAX, None)));
    office.handle_job(at(2), Seat(1), report(SLOT_BYTES, 0)).unwrap();
    assert!(rate(&pass(&mut office, at(70)), Seat(1)).is_none());
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
    let mut agent = Office::new(OWN, Rate::from_gbps(1), settings, BASE, &Rng::new(1)).unwrap();
    let [knows, other, late] = [1, 2, 3].map(Seat);
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
    let office = || Office::new(OWN, Rate::from_gbps(1), settings, BASE, &Rng::new(1)).unwrap();
    let join = FromJob::Join { version: VERSION, job: "a".into(), classes: false, leaf: true };
    let said = |outputs: &[Output], wanted: fn(&ToJob) -> bool| {
        outputs.iter().any(|output| matches!(output, Output::Say(_, words) if wanted(words)))
    };
    let mut without = office();
    without.handle_job(at(1), Seat(1), join.clone()).unwrap();
    let outputs = drain(&mut without);
    assert!(!said(&outputs, |words| matches!(words, ToJob::Leaf { .. })), "it keeps to rates");
    let mut office = office();
    office.offer_leaves();
    office.handle_job(at(1), Seat(1), join).unwrap();
    office.handle_job(at(1), Seat(1), flow(PEER)).unwrap();
    let outputs = drain(&mut office);
    assert!(said(&outputs, |words| *words == ToJob::Leaf { mark: Leaf::mark(0) }));
    assert_eq!(rate(&outputs, Seat(1)), Some((u64::MAX, None)), "nothing is planned");
    office.handle_job(at(60), Seat(1), report(SLOT_BYTES, 0)).unwrap();
    let outputs = pass(&mut office, at(70));
    assert_eq!(rate(&outputs, Seat(1)), Some((u64::MAX, None)), "nobody else uses the path");
    let last = outputs.iter().rev().find_map(|output| match output {
        Output::Leaves(leaves) => leaves.first().copied(),
        _ => None,
    });
    let leaf = last.expect("its leaf changes");
    assert!(leaf.is_busy && leaf.bps > 900_000_000 && leaf.priority < 7, "{leaf:?}");
    office.forget(at(80), Seat(1));
    let gone = drain(&mut office);
    assert!(gone.iter().any(|output| {
        matches!(output, Output::Leaves(leaves) if leaves.iter().all(|leaf| leaf.bps == 0))
    }));
}
