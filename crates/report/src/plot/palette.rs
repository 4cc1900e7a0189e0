//! Colours, dashes and symbols that tell series apart.

/// Blue, vermilion, green, purple, orange, sky and grey: the colours of Okabe and Ito, without the
/// yellow, which is hard to read on white. Pages brighten them for dark screens.
const COLORS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#b8609a", "#dd9400", "#4ba6dc", "#808080"];

/// Line patterns: the second and later rounds through the colours are dashed.
const DASHES: [&str; 4] = ["", "7 4", "2 4", "10 4 2 4"];

/// Symbols as paths around the point: circle, square, triangle, diamond.
const SYMBOLS: [&str; 4] = [
    "m-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0-6.4 0z",
    "m-2.8-2.8h5.6v5.6h-5.6z",
    "m0-3.8l3.6 6.4h-7.2z",
    "m0-4l4 4l-4 4l-4-4z",
];

/// The CSS colour of the series at `index`.
pub(super) fn color(index: usize) -> String {
    let place = index % COLORS.len();
    format!("var(--series-{},{})", place + 1, COLORS[place])
}

pub(super) fn dash(index: usize) -> &'static str {
    DASHES[index / COLORS.len() % DASHES.len()]
}

pub(super) fn symbol(index: usize) -> &'static str {
    SYMBOLS[index % SYMBOLS.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_series_stay_distinct() {
        let looks: std::collections::BTreeSet<_> = (0..28).map(|i| (color(i), dash(i))).collect();
        assert_eq!(looks.len(), 28);
        assert_eq!(color(1), "var(--series-2,#d55e00)");
        assert_eq!((dash(0), dash(7)), ("", "7 4"));
    }

    #[test]
    fn a_dark_page_sets_every_colour() {
        let style = include_str!("../page/style.css");
        for number in 1..=COLORS.len() {
            assert_eq!(style.matches(&format!("--series-{number}: #")).count(), 1, "{number}");
        }
        assert_eq!(style.matches("--series-").count(), COLORS.len());
    }
}
