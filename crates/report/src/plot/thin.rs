//! Fewer points for the same picture.

/// The points `(value, share of values not above it)` of a distribution, starting at share 0.
/// Small samples are kept whole; of large ones a few hundred ranks are kept.
pub(super) fn distribution(ascending: &[f64]) -> Vec<(f64, f64)> {
    let count = ascending.len();
    let Some(first) = ascending.first() else { return Vec::new() };
    let exact = |rank: usize| (ascending[rank - 1], rank as f64 / count as f64);
    std::iter::once((*first, 0.0)).chain(kept_ranks(count).into_iter().map(exact)).collect()
}

/// Ranks, ascending from 1 to `count`: evenly spread ones for the body, and for the tail ones whose
/// distance to the end grows by an eighth each, so that every factor of ten of the tail has as many.
fn kept_ranks(count: usize) -> Vec<usize> {
    const EVEN: usize = 150;
    if count <= EVEN {
        return (1..=count).collect();
    }
    // In 128 bits the product cannot overflow.
    let even = |part: usize| 1 + ((count - 1) as u128 * part as u128 / EVEN as u128) as usize;
    let tail = std::iter::successors(Some(0_usize), |from_end| Some(from_end + 1 + from_end / 8))
        .take_while(|from_end| *from_end < count)
        .map(|from_end| count - from_end);
    let mut ranks: Vec<usize> = (0..=EVEN).map(even).chain(tail).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// Sorts finite points by x and keeps at most `max_points`: the first, lowest, highest and last of
/// every slice of x.
pub(super) fn extremes(points: Vec<(f64, f64)>, max_points: usize) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> =
        points.into_iter().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
    // Stable: points at the same time keep their order.
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    if points.len() <= max_points {
        return points;
    }
    let slices = (max_points / 4).max(1);
    // Halved, because the difference of two finite values need not be finite.
    let (start, end) = (points[0].0 / 2.0, points[points.len() - 1].0 / 2.0);
    let slice_of = |point: &(f64, f64)| {
        let part = (point.0 / 2.0 - start) / (end - start);
        ((part * slices as f64) as usize).min(slices - 1)
    };
    points.chunk_by(|a, b| slice_of(a) == slice_of(b)).flat_map(slice_extremes).collect()
}

/// The first, lowest, highest and last point of a slice, in their order and without repeats.
fn slice_extremes(slice: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> {
    let by_y = |a: &usize, b: &usize| slice[*a].1.total_cmp(&slice[*b].1);
    let lowest = (0..slice.len()).min_by(by_y).unwrap_or(0);
    let highest = (0..slice.len()).max_by(by_y).unwrap_or(0);
    let mut kept = [0, lowest, highest, slice.len() - 1];
    kept.sort_unstable();
    let mut previous = None;
    kept.into_iter()
        .filter(move |index| previous.replace(*index) != Some(*index))
        .map(|index| slice[index])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_small_distribution_is_kept_whole() {
        assert_eq!(
            distribution(&[1.0, 2.0, 2.0, 9.0]),
            [(1.0, 0.0), (1.0, 0.25), (2.0, 0.5), (2.0, 0.75), (9.0, 1.0)]
        );
        assert_eq!(distribution(&[]), []);
    }

    #[test]
    fn a_large_distribution_keeps_its_ends_and_its_tail() {
        let ascending: Vec<f64> = (1..=1_000_000).map(f64::from).collect();
        let points = distribution(&ascending);
        assert!(points.len() <= super::super::Series::MAX_CDF_POINTS, "{}", points.len());
        assert_eq!(points[0], (1.0, 0.0));
        assert_eq!(points[points.len() - 1], (1e6, 1.0));
        // The nine largest samples are all there, and each factor of ten below has its points.
        for value in 999_992..=1_000_000 {
            assert!(points.iter().any(|point| point.0 == f64::from(value)));
        }
        let between = |low: f64, high: f64| {
            points.iter().filter(|point| point.1 > low && point.1 <= high).count()
        };
        assert!(between(0.999, 0.9999) >= 15);
        assert!(between(0.99, 0.999) >= 15);
    }

    #[test]
    fn even_the_largest_sample_fits() {
        // More values than memory holds; only the ranks are computed.
        let ranks = kept_ranks(usize::MAX / 2);
        assert!(ranks.len() < 600);
        assert!(kept_ranks(1 << 40).len() < super::super::Series::MAX_CDF_POINTS);
    }

    #[test]
    fn a_slice_keeps_first_lowest_highest_last_in_order() {
        let points = (0..100).map(|i| (f64::from(i), if i == 30 { -5.0 } else { 1.0 }));
        let mut points: Vec<(f64, f64)> = points.collect();
        points[60].1 = 7.0;
        assert_eq!(extremes(points, 4), [(0.0, 1.0), (30.0, -5.0), (60.0, 7.0), (99.0, 1.0)]);
    }

    #[test]
    fn time_is_put_in_order_and_gaps_are_left_out() {
        let points = vec![(2.0, 1.0), (f64::NAN, 1.0), (1.0, f64::INFINITY), (0.0, 3.0)];
        assert_eq!(extremes(points, 10), [(0.0, 3.0), (2.0, 1.0)]);
    }

    proptest! {
        #[test]
        fn no_extreme_is_lost(
            values in prop::collection::vec((any::<f64>(), any::<f64>()), 0..400),
            max_points in 4_usize..60,
        ) {
            let all = extremes(values.clone(), usize::MAX);
            let kept = extremes(values, max_points);
            prop_assert!(kept.len() <= max_points);
            prop_assert!(kept.is_sorted_by(|a, b| a.0 <= b.0));
            prop_assert!(kept.iter().all(|point| all.contains(point)));
            let range = |points: &[(f64, f64)]| {
                let ys = points.iter().map(|p| p.1);
                (ys.clone().min_by(f64::total_cmp), ys.max_by(f64::total_cmp))
            };
            prop_assert_eq!(range(&all), range(&kept));
            prop_assert_eq!((all.first(), all.last()), (kept.first(), kept.last()));
        }

        #[test]
        fn ranks_ascend_from_one_to_the_count(count in 1_usize..5_000_000) {
            let ranks = kept_ranks(count);
            prop_assert!(ranks.is_sorted_by(|a, b| a < b));
            prop_assert_eq!((ranks[0], ranks[ranks.len() - 1]), (1, count));
            prop_assert!(ranks.len() < super::super::Series::MAX_CDF_POINTS);
        }
    }
}
