//! Settings and points of a series.

use super::thin;
use crate::stats::{Histogram, Sample};

/// Shape of a series in the drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Lines from point to point.
    Line,
    /// A value holds until the next point.
    Step,
    /// One symbol a point.
    Scatter,
    /// A bar from zero (from the bottom of a logarithmic axis). Bars of several series stand side
    /// by side.
    Bar,
}

/// Named points and how to draw them. Lines and steps follow the order of the points.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub(super) name: String,
    pub(super) mark: Mark,
    pub(super) points: Vec<(f64, f64)>,
}

impl Series {
    /// The most points that [`Series::cdf`] keeps.
    pub const MAX_CDF_POINTS: usize = 400;

    /// The most points that [`Series::time_series`] keeps.
    pub const MAX_TIME_POINTS: usize = 1_000;

    /// A series of points drawn by `mark`. All points are drawn: for a million of them see
    /// [`Series::time_series`] and [`Series::cdf`].
    pub fn new(name: impl Into<String>, mark: Mark, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), mark, points }
    }

    /// Lines from point to point.
    pub fn line(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self::new(name, Mark::Line, points)
    }

    /// A line over categories: the value at index `i` belongs to the category at index `i`.
    pub fn curve(name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        let points = values.into_iter().enumerate().map(|(index, value)| (index as f64, value));
        Self::line(name, points.collect())
    }

    /// A value that holds until the next point.
    pub fn step(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self::new(name, Mark::Step, points)
    }

    /// One symbol a point.
    pub fn scatter(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self::new(name, Mark::Scatter, points)
    }

    /// One bar a category: the value at index `i` belongs to the category at index `i`.
    pub fn bars(name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        let points = values.into_iter().enumerate().map(|(index, value)| (index as f64, value));
        Self::new(name, Mark::Bar, points.collect())
    }

    /// One bar a bin, in the middle of the bin.
    pub fn histogram(name: impl Into<String>, histogram: &Histogram) -> Self {
        let middles = histogram.edges().windows(2).map(|edge| edge[0] / 2.0 + edge[1] / 2.0);
        let counts = histogram.counts().iter().map(|count| *count as f64);
        Self::new(name, Mark::Bar, middles.zip(counts).collect())
    }

    /// The cumulative distribution of the finite samples: steps from 0 to 1.
    ///
    /// Large samples are thinned to [`Series::MAX_CDF_POINTS`]. Every point that is kept is exact;
    /// the smallest and the largest sample stay, and the upper tail stays dense, because it is
    /// what such plots are drawn for.
    pub fn cdf(name: impl Into<String>, samples: &[f64]) -> Self {
        let points = Sample::new(samples.iter().copied())
            .map_or_else(Vec::new, |sample| thin::distribution(sample.ascending()));
        Self::new(name, Mark::Step, points)
    }

    /// A line over time, in the order of time whatever the order of the input. Points that are not
    /// finite are left out.
    ///
    /// Long series are thinned to [`Series::MAX_TIME_POINTS`]: time is cut into equal slices, and
    /// each keeps its first, lowest, highest and last point. No spike is lost.
    pub fn time_series(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self::new(name, Mark::Line, thin::extremes(points, Self::MAX_TIME_POINTS))
    }

    /// The same thinning for a value that holds until the next point, such as a queue's length.
    pub fn time_steps(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self::new(name, Mark::Step, thin::extremes(points, Self::MAX_TIME_POINTS))
    }

    /// Name in the legend.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Shape of the series in the drawing.
    pub fn mark(&self) -> Mark {
        self.mark
    }

    /// The points that are drawn, after thinning.
    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }
}
