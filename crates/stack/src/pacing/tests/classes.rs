use super::*;

/// Pacing with classes of a job that sends one flow of `slots` slots.
fn classes(slots: u64) -> Pacing {
    let settings = Settings { enforce: Enforce::Class, ..settings() };
    let pacing = Pacing::new(NodeId(0), settings, Rate::from_gbps(GBPS), &Rng::new(1));
    let mut pacing = pacing.expect("settings");
    enter(&mut pacing, JOB, slots);
    pacing
}

fn enter(pacing: &mut Pacing, job: JobId, slots: u64) {
    let round = Bytes::new(slots * slot_bytes());
    let flow = PacedFlow {
        number: 0,
        to: NodeId(1),
        volume: round,
        relation: Relation::Alone,
        others: Vec::new(),
    };
    let paced = PacedJob { round, flows: vec![flow], segment_bytes: 1_460, overhead_bytes: 40 };
    pacing.enter(job, &paced);
}

/// Priority of a job's packets, and whether it is its turn.
fn class(pacing: &Pacing, now: Time, job: JobId) -> (u8, bool) {
    let class = pacing.class(now, job).expect("jobs have classes");
    (class.dscp().priority(), class.is_in_turn())
}

fn at_ms(ms: u64) -> Time {
    Time::ZERO + Span::from_ms(ms)
}

// spec: C-16 machine
#[test]
fn nothing_waits_and_what_exceeds_the_plan_is_behind_its_class() {
    let (mut pacing, mut sink) = (classes(3), DiscardOutbox::default());
    let start = at_ms(60);
    pacing.handed_over(start, JOB, 3 * slot_bytes());
    assert_eq!(class(&pacing, start, JOB), (4, true), "a newcomer, with less than four slots left");
    // Its first slot's worth, and then what the host plans.
    let packets = slot_bytes() / 1_500;
    for _ in 0..packets {
        assert!(sink.send_data(&mut pacing, start), "nothing waits");
    }
    assert_eq!(class(&pacing, start, JOB), (5, false));
    assert!(sink.send_data(&mut pacing, start), "not even then");
    pacing.handle_timeout(at_ms(67));
    assert_eq!(class(&pacing, at_ms(67), JOB), (5, false), "the slot has been used");
    pacing.handle_timeout(at_ms(120));
    pacing.handle_timeout(at_ms(127));
    assert_eq!(class(&pacing, at_ms(127), JOB), (4, true), "its plan for the next");
}
