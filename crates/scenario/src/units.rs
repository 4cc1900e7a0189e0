//! Quantities in a file are text: `"100Gbps"`, `"500ns"`, `"1.5MB"`.

use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};
use thalweg_core::{Bytes, QuantityError, Rate, Span};

/// Reads a rate: bit/s with a decimal prefix.
pub(crate) fn rate<'de, D: Deserializer<'de>>(source: D) -> Result<Rate, D::Error> {
    quantity(source, "rate", "\"100Gbps\"")
}

/// Reads a span of time.
pub(crate) fn span<'de, D: Deserializer<'de>>(source: D) -> Result<Span, D::Error> {
    quantity(source, "time", "\"500ns\"")
}

/// Reads a span of time that may be left out.
pub(crate) fn optional_span<'de, D: Deserializer<'de>>(
    source: D,
) -> Result<Option<Span>, D::Error> {
    span(source).map(Some)
}

/// Reads a size: bytes with a decimal or binary prefix.
pub(crate) fn bytes<'de, D: Deserializer<'de>>(source: D) -> Result<Bytes, D::Error> {
    quantity(source, "size", "\"1.5MB\"")
}

/// Reads a size that may be left out.
pub(crate) fn optional_bytes<'de, D: Deserializer<'de>>(
    source: D,
) -> Result<Option<Bytes>, D::Error> {
    bytes(source).map(Some)
}

fn quantity<'de, D: Deserializer<'de>, Q: FromStr<Err = QuantityError>>(
    source: D,
    what: &str,
    example: &str,
) -> Result<Q, D::Error> {
    let text = String::deserialize(source)
        .map_err(|_| de::Error::custom(format!("write the {what} as text, such as {example}")))?;
    text.parse().map_err(de::Error::custom)
}
