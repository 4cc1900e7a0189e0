//! Each policy against arithmetic, and all of them over seeds.

use std::convert::Infallible;

use thalweg_core::Rng;
use thalweg_pace::Settings;

use super::ccml::Ccml;
use super::fair::Fair;
use super::jobs::{JobSpec, Kind, Trained};
use super::mcs::Mcs;
use super::measure::settings;
use super::pacing::Pacing;
use super::turns::Turns;
use super::world::Policy;
use super::*;

/// Bytes that a server's link carries in a slot.
const SLOT_BYTES: u64 = 75_000_000;

fn shape(racks: usize, servers_per_rack: usize) -> Shape {
    Shape {
        pods: 1,
        racks_per_pod: racks,
        servers_per_rack,
        gpus_per_server: 8,
        gbps: [10, 20, 40],
    }
}

fn job(kind: Kind, members: usize, slots: u64, compute: u64, iterations: u64) -> JobSpec {
    JobSpec {
        kind,
        members,
        bytes: slots * SLOT_BYTES,
        compute_slots: compute as f64,
        iterations,
        arrives_at: 0.0,
        is_scattered: false,
    }
}

fn run(policy: impl FnOnce(&World) -> Box<dyn Policy>, shape: Shape, jobs: Vec<JobSpec>) -> World {
    let cluster = Cluster::new(shape, &Settings::default());
    let mut world = World::new(cluster, jobs, &Rng::new(1));
    let mut policy = policy(&world);
    let watch = |_: &Progress| Ok::<bool, Infallible>(true);
    match world.run(&mut *policy, watch) {
        Ok(()) => world,
    }
}

fn fair(_: &World) -> Box<dyn Policy> {
    Box::new(Fair)
}

fn mcs(_: &World) -> Box<dyn Policy> {
    Box::new(Mcs)
}

fn ccml(_: &World) -> Box<dyn Policy> {
    Box::new(Ccml)
}

fn turns(_: &World) -> Box<dyn Policy> {
    Box::new(Turns)
}

fn pacing(world: &World) -> Box<dyn Policy> {
    Box::new(Pacing::new(world, settings(), &Rng::new(2)))
}

#[test]
fn paths_climb_no_higher_than_they_must() {
    let shape = Shape { pods: 2, ..shape(2, 3) };
    let cluster = Cluster::new(shape, &Settings::default());
    assert_eq!(cluster.servers(), 12);
    assert_eq!(cluster.path(0, 1), [0, 13]);
    assert_eq!(cluster.path(0, 3), [0, 24, 24 + 4 + 1, 12 + 3]);
    assert_eq!(cluster.path(11, 0), [11, 24 + 3, 32 + 1, 32 + 2, 24 + 4, 12]);
    let of = |link: usize| cluster.capacity()[link] / SLOT_BYTES;
    assert_eq!((of(11), of(23), of(24), of(31), of(32), of(35)), (1, 1, 2, 2, 4, 4));
}

/// Ten slots of computing and eight of sending, or twice eight where a broadcast has to wait.
#[test]
fn a_job_alone_takes_what_arithmetic_says() {
    let servers = || vec![job(Kind::Servers, 4, 8, 10, 3)];
    // Three members send 2 · 2/3 of 6 slots.
    let ring = || vec![job(Kind::Ring, 3, 6, 10, 3)];
    let policies = [
        ("fair", fair as fn(&World) -> Box<dyn Policy>),
        ("ccml", ccml),
        ("mcs", mcs),
        ("turns", turns),
    ];
    for (name, policy) in policies {
        let sending = if name == "mcs" { 16.0 } else { 8.0 };
        assert_eq!(
            run(policy, shape(1, 6), servers()).completion_slots(),
            [3.0 * (10.0 + sending)],
            "{name}"
        );
        assert_eq!(run(policy, shape(1, 6), ring()).completion_slots(), [54.0], "{name}");
    }
    // Who decides before those it depends on learns of them a slot later.
    for jobs in [servers(), ring()] {
        let slots = run(pacing, shape(1, 6), jobs).completion_slots()[0];
        assert!((54.0..=3.0 * 20.0).contains(&slots), "{slots}");
    }
}

/// Two jobs on the same two servers, which compute as long as they send.
fn two_alike(iterations: u64) -> Vec<JobSpec> {
    vec![job(Kind::Ring, 2, 6, 6, iterations), job(Kind::Ring, 2, 6, 6, iterations)]
}

#[test]
fn fair_sharing_lets_equal_jobs_collide_for_ever() {
    let slots = run(fair, shape(1, 2), two_alike(10)).completion_slots();
    assert_eq!(slots, [180.0, 180.0], "6 of computing and 12 of sending");
}

// spec: C-14 simulator
#[test]
fn ccml_turns_equal_jobs_so_that_they_never_meet() {
    let slots = run(ccml, shape(1, 2), two_alike(10)).completion_slots();
    assert_eq!(slots, [120.0, 126.0], "the second begins six slots later");
}

// spec: C-16 simulator
#[test]
fn turns_move_equal_jobs_apart_and_serve_the_shorter_one_first() {
    let slots = run(turns, shape(1, 2), two_alike(10)).completion_slots();
    assert_eq!(slots, [120.0, 126.0], "the second is six slots behind from its first iteration on");
    let jobs = || vec![job(Kind::Ring, 2, 9, 1, 1), job(Kind::Ring, 2, 3, 1, 1)];
    assert_eq!(run(turns, shape(1, 2), jobs()).completion_slots(), [13.0, 4.0]);
}

#[test]
fn pacing_moves_equal_jobs_apart() {
    let slots = run(pacing, shape(1, 2), two_alike(10)).completion_slots();
    let mean = (slots[0] + slots[1]) / 2.0;
    assert!(mean < 150.0, "{slots:?}: between 120 of taking turns and 180 of colliding");
}

// spec: C-14 simulator
#[test]
fn mcs_serves_the_shorter_job_first() {
    let jobs = || vec![job(Kind::Ring, 2, 9, 1, 1), job(Kind::Ring, 2, 3, 1, 1)];
    assert_eq!(run(mcs, shape(1, 2), jobs()).completion_slots(), [13.0, 4.0]);
    assert_eq!(run(fair, shape(1, 2), jobs()).completion_slots(), [13.0, 7.0]);
}

/// Members in two racks: the racks' links, which nobody asked, are what counts.
#[test]
fn a_narrow_link_between_racks_is_shared() {
    let narrow = Shape { gbps: [10, 5, 5], ..shape(2, 1) };
    let jobs = || vec![job(Kind::Ring, 2, 4, 1, 1)];
    for policy in [fair as fn(&World) -> Box<dyn Policy>, ccml, mcs, turns] {
        assert_eq!(run(policy, narrow, jobs()).completion_slots(), [9.0]);
    }
    let slots = run(pacing, narrow, jobs()).completion_slots()[0];
    assert!((9.0..=11.0).contains(&slots), "{slots}");
}

/// The world checks links and dependencies in every slot.
#[test]
fn every_policy_ends_every_job_of_every_seed() {
    let trained = |model: &str, kind| Trained { model: model.to_owned(), kind };
    for seed in 0..6 {
        let mix = Mix {
            models: vec![trained("resnet50", Kind::Servers), trained("vgg16", Kind::Ring)],
            members: vec![2, 4, 5],
            batch: 16,
            flops_per_s: 5e12,
            scattered: 0.4,
        };
        let arrivals = Arrivals { jobs: 25, gap_slots: 3.0, iterations: (1, 4) };
        for policy in [fair as fn(&World) -> Box<dyn Policy>, ccml, mcs, turns, pacing] {
            let jobs = mix.draw(&arrivals, 0.06, &Rng::new(seed)).unwrap();
            let world = run(policy, shape(3, 5), jobs);
            assert_eq!(world.completion_slots().len(), 25);
        }
    }
}
