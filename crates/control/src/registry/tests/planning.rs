//! Limits of switches, and the set-ups that keep them.
// spec: E-06 machine

use thalweg_aggregate::Numeric;
use thalweg_wire::aggregate::Scale;

use super::*;

/// 10.1.0.3:4808, the switch of another rack.
const OTHER: NodeId = NodeId(0x0003_12c8);

fn limits(aggregators: u32, fragment_values: u16) -> SwitchLimits {
    SwitchLimits { aggregators, fragment_values, ..LIMITS }
}

/// A job of as many ranks as there are switches named, each on a host of its own. No switch has answered.
fn hall(settings: Settings, switches: &[NodeId]) -> Hall {
    let mut hall = Hall { limits: None, ..Hall::with(switches.len() as u32, settings) };
    for (rank, switch) in (0..).zip(switches) {
        hall.attend(Join { switch: Some(*switch), ..hall.join(rank, &format!("host {rank}")) })
            .unwrap();
    }
    hall
}

/// Two ranks below one switch, set up with these limits.
fn set_up(aggregators: u32, fragment_values: u16) -> Hall {
    let mut hall = hall(Settings::default(), &[SWITCH; 2]);
    hall.registry.switch_answered(hall.now, SWITCH, limits(aggregators, fragment_values));
    hall.answer_all(1, None);
    hall.look();
    hall
}

fn numbers(hall: &Hall) -> (u32, u16) {
    let JobParameters { aggregators, fragment_values, .. } = *hall.setup().parameters;
    (aggregators, fragment_values)
}

fn first_hops(hall: &Hall) -> Vec<NodeId> {
    let tree = &hall.setup().trees[0];
    (0..tree.workers()).map(|leader| tree.first_hop(leader)).collect()
}

/// Time passes, and the switch answers every probe with these limits.
fn pass(hall: &mut Hall, span: Span, limits: Option<SwitchLimits>) {
    let end = hall.now + span;
    hall.limits = limits;
    while hall.now < end {
        hall.pass(Span::from_ms(100));
        hall.answer_probes();
    }
    hall.wanted.retain(|action| !matches!(action, Action::Probe { .. }));
    hall.look();
}

/// Returns whether a rank was asked in a round.
fn is_asked(hall: &Hall, rank: u32, of_round: u32) -> bool {
    let is_report = |message| matches!(message, ToRank::Report { round, .. } if round == of_round);
    hall.sent_to(rank).into_iter().any(is_report)
}

/// The leaders are asked in this round and answer.
fn answer_round(hall: &mut Hall, round: u32, watermark: u64) {
    assert!(is_asked(hall, 0, round), "{:?}", hall.done);
    hall.answer_all(round, Some(watermark));
    hall.look();
}

#[test]
fn a_set_up_keeps_the_limits_of_all_its_switches_and_not_those_that_ranks_name() {
    let own = JobParameters { fragment_values: 10, aggregators: 9, ..JobParameters::default() };
    let settings = Settings { parameters: own, ..Settings::default() };
    let mut hall = hall(settings, &[SWITCH, OTHER, SWITCH]);
    let probe = |switch| Action::Probe { switch };
    let probes = [probe(SWITCH), probe(OTHER)];
    let asked = hall.look().iter().filter(|action| probes.contains(action)).cloned();
    assert_eq!(asked.collect::<Vec<_>>(), probes, "each is asked once, before all ranks are there");
    hall.registry.switch_answered(hall.now, SWITCH, limits(96, 40));
    hall.answer_all(1, None);
    assert!(hall.look().is_empty(), "nobody is set up, or can say so, while a switch may answer");
    hall.registry.switch_answered(hall.now, OTHER, limits(32, 64));
    hall.look();
    assert!((0..3).all(|rank| is_asked(&hall, rank, 1)));
    hall.answer_all(1, None);
    assert_eq!((numbers(&hall), hall.setup().epoch), ((32, 40), 1));
    assert_eq!(first_hops(&hall), [SWITCH, OTHER, SWITCH]);
    hall.look();
    let note = "job \"train\": set up in epoch 1 with 3 ranks on 3 hosts and 2 of 2 switches (32 aggregators, \
                fragments of 40 values), from fragment 0";
    assert_eq!(hall.notes(), [note]);
}

#[test]
fn a_job_without_a_switch_waits_for_none_and_has_the_defaults() {
    let own = JobParameters { fragment_values: 10, aggregators: 9, ..JobParameters::default() };
    let mut hall = Hall::with(1, Settings { parameters: own, ..Settings::default() });
    hall.attend(hall.join(0, "a")).unwrap();
    hall.answer_all(1, None);
    assert_eq!(numbers(&hall), (AGGREGATORS, FRAGMENT_VALUES));
}

/// The others need the set-up for results that they lack.
// spec: E-01 machine
#[test]
fn a_rank_that_leaves_while_switches_are_asked_holds_nobody_up() {
    let mut hall = hall(Settings::default(), &[SWITCH; 3]);
    hall.say(1, FromRank::Leave { operations: 0 });
    hall.registry.switch_answered(hall.now, SWITCH, limits(32, 40));
    hall.look();
    assert!(is_asked(&hall, 0, 1) && is_asked(&hall, 2, 1));
    // The others answer; rank 1 is no longer listened to.
    hall.answer_all(1, None);
    assert_eq!((numbers(&hall), hall.setup().epoch), ((32, 40), 1));
}

#[test]
fn a_switch_that_does_not_answer_is_left_out_with_a_warning_and_planned_in_when_it_does() {
    let mut hall = hall(Settings::default(), &[SWITCH, OTHER]);
    hall.look();
    assert_eq!(hall.welcomes(0).len(), 1, "ranks need not wait to know each other");
    hall.registry.switch_answered(hall.now, OTHER, limits(32, 64));
    pass(&mut hall, Span::from_ms(2_900), None);
    assert!(hall.done.is_empty(), "it may still answer");
    hall.registry.switch_answered(hall.now, OTHER, limits(32, 64));
    pass(&mut hall, Span::from_ms(100), None);
    let warning =
        "job \"train\": switch 10.1.0.2:4808 has not answered for 3.0 s: planned without it";
    assert_eq!(hall.warnings(), [warning]);
    assert_eq!(hall.registry.listing().jobs[0].switches_left_out, 1);
    let topology = hall.registry.view(hall.now).topology(&hall.caller);
    let left_out = topology.jobs[0].switches_left_out.clone();
    assert_eq!(left_out, ["10.1.0.2:4808"]);
    hall.answer_all(1, None);
    assert_eq!((first_hops(&hall), numbers(&hall)), (vec![SERVER, OTHER], (32, 64)));
    // It starts later, and may have longer fragments than the job.
    pass(&mut hall, Span::from_s(4), Some(limits(16, 352)));
    assert!(hall.notes()[1].ends_with("switch 10.1.0.2:4808 answers again: planned with it"));
    answer_round(&mut hall, 2, 70);
    assert_eq!((first_hops(&hall), numbers(&hall)), (vec![SWITCH, OTHER], (16, 64)));
}

// spec: F-02 machine
#[test]
fn halves_travel_as_such_where_all_switches_of_the_first_plan_sum_them() {
    let old = SwitchLimits { formats: BodyFormats::FLOAT_AND_FIXED, ..LIMITS };
    for (other, widens) in [(LIMITS, false), (old, true)] {
        let mut hall = hall(Settings::default(), &[SWITCH, OTHER]);
        hall.registry.switch_answered(hall.now, SWITCH, LIMITS);
        hall.registry.switch_answered(hall.now, OTHER, other);
        hall.answer_all(1, None);
        hall.look();
        assert_eq!(hall.setup().parameters.widens_halves, widens);
        assert_eq!(first_hops(&hall), [SWITCH, OTHER]);
    }
    let parameters = JobParameters { widens_halves: true, ..JobParameters::default() };
    let settings = Settings { parameters, ..Settings::default() };
    let mut asked = hall(settings, &[SWITCH]);
    asked.registry.switch_answered(asked.now, SWITCH, LIMITS);
    asked.answer_all(1, None);
    assert!(asked.setup().parameters.widens_halves, "ranks ask for it");
}

// spec: F-02 machine
#[test]
fn a_switch_that_does_not_sum_the_halves_of_a_job_is_left_out() {
    let mut hall = set_up(96, 40);
    let old = SwitchLimits { formats: BodyFormats::FLOAT_AND_FIXED, ..limits(96, 40) };
    pass(&mut hall, Span::from_s(20), Some(old));
    let warning = "job \"train\": switch 10.1.0.2:4808 does not sum values of 16 bits, which the job sends: planned \
                   without it until the job starts again";
    assert_eq!(hall.warnings(), [warning]);
    answer_round(&mut hall, 2, 70);
    assert_eq!(
        (first_hops(&hall), hall.setup().parameters.widens_halves),
        (vec![SERVER; 2], false)
    );
}

#[test]
fn nobody_waits_again_for_a_switch_that_is_known_to_be_away() {
    let mut hall = hall(Settings::default(), &[SWITCH]);
    pass(&mut hall, Span::from_s(3), None);
    let first = hall.job;
    hall.job = hall.register_as("second", Settings::default(), None).unwrap();
    assert_ne!(hall.job, first);
    let process = Process { node: node(9), life: 9 };
    hall.attend(Join { process, switch: Some(SWITCH), ..hall.join(0, "b") }).unwrap();
    hall.look();
    assert!(is_asked(&hall, 0, 1));
}

#[test]
fn the_deadline_of_the_job_is_the_deadline_of_an_answer_if_it_is_shorter() {
    let settings = Settings { failure_after: Span::from_ms(500), ..Settings::default() };
    let mut hall = hall(settings, &[SWITCH]);
    hall.look();
    pass(&mut hall, Span::from_ms(500), None);
    assert!(hall.warnings()[0].ends_with("has not answered for 0.5 s: planned without it"));
}

#[test]
fn numbers_that_change_hold_from_the_next_set_up() {
    let mut hall = set_up(96, 40);
    pass(&mut hall, Span::from_s(20), Some(limits(48, 352)));
    assert!(hall.done.is_empty(), "nothing needs another set-up");
    assert_eq!(numbers(&hall), (96, 40));
    hall.hang_up(1);
    let join = Join { switch: Some(SWITCH), ..hall.successor(1, "host 1") };
    hall.attend(join).unwrap();
    hall.look();
    hall.answer_all(2, None);
    assert_eq!((hall.setup().epoch, numbers(&hall)), (2, (48, 40)), "fragments stay as they are");
}

#[test]
fn a_switch_that_comes_back_with_shorter_fragments_is_left_out() {
    let mut hall = set_up(96, 40);
    pass(&mut hall, Span::from_s(2), Some(limits(96, 39)));
    let warning = "job \"train\": switch 10.1.0.2:4808 sums fragments of at most 39 values, and those of the job \
                   have 40: planned without it until the job starts again";
    assert_eq!(hall.warnings(), [warning]);
    answer_round(&mut hall, 2, 70);
    assert_eq!((first_hops(&hall), numbers(&hall).1), (vec![SERVER; 2], 40));
    pass(&mut hall, Span::from_s(30), Some(limits(96, 39)));
    assert!(hall.done.is_empty(), "it is reported once");
    pass(&mut hall, Span::from_s(2), Some(limits(96, 40)));
    assert!(hall.notes()[0].ends_with("can sum what the job sends again: planned with it"));
    answer_round(&mut hall, 3, 90);
    assert_eq!(first_hops(&hall), [SWITCH; 2]);
}

#[test]
fn ranks_that_have_not_answered_are_asked_again_when_the_plan_changes() {
    let mut hall = hall(Settings::default(), &[SWITCH; 2]);
    hall.registry.switch_answered(hall.now, SWITCH, limits(96, 40));
    pass(&mut hall, Span::from_s(2), Some(limits(96, 39)));
    assert!(is_asked(&hall, 0, 2) && is_asked(&hall, 1, 2));
}

#[test]
fn a_switch_that_was_away_and_has_shorter_fragments_is_reported_as_such() {
    let mut hall = set_up(96, 40);
    pass(&mut hall, Span::from_s(11), None);
    assert!(hall.warnings()[0].contains("has not answered"));
    answer_round(&mut hall, 2, 70);
    pass(&mut hall, Span::from_s(15), Some(limits(96, 8)));
    assert_eq!(hall.done.len(), 1, "no other set-up: {:?}", hall.done);
    assert!(hall.warnings()[0].contains("fragments of at most 8 values"));
}

#[test]
fn a_switch_that_cannot_sum_the_numbers_of_a_job_is_left_out() {
    let scale = Scale::new(1e6).unwrap();
    let fixed = Numeric::Fixed { scale, dynamic: false };
    for (numeric, bits, is_planned) in [
        (Numeric::Float, 0b01, true),
        (Numeric::Float, 0b10, false),
        (fixed, 0b10, true),
        (fixed, 0b01, false),
    ] {
        let parameters = JobParameters { numeric, ..JobParameters::default() };
        let mut hall = hall(Settings { parameters, ..Settings::default() }, &[SWITCH]);
        hall.look();
        let formats = BodyFormats::from_bits(bits);
        hall.registry.switch_answered(hall.now, SWITCH, SwitchLimits { formats, ..LIMITS });
        hall.answer_all(1, None);
        hall.look();
        let hop = if is_planned { SWITCH } else { SERVER };
        assert_eq!(first_hops(&hall), [hop], "{numeric:?} with {bits:#b}");
        assert_eq!(hall.warnings().len(), usize::from(!is_planned));
    }
}

#[test]
fn a_job_that_outlives_its_registry_keeps_its_fragments() {
    let mut hall = Hall { limits: None, ..Hall::empty(2, 6) };
    hall.job = JobId(0xabcd_0000);
    let ticket = hall.registry.prover.ticket(hall.job, None);
    hall.register(Some(ticket)).unwrap();
    for (rank, host) in [(0, "a"), (1, "b")] {
        let fragment_values = (rank == 1).then_some(40);
        let resumes =
            vec![Resume { round: 3, watermark: Some(50), fragment_values, ..Resume::default() }];
        let ticket = hall.ticket(rank);
        let join = hall.join(rank, host);
        hall.attend(Join { switch: Some(SWITCH), resumes, ticket, ..join }).unwrap();
    }
    hall.registry.switch_answered(hall.now, SWITCH, limits(96, 352));
    hall.answer_all(4, Some(50));
    assert_eq!((first_hops(&hall), numbers(&hall)), (vec![SWITCH; 2], (96, 40)));
}

#[test]
fn fragments_that_no_packet_holds_fail_the_job_that_claims_them() {
    for fragment_values in [0, u16::MAX] {
        let mut hall = Hall::empty(1, 6);
        hall.job = JobId(0xabcd_0000);
        let ticket = hall.registry.prover.ticket(hall.job, None);
        hall.register(Some(ticket)).unwrap();
        let fragment_values = Some(fragment_values);
        let resumes =
            vec![Resume { round: 3, watermark: Some(50), fragment_values, ..Resume::default() }];
        let ticket = hall.ticket(0);
        hall.attend(Join { resumes, ticket, ..hall.join(0, "a") }).unwrap();
        hall.look();
        let text = hall.failure(0).text;
        assert!(text.starts_with("the job cannot be set up: fragment_values is"), "{text}");
    }
}

#[test]
fn fragments_are_never_longer_than_a_packet_of_ethernet_without_probes() {
    let hall = set_up(96, u16::MAX);
    assert_eq!(numbers(&hall), (96, FRAGMENT_VALUES));
}

/// Two ranks without a switch that ask for the largest span, at a server where a job may take this much.
fn with_memory(job_memory_bytes: u64) -> Hall {
    let parameters =
        JobParameters { span_fragments: JobParameters::SPAN_MAX, ..JobParameters::default() };
    let mut hall = Hall::with(2, Settings { parameters, ..Settings::default() });
    hall.registry.job_memory_bytes = job_memory_bytes;
    for (rank, host) in [(0, "a"), (1, "b")] {
        hall.attend(hall.join(rank, host)).unwrap();
    }
    hall
}

// spec: E-12 machine
#[test]
fn a_job_that_does_not_fit_its_memory_is_slowed_down_alike_in_every_set_up() {
    let mut hall = with_memory(64 << 20);
    hall.answer_all(1, None);
    hall.look();
    let span = hall.setup().parameters.span_fragments;
    assert!((8_192..JobParameters::SPAN_MAX).contains(&span), "{span}");
    assert!(thalweg_aggregate::server::memory_bytes(hall.setup(), SERVER) <= 64 << 20);
    let warning = format!(
        "job \"train\": at most {span} fragments are in flight in place of 32767: one job may take 64 MiB of the \
         server (--job-memory, --token-memory)"
    );
    assert_eq!(hall.warnings(), [warning]);
    // Ranks that register still ask for what they did.
    assert_eq!(hall.register(None), Ok(hall.job));
    hall.registry.tell_registrar(
        hall.now,
        JobTree::of(hall.job),
        Message::Replan { job: hall.job },
    );
    hall.registry.set_up(hall.now, JobTree::of(hall.job), None);
    hall.answer_all(2, Some(0));
    hall.look();
    assert_eq!((hall.setup().epoch, hall.setup().parameters.span_fragments), (2, span));
    assert!(hall.warnings().is_empty(), "it is known: {:?}", hall.warnings());
}

// spec: E-12 machine
#[test]
fn a_job_that_fits_has_the_span_that_its_ranks_ask_for() {
    let mut hall = with_memory(1 << 30);
    hall.answer_all(1, None);
    hall.look();
    assert_eq!(hall.setup().parameters.span_fragments, JobParameters::SPAN_MAX);
    assert!(hall.warnings().is_empty());
}

// spec: E-12 machine
#[test]
fn a_job_that_no_span_makes_fit_is_refused_at_every_rank() {
    let mut hall = with_memory(100 << 10);
    hall.look();
    for rank in [0, 1] {
        let failure = hall.failure(rank);
        assert_eq!(failure.kind, FailureKind::Refused);
        let text = &failure.text;
        assert!(
            text.starts_with("the job is refused: the job needs 1 MiB of the server"),
            "{text}"
        );
        assert!(text.contains("a job may take 1 MiB") && text.contains("--job-memory"), "{text}");
        assert!(hall.closed(rank));
    }
    assert_eq!(hall.registry.jobs(), 0);
}

// spec: E-12 machine
#[test]
fn a_job_that_the_server_refuses_fails_at_every_rank_and_nowhere_else() {
    let mut hall = Hall::set_up(&["a", "b"]);
    hall.registry.refuse_job(hall.now, hall.job, "no memory is left");
    hall.look();
    for rank in [0, 1] {
        let failure = hall.failure(rank);
        assert_eq!(failure.kind, FailureKind::Refused);
        assert_eq!(failure.text, "the job is refused: no memory is left");
    }
    assert!(hall.done.contains(&Action::Retire { job: hall.job }));
}

/// A job that a former registry has set up with this span, at a server where a job may take this much.
fn resumed(span_fragments: u16, job_memory_bytes: u64) -> Hall {
    let parameters =
        JobParameters { span_fragments: JobParameters::SPAN_MAX, ..JobParameters::default() };
    let settings = Settings { parameters, ..Settings::default() };
    let mut hall = Hall { settings, ..Hall::empty(2, 6) };
    hall.registry.job_memory_bytes = job_memory_bytes;
    hall.job = JobId(0xabcd_0000);
    let ticket = hall.registry.prover.ticket(hall.job, None);
    hall.register(Some(ticket)).unwrap();
    for (rank, host) in [(0, "a"), (1, "b")] {
        let resumes = vec![Resume {
            round: 3,
            watermark: Some(50),
            fragment_values: Some(352),
            span_fragments: Some(span_fragments),
            sends_halves: Some(true),
        }];
        let ticket = hall.ticket(rank);
        hall.attend(Join { resumes, ticket, ..hall.join(rank, host) }).unwrap();
    }
    hall
}

/// Workers may be a span apart, and a server that knows nothing goes by it: another one could make sums wrong.
// spec: E-12 machine
#[test]
fn a_job_that_outlives_its_registry_keeps_its_span_or_is_refused() {
    for memory in [64 << 20, 1 << 30] {
        let mut hall = resumed(5_000, memory);
        hall.answer_all(4, Some(50));
        hall.look();
        assert_eq!(hall.setup().parameters.span_fragments, 5_000, "with more memory as well");
        assert!(hall.warnings().is_empty());
    }
    let mut hall = resumed(5_000, 8 << 20);
    hall.look();
    let failure = hall.failure(1);
    assert_eq!(failure.kind, FailureKind::Refused);
    assert!(failure.text.contains("a job may take 8 MiB"), "{}", failure.text);
    let mut hall = resumed(0, 1 << 30);
    hall.look();
    let text = hall.failure(0).text;
    assert!(text.starts_with("the job cannot be set up: span_fragments is 0"), "{text}");
}
