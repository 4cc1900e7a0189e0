//! Numbers as people read them: three significant digits, a fitting unit, thousands grouped.
//!
//! A value that is not finite is never printed; [`MISSING`] stands in its place.

/// Text in place of a number where there is nothing to show.
pub const MISSING: &str = "–";

/// Unit of a number, which decides how it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// A bare number.
    #[default]
    Plain,
    /// Bytes, in decimal multiples.
    Bytes,
    /// Microseconds; written in ns, µs, ms or s.
    SpanUs,
    /// Bits per second.
    BitsPerSecond,
    /// A fraction, written as a percentage: 0.5 is 50%.
    Percent,
    /// A factor, written with a times sign.
    Ratio,
}

impl Unit {
    /// Writes a value given in this unit's base (bytes, microseconds, bits per second, a fraction).
    pub fn format(self, value: f64) -> String {
        if !value.is_finite() {
            return MISSING.to_owned();
        }
        let step = self.step_for(value);
        format!("{}{}", significant(value / power_of_ten(step.exponent)), step.suffix)
    }

    /// The largest step that shows `value` as at least 1, after rounding to three digits.
    pub(crate) fn step_for(self, value: f64) -> UnitStep {
        let steps = self.steps();
        let magnitude = value.abs();
        let fitting =
            steps.iter().rev().find(|step| magnitude >= 0.9995 * power_of_ten(step.exponent));
        *fitting.unwrap_or(&steps[self.smallest_for_zero(magnitude)])
    }

    /// True if the suffix is written on every number of an axis rather than once in its label.
    pub(crate) fn suffix_is_a_sign(self) -> bool {
        matches!(self, Self::Percent | Self::Ratio)
    }

    fn steps(self) -> &'static [UnitStep] {
        match self {
            Self::Plain => &PLAIN,
            Self::Bytes => &BYTES,
            Self::SpanUs => &SPAN_US,
            Self::BitsPerSecond => &BITS_PER_SECOND,
            Self::Percent => &PERCENT,
            Self::Ratio => &RATIO,
        }
    }

    /// Zero has no magnitude to choose by: no time at all is "0 s", not "0 ns".
    fn smallest_for_zero(self, magnitude: f64) -> usize {
        if self == Self::SpanUs && magnitude == 0.0 { SPAN_US.len() - 1 } else { 0 }
    }
}

/// A multiple of a unit: values are divided by ten to the `exponent` and followed by the `suffix`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnitStep {
    pub(crate) exponent: i32,
    pub(crate) suffix: &'static str,
}

const fn step(exponent: i32, suffix: &'static str) -> UnitStep {
    UnitStep { exponent, suffix }
}

const PLAIN: [UnitStep; 1] = [step(0, "")];
const PERCENT: [UnitStep; 1] = [step(-2, "%")];
const RATIO: [UnitStep; 1] = [step(0, "×")];
const SPAN_US: [UnitStep; 4] = [step(-3, " ns"), step(0, " µs"), step(3, " ms"), step(6, " s")];
const BYTES: [UnitStep; 7] = [
    step(0, " B"),
    step(3, " KB"),
    step(6, " MB"),
    step(9, " GB"),
    step(12, " TB"),
    step(15, " PB"),
    step(18, " EB"),
];
const BITS_PER_SECOND: [UnitStep; 5] =
    [step(0, " bps"), step(3, " Kbps"), step(6, " Mbps"), step(9, " Gbps"), step(12, " Tbps")];

/// Bytes in decimal multiples: `1.5 KB`, `12.3 MB`.
pub fn format_bytes(bytes: u64) -> String {
    Unit::Bytes.format(bytes as f64)
}

/// A span given in microseconds, in the unit that fits: `250 ns`, `12.3 µs`, `1.5 ms`, `2 s`.
pub fn format_span_us(span_us: f64) -> String {
    Unit::SpanUs.format(span_us)
}

/// A rate given in bits per second: `9.41 Gbps`.
pub fn format_rate_bps(rate_bps: f64) -> String {
    Unit::BitsPerSecond.format(rate_bps)
}

/// A factor: `1.53×`.
pub fn format_ratio(ratio: f64) -> String {
    Unit::Ratio.format(ratio)
}

/// A fraction as a percentage: 0.123 is `12.3%`.
pub fn format_percent(fraction: f64) -> String {
    Unit::Percent.format(fraction)
}

/// A bare number with three significant digits: `0.953`, `12,346`, `1.5×10²⁰`.
pub fn format_number(value: f64) -> String {
    Unit::Plain.format(value)
}

/// A whole number with its thousands grouped: `12,345`.
pub fn format_count(count: u64) -> String {
    group_thousands(&count.to_string())
}

/// Three significant digits without trailing zeros; whole digits are never rounded away below the
/// scientific range.
fn significant(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude == 0.0 {
        return "0".to_owned();
    }
    if !(0.001..1e15).contains(&magnitude) {
        return scientific(value);
    }
    let decimals = match magnitude {
        m if m < 0.01 => 5,
        m if m < 0.1 => 4,
        m if m < 1.0 => 3,
        m if m < 10.0 => 2,
        m if m < 100.0 => 1,
        _ => 0,
    };
    group_thousands(trim_zeros(&format!("{value:.decimals$}")))
}

fn scientific(value: f64) -> String {
    let text = format!("{value:.2e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    format!("{}×10{}", trim_zeros(mantissa), superscript(exponent))
}

/// A decimal exponent in superscript digits.
pub(crate) fn superscript(exponent: &str) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let raise = |c: char| c.to_digit(10).map_or('⁻', |digit| DIGITS[digit as usize]);
    exponent.chars().map(raise).collect()
}

/// Groups the whole digits of a decimal number by thousands.
pub(crate) fn group_thousands(number: &str) -> String {
    let (sign, unsigned) = number.strip_prefix('-').map_or(("", number), |rest| ("-", rest));
    let whole_digits = unsigned.find('.').unwrap_or(unsigned.len());
    let mut grouped = String::from(sign);
    for (index, digit) in unsigned.char_indices() {
        if index > 0 && index < whole_digits && (whole_digits - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Drops the zeros behind a decimal point, and the point when nothing is left behind it.
pub(crate) fn trim_zeros(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

/// Ten to a power, correctly rounded on every machine, which `powi` does not promise.
pub(crate) fn power_of_ten(exponent: i32) -> f64 {
    format!("1e{exponent}").parse().expect("a decimal literal always parses")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_are_decimal() {
        let expected = [
            (0, "0 B"),
            (999, "999 B"),
            (1_500, "1.5 KB"),
            (60_000, "60 KB"),
            (1_234_567, "1.23 MB"),
            (999_999, "1 MB"),
            (100_000_000_000, "100 GB"),
            (u64::MAX, "18.4 EB"),
        ];
        for (bytes, text) in expected {
            assert_eq!(format_bytes(bytes), text);
        }
    }

    #[test]
    fn spans_pick_their_unit() {
        let expected = [
            (0.0, "0 s"),
            (0.000_1, "0.1 ns"),
            (0.25, "250 ns"),
            (1.0, "1 µs"),
            (12.34, "12.3 µs"),
            (999.96, "1 ms"),
            (1_500.0, "1.5 ms"),
            (-1_500.0, "-1.5 ms"),
            (2_500_000.0, "2.5 s"),
            (3_600_000_000.0, "3,600 s"),
        ];
        for (span_us, text) in expected {
            assert_eq!(format_span_us(span_us), text);
        }
    }

    #[test]
    fn counts_are_grouped() {
        let expected = [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (12_345, "12,345"),
            (1_234_567, "1,234,567"),
        ];
        for (count, text) in expected {
            assert_eq!(format_count(count), text);
        }
    }

    #[test]
    fn ratios_percentages_rates_and_bare_numbers() {
        assert_eq!(format_ratio(1.534), "1.53×");
        assert_eq!(format_ratio(0.953), "0.953×");
        assert_eq!(format_percent(0.1234), "12.3%");
        assert_eq!(format_percent(0.000_05), "0.005%");
        assert_eq!(format_percent(1.0), "100%");
        assert_eq!(format_rate_bps(9.412e9), "9.41 Gbps");
        assert_eq!(format_number(12_345.6), "12,346");
        assert_eq!(format_number(0.0123), "0.0123");
        assert_eq!(format_number(9.999), "10");
        assert_eq!(format_number(1.5e20), "1.5×10²⁰");
        assert_eq!(format_number(-2e-7), "-2×10⁻⁷");
    }

    #[test]
    fn what_is_not_finite_is_not_printed() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(format_span_us(value), "–");
            assert_eq!(format_ratio(value), "–");
        }
    }

    proptest! {
        #[test]
        fn three_digits_are_within_half_a_percent(value in 0.001_f64..999.0) {
            let read_back: f64 = format_number(value).parse().unwrap();
            prop_assert!((read_back - value).abs() <= value * 0.005);
        }

        #[test]
        fn grouping_keeps_the_digits(count: u64) {
            prop_assert_eq!(format_count(count).replace(',', ""), count.to_string());
        }
    }
}
