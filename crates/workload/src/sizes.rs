//! Sizes of flows.

use thalweg_core::{Bytes, Rng};
use thiserror::Error;

use crate::csv::{self, TableError};

const HEADER: &str = "size_bytes,cdf";

/// Largest distance of a curve's end from 1: published curves are rounded.
const TOLERANCE: f64 = 1e-9;

/// A distribution of flow sizes: points of its cumulative curve, joined by lines.
///
/// Two points of the same size are a step: that many flows have exactly this size. A first point
/// above zero is one too.
#[derive(Clone, PartialEq, Debug)]
pub struct SizeDistribution {
    /// Rising in both, the last `cdf` exactly 1.
    points: Vec<Point>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Point {
    bytes: f64,
    cdf: f64,
}

/// Why a distribution cannot be made.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum SizeError {
    /// The text is not a rising curve in two columns.
    #[error(transparent)]
    Table(#[from] TableError),
    /// No flow would have a byte.
    #[error("the largest size is below 1 byte: give sizes in bytes")]
    NoBytes,
    /// The smallest size is above the largest.
    #[error("sizes from {smallest} to {largest} are none: swap the two")]
    Range {
        /// The smallest size.
        smallest: Bytes,
        /// The largest size.
        largest: Bytes,
    },
}

/// Web search, as published with DCTCP.
const WEB_SEARCH: [(f64, f64); 12] = [
    (0.0, 0.0),
    (10e3, 0.15),
    (20e3, 0.2),
    (30e3, 0.3),
    (50e3, 0.4),
    (80e3, 0.53),
    (200e3, 0.6),
    (1e6, 0.7),
    (2e6, 0.8),
    (5e6, 0.9),
    (10e6, 0.97),
    (30e6, 1.0),
];

/// Data mining, as published with VL2.
const DATA_MINING: [(f64, f64); 13] = [
    (0.0, 0.0),
    (180.0, 0.1),
    (216.0, 0.2),
    (560.0, 0.3),
    (900.0, 0.4),
    (1_100.0, 0.5),
    (1_870.0, 0.6),
    (3_160.0, 0.7),
    (10e3, 0.8),
    (400e3, 0.9),
    (3.16e6, 0.95),
    (100e6, 0.98),
    (1e9, 1.0),
];

impl SizeDistribution {
    /// The flows of a web search cluster: half of them below 80 kB, nearly all bytes in flows above
    /// 1 MB.
    pub fn web_search() -> SizeDistribution {
        SizeDistribution::of_table(&WEB_SEARCH)
    }

    /// The flows of a data mining cluster: four of five below 10 kB, nearly all bytes in flows above
    /// 100 MB.
    pub fn data_mining() -> SizeDistribution {
        SizeDistribution::of_table(&DATA_MINING)
    }

    /// Always the same size, at least one byte.
    pub fn fixed(bytes: Bytes) -> SizeDistribution {
        SizeDistribution::of_table(&[(bytes.as_u64().max(1) as f64, 1.0)])
    }

    /// Sizes spread evenly from `smallest` to `largest`.
    pub fn uniform(smallest: Bytes, largest: Bytes) -> Result<SizeDistribution, SizeError> {
        if smallest > largest {
            return Err(SizeError::Range { smallest, largest });
        }
        let ends = [(smallest.as_u64() as f64, 0.0), (largest.as_u64() as f64, 1.0)];
        SizeDistribution::of_table(&ends).with_bytes()
    }

    /// These sizes, each with its share of the flows, which need not add up to 1.
    pub fn of_shares(shares: &[(Bytes, f64)]) -> Result<SizeDistribution, SizeError> {
        let mut shares: Vec<(Bytes, f64)> =
            shares.iter().copied().filter(|&(_, share)| share > 0.0).collect();
        shares.sort_by_key(|&(bytes, _)| bytes);
        let whole: f64 = shares.iter().map(|&(_, share)| share).sum();
        let mut below = 0.0;
        let mut points = Vec::with_capacity(2 * shares.len());
        for (bytes, share) in shares {
            let bytes = bytes.as_u64() as f64;
            points.push(Point { bytes, cdf: below / whole });
            below += share;
            points.push(Point { bytes, cdf: below / whole });
        }
        let Some(last) = points.last_mut() else { return Err(SizeError::NoBytes) };
        last.cdf = 1.0;
        SizeDistribution { points }.with_bytes()
    }

    /// Reads a curve from lines of `size_bytes,cdf` under that header, smallest size first.
    pub fn from_csv(text: &str) -> Result<SizeDistribution, SizeError> {
        let mut points: Vec<Point> = Vec::new();
        let mut last_line = 1;
        for row in csv::rows::<2>(text, HEADER)? {
            let point = Point { bytes: row.number(0)?, cdf: row.number(1)? };
            if let Some(wrong) = point.wrong_after(points.last()) {
                return Err(row.wrong(wrong).into());
            }
            points.push(Point { cdf: point.cdf.min(1.0), ..point });
            last_line = row.line;
        }
        let found = points.last().map_or(0.0, |last| last.cdf);
        if found < 1.0 - TOLERANCE {
            let message =
                format!("the curve ends at cdf {found}: add a line for the largest size, cdf 1");
            return Err(TableError { line: last_line, message }.into());
        }
        points.last_mut().expect("a point at 1").cdf = 1.0;
        SizeDistribution { points }.with_bytes()
    }

    /// The mean size in bytes, where no flow has less than one.
    pub fn mean(&self) -> f64 {
        let first = self.points[0];
        let pieces = self.points.windows(2).map(|pair| {
            let [from, to] = [pair[0], pair[1]];
            mean_between(from.bytes, to.bytes) * (to.cdf - from.cdf)
        });
        first.bytes.max(1.0) * first.cdf + pieces.sum::<f64>()
    }

    /// The largest size that is ever drawn.
    pub fn largest(&self) -> Bytes {
        Bytes::new((libm::rint(self.last_bytes()) as u64).max(1))
    }

    /// Draws a size of at least one byte.
    pub fn sample(&self, rng: &mut Rng) -> Bytes {
        let quantile = self.quantile(rng.uniform());
        Bytes::new((libm::rint(quantile) as u64).max(1))
    }

    /// The same flows, but those above `bytes` are cut to it. Below one byte nothing is cut further.
    pub fn capped(&self, bytes: Bytes) -> SizeDistribution {
        let cap = bytes.as_u64().max(1) as f64;
        if self.last_bytes() <= cap {
            return self.clone();
        }
        let below = self.points.partition_point(|point| point.bytes < cap);
        let mut points = self.points[..below].to_vec();
        if let Some(&from) = points.last() {
            let to = self.points[below];
            let share = (cap - from.bytes) / (to.bytes - from.bytes);
            points.push(Point { bytes: cap, cdf: from.cdf + share * (to.cdf - from.cdf) });
        }
        points.push(Point { bytes: cap, cdf: 1.0 });
        SizeDistribution { points }
    }

    /// The size below which a fraction of the flows, less than 1, is.
    pub fn quantile(&self, fraction: f64) -> f64 {
        let above = self.points.partition_point(|point| point.cdf <= fraction);
        let to = self.points[above];
        if above == 0 {
            return to.bytes;
        }
        let from = self.points[above - 1];
        let share = (fraction - from.cdf) / (to.cdf - from.cdf);
        from.bytes + share * (to.bytes - from.bytes)
    }

    fn last_bytes(&self) -> f64 {
        self.points[self.points.len() - 1].bytes
    }

    fn of_table(table: &[(f64, f64)]) -> SizeDistribution {
        let points = table.iter().map(|&(bytes, cdf)| Point { bytes, cdf }).collect();
        SizeDistribution { points }
    }

    fn with_bytes(self) -> Result<SizeDistribution, SizeError> {
        if self.last_bytes() < 1.0 { Err(SizeError::NoBytes) } else { Ok(self) }
    }
}

/// The mean of sizes spread evenly between the two, those below one byte counting as one.
fn mean_between(smallest: f64, largest: f64) -> f64 {
    if smallest >= 1.0 {
        return (smallest + largest) / 2.0;
    }
    if largest <= 1.0 {
        return 1.0;
    }
    let share_below = (1.0 - smallest) / (largest - smallest);
    share_below + (1.0 - share_below) * (1.0 + largest) / 2.0
}

impl Point {
    /// Returns the mistake in a point that follows another on its curve, if there is one.
    fn wrong_after(self, before: Option<&Point>) -> Option<String> {
        let Point { bytes, cdf } = self;
        if cdf > 1.0 + TOLERANCE {
            return Some(format!("cdf is {cdf}, above 1: if it is in percent, divide it by 100"));
        }
        let before = before?;
        let falls = |column, before, found| {
            Some(format!("{column} falls from {before} to {found}: sort the lines by size"))
        };
        if bytes < before.bytes {
            return falls("size_bytes", before.bytes, bytes);
        }
        if cdf < before.cdf - TOLERANCE { falls("cdf", before.cdf, cdf) } else { None }
    }
}

#[cfg(test)]
mod tests;
