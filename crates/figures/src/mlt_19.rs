//! MLT, Figure 19: tails with timeouts of microseconds.

use thalweg_report::format::Unit;

use crate::compression::{Setup, Sweep};
use crate::frame::figure::Form;
use crate::{Claim, Context, FigureError, Findings, Rule};
use serde::Deserialize;

/// A curve is flat where twice the compression shortens the tail by no more than this.
const FLAT: f64 = 1.5;

/// The settings of all figures over compression.
#[derive(Deserialize)]
#[serde(transparent)]
pub(crate) struct Mlt19(Setup);

impl Form for Mlt19 {
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let sweep = self.0.run(context)?;
        Ok(Findings {
            claims: claims(&sweep),
            plots: vec![sweep.plot("99th percentile", |times| times.tail_us)],
            tables: vec![sweep.table()],
        })
    }
}

fn claims(sweep: &Sweep) -> Vec<Claim> {
    let most = sweep.most();
    let before = sweep.compressions[sweep.compressions.len().saturating_sub(2)];
    let mut claims = Vec::new();
    for rto in &sweep.least_rtos {
        let times = (sweep.dctcp(before, rto), sweep.dctcp(most, rto), sweep.ours(most));
        let (Some(before_it), Some(dctcp), Some(ours)) = times else { continue };
        claims.push(Claim::measured(
            format!("RTO {rto}: the tail against that of ours, {most}× compression"),
            "10 ms or more against 4.12 ms",
            dctcp.tail_us / ours.tail_us,
            Unit::Ratio,
            Rule::AtLeast(1.0),
        ));
        claims.push(Claim::measured(
            format!("RTO {rto}: the tail falls from {before}× to {most}× compression by"),
            "flat after a certain ratio",
            before_it.tail_us / dctcp.tail_us,
            Unit::Ratio,
            Rule::AtMost(FLAT),
        ));
    }
    claims
}
