use thalweg_core::JobId;

use super::*;
use crate::settings::Settings;

/// The only flow of a job.
fn flow(number: u32) -> FlowId {
    FlowId { job: JobId(number.into()), number }
}

fn link(capacity: u64, plans: &[(u32, [u64; 3])]) -> LinkTable {
    let settings = Settings { horizon_slots: 3, ..Settings::default() };
    let mut table = LinkTable::new(&settings, capacity);
    for (number, volumes) in plans {
        table.reserve(Slot(0), flow(*number), &Ahead::of(Slot(0), volumes)).unwrap();
    }
    table
}

// spec: C-04 machine
#[test]
fn loads_add_up_and_the_tightest_link_counts() {
    let links = [
        link(100, &[(1, [50, 0, 10]), (2, [20, 0, 0])]),
        link(40, &[(1, [40, 0, 0]), (3, [0, 15, 0])]),
    ];
    let of = |number| {
        let mut feedback = Feedback::new(Slot(0), 3);
        links.iter().for_each(|link| feedback.add(link, flow(number)));
        feedback
    };
    let stranger = of(9);
    assert_eq!(stranger.load.volumes(), [110, 15, 10]);
    assert_eq!(stranger.free.volumes(), [0, 25, 40]);
    assert_eq!(stranger.narrowest, 40);
    let own = of(1);
    assert_eq!(own.load.volumes(), [20, 15, 0], "its own plan is no load to itself");
    assert_eq!(own.free.volumes(), [40, 25, 40]);
}

// spec: C-04 machine
#[test]
fn a_job_does_not_keep_out_of_its_own_way() {
    let link = link(100, &[(1, [50, 0, 10]), (2, [20, 0, 0])]);
    let mut feedback = Feedback::new(Slot(0), 3);
    feedback.add(&link, FlowId { number: 7, ..flow(1) });
    assert_eq!(feedback.load.volumes(), [20, 0, 0], "slots are ordered by what other jobs plan");
    assert_eq!(feedback.free.volumes(), [30, 100, 90], "what is planned is not free for anybody");
}

#[test]
fn parts_of_a_path_join_slot_by_slot() {
    let part = |first, load: &[u64], free: &[u64], narrowest| Feedback {
        load: Ahead::of(Slot(first), load),
        free: Ahead::of(Slot(first), free),
        narrowest,
    };
    let joined = |other: Feedback| {
        let mut whole = part(5, &[1, 2], &[9, 8], 10);
        whole.join(&other);
        whole
    };
    assert_eq!(joined(part(5, &[10, 20], &[3, 20], 7)), part(5, &[11, 22], &[3, 8], 7));
    let early = joined(part(4, &[10, 20], &[3, 20], 7));
    assert_eq!(early, part(5, &[21, 2], &[9, 0], 7), "of the last slot it does not know");
}

// spec: C-02 machine
#[test]
fn feedback_is_of_one_slot() {
    let feedback = Feedback::new(Slot(5), 3);
    assert!(feedback.is_of(Slot(5)));
    assert!(!feedback.is_of(Slot(4)) && !feedback.is_of(Slot(6)), "earlier or later");
}

// spec: C-04 machine
#[test]
fn the_estimate_starts_at_the_capacity_and_follows_busy_slots() {
    let mut seen = Seen::new(1_000);
    assert_eq!(seen.usable(), 1_000);
    for _ in 0..3 {
        seen.observe(1_000, 600);
        assert_eq!(seen.usable(), 1_000, "one of the last four slots had it all");
    }
    seen.observe(1_000, 500);
    assert_eq!(seen.usable(), 600);
}

// spec: C-04 machine
#[test]
fn idle_slots_say_nothing() {
    let mut seen = Seen::new(1_000);
    for _ in 0..50 {
        seen.observe(0, 0);
        seen.observe(874, 10);
    }
    assert_eq!(seen.usable(), 1_000);
}

// spec: C-04 machine
#[test]
fn it_recovers_when_the_others_have_gone() {
    let mut seen = Seen::new(1_000);
    for _ in 0..4 {
        seen.observe(1_000, 100);
    }
    assert_eq!(
        slots_until_whole(&mut seen),
        13,
        "three until it asks for more, then a quarter more each"
    );
}

/// Number of slots until a link is used in full again, without other users.
fn slots_until_whole(seen: &mut Seen) -> u32 {
    let mut slots = 0;
    while seen.usable() < seen.capacity() {
        let planned = seen.usable();
        seen.observe(planned, planned);
        slots += 1;
        assert!(slots < 100, "stuck at {}", seen.usable());
    }
    slots
}

// spec: C-04 machine
#[test]
fn after_a_standstill_all_is_there_again_within_two_seconds() {
    let mut seen = Seen::new(1_000_000);
    (0..4).for_each(|_| seen.observe(1_000_000, 0));
    assert_eq!(seen.usable(), 1_000_000 / 32);
    assert!(slots_until_whole(&mut seen) <= 2_000 / 60);
}

#[test]
fn beside_steady_traffic_it_asks_for_more_in_one_slot_of_eight() {
    let mut seen = Seen::new(1_000);
    let mut asked_more = 0;
    for slot in 0..84 {
        let usable = seen.usable();
        asked_more += u32::from(slot >= 4 && usable > 700);
        seen.observe(usable, usable.min(700));
    }
    assert_eq!(asked_more, 10);
    assert_eq!(seen.usable(), 700);
}

// spec: C-13 machine
#[test]
fn what_was_lost_was_carried() {
    // A fifth of the packets got lost, and left again in the same slot: the link was full.
    let mut seen = Seen::new(1_000);
    for _ in 0..20 {
        seen.observe(1_000, 800 + 200);
    }
    assert_eq!(seen.usable(), 1_000);
}

// spec: C-04, C-12 machine
#[test]
fn a_link_that_is_whole_stays_so() {
    let mut seen = Seen::whole(1_000);
    (0..20).for_each(|_| seen.observe(1_000, 100));
    assert_eq!(seen.usable(), 1_000);
}

#[test]
fn recent_forgets_after_four_slots() {
    let mut recent = Recent::new(0);
    recent.push(9);
    for value in 1..=3 {
        recent.push(value);
        assert_eq!(recent.max(), 9);
    }
    recent.push(2);
    assert_eq!(recent.max(), 3);
}
