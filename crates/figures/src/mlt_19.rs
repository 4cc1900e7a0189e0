//! MLT, Figure 19: tails with timeouts of microseconds.

use thalweg_report::format::Unit;

use crate::compression::Sweep;
use crate::{Claim, Context, Figure, FigureError, Findings, Rule};

/// The figure.
pub(crate) struct Mlt19;

/// A curve is flat where twice the compression shortens the tail by no more than this.
const FLAT: f64 = 1.5;

impl Figure for Mlt19 {
    fn name(&self) -> &'static str {
        "mlt-19"
    }

    fn plan(&self) -> &'static str {
        include_str!("../plans/mlt-19.toml")
    }

    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let sweep = Sweep::run(&Mlt19, context)?;
        Ok(Findings {
            claims: claims(&sweep),
            plots: vec![sweep.plot("99th percentile", |times| times.tail_us)],
            tables: vec![sweep.table()],
            not_measured: Vec::new(),
            notes: NOTES.map(str::to_owned).into(),
        })
    }
}

const NOTES: [&str; 2] = [
    "Every tensor is a flow from each worker to one server, and one back, the same for every system. \
     Compression divides sizes.",
    "The questions of ours wait 10 ms before a round trip was measured, and then as long as answers take.",
];

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
