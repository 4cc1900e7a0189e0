//! An axis with its ticks and their labels.

use super::axis::{Axis, Scale};
use super::scale::{Domain, transform};
use super::ticks::{self, Step};
use crate::format::{Unit, format_number, group_thousands, power_of_ten, superscript};

/// Drawn parts of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ruler {
    pub(super) domain: Domain,
    pub(super) ticks: Vec<Tick>,
    /// The axis label, with the unit that tick labels leave out.
    pub(super) title: String,
}

/// A labelled place: 0 is the low end of the axis, 1 the high end.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) fraction: f64,
    pub(super) label: String,
}

impl Ruler {
    /// An axis that shows exactly the domain.
    pub(super) fn exact(axis: &Axis, domain: Domain, max_steps: usize) -> Self {
        Self::labelled(axis, domain, Values::new(&domain, max_steps))
    }

    /// An axis that shows the domain, and goes on to the next tick where that is almost reached:
    /// time that ends at 999.98 should end with a label.
    pub(super) fn nearly_exact(axis: &Axis, domain: Domain, max_steps: usize) -> Self {
        let values = Values::new(&domain, max_steps);
        let near = (domain.high - domain.low) * 0.02;
        let places = || values.at.iter().filter_map(|value| transform(domain.scale, *value));
        let low = places().find(|place| domain.low - place <= near).unwrap_or(domain.low);
        let high = places().rfind(|place| place - domain.high <= near).unwrap_or(domain.high);
        let domain = Domain { low: low.min(domain.low), high: high.max(domain.high), ..domain };
        Self::labelled(axis, domain, values)
    }

    /// An axis that is extended to begin and end at a tick.
    pub(super) fn extended(axis: &Axis, domain: Domain, max_steps: usize) -> Self {
        let snapped = Domain {
            low: ticks::floor_log(domain.low),
            high: ticks::ceil_log(domain.high),
            ..domain
        };
        match domain.scale {
            Scale::Log10 => Self::exact(axis, snapped, max_steps),
            Scale::Linear => {
                let values = Values::new(&domain, max_steps);
                let low = values.at.first().map_or(domain.low, |first| first.min(domain.low));
                let high = values.at.last().map_or(domain.high, |last| last.max(domain.high));
                Self::labelled(axis, Domain { low, high, ..domain }, values)
            }
        }
    }

    /// An axis of names. Names that the domain does not reach are left out.
    pub(super) fn named(axis: &Axis, domain: Domain) -> Self {
        let tick = |(index, name): (usize, &String)| {
            let fraction = domain.fraction(index as f64)?;
            domain.shows(index as f64).then(|| Tick { fraction, label: name.clone() })
        };
        let ticks = axis.categories.iter().enumerate().filter_map(tick).collect();
        Self { domain, ticks, title: axis.label.clone() }
    }

    /// An axis with nothing on it but its label.
    pub(super) fn blank(axis: &Axis) -> Self {
        let domain = Domain::new(Scale::Linear, 0.0, 1.0);
        Self { domain, ticks: Vec::new(), title: axis.label.clone() }
    }

    fn labelled(axis: &Axis, domain: Domain, mut values: Values) -> Self {
        values.at.retain(|value| domain.shows(*value));
        let (labels, unit) = match values.step {
            Some(step) => linear_labels(axis.unit, step, &values.at),
            None => (log_labels(axis.unit, &values.at), String::new()),
        };
        let places = values.at.iter().filter_map(|value| domain.fraction(*value));
        let ticks = places.zip(labels).map(|(fraction, label)| Tick { fraction, label }).collect();
        let title = match (axis.label.as_str(), unit.as_str()) {
            (label, "") => label.to_owned(),
            ("", unit) => unit.to_owned(),
            (label, unit) => format!("{label} ({unit})"),
        };
        Self { domain, ticks, title }
    }
}

/// Tick values, and their distance where it is the same for all.
struct Values {
    at: Vec<f64>,
    step: Option<Step>,
}

impl Values {
    /// Below this many decades 1, 2 and 5 are too few ticks, and equal steps look even.
    const FEW_DECADES: f64 = 0.7;

    fn new(domain: &Domain, max_steps: usize) -> Self {
        let decades = domain.high - domain.low;
        if domain.scale == Scale::Log10 && decades > Self::FEW_DECADES {
            return Self { at: ticks::log10(domain.low, domain.high, max_steps), step: None };
        }
        let (min, max) = domain.values();
        let (step, at) = ticks::linear(min, max, max_steps);
        Self { at, step: Some(step) }
    }
}

/// Labels with the same unit and the same number of decimals, and the unit where it is not in them.
fn linear_labels(unit: Unit, step: Step, values: &[f64]) -> (Vec<String>, String) {
    let largest = values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let multiple = unit.step_for(largest);
    let extra = extra_exponent(largest / power_of_ten(multiple.exponent));
    let exponent = multiple.exponent + extra;
    let decimals = (exponent - step.exponent).max(0) as usize;
    let sign = if unit.suffix_is_a_sign() { multiple.suffix } else { "" };
    let label = |value: &f64| {
        let number = format!("{:.decimals$}", value / power_of_ten(exponent));
        format!("{}{sign}", group_thousands(&number))
    };
    let name = if unit.suffix_is_a_sign() { "" } else { multiple.suffix.trim() };
    let power = if extra == 0 { String::new() } else { format!("×{}", power_label(extra)) };
    let note = format!("{power} {name}").trim().to_owned();
    (values.iter().map(label).collect(), note)
}

/// The power of a thousand to divide by where numbers would be too long to read.
fn extra_exponent(largest: f64) -> i32 {
    if largest == 0.0 || (1e-3..1e6).contains(&largest) {
        return 0;
    }
    (libm::log10(largest) / 3.0).floor() as i32 * 3
}

fn log_labels(unit: Unit, values: &[f64]) -> Vec<String> {
    let readable = |value: &f64| (1e-3..1e6).contains(value);
    if unit == Unit::Plain && !values.iter().all(readable) {
        return values.iter().map(|value| scientific_label(*value)).collect();
    }
    values.iter().map(|value| unit.format(*value)).collect()
}

/// `10⁶` or `2×10⁶`.
fn scientific_label(value: f64) -> String {
    let exponent = libm::log10(value * (1.0 + 1e-9)).floor() as i32;
    let power = power_label(exponent);
    match format_number(value / power_of_ten(exponent)).as_str() {
        "1" => power,
        mantissa => format!("{mantissa}×{power}"),
    }
}

fn power_label(exponent: i32) -> String {
    format!("10{}", superscript(&exponent.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ruler: &Ruler) -> Vec<&str> {
        ruler.ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    fn linear(unit: Unit, low: f64, high: f64) -> Ruler {
        let axis = Axis::linear("size").unit(unit);
        Ruler::extended(&axis, Domain::new(Scale::Linear, low, high), 4)
    }

    fn log(unit: Unit, low: f64, high: f64) -> Ruler {
        let axis = Axis::log10("size").unit(unit);
        Ruler::exact(&axis, Domain::new(Scale::Log10, low, high), 8)
    }

    #[test]
    fn linear_labels_share_one_unit() {
        let spans = linear(Unit::SpanUs, 0.0, 1_480.0);
        assert_eq!(labels(&spans), ["0.0", "0.5", "1.0", "1.5"]);
        assert_eq!(spans.title, "size (ms)");
        let shares = linear(Unit::Percent, 0.0, 1.0);
        assert_eq!(labels(&shares), ["0%", "50%", "100%"]);
        assert_eq!(shares.title, "size");
    }

    #[test]
    fn long_numbers_are_scaled() {
        let counts = linear(Unit::Plain, 0.0, 19e6);
        assert_eq!(labels(&counts), ["0", "5", "10", "15", "20"]);
        assert_eq!(counts.title, "size (×10⁶)");
        let years = linear(Unit::SpanUs, 0.0, 4e15);
        assert_eq!(labels(&years), ["0", "1", "2", "3", "4"]);
        assert_eq!(years.title, "size (×10⁹ s)");
        assert_eq!(labels(&linear(Unit::Plain, 0.0, 20_000.0))[1], "5,000");
    }

    #[test]
    fn close_values_get_the_decimals_that_tell_them_apart() {
        let ruler = linear(Unit::SpanUs, 1_000_100.0, 1_000_400.0);
        assert_eq!(labels(&ruler), ["1.0001", "1.0002", "1.0003", "1.0004"]);
    }

    #[test]
    fn logarithmic_labels_carry_their_unit() {
        assert_eq!(
            labels(&log(Unit::SpanUs, 0.0, 6.0)),
            ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s"]
        );
        assert_eq!(labels(&log(Unit::Plain, 0.0, 4.0)), ["1", "10", "100", "1,000", "10,000"]);
        assert_eq!(
            labels(&log(Unit::Plain, 5.0, 7.0)).join(" "),
            "10⁵ 2×10⁵ 5×10⁵ 10⁶ 2×10⁶ 5×10⁶ 10⁷"
        );
    }

    #[test]
    fn a_narrow_logarithmic_axis_has_even_steps() {
        assert_eq!(
            labels(&log(Unit::Plain, libm::log10(30.0), libm::log10(34.0))).first(),
            Some(&"30.0")
        );
    }

    #[test]
    fn an_axis_that_almost_reaches_a_tick_goes_on_to_it() {
        let ends = |low: f64, high: f64| {
            let domain = Domain::new(Scale::Linear, low, high);
            let ruler = Ruler::nearly_exact(&Axis::linear(""), domain, 5);
            (ruler.domain.low, ruler.domain.high)
        };
        assert_eq!(ends(0.02, 999.98), (0.0, 1_000.0));
        assert_eq!(ends(30.0, 950.0), (30.0, 950.0));
    }

    #[test]
    fn an_extended_axis_ends_at_ticks() {
        let ruler = linear(Unit::Plain, -3.0, 7.0);
        assert_eq!((ruler.domain.low, ruler.domain.high), (-5.0, 10.0));
        assert_eq!(labels(&ruler), ["-5", "0", "5", "10"]);
        let fractions: Vec<f64> = ruler.ticks.iter().map(|tick| tick.fraction).collect();
        assert_eq!((fractions[0], fractions[3]), (0.0, 1.0));
    }
}
