//! Probes of paths, and set-ups that keep to what passes.
// spec: F-01 machine

use thalweg_core::body_bytes_of_mtu;
use thalweg_transport::path::{NarrowPath, PathReport};

use super::*;

const JUMBO: SwitchLimits = SwitchLimits { fragment_values: 2_224, mtu_bytes: 9_000, ..LIMITS };
const PATH: SwitchPath = SwitchPath { switch: SWITCH, via: None };

/// A job of two ranks below one switch, whose ranks announce these MTUs. The switch has reported its limits.
fn hall(mtus: [Option<u16>; 2]) -> Hall {
    let mut hall = Hall { limits: None, ..Hall::with(2, Settings::default()) };
    for (rank, mtu_bytes) in (0..).zip(mtus) {
        let join = Join { switch: Some(SWITCH), mtu_bytes, ..hall.join(rank, &format!("h{rank}")) };
        hall.attend(join).unwrap();
    }
    hall.registry.switch_answered(hall.now, SWITCH, JUMBO);
    hall.look();
    hall
}

fn probes(hall: &Hall) -> Vec<u16> {
    let probe = |action: &Action| match action {
        Action::ProbePath { path, mtu_bytes } if *path == PATH => Some(*mtu_bytes),
        _ => None,
    };
    hall.done.iter().filter_map(probe).collect()
}

/// The switch answers probes of up to an MTU while time passes.
fn pass(hall: &mut Hall, carries: u16) {
    for _ in 0..80 {
        hall.look();
        for mtu_bytes in probes(hall).into_iter().filter(|mtu| *mtu <= carries) {
            let body_bytes = body_bytes_of_mtu(mtu_bytes).into();
            hall.registry.path_answered(hall.now, PATH, body_bytes);
        }
        if hall
            .done
            .iter()
            .any(|action| matches!(action, Action::Tell { message: ToRank::Report { .. }, .. }))
        {
            return;
        }
        hall.pass(Span::from_ms(100));
        hall.registry.switch_answered(hall.now, SWITCH, JUMBO);
    }
    panic!("nobody is asked");
}

fn report(mtu_bytes: u16, narrow: Option<NodeId>) -> PathReport {
    let narrow = narrow.map(|node| NarrowPath { node, mtu_bytes });
    PathReport { mtu_bytes: Some(mtu_bytes), narrow, silent: None }
}

fn answer(hall: &mut Hall, round: u32, reports: [PathReport; 2]) {
    for (rank, report) in (0..).zip(reports) {
        hall.say(rank, FromRank::Paths { round, report });
    }
    hall.answer_all(round, (round > 1).then_some(0));
    hall.look();
}

#[test]
fn a_set_up_waits_for_probes_of_what_all_announce_and_fills_it() {
    let mut hall = hall([Some(9_000); 2]);
    assert_eq!(probes(&hall), [9_000]);
    assert!(!hall.sent_to(0).iter().any(|message| matches!(message, ToRank::Report { .. })));
    hall.registry.path_answered(hall.now, PATH, 8_896);
    hall.look();
    let nodes = vec![SERVER, SWITCH];
    let probe = ToRank::ProbePaths { round: 1, mtu_bytes: 9_000, nodes };
    assert_eq!(hall.sent_to(0)[0], probe);
    assert!(matches!(hall.sent_to(0)[1], ToRank::Report { round: 1, .. }));
    answer(&mut hall, 1, [report(9_000, None), report(9_000, None)]);
    let JobParameters { fragment_values, span_fragments, .. } = *hall.setup().parameters;
    assert_eq!((fragment_values, span_fragments), (2_224, 81), "as many bytes as 512 of 352");
    let sent = hall.sent_to(1);
    assert_eq!(sent[0], ToRank::PathMtu { mtu_bytes: 9_000 }, "before the set-up");
    assert!(matches!(sent[1], ToRank::Adopt { .. }), "{sent:?}");
    assert!(hall.warnings().is_empty(), "{:?}", hall.warnings());
}

#[test]
fn the_least_announcement_counts_without_a_warning() {
    let mut hall = hall([Some(9_000), Some(1_500)]);
    assert_eq!(probes(&hall), [1_500]);
    pass(&mut hall, 9_000);
    answer(&mut hall, 1, [report(1_500, None), report(1_500, None)]);
    assert_eq!(hall.setup().parameters.fragment_values, 352);
    assert!(hall.warnings().is_empty(), "{:?}", hall.warnings());
}

#[test]
fn a_rank_that_announces_nothing_is_set_up_without_probes() {
    let mut hall = hall([Some(9_000), None]);
    assert!(probes(&hall).is_empty());
    assert!(hall.welcomes(0).iter().all(|welcome| !welcome.probes_paths));
    hall.answer_all(1, None);
    hall.look();
    assert_eq!(hall.setup().parameters.fragment_values, 352);
}

#[test]
fn a_narrow_path_of_a_rank_is_named_with_both_sizes() {
    let mut hall = hall([Some(9_000); 2]);
    pass(&mut hall, 9_000);
    answer(&mut hall, 1, [report(9_000, None), report(1_500, Some(SWITCH))]);
    assert_eq!(hall.setup().parameters.fragment_values, 352);
    let warning = hall.warnings()[0];
    let ends = "the path between rank 1 (10.1.1.1:4808) and switch 10.1.0.2:4808";
    assert!(warning.contains(ends), "{warning}");
    assert!(warning.contains("carries packets of 1500 bytes and not of 9000"), "{warning}");
}

#[test]
fn a_narrow_path_between_server_and_switch_is_named_with_both_sizes() {
    let mut hall = hall([Some(9_000); 2]);
    pass(&mut hall, 4_000);
    let offered = |message: ToRank| match message {
        ToRank::ProbePaths { mtu_bytes, .. } => Some(mtu_bytes),
        _ => None,
    };
    let offered: Vec<u16> = hall.sent_to(0).into_iter().filter_map(offered).collect();
    assert_eq!(offered, [4_000], "ranks begin with what passes");
    answer(&mut hall, 1, [report(4_000, None), report(4_000, None)]);
    assert_eq!(hall.setup().parameters.fragment_values, body_bytes_of_mtu(4_000) / 4);
    let warning = hall.warnings()[0];
    let ends = "the path between the server (10.1.0.1:4800) and switch 10.1.0.2:4808";
    assert!(warning.contains(ends) && warning.contains("4000 bytes and not of 9000"), "{warning}");
}

/// A job with packets of 9,000 bytes, which is asked for another set-up.
fn jumbo_in_second_round() -> Hall {
    let mut hall = hall([Some(9_000); 2]);
    pass(&mut hall, 9_000);
    answer(&mut hall, 1, [report(9_000, None), report(9_000, None)]);
    hall.pass(Span::from_s(2));
    hall.registry.switch_answered(hall.now, SWITCH, JUMBO);
    hall.registry.tell_registrar(
        hall.now,
        JobTree::of(hall.job),
        Message::Replan { job: hall.job },
    );
    hall.registry.set_up(hall.now, JobTree::of(hall.job), None);
    hall.look();
    assert_eq!(probes(&hall), [9_000], "every epoch probes again");
    hall.registry.path_answered(hall.now, PATH, 8_896);
    hall.look();
    hall
}

#[test]
fn a_path_that_is_too_narrow_in_a_later_epoch_fails_the_job_with_both_sizes() {
    let mut hall = jumbo_in_second_round();
    answer(&mut hall, 2, [report(9_000, None), report(1_500, Some(node(0)))]);
    let text = hall.failure(0).text;
    let ends = "the path between rank 1 (10.1.1.1:4808) and rank 0 (10.1.1.0:4808)";
    assert!(text.contains(ends), "{text}");
    assert!(
        text.contains("carries packets of 1500 bytes, and those of the job have 8988"),
        "{text}"
    );
}

#[test]
fn a_silent_path_does_not_hide_one_that_is_too_narrow() {
    let mut hall = jumbo_in_second_round();
    let silent = PathReport { mtu_bytes: None, narrow: None, silent: Some(SWITCH) };
    answer(&mut hall, 2, [silent, report(4_000, Some(SWITCH))]);
    let text = hall.failure(0).text;
    assert!(text.contains("rank 1 (10.1.1.1:4808) and switch 10.1.0.2:4808"), "{text}");
    assert!(text.contains("4000 bytes, and those of the job have 8988"), "{text}");
}

#[test]
fn a_silent_path_of_a_running_job_fails_nothing() {
    let mut hall = jumbo_in_second_round();
    let silent = PathReport { mtu_bytes: None, narrow: None, silent: Some(SWITCH) };
    answer(&mut hall, 2, [silent, report(9_000, None)]);
    assert_eq!((hall.setup().epoch, hall.setup().parameters.fragment_values), (2, 2_224));
}

#[test]
fn a_rank_that_comes_back_with_a_narrow_interface_fails_the_job_with_both_sizes() {
    let mut hall = jumbo_in_second_round();
    hall.hang_up(1);
    let process = Process { life: 9, ..hall.join(1, "h1").process };
    let ticket = hall.ticket(1);
    let join = Join { process, ticket, mtu_bytes: Some(1_500), ..hall.join(1, "h1") };
    hall.attend(Join { switch: Some(SWITCH), ..join }).unwrap();
    hall.look();
    let text = hall.failure(0).text;
    assert!(text.contains("rank 1 (10.1.1.1:4808)"), "{text}");
    assert!(text.contains("1500 bytes, and those of the job have 8988"), "{text}");
}

#[test]
fn packets_are_no_longer_than_what_a_leader_was_asked_for_that_answered_early() {
    let mut hall = hall([Some(9_000); 2]);
    pass(&mut hall, 9_000);
    answer(&mut hall, 1, [report(1_500, None), report(9_000, None)]);
    assert_eq!(hall.setup().parameters.fragment_values, 352);
}

#[test]
fn silence_of_a_path_keeps_packets_short_and_fails_nothing() {
    let mut hall = hall([Some(9_000); 2]);
    pass(&mut hall, 0);
    let silent = PathReport { mtu_bytes: Some(1_500), narrow: None, silent: None };
    answer(&mut hall, 1, [silent.clone(), silent]);
    assert_eq!(hall.setup().parameters.fragment_values, 352);
    assert!(hall.warnings()[0].contains("no probe of the path between the server"));
}
