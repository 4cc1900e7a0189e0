//! Tables: plain text for terminals here, HTML in [`crate::page`].

use std::fmt::{self, Display};

use thalweg_core::text::is_harmful;

/// The side of its column that a cell leans to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For names and words.
    Left,
    /// For numbers.
    Right,
}

/// A column: its header, and how header and cells are aligned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub(crate) header: String,
    pub(crate) align: Align,
}

impl Column {
    /// A column of words.
    pub fn left(header: impl Into<String>) -> Self {
        Self { header: header.into(), align: Align::Left }
    }

    /// A column of numbers.
    pub fn right(header: impl Into<String>) -> Self {
        Self { header: header.into(), align: Align::Right }
    }
}

/// Style of a table in a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Characters only: for files, pipes and tests.
    #[default]
    Plain,
    /// With a bold header through ANSI escapes. The caller knows whether this is a terminal.
    Ansi,
}

/// A table of text cells. [`Display`] writes it in [`Style::Plain`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self { columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// A table with a row for each of `rows`, to which columns are added.
    pub fn by_column<T>(rows: impl IntoIterator<Item = T>) -> ByColumn<T> {
        let rows: Vec<T> = rows.into_iter().collect();
        let table = Self { columns: Vec::new(), rows: vec![Vec::new(); rows.len()] };
        ByColumn { rows, table }
    }

    /// Adds a row. A short row is filled with empty cells; a long one adds columns without a
    /// header, so that no cell is lost.
    pub fn push<Cell: Into<String>>(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let row: Vec<String> = cells.into_iter().map(Into::into).collect();
        while self.columns.len() < row.len() {
            self.columns.push(Column::left(""));
        }
        self.rows.push(row);
    }

    /// The same, for tables built in one expression.
    #[must_use]
    pub fn row<Cell: Into<String>>(mut self, cells: impl IntoIterator<Item = Cell>) -> Self {
        self.push(cells);
        self
    }

    /// True if the table has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text: header, rule, rows; every line ends with a newline and without trailing blanks.
    /// A character counts as one cell wide. Control characters become blanks, so that no cell can
    /// break the layout or steer the terminal.
    pub fn to_text(&self, style: Style) -> String {
        let widths = self.widths();
        let header = self.line(&widths, |index| &self.columns[index].header);
        let rules: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
        let mut text = match style {
            Style::Plain => header,
            Style::Ansi => format!("\u{1b}[1m{header}\u{1b}[0m"),
        };
        text.push('\n');
        text.push_str(&rules.join(GAP));
        text.push('\n');
        for row in &self.rows {
            text.push_str(&self.line(&widths, |index| row.get(index).map_or("", String::as_str)));
            text.push('\n');
        }
        text
    }

    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The cells of every row, one for each column.
    pub(crate) fn rows(&self) -> impl Iterator<Item = impl Iterator<Item = (&str, Align)>> {
        self.rows.iter().map(|row| {
            self.columns
                .iter()
                .enumerate()
                .map(|(index, column)| (row.get(index).map_or("", String::as_str), column.align))
        })
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> =
            self.columns.iter().map(|column| column.header.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths
    }

    fn line<'a>(&self, widths: &[usize], cell: impl Fn(usize) -> &'a str) -> String {
        let cells: Vec<String> = (0..self.columns.len())
            .map(|index| {
                let shown = cell(index).replace(is_harmful, " ");
                let width = widths[index];
                match self.columns[index].align {
                    Align::Left => format!("{shown:<width$}"),
                    Align::Right => format!("{shown:>width$}"),
                }
            })
            .collect();
        cells.join(GAP).trim_end().to_owned()
    }
}

/// A table that is filled column by column, so that a header stands beside what is under it.
#[must_use]
pub struct ByColumn<T> {
    rows: Vec<T>,
    table: Table,
}

impl<T> ByColumn<T> {
    /// Adds a column of words.
    pub fn left(self, header: impl Into<String>, cell: impl Fn(&T) -> String) -> Self {
        self.column(Column::left(header), cell)
    }

    /// Adds a column of numbers.
    pub fn right(self, header: impl Into<String>, cell: impl Fn(&T) -> String) -> Self {
        self.column(Column::right(header), cell)
    }

    fn column(mut self, column: Column, cell: impl Fn(&T) -> String) -> Self {
        self.table.columns.push(column);
        for (row, cells) in self.rows.iter().zip(&mut self.table.rows) {
            cells.push(cell(row));
        }
        self
    }
}

impl<T> From<ByColumn<T>> for Table {
    fn from(filled: ByColumn<T>) -> Table {
        filled.table
    }
}

const GAP: &str = "  ";

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(Style::Plain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Table {
        Table::new([Column::left("arm"), Column::right("time"), Column::left("verdict")])
            .row(["ring", "12.3 µs", "exact"])
            .row(["parameter server", "1.5 ms", ""])
    }

    #[test]
    fn columns_are_aligned() {
        let expected = "\
arm                  time  verdict
────────────────  ───────  ───────
ring              12.3 µs  exact
parameter server   1.5 ms
";
        assert_eq!(example().to_text(Style::Plain), expected);
        assert_eq!(example().to_string(), expected);
    }

    #[test]
    fn the_terminal_style_changes_the_header_only() {
        let plain = example().to_text(Style::Plain);
        let ansi = example().to_text(Style::Ansi);
        let header = "arm                  time  verdict";
        assert_eq!(ansi, plain.replace(header, &format!("\u{1b}[1m{header}\u{1b}[0m")));
    }

    #[test]
    fn rows_of_the_wrong_length_lose_nothing() {
        let table =
            Table::new([Column::left("a"), Column::right("b")]).row(["1"]).row(["1", "2", "extra"]);
        assert_eq!(table.to_string(), "a  b\n─  ─  ─────\n1\n1  2  extra\n");
    }

    #[test]
    fn control_characters_cannot_steer_the_terminal() {
        let table = Table::new([Column::left("host")]).row(["a\u{1b}[2J\nb"]);
        assert_eq!(table.to_string(), "host\n───────\na [2J b\n");
    }

    #[test]
    fn a_table_without_rows_is_its_header() {
        let table = Table::new([Column::left("arm"), Column::right("time")]);
        assert!(table.is_empty());
        assert_eq!(table.to_string(), "arm  time\n───  ────\n");
    }
}
