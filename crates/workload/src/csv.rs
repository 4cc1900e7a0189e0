//! Small tables of numbers as text: a fixed header, then rows of that many numbers.

use thiserror::Error;

/// Numbers above this are not whole in floating point, and no table means them.
const LARGEST: u64 = 1 << 53;

/// A mistake in a table: the line, and what to change.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("line {line}: {message}")]
pub struct TableError {
    /// The line, from 1.
    pub line: usize,
    /// The mistake, and what to change.
    pub message: String,
}

/// One row under the header.
pub(crate) struct Row<'a, const N: usize> {
    /// Counted from 1, the header included.
    pub(crate) line: usize,
    header: &'static str,
    cells: [&'a str; N],
}

/// True if the first line is this header.
pub(crate) fn has_header(text: &str, header: &str) -> bool {
    lines(text).next().is_some_and(|first| first == header)
}

/// The rows of a table of `N` columns. Empty lines do not count as rows.
pub(crate) fn rows<'a, const N: usize>(
    text: &'a str,
    header: &'static str,
) -> Result<Vec<Row<'a, N>>, TableError> {
    let mut lines = lines(text).enumerate();
    let wrong = |message| Err(TableError { line: 1, message });
    match lines.next() {
        None => return wrong(format!("the table is empty: start it with the line `{header}`")),
        Some((_, first)) if first != header => {
            return wrong(format!(
                "`{first}` stands in place of the header `{header}`: write that"
            ));
        }
        Some(_) => {}
    }
    lines
        .filter(|(_, line)| !line.is_empty())
        .map(|(index, line)| row(index + 1, line, header))
        .collect()
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    // Spreadsheets put a byte-order mark in front.
    text.trim_start_matches('\u{feff}').lines().map(str::trim)
}

fn row<'a, const N: usize>(
    line: usize,
    text: &'a str,
    header: &'static str,
) -> Result<Row<'a, N>, TableError> {
    let cells: Vec<&str> = text.split(',').map(str::trim).collect();
    let cells = cells.try_into().map_err(|cells: Vec<&str>| {
        let found = cells.len();
        let message = format!("{found} columns are not those of the header `{header}`: give these");
        TableError { line, message }
    })?;
    Ok(Row { line, header, cells })
}

impl<const N: usize> Row<'_, N> {
    /// The cell as a number that is not negative.
    pub(crate) fn number(&self, column: usize) -> Result<f64, TableError> {
        let number = self.cells[column].parse::<f64>().ok();
        number
            .filter(|number| (0.0..=LARGEST as f64).contains(number))
            .ok_or_else(|| self.wanted(column, "a number"))
    }

    /// The cell as a whole number.
    pub(crate) fn whole(&self, column: usize) -> Result<u64, TableError> {
        let number = self.cells[column].parse::<u64>().ok();
        number
            .filter(|&number| number <= LARGEST)
            .ok_or_else(|| self.wanted(column, "a whole number"))
    }

    /// The cell as it is.
    pub(crate) fn text(&self, column: usize) -> &str {
        self.cells[column]
    }

    /// Returns a mistake in this row.
    pub(crate) fn wrong(&self, message: String) -> TableError {
        TableError { line: self.line, message }
    }

    fn wanted(&self, column: usize, wanted: &str) -> TableError {
        let name = self.header.split(',').nth(column).unwrap_or("cell");
        let found = self.cells[column];
        self.wrong(format!("{name} is `{found}`: write {wanted} from 0 to 2^53"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "left,right";

    fn sum(text: &str) -> Result<f64, TableError> {
        let rows = rows::<2>(text, HEADER)?;
        rows.iter().try_fold(0.0, |sum, row| Ok(sum + row.number(0)? + row.whole(1)? as f64))
    }

    fn complaint(text: &str) -> String {
        sum(text).expect_err("a broken table").to_string()
    }

    #[test]
    fn line_ends_blanks_and_byte_order_marks_do_not_matter() {
        assert_eq!(sum("left,right\n1.5,2\n3e1,4\n"), Ok(37.5));
        assert_eq!(sum("\u{feff}left,right\r\n\r\n 1.5 , 2\r\n"), Ok(3.5));
        assert_eq!(sum("left,right"), Ok(0.0));
    }

    #[test]
    fn complaints_name_the_line_and_the_change() {
        assert_eq!(
            complaint(""),
            "line 1: the table is empty: start it with the line `left,right`"
        );
        assert_eq!(
            complaint("1,2"),
            "line 1: `1,2` stands in place of the header `left,right`: write that"
        );
        assert_eq!(
            complaint("left,right\n1,2\n\n3"),
            "line 4: 1 columns are not those of the header `left,right`: give these"
        );
        assert_eq!(
            complaint("left,right\n1,2.5"),
            "line 2: right is `2.5`: write a whole number from 0 to 2^53"
        );
        for bad in ["x", "-1", "nan", "inf", "1e300", ""] {
            let message = format!("line 2: left is `{bad}`: write a number from 0 to 2^53");
            assert_eq!(complaint(&format!("left,right\n{bad},2")), message);
        }
    }
}
