//! Plain statistics of a sample.
//!
//! Values that are not finite are left out before anything is computed: a single NaN from a failed
//! measurement must not turn a whole report into NaN. What is left may be empty, hence the `Option`s.

/// A sample that is sorted once and asked many times.
///
/// It holds at least one value and only finite ones, so its methods always have an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    ascending: Vec<f64>,
}

impl Sample {
    /// Keeps the finite values. `None` when there are none.
    pub fn new(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut ascending: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        ascending.sort_by(f64::total_cmp);
        if ascending.is_empty() { None } else { Some(Self { ascending }) }
    }

    /// The values, smallest first.
    pub fn ascending(&self) -> &[f64] {
        &self.ascending
    }

    /// Number of finite values.
    pub fn count(&self) -> usize {
        self.ascending.len()
    }

    /// The smallest value.
    pub fn min(&self) -> f64 {
        self.ascending[0]
    }

    /// The largest value.
    pub fn max(&self) -> f64 {
        self.ascending[self.ascending.len() - 1]
    }

    /// The arithmetic mean, summed from the smallest value up, so that it does not depend on the
    /// order of the input. It is never outside `min..=max`, whatever the rounding.
    pub fn mean(&self) -> f64 {
        let count = self.count() as f64;
        let sum: f64 = self.ascending.iter().sum();
        // The sum of values near the end of the range overflows, their mean does not.
        let mean = if sum.is_finite() {
            sum / count
        } else {
            self.ascending.iter().map(|v| v / count).sum()
        };
        mean.clamp(self.min(), self.max())
    }

    /// The percentile by nearest rank: of `n` values in ascending order, the one at rank
    /// `ceil(percent * n / 100)`, counted from 1. It is always an element of the sample and never
    /// interpolated. Rank 0 means rank 1, so 0 gives the minimum; 100 gives the maximum. `percent`
    /// is limited to `0..=100`, and NaN reads as 0.
    pub fn percentile(&self, percent: f64) -> f64 {
        // Multiplied before divided: for whole percents the product is exact, and so is the rank.
        let rank = (percent.clamp(0.0, 100.0) * self.count() as f64 / 100.0).ceil() as usize;
        self.ascending[rank.clamp(1, self.count()) - 1]
    }

    /// The figures that reports show.
    pub fn summary(&self) -> Summary {
        Summary {
            count: self.count(),
            mean: self.mean(),
            p50: self.percentile(50.0),
            p95: self.percentile(95.0),
            p99: self.percentile(99.0),
            min: self.min(),
            max: self.max(),
        }
    }
}

/// The key figures of a sample. Percentiles are by nearest rank, see [`Sample::percentile`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Number of finite values.
    pub count: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
}

impl Summary {
    /// Summarises the finite values. `None` when there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        Sample::new(values.iter().copied()).map(|sample| sample.summary())
    }
}

/// The mean of the finite values, see [`Sample::mean`].
pub fn mean(values: &[f64]) -> Option<f64> {
    Sample::new(values.iter().copied()).map(|sample| sample.mean())
}

/// One percentile of the finite values, see [`Sample::percentile`]. Who needs several builds a
/// [`Sample`], which sorts only once.
pub fn percentile(values: &[f64], percent: f64) -> Option<f64> {
    Sample::new(values.iter().copied()).map(|sample| sample.percentile(percent))
}

/// Counts of a sample in bins of equal width.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    edges: Vec<f64>,
    counts: Vec<u64>,
}

impl Histogram {
    /// The most bins a histogram has. A report could not show more of them.
    pub const MAX_BINS: usize = 1_000;

    /// Cuts the range of the sample into `bins` bins (limited to `1..=MAX_BINS`). A bin holds its
    /// lower edge; the last one holds both. A sample of one repeated value has one bin of no width.
    pub fn new(sample: &Sample, bins: usize) -> Self {
        let (min, max) = (sample.min(), sample.max());
        let bins = if min == max { 1 } else { bins.clamp(1, Self::MAX_BINS) };
        let edges: Vec<f64> = (0..=bins)
            .map(|index| match index as f64 / bins as f64 {
                // The weighted sum rounds, and the ends have to be exact.
                0.0 => min,
                1.0 => max,
                part => min * (1.0 - part) + max * part,
            })
            .collect();
        let mut counts = vec![0; bins];
        for value in sample.ascending() {
            let edges_not_above = edges.partition_point(|edge| edge <= value);
            counts[edges_not_above.saturating_sub(1).min(bins - 1)] += 1;
        }
        Self { edges, counts }
    }

    /// The edges of the bins, ascending; one more than there are bins.
    pub fn edges(&self) -> &[f64] {
        &self.edges
    }

    /// Number of values in each bin.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }
}

#[cfg(test)]
mod tests;
