//! Switches that do not answer.
// spec: E-09 machine

use prost::Message as _;
use thalweg_core::{FRAME_OVERHEAD_BYTES, FULL_FRAME_BYTES};

use super::*;
use crate::convert;

/// Three hosts below one switch, which answers.
fn hall() -> Hall {
    let mut hall = Hall::new(3);
    for (rank, host) in (0..).zip(["a", "b", "c"]) {
        hall.attend(Join { switch: Some(SWITCH), ..hall.join(rank, host) }).unwrap();
    }
    hall.answer_all(1, None);
    hall.look();
    hall.limits = None;
    hall
}

/// Time passes; the switch answers every probe or none. Returns how many there were.
fn pass(hall: &mut Hall, span: Span, answers: bool) -> usize {
    let (mut probes, end) = (0, hall.now + span);
    let mut done = Vec::new();
    while hall.now < end {
        hall.pass(Span::from_ms(100));
        for action in hall.look().to_vec() {
            if action == (Action::Probe { switch: SWITCH }) {
                probes += 1;
                if answers {
                    hall.registry.switch_answered(hall.now, SWITCH, LIMITS);
                }
            } else {
                done.push(action);
            }
        }
    }
    hall.done = done;
    probes
}

fn first_hops(hall: &Hall) -> Vec<NodeId> {
    let tree = &hall.setup().trees[0];
    (0..3).map(|leader| tree.first_hop(leader)).collect()
}

#[test]
fn a_switch_that_stays_away_is_planned_out_and_in_again_when_it_is_back() {
    let mut hall = hall();
    assert_eq!(first_hops(&hall), [SWITCH; 3]);
    let probes = pass(&mut hall, Span::from_s(60), true);
    assert!((55..=65).contains(&probes), "{probes}");
    assert!(hall.done.is_empty(), "it answers");
    pass(&mut hall, Span::from_ms(8_900), false);
    assert!(hall.done.is_empty(), "it may come back");
    pass(&mut hall, Span::from_ms(1_200), false);
    let note =
        "job \"train\": switch 10.1.0.2:4808 has not answered for 10.0 s: planned without it";
    assert_eq!(hall.warnings(), [note]);
    assert!(hall.sent_to(0).contains(&ToRank::Report { round: 2, seat: 0 }));
    hall.answer_all(2, Some(640));
    assert_eq!(first_hops(&hall), [SERVER; 3]);
    assert_eq!((hall.setup().epoch, hall.setup().resume_from), (2, 640));
    hall.look();
    pass(&mut hall, Span::from_s(60), false);
    assert!(hall.done.is_empty(), "it is planned without it");
    // One answer may be a stray one.
    hall.registry.switch_answered(hall.now, SWITCH, LIMITS);
    pass(&mut hall, Span::from_s(1), false);
    assert!(hall.done.is_empty());
    pass(&mut hall, Span::from_s(3), true);
    assert!(hall.notes()[0].contains("switch 10.1.0.2:4808 answers again: planned with it"));
    hall.answer_all(3, Some(900));
    assert_eq!(first_hops(&hall), [SWITCH; 3]);
    assert_eq!((hall.setup().epoch, hall.setup().resume_from), (3, 900));
}

#[test]
fn a_switch_that_comes_and_goes_changes_plans_only_now_and_then() {
    let mut hall = hall();
    let begin = hall.now;
    while hall.now.since(begin) < Span::from_s(200) {
        pass(&mut hall, Span::from_s(11), false);
        hall.answer_all(hall.registry.registrar.round(hall.job).unwrap(), Some(1));
        pass(&mut hall, Span::from_s(3), true);
        hall.answer_all(hall.registry.registrar.round(hall.job).unwrap(), Some(1));
    }
    let epoch = hall.setup().epoch;
    assert!((3..=21).contains(&epoch), "{epoch} set-ups in 200 s");
}

#[test]
fn nobody_is_set_up_again_who_cannot_be() {
    let mut hall = hall();
    hall.say(2, FromRank::Leave { operations: 1 });
    hall.look();
    pass(&mut hall, Span::from_s(60), false);
    assert!(hall.done.is_empty(), "rank 2 has left, and would not answer");
}

/// A rank is done when the others are asked for another set-up. They have paused, and get it without the rank.
// spec: E-01 machine
#[test]
fn a_rank_that_leaves_while_others_are_set_up_again_holds_nobody_up() {
    let mut hall = hall();
    pass(&mut hall, Span::from_s(11), false);
    for (rank, watermark) in [(0, 700), (1, 640)] {
        let answer = FromRank::Answer { round: 2, seat: rank, watermark: Some(watermark) };
        hall.say(rank, answer);
    }
    hall.say(2, FromRank::Leave { operations: 9 });
    hall.look();
    assert!(hall.sent_to(0).contains(&ToRank::Left { rank: 2, operations: 9 }));
    assert_eq!((hall.setup().epoch, hall.setup().resume_from), (2, 640));
    assert_eq!(first_hops(&hall), [SERVER; 3]);
    pass(&mut hall, Span::from_s(60), false);
    assert!(hall.done.is_empty(), "nobody waits for it: {:?}", hall.done);
}

/// The same where the rank that leaves is not the last one.
// spec: E-01 machine
#[test]
fn a_rank_that_leaves_before_others_answer_holds_nobody_up() {
    let mut hall = hall();
    pass(&mut hall, Span::from_s(11), false);
    hall.say(1, FromRank::Leave { operations: 9 });
    // The others do; rank 1 is no longer listened to.
    hall.answer_all(2, Some(640));
    hall.look();
    assert_eq!((hall.setup().epoch, hall.setup().resume_from), (2, 640));
}

#[test]
fn switches_that_nobody_uses_are_not_probed() {
    let mut hall = Hall::set_up(&["a", "b", "c"]);
    assert_eq!(pass(&mut hall, Span::from_s(20), false), 0);
    assert!(hall.done.is_empty());
}

/// Bytes on links that a registry has sent to nodes that ranks name and that never answer, by time: at most those of the messages
/// that it has got, times the ranks, and one packet. Ranks answer and say how far they are, or nothing at all.
// spec: E-13 machine
#[test]
fn nodes_that_ranks_name_get_what_their_messages_pay_for() {
    const FRAMING_BYTES: usize = 14;
    for (ranks, talks) in [(1, false), (1, true), (4, false), (4, true)] {
        let mut hall = Hall { limits: None, ..Hall::new(ranks) };
        let (began, mut got, mut sent) = (hall.now, 0, 0);
        for rank in 0..ranks {
            let switch = Some(NodeId(SWITCH.0 + 8 * rank));
            let join = Join { switch, ..hall.join(rank, "a") };
            got += convert::to_join(&join).encoded_len() + FRAMING_BYTES;
            hall.attend(join).unwrap();
        }
        while hall.now.since(began) < Span::from_s(600) {
            hall.now += Span::from_ms(500);
            for rank in (0..ranks).filter(|_| talks) {
                let progress = FromRank::Progress(Progress::default());
                got += convert::write_from_rank(0, &progress).encoded_len() + FRAMING_BYTES;
                hall.say(rank, progress);
            }
            hall.registry.tick(hall.now);
            let probes = hall.look().iter().filter(|action| matches!(action, Action::Probe { .. }));
            sent += probes.count() * FRAME_OVERHEAD_BYTES as usize;
            let most = got * ranks as usize + FULL_FRAME_BYTES as usize;
            assert!(sent <= most, "{sent} bytes out, {got} in, {ranks} ranks");
        }
        println!("{ranks} ranks, talking: {talks}: {got} bytes in, {sent} out within ten minutes");
        let is_found = sent >= 50 * FRAME_OVERHEAD_BYTES as usize;
        assert_eq!(is_found, talks, "a switch that starts late is found: {sent}");
    }
}
