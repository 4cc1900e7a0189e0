use proptest::prelude::*;
use thalweg_core::Rng;

use super::*;

fn poisson() -> PoissonArrivals {
    PoissonArrivals {
        host_rates: vec![Rate::from_gbps(100); 16],
        load: 0.6,
        wire_factor: 1.0,
        sizes: SizeDistribution::web_search(),
        pattern: Pattern::AllToAll,
        until: Until::Flows(20_000),
    }
}

fn flows(spec: PoissonArrivals) -> Vec<FlowSpec> {
    spec.flows(&Rng::new(1)).unwrap().collect()
}

/// Bytes per second over the time of the last start, as a fraction of the sum of rates.
fn offered(flows: &[FlowSpec], total_gbps: f64) -> f64 {
    let bytes: u64 = flows.iter().map(|flow| flow.bytes.as_u64()).sum();
    bytes as f64 * 8.0 / flows.last().unwrap().start.as_s_f64() / (total_gbps * 1e9)
}

#[test]
fn the_mean_gap_is_the_closed_form() {
    // 1,711,250 B · 8 / (0.6 · 16 · 100 Gbps) = 14.260416… µs.
    assert!((poisson().mean_gap_ps() - 14_260_416.666_666).abs() < 0.01);
    let wire = PoissonArrivals { wire_factor: 1_500.0 / 1_460.0, ..poisson() };
    assert!((wire.mean_gap_ps() - 14_651_113.013_698).abs() < 0.01);
}

#[test]
fn the_load_is_met() {
    let load =
        offered(&flows(PoissonArrivals { until: Until::Flows(200_000), ..poisson() }), 1_600.0);
    assert!((load - 0.6).abs() < 0.01, "{load}");
}

#[test]
fn gaps_below_a_picosecond_keep_the_rate() {
    let dense = PoissonArrivals { sizes: SizeDistribution::fixed(Bytes::new(1)), ..poisson() };
    let dense = PoissonArrivals { load: 4.0, until: Until::Flows(400_000), ..dense };
    assert!((dense.mean_gap_ps() - 1.25).abs() < 1e-9);
    let load = offered(&flows(dense), 1_600.0);
    assert!((load / 4.0 - 1.0).abs() < 0.01, "{load}");
}

#[test]
fn time_advances_even_for_the_smallest_flows() {
    let tiny = SizeDistribution::from_csv("size_bytes,cdf\n0,1\n1,1").unwrap();
    let lasting = Until::Elapsed(Span::from_ns(1));
    let tiny = PoissonArrivals { sizes: tiny, until: lasting, ..poisson() };
    // 1 B · 8 / (4 · 1,600 Gbps) = 1.25 ps, so about 800 in a nanosecond.
    let count = flows(PoissonArrivals { load: 4.0, ..tiny.clone() }).len();
    assert!((700..=900).contains(&count), "{count}");
    let error = PoissonArrivals { load: 8.0, ..tiny }.flows(&Rng::new(1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "flows would start every 0.625 ps on average, and time counts in whole picoseconds: give a \
         lower load or larger flows"
    );
}

#[test]
fn gaps_are_exponential() {
    let flows = flows(poisson());
    let gaps: Vec<f64> =
        flows.windows(2).map(|pair| pair[1].start.since(pair[0].start).as_us_f64()).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance =
        gaps.iter().map(|gap| (gap - mean) * (gap - mean)).sum::<f64>() / gaps.len() as f64;
    assert!((variance / (mean * mean) - 1.0).abs() < 0.05, "{variance} {mean}");
    let long = gaps.iter().filter(|&&gap| gap > mean).count() as f64 / gaps.len() as f64;
    assert!((long - 0.367_879).abs() < 0.01, "{long}");
}

#[test]
fn both_ends_are_uniform() {
    let flows = flows(PoissonArrivals { until: Until::Flows(160_000), ..poisson() });
    let mut sent = [0; 16];
    let mut received = [0; 16];
    for flow in &flows {
        assert_ne!(flow.src, flow.dst);
        sent[flow.src] += 1;
        received[flow.dst] += 1;
    }
    for count in sent.into_iter().chain(received) {
        assert!((9_600..=10_400).contains(&count), "{count}");
    }
}

#[test]
fn elapsed_time_ends_arrivals() {
    let ended = flows(PoissonArrivals { until: Until::Elapsed(Span::from_ms(10)), ..poisson() });
    // 10 ms / 14.26 µs ≈ 701, with a standard deviation of 26.
    assert!((600..=800).contains(&ended.len()), "{}", ended.len());
    assert!(ended.iter().all(|flow| flow.start < Time::from_ps(10_000_000_000)));
    assert_eq!(ended[..], flows(poisson())[..ended.len()], "the same flows, cut");
    let none = PoissonArrivals { until: Until::Elapsed(Span::ZERO), ..poisson() };
    assert_eq!(flows(none), []);
}

#[test]
fn times_do_not_depend_on_hosts_or_sizes() {
    let starts = |spec| flows(spec).iter().map(|flow| flow.start).collect::<Vec<_>>();
    let fixed = SizeDistribution::fixed(Bytes::new(1_711_250));
    let other = PoissonArrivals { sizes: fixed, ..poisson() };
    let other = PoissonArrivals { pattern: Pattern::InterRack { hosts_per_rack: 4 }, ..other };
    // Web search has a few flows below one byte, which count as one: its mean is higher by some
    // trillionths. After 20,000 flows that makes two picoseconds.
    for (one, another) in starts(poisson()).iter().zip(starts(other)) {
        assert!(one.as_ps().abs_diff(another.as_ps()) <= 2, "{one:?} {another:?}");
    }
}

#[test]
fn a_vanishing_load_ends_instead_of_wrapping() {
    let rare = PoissonArrivals { load: 1e-12, until: Until::Flows(1_000), ..poisson() };
    assert!(flows(rare).len() < 1_000);
}

#[test]
fn nonsense_is_refused() {
    let refused =
        |spec: PoissonArrivals| spec.flows(&Rng::new(1)).expect_err("nonsense").to_string();
    let alone = vec![Rate::from_gbps(1)];
    assert_eq!(
        refused(PoissonArrivals { host_rates: alone, ..poisson() }),
        "there are 1 hosts: flows need at least 2"
    );
    assert_eq!(
        refused(PoissonArrivals { load: f64::NAN, ..poisson() }),
        "the load is NaN: give a fraction above 0 and up to 100, such as 0.6"
    );
    for load in [0.0, -1.0, 100.1, 1e30, f64::INFINITY] {
        let error = PoissonArrivals { load, ..poisson() }.flows(&Rng::new(1)).unwrap_err();
        assert_eq!(error, ArrivalError::Load(load));
    }
    assert_eq!(
        refused(PoissonArrivals { wire_factor: 0.9, ..poisson() }),
        "the wire factor is 0.9: give 1 or more, such as 1500/1460"
    );
    for hosts_per_rack in [0, 16, 20] {
        let pattern = Pattern::InterRack { hosts_per_rack };
        let error = PoissonArrivals { pattern, ..poisson() }.flows(&Rng::new(1)).unwrap_err();
        assert_eq!(error, ArrivalError::Racks { hosts: 16, hosts_per_rack });
    }
}

#[test]
fn an_incast_sends_from_everybody_within_the_jitter() {
    let incast = Incast {
        senders: (1..33).collect(),
        receiver: 0,
        bytes_each: Bytes::new(450_000),
        start: Time::from_ps(1_000),
        start_jitter: Span::from_ps(500),
    };
    let flows = incast.flows(&Rng::new(2)).unwrap();
    assert!(flows.is_sorted_by_key(|flow| flow.start));
    assert!(flows.iter().all(|flow| (1_000..=1_500).contains(&flow.start.as_ps())));
    assert!(flows.iter().all(|flow| flow.dst == 0 && flow.bytes == Bytes::new(450_000)));
    let mut senders: Vec<usize> = flows.iter().map(|flow| flow.src).collect();
    senders.sort_unstable();
    assert_eq!(senders, incast.senders);

    let punctual = Incast { start_jitter: Span::ZERO, ..incast.clone() };
    let flows = punctual.flows(&Rng::new(2)).unwrap();
    assert!(
        flows.iter().map(|flow| (flow.start, flow.src)).eq((1..33).map(|src| (incast.start, src)))
    );
}

#[test]
fn broken_incasts_and_permutations_are_refused() {
    let incast = Incast {
        senders: vec![1, 2],
        receiver: 2,
        bytes_each: Bytes::new(1),
        start: Time::ZERO,
        start_jitter: Span::MAX,
    };
    let rng = Rng::new(1);
    assert_eq!(incast.flows(&rng), Err(ArrivalError::OwnSender(2)));
    let silent = Incast { senders: vec![], ..incast.clone() };
    assert_eq!(silent.flows(&rng), Err(ArrivalError::NoSenders));
    let empty = Incast { receiver: 0, bytes_each: Bytes::ZERO, ..incast };
    assert_eq!(empty.flows(&rng), Err(ArrivalError::NoBytes));
    assert_eq!(permutation(1, Bytes::new(1), Time::ZERO, &rng), Err(ArrivalError::TooFewHosts(1)));
    assert_eq!(permutation(2, Bytes::ZERO, Time::ZERO, &rng), Err(ArrivalError::NoBytes));
}

#[test]
fn every_derangement_of_four_is_equally_likely() {
    let mut counts = std::collections::BTreeMap::new();
    for seed in 0..9_000 {
        let flows = permutation(4, Bytes::new(1), Time::ZERO, &Rng::new(seed)).unwrap();
        *counts.entry(flows.iter().map(|flow| flow.dst).collect::<Vec<_>>()).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 9, "four things have nine derangements");
    assert!(counts.values().all(|count| (850..=1_150).contains(count)), "{counts:?}");
}

proptest! {
    #[test]
    fn a_permutation_pairs_everybody_with_somebody_else(hosts in 2..200usize, seed: u64) {
        let flows = permutation(hosts, Bytes::new(7), Time::ZERO, &Rng::new(seed)).unwrap();
        prop_assert!(flows.iter().map(|flow| flow.src).eq(0..hosts));
        prop_assert!(flows.iter().all(|flow| flow.src != flow.dst));
        let mut receivers: Vec<usize> = flows.iter().map(|flow| flow.dst).collect();
        receivers.sort_unstable();
        prop_assert!(receivers.into_iter().eq(0..hosts));
    }

    #[test]
    fn racks_are_left_and_time_never_goes_back(
        hosts in 2..40usize, rack in 1..40usize, seed: u64, load in 0.01..2.0f64,
    ) {
        prop_assume!(rack < hosts);
        let spec = PoissonArrivals {
            host_rates: vec![Rate::from_gbps(10); hosts],
            load,
            pattern: Pattern::InterRack { hosts_per_rack: rack },
            until: Until::Flows(200),
            ..poisson()
        };
        let flows: Vec<FlowSpec> = spec.flows(&Rng::new(seed)).unwrap().collect();
        prop_assert_eq!(flows.len(), 200);
        prop_assert!(flows.is_sorted_by_key(|flow| flow.start));
        for flow in flows {
            prop_assert!(flow.src < hosts && flow.dst < hosts);
            prop_assert_ne!(flow.src / rack, flow.dst / rack);
        }
    }
}
