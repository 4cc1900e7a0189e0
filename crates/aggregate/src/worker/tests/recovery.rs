use super::*;

fn config() -> Config {
    Config { control: Fixed { bytes: 1 << 20 }.into(), ..Config::default() }
}

/// Answered 10 µs after it was sent.
fn bench(setup: Setup) -> Bench {
    let mut bench =
        Bench::with_sent(setup.with(|parameters| parameters.span_fragments = 100), config(), 60);
    bench.wait(Span::from_us(10));
    bench
}

// spec: A-33, T-10 machine
#[test]
fn three_later_answers_make_a_loss() {
    let mut bench = bench(setup());
    bench.answer([0, 2, 3]);
    assert_eq!(bench.sent().len(), 0);
    bench.answer([5]);
    let sent = bench.sent();
    let [query] = &sent[..] else { panic!("one query, not {sent:?}") };
    assert_eq!((query.meta.dst, query.meta.wire_bytes), (SWITCH, 100));
    let ask = query.query();
    assert_eq!((ask.identity, ask.server), (bench.identity(1), SERVER));
    assert_eq!((ask.level, ask.bypass, ask.watermark()), (0, false, 1));
    assert_eq!(ask.branch, bench.setup.trees[0].branch(1));
    // Fragment 4 was overtaken once only.
    bench.answer([6]);
    assert_eq!(bench.sent().len(), 0);
    bench.answer([7]);
    assert_eq!(bench.sent_sequences(), [4]);
    let stats = bench.worker.stats();
    assert_eq!((stats.losses, stats.queries, stats.resent), (2, 2, 0));
}

// spec: A-33 machine
#[test]
fn losses_are_counted_for_each_server() {
    let mut bench = bench(Setup { trees: vec![tree(SERVER), tree(NodeId(21))], ..setup() });
    bench.answer([1, 3, 5, 7]);
    assert_eq!(bench.sent().len(), 0, "the other server may be slower");
    bench.answer([2, 4, 6]);
    assert_eq!(bench.sent_sequences(), [0]);
}

// spec: A-33 machine
#[test]
fn sprayed_packets_are_lost_by_time_only() {
    let config = Config { loss_threshold: 0, ..config() };
    let mut bench = Bench::with_sent(setup(), config, 8);
    bench.answer(1..8);
    assert_eq!(bench.sent().len(), 0);
    assert_eq!(bench.expire(), Span::from_ms(1));
    assert_eq!(bench.sent_sequences(), [0]);
}

// spec: A-33 machine
#[test]
fn the_papers_recovery_sends_the_fragment_again() {
    let mut bench = bench(setup().with(|parameters| parameters.recovery = Recovery::Paper));
    bench.answer([1, 2, 3]);
    let sent = bench.sent();
    let [packet] = &sent[..] else { panic!("one resend, not {sent:?}") };
    let gradient = packet.gradient();
    assert_eq!((gradient.identity.sequence, gradient.level, gradient.bitmap), (0, 0, 0b10));
    assert!(gradient.resend && !gradient.repair);
    assert_eq!((packet.meta.dst, packet.meta.wire_bytes), (SWITCH, 116));
    assert_eq!(bench.worker.stats().resent, 1);
    assert_eq!(packet.purpose, Purpose::Retransmission);
}

/// A repair is a retransmission as a resend is. A query carries no data.
// spec: C-13, T-10 machine
#[test]
fn a_repair_is_lent_as_a_retransmission() {
    let mut bench = bench(setup());
    bench.answer([1, 2, 3]);
    assert!(bench.sent().iter().all(|query| query.purpose == Purpose::Control));
    bench.ask(bench.request(0));
    let sent = bench.sent();
    let [repair] = &sent[..] else { panic!("one repair, not {sent:?}") };
    assert!(repair.gradient().repair && repair.purpose == Purpose::Retransmission);
    assert_eq!((bench.worker.stats().repairs, bench.worker.stats().resent), (1, 0));
}

/// The tensor is longer than the span, so that fragments leave after the query.
// spec: T-10 machine
#[test]
fn a_query_is_repeated_when_it_is_overtaken_and_old_enough() {
    let mut bench = bench(setup());
    bench.answer(1..20);
    assert_eq!(bench.sent_sequences(), [0], "round trip 10 µs");
    bench.submit_length(4 * 100);
    assert_eq!(bench.sent_sequences(), (60..100).collect::<Vec<_>>());
    // Fragments that were sent before the query say nothing about it.
    bench.answer(20..60);
    assert_eq!(bench.sent().len(), 0);
    bench.wait(Span::from_us(5));
    bench.answer([60, 61, 62]);
    assert_eq!(bench.sent().len(), 0, "overtaken, but not yet two round trips old");
    bench.wait(Span::from_us(16));
    bench.answer([63]);
    assert_eq!(bench.sent_sequences(), [0]);
    assert_eq!(bench.worker.stats().losses, 2);
}

// spec: T-10 machine
#[test]
fn after_three_queries_in_vain_the_next_one_bypasses_switches() {
    let mut bench = Bench::with_sent(setup(), config(), 1);
    let bypass: Vec<(bool, NodeId, u8)> = (0..5)
        .map(|_| {
            bench.expire();
            let sent = bench.sent();
            (sent[0].query().bypass, sent[0].meta.dst, sent[0].query().level)
        })
        .collect();
    let (up, past) = ((false, SWITCH, 0), (true, SERVER, 1));
    assert_eq!(bypass, [up, up, up, past, past]);
}

/// A server that lost a result has nothing to answer a resent contribution with.
// spec: machine
#[test]
fn after_three_resends_in_vain_the_paper_way_asks_now_and_then() {
    let mut bench = Bench::with_sent(
        setup().with(|parameters| parameters.recovery = Recovery::Paper),
        config(),
        1,
    );
    let kinds: Vec<Kind> = (0..7)
        .map(|_| {
            bench.expire();
            bench.sent()[0].kind()
        })
        .collect();
    let (resend, query) = (Kind::AggregateGradient, Kind::AggregateQuery);
    assert_eq!(kinds, [resend, resend, resend, resend, query, resend, query]);
}

// spec: A-33 machine
#[test]
fn timeouts_double_until_something_comes() {
    let mut bench = Bench::with_sent(setup(), config(), 4);
    let waits: Vec<Span> = (0..8)
        .map(|_| {
            let waited = bench.expire();
            assert_eq!(bench.sent_sequences(), [0, 1, 2, 3]);
            waited
        })
        .collect();
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 64].map(Span::from_ms));
    // Whether the original was answered or a repeat, nobody knows: each answer takes back one doubling.
    bench.wait(Span::from_ms(50));
    bench.answer([1, 2]);
    assert_eq!(bench.expire(), Span::from_ms(64));
    assert_eq!(bench.sent_sequences(), [0, 3]);
    bench.answer([0, 3]);
    bench.submit_length(4);
    bench.sent();
    bench.answer([4]);
    // One that was sent once tells: from here on as ever.
    bench.submit_length(4);
    bench.sent();
    assert_eq!(bench.expire(), Span::from_ms(1));
    assert_eq!(bench.worker.stats().timeouts, 4 * 8 + 3);
}

/// Another worker was late, and its own packets were lost: a worker that waited takes no measure from that.
// spec: A-33 machine
#[test]
fn a_round_trip_that_waited_for_others_does_not_make_timeouts_long() {
    let mut bench = Bench::with_sent(setup(), config(), 2);
    bench.wait(Span::from_s(100));
    bench.answer([0, 1]);
    bench.submit_length(4);
    bench.sent();
    // Twice 64 ms: smoothed 64 ms, and 4 deviations of 32 · 3/4.
    assert_eq!(bench.expire(), Span::from_ms(160));
}

// spec: A-34 machine
#[test]
fn a_late_worker_is_no_congestion_but_a_lost_packet_is() {
    let mut bench = Bench::with_sent(setup(), Config::default(), 3);
    bench.expire();
    assert_eq!(bench.worker.window_bytes(), 60_000);
    bench.sent();
    bench.wait(Span::from_us(1));
    bench.answer([1]);
    assert_eq!(bench.worker.window_bytes(), 61_500);
    bench.expire();
    assert_eq!((bench.worker.window_bytes(), bench.worker.stats().loss_halvings), (30_750, 1));
}

// spec: machine
#[test]
fn marks_halve_the_window_once_a_round() {
    let setup = setup().with(|parameters| parameters.span_fragments = 100);
    let mut bench = Bench::with_sent(setup, Config::default(), 100);
    bench.answer([0]);
    assert_eq!(bench.worker.window_bytes(), 61_500);
    bench.answer_with(Parameter { congested: true, ..bench.parameter(1) });
    assert_eq!(bench.worker.window_bytes(), 30_750);
    let header = bench.parameter(2).to_header();
    bench.deliver(header, Body::Length(16), Ecn::Congested);
    assert_eq!(bench.worker.window_bytes(), 30_750, "the same round");
    bench.submit_length(4 * 100);
    bench.sent();
    let header = bench.parameter(100).to_header();
    bench.deliver(header, Body::Length(16), Ecn::Congested);
    assert_eq!((bench.worker.window_bytes(), bench.worker.stats().mark_halvings), (15_375, 2));
}

// spec: A-34 machine
#[test]
fn a_loss_halves_the_window() {
    let setup = setup().with(|parameters| parameters.recovery = Recovery::Paper);
    let mut bench = Bench::with_sent(setup, Config::default(), 8);
    bench.answer([2, 3, 4]);
    // Three answers add three packets; both losses are of one round.
    assert_eq!((bench.worker.window_bytes(), bench.worker.stats().loss_halvings), (32_250, 1));
    assert_eq!(bench.worker.stats().losses, 2);
}

// spec: A-34, T-10 machine
#[test]
fn selective_repair_halves_the_window_unless_it_was_a_collision() {
    let halved = |next_aggregator: Option<u32>| {
        let mut bench = Bench::with_sent(setup(), Config::default(), 8);
        bench.answer([2, 3, 4]);
        assert_eq!((bench.worker.window_bytes(), bench.worker.stats().losses), (64_500, 2));
        let next_distance = setup().parameters.span_fragments;
        bench.answer_with(Parameter { next_aggregator, next_distance, ..bench.parameter(0) });
        (bench.worker.window_bytes(), bench.worker.stats().loss_halvings)
    };
    assert_eq!(halved(None), (33_000, 1));
    assert_eq!(halved(Some(5)), (66_000, 0));
}

// spec: T-10 machine
#[test]
fn requests_are_answered_as_they_ask() {
    let mut bench = Bench::with_sent(setup(), config(), 8);
    let request = |sequence| bench.request(sequence);
    let (plain, fresh, bypass) = (
        request(5),
        Request { restart: true, ..request(6) },
        Request { bypass: true, wanted: 0, level: 1, ..request(7) },
    );
    for ask in [plain, fresh, bypass, plain] {
        bench.ask(ask);
    }
    let sent = bench.sent();
    let flags = |packet: &Owned| {
        let gradient = packet.gradient();
        assert_eq!((gradient.bitmap, gradient.bitmap_level), (0b10, 0));
        (gradient.repair, gradient.resend, gradient.level, packet.meta.dst)
    };
    assert_eq!(sent.iter().map(Owned::sequence).collect::<Vec<_>>(), [5, 6, 7]);
    assert_eq!(flags(&sent[0]), (true, false, 0, SWITCH));
    assert_eq!(flags(&sent[1]), (false, false, 0, SWITCH));
    assert_eq!(flags(&sent[2]), (false, true, 1, SERVER));
    assert_eq!((bench.worker.stats().repairs, bench.worker.stats().fragments_sent), (3, 8));
    bench.ask(plain);
    assert_eq!(bench.sent_sequences(), [5], "asked again after the answer left");
}

// spec: T-10 machine
#[test]
fn what_was_asked_for_waits_for_the_pacer_and_questions_do_not() {
    let mut bench = Bench::with_sent(setup(), config(), 8);
    bench.answer([1, 2, 3]);
    bench.ask(bench.request(5));
    let mut outbox = TestOutbox { is_control_only: true, ..TestOutbox::default() };
    bench.worker.poll_transmit(bench.now, &mut outbox);
    let left: Vec<u64> = outbox.packets.iter().map(Owned::sequence).collect();
    assert_eq!((left, bench.worker.stats().repairs), (vec![0], 0), "the query");
    assert!(bench.worker.has_backlog());
    assert_eq!(bench.sent_sequences()[0], 5);
    assert_eq!(bench.worker.stats().repairs, 1);
}

// spec: T-10 machine
#[test]
fn requests_for_others_or_for_what_was_not_sent_are_not_answered() {
    let mut bench = Bench::with_sent(setup(), config(), 100);
    let good = bench.request(3);
    let other = Identity { attempt: 2, ..bench.identity(3) };
    let requests = [
        Request { wanted: 0b01, ..good },
        Request { identity: other, ..good },
        Request { server: SWITCH, ..good },
        bench.request(50),
        bench.request(5_000),
    ];
    requests.into_iter().for_each(|request| bench.ask(request));
    let Request { identity, aggregator, server, branch, .. } = good;
    let header = Query::new(identity, aggregator, server, branch).to_header();
    bench.deliver(header, Body::Length(0), Ecn::Capable);
    assert_eq!((bench.sent().len(), bench.worker.stats().ignored), (0, 6));
}

/// Four workers in two racks; this one is the second of the second rack.
// spec: T-10 machine
#[test]
fn requests_name_a_worker_by_its_places() {
    let path = |rack| vec![NodeId(rack), NodeId(12)];
    let member = |node| Member { node: NodeId(node), path: path(10 + node / 2) };
    let members: Vec<Member> = (0..4).map(member).collect();
    let tree = Arc::new(Tree::build(SERVER, &members).unwrap());
    let mut bench = Bench::new(setup());
    bench.setup = Arc::new(Setup { trees: vec![tree.clone()], epoch: 2, ..setup() });
    assert!(bench.worker.adopt(bench.now, bench.setup.clone(), 3));
    bench.submit_length(4 * 4);
    bench.sent();
    let mine = Request { branch: tree.branch(2), ..bench.request(0) };
    let mut answers_to = |ask| {
        bench.ask(ask);
        bench.sent().len()
    };
    assert_eq!(answers_to(mine), 1);
    assert_eq!(answers_to(Request { branch: tree.branch(0), ..mine }), 0, "another rack");
    assert_eq!(answers_to(Request { level: 1, ..mine }), 1, "the second rack, by the switch above");
    assert_eq!(answers_to(Request { level: 1, wanted: 0b01, ..mine }), 0, "the first rack");
    assert_eq!(answers_to(Request { level: 2, wanted: 0b01, ..mine }), 1, "by the server");
}

// spec: A-41, T-10 machine
#[test]
fn a_result_is_supplied_in_floats_past_all_switches() {
    let mut bench = Bench::new(setup().with(|parameters| parameters.numeric = fixed(100.0, false)));
    let first = bench.submit(&[1.0, 2.0, 3.0, 4.0]);
    bench.submit(&[0.0; 8]);
    bench.sent();
    bench.answer_values(0, &[7.0, 8.0, 9.0, 10.0]);
    bench.answer_values(2, &[5.0; 4]);
    for sequence in [0, 0, 2] {
        bench.ask(Request { aggregator: 5, ..bench.request(sequence) });
    }
    let sent = bench.sent();
    assert_eq!(sent.iter().map(Owned::sequence).collect::<Vec<_>>(), [0, 2]);
    assert_eq!((sent[0].meta.dst, sent[0].floats()), (SERVER, vec![7.0, 8.0, 9.0, 10.0]));
    let gradient = sent[0].gradient();
    assert_eq!((gradient.numbers, gradient.identity.attempt), (Numbers::Float, 1));
    assert_eq!((gradient.level, gradient.aggregator, gradient.watermark_distance), (1, 5, 0));
    assert!(gradient.result && !gradient.repair);
    assert_eq!((sent[1].floats(), sent[1].gradient().watermark_distance), (vec![5.0; 4], 1));

    bench.worker.release(first);
    bench.answer_values(1, &[5.0; 4]);
    // A copy of the last one says that all ranks have the first.
    bench.answer_with(Parameter { job_watermark_distance: 0, ..bench.parameter(1) });
    bench.ask(bench.request(0));
    assert_eq!(bench.sent().len(), 0, "nobody can need it any more");
    assert_eq!(bench.worker.stats().results, 2);
}

// spec: A-23 machine
#[test]
fn a_sum_that_left_the_range_is_repeated_in_floats() {
    let mut bench = Bench::new(setup().with(|parameters| parameters.numeric = fixed(100.0, false)));
    let operation = bench.submit(&[1.0, 3e9, 3.0, 4.0]);
    assert!(bench.sent()[0].gradient().overflow);
    bench.wait(Span::from_us(10));
    let repeat = Parameter { repeat: true, ..bench.parameter(0) };
    bench.answer_with(repeat);
    bench.answer_with(repeat);
    let sent = bench.sent();
    let [packet] = &sent[..] else { panic!("one packet, not {sent:?}") };
    let gradient = packet.gradient();
    assert_eq!((gradient.identity.attempt, gradient.numbers), (1, Numbers::Float));
    assert_eq!((gradient.level, packet.meta.dst), (1, SERVER));
    assert!(gradient.resend && !gradient.overflow);
    assert_eq!(packet.floats(), [1.0, 3e9, 3.0, 4.0]);
    bench.answer_with(repeat);
    assert_eq!(bench.sent().len(), 0, "it is in flight");
    bench.wait(Span::from_us(20));
    bench.answer_with(repeat);
    assert_eq!(bench.sent().len(), 1, "it was lost, says the server");

    bench.expire();
    let query = bench.sent()[0].query();
    assert!(query.bypass && query.identity.attempt == 1, "no switch knows of it");
    bench.answer_with(repeat);
    assert!(bench.sent()[0].gradient().resend, "the answer to the query");
    bench.ask(Request {
        identity: Identity { attempt: 1, ..bench.identity(0) },
        ..bench.request(0)
    });
    assert!(bench.sent()[0].gradient().resend);
    bench.answer_values(0, &[2.0, 6e9, 6.0, 8.0]);
    let result = bench.worker.tensor(operation).unwrap().values().unwrap();
    assert_eq!(result, [2.0, 6e9, 6.0, 8.0]);
    assert_eq!((bench.worker.stats().repeats, bench.worker.stats().duplicates), (3, 2));
}

// spec: A-23 machine
#[test]
fn no_switch_is_given_floats_that_only_the_server_waits_for() {
    let mut bench = Bench::new(setup().with(|parameters| parameters.numeric = fixed(100.0, false)));
    bench.submit_length(4);
    bench.sent();
    bench.ask(Request { restart: true, ..bench.request(0) });
    bench.answer_with(Parameter { repeat: true, ..bench.parameter(0) });
    let sent = bench.sent();
    assert_eq!(sent.len(), 2);
    assert!(sent.iter().all(|packet| packet.meta.dst == SERVER && packet.gradient().resend));
}

// spec: T-09 machine
#[test]
fn a_job_in_floats_has_nothing_to_repeat() {
    let mut bench = Bench::with_sent(setup(), config(), 1);
    bench.answer_with(Parameter { repeat: true, ..bench.parameter(0) });
    assert_eq!((bench.sent().len(), bench.worker.stats().ignored), (0, 1));
}

// spec: T-10 machine
#[test]
fn the_oldest_fragment_alone_is_asked_for_when_nothing_comes() {
    let probing = Config { probe_after: Some(Span::from_us(300)), ..config() };
    let mut bench = Bench::with_sent(setup(), probing, 3);
    bench.wait(Span::from_us(100));
    bench.answer([1]);
    // Two round trips after the answer are less than the least wait.
    assert_eq!(bench.expire(), Span::from_us(300));
    assert_eq!(bench.sent_sequences(), [0]);
    assert_eq!(bench.expire(), Span::from_us(300));
    assert_eq!(bench.sent_sequences(), [2], "now the one that was asked about least lately");
    assert_eq!((bench.worker.stats().probes, bench.worker.stats().timeouts), (2, 0));
}

fn in_turn(class: u8) -> JobClass {
    JobClass::InTurn(Dscp::of_priority(class).in_class(thalweg_core::TrafficClass::Training))
}

fn out_of_turn(patience: Span) -> JobClass {
    JobClass::OutOfTurn { dscp: thalweg_core::Tag::training().dscp, patience }
}

// spec: C-16 machine
#[test]
fn what_a_more_urgent_class_overtakes_is_not_lost() {
    let setup = || setup().with(|parameters| parameters.span_fragments = 100);
    // The others of this tensor leave when those before have been answered.
    let config = Config { control: Fixed { bytes: 4 * 116 }.into(), ..Config::default() };
    let sent_later = |class: Option<JobClass>| {
        let mut bench = Bench::with(setup(), config);
        bench.worker.set_class(in_turn(6));
        bench.submit_length(60);
        assert_eq!(bench.sent_sequences(), [0, 1, 2, 3]);
        bench.wait(Span::from_us(10));
        class.into_iter().for_each(|class| bench.worker.set_class(class));
        // Nothing of the first fragment comes.
        bench.answer([1, 2, 3]);
        let later = bench.sent();
        (bench.worker.stats().losses, later[later.len() - 1].meta.dscp)
    };
    assert_eq!(sent_later(None).0, 1);
    let (losses, dscp) = sent_later(Some(in_turn(3)));
    assert_eq!((losses, dscp), (0, in_turn(3).dscp()));
    assert_eq!(sent_later(Some(in_turn(7))).0, 1, "less urgent ones overtake nothing");
}

// spec: C-16 machine
#[test]
fn out_of_turn_little_is_in_flight_and_may_wait_for_long() {
    let setup = setup().with(|parameters| parameters.span_fragments = 100);
    let config = Config { control: Fixed { bytes: 1 << 20 }.into(), ..Config::default() };
    let mut bench = Bench::with(setup, config);
    bench.worker.set_class(out_of_turn(Span::from_ms(60)));
    bench.submit_length(240);
    assert_eq!(bench.sent().len() as u32, thalweg_transport::PACKETS_OUT_OF_TURN);
    bench.wait(Span::from_ms(50));
    bench.answer([0]);
    assert_eq!(bench.worker.round_trips().sum(), Span::ZERO, "it says nothing about the network");
    bench.sent();
    assert_eq!(bench.expire(), Span::from_ms(10));
    // Its turn begins: everything may leave.
    bench.worker.set_class(in_turn(2));
    assert!(bench.sent().len() > 20);
}
