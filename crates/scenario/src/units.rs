//! Quantities as people write them: `"100Gbps"`, `"500ns"`, `"1.5MB"`.

use serde::{Deserialize, Deserializer, de};
use thalweg_core::{Bytes, Rate, Span};

/// Reads a rate: bit/s with a decimal prefix.
pub(crate) fn rate<'de, D: Deserializer<'de>>(source: D) -> Result<Rate, D::Error> {
    let bps = quantity(source, "rate", "\"100Gbps\"", RATES)?;
    Rate::from_bps(bps).ok_or_else(|| de::Error::custom("a rate of 0: give at least 1bps"))
}

/// Reads a span of time.
pub(crate) fn span<'de, D: Deserializer<'de>>(source: D) -> Result<Span, D::Error> {
    quantity(source, "time", "\"500ns\"", SPANS).map(Span::from_ps)
}

/// Reads a span of time that may be left out.
pub(crate) fn optional_span<'de, D: Deserializer<'de>>(
    source: D,
) -> Result<Option<Span>, D::Error> {
    span(source).map(Some)
}

/// Reads a size: bytes with a decimal or binary prefix.
pub(crate) fn bytes<'de, D: Deserializer<'de>>(source: D) -> Result<Bytes, D::Error> {
    quantity(source, "size", "\"1.5MB\"", SIZES).map(Bytes::new)
}

/// Reads a size that may be left out.
pub(crate) fn optional_bytes<'de, D: Deserializer<'de>>(
    source: D,
) -> Result<Option<Bytes>, D::Error> {
    bytes(source).map(Some)
}

/// A size from the text that stands for one.
pub(crate) fn size(text: &str) -> Option<Bytes> {
    parse(text, SIZES).map(Bytes::new)
}

/// Units and what they stand for, in the base unit.
type Units = &'static [(&'static str, f64)];

const RATES: Units = &[("bps", 1.0), ("kbps", 1e3), ("Mbps", 1e6), ("Gbps", 1e9), ("Tbps", 1e12)];
const SPANS: Units =
    &[("ps", 1.0), ("ns", 1e3), ("us", 1e6), ("µs", 1e6), ("ms", 1e9), ("s", 1e12)];
const SIZES: Units = &[
    ("B", 1.0),
    ("KB", 1e3),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
];

fn quantity<'de, D: Deserializer<'de>>(
    source: D,
    what: &str,
    example: &str,
    units: Units,
) -> Result<u64, D::Error> {
    let text = String::deserialize(source)
        .map_err(|_| de::Error::custom(format!("write the {what} as text, such as {example}")))?;
    parse(&text, units).ok_or_else(|| {
        let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
        de::Error::custom(format!(
            "{text:?} is not a {what}: write a number and one of {}, such as {example}",
            names.join(", ")
        ))
    })
}

fn parse(text: &str, units: Units) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))?;
    let (number, unit) = text.split_at(split);
    let number: f64 = number.replace('_', "").parse().ok()?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    let value = (number * factor).round_ties_even();
    (value < 1.8e19).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_written() {
        assert_eq!(parse("100Gbps", RATES), Some(100_000_000_000));
        assert_eq!(parse("2.5 Gbps", RATES), Some(2_500_000_000));
        assert_eq!(parse("500ns", SPANS), Some(500_000));
        assert_eq!(parse("0.1us", SPANS), Some(100_000));
        assert_eq!(parse("97.5KB", SIZES), Some(97_500));
        assert_eq!(parse("4KiB", SIZES), Some(4_096));
    }

    #[test]
    fn nonsense_is_not() {
        for text in ["", "100", "Gbps", "-1ns", "1e3ns", "1.2.3ns", "5 parsecs", "99999999s"] {
            assert_eq!(parse(text, SPANS), None, "{text}");
        }
    }
}
