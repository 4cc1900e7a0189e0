//! Positions of the names of the series.

use super::Chart;
use super::text::{SMALL_PX, shorten, width_px};

/// The height of one row of names.
pub(super) const ROW_PX: f64 = 20.0;

/// The room a sample of the mark takes in front of its name.
pub(super) const SWATCH_PX: f64 = 18.0;

/// A name, placed: `left` is where its sample begins, `row` counts from the top.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    /// The series it names; `None` for the note that stands for the names that did not fit.
    pub(super) series: Option<usize>,
    pub(super) text: String,
    pub(super) left: f64,
    pub(super) row: usize,
}

/// Fills rows from `left` to `right`, at most `max_rows` of them. A single series needs no legend.
pub(super) fn place(chart: &Chart, left: f64, right: f64, max_rows: usize) -> Vec<Entry> {
    if chart.series.len() < 2 {
        return Vec::new();
    }
    let mut flow = Flow { left, right, cursor: left, row: 0 };
    let mut entries: Vec<Entry> = Vec::new();
    for (index, series) in chart.series.iter().enumerate() {
        let text = shorten(&series.name, SMALL_PX, right - left - SWATCH_PX - GAP_PX);
        let (left, row) = flow.take(width_px(&text, SMALL_PX));
        entries.push(Entry { series: Some(index), text: text.into_owned(), left, row });
    }
    cut_to_rows(&mut entries, max_rows);
    entries
}

const GAP_PX: f64 = 22.0;

struct Flow {
    left: f64,
    right: f64,
    cursor: f64,
    row: usize,
}

impl Flow {
    /// The place of an entry whose text is this wide.
    fn take(&mut self, text_px: f64) -> (f64, usize) {
        let width = SWATCH_PX + text_px;
        if self.cursor > self.left && self.cursor + width > self.right {
            self.cursor = self.left;
            self.row += 1;
        }
        let place = (self.cursor, self.row);
        self.cursor += width + GAP_PX;
        place
    }
}

/// Replaces what does not fit by a note in the place of the last entry that does.
fn cut_to_rows(entries: &mut Vec<Entry>, max_rows: usize) {
    let fitting = entries.partition_point(|entry| entry.row < max_rows);
    let hidden = entries.len() - fitting;
    if hidden == 0 {
        return;
    }
    entries.truncate(fitting);
    if let Some(last) = entries.last_mut() {
        last.series = None;
        last.text = format!("and {} more", hidden + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::Series;

    fn chart(names: &[&str]) -> Chart {
        names.iter().fold(Chart::new(""), |chart, name| chart.series(Series::line(*name, vec![])))
    }

    #[test]
    fn one_series_needs_no_legend() {
        assert_eq!(place(&chart(&["a"]), 0.0, 100.0, 3), []);
    }

    #[test]
    fn rows_wrap_and_never_reach_beyond_the_right_end() {
        let entries = place(&chart(&["first name", "second name", "third", "x"]), 10.0, 240.0, 5);
        let rows: Vec<usize> = entries.iter().map(|entry| entry.row).collect();
        assert_eq!(rows, [0, 0, 1, 1]);
        for entry in &entries {
            assert!(entry.left + SWATCH_PX + width_px(&entry.text, SMALL_PX) <= 240.0);
        }
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let names: Vec<String> = (0..30).map(|index| format!("series {index:02}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let entries = place(&chart(&names), 0.0, 200.0, 2);
        let shown = entries.iter().filter(|entry| entry.series.is_some()).count();
        assert_eq!(entries.last().unwrap().text, format!("and {} more", 30 - shown));
        assert!(entries.iter().all(|entry| entry.row < 2));
    }
}
