//! Quantities as people write them: `100Gbps`, `1gbit`, `500ns`, `1.5MB`.

use std::error::Error;
use std::fmt;
#[cfg(feature = "serde")]
use std::marker::PhantomData;
use std::str::FromStr;

use crate::time::Span;
use crate::units::{Bytes, Rate};

/// A text that is no quantity. Says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuantityError {
    /// Not a number and a unit, or too large.
    Malformed {
        /// The text.
        text: String,
        /// Kind of quantity that it should be.
        what: &'static str,
        /// The units it may have.
        units: Vec<&'static str>,
        /// A well-formed example.
        example: &'static str,
    },
    /// Nothing would ever arrive.
    NoRate,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QuantityError::Malformed { text, what, units, example } => write!(
                f,
                "{text:?} is not a {what}: write a number and one of {}, such as {example:?}",
                units.join(", ")
            ),
            QuantityError::NoRate => write!(f, "a rate of 0: give at least 1bps"),
        }
    }
}

impl Error for QuantityError {}

impl FromStr for Rate {
    type Err = QuantityError;

    /// Bit/s with a decimal prefix.
    fn from_str(text: &str) -> Result<Rate, QuantityError> {
        Rate::from_bps(RATE.parse(text)?).ok_or(QuantityError::NoRate)
    }
}

impl FromStr for Span {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Span, QuantityError> {
        TIME.parse(text).map(Span::from_ps)
    }
}

impl FromStr for Bytes {
    type Err = QuantityError;

    /// Bytes with a decimal or binary prefix.
    fn from_str(text: &str) -> Result<Bytes, QuantityError> {
        SIZE.parse(text).map(Bytes::new)
    }
}

/// Files have quantities as text.
#[cfg(feature = "serde")]
macro_rules! read_from_text {
    ($($quantity:ident as $kind:ident),*) => {$(
        impl<'de> serde::Deserialize<'de> for $quantity {
            fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                source.deserialize_str(Reader { kind: &$kind, quantity: PhantomData })
            }
        }
    )*};
}
#[cfg(feature = "serde")]
read_from_text!(Rate as RATE, Span as TIME, Bytes as SIZE);

/// Reader of a quantity. Values of another type are refused with what to write.
#[cfg(feature = "serde")]
struct Reader<Q> {
    kind: &'static Kind,
    quantity: PhantomData<Q>,
}

#[cfg(feature = "serde")]
impl<Q: FromStr<Err = QuantityError>> serde::de::Visitor<'_> for Reader<Q> {
    type Value = Q;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Kind { what, example, .. } = self.kind;
        write!(f, "the {what} as text, such as {example:?}")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Q, E> {
        text.parse().map_err(E::custom)
    }
}

/// A kind of quantity, and its units.
struct Kind {
    what: &'static str,
    example: &'static str,
    /// Units and what they stand for, in the base unit.
    units: &'static [(&'static str, f64)],
    /// Other spellings that are read but not advertised.
    aliases: &'static [(&'static str, f64)],
}

const RATE: Kind = Kind {
    what: "rate",
    example: "100Gbps",
    units: &[("bps", 1.0), ("kbps", 1e3), ("Mbps", 1e6), ("Gbps", 1e9), ("Tbps", 1e12)],
    // As the network tools of Linux write them.
    aliases: &[
        ("bit", 1.0),
        ("kbit", 1e3),
        ("mbit", 1e6),
        ("Mbit", 1e6),
        ("gbit", 1e9),
        ("Gbit", 1e9),
        ("tbit", 1e12),
        ("Tbit", 1e12),
    ],
};
const TIME: Kind = Kind {
    what: "time",
    example: "500ns",
    units: &[("ps", 1.0), ("ns", 1e3), ("us", 1e6), ("µs", 1e6), ("ms", 1e9), ("s", 1e12)],
    aliases: &[],
};
const SIZE: Kind = Kind {
    what: "size",
    example: "1.5MB",
    units: &[
        ("B", 1.0),
        ("KB", 1e3),
        ("kB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
    ],
    aliases: &[],
};

impl Kind {
    fn parse(&self, text: &str) -> Result<u64, QuantityError> {
        self.value(text).ok_or_else(|| QuantityError::Malformed {
            text: text.to_owned(),
            what: self.what,
            units: self.units.iter().map(|(name, _)| *name).collect(),
            example: self.example,
        })
    }

    fn value(&self, text: &str) -> Option<u64> {
        let text = text.trim();
        let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))?;
        let (number, unit) = text.split_at(split);
        let number: f64 = number.replace('_', "").parse().ok()?;
        let mut names = self.units.iter().chain(self.aliases);
        let (_, factor) = names.find(|(name, _)| *name == unit.trim_start())?;
        let value = (number * factor).round_ties_even();
        (value < 1.8e19).then_some(value as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_written() {
        let bps = |text: &str| text.parse::<Rate>().map(Rate::as_bps);
        assert_eq!(bps("100Gbps"), Ok(100_000_000_000));
        assert_eq!(bps("2.5 Gbps"), Ok(2_500_000_000));
        assert_eq!(bps("1gbit"), Ok(1_000_000_000));
        assert_eq!(bps("100mbit"), Ok(100_000_000));
        assert_eq!("500ns".parse(), Ok(Span::from_ps(500_000)));
        assert_eq!("0.1us".parse(), Ok(Span::from_ps(100_000)));
        assert_eq!("97.5KB".parse(), Ok(Bytes::new(97_500)));
        assert_eq!("4KiB".parse(), Ok(Bytes::new(4_096)));
    }

    #[test]
    fn nonsense_is_not() {
        for text in ["", "100", "Gbps", "-1ns", "1e3ns", "1.2.3ns", "5 parsecs", "99999999s"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        assert_eq!("0bps".parse::<Rate>(), Err(QuantityError::NoRate));
        assert_eq!(
            // In some tools this would be gigabytes.
            "1gbps".parse::<Rate>().expect_err("ambiguous").to_string(),
            "\"1gbps\" is not a rate: write a number and one of bps, kbps, Mbps, Gbps, Tbps, such \
             as \"100Gbps\""
        );
    }
}
