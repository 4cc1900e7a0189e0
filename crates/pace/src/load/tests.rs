use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const CAPACITY: u64 = 100;

fn flow(number: u32) -> FlowId {
    FlowId { job: JobId(1), number }
}

fn table() -> LinkTable {
    LinkTable::new(&Settings { horizon_slots: 4, ..Settings::default() }, CAPACITY)
}

// spec: C-01 machine
#[test]
fn a_flow_has_one_entry_which_is_replaced() {
    let mut table = table();
    table.reserve(Slot(0), flow(1), &Ahead::of(Slot(0), &[60, 10, 0, 0])).unwrap();
    table.reserve(Slot(0), flow(2), &Ahead::of(Slot(0), &[40, 0, 0, 5])).unwrap();
    assert_eq!(table.planned().volumes(), [100, 10, 0, 5]);
    table.reserve(Slot(0), flow(1), &Ahead::of(Slot(0), &[0, 90, 0, 0])).unwrap();
    assert_eq!(table.planned().volumes(), [40, 90, 0, 5]);
    assert_eq!(table.flows(), 2);
    table.release(flow(2));
    assert_eq!((table.planned().volumes(), table.flows()), (&[0, 90, 0, 0][..], 1));
}

// spec: C-01 machine
#[test]
fn what_nobody_renews_is_gone() {
    let mut table = table();
    table.reserve(Slot(0), flow(1), &Ahead::of(Slot(0), &[10, 10, 10, 10])).unwrap();
    table.reserve(Slot(1), flow(2), &Ahead::of(Slot(1), &[0, 0, 20, 0])).unwrap();
    table.advance(Slot(2));
    assert_eq!(table.planned().volumes(), [10, 30, 0, 0]);
    table.advance(Slot(3));
    assert_eq!(table.planned().volumes(), [20, 0, 0, 0], "the last report of flow 1 was in slot 0");
    table.advance(Slot(4));
    assert_eq!((table.planned().total(), table.flows()), (0, 0));
}

// spec: C-15 machine
#[test]
fn a_refusal_names_the_slot_and_changes_nothing() {
    let mut table = table();
    table.reserve(Slot(0), flow(1), &Ahead::of(Slot(0), &[30, 70, 0, 0])).unwrap();
    table.reserve(Slot(0), flow(2), &Ahead::of(Slot(0), &[20, 20, 0, 0])).unwrap();
    let refused = table.reserve(Slot(0), flow(2), &Ahead::of(Slot(0), &[0, 31, 0, 0]));
    assert_eq!(refused, Err(Refusal { slot: Slot(1), asked: 31, free: 30 }));
    assert_eq!(table.planned().volumes(), [50, 90, 0, 0]);
    assert_eq!(table.reserved(flow(2)), Some(&Ahead::of(Slot(0), &[20, 20, 0, 0])));
}

#[test]
fn less_than_before_is_taken_even_from_a_link_that_got_slower() {
    let mut table = table();
    table.reserve(Slot(0), flow(1), &Ahead::of(Slot(0), &[100; 4])).unwrap();
    for _ in 0..4 {
        table.observe(100, 50);
    }
    assert_eq!(table.usable(), 50);
    table.reserve(Slot(0), flow(1), &Ahead::of(Slot(0), &[90; 4])).unwrap();
    assert!(table.reserve(Slot(0), flow(1), &Ahead::of(Slot(0), &[91; 4])).is_err());
}

#[test]
fn plans_of_other_slots_are_cut_to_the_table() {
    let mut table = table();
    table.advance(Slot(10));
    table.reserve(Slot(10), flow(1), &Ahead::of(Slot(8), &[1, 2, 3, 4])).unwrap();
    assert_eq!(table.planned().volumes(), [3, 4, 0, 0]);
    table.reserve(Slot(10), flow(1), &Ahead::of(Slot(12), &[1, 2, 3, 4])).unwrap();
    assert_eq!(table.planned().volumes(), [0, 0, 1, 2]);
    table.reserve(Slot(10), flow(1), &Ahead::of(Slot(u64::MAX), &[9, 9])).unwrap();
    assert_eq!(table.flows(), 0);
}

fn ranked(job: u64, rank: u8) -> Ranked {
    Ranked { flow: FlowId { job: JobId(job), number: 0 }, rank: Rank(rank) }
}

// spec: C-15 machine
#[test]
fn who_has_less_left_takes_what_is_not_firm() {
    let mut table = table();
    let (large, small, larger) = (ranked(1, 50), ranked(2, 10), ranked(3, 90));
    table.reserve(Slot(0), large, &Ahead::of(Slot(0), &[100; 4])).unwrap();
    let others = |table: &LinkTable, who| table.reserved_beside(who).others.volumes().to_vec();
    assert_eq!(others(&table, small), [100, 100, 0, 0]);
    assert_eq!(others(&table, larger), [100; 4]);
    assert!(table.reserve(Slot(0), small, &Ahead::of(Slot(0), &[0, 1, 0, 0])).is_err());
    table.reserve(Slot(0), small, &Ahead::of(Slot(0), &[0, 0, 60, 0])).unwrap();
    assert_eq!(table.reserved(large.flow), Some(&Ahead::of(Slot(0), &[100, 100, 40, 100])));
    assert_eq!(table.planned().volumes(), [100; 4]);
    let refused = table.reserve(Slot(0), larger, &Ahead::of(Slot(0), &[0, 0, 0, 1]));
    assert_eq!(refused, Err(Refusal { slot: Slot(3), asked: 1, free: 0 }));
}

#[test]
fn a_job_does_not_take_from_itself() {
    let mut table = table();
    let member = |number, rank| Ranked { flow: flow(number), rank: Rank(rank) };
    table.reserve(Slot(0), member(1, 50), &Ahead::of(Slot(0), &[0, 0, 90, 0])).unwrap();
    let refused = table.reserve(Slot(0), member(2, 10), &Ahead::of(Slot(0), &[0, 0, 20, 0]));
    assert_eq!(refused, Err(Refusal { slot: Slot(2), asked: 20, free: 10 }));
    // Others make room, though they come behind its own flow.
    let other = ranked(2, 50);
    table.reserve(Slot(0), other, &Ahead::of(Slot(0), &[0, 0, 10, 0])).unwrap();
    table.reserve(Slot(0), member(2, 10), &Ahead::of(Slot(0), &[0, 0, 10, 0])).unwrap();
    assert_eq!(table.reserved(flow(1)), Some(&Ahead::of(Slot(0), &[0, 0, 90, 0])));
    assert_eq!(table.reserved(other.flow).map(Ahead::total), Some(0));
}

/// Reservations of each flow.
fn entries(table: &LinkTable) -> impl Iterator<Item = (FlowId, Ahead)> {
    table.flows.iter().map(|(id, entry)| (*id, entry.plan))
}

proptest! {
    // spec: C-01, C-15 machine
    #[test]
    fn only_those_of_higher_ranks_lose_anything_and_only_later(
        steps in proptest::collection::vec((0..5u64, 0..4u8, 0..2u64, proptest::collection::vec(0..70u64, 4)), 1..60)
    ) {
        let mut table = table();
        let mut ranks: BTreeMap<FlowId, Rank> = BTreeMap::new();
        let mut now = 0;
        for (job, rank, pass, volumes) in steps {
            now += pass;
            table.advance(Slot(now));
            let who = ranked(job, rank);
            let before: Vec<(FlowId, Ahead)> =
                entries(&table).filter(|(id, _)| *id != who.flow).collect();
            let taken = table.reserve(Slot(now), who, &Ahead::of(Slot(now), &volumes)).is_ok();
            for (id, had) in before {
                let has = table.reserved(id).copied().unwrap_or_else(|| table.nothing());
                let kept = if taken && ranks[&id] > who.rank { FIRM_SLOTS } else { 4 };
                prop_assert_eq!(&has.volumes()[..kept], &had.volumes()[..kept]);
            }
            if taken {
                ranks.insert(who.flow, who.rank);
                prop_assert_eq!(table.reserved(who.flow).map_or(0, Ahead::total), volumes.iter().sum());
            }
            let mut sum = table.nothing();
            entries(&table).for_each(|(_, plan)| sum.add(&plan));
            prop_assert_eq!(&sum, table.planned());
            prop_assert!(sum.volumes().iter().all(|planned| *planned <= CAPACITY));
        }
    }

    /// Beside a model that keeps every slot of every flow.
    // spec: C-01, C-15 machine
    #[test]
    fn sums_are_those_of_the_entries_and_never_exceed_the_link(
        steps in proptest::collection::vec((0..5u32, 0..3u64, proptest::collection::vec(0..70u64, 4)), 1..60)
    ) {
        let mut table = table();
        let mut model: BTreeMap<FlowId, (u64, BTreeMap<u64, u64>)> = BTreeMap::new();
        let mut now = 0;
        for (number, pass, volumes) in steps {
            now += pass;
            model.retain(|_, (renewed, _)| now - *renewed < 3);
            let plan = Ahead::of(Slot(now), &volumes);
            if table.reserve(Slot(now), flow(number), &plan).is_ok() {
                let slots = (now..).zip(volumes).collect();
                model.insert(flow(number), (now, slots));
            }
            for (at, planned) in (now..).zip(table.planned().volumes()) {
                let of_flow = |(_, slots): &(u64, BTreeMap<u64, u64>)| slots.get(&at).copied();
                let sum: u64 = model.values().filter_map(of_flow).sum();
                prop_assert_eq!(*planned, sum);
                prop_assert!(sum <= CAPACITY);
            }
        }
    }
}

// spec: T-12 machine
#[test]
#[should_panic(expected = "what is planned is the sum of all entries")]
fn a_reservation_that_is_counted_and_not_kept_is_noticed() {
    let mut table = table();
    table.reserve(Slot(0), flow(1), &Ahead::of(Slot(0), &[60, 10, 0, 0])).unwrap();
    table.check();
    table.flows.remove(&flow(1));
    table.check();
}

// spec: C-16 machine
#[test]
fn equals_have_an_order_where_jobs_have_classes() {
    for (enforce, is_taken) in [(Enforce::Rate, false), (Enforce::Class, true)] {
        let settings = Settings { enforce, ..Settings::default() };
        let mut table = LinkTable::new(&settings, 100);
        let of_job = |job| Ranked {
            flow: FlowId { job: JobId(job), number: 0 },
            rank: Rank::of_left(1_000),
        };
        let plan = Ahead::of(Slot(0), &[0, 0, 100]);
        assert_eq!(table.reserve(Slot(0), of_job(2), &plan), Ok(()));
        assert_eq!(table.reserve(Slot(0), of_job(1), &plan).is_ok(), is_taken, "{enforce:?}");
        assert!(table.reserve(Slot(0), of_job(3), &plan).is_err(), "{enforce:?}");
        table.check();
        let left = table.reserved(of_job(2).flow).map_or(0, Ahead::total);
        assert_eq!(left, if is_taken { 0 } else { 100 }, "{enforce:?}");
    }
}
