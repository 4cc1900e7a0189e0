//! MLT, Figure 2: what compression does to completion times over DCTCP.

use thalweg_core::Span;
use thalweg_report::format::Unit;

use crate::compression::Sweep;
use crate::{Claim, Context, Figure, FigureError, Findings, Rule};

/// The figure.
pub(crate) struct Mlt2;

/// The average falls at least so much with the most compression: the paper's falls by 13.9.
const FALLS: f64 = 3.0;
/// The tail falls by at most this share of what the average falls by.
const LAGS: f64 = 0.5;

impl Figure for Mlt2 {
    fn name(&self) -> &'static str {
        "mlt-2"
    }

    fn plan(&self) -> &'static str {
        include_str!("../plans/mlt-2.toml")
    }

    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let sweep = Sweep::run(&Mlt2, context)?;
        Ok(Findings {
            claims: claims(&sweep),
            plots: vec![
                sweep.plot("average", |times| times.mean_us),
                sweep.plot("99th percentile", |times| times.tail_us),
            ],
            tables: vec![sweep.table()],
            not_measured: NOT_MEASURED.map(str::to_owned).into(),
            notes: NOTES.map(str::to_owned).into(),
        })
    }
}

const NOT_MEASURED: [&str; 2] = [
    "the speed of training, which the paper shows beside the times: flows here start as on a perfect network, \
     so that an iteration does not wait for them",
    "the two other trainings that the paper runs in the background",
];

const NOTES: [&str; 2] = [
    "Every tensor is a flow from each worker to one server, and one back, the same for every system. \
     Compression divides sizes, as in the paper, where lengths are changed and nothing is compressed.",
    "Ours is not in the paper's figure. Its questions wait 10 ms before a round trip was measured.",
];

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
