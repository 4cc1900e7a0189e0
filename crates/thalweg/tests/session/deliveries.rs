//! Sums with a loss bound by parameter servers and rings, over lanes between ranks that lose packets.
//!
//! Rank r contributes 2^r to every value, so that the bits of a sum say whose values are in it.

use thalweg::{
    Collective, Counters, Coverage, DeliveryCounters, ErrorKind, Numeric, Policy, Reduce,
    ReduceOptions, Reduced, SessionConfig, Window,
};

use crate::Cluster;
use crate::bounded::{RANKS, VALUES, bounded, check, contribution, present, reduce};

const COLLECTIVES: [Collective; 2] = [Collective::Server, Collective::Ring];

/// Share of any rank's values that may be missing.
const BOUND: f64 = 0.1;

/// Share of packets that every rank loses of what it receives: more than the bound, so that a receiver
/// that waits for enough has to get some of them again.
const DROPPED: f64 = 0.2;

fn losing(config: &mut SessionConfig) {
    config.drop_share = DROPPED;
}

/// Number of values of each rank that are missing in sums, by their bits. Every value is a sum of some ranks.
fn missing(sums: &[f32]) -> Vec<usize> {
    let of_ranks =
        |sum: &f32| sum.fract() == 0.0 && (0.0..f64::from(1 << RANKS)).contains(&f64::from(*sum));
    assert!(sums.iter().all(of_ranks), "a value is no sum of some ranks");
    let lacks = |rank: u32| sums.iter().filter(|sum| **sum as u32 & 1 << rank == 0).count();
    (0..RANKS).map(lacks).collect()
}

/// Counters of the deliveries that carried sums of a collective.
fn delivery(counters: &Counters, collective: Collective) -> DeliveryCounters {
    match collective {
        Collective::Ring => counters.ring_delivery,
        _ => counters.server_delivery,
    }
}

// spec: M-06, M-12, T-11 sockets
#[test]
fn servers_and_rings_keep_the_bound_where_lanes_lose_packets() {
    let cluster = Cluster::losing(0.0);
    for collective in COLLECTIVES {
        let results = cluster.run(RANKS, losing, |session| {
            let policy = bounded(BOUND, collective);
            let rounds: Vec<_> = (0..3).map(|_| reduce(session, Reduce::Sum, policy)).collect();
            (rounds, session.counters().expect("it runs"))
        });
        let (first, _) = &results[0];
        assert!(results.iter().all(|(rounds, _)| rounds == first), "the same at every rank");
        let mut missing_values = 0;
        for reduced in first {
            check(reduced, BOUND);
            missing_values += missing(&reduced.values).iter().sum::<usize>() as u64;
        }
        assert!(missing_values > 0, "{collective:?}: what may be missing is not waited for");
        let deliveries: Vec<_> =
            results.iter().map(|(_, counters)| delivery(counters, collective)).collect();
        check_repair(collective, &deliveries);
        let lost: u64 = deliveries.iter().map(|own| own.lost_bytes / 4).sum();
        // A value that a server loses is that of one rank. In a ring, it is the sum of some.
        match collective {
            Collective::Server => assert_eq!(lost, missing_values),
            _ => {
                assert!(lost <= missing_values && 3 * lost >= missing_values, "{lost} values lost")
            }
        }
    }
}

/// Senders asked what had arrived, were answered by bitmaps, and sent the rest again; and lost packets that
/// the bound allows were not sent again.
fn check_repair(collective: Collective, deliveries: &[DeliveryCounters]) {
    for DeliveryCounters { transport, .. } in deliveries {
        assert!(transport.probes > 0, "{collective:?}: {transport:?}");
        assert!(transport.bitmaps > 0, "{collective:?}: {transport:?}");
        assert!(transport.resent > 0, "{collective:?}: {transport:?}");
        assert_eq!(transport.malformed + transport.foreign, 0, "{collective:?}: {transport:?}");
    }
}

// spec: T-08, T-11 sockets
#[test]
fn exact_sums_are_exact_where_lanes_lose_packets() {
    let cluster = Cluster::losing(0.0);
    let exact = Policy::default();
    for collective in [Collective::Aggregate, Collective::Server, Collective::Ring] {
        let policy = exact.collective(collective);
        let results = cluster.run(RANKS, losing, |session| reduce(session, Reduce::Sum, policy));
        for Reduced { values, coverage, .. } in results {
            assert_eq!(coverage, Coverage::Exact, "{collective:?}");
            assert_eq!(missing(&values), [0; RANKS as usize], "{collective:?}");
        }
    }
}

/// Every congestion control serves sums in the network, flows and deliveries.
// spec: T-08, M-12 sockets
#[test]
fn every_control_carries_every_kind_of_sum_where_lanes_lose_packets() {
    let cluster = Cluster::losing(0.0);
    let exact = Policy::default();
    for window in Window::ALL {
        let prepare = |config: &mut SessionConfig| {
            losing(config);
            config.window = window;
        };
        let results = cluster.run(RANKS, prepare, |session| {
            let sum = |policy| reduce(session, Reduce::Sum, policy);
            let whole = [Collective::Aggregate, Collective::Server, Collective::Ring]
                .map(|collective| sum(exact.collective(collective)));
            (whole, COLLECTIVES.map(|collective| sum(bounded(BOUND, collective))))
        });
        for (whole, parts) in &results {
            for Reduced { values, coverage, .. } in whole {
                assert_eq!(*coverage, Coverage::Exact, "{window}");
                assert_eq!(missing(values), [0; RANKS as usize], "{window}");
            }
            parts.iter().for_each(|reduced| check(reduced, BOUND));
        }
    }
}

/// A shard has its part of a sum, and reports what that lacks.
// spec: M-12, T-11 sockets
#[test]
fn shards_by_servers_and_rings_keep_the_bound_and_report_what_they_lack() {
    let cluster = Cluster::losing(0.0);
    let own = VALUES / RANKS as usize;
    for collective in COLLECTIVES {
        let results = cluster.run(RANKS, losing, |session| {
            let values = contribution(session.rank());
            let (policy, counts) = (bounded(BOUND, collective), vec![own; RANKS as usize]);
            let options = ReduceOptions::new(Reduce::Sum).policy(policy);
            session.reduce_scatter(values, &counts, options).wait().expect("it ends")
        });
        for Reduced { values, coverage, .. } in &results {
            let expected: Vec<f32> =
                present(coverage)[..own].iter().map(|ranks| *ranks as f32).collect();
            assert!(*values == expected, "{collective:?}: {coverage:?}");
        }
        let whole: Vec<f32> = results.into_iter().flat_map(|reduced| reduced.values).collect();
        assert_eq!(whole.len(), VALUES);
        let missing = missing(&whole);
        assert!(missing.iter().all(|missing| *missing as f64 <= BOUND * VALUES as f64));
        assert!(missing.iter().sum::<usize>() > 0, "{collective:?}");
    }
}

// spec: T-11 sockets
#[test]
fn ranks_of_one_host_learn_what_is_missing() {
    let cluster = Cluster::losing(0.0);
    let hosts = |config: &mut SessionConfig| config.share_memory = config.rank < 2;
    for collective in COLLECTIVES {
        let results = cluster.run(RANKS, hosts, |session| {
            assert_eq!(session.hosts(), 3);
            reduce(session, Reduce::Sum, bounded(BOUND, collective))
        });
        assert!(results.iter().all(|reduced| *reduced == results[0]));
        check(&results[0], BOUND);
        let missing = missing(&results[0].values);
        assert_eq!(missing[0], missing[1], "they come as one");
        assert!(missing.iter().sum::<usize>() > 0, "{collective:?}");
    }
}

/// Every value of a mean is divided by the number of ranks that are in it.
// spec: T-02, T-11 sockets
#[test]
fn means_by_servers_and_rings_are_those_of_the_ranks_that_are_in_them() {
    let cluster = Cluster::losing(0.0);
    for collective in COLLECTIVES {
        let results = cluster.run(RANKS, losing, |session| {
            reduce(session, Reduce::Mean, bounded(BOUND, collective))
        });
        assert!(results.iter().all(|reduced| *reduced == results[0]), "the same at every rank");
        let Reduced { values, coverage, .. } = &results[0];
        assert!(matches!(coverage, Coverage::Partial(_)), "{collective:?}: {coverage:?}");
        // Where nobody is in it, a server's sum is zero.
        let mean = |ranks: &u32| *ranks as f32 / ranks.count_ones().max(1) as f32;
        assert!(*values == present(coverage).iter().map(mean).collect::<Vec<_>>());
    }
}

/// Means that are exact anyway say so, also with a bound.
// spec: T-11 sockets
#[test]
fn means_that_lack_nothing_are_exact() {
    let cluster = Cluster::losing(0.0);
    for share_memory in [false, true] {
        for collective in COLLECTIVES {
            let change = |config: &mut SessionConfig| config.share_memory = share_memory;
            cluster.run(2, change, |session| {
                let policy = bounded(BOUND, collective);
                let doubles = vec![f64::from(session.rank()); 3];
                let options = ReduceOptions::new(Reduce::Mean).policy(policy);
                let mean = session.all_reduce(doubles, options).wait().unwrap();
                assert_eq!((mean.values, mean.coverage), (vec![0.5; 3], Coverage::Exact));
                let mean = session.all_reduce(vec![session.rank() as f32], options.exact());
                assert_eq!(mean.wait().unwrap().values, [0.5]);
            });
        }
    }
}

// spec: T-11 sockets
#[test]
fn a_bound_of_the_session_does_not_hide_what_is_missing() {
    let cluster = Cluster::losing(0.0);
    let change = |config: &mut SessionConfig| config.policy = bounded(BOUND, Collective::Auto);
    cluster.run(2, change, |session| {
        for how in [Reduce::Sum, Reduce::Mean] {
            let reduced = session.all_reduce(vec![1.0_f32; 3], how).wait().unwrap();
            assert!(reduced.coverage.missing().is_some(), "it is reported");
        }
        let largest = session.all_reduce(vec![session.rank() as f32], Reduce::Max).wait().unwrap();
        assert_eq!((largest.values, largest.coverage), (vec![1.0], Coverage::Exact));
        let numeric = Numeric::Fixed { scale: 1e3, dynamic: false };
        let other = ReduceOptions::new(Reduce::Sum).policy(session.policy().numeric(numeric));
        let refused = session.all_reduce(vec![1.0_f32; 3], other).wait();
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Call, "one numeric for all sums");
    });
}
