//! Measuring and cutting of text, and formatting of coordinates.

use std::borrow::Cow;
use std::fmt::{self, Display};

use crate::format::trim_zeros;

/// Size of tick labels and legends.
pub(super) const SMALL_PX: f64 = 12.0;

/// Size of the title.
pub(super) const TITLE_PX: f64 = 15.0;

/// A generous estimate of the width: fonts are the reader's, and nothing may overlap.
pub(super) fn width_px(text: &str, size_px: f64) -> f64 {
    text.chars().count() as f64 * size_px * 0.58
}

/// The text, cut with an ellipsis where it would be wider than `limit_px`.
pub(super) fn shorten(text: &str, size_px: f64, limit_px: f64) -> Cow<'_, str> {
    if width_px(text, size_px) <= limit_px {
        return Cow::Borrowed(text);
    }
    let room = (limit_px / width_px("x", size_px)) as usize;
    let kept: String = text.chars().take(room.saturating_sub(1)).collect();
    Cow::Owned(format!("{}…", kept.trim_end()))
}

/// A coordinate: two decimals at most, never an exponent or a negative zero.
pub(super) struct Px(pub(super) f64);

impl Display for Px {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Far outside of the drawing the exact place does not matter, but the digits would.
        let text = format!("{:.2}", self.0.clamp(-1e6, 1e6));
        let trimmed = trim_zeros(&text);
        f.write_str(if trimmed == "-0" { "0" } else { trimmed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_are_short() {
        let expected = [
            (0.0, "0"),
            (-0.001, "0"),
            (1.5, "1.5"),
            (100.0, "100"),
            (1.0 / 3.0, "0.33"),
            (-2.999, "-3"),
            (1e300, "1000000"),
        ];
        for (value, text) in expected {
            assert_eq!(Px(value).to_string(), text);
        }
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(shorten("short", 10.0, 100.0), "short");
        assert_eq!(shorten("a very long name", 10.0, 58.0), "a very lo…");
        assert_eq!(shorten("abc", 10.0, 0.0), "…");
    }
}
