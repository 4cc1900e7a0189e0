//! The text of a table of flows.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use thalweg_core::{Bytes, Span, Time};
use thiserror::Error;

use super::{Noted, Record, Records};
use crate::features::{FiveTuple, LAST_FLOWS, NewFlow};

/// Numbers above this are not whole in floating point, and no table means them.
const LARGEST: u64 = 1 << 53;
/// The columns that every table has.
const REQUIRED: [&str; 4] = ["start_us", "src", "dst", "bytes"];
/// The other columns that mean something.
const OPTIONAL: [&str; 5] = ["src_port", "dst_port", "protocol", "end_us", "fct_us"];

/// The columns of noted features: all or none of them.
const NOTED: [&str; 1 + LAST_FLOWS] = ["gap_us", "last_1", "last_2", "last_3", "last_4", "last_5"];

/// Writes flows with their features, as [`Records::from_csv`] reads them.
pub fn to_csv(flows: &[(NewFlow, Bytes)]) -> String {
    let columns = ["start_us,src,dst,src_port,dst_port,protocol,bytes", &NOTED.join(",")];
    let mut text = columns.join(",") + "\n";
    for (flow, bytes) in flows {
        let FiveTuple { src, dst, src_port, dst_port, protocol } = flow.tuple;
        let (src, dst) = (Ipv4Addr::from(src), Ipv4Addr::from(dst));
        let gap = flow.gap.map_or(String::new(), |gap| gap.as_us_f64().to_string());
        let (start, bytes) = (flow.start.as_us_f64(), bytes.as_u64());
        let ends = format!("{src},{dst},{src_port},{dst_port},{protocol}");
        write!(text, "{start},{ends},{bytes},{gap}").expect("a string takes all");
        for last in flow.last_bytes {
            write!(text, ",{}", last.as_u64()).expect("a string takes all");
        }
        text.push('\n');
    }
    text
}

/// Why a table of flows cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("line {line}: {message}")]
pub struct RecordError {
    /// The line, from 1.
    pub line: usize,
    /// The mistake there.
    pub message: String,
}

pub(super) fn read(text: &str) -> Result<Records, RecordError> {
    // Spreadsheets put a byte-order mark in front.
    let mut lines = text.trim_start_matches('\u{feff}').lines().map(str::trim).zip(1..);
    let columns = cells(lines.next().map_or("", |(header, _)| header));
    check_header(&columns).map_err(|message| RecordError { line: 1, message })?;
    let (mut flows, mut unfinished) = (Vec::new(), 0);
    for (text, line) in lines.filter(|(text, _)| !text.is_empty()) {
        let row = Row { columns: &columns, cells: cells(text) };
        match row.record().map_err(|message| RecordError { line, message })? {
            Some(flow) => flows.push(flow),
            None => unfinished += 1,
        }
    }
    flows.sort_by_key(|flow: &Record| flow.start);
    Ok(Records { flows, unfinished })
}

fn cells(line: &str) -> Vec<&str> {
    line.split(',').map(str::trim).collect()
}

fn check_header(columns: &[&str]) -> Result<(), String> {
    let needed = REQUIRED.join(",");
    if columns == [""] {
        return Err(format!("the table is empty: start it with a header such as `{needed}`"));
    }
    let times = |name: &&str| columns.iter().filter(|column| **column == *name).count();
    let noted = NOTED.iter().filter(|name| times(name) > 0).count();
    if noted > 0 && noted < NOTED.len() {
        return Err(format!(
            "some of the columns {} are missing: drop the others",
            NOTED.join(",")
        ));
    }
    if let Some(twice) = REQUIRED.iter().chain(&OPTIONAL).chain(&NOTED).find(|name| times(name) > 1)
    {
        return Err(format!("column {twice} stands there twice: drop one of them"));
    }
    match REQUIRED.iter().find(|name| times(name) == 0) {
        Some(missing) => Err(format!("there is no column {missing}: the header needs {needed}")),
        None => Ok(()),
    }
}

struct Row<'a> {
    columns: &'a [&'a str],
    cells: Vec<&'a str>,
}

impl Row<'_> {
    /// `None` for a flow that did not end.
    fn record(&self) -> Result<Option<Record>, String> {
        let (found, expected) = (self.cells.len(), self.columns.len());
        if found != expected {
            return Err(format!("{found} columns, but the header has {expected}"));
        }
        let start = Time::ZERO + self.span("start_us")?;
        let tuple = FiveTuple {
            src: self.address("src")?,
            dst: self.address("dst")?,
            src_port: self.port("src_port")?,
            dst_port: self.port("dst_port")?,
            protocol: self.protocol()?,
        };
        let bytes = Bytes::new(self.whole("bytes")?);
        let end = match (self.cell("end_us"), self.cell("fct_us")) {
            (Some(""), _) | (None, Some("")) => return Ok(None),
            (Some(_), _) => Time::ZERO + self.span("end_us")?,
            (None, Some(_)) => start + self.span("fct_us")?,
            (None, None) => start,
        };
        if end < start {
            return Err("column end_us: the flow ends before it starts".to_owned());
        }
        Ok(Some(Record { tuple, start, end, bytes, noted: self.noted()? }))
    }

    fn noted(&self) -> Result<Option<Noted>, String> {
        let Some(gap) = self.cell(NOTED[0]) else { return Ok(None) };
        let gap = if gap.is_empty() { None } else { Some(self.span(NOTED[0])?) };
        let mut last_bytes = [Bytes::ZERO; LAST_FLOWS];
        for (bytes, name) in last_bytes.iter_mut().zip(&NOTED[1..]) {
            *bytes = Bytes::new(self.whole(name)?);
        }
        Ok(Some(Noted { gap, last_bytes }))
    }

    fn cell(&self, name: &str) -> Option<&str> {
        self.columns.iter().position(|column| *column == name).map(|place| self.cells[place])
    }

    fn wrong(&self, name: &str, wanted: &str) -> String {
        format!("column {name}: `{}` is not {wanted}", self.cell(name).unwrap_or_default())
    }

    fn span(&self, name: &str) -> Result<Span, String> {
        // 213 days are all that a time holds; half of them leave room for sums.
        const LONGEST_US: f64 = 9e12;
        let number = self.cell(name).and_then(|cell| cell.parse::<f64>().ok());
        let number = number.filter(|number| (0.0..=LONGEST_US).contains(number));
        let wanted = "a number of microseconds from 0 to 9e12";
        number.map(Span::from_us_f64).ok_or_else(|| self.wrong(name, wanted))
    }

    fn whole(&self, name: &str) -> Result<u64, String> {
        let number = self.cell(name).and_then(|cell| cell.parse::<u64>().ok());
        let number = number.filter(|&number| number <= LARGEST);
        number.ok_or_else(|| self.wrong(name, "a whole number from 0 to 2^53"))
    }

    fn address(&self, name: &str) -> Result<u32, String> {
        let cell = self.cell(name).unwrap_or_default();
        let address = cell.parse::<Ipv4Addr>().map(u32::from).or_else(|_| cell.parse::<u32>());
        address.map_err(|_| self.wrong(name, "an IPv4 address or the number of a host"))
    }

    fn port(&self, name: &str) -> Result<u16, String> {
        let cell = self.cell(name).unwrap_or("0");
        cell.parse().map_err(|_| self.wrong(name, "a port from 0 to 65535"))
    }

    fn protocol(&self) -> Result<u8, String> {
        match self.cell("protocol").unwrap_or("0") {
            name if name.eq_ignore_ascii_case("tcp") => Ok(6),
            name if name.eq_ignore_ascii_case("udp") => Ok(17),
            number => number
                .parse()
                .map_err(|_| self.wrong("protocol", "tcp, udp or a number from 0 to 255")),
        }
    }
}
