//! Clusters drawn from seeds: hosts that decide on one snapshot of the tables, jobs with servers and
//! rings. In every slot no table is over-reserved, no link carries more than it can, and no flow is
//! ahead of those it depends on; in the end everybody has finished.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod jobs;
mod world;

use thalweg_pace::{Covers, Enforce, Settings};
use world::World;

fn run_all(settings: Settings) {
    let (mut refusals, mut shared, mut slots) = (0, 0, 0);
    for seed in 0..300 {
        let mut world = World::draw(seed, settings);
        world.run();
        refusals += world.refusals;
        shared += world.shared_slots;
        slots += world.slots();
    }
    assert!(refusals > 100, "hosts got into each other's way only {refusals} times");
    assert!(shared > 100, "links were shared in {shared} of {slots} slots");
}

// spec: C-05, C-06, C-15 machine
#[test]
fn tables_and_dependencies_hold_in_every_slot_of_every_seed() {
    run_all(Settings::default());
}

// spec: C-05, C-06, C-15, C-17 machine
#[test]
fn nobody_plans_what_is_not_ready_in_any_slot_of_any_seed() {
    let ready = Settings { covers: Covers::Ready, reclaims_unused: true, ..Settings::default() };
    run_all(ready);
}

// spec: C-16 machine
#[test]
fn tables_and_dependencies_hold_where_plans_are_budgets() {
    let enforce = Enforce::Class;
    let classes =
        Settings { enforce, covers: Covers::Ready, reclaims_unused: true, ..Settings::default() };
    run_all(classes);
}
