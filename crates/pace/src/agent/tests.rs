use thalweg_core::Span;

use super::*;

const JOB: JobId = JobId(7);
const GBPS: Rate = Rate::from_gbps(1);

fn settings() -> Settings {
    Settings { horizon_slots: 4, ..Settings::default() }
}

fn slot_bytes() -> u64 {
    settings().bytes_a_slot(GBPS)
}

fn at_ms(ms: u64) -> Time {
    Time::ZERO + Span::from_ms(ms)
}

fn flow(number: u32) -> FlowId {
    FlowId { job: JOB, number }
}

fn agent(settings: Settings) -> Agent {
    Agent::new(NodeId(0), settings, GBPS, Slot(0), &Rng::new(1)).expect("settings")
}

/// Has a flow of the job with the number 0 take part.
fn add(agent: &mut Agent, relation: Relation, others: Vec<FlowId>, demand: Demand) {
    let volume = Bytes::new(if demand == Demand::Known { 3 * slot_bytes() } else { 0 });
    let spec = FlowSpec { id: flow(0), to: NodeId(1), volume, relation, others };
    agent.add_job(JOB, volume);
    assert!(agent.add_flow(spec, demand).expect("the job was added"));
}

fn drain(agent: &mut Agent) -> Vec<Output> {
    let outputs = std::iter::from_fn(|| agent.poll()).collect();
    agent.check();
    outputs
}

/// The volume that the flow was granted last.
fn granted(outputs: &[Output]) -> Option<u64> {
    outputs.iter().rev().find_map(|output| match output {
        Output::Order { order: Order::Grant { volume, .. }, .. } => Some(volume.as_u64()),
        _ => None,
    })
}

/// Lets the agent do everything that is due until a moment.
fn pass(agent: &mut Agent, until: Time) -> Vec<Output> {
    let mut outputs = drain(agent);
    while agent.poll_timeout() <= until {
        agent.handle_timeout(agent.poll_timeout());
        outputs.extend(drain(agent));
    }
    outputs
}

// spec: C-16 machine
#[test]
fn a_job_becomes_less_urgent_at_once_and_more_urgent_when_a_slot_begins() {
    let mut agent = agent(Settings { enforce: Enforce::Class, ..settings() });
    add(&mut agent, Relation::Alone, Vec::new(), Demand::Known);
    agent.handed_over(at_ms(60), JOB, 3 * slot_bytes());
    let entered = drain(&mut agent);
    let enters =
        |output: &&Output| matches!(output, Output::Order { order: Order::Enter { .. }, .. });
    assert_eq!(entered.iter().filter(enters).count(), 1);
    agent.handle_timeout(at_ms(66));
    agent.sent(flow(0), Bytes::new(2 * slot_bytes() + 1_500_000), Bytes::ZERO);
    agent.handle_timeout(at_ms(100));
    assert_eq!(agent.jobs[&JOB].class, 4, "less than a slot is left, and this one goes on");
    agent.handle_timeout(at_ms(120));
    assert_eq!(agent.jobs[&JOB].class, 2);
    agent.summed(JOB, 3 * slot_bytes());
    agent.handed_over(at_ms(130), JOB, 3 * slot_bytes());
    assert_eq!(agent.jobs[&JOB].class, 4, "another iteration");
}

// spec: C-16 machine
#[test]
fn a_job_has_the_rank_of_the_host_where_most_is_left() {
    let mut agent = agent(Settings { enforce: Enforce::Class, ..settings() });
    add(&mut agent, Relation::Alone, Vec::new(), Demand::Known);
    agent.handed_over(at_ms(60), JOB, slot_bytes());
    let own = agent.host.rank(JOB);
    let behind = Rank::of_left(6 * slot_bytes());
    for rank in [behind, Rank::of_left(10)] {
        let answer = Answer { feedback: None, progress: Vec::new(), rank: Some(rank) };
        agent.handle_answer(at_ms(61), (0, Slot(1)), flow(0), &answer);
    }
    assert_eq!(agent.host.rank(JOB), behind.repeated());
    let sent = agent.question(flow(0)).expect("the flow was added").rank;
    assert_eq!(sent, behind.repeated(), "other neighbours learn of it");
    agent.handle_timeout(at_ms(120));
    assert_eq!(agent.jobs[&JOB].class, 5, "less than eight slots");
    agent.handle_timeout(at_ms(180));
    agent.handle_timeout(at_ms(240));
    assert_eq!(agent.host.rank(JOB), own, "nobody has repeated it");
}

/// Answers with what is free in every slot, and how far the flow with the number 1 is.
fn answer(slot: Slot, free: u64, volume: u64) -> Answer {
    let feedback = Feedback {
        load: Ahead::filled(slot, 4, 0),
        free: Ahead::filled(slot, 4, free),
        narrowest: slot_bytes(),
    };
    let progress = vec![Progress { flow: flow(1), iteration: 0, volume }];
    Answer { feedback: Some(feedback), progress, rank: None }
}

// spec: C-05, C-06 machine
#[test]
fn a_counted_flow_of_a_ring_follows_its_predecessor_through_bursts_of_any_number() {
    let mut agent = agent(settings());
    let chunk = slot_bytes() / 10;
    add(&mut agent, Relation::Ring { own_chunk: chunk }, vec![flow(1)], Demand::Counted);
    let (mut handed, mut before) = (0, 0);
    for burst in 1..=3_u64 {
        // Bursts of different lengths: hosts may cut them differently.
        let start = at_ms(600 * burst);
        let slot = Slot(10 * burst);
        handed += slot_bytes() / 2;
        agent.pass(start);
        agent.report(flow(0), (handed, before)).expect("they count up");
        let asks = drain(&mut agent);
        assert!(asks.contains(&Output::Ask { flow: flow(0), has_plan: false }));
        agent.handle_answer(start, (0, slot), flow(0), &answer(slot, slot_bytes(), before));
        let outputs = pass(&mut agent, start + Span::from_ms(10));
        assert_eq!(granted(&outputs), Some(chunk), "burst {burst}: its own chunk");
        // The predecessor is half through.
        let half = before + slot_bytes() / 4;
        agent.handle_answer(
            start + Span::from_ms(11),
            (0, slot),
            flow(0),
            &answer(slot, slot_bytes(), half),
        );
        let outputs = drain(&mut agent);
        let raised = granted(&outputs).expect("it is raised");
        assert!((slot_bytes() / 4..=slot_bytes() / 4 + chunk).contains(&raised), "{raised}");
        let sent = agent.plan(flow(0), slot).expect("it is known").progress;
        assert_eq!((sent.iteration, sent.volume), (0, before + raised), "counted from the start");
        agent.pass(start + Span::from_ms(50));
        agent.report(flow(0), (handed, handed)).expect("they count up");
        pass(&mut agent, start + Span::from_ms(200));
        assert!(!agent.jobs[&JOB].flows[0].is_in_burst(), "burst {burst} is over");
        before = handed;
    }
}

// spec: C-17 machine
#[test]
fn what_is_counted_is_planned_as_far_as_it_is_ready_and_what_is_guessed_as_a_whole() {
    let ready = Settings { covers: crate::Covers::Ready, reclaims_unused: true, ..settings() };
    for (demand, planned) in [(Demand::Counted, 1), (Demand::Guessed, 4)] {
        let mut agent = agent(ready);
        add(&mut agent, Relation::Alone, Vec::new(), demand);
        agent.pass(at_ms(60));
        agent.report(flow(0), (slot_bytes() / 2, 0)).expect("they count up");
        pass(&mut agent, at_ms(70));
        let plan = agent.plan(flow(0), Slot(1)).expect("it is known").plan;
        let slots = plan.volumes().iter().filter(|volume| **volume > 0).count();
        assert_eq!(slots, planned, "{demand:?}: {plan:?}");
        // Nothing leaves until the slot ends.
        agent.handle_timeout(at_ms(120));
        let kept = agent.plan(flow(0), Slot(2)).expect("it is known").plan.volumes()[0];
        let before = plan.volumes()[1];
        assert_eq!(kept, before, "{demand:?}");
    }
}

#[test]
fn counts_that_make_no_sense_change_nothing() {
    let mut agent = agent(settings());
    add(&mut agent, Relation::Alone, Vec::new(), Demand::Guessed);
    agent.pass(at_ms(60));
    agent.report(flow(0), (100, 50)).expect("they count up");
    assert_eq!(agent.report(flow(0), (100, 40)), Err(ReportError::WentBack));
    let much = SLOT_BYTES_MAX + 100;
    assert_eq!(agent.report(flow(0), (much, much)), Err(ReportError::TooMuch(much)));
    assert_eq!(agent.report(flow(9), (1, 1)), Ok(()), "nobody has added it");
    drain(&mut agent);
}

// spec: C-02 machine
#[test]
fn what_several_switches_say_adds_up_in_its_slot() {
    let mut agent = agent(settings());
    add(&mut agent, Relation::Alone, Vec::new(), Demand::Counted);
    agent.pass(at_ms(60));
    agent.report(flow(0), (slot_bytes(), 0)).expect("they count up");
    // The tightest counts, whichever answers last, and however often; not what is about another slot.
    for (via, slot, free) in [(0, 1, 1_000_000), (1, 1, 5_000_000), (1, 1, 5_000_000), (2, 0, 0)] {
        let answer = answer(Slot(slot), free, 0);
        agent.handle_answer(at_ms(61), (via, Slot(slot)), flow(0), &answer);
    }
    let outputs = pass(&mut agent, at_ms(70));
    // Of a slot that is partly over, what is left.
    let granted = granted(&outputs).expect("it is granted something");
    assert!((880_000..=1_000_000).contains(&granted), "{granted}");
}

// spec: C-15 machine
#[test]
fn a_refusal_counts_in_the_slot_of_its_plan() {
    let mut agent = agent(settings());
    add(&mut agent, Relation::Alone, Vec::new(), Demand::Counted);
    agent.pass(at_ms(60));
    agent.report(flow(0), (3 * slot_bytes(), 0)).expect("they count up");
    pass(&mut agent, at_ms(70));
    let refusal = |slot| Refusal { slot: Slot(slot), asked: slot_bytes(), free: 100_000 };
    agent.handle_refusal(at_ms(71), Slot(1), flow(0), refusal(1));
    let granted_then = granted(&drain(&mut agent)).expect("it plans again");
    assert!((80_000..=100_000).contains(&granted_then), "{granted_then}");
    pass(&mut agent, at_ms(130));
    agent.handle_refusal(at_ms(131), Slot(1), flow(0), refusal(2));
    assert_eq!((granted(&drain(&mut agent)), agent.stats().refused), (None, 1));
}
