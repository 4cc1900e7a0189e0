use proptest::prelude::*;
use thalweg_core::Rng;

use super::*;

const SEGMENT_VALUES: u16 = 352;

/// Values with few large and many small ones, as gradients have: the fourth power of a normal-like
/// number, with its sign. `spread` makes the scale differ from block to block.
fn gradient_like(rng: &mut Rng, values: usize, spread: f64) -> Vec<f32> {
    let mut scale = 1.0;
    (0..values)
        .map(|at| {
            if at % 500 == 0 {
                scale = 1.0 + spread * rng.uniform();
            }
            let normal = (0..6).map(|_| rng.uniform() - 0.5).sum::<f64>();
            (normal * normal * normal * scale) as f32
        })
        .collect()
}

fn important_share(importance: Importance, values: &[f32], segment_values: u16) -> f64 {
    let threshold = Threshold::of(importance, values, segment_values, Operation(0));
    let segments = values.chunks(usize::from(segment_values));
    let count = segments.len();
    let important =
        segments.filter(|segment| threshold.is_below(sum_of_magnitudes(segment), segment.len()));
    important.count() as f64 / count as f64
}

// spec: M-04 machine
#[test]
fn the_median_of_means_halves_the_packets_and_that_of_values_takes_nearly_all() {
    let mut rng = Rng::new(4);
    let values = gradient_like(&mut rng, 2_000 * usize::from(SEGMENT_VALUES), 1.0);
    let share = |importance| important_share(importance, &values, SEGMENT_VALUES);
    let (means, singles) = (share(Importance::PacketMean), share(Importance::SingleValue));
    assert!((0.4..0.6).contains(&means), "{means} of the packets by the median of means");
    assert!(singles > 0.99, "{singles} of the packets by the median of single values");
    assert_eq!(share(Importance::All), 1.0);
}

// spec: M-04 machine
#[test]
fn a_sample_of_a_twentieth_is_taken_from_other_segments_each_time() {
    // Every segment has one value, its number: means tell which were looked at.
    let segments = 400;
    let values: Vec<f32> = (0..segments).flat_map(|number| [number as f32; 16]).collect();
    let thresholds: Vec<_> = (0..20)
        .map(|operation| {
            Threshold::of(Importance::PacketMean, &values, 16, Operation(operation)).mean
        })
        .collect();
    // Of 20 means that are 20 apart, beginning at the operation's number, the tenth.
    let expected: Vec<_> = (0..20).map(|operation| Some((operation + 9 * 20) as f32)).collect();
    assert_eq!(thresholds, expected);
}

#[test]
fn small_tensors_are_sampled_whole() {
    for segments in [1, 2, 15, 31] {
        let values: Vec<f32> = (0..segments).flat_map(|number| [number as f32; 16]).collect();
        let threshold = Threshold::of(Importance::PacketMean, &values, 16, Operation(7));
        assert_eq!(threshold.mean, Some(((segments - 1) / 2) as f32));
    }
    let nothing = Threshold::of(Importance::PacketMean, &[], 16, Operation(0));
    assert_eq!(nothing, Threshold::NONE);
}

#[test]
fn what_is_no_number_is_important() {
    let threshold = Threshold { mean: Some(1.0) };
    assert!(threshold.is_below(f32::NAN, 4) && threshold.is_below(f32::INFINITY, 4));
    assert!(threshold.is_below(4.1, 4) && !threshold.is_below(4.0, 4));
    assert!(Threshold::NONE.is_below(0.0, 4));
}

proptest! {
    #[test]
    fn packing_keeps_every_bit_and_sums_the_magnitudes(
        values in prop::collection::vec(any::<f32>(), 0..200),
    ) {
        let mut fused = vec![2; 4 * values.len()];
        let sum = pack_and_sum(&values, &mut fused);
        let expected: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        prop_assert_eq!(&fused, &expected);
        prop_assert_eq!(sum.to_bits(), sum_of_magnitudes(&values).to_bits());
        let exact: f64 = values.iter().map(|value| f64::from(value.abs())).sum();
        let is_close = (f64::from(sum) - exact).abs() <= exact * 1e-5;
        prop_assert!(is_close || !sum.is_finite() || !exact.is_finite(), "{} {}", sum, exact);
    }
}
