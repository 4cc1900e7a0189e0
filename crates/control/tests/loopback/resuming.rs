use std::net::SocketAddr;

use thalweg_control::{AttendConfig, ControlEvent, Settings};
use thalweg_core::Span;

use super::stage::{Rank, Stage, Told, attend_config, free_address, node, pair, stage};

fn restart(address: SocketAddr) -> Stage {
    stage(|config| (config.bind, config.seed) = (address, 2))
}

// spec: T-10 sockets
#[test]
fn a_service_that_restarts_goes_on_with_the_same_job() {
    let address = free_address(3);
    let before = stage(|config| config.bind = address);
    let ranks = pair(address, &Settings::default());
    let Told::Adopt(setup) = before.plane.told.lock().unwrap()[0].clone() else { panic!() };
    ranks[0].attendance.set_watermark(0, 700);
    ranks[1].attendance.set_watermark(0, 690);
    before.service.stop();
    for rank in &ranks {
        rank.expect(|event| matches!(event, ControlEvent::Disconnected { .. }).then_some(()));
    }
    let after = restart(address);
    assert_eq!(ranks[0].welcome().ticket.job, setup.job);
    assert_eq!(ranks[0].answer(Some(705)), 2);
    assert_eq!(ranks[1].answer(Some(690)), 2);
    for (index, rank) in (0..).zip(&ranks) {
        let (again, own) = rank.adopt();
        assert_eq!((again.job, again.epoch, again.resume_from), (setup.job, 2, 690));
        assert_eq!(own, index);
    }
    let told = after.plane.told.lock().unwrap();
    assert!(matches!(&told[..], [Told::Adopt(again)] if again.epoch == 2));
}

// spec: E-04 sockets
#[test]
fn another_process_takes_over_a_rank_with_its_ticket() {
    let stage = stage(|_| {});
    let address = stage.service.local_address();
    let settings = Settings { failure_after: Span::from_s(30), ..Settings::default() };
    let start = |rank, host, ticket| {
        let (settings, config) = (settings.clone(), attend_config(address, 2, rank, host));
        Rank::start(AttendConfig { settings, ticket, ..config })
    };
    let (first, second) = (start(0, "a", None), start(1, "b", None));
    let ticket = second.ticket();
    for rank in [&first, &second] {
        rank.answer(None);
    }
    for rank in [&first, &second] {
        rank.adopt();
    }
    drop(second);
    let replace = |ticket| {
        let (settings, config) = (settings.clone(), attend_config(address, 2, 1, "c"));
        Rank::start(AttendConfig { life: 77, node: node(9), settings, ticket, ..config })
    };
    let stranger = replace(None);
    let text = stranger.expect(|event| match event {
        ControlEvent::Disconnected { text, .. } => Some(text.clone()),
        _ => None,
    });
    assert!(text.starts_with("rank 1 belongs to another process"), "{text}");
    drop(stranger);
    let new = replace(Some(ticket));
    assert_eq!(first.answer(Some(64)), 2);
    assert_eq!(new.answer(None), 2);
    for rank in [&first, &new] {
        let (setup, _) = rank.adopt();
        assert_eq!((setup.epoch, setup.resume_from, setup.trees[0].node(1)), (2, 64, node(9)));
    }
}
