use super::*;
use crate::adjust::Relation;
use crate::ahead::{Ahead, Slot};

const HERE: NodeId = NodeId(1);
const JOB: JobId = JobId(7);
/// A link of 1 Gbps carries this in a slot.
const SLOT_BYTES: u64 = 7_500_000;

fn id(number: u32) -> FlowId {
    FlowId { job: JOB, number }
}

fn spec(number: u32, to: u32, slots: u64) -> FlowSpec {
    FlowSpec {
        id: id(number),
        to: NodeId(to),
        volume: Bytes::new(slots * SLOT_BYTES),
        relation: Relation::Alone,
        others: Vec::new(),
    }
}

/// Without a spare part, so that volumes are round.
fn host(flows: &[FlowSpec]) -> Host {
    let settings = Settings { spare_per_mille: 0, ..Settings::default() };
    let mut host = Host::new(HERE, settings, Rate::from_gbps(1), &Rng::new(3)).unwrap();
    host.add_job(JOB);
    for flow in flows {
        host.add_flow(flow.clone()).unwrap();
    }
    host.begin_iteration(JOB).unwrap();
    host
}

fn at_ms(ms: u64) -> Time {
    Time::ZERO + Span::from_ms(ms)
}

/// Makes everything ready and lets the host decide in the slot that begins at `now`.
fn decide(host: &mut Host, now: Time) -> Vec<Event> {
    let flows: Vec<FlowId> = host.flows.keys().copied().collect();
    for flow in flows {
        host.ready(now, flow, Bytes::new(u64::MAX)).unwrap();
    }
    next_decision(host, now)
}

fn next_decision(host: &mut Host, now: Time) -> Vec<Event> {
    host.handle_timeout(now);
    let decided = now + Settings::default().decide_after + Settings::default().decide_spread;
    host.handle_timeout(decided);
    std::iter::from_fn(|| host.poll_event()).collect()
}

/// Plan for flow 1 in the second slot.
fn published(host: &mut Host) -> (Ahead, bool) {
    let events = decide(host, at_ms(60));
    plan_of(host, &events, 1).unwrap()
}

/// Plan of a flow, and true if it was made without the network, if events publish it.
fn plan_of(host: &Host, events: &[Event], number: u32) -> Option<(Ahead, bool)> {
    events.iter().rev().find_map(|event| match event {
        Event::Publish { flow, is_blind } if *flow == id(number) => {
            Some((*host.plan(*flow)?, *is_blind))
        }
        _ => None,
    })
}

fn rate_of(events: &[Event], number: u32) -> Option<Rate> {
    events.iter().rev().find_map(|event| match event {
        Event::Grant { flow, rate, .. } if *flow == id(number) => Some(*rate),
        _ => None,
    })?
}

// spec: C-08 machine
#[test]
fn a_job_is_followed_through_its_iterations() {
    let mut host = host(&[spec(1, 2, 1), spec(2, 3, 2)]);
    let status = |host: &Host| {
        let sum = |of: fn(&Flow) -> u64| host.flows_of(JOB).map(of).sum::<u64>() * 4 / SLOT_BYTES;
        let (ready, sent) = (sum(|flow| flow.ready), sum(|flow| flow.sent));
        (host.jobs[&JOB].iteration, ready, sent, sum(Flow::remaining))
    };
    assert_eq!(status(&host), (1, 0, 0, 12));
    host.ready(at_ms(0), id(2), Bytes::new(SLOT_BYTES)).unwrap();
    host.sent(id(2), Bytes::new(SLOT_BYTES / 2)).unwrap();
    assert_eq!(status(&host), (1, 4, 2, 10));
    host.begin_iteration(JOB).unwrap();
    assert_eq!(status(&host), (2, 0, 0, 12));
    host.remove_job(JOB);
    assert_eq!(host.sent(id(2), Bytes::new(1)), Err(HostError::NoFlow(id(2))));
}

// spec: C-15 machine
#[test]
fn flows_inside_the_server_are_left_alone() {
    let mut host = host(&[]);
    assert_eq!(host.add_flow(spec(1, HERE.0, 1)), Ok(false));
    assert_eq!(host.add_flow(spec(2, 2, 1)), Ok(true));
    let elsewhere = FlowSpec { id: FlowId { job: JobId(9), number: 1 }, ..spec(1, 2, 1) };
    assert_eq!(host.add_flow(elsewhere), Err(HostError::NoJob(JobId(9))));
}

// spec: C-15 machine
#[test]
fn a_slot_begins_with_a_few_packets_and_hosts_decide_at_different_moments() {
    let settings = Settings::default();
    let mut moments = Vec::new();
    for node in 0..20 {
        let mut host = Host::new(NodeId(node), settings, Rate::from_gbps(1), &Rng::new(3)).unwrap();
        host.add_job(JOB);
        host.add_flow(spec(1, 99, 5)).unwrap();
        host.begin_iteration(JOB).unwrap();
        host.ready(at_ms(0), id(1), Bytes::new(1)).unwrap();
        let probe = Event::Probe { flow: id(1), packets: settings.probe_packets };
        assert_eq!(host.poll_event(), Some(probe));
        moments.push(host.poll_timeout());
    }
    let last = settings.decide_after + settings.decide_spread;
    assert!(moments.iter().all(|at| (settings.decide_after..last).contains(&at.since(Time::ZERO))));
    moments.sort_unstable();
    moments.dedup();
    assert_eq!(moments.len(), 20);
}

/// Another job's flow with the same number.
fn of_other_job(spec: FlowSpec) -> FlowSpec {
    FlowSpec { id: FlowId { job: JobId(8), ..spec.id }, ..spec }
}

#[test]
fn flows_of_one_job_share_what_the_job_gets() {
    let mut host = host(&[spec(1, 2, 3), spec(2, 3, 3), spec(3, 4, 3)]);
    for slot in 1..4 {
        let events = if slot == 1 {
            decide(&mut host, at_ms(60))
        } else {
            next_decision(&mut host, at_ms(60 * slot))
        };
        let plans = [1, 2, 3].map(|number| plan_of(&host, &events, number).unwrap().0);
        for plan in plans {
            assert_eq!(plan.volumes()[1..4], [SLOT_BYTES / 3; 3], "slot {slot}");
        }
    }
}

// spec: C-11 machine
#[test]
fn without_a_word_from_the_network_the_own_link_decides() {
    let mut host = host(&[spec(1, 2, 2)]);
    host.add_job(JobId(8));
    host.add_flow(of_other_job(spec(1, 3, 2))).unwrap();
    host.begin_iteration(JobId(8)).unwrap();
    let events = decide(&mut host, at_ms(60));
    assert_eq!(plan_of(&host, &events, 1).map(|(_, is_blind)| is_blind), Some(true));
    let plans = [JOB, JobId(8)].map(|job| *host.plan(FlowId { job, number: 1 }).unwrap());
    // The first flow takes what is left of the slot, the second leaves that to it.
    let slots = |at: usize| plans.map(|plan| plan.volumes()[at]);
    assert_eq!(slots(1), [SLOT_BYTES, 0]);
    assert_eq!(slots(0), [SLOT_BYTES * 9 / 10, 0]);
    // Where the first needs only a moment more, the second can have the rest.
    assert_eq!(slots(2), [SLOT_BYTES / 10, SLOT_BYTES * 9 / 10]);
    assert_eq!((slots(3), slots(4)), ([0, SLOT_BYTES], [0, SLOT_BYTES / 10]));
    assert!(host.uplink().planned().volumes().iter().all(|planned| *planned <= SLOT_BYTES));
}

#[test]
fn the_network_limits_and_orders_slots() {
    let mut host = host(&[spec(1, 2, 2)]);
    let mut feedback = Feedback::new(Slot(1), 10);
    feedback.narrowest = SLOT_BYTES;
    feedback.free = Ahead::filled(Slot(1), 10, SLOT_BYTES);
    feedback.load.volumes_mut()[0] = SLOT_BYTES / 2;
    feedback.free.volumes_mut()[0] = SLOT_BYTES / 2;
    host.handle_feedback(id(1), &feedback).unwrap();
    let (plan, is_blind) = published(&mut host);
    assert!(!is_blind);
    assert_eq!(plan.volumes()[..4], [0, SLOT_BYTES, SLOT_BYTES, 0]);
}

// spec: C-02 machine
#[test]
fn what_a_flow_had_planned_makes_no_room_in_the_network() {
    let mut host = host(&[spec(1, 2, 9)]);
    decide(&mut host, at_ms(60));
    host.handle_timeout(at_ms(120));
    // Tables have left the flow's own plan out already.
    let mut network = Feedback::new(Slot(2), 10);
    network.narrowest = SLOT_BYTES;
    network.free = Ahead::filled(Slot(2), 10, SLOT_BYTES / 2);
    host.handle_feedback(id(1), &network).unwrap();
    next_decision(&mut host, at_ms(120));
    assert_eq!(host.plan(id(1)).unwrap().volumes()[1..], [SLOT_BYTES / 2; 9]);
}

// spec: C-01 machine
#[test]
fn a_plan_that_is_not_renewed_is_forgotten() {
    let mut host = host(&[spec(1, 2, 9)]);
    decide(&mut host, at_ms(60));
    // Nothing of the next iteration is ready, so nobody decides.
    host.begin_iteration(JOB).unwrap();
    let stale = Slot(1).after(host.settings().stale_after_slots);
    host.handle_timeout(host.settings().start_of(Slot(stale.0 - 1)));
    assert!(host.uplink().planned().total() > 0);
    host.handle_timeout(host.settings().start_of(stale));
    assert_eq!(host.uplink().planned(), &Ahead::empty(stale, 10));
}

// spec: C-15 machine
#[test]
fn after_a_refusal_it_plans_with_what_the_table_has() {
    let mut host = host(&[spec(1, 2, 1)]);
    let mut feedback = Feedback::new(Slot(1), 10);
    feedback.narrowest = SLOT_BYTES;
    feedback.free = Ahead::filled(Slot(1), 10, SLOT_BYTES);
    feedback.free.volumes_mut()[0] = 0;
    host.handle_feedback(id(1), &feedback).unwrap();
    let (plan, _) = published(&mut host);
    assert_eq!(plan.volumes()[..3], [0, SLOT_BYTES, 0]);
    let refusal = Refusal { slot: Slot(2), asked: SLOT_BYTES, free: 1_000 };
    host.handle_refusal(at_ms(66), id(1), refusal).unwrap();
    let events: Vec<Event> = std::iter::from_fn(|| host.poll_event()).collect();
    let (plan, _) = plan_of(&host, &events, 1).unwrap();
    assert_eq!(plan.volumes()[..3], [0, 1_000, SLOT_BYTES - 1_000]);
}

// spec: C-13 machine
#[test]
fn losses_lower_no_rate() {
    let mut host = host(&[spec(1, 2, 1_000)]);
    let first = decide(&mut host, at_ms(60));
    assert_eq!(rate_of(&first, 1), Some(Rate::from_gbps(1)));
    for slot in 2..50 {
        // All that leaves had left before.
        host.resent(id(1), Bytes::new(SLOT_BYTES)).unwrap();
        let events = next_decision(&mut host, at_ms(60 * slot));
        assert_eq!(rate_of(&events, 1), Some(Rate::from_gbps(1)), "slot {slot}");
        assert_eq!(plan_of(&host, &events, 1).unwrap().0.volumes()[1], SLOT_BYTES);
    }
    assert!(host.flows_of(JOB).all(|flow| flow.sent == 0));
}

/// Bytes that a flow may still send in the slot, by its latest grant.
fn granted(events: &[Event], number: u32) -> u64 {
    let granted = events.iter().rev().find_map(|event| match event {
        Event::Grant { flow, volume, .. } if *flow == id(number) => Some(volume.as_u64()),
        _ => None,
    });
    granted.expect("something was granted")
}

fn events_of(host: &mut Host) -> Vec<Event> {
    std::iter::from_fn(|| host.poll_event()).collect()
}

fn broadcast(number: u32, to: u32, slots: u64) -> FlowSpec {
    FlowSpec {
        relation: Relation::Broadcast,
        others: vec![id(8), id(9)],
        ..spec(number, to, slots)
    }
}

// spec: C-13 machine
#[test]
fn what_leaves_again_takes_nothing_from_what_a_slot_has() {
    let tenth = SLOT_BYTES / 10;
    let mut host = host(&[broadcast(1, 2, 50)]);
    for number in [8, 9] {
        let progress = Progress { flow: id(number), iteration: 1, volume: 3 * tenth };
        host.handle_progress(at_ms(59), progress);
    }
    let events = decide(&mut host, at_ms(60));
    assert_eq!(granted(&events, 1), 3 * tenth);
    host.sent(id(1), Bytes::new(tenth)).unwrap();
    host.resent(id(1), Bytes::new(tenth)).unwrap();
    let events = events_of(&mut host);
    assert_eq!(granted(&events, 1), 2 * tenth, "bytes of what is aggregated that have not left");
    let progress = host.progress_of(id(1)).unwrap().volume;
    assert_eq!(progress, 3 * tenth, "as far as others know");
    // The link is full.
    host.resent(id(1), Bytes::new(9 * tenth)).unwrap();
    let events = events_of(&mut host);
    assert_eq!(granted(&events, 1), 0);
}

// spec: C-06, C-08 machine
#[test]
fn what_is_owed_from_the_iteration_before_depends_on_nobody() {
    let tenth = SLOT_BYTES / 10;
    let mut host = host(&[broadcast(1, 2, 1)]);
    decide(&mut host, at_ms(60));
    assert_eq!(host.left(id(1)), Some(Bytes::new(SLOT_BYTES)));
    host.begin_iteration(JOB).unwrap();
    host.ready(at_ms(90), id(1), Bytes::new(SLOT_BYTES)).unwrap();
    host.owe(id(1), Bytes::new(4 * tenth)).unwrap();
    let events = next_decision(&mut host, at_ms(120));
    assert_eq!(granted(&events, 1), 4 * tenth, "nobody has sent anything of the next iteration");
    let progress = |host: &Host| host.progress_of(id(1)).unwrap().volume;
    assert_eq!(progress(&host), 0, "which is the one that others know");
    for number in [8, 9] {
        let progress = Progress { flow: id(number), iteration: 2, volume: tenth };
        host.handle_progress(at_ms(150), progress);
    }
    host.sent(id(1), Bytes::new(3 * tenth)).unwrap();
    let events = next_decision(&mut host, at_ms(180));
    assert_eq!((granted(&events, 1), progress(&host)), (2 * tenth, tenth));
    // Nothing is there any more, though less was counted.
    host.rest(id(1), true).unwrap();
    let events = next_decision(&mut host, at_ms(240));
    assert_eq!((granted(&events, 1), progress(&host)), (tenth, tenth));
    host.begin_iteration(JOB).unwrap();
    assert_eq!(host.left(id(1)), Some(Bytes::new(SLOT_BYTES)), "it is owed once");
}

// spec: C-05, C-06 machine
#[test]
fn a_broadcast_follows_what_it_depends_on() {
    let mut host = host(&[broadcast(1, 2, 50)]);
    let tell = |host: &mut Host, now, number, slots: u64| {
        let volume = slots * SLOT_BYTES / 10;
        host.handle_progress(now, Progress { flow: id(number), iteration: 1, volume });
    };
    let now_of = |host: &Host, events: &[Event]| {
        plan_of(host, events, 1).unwrap().0.volumes()[0] * 10 / SLOT_BYTES
    };
    let events = decide(&mut host, at_ms(60));
    assert_eq!(now_of(&host, &events), 0, "nothing is aggregated yet");
    tell(&mut host, at_ms(119), 8, 4);
    tell(&mut host, at_ms(119), 9, 3);
    let events = next_decision(&mut host, at_ms(120));
    assert_eq!(now_of(&host, &events), 3, "the slower of the two aggregations");
    host.sent(id(1), Bytes::new(SLOT_BYTES * 3 / 10)).unwrap();
    for slots in 2..=4 {
        (8..=9).for_each(|other| tell(&mut host, at_ms(60 + 60 * slots), other, 3 * slots));
        let events = next_decision(&mut host, at_ms(60 + 60 * slots));
        assert_eq!(now_of(&host, &events), 3);
        host.sent(id(1), Bytes::new(SLOT_BYTES * 3 / 10)).unwrap();
    }
    // Slots that it wants nothing of say nothing about it.
    for start in [360, 420, 480, 540, 600] {
        let events = next_decision(&mut host, at_ms(start));
        assert_eq!(now_of(&host, &events), 0);
    }
    (8..=9).for_each(|other| tell(&mut host, at_ms(610), other, 18));
    let events = events_of(&mut host);
    assert_eq!(now_of(&host, &events), 3, "raised at once, to its own largest slot of late");
    let progress = Progress { flow: id(1), iteration: 1, volume: SLOT_BYTES * 15 / 10 };
    assert!(events.contains(&Event::Tell { to: NodeId(2), progress }));
    let old = Progress { flow: id(9), iteration: 0, volume: 0 };
    host.handle_progress(at_ms(610), old);
    assert_eq!(host.poll_event(), None, "that was another iteration");
}

// spec: C-05 machine
#[test]
fn a_flow_that_has_just_begun_is_raised_as_far_as_links_have_room() {
    let mut host = host(&[broadcast(1, 2, 50)]);
    let events = decide(&mut host, at_ms(60));
    assert_eq!(granted(&events, 1), 0, "nothing is aggregated yet");
    for number in [8, 9] {
        let progress = Progress { flow: id(number), iteration: 1, volume: SLOT_BYTES / 2 };
        host.handle_progress(at_ms(70), progress);
    }
    let events = events_of(&mut host);
    assert_eq!(granted(&events, 1), SLOT_BYTES / 2);
    let progress = Progress { flow: id(9), iteration: 1, volume: 3 * SLOT_BYTES };
    host.handle_progress(at_ms(72), Progress { flow: id(8), ..progress });
    host.handle_progress(at_ms(72), progress);
    let events = events_of(&mut host);
    assert_eq!(granted(&events, 1), SLOT_BYTES * 48 / 60, "what is left of the slot");
}

#[test]
fn a_flow_that_has_sent_everything_leaves_its_room_to_others() {
    let mut host = host(&[spec(1, 2, 2)]);
    decide(&mut host, at_ms(60));
    assert!(host.poll_timeout() <= at_ms(120));
    host.sent(id(1), Bytes::new(SLOT_BYTES * 9 / 10)).unwrap();
    next_decision(&mut host, at_ms(120));
    host.sent(id(1), Bytes::new(SLOT_BYTES * 11 / 10)).unwrap();
    let events: Vec<Event> = std::iter::from_fn(|| host.poll_event()).collect();
    let (plan, _) = plan_of(&host, &events, 1).unwrap();
    assert_eq!(
        (plan.first(), plan.total()),
        (Slot(2), plan.volumes()[0]),
        "what it used stays used"
    );
    assert!(plan.volumes()[0] > 0);
    assert_eq!(host.poll_timeout(), Time::NEVER);
}

#[test]
fn the_job_that_is_furthest_goes_first_and_others_make_way() {
    let other = |number| FlowId { job: JobId(8), number };
    let mut host = host(&[spec(1, 2, 4)]);
    host.add_job(JobId(8));
    host.add_flow(FlowSpec { id: other(1), others: vec![other(2)], ..spec(1, 2, 4) }).unwrap();
    host.begin_iteration(JobId(8)).unwrap();
    decide(&mut host, at_ms(60));
    let first = |host: &Host, flow: FlowId| host.plan(flow).unwrap().at(Slot(2));
    assert_eq!((first(&host, id(1)), first(&host, other(1))), (SLOT_BYTES, 0), "equals: by name");
    // Elsewhere the other job is ahead.
    let progress = Progress { flow: other(2), iteration: 1, volume: 2 * SLOT_BYTES };
    host.handle_progress(at_ms(100), progress);
    let mut network = Feedback::new(Slot(2), 10);
    // The switch still has what the first job planned.
    network.load.volumes_mut().copy_from_slice(&[SLOT_BYTES; 10]);
    network.free.volumes_mut().fill(0);
    network.narrowest = SLOT_BYTES;
    host.handle_timeout(at_ms(120));
    host.handle_feedback(other(1), &network).unwrap();
    let events = next_decision(&mut host, at_ms(120));
    assert!(first(&host, other(1)) >= SLOT_BYTES * 9 / 10, "{:?}", host.plan(other(1)));
    let published = |flow| {
        let is = |event: &Event| matches!(event, Event::Publish { flow: own, .. } if *own == flow);
        events.iter().rposition(is)
    };
    assert!(published(id(1)) < published(other(1)), "who gets less says so first: {events:?}");
}

/// One thing that can happen to a flow within a slot.
fn happen(host: &mut Host, now: Time, flow: FlowId, rng: &mut Rng) -> Result<(), HostError> {
    let bytes = Bytes::new(rng.below(SLOT_BYTES));
    let slot = host.settings().slot_at(now);
    let iteration = host.jobs.get(&flow.job).map_or(0, |job| job.iteration);
    match rng.below(10) {
        0 => host.ready(now, flow, bytes * 4),
        1 => host.resent(flow, bytes),
        2 => host.begin_flow(flow),
        3 => host.begin_iteration(flow.job),
        4 => host.owe(flow, bytes),
        5 => host.set_volume(flow, bytes * 8),
        6 => {
            let (slot, free) = (slot.after(rng.below(5)), rng.below(SLOT_BYTES));
            host.handle_refusal(now, flow, Refusal { slot, asked: 1, free })
        }
        7 => {
            let volume = rng.below(4 * SLOT_BYTES);
            host.handle_progress(now, Progress { flow: id(100), iteration, volume });
            Ok(())
        }
        8 => {
            host.remove_flow(flow);
            host.add_flow(related(flow.number, rng)).map(|_| ())
        }
        _ => {
            let planned = host.plan(flow).map_or(0, |plan| plan.at(slot));
            host.sent(flow, Bytes::new(planned.min(bytes.as_u64())))
        }
    }
}

/// A flow that depends on another, or does not.
fn related(number: u32, rng: &mut Rng) -> FlowSpec {
    let relations = [Relation::Alone, Relation::Aggregation, Relation::Broadcast];
    FlowSpec {
        relation: relations[number as usize % 3],
        others: vec![id(100)],
        ..spec(number, 2 + number % 2, 1 + rng.below(6))
    }
}

// spec: C-15 machine
#[test]
fn the_own_link_has_what_its_flows_plan() {
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let flows: Vec<FlowSpec> = (1..=6).map(|number| related(number, &mut rng)).collect();
        let mut host = host(&flows);
        for slot in 1..40 {
            let begin = at_ms(60 * slot);
            host.handle_timeout(begin);
            for step in 0..30 {
                if step == 10 {
                    answer_some(&mut host, begin, &mut rng);
                    next_decision(&mut host, begin);
                }
                let (flow, now) = (id(1 + rng.below(6) as u32), begin + Span::from_ms(step));
                happen(&mut host, now, flow, &mut rng).unwrap();
                let planned = host.uplink().planned();
                let of_flows = planned_by_all(&host);
                // What a flow has used that is gone now stays used until the slot ends.
                assert_eq!(planned.volumes()[1..], of_flows.volumes()[1..], "{seed}, {slot}");
                assert!(planned.volumes()[0] >= of_flows.volumes()[0], "{seed}, {slot}");
            }
        }
    }
}

/// The network has something to say to some flows.
fn answer_some(host: &mut Host, now: Time, rng: &mut Rng) {
    let slot = host.settings().slot_at(now);
    for number in 1..=6 {
        let mut feedback = Feedback::new(slot, host.settings().horizon_slots);
        feedback.free.volumes_mut().iter_mut().for_each(|free| *free = rng.below(SLOT_BYTES));
        if rng.below(3) > 0 {
            host.handle_feedback(id(number), &feedback).unwrap();
        }
    }
}

fn planned_by_all(host: &Host) -> Ahead {
    let mut sum = host.decider.nothing();
    host.flows.values().for_each(|flow| sum.add(&flow.plan));
    sum
}

// spec: C-15 machine
#[test]
fn a_refusal_that_changes_nothing_is_not_answered() {
    let mut host = host(&[spec(1, 2, 3)]);
    decide(&mut host, at_ms(60));
    host.sent(id(1), Bytes::new(SLOT_BYTES / 2)).unwrap();
    let refusal = Refusal { slot: Slot(1), asked: SLOT_BYTES, free: 0 };
    let mut answers = 0;
    for _ in 0..5 {
        host.handle_refusal(at_ms(90), id(1), refusal).unwrap();
        let is_plan = |event: &Event| matches!(event, Event::Publish { .. });
        answers += std::iter::from_fn(|| host.poll_event()).filter(is_plan).count();
    }
    assert_eq!(answers, 1, "what has left cannot be taken back");
    assert_eq!(host.plan(id(1)).unwrap().volumes()[0], SLOT_BYTES / 2);
}

/// A host that plans what is ready, and gives up what it does not use.
fn careful_host(flows: &[FlowSpec]) -> Host {
    let covers = Covers::Ready;
    let settings =
        Settings { spare_per_mille: 0, covers, reclaims_unused: true, ..Settings::default() };
    let mut host = Host::new(HERE, settings, Rate::from_gbps(1), &Rng::new(3)).unwrap();
    host.add_job(JOB);
    flows.iter().for_each(|flow| assert!(host.add_flow(flow.clone()).unwrap()));
    host.begin_iteration(JOB).unwrap();
    host
}

/// Volumes that a flow plans from the current slot on, in thousandths of a slot.
fn planned(host: &Host) -> Vec<u64> {
    let volumes = host.plan(id(1)).unwrap().volumes();
    volumes.iter().take(4).map(|volume| volume * 1_000 / SLOT_BYTES).collect()
}

// spec: C-17 machine
#[test]
fn only_ready_bytes_are_planned_and_more_when_they_get_ready() {
    let mut host = careful_host(&[spec(1, 2, 4)]);
    host.ready(at_ms(60), id(1), Bytes::new(SLOT_BYTES / 2)).unwrap();
    next_decision(&mut host, at_ms(60));
    assert_eq!(planned(&host), [500, 0, 0, 0], "of four slots an eighth is ready");
    host.ready(at_ms(90), id(1), Bytes::new(SLOT_BYTES)).unwrap();
    next_decision(&mut host, at_ms(90));
    assert_eq!(
        planned(&host),
        [500, 1_000, 0, 0],
        "what it had is kept, and no time is left for more"
    );
    host.check();
    // The next iteration is expected to go on after 30 ms as well.
    host.sent(id(1), Bytes::new(4 * SLOT_BYTES)).unwrap();
    host.begin_iteration(JOB).unwrap();
    host.ready(at_ms(600), id(1), Bytes::new(SLOT_BYTES / 4)).unwrap();
    next_decision(&mut host, at_ms(600));
    assert_eq!(planned(&host).iter().sum::<u64>(), 1_500, "a quarter is ready, the rest expected");
    assert!(planned(&host)[0] <= 900, "{:?}", planned(&host));
    // As published, everything is planned when the first byte is ready.
    let mut host = self::host(&[spec(1, 2, 4)]);
    host.ready(at_ms(60), id(1), Bytes::new(1)).unwrap();
    next_decision(&mut host, at_ms(60));
    assert_eq!(host.plan(id(1)).unwrap().total(), 4 * SLOT_BYTES);
}

// spec: C-17 machine
#[test]
fn who_uses_less_than_half_of_a_slot_gives_up_half_of_the_next() {
    let after = |used: u64, is_resting| {
        let mut host = careful_host(&[spec(1, 2, 3)]);
        decide(&mut host, at_ms(60));
        let before = planned(&host);
        host.sent(id(1), Bytes::new(used)).unwrap();
        host.rest(id(1), is_resting).unwrap();
        host.handle_timeout(at_ms(120));
        let events: Vec<Event> = std::iter::from_fn(|| host.poll_event()).collect();
        host.check();
        (before[1], planned(&host)[0], plan_of(&host, &events, 1).is_some())
    };
    assert_eq!(after(SLOT_BYTES / 4, false), (1_000, 500, true), "and the path learns it");
    assert_eq!(after(SLOT_BYTES / 4, true), (1_000, 1_000, false), "it waited for others");
    assert_eq!(after(SLOT_BYTES / 2, false), (1_000, 1_000, false));
}

// spec: C-05, C-06 machine
#[test]
fn a_flow_that_is_counted_depends_on_those_of_which_something_came_lately() {
    let tenth = SLOT_BYTES / 10;
    let ring = Relation::Ring { own_chunk: tenth };
    let mut host = host(&[FlowSpec { relation: ring, others: vec![id(9)], ..spec(1, 2, 50) }]);
    host.count_from_start(id(1)).unwrap();
    let decided = |host: &mut Host, slot: u64| granted(&decide(host, at_ms(60 * slot)), 1);
    // It decides when a tenth of the slot has passed.
    assert_eq!(decided(&mut host, 1), 9 * tenth, "its predecessor has no agent");
    let takes = |host: &mut Host, slot: u64, volume| {
        let progress = Progress { flow: id(9), iteration: 0, volume };
        host.handle_progress(at_ms(60 * slot + 59), progress);
    };
    takes(&mut host, 1, tenth);
    while host.poll_event().is_some() {}
    assert_eq!(decided(&mut host, 2), 2 * tenth, "and its own chunk");
    // What has nothing to do with the ring waits for nobody.
    host.set_unrelated(id(1), Unrelated { ready: tenth, sent: 0 }).unwrap();
    takes(&mut host, 2, tenth);
    assert_eq!(decided(&mut host, 3), 3 * tenth);
    assert_eq!(decided(&mut host, 4), 3 * tenth, "nothing new is known");
    host.handle_timeout(at_ms(60 * 5));
    assert_eq!(decided(&mut host, 6), 9 * tenth, "its predecessor has been silent for long");
}
