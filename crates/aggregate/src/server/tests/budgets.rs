//! Memory: what is reserved for jobs, and for how many of them.

use super::super::{BudgetError, Refusals, fit, memory_bytes};
use super::*;

/// One worker, which needs nobody to complete a sum.
fn alone() -> Setup {
    setup(&[member(1, &[])])
}

fn named(job: u64, setup: &Setup) -> Arc<Setup> {
    Arc::new(Setup { job: JobId(job), ..setup.clone() })
}

fn server(job_memory_bytes: u64, memory_bytes: u64) -> Checked<Server> {
    let config = Config { job_memory_bytes, memory_bytes, ..Config::new(SERVER) };
    Checked::new(Server::new(config).unwrap())
}

fn refused(server: &mut Server) -> Option<(JobId, BudgetError)> {
    match server.poll_event()? {
        Event::Refused { job, reason } => Some((job, reason)),
        other => panic!("{other:?}"),
    }
}

// spec: E-12 machine
#[test]
fn a_job_that_does_not_fit_its_own_budget_is_refused() {
    let large = alone().with(|parameters| parameters.span_fragments = 1_000);
    let needed_bytes = memory_bytes(&large, SERVER);
    let mut server = server(needed_bytes - 1, u64::MAX);
    server.adopt(Time::ZERO, named(1, &large));
    let reason = BudgetError::JobMemory { needed_bytes, budget_bytes: needed_bytes - 1 };
    assert_eq!(refused(&mut server), Some((JobId(1), reason)));
    assert_eq!((server.jobs().count(), server.reserved_bytes()), (0, 0));
    // With the span that fits, it is adopted.
    let fitting = fit(large.parameters, 1, needed_bytes - 1).unwrap();
    assert_eq!(fitting.span_fragments, 999);
    server.adopt(Time::ZERO, named(1, &Setup { parameters: fitting, ..large }));
    assert_eq!((refused(&mut server), server.jobs().count()), (None, 1));
    assert_eq!(server.refusals(), Refusals { job_memory: 1, ..Refusals::default() });
}

// spec: E-12 machine
#[test]
fn jobs_beyond_the_total_are_refused_and_memory_comes_back() {
    let setup = alone();
    let one = memory_bytes(&setup, SERVER);
    let mut server = server(one, 2 * one);
    server.adopt(Time::ZERO, named(1, &setup));
    server.adopt(Time::ZERO, named(2, &setup));
    assert_eq!((refused(&mut server), server.reserved_bytes()), (None, 2 * one));
    server.adopt(Time::ZERO, named(3, &setup));
    let (needed_bytes, reserved_bytes, budget_bytes) = (one, 2 * one, 2 * one);
    let reason = BudgetError::Memory { needed_bytes, reserved_bytes, budget_bytes };
    assert_eq!(refused(&mut server), Some((JobId(3), reason)));
    // A new epoch takes the place of the one before.
    server.adopt(Time::ZERO, named(2, &Setup { epoch: 2, ..setup.clone() }));
    assert_eq!((refused(&mut server), server.reserved_bytes()), (None, 2 * one));
    server.retire(JobId(1));
    assert_eq!(server.reserved_bytes(), one);
    server.adopt(Time::ZERO, named(3, &setup));
    assert_eq!((refused(&mut server), server.reserved_bytes()), (None, 2 * one));
    let by_job: Vec<_> = server.reserved_by_job().collect();
    assert_eq!(by_job, [(JobId(2), one), (JobId(3), one)]);
    assert_eq!(server.refusals(), Refusals { memory: 1, ..Refusals::default() });
}

// spec: E-12 machine
#[test]
fn an_epoch_that_does_not_fit_leaves_the_one_before() {
    let setup = alone();
    let one = memory_bytes(&setup, SERVER);
    let mut server = server(u64::MAX, one);
    server.adopt(Time::ZERO, named(1, &setup));
    let larger = setup.with(|parameters| parameters.span_fragments = 1_000);
    server.adopt(Time::ZERO, named(1, &Setup { epoch: 2, ..larger }));
    let (job, reason) = refused(&mut server).unwrap();
    assert_eq!(job, JobId(1));
    assert!(matches!(reason, BudgetError::Memory { reserved_bytes: 0, .. }), "{reason}");
    assert_eq!((server.jobs().count(), server.reserved_bytes()), (1, one));
}

#[test]
fn only_trees_of_the_server_count() {
    let one = alone();
    let other = Arc::new(Tree::build(NodeId(901), &[member(1, &[])]).unwrap());
    let two = Setup { trees: vec![other, one.trees[0].clone()], ..one.clone() };
    assert!(memory_bytes(&two, SERVER) <= memory_bytes(&one, SERVER));
    assert!(memory_bytes(&two, NodeId(5)) < memory_bytes(&two, SERVER));
}

/// A window moves on although nothing can be sent: what is over does not wait for ever.
// spec: E-12 machine
#[test]
fn tasks_of_a_window_that_moves_are_bounded() {
    let mut bench = Bench::new(alone());
    let window = 2 * u64::from(SPAN) + 1;
    for sequence in 0..100 * window {
        // Everything below is complete at the only worker.
        let own = bench.own(0, sequence);
        bench.give(Gradient { watermark_distance: 0, ..own }, &fixed(&[1]));
    }
    assert_eq!(bench.stats().completed, 100 * window);
    let waiting = bench.server.queue.longest();
    assert!((1..=4 * window as usize).contains(&waiting), "{waiting}");
    let sent = bench.drain();
    let last = sent.last().map(|packet| packet.parameter().identity.sequence);
    assert_eq!(last, Some(100 * window - 1), "what is not over is sent");
}
