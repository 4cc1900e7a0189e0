use proptest::prelude::*;

use super::*;

#[test]
fn summary_of_one_to_a_hundred() {
    let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
    let expected =
        Summary { count: 100, mean: 50.5, p50: 50.0, p95: 95.0, p99: 99.0, min: 1.0, max: 100.0 };
    assert_eq!(Summary::of(&values), Some(expected));
}

#[test]
fn percentile_follows_the_nearest_rank_definition() {
    let values = [15.0, 20.0, 35.0, 40.0, 50.0];
    let expected = [(0.0, 15.0), (5.0, 15.0), (30.0, 20.0), (40.0, 20.0), (50.0, 35.0)];
    for (percent, value) in expected {
        assert_eq!(percentile(&values, percent), Some(value), "percentile {percent}");
    }
    assert_eq!(percentile(&values, 100.0), Some(50.0));
    assert_eq!(percentile(&values, 1e9), Some(50.0));
    assert_eq!(percentile(&values, f64::NAN), Some(15.0));
}

#[test]
fn the_rank_is_exact_where_a_fraction_would_round_up() {
    // 0.07 * 100 is 7.000000000000001 in floating point, which would give rank 8.
    let values: Vec<f64> = (1..=100).map(f64::from).collect();
    assert_eq!(percentile(&values, 7.0), Some(7.0));
    let values: Vec<f64> = (1..=1000).map(f64::from).collect();
    assert_eq!(percentile(&values, 99.9), Some(999.0));
}

#[test]
fn what_is_not_finite_is_left_out() {
    let values = [f64::NAN, 3.0, f64::INFINITY, 1.0, f64::NEG_INFINITY];
    let summary = Summary::of(&values).unwrap();
    assert_eq!((summary.count, summary.mean, summary.min, summary.max), (2, 2.0, 1.0, 3.0));
}

#[test]
fn an_empty_sample_has_no_figures() {
    assert_eq!(Summary::of(&[]), None);
    assert_eq!(mean(&[f64::NAN]), None);
    assert_eq!(percentile(&[], 50.0), None);
}

#[test]
fn mean_survives_rounding_and_overflow() {
    assert_eq!(mean(&[0.1, 0.1, 0.1]), Some(0.1));
    assert_eq!(mean(&[f64::MAX, f64::MAX]), Some(f64::MAX));
}

#[test]
fn histogram_puts_edges_into_the_upper_bin_and_the_maximum_into_the_last() {
    let sample = Sample::new([0.0, 1.0, 2.5, 5.0, 5.0, 9.9, 10.0]).unwrap();
    let histogram = Histogram::new(&sample, 4);
    assert_eq!(histogram.edges(), [0.0, 2.5, 5.0, 7.5, 10.0]);
    assert_eq!(histogram.counts(), [2, 1, 2, 2]);
}

#[test]
fn histogram_of_one_value_and_of_silly_bin_counts() {
    let same = Sample::new([4.0, 4.0]).unwrap();
    let histogram = Histogram::new(&same, 10);
    assert_eq!((histogram.edges(), histogram.counts()), (&[4.0, 4.0][..], &[2][..]));
    let spread = Sample::new([0.0, 1.0]).unwrap();
    assert_eq!(Histogram::new(&spread, 0).counts(), [2]);
    assert_eq!(Histogram::new(&spread, usize::MAX).counts().len(), Histogram::MAX_BINS);
}

proptest! {
    #[test]
    fn percentile_is_an_element_and_monotone(
        values in prop::collection::vec(any::<f64>(), 1..60),
        mut percents in prop::collection::vec(0.0..=100.0, 2..8),
    ) {
        let Some(sample) = Sample::new(values.iter().copied()) else { return Ok(()) };
        percents.sort_by(f64::total_cmp);
        let found: Vec<f64> = percents.iter().map(|&p| sample.percentile(p)).collect();
        for value in &found {
            prop_assert!(values.contains(value));
        }
        prop_assert!(found.is_sorted());
    }

    #[test]
    fn percentile_is_the_smallest_value_that_covers_its_part(
        values in prop::collection::vec(-50_i32..50, 1..60),
        percent in 1_u32..=100,
    ) {
        let values: Vec<f64> = values.into_iter().map(f64::from).collect();
        let found = percentile(&values, f64::from(percent)).unwrap();
        let covers = |limit: f64| {
            values.iter().filter(|v| **v <= limit).count() * 100 >= percent as usize * values.len()
        };
        prop_assert!(covers(found));
        for smaller in values.iter().filter(|v| **v < found) {
            prop_assert!(!covers(*smaller));
        }
    }

    #[test]
    fn summary_is_ordered(values in prop::collection::vec(any::<f64>(), 1..60)) {
        let Some(s) = Summary::of(&values) else { return Ok(()) };
        prop_assert!([s.min, s.p50, s.p95, s.p99, s.max].is_sorted());
        prop_assert!((s.min..=s.max).contains(&s.mean));
    }

    #[test]
    fn histogram_counts_every_value_once(
        values in prop::collection::vec(any::<f64>(), 1..60),
        bins in 1_usize..20,
    ) {
        let Some(sample) = Sample::new(values) else { return Ok(()) };
        let histogram = Histogram::new(&sample, bins);
        prop_assert_eq!(histogram.counts().iter().sum::<u64>(), sample.count() as u64);
        prop_assert_eq!(histogram.edges().len(), histogram.counts().len() + 1);
        prop_assert!(histogram.edges().iter().all(|edge| edge.is_finite()));
    }
}
