//! Charts as SVG text: lines, steps, points and bars on linear and logarithmic axes.
//!
//! ```
//! use thalweg_report::format::Unit;
//! use thalweg_report::plot::{Axis, Chart, Series};
//!
//! let svg = Chart::new("Flow completion time")
//!     .x(Axis::log10("time").unit(Unit::SpanUs))
//!     .y(Axis::linear("flows").unit(Unit::Percent))
//!     .series(Series::cdf("thalweg", &[12.0, 14.0, 19.0, 250.0]))
//!     .to_svg();
//! assert!(svg.starts_with("<svg"));
//! ```

mod axis;
mod draw;
mod frame;
mod legend;
mod marks;
mod palette;
mod ruler;
mod scale;
mod series;
mod text;
mod thin;
mod ticks;

pub use axis::{Axis, Scale};
pub use series::{Mark, Series};

/// A chart of any number of series on one pair of axes.
///
/// Points without a position are skipped: values that are not finite, and values that are not
/// positive on a logarithmic axis. A line is interrupted there. When nothing is left, the chart says
/// "no data".
///
/// The SVG scales with its container. Text and axes are drawn in `currentColor`; series `n` takes
/// its colour from the CSS variable `--series-n` where the page sets one, and from a palette that is
/// safe for colour-blind readers otherwise.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Chart {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    width_px: f64,
    height_px: f64,
}

impl Chart {
    /// An empty chart with linear axes and no axis labels.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            x: Axis::linear(""),
            y: Axis::linear(""),
            series: Vec::new(),
            width_px: 560.0,
            height_px: 340.0,
        }
    }

    /// Sets the horizontal axis.
    pub fn x(mut self, axis: Axis) -> Self {
        self.x = axis;
        self
    }

    /// Sets the vertical axis. Categories mean nothing here and are ignored.
    pub fn y(mut self, axis: Axis) -> Self {
        self.y = axis.without_categories();
        self
    }

    /// Adds a series. Later series are drawn over earlier ones.
    pub fn series(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// Adds several series.
    pub fn all(mut self, series: impl IntoIterator<Item = Series>) -> Self {
        self.series.extend(series);
        self
    }

    /// Sets the size in the chart's own units, which are pixels when it is not scaled. Limited to
    /// what axes and labels need at least, and to 4,000.
    pub fn size(mut self, width_px: u32, height_px: u32) -> Self {
        self.width_px = f64::from(width_px.clamp(280, 4_000));
        self.height_px = f64::from(height_px.clamp(200, 4_000));
        self
    }

    /// The title, which is shown and is the accessible name of the drawing.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The horizontal axis.
    pub fn x_axis(&self) -> &Axis {
        &self.x
    }

    /// The vertical axis.
    pub fn y_axis(&self) -> &Axis {
        &self.y
    }

    /// Every series, in the order in which they were added.
    pub fn all_series(&self) -> &[Series] {
        &self.series
    }

    /// Draws the chart: one `<svg>` element that needs nothing else.
    pub fn to_svg(&self) -> String {
        draw::chart(self)
    }
}

#[cfg(test)]
mod tests;
