//! Settings of an axis.

use super::scale;
use crate::format::Unit;

/// Distribution of values along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal distances are equal differences.
    Linear,
    /// Equal distances are equal factors. Only positive values can be drawn.
    Log10,
}

/// An axis: its label, scale and unit. The range comes from the data unless it is set.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Axis {
    pub(super) label: String,
    pub(super) scale: Scale,
    pub(super) unit: Unit,
    pub(super) range: Option<(f64, f64)>,
    pub(super) categories: Vec<String>,
}

impl Axis {
    /// A linear axis. The vertical one includes zero when the data comes near it, and always under
    /// bars, whose length would lie otherwise.
    pub fn linear(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            scale: Scale::Linear,
            unit: Unit::Plain,
            range: None,
            categories: Vec::new(),
        }
    }

    /// A logarithmic axis.
    pub fn log10(label: impl Into<String>) -> Self {
        Self { scale: Scale::Log10, ..Self::linear(label) }
    }

    /// A horizontal axis of names. The name at index `i` stands at `x = i`.
    pub fn categories<Name: Into<String>>(
        label: impl Into<String>,
        names: impl IntoIterator<Item = Name>,
    ) -> Self {
        Self { categories: names.into_iter().map(Into::into).collect(), ..Self::linear(label) }
    }

    /// Sets what the values measure, and so how ticks are written.
    pub fn unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    /// Shows exactly `min..max`; what lies outside is cut off. A range that is empty, or that the
    /// scale cannot show, is ignored.
    pub fn range(mut self, min: f64, max: f64) -> Self {
        let drawable = [min, max].iter().all(|v| scale::transform(self.scale, *v).is_some());
        self.range = (drawable && min < max).then_some((min, max));
        self
    }

    /// Label of the axis.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The name that stands at `x`, on an axis of names.
    pub fn category(&self, x: f64) -> Option<&str> {
        let is_index = x >= 0.0 && x.fract() == 0.0;
        is_index.then(|| self.categories.get(x as usize).map(String::as_str)).flatten()
    }

    pub(super) fn without_categories(mut self) -> Self {
        self.categories.clear();
        self
    }
}
