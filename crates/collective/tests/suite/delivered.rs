//! Sums over deliveries that may lose a part. Worker r contributes 2^r everywhere, so that every value of a
//! result says whose contributions are in it.

use thalweg_collective::{
    Contents, Delivery, Event, Failure, Results, SubmitError, SumCall, ring, server,
};
use thalweg_core::testing::{OwnedBody, OwnedPacket};
use thalweg_core::{Bytes, Element, Fingerprint, Machine, NodeId, Rng, Time};
use thalweg_deliver::{LossBound, Start};
use thalweg_values::{Coverage, Tensor};
use thalweg_wire::deliver::Data;

use crate::group::{Collective, nodes, rings, servers};
use crate::shuttle::{Shuttle, Sums};
use crate::stage::play;

/// Long enough that a hundredth of a chunk is several packets of 64 bytes.
const CHUNK_VALUES: u64 = 8_000;
const LENGTHS: [usize; 4] = [50_000, 7, 0, 21_234];

fn delivery(loss: f64, node: u32) -> Delivery {
    let mut delivery = Delivery::new(Rng::new(u64::from(node)));
    delivery.endpoint.segment_bytes = 64;
    delivery.loss = LossBound::new(loss).expect("a share");
    delivery
}

pub fn ring(workers: u32, loss: f64, change: impl Fn(&mut Delivery)) -> Vec<ring::Ring> {
    rings(workers, |config| {
        let mut delivery = delivery(loss, config.rank);
        change(&mut delivery);
        (config.chunk_bytes, config.delivery) = (4 * CHUNK_VALUES, Some(delivery));
    })
}

pub fn served(workers: u32, place: u32, count: u32, loss: f64) -> Vec<server::Node> {
    servers(workers, place, count, |config| {
        (config.chunk_bytes, config.delivery) = (4 * CHUNK_VALUES, Some(delivery(loss, 0)));
    })
}

fn scripts(workers: u32) -> Vec<Vec<Tensor>> {
    let tensor = |rank: u32, values: usize| Tensor::from(vec![(1 << rank) as f32; values]);
    (0..workers).map(|rank| LENGTHS.map(|values| tensor(rank, values)).to_vec()).collect()
}

/// Number of values of each worker that are missing from a result. Everything else in it must be right.
pub fn missing(result: &Tensor, workers: u32) -> Vec<u64> {
    let values = result.values().expect("values went in");
    let mut missing = vec![0; workers as usize];
    for &value in values {
        let bits = value as u32;
        assert!(bits as f32 == value && bits < 1 << workers, "{value} is no sum of contributions");
        (0..workers).filter(|rank| bits >> rank & 1 == 0).for_each(|rank| {
            missing[rank as usize] += 1;
        });
    }
    missing
}

/// Checks that the reported coverage lacks exactly the bits that a result lacks.
pub fn check_coverage(result: &Tensor, coverage: &Coverage, workers: u32) {
    let values = result.values().expect("values went in");
    let mut present = vec![(1_u32 << workers) - 1; values.len()];
    for part in coverage.missing().expect("it is reported") {
        let absent: u32 = part.ranks.iter().map(|rank| 1 << rank).sum();
        let part = &mut present[part.values.start as usize..part.values.end as usize];
        part.iter_mut().for_each(|ranks| *ranks &= !absent);
    }
    let differs = values.iter().zip(&present).position(|(value, ranks)| *value != *ranks as f32);
    assert_eq!(differs, None, "{coverage:?}");
}

/// Plays a group over links that lose `packet_loss`. Returns how many values were missing in all.
fn check<M: Collective>(machines: Vec<M>, workers: u32, bound: f64, packet_loss: f64) -> u64 {
    let played = play(machines, scripts(workers), packet_loss);
    assert_eq!(played.lost_packets > 0, packet_loss > 0.0);
    let mut total = 0;
    for (operation, length) in LENGTHS.into_iter().enumerate() {
        let first = &played.sums[0][operation];
        assert_eq!(first.len(), length as u64);
        for (sums, coverages) in played.sums.iter().zip(&played.coverages) {
            assert_eq!(&sums[operation], first, "all workers end with the same bits");
            check_coverage(first, &coverages[operation], workers);
        }
        for missing in missing(first, workers) {
            assert!(missing as f64 <= bound * length as f64, "{missing} of {length} missing");
            total += missing;
        }
    }
    total
}

#[test]
fn rings_lose_what_they_may_and_no_more() {
    for workers in [2, 3, 5] {
        assert_eq!(check(ring(workers, 0.0, |_| ()), workers, 0.0, 0.05), 0, "exact is exact");
        let lost = check(ring(workers, 0.2, |_| ()), workers, 0.2, 0.05);
        assert!(lost > 0, "{workers} workers: what may be lost is not waited for");
        check(ring(workers, 0.2, |own| own.endpoint.start = Start::AtOnce), workers, 0.2, 0.05);
    }
}

/// The bound of a call holds as that of the settings does, whatever the settings allow.
// spec: T-02 machine
#[test]
fn a_ring_divides_the_bound_of_a_call_among_its_hops() {
    // With five hops, a call whose bound every hop had to itself would lose twice the bound.
    let (workers, length, bound) = (6, 24_000, 0.15);
    let mut shuttle = Shuttle::new(ring(workers, 0.9, |_| ()), 5);
    // Enough that every hop loses as much as it may.
    shuttle.loss = 0.5;
    for worker in 0..workers as usize {
        let tensor = Tensor::from(vec![(1 << worker) as f32; length]);
        let call = SumCall { loss: LossBound::new(bound), ..tensor.into() };
        shuttle.command(worker, |ring, now| ring.submit(now, call)).expect("it goes on");
    }
    assert!(!shuttle.run(10_000_000), "it ends");
    let missing = missing(&shuttle.sums(0)[0].1, workers);
    assert!(missing.iter().sum::<u64>() > 0, "what may be lost is not waited for");
    for missing in missing {
        assert!(missing as f64 <= bound * length as f64, "{missing} of {length} missing");
    }
}

#[test]
fn servers_sum_what_came_and_no_less_than_they_must() {
    for (workers, place, count) in [(1, 1, 1), (4, 4, 1), (4, 0, 4), (3, 2, 3)] {
        let play = |loss, packet_loss| {
            check(served(workers, place, count, loss), workers, loss, packet_loss)
        };
        assert_eq!(play(0.0, 0.05), 0, "exact is exact");
        assert!(play(0.1, 0.05) > 0, "what may be lost is not waited for");
    }
}

/// On a lossless network a receiver still stops its sender when it has enough; what is missing then is
/// within the bound as well, and an exact sum is whole.
#[test]
fn nothing_is_lost_where_nothing_may_be() {
    assert_eq!(check(ring(4, 0.0, |_| ()), 4, 0.0, 0.0), 0);
    assert_eq!(check(served(4, 4, 2, 0.0), 4, 0.0, 0.0), 0);
    check(served(4, 4, 2, 0.1), 4, 0.1, 0.0);
}

/// A server and two workers that have parameters of the round before.
fn with_older(results: Results, older: Option<f32>) -> Vec<(u64, Tensor, Coverage)> {
    let machines = servers(2, 2, 1, |config| {
        let delivery = Delivery { results, ..delivery(0.3, 0) };
        (config.chunk_bytes, config.delivery) = (4 * CHUNK_VALUES, Some(delivery));
    });
    let mut shuttle = Shuttle::new(machines, 3);
    for worker in 0..2 {
        let call = SumCall {
            older: older.map(|older| Tensor::from(vec![older; 20_000])),
            ..Tensor::from(vec![1.0; 20_000]).into()
        };
        shuttle.command(worker, |node, now| node.submit(now, call)).expect("it is a worker");
    }
    shuttle.loss = 0.1;
    assert!(!shuttle.run(10_000_000), "it ends");
    shuttle.results(0).into_iter().chain(shuttle.results(1)).collect()
}

fn count(results: &[(u64, Tensor, Coverage)], wanted: f32) -> usize {
    let values = results.iter().filter_map(|(_, tensor, _)| tensor.values());
    values.flatten().filter(|value| **value == wanted).count()
}

/// Parameters that were lost keep the value of the round before; without such values, nothing is lost.
// spec: M-07 machine
#[test]
fn lost_results_keep_older_values_and_exist_only_where_there_are_some() {
    let kept = with_older(Results::MayBeLost, Some(-5.0));
    assert_eq!(kept.len(), 2);
    assert!(count(&kept, -5.0) > 0 && count(&kept, -5.0) <= 2 * 6_000, "{}", count(&kept, -5.0));
    for results in [with_older(Results::MayBeLost, None), with_older(Results::Exact, Some(-5.0))] {
        assert_eq!(results[0].1, results[1].1, "all workers end with the same bits");
        assert_eq!(count(&results, -5.0), 0);
        // Gradients may still be lost, half of them at most.
        assert!(count(&results, 2.0) > 2 * 8_000);
    }
}

/// Packets in any order, with copies: as over flows, the result is right, and everything ends.
#[test]
fn any_order_will_do() {
    for seed in 0..30 {
        let mut shuttle = Shuttle::new(ring(3, 0.1, |_| ()), seed);
        (shuttle.loss, shuttle.duplication) = (0.1, 0.1);
        for worker in 0..3 {
            // Others may offer what this one has not submitted.
            shuttle.run(seed * 5);
            for values in [3_000, 0, 500] {
                shuttle.submit(worker, Tensor::from(vec![(1 << worker) as f32; values]));
            }
        }
        assert!(!shuttle.run(10_000_000), "seed {seed}: it ends");
        for worker in 0..3 {
            let sums = shuttle.sums(worker);
            assert_eq!(sums.len(), 3, "seed {seed}");
            assert_eq!(sums, shuttle.sums(0), "seed {seed}");
            for missing in missing(&sums[0].1, 3) {
                assert!(missing <= 300, "seed {seed}: {missing}");
            }
        }
    }
}

/// Front layers are pushed first and their sums sent first.
// spec: M-03 simulator
#[test]
fn layers_travel_with_their_priorities() {
    let machines = servers(2, 2, 1, |config| {
        let delivery = Delivery { layers: 7, contents: Contents::Lengths, ..delivery(0.0, 0) };
        (config.chunk_bytes, config.delivery) = (4 * CHUNK_VALUES, Some(delivery));
        (config.chunks_in_flight, config.pushes_at_once) = (64, 64);
    });
    let mut fabric = crate::stage::fabric(machines, 0.0);
    let mut order = Order { has_begun: false, ends: Vec::new() };
    let limit = thalweg_fabric::Limit::until(Time::from_ps(1_000_000_000_000));
    assert_eq!(fabric.run(&mut order, limit), thalweg_fabric::Pause::Done);
    let first: Vec<u64> =
        order.ends.iter().filter(|(node, _)| node.0 == 0).map(|own| own.1).collect();
    assert_eq!(first, [6, 5, 4, 3, 2, 1, 0], "the last submitted is the front layer");
}

struct Order {
    has_begun: bool,
    ends: Vec<(NodeId, u64)>,
}

impl thalweg_fabric::Director<server::Node> for Order {
    fn next_wake(&mut self) -> Time {
        if self.has_begun { Time::NEVER } else { Time::ZERO }
    }

    fn handle_wake(&mut self, now: Time, hosts: &mut thalweg_fabric::Hosts<'_, server::Node>) {
        self.has_begun = true;
        for worker in nodes(2) {
            for layer in (0..7).rev() {
                let tensor = Tensor::Length(CHUNK_VALUES);
                let call = SumCall { layer, ..tensor.into() };
                hosts.machine(worker).submit(now, call).expect("it is a worker");
            }
        }
    }

    fn handle_event(
        &mut self,
        _: Time,
        node: NodeId,
        event: Event,
        _: &mut thalweg_fabric::Hosts<'_, server::Node>,
    ) {
        match event {
            Event::Finished { operation, .. } => self.ends.push((node, operation.0)),
            Event::Failed { failure, .. } => panic!("{failure}"),
        }
    }

    fn is_done(&mut self) -> bool {
        self.ends.len() == 14
    }
}

#[test]
fn workers_with_different_tensors_learn_it() {
    let mut shuttle = Shuttle::new(ring(2, 0.1, |_| ()), 1);
    shuttle.submit(0, Tensor::from(vec![1.0; 100]));
    shuttle.submit(1, Tensor::from(vec![1.0; 200]));
    shuttle.run(1_000_000);
    let failures: Vec<Option<Failure>> =
        shuttle.machines.iter().map(thalweg_collective::Member::failure).collect();
    let sum = |values| Fingerprint::of_sum(Element::F32, values);
    let compared = Fingerprint::compare((0, &sum(100)), (1, &sum(200)));
    let differs = Failure::Differs(compared.expect_err("they differ"));
    assert_eq!(failures, [Some(differs); 2]);
}

#[test]
fn what_is_lost_is_counted() {
    let mut shuttle = Shuttle::new(ring(2, 0.1, |_| ()), 1);
    shuttle.loss = 0.05;
    (0..2).for_each(|worker| _ = shuttle.submit(worker, Tensor::from(vec![1.0; 20_000])));
    assert!(!shuttle.run(10_000_000));
    let lost: Bytes = shuttle.machines.iter().map(|ring| ring.counters().lost_bytes).sum();
    let (_, sum) = &shuttle.sums(0)[0];
    let ones = sum.values().expect("values").iter().filter(|value| **value == 1.0).count();
    assert_eq!(lost, Bytes::new(4 * ones as u64));
    assert!(ones > 0);
}

/// Coverage of one sum, as every worker of a group reports it.
fn coverages<M: Collective>(machines: Vec<M>, workers: usize) -> Vec<Coverage> {
    let mut shuttle = Shuttle::new(machines, 1);
    shuttle.loss = 0.05;
    (0..workers).for_each(|at| _ = shuttle.submit(at, Tensor::from(vec![1.0; 20_000])));
    assert!(!shuttle.run(10_000_000), "it ends");
    let coverage = |(_, event): (NodeId, Event)| match event {
        Event::Finished { coverage, .. } => coverage,
        Event::Failed { failure, .. } => panic!("{failure}"),
    };
    shuttle.events.into_iter().map(coverage).collect()
}

/// A sum that may lose nothing is exact whatever was lost; one that may says what it lacks, everywhere alike.
// spec: T-11 machine
#[test]
fn every_sum_is_exact_or_reports_what_it_lacks() {
    assert_eq!(coverages(rings(3, |_| ()), 3), vec![Coverage::Exact; 3], "flows");
    assert_eq!(coverages(ring(3, 0.0, |_| ()), 3), vec![Coverage::Exact; 3]);
    assert_eq!(coverages(servers(3, 1, 2, |_| ()), 3), vec![Coverage::Exact; 3], "flows");
    assert_eq!(coverages(served(3, 1, 2, 0.0), 3), vec![Coverage::Exact; 3]);
    for lacking in [coverages(ring(3, 0.1, |_| ()), 3), coverages(served(3, 1, 2, 0.1), 3)] {
        assert!(matches!(lacking[0], Coverage::Partial(_)), "{lacking:?}");
        assert_eq!(lacking, vec![lacking[0].clone(); 3]);
    }
}

/// Lengths travel without frames and coverage: nobody reads the values of a simulation.
// spec: T-11 machine
#[test]
fn sums_of_lengths_that_may_lack_values_report_nothing() {
    let lengths = |own: &mut Delivery| own.contents = Contents::Lengths;
    for (loss, expected) in [(0.0, Coverage::Exact), (0.1, Coverage::Unreported)] {
        let mut shuttle = Shuttle::new(ring(2, loss, lengths), 1);
        (0..2).for_each(|at| _ = shuttle.submit(at, Tensor::Length(20_000)));
        assert!(!shuttle.run(10_000_000), "it ends");
        assert!(shuttle.results(0).iter().all(|(_, _, coverage)| *coverage == expected));
    }
}

/// Values of a result that were lost are older ones, in which nobody's contribution is.
// spec: T-11 machine
#[test]
fn older_values_lack_everybody() {
    for (_, sum, coverage) in with_older(Results::MayBeLost, Some(-5.0)) {
        let values = sum.values().expect("values went in");
        let mut present = vec![2.0; values.len()];
        for part in coverage.missing().expect("it is reported") {
            let value = if part.ranks.len() == 2 { -5.0 } else { 1.0 };
            present[part.values.start as usize..part.values.end as usize].fill(value);
        }
        // Both workers may lose the same values of a gradient.
        let is_right = |(value, present): (&f32, &f32)| {
            value == present || (*value == 0.0 && *present == -5.0)
        };
        assert!(values.iter().zip(&present).all(is_right), "{coverage:?}");
        assert!(present.contains(&-5.0) && present.contains(&1.0));
    }
}

/// Changes the bytes of the trailer of a segment of 2,000 values.
fn garble(packet: &mut OwnedPacket) {
    let is_trailer = |data: Data| data.offset.as_u64() >= 4 * 2_000;
    if let (OwnedBody::Bytes(bytes), Ok(true)) =
        (&mut packet.body, Data::decode(&packet.header).map(is_trailer))
    {
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// Coverage that no member writes is the fault of the node that sent it.
// spec: T-11 machine
#[test]
fn malformed_coverage_ends_the_job() {
    let mut shuttle = Shuttle::new(ring(3, 0.3, |_| ()), 1);
    shuttle.loss = 0.1;
    shuttle.alter = Some(garble);
    (0..3).for_each(|at| _ = shuttle.submit(at, Tensor::from(vec![1.0; 6_000])));
    shuttle.run(10_000_000);
    let is_blamed = |ring: &ring::Ring| matches!(ring.failure(), Some(Failure::Mismatch(_)));
    assert!(shuttle.machines.iter().any(is_blamed));
    let has_sum = |(_, event): &(NodeId, Event)| matches!(event, Event::Finished { .. });
    assert!(!shuttle.events.iter().any(has_sum));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut worker = ring(2, 0.1, |_| ()).remove(0);
    assert_eq!(worker.submit(Time::ZERO, Tensor::Length(5)), Err(SubmitError::Contents));
    let tensor = Tensor::from(vec![1.0; 3]);
    let call = SumCall { older: Some(Tensor::from(vec![1.0; 2])), ..tensor.into() };
    let error = worker.submit(Time::ZERO, call).expect_err("it is too short");
    assert_eq!(
        error.to_string(),
        "there are 2 older values for 3: give as many, of the same kind, or none"
    );
    assert_eq!(worker.poll_timeout(), Time::NEVER, "nothing has begun");
    let config = |change: fn(&mut Delivery)| {
        let mut delivery = delivery(0.1, 0);
        change(&mut delivery);
        let config = ring::Config::new(nodes(2), 0);
        ring::Ring::new(ring::Config { delivery: Some(delivery), ..config }).err()
    };
    let message = |change| config(change).expect("must be refused").to_string();
    assert_eq!(message(|own| own.layers = 0), "layers is zero: set it to 1 or more");
    assert!(message(|own| own.endpoint.echo_every = 0).contains("delivery: echo_every"));
}
