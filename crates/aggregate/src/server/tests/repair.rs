//! Repair of losses by queries.

use super::*;

/// The same packets, sent once more.
fn again(packets: &[Sent]) -> Vec<Sent> {
    let purpose = Purpose::Retransmission;
    packets.iter().map(|packet| Sent { purpose, ..packet.clone() }).collect()
}

// spec: A-21 machine
#[test]
fn the_papers_resend_brings_the_parameter_packet_again() {
    let mut bench =
        Bench::new(setup(&racks()).with(|parameters| parameters.recovery = Recovery::Paper));
    bench.give_all(0, &fixed(&[1]));
    let first = bench.drain();
    let resent = Gradient { resend: true, ..bench.own(3, 0) };
    (0..3).for_each(|_| bench.give(resent, &fixed(&[1])));
    assert_eq!(bench.drain(), again(&first), "once per gap");
    bench.give(resent, &fixed(&[1]));
    assert!(bench.drain().is_empty());
    bench.wait_us(60);
    bench.give(resent, &fixed(&[1]));
    assert_eq!(bench.drain(), again(&first));
    let stats = bench.stats();
    assert_eq!((stats.parameters, stats.parameters_again, stats.late), (3, 2, 5));
}

// spec: A-21, T-10 machine
#[test]
fn one_that_asks_is_answered_alone_and_two_with_all_others() {
    let mut bench = Bench::new(setup(&racks()));
    bench.give_all(0, &fixed(&[1]));
    bench.ask(bench.query(4, 0, false));
    let first = bench.drain();
    assert_eq!(destinations(&first), [102], "it gets what is being sent to all");
    (0..2).for_each(|_| bench.ask(bench.query(4, 0, false)));
    let sent = bench.drain();
    assert_eq!(destinations(&sent), [4]);
    assert_eq!((&sent[0].body, sent[0].meaning()), (&first[0].body, first[0].meaning()));
    bench.ask(bench.query(4, 0, false));
    assert!(bench.drain().is_empty(), "within the gap");
    bench.ask(bench.query(1, 0, false));
    assert_eq!(bench.drain(), again(&first));
    bench.ask(bench.query(5, 0, false));
    assert!(bench.drain().is_empty(), "all have got it");
    bench.wait_us(60);
    bench.ask(bench.query(5, 0, false));
    bench.ask(bench.query(4, 0, false));
    assert_eq!(bench.drain(), again(&first), "together, since both still wait");
    assert_eq!(bench.stats().parameters_again, 3);
}

// spec: T-10 machine
#[test]
fn a_question_that_crossed_the_result_rests() {
    let mut bench = Bench::new(setup(&racks()));
    for sequence in 0..3 {
        bench.give_all(sequence, &fixed(&[1]));
        bench.drain();
        bench.wait_us(1);
    }
    let asking = |received_distance| Query { received_distance, ..bench.query(4, 1, false) };
    let (before, after, late) = (asking(-1), asking(1), asking(0));
    bench.ask(before);
    assert!(bench.drain().is_empty(), "the last result that it received was sent before");
    bench.ask(after);
    assert_eq!(destinations(&bench.drain()), [4], "a result that was sent later has overtaken it");
    bench.wait_us(60);
    bench.ask(before);
    assert_eq!(
        destinations(&bench.drain()),
        [4],
        "it was sent again, and the worker may ask for that"
    );
    bench.wait_us(60);
    bench.ask(late);
    assert_eq!(destinations(&bench.drain()), [4], "time has passed, whatever it received");
}

// spec: T-10 machine
#[test]
fn where_a_switch_waits_as_well_all_below_it_are_answered() {
    let mut bench = Bench::new(setup(&side_by_side()));
    bench.give_all(0, &fixed(&[1; 4]));
    bench.drain();
    let awaited = |bench: &Bench, rank| Query { awaited: true, ..bench.query(rank, 0, false) };
    bench.ask(awaited(&bench, 2));
    bench.ask(awaited(&bench, 3));
    assert_eq!(destinations(&bench.drain()), [101], "once for both");
    // The other switch waits as well.
    bench.ask(awaited(&bench, 0));
    assert_eq!(destinations(&bench.drain()), [100, 101, 4]);
    bench.wait_us(50);
    // No switch is above this worker, whatever its query says.
    bench.ask(awaited(&bench, 4));
    assert_eq!(destinations(&bench.drain()), [4]);
    let stats = bench.stats();
    assert_eq!((stats.parameters_again, stats.parameters_awaited), (5, 1));
}

// spec: T-10 machine
#[test]
fn stations_of_which_nothing_came_are_asked_and_else_the_workers() {
    let mut bench = Bench::new(setup(&side_by_side()));
    bench.give(bench.own(0, 6), &fixed(&[1]));
    bench.ask(bench.query(3, 6, false));
    let sent = bench.drain();
    assert_eq!(destinations(&sent), [1, 101, 4]);
    let tree = &bench.setup.trees[0];
    let asked: Vec<(u8, u32, bool)> = sent
        .iter()
        .map(|sent| sent.request())
        .map(|request| (request.level, request.wanted, request.bypass))
        .collect();
    assert_eq!(asked, [(2, 1, true), (1, 0b010, false), (2, 1, true)]);
    for (sent, rank) in sent.iter().zip([1, 2, 4]) {
        let request = sent.request();
        assert_eq!(request.branch, tree.branch(rank));
        assert_eq!((request.identity, request.aggregator), (bench.identity(6, 0), 77));
        assert_eq!((request.server, request.restart), (SERVER, false));
        assert_eq!((sent.meta.wire_bytes, sent.size), (100, BodySize::Length(0)));
    }
    assert_eq!(bench.stats().requests, 3);
}

// spec: T-10 machine
#[test]
fn questions_are_asked_once_per_gap_but_bypassing_ones_do_not_wait() {
    let mut bench = Bench::new(setup(&racks()));
    (0..2).for_each(|_| bench.ask(bench.query(0, 0, false)));
    let sent = bench.drain();
    assert_eq!(destinations(&sent), [102], "nothing is there: the only station is asked");
    assert_eq!((sent[0].request().level, sent[0].request().wanted), (2, 1));
    bench.ask(bench.query(1, 0, false));
    assert!(bench.drain().is_empty());
    bench.give(bench.own(2, 0), &fixed(&[1]));
    bench.ask(bench.query(1, 0, true));
    let sent = bench.drain();
    assert_eq!(destinations(&sent), [0, 3, 1, 4, 5], "in the order of positions");
    assert!(sent.iter().all(|sent| sent.request().bypass));
    bench.ask(bench.query(0, 0, true));
    assert!(bench.drain().is_empty());
    bench.wait_us(60);
    bench.ask(bench.query(0, 0, false));
    assert_eq!(bench.drain().len(), 5, "a part is there: the workers are asked");
}

// spec: T-10 machine
#[test]
fn what_comes_while_a_question_waits_is_not_asked_for() {
    let mut bench = Bench::new(setup(&side_by_side()));
    bench.ask(bench.query(0, 0, true));
    assert_eq!(destinations(&bench.drain_some(1)), [0]);
    bench.give_from(&[1, 2, 3], 0, &fixed(&[1]));
    assert_eq!(destinations(&bench.drain()), [4]);
    bench.wait_us(60);
    bench.ask(bench.query(0, 0, true));
    bench.give_from(&[0, 4], 0, &fixed(&[1]));
    let sent = bench.drain();
    assert!(sent.iter().all(|sent| sent.body == fixed(&[5])) && sent.len() == 3);
}

// spec: A-23, T-10 machine
#[test]
fn who_asks_while_floats_are_missing_makes_those_that_owe_them_send() {
    let mut bench = Bench::new(setup(&racks()));
    bench.give(Gradient { overflow: true, ..bench.sum(0, 0, 1, 0b111) }, &fixed(&[7]));
    bench.drain();
    bench.ask(bench.query(3, 0, false));
    assert_eq!(destinations(&bench.drain()), [102], "nobody has answered yet");
    bench.give_floats_from(&[0, 1, 4, 5], 0, &floats(&[1.0]));
    bench.wait_us(60);
    bench.ask(bench.query(3, 0, false));
    let sent = bench.drain();
    assert_eq!(destinations(&sent), [3, 2]);
    assert!(sent.iter().all(|sent| sent.parameter().repeat));
    assert_eq!(bench.stats().repeats_sent, 4);
}

#[test]
fn small_packets_go_before_sums() {
    let mut bench = Bench::new(setup(&side_by_side()));
    bench.give_all(0, &fixed(&[1]));
    bench.ask(bench.query(0, 1, false));
    let sent = bench.drain();
    assert_eq!(destinations(&sent), [100, 101, 4, 100, 101, 4]);
    assert!(sent[..3].iter().all(|sent| Request::decode(&sent.header).is_ok()));
}

// spec: A-21 machine
#[test]
fn a_stray_contribution_does_not_ask() {
    let mut bench = Bench::new(setup(&racks()));
    bench.give_all(0, &fixed(&[1]));
    bench.drain();
    bench.give(bench.own(0, 0), &fixed(&[1]));
    assert!(bench.drain().is_empty(), "it crossed the result");
    bench.wait_us(60);
    bench.give(bench.own(0, 0), &fixed(&[1]));
    assert!(bench.drain().is_empty(), "who lacks it asks");
}

// spec: A-41 machine
#[test]
fn a_result_that_a_worker_supplies_is_the_result() {
    let mut bench = Bench::new(setup(&racks()));
    bench.give(bench.own(0, 4), &fixed(&[1]));
    let supplied = Gradient {
        result: true,
        numbers: Numbers::Float,
        collision: true,
        watermark_distance: 1,
        ..bench.own(2, 4)
    };
    bench.give(supplied, &floats(&[0.1]));
    let sent = bench.drain();
    assert_eq!((destinations(&sent), &sent[0].body), (vec![102], &floats(&[0.1])));
    let parameter = sent[0].parameter();
    assert_eq!((parameter.numbers, parameter.identity), (Numbers::Float, bench.identity(4, 0)));
    assert_eq!(parameter.job_watermark_distance, 4, "one worker's watermark is not the job's");
    assert_eq!(parameter.next_aggregator, None, "its sender may be past the change");
    bench.give(supplied, &floats(&[0.2]));
    assert!(bench.drain().is_empty());
    bench.ask(bench.query(5, 4, false));
    assert_eq!(bench.drain()[0].body, floats(&[0.1]));
    assert_eq!((bench.stats().adopted, bench.stats().completed), (1, 1));
    let unheard = Gradient { identity: bench.identity(5, 1), ..supplied };
    bench.give(Gradient { watermark_distance: 5, ..unheard }, &floats(&[0.3]));
    let parameter = bench.drain()[0].parameter();
    assert_eq!(parameter.identity, bench.identity(5, 0), "it frees what others sent");
}

// spec: T-07 machine
#[test]
fn it_knows_whose_part_is_missing() {
    let mut bench = Bench::new(setup(&side_by_side()));
    bench.give_from(&[4, 2], 0, &fixed(&[1, 2, 3, 4]));
    assert_eq!(bench.server.missing(JOB, 0), Missing::Ranks(vec![0, 1, 3]));
    assert_eq!(bench.server.missing(JOB, 1), Missing::Ranks(vec![0, 1, 2, 3, 4]));
    bench.give_from(&[0, 1, 3], 0, &fixed(&[1, 2, 3, 4]));
    assert_eq!(bench.server.missing(JOB, 0), Missing::Nothing);
    assert_eq!(bench.server.missing(JOB, 1_000), Missing::Unknown);
    assert_eq!(bench.server.missing(JobId(1), 0), Missing::Unknown);
}
