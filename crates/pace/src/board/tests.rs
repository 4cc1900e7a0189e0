use thalweg_core::{JobId, Rate};

use super::*;
use crate::ahead::Ahead;
use crate::load::Refusal;
use crate::rank::Rank;

const NOW: Slot = Slot(100);
const HOST: NodeId = NodeId(0x0a4d_0001);

/// 1 Gbps to every host of a rack, slots of 60 ms.
const CAPACITY: u64 = 7_500_000;

fn board() -> Board {
    let to = "10.77.0.0/24".parse().unwrap();
    Board::new(Settings::default(), vec![Route { to, rate: Rate::from_gbps(1), is_each: true }])
}

fn flow(number: u32) -> FlowId {
    FlowId { job: JobId(u64::from(number)), number }
}

fn question(number: u32) -> Question {
    Question { flow: flow(number), rank: Rank::LAST, to: HOST, others: Vec::new() }
}

fn plan(number: u32, slot: Slot, volume: u64) -> Plan {
    let mut plan = Ahead::empty(slot, 10);
    plan.volumes_mut()[0] = volume;
    let progress = Progress { flow: flow(number), iteration: 1, volume };
    let rank = Rank::LAST;
    Plan { flow: flow(number), rank, to: HOST, plan, progress, asked: 0, carried: 0 }
}

fn update(sequence: u64, plans: Vec<Plan>) -> Update {
    Update { agent: AgentId(7), sequence, slot: NOW, plans }
}

/// State of the link as another flow sees it, and counts without rejections.
fn seen(board: &mut Board) -> (Vec<u64>, Vec<u64>, Stats) {
    let answers = board.fetch(NOW, NOW, &[question(99)]).unwrap();
    let feedback = answers[0].feedback.unwrap();
    let stats = Stats { fetches: 0, rejected: 0, ..board.stats() };
    (feedback.load.volumes().to_vec(), feedback.free.volumes().to_vec(), stats)
}

// spec: C-10 machine
#[test]
fn what_is_planned_comes_back_as_load() {
    let mut board = board();
    let verdicts = board.update(NOW, &update(1, vec![plan(1, NOW, 4_000_000)])).unwrap();
    assert_eq!(verdicts, [Verdict::Taken]);
    let (load, free, _) = seen(&mut board);
    assert_eq!((load[0], free[0]), (4_000_000, 3_500_000));
    assert_eq!((load[1], free[1]), (0, CAPACITY));
    // The own reservation does not limit it, and other hosts have links of their own.
    let own = board.fetch(NOW, NOW, &[question(1)]).unwrap();
    assert_eq!(own[0].feedback.unwrap().free.volumes()[0], CAPACITY);
    let elsewhere = Question { to: NodeId(HOST.0 + 1), ..question(99) };
    let elsewhere = board.fetch(NOW, NOW, &[elsewhere]).unwrap();
    assert_eq!(elsewhere[0].feedback.unwrap().load.total(), 0);
    let outside = Question { to: NodeId(1), ..question(99) };
    assert_eq!(board.fetch(NOW, NOW, &[outside]).unwrap()[0].feedback, None);
}

#[test]
fn flows_learn_how_far_those_are_that_they_depend_on() {
    let mut board = board();
    board.update(NOW, &update(1, vec![plan(1, NOW, 1_000)])).unwrap();
    let question = Question { others: vec![flow(1), flow(2)], ..question(3) };
    let answers = board.fetch(NOW, NOW, &[question]).unwrap();
    let progress = Progress { flow: flow(1), iteration: 1, volume: 1_000 };
    assert_eq!(answers[0].progress, [progress]);
}

// spec: C-10, C-15 machine
#[test]
fn what_has_no_room_is_refused_alone() {
    let mut board = board();
    let plans = vec![plan(1, NOW, CAPACITY), plan(2, NOW, 1), plan(3, NOW, 0)];
    let verdicts = board.update(NOW, &update(1, plans)).unwrap();
    let full = Verdict::Full(Refusal { slot: NOW, asked: 1, free: 0 });
    assert_eq!(verdicts, [Verdict::Taken, full, Verdict::Taken]);
}

// spec: C-10 machine
#[test]
fn a_flow_that_finds_no_room_elsewhere_keeps_what_it_has() {
    let mut board = board();
    let there = NodeId(HOST.0 + 1);
    let full = Plan { to: there, ..plan(1, NOW, CAPACITY) };
    board.update(NOW, &update(1, vec![full, plan(2, NOW, 4_000_000)])).unwrap();
    let load = |board: &mut Board, to| {
        let asked = board.fetch(NOW, NOW, &[Question { to, ..question(99) }]).unwrap();
        asked[0].feedback.unwrap().load.volumes()[0]
    };
    let moved = Plan { to: there, ..plan(2, NOW, 1_000) };
    let verdicts = board.update(NOW, &update(2, vec![moved])).unwrap();
    assert!(matches!(verdicts[0], Verdict::Full(_)), "{verdicts:?}");
    assert_eq!((load(&mut board, HOST), load(&mut board, there)), (4_000_000, CAPACITY));
    // Where there is room it goes, and leaves nothing behind.
    let moved = Plan { to: NodeId(HOST.0 + 2), ..plan(2, NOW, 1_000) };
    assert_eq!(board.update(NOW, &update(3, vec![moved])).unwrap(), [Verdict::Taken]);
    assert_eq!((load(&mut board, HOST), load(&mut board, moved.to)), (0, 1_000));
}

// spec: C-10 machine
#[test]
fn old_early_replayed_and_huge_messages_change_nothing() {
    let mut board = board();
    board.update(NOW, &update(5, vec![plan(1, NOW, 1_000)])).unwrap();
    let before = seen(&mut board);
    let at = |slot: Slot| Update { slot, ..update(6, vec![plan(1, slot, 9_000)]) };
    let short = Plan { plan: Ahead::empty(NOW, 9), ..plan(1, NOW, 0) };
    let wrong = [
        (at(Slot(98)), Wrong::Old { sent_in: Slot(98), now: NOW }),
        (at(Slot(102)), Wrong::Early { sent_in: Slot(102), now: NOW }),
        (at(Slot(u64::MAX)), Wrong::Early { sent_in: Slot(u64::MAX), now: NOW }),
        (update(5, vec![plan(1, NOW, 9_000)]), Wrong::Replayed { last: 5 }),
        (update(4, vec![plan(1, NOW, 9_000)]), Wrong::Replayed { last: 5 }),
        (update(6, vec![plan(1, NOW, u64::MAX)]), Wrong::Volume(u64::MAX)),
        (update(6, vec![plan(1, NOW, 9_000), short]), Wrong::Horizon(10)),
        (update(6, vec![plan(1, NOW, 1); 257]), Wrong::Flows { given: 257, most: 256 }),
    ];
    for (message, expected) in wrong {
        assert_eq!(board.update(NOW, &message), Err(expected));
        assert_eq!(seen(&mut board), before, "{expected}");
    }
    let questions = vec![question(1); 257];
    assert!(matches!(board.fetch(NOW, NOW, &questions), Err(Wrong::Flows { .. })));
    let many = Question { others: vec![flow(2); 65], ..question(1) };
    assert!(matches!(board.fetch(NOW, NOW, &[many]), Err(Wrong::Flows { .. })));
    assert!(matches!(board.fetch(NOW, Slot(5), &[]), Err(Wrong::Old { .. })));
    assert_eq!(seen(&mut board), before);
    assert_eq!(board.stats().rejected, 11);
}

#[test]
fn nobody_writes_for_others_until_they_are_silent() {
    let mut board = board();
    board.update(NOW, &update(1, vec![plan(1, NOW, 1_000)])).unwrap();
    let thief = Update { agent: AgentId(8), ..update(1, vec![plan(1, NOW, 0)]) };
    assert_eq!(board.update(NOW, &thief).unwrap(), [Verdict::Foreign]);
    assert_eq!(seen(&mut board).0[0], 1_000);
    let later = NOW.after(3);
    let heir = Update { agent: AgentId(8), slot: later, ..update(2, vec![plan(1, later, 500)]) };
    assert_eq!(board.update(later, &heir).unwrap(), [Verdict::Taken]);
}

// spec: C-01 machine
#[test]
fn everything_is_forgotten_when_nobody_speaks() {
    let mut board = board();
    board.update(NOW, &update(1, vec![plan(1, NOW, 1_000)])).unwrap();
    let later = NOW.after(50);
    board.fetch(later, later, &[]).unwrap();
    assert_eq!((board.stats().flows, board.agents.len()), (0, 0));
    // A message from before is too old by now, so the agent's number need not be known.
    assert!(matches!(board.update(later, &update(1, vec![])), Err(Wrong::Old { .. })));
}

// spec: C-04, C-12 machine
#[test]
fn a_link_that_carries_less_than_is_asked_for_is_asked_for_less() {
    let mut board = board();
    for slot in 0..6 {
        let now = NOW.after(slot);
        let half = Plan { asked: CAPACITY, carried: CAPACITY / 2, ..plan(1, now, CAPACITY / 2) };
        let message = Update { slot: now, ..update(slot + 1, vec![half]) };
        board.update(now, &message).unwrap();
    }
    let now = NOW.after(6);
    let answers = board.fetch(now, now, &[question(9)]).unwrap();
    let free = answers[0].feedback.unwrap().free;
    assert_eq!(free.volumes()[1], CAPACITY / 2, "half of it is somebody else's");
}
