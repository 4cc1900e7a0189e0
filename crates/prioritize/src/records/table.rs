//! The text of a table of flows.

use std::net::Ipv4Addr;

use thalweg_core::{Bytes, Span, Time};
use thiserror::Error;

use super::{Record, Records};
use crate::features::FiveTuple;

/// Numbers above this are not whole in floating point, and no table means them.
const LARGEST: u64 = 1 << 53;

/// The columns that mean something, in the order of [`NAMES`].
#[derive(Clone, Copy)]
enum Column {
    Start,
    Src,
    Dst,
    Bytes,
    SrcPort,
    DstPort,
    Protocol,
    End,
    Fct,
}

const NAMES: [&str; 9] =
    ["start_us", "src", "dst", "bytes", "src_port", "dst_port", "protocol", "end_us", "fct_us"];
/// The first so many have to be there.
const REQUIRED: usize = 4;

impl Column {
    fn name(self) -> &'static str {
        NAMES[self as usize]
    }
}

/// Why a table of flows cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RecordError {
    /// There is nothing at all.
    #[error("the table is empty: start it with a header such as `{REQUIRED_HEADER}`")]
    Empty,
    /// The header lacks what every flow has.
    #[error("line 1: there is no column {0}: the header needs {REQUIRED_HEADER}")]
    NoColumn(&'static str),
    /// The header names something twice.
    #[error("line 1: column {0} stands there twice: drop one of them")]
    Twice(&'static str),
    /// A row is shorter or longer than the header.
    #[error("line {line}: {found} columns, but the header has {expected}")]
    Columns {
        /// Counted from 1.
        line: usize,
        /// How many cells it has.
        found: usize,
        /// How many it should have.
        expected: usize,
    },
    /// A cell does not hold what its column is for.
    #[error("line {line}, column {column}: `{found}` is not {wanted}")]
    Value {
        /// Counted from 1.
        line: usize,
        /// The column's name.
        column: &'static str,
        /// What the cell holds.
        found: String,
        /// What it should hold.
        wanted: &'static str,
    },
    /// A flow ends before it starts.
    #[error("line {line}, column end_us: the flow ends before it starts")]
    EndsBefore {
        /// Counted from 1.
        line: usize,
    },
}

const REQUIRED_HEADER: &str = "start_us,src,dst,bytes";

pub(super) fn read(text: &str) -> Result<Records, RecordError> {
    // Spreadsheets put a byte-order mark in front.
    let mut lines = text.trim_start_matches('\u{feff}').lines().map(str::trim).enumerate();
    let (_, header) = lines.next().ok_or(RecordError::Empty)?;
    let columns = Columns::find(header)?;
    let (mut flows, mut unfinished) = (Vec::new(), 0);
    for (index, text) in lines.filter(|(_, line)| !line.is_empty()) {
        let cells: Vec<&str> = text.split(',').map(str::trim).collect();
        let line = index + 1;
        if cells.len() != columns.expected {
            let (found, expected) = (cells.len(), columns.expected);
            return Err(RecordError::Columns { line, found, expected });
        }
        match (Row { line, cells, columns: &columns }).record()? {
            Some(flow) => flows.push(flow),
            None => unfinished += 1,
        }
    }
    flows.sort_by_key(|flow: &Record| flow.start);
    Ok(Records { flows, unfinished })
}

/// Where the columns are.
struct Columns {
    places: [Option<usize>; NAMES.len()],
    expected: usize,
}

impl Columns {
    fn find(header: &str) -> Result<Columns, RecordError> {
        let names: Vec<&str> = header.split(',').map(str::trim).collect();
        if header.is_empty() {
            return Err(RecordError::Empty);
        }
        let mut places = [None; NAMES.len()];
        for (column, place) in NAMES.into_iter().zip(&mut places) {
            let mut found = names.iter().enumerate().filter(|(_, name)| **name == column);
            *place = found.next().map(|(place, _)| place);
            if found.next().is_some() {
                return Err(RecordError::Twice(column));
            }
        }
        match (0..REQUIRED).find(|&column| places[column].is_none()) {
            Some(missing) => Err(RecordError::NoColumn(NAMES[missing])),
            None => Ok(Columns { places, expected: names.len() }),
        }
    }
}

struct Row<'a> {
    line: usize,
    cells: Vec<&'a str>,
    columns: &'a Columns,
}

impl Row<'_> {
    /// `None` for a flow that did not end.
    fn record(&self) -> Result<Option<Record>, RecordError> {
        let start = self.time(Column::Start)?;
        let tuple = FiveTuple {
            src: self.address(Column::Src)?,
            dst: self.address(Column::Dst)?,
            src_port: self.port(Column::SrcPort)?,
            dst_port: self.port(Column::DstPort)?,
            protocol: self.protocol()?,
        };
        let bytes = Bytes::new(self.whole(Column::Bytes)?);
        let end = match (self.cell(Column::End), self.cell(Column::Fct)) {
            (Some(""), _) | (None, Some("")) => return Ok(None),
            (Some(_), _) => self.time(Column::End)?,
            (None, Some(_)) => start + self.span(Column::Fct)?,
            (None, None) => start,
        };
        if end < start {
            return Err(RecordError::EndsBefore { line: self.line });
        }
        Ok(Some(Record { tuple, start, end, bytes }))
    }

    fn cell(&self, column: Column) -> Option<&str> {
        self.columns.places[column as usize].map(|place| self.cells[place])
    }

    fn wrong(&self, column: Column, wanted: &'static str) -> RecordError {
        let found = self.cell(column).unwrap_or_default().to_owned();
        RecordError::Value { line: self.line, column: column.name(), found, wanted }
    }

    fn time(&self, column: Column) -> Result<Time, RecordError> {
        Ok(Time::ZERO + self.span(column)?)
    }

    fn span(&self, column: Column) -> Result<Span, RecordError> {
        // 213 days are all that a time holds; half of them leave room for sums.
        const LONGEST_US: f64 = 9e12;
        let number = self.cell(column).and_then(|cell| cell.parse::<f64>().ok());
        let number = number.filter(|number| (0.0..=LONGEST_US).contains(number));
        number
            .map(Span::from_us_f64)
            .ok_or_else(|| self.wrong(column, "a number of microseconds from 0 to 9e12"))
    }

    fn whole(&self, column: Column) -> Result<u64, RecordError> {
        let number = self.cell(column).and_then(|cell| cell.parse::<u64>().ok());
        number
            .filter(|&number| number <= LARGEST)
            .ok_or_else(|| self.wrong(column, "a whole number from 0 to 2^53"))
    }

    fn address(&self, column: Column) -> Result<u32, RecordError> {
        let cell = self.cell(column).unwrap_or_default();
        let address = cell.parse::<Ipv4Addr>().map(u32::from).or_else(|_| cell.parse::<u32>());
        address.map_err(|_| self.wrong(column, "an IPv4 address or the number of a host"))
    }

    fn port(&self, column: Column) -> Result<u16, RecordError> {
        let Some(cell) = self.cell(column) else { return Ok(0) };
        cell.parse().map_err(|_| self.wrong(column, "a port from 0 to 65535"))
    }

    fn protocol(&self) -> Result<u8, RecordError> {
        match self.cell(Column::Protocol) {
            None => Ok(0),
            Some(name) if name.eq_ignore_ascii_case("tcp") => Ok(6),
            Some(name) if name.eq_ignore_ascii_case("udp") => Ok(17),
            Some(number) => number
                .parse()
                .map_err(|_| self.wrong(Column::Protocol, "tcp, udp or a number from 0 to 255")),
        }
    }
}
