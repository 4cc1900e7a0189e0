//! MLT, Figure 2: what compression does to completion times over DCTCP.

use thalweg_core::Span;
use thalweg_report::format::Unit;

use crate::compression::{Setup, Sweep};
use crate::frame::figure::Form;
use crate::{Claim, Context, FigureError, Findings, Rule};
use serde::Deserialize;

/// The average falls at least so much with the most compression: the paper's falls by 13.9.
const FALLS: f64 = 3.0;
/// The tail falls by at most this share of what the average falls by.
const LAGS: f64 = 0.5;

/// The settings of all figures over compression.
#[derive(Deserialize)]
#[serde(transparent)]
pub(crate) struct Mlt2(Setup);

impl Form for Mlt2 {
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let sweep = self.0.run(context)?;
        Ok(Findings {
            claims: claims(&sweep),
            plots: vec![
                sweep.plot("average", |times| times.mean_us),
                sweep.plot("99th percentile", |times| times.tail_us),
            ],
            tables: vec![sweep.table()],
        })
    }
}

fn claims(sweep: &Sweep) -> Vec<Claim> {
    let (least, most) = (sweep.least(), sweep.most());
    let mut claims = Vec::new();
    for rto in &sweep.least_rtos {
        let times = sweep.dctcp(least, rto).zip(sweep.dctcp(most, rto));
        let Some((whole, compressed)) = times else { continue };
        let mean = whole.mean_us / compressed.mean_us;
        let tail = whole.tail_us / compressed.tail_us;
        claims.push(Claim::measured(
            format!("RTO {rto}: the average falls with {most}× compression by"),
            if rto == "10ms" { "from 15.3 to 1.1 ms" } else { "steadily" },
            mean,
            Unit::Ratio,
            Rule::AtLeast(FALLS),
        ));
        claims.push(Claim::measured(
            format!("RTO {rto}: the tail falls by, as a share of what the average falls by"),
            "remains high",
            tail / mean,
            Unit::Ratio,
            Rule::AtMost(LAGS),
        ));
        let least_us = rto.parse::<Span>().map_or(f64::NAN, Span::as_us_f64);
        claims.push(Claim::measured(
            format!("RTO {rto}: the tail with {most}× compression, by that RTO"),
            if rto == "200ms" { "above 1×" } else { "not determined by it: 48 ms" },
            compressed.tail_us / least_us,
            Unit::Ratio,
            Rule::AtLeast(1.0),
        ));
    }
    claims
}
