//! Small tables of numbers as text: a fixed header, then rows of that many numbers.

use thiserror::Error;

/// Numbers above this are not whole in floating point, and no table means them.
const LARGEST: u64 = 1 << 53;

/// What is wrong with the form of a table.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CsvError {
    /// There is not even a header.
    #[error("the table is empty: start it with the line `{header}`")]
    Empty {
        /// The line to start with.
        header: &'static str,
    },
    /// The first line is something else.
    #[error("line 1 is `{found}`: make it the header `{header}`")]
    Header {
        /// What it is.
        found: String,
        /// What it has to be.
        header: &'static str,
    },
    /// A row has too few or too many cells.
    #[error("line {line} has {found} columns: give it those of the header `{header}`")]
    Columns {
        /// Counted from 1.
        line: usize,
        /// How many cells it has.
        found: usize,
        /// What the cells are.
        header: &'static str,
    },
    /// A cell does not hold what its column is for.
    #[error("line {line}: {column} is `{found}`: write {wanted} from 0 to 2^53")]
    Value {
        /// Counted from 1.
        line: usize,
        /// The column's name.
        column: &'static str,
        /// What the cell holds.
        found: String,
        /// What it has to hold.
        wanted: &'static str,
    },
}

/// One row under the header.
pub(crate) struct Row<'a, const N: usize> {
    /// Counted from 1, the header included.
    pub(crate) line: usize,
    header: &'static str,
    cells: [&'a str; N],
}

/// Whether the first line is this one.
pub(crate) fn has_header(text: &str, header: &str) -> bool {
    lines(text).next().is_some_and(|first| first == header)
}

/// The rows of a table of `N` columns. Empty lines do not count as rows.
pub(crate) fn rows<'a, const N: usize>(
    text: &'a str,
    header: &'static str,
) -> Result<Vec<Row<'a, N>>, CsvError> {
    let mut lines = lines(text).enumerate();
    match lines.next() {
        None => return Err(CsvError::Empty { header }),
        Some((_, first)) if first != header => {
            return Err(CsvError::Header { found: first.to_string(), header });
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
) -> Result<Row<'a, N>, CsvError> {
    let cells: Vec<&str> = text.split(',').map(str::trim).collect();
    let found = cells.len();
    let cells = cells.try_into().map_err(|_| CsvError::Columns { line, found, header })?;
    Ok(Row { line, header, cells })
}

impl<const N: usize> Row<'_, N> {
    /// The cell as a number that is not negative.
    pub(crate) fn number(&self, column: usize) -> Result<f64, CsvError> {
        let number = self.cells[column].parse::<f64>().ok();
        number
            .filter(|number| (0.0..=LARGEST as f64).contains(number))
            .ok_or_else(|| self.wanted(column, "a number"))
    }

    /// The cell as a whole number.
    pub(crate) fn whole(&self, column: usize) -> Result<u64, CsvError> {
        let number = self.cells[column].parse::<u64>().ok();
        number
            .filter(|&number| number <= LARGEST)
            .ok_or_else(|| self.wanted(column, "a whole number"))
    }

    /// The cell as it is.
    pub(crate) fn text(&self, column: usize) -> &str {
        self.cells[column]
    }

    fn wanted(&self, column: usize, wanted: &'static str) -> CsvError {
        CsvError::Value {
            line: self.line,
            column: self.header.split(',').nth(column).unwrap_or("cell"),
            found: self.cells[column].to_string(),
            wanted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "left,right";

    fn sum(text: &str) -> Result<f64, CsvError> {
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
        assert_eq!(complaint(""), "the table is empty: start it with the line `left,right`");
        assert_eq!(complaint("1,2"), "line 1 is `1,2`: make it the header `left,right`");
        assert_eq!(
            complaint("left,right\n1,2\n\n3"),
            "line 4 has 1 columns: give it those of the header `left,right`"
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
