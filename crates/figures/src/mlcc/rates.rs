//! MLCC, Figure 11: what leaves a server over time, when two jobs share it, and when a job shares it with a flow.

use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use thalweg_core::{JobId, Packet, Time};
use thalweg_fabric::LinkId;
use thalweg_fabric::trace::{Incident, Tracer};
use thalweg_report::format::{Unit, format_number, format_percent, format_ratio};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::Table;
use thalweg_wire::{Kind, peek};

use super::draw::{Job, Seat};
use super::run::run;
use super::testbed::Testbed;
use super::{Arm, Cell, Network, Place};
use crate::frame::figure::Form;
use crate::{Claim, Context, FigureError, Findings, Listing, Plot, Point, Rule};

/// The server whose link is watched, and its first link: to the switch.
const WATCHED: u32 = 0;
const UPLINK: LinkId = LinkId(0);

/// Who has less than this share of the link does not send.
const SENDS: f64 = 0.01;

/// Staggered: so much of what the second job sends may meet the first, of what does over the control alone.
const MEETING_MOST: f64 = 0.5;

/// Of its fair share, that other traffic keeps.
const FAIR_LEAST: f64 = 0.9;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Setup {
    network: Network,
    gbps: f64,
    divisor: f64,
    /// How long rates are averaged over.
    bin_ms: f64,
    /// When the flow begins that belongs to no job.
    flow_at_ms: f64,
    /// Two of them.
    jobs: Vec<Job>,
    /// Ours, and what it is compared with.
    arms: Vec<Arm>,
}

/// Who shares the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    Jobs,
    JobAndFlow,
}

impl Case {
    fn name(self) -> &'static str {
        match self {
            Case::Jobs => "two jobs",
            Case::JobAndFlow => "a job and a flow",
        }
    }
}

/// Bytes that left in a bin: of the first job, and of the second or of the flow.
type Bin = [u64; 2];

/// What a run gave.
struct Row<'a> {
    case: Case,
    arm: &'a Arm,
    bins: Vec<Bin>,
}

impl Form for Setup {
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let cells: Vec<(Case, &Arm)> = [Case::Jobs, Case::JobAndFlow]
            .into_iter()
            .flat_map(|case| self.arms.iter().map(move |arm| (case, arm)))
            .collect();
        let label = |(case, arm): &(Case, &Arm)| format!("{}, {}", case.name(), arm.name);
        let rows = context.each(&cells, label, |&(case, arm), point| {
            Ok(Row { case, arm, bins: self.bins(case, arm, point)? })
        })?;
        Ok(Findings {
            claims: self.claims(context, &rows)?,
            plots: rows.iter().map(|row| self.plot(row)).collect(),
            tables: vec![self.table(&rows)],
        })
    }
}

impl Setup {
    fn bins(&self, case: Case, arm: &Arm, point: &Point<'_>) -> Result<Vec<Bin>, FigureError> {
        // Each job goes from the watched server to one of its own.
        let seat =
            |host: u32| Seat { workers: vec![WATCHED, host], servers: vec![], start_ms: 0.0 };
        let seats = [seat(1), seat(2)];
        let (seated, flows) = match case {
            Case::Jobs => (vec![(0, &seats[0]), (1, &seats[1])], None),
            Case::JobAndFlow => (vec![(0, &seats[0])], Some(self.flow())),
        };
        let place = Place { gbps: self.gbps, loss: 0.0 };
        let testbed = Testbed { network: &self.network, divisor: self.divisor, jobs: &self.jobs };
        let scenario = testbed.scenario(&Cell { place, arm }, &seated, flows, point)?;
        let bin_ps = (self.bin_ms * 1e9 / self.divisor) as u64;
        let counted = Counted { bin_ps: bin_ps.max(1), bins: Arc::default() };
        run(&scenario, point, Some(Box::new(counted.clone())), |share| share)?;
        let bins = counted.bins.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(bins.clone())
    }

    /// From the watched server to the other one of the first job, for longer than it runs.
    fn flow(&self) -> String {
        let start_us = self.flow_at_ms * 1e3 / self.divisor;
        let job = &self.jobs[0];
        let run_s = f64::from(job.iterations) * (job.compute_ms + 1_000.0) / 1e3;
        let bytes = run_s * self.gbps * 1e9 / 8.0 / self.divisor;
        format!("start_us,src,dst,bytes\n{start_us:.3},{WATCHED},1,{bytes:.0}\n")
    }

    /// The share of the link that so many bytes in a bin are.
    fn share(&self, bytes: u64) -> f64 {
        let room = self.gbps * 1e6 / 8.0 * self.bin_ms / self.divisor;
        bytes as f64 / room
    }

    /// How much of what the second sends leaves while the first sends, too.
    fn meeting(&self, bins: &[Bin]) -> f64 {
        let sum = |bins: &mut dyn Iterator<Item = &Bin>| bins.map(|bin| bin[1]).sum::<u64>();
        let meeting = sum(&mut bins.iter().filter(|bin| self.share(bin[0]) > SENDS));
        meeting as f64 / sum(&mut bins.iter()) as f64
    }

    /// What the second has of half a link while both send.
    fn fairness(&self, bins: &[Bin]) -> f64 {
        let both = bins.iter().filter(|bin| bin.iter().all(|&bytes| self.share(bytes) > SENDS));
        let shares: Vec<f64> = both.map(|bin| 2.0 * self.share(bin[1])).collect();
        thalweg_report::stats::mean(&shares).unwrap_or(f64::NAN)
    }

    fn claims(&self, context: &Context<'_>, rows: &[Row<'_>]) -> Result<Vec<Claim>, FigureError> {
        let [ours, other] = &self.arms[..] else {
            return Err(context.mistake("there have to be two arms"));
        };
        let bins = |case: Case, arm: &Arm| {
            let row = rows.iter().find(|row| row.case == case && row.arm.name == arm.name);
            row.map_or(&[][..], |row| &row.bins)
        };
        let meeting = |arm| self.meeting(bins(Case::Jobs, arm));
        let second = &self.jobs[1].name;
        Ok(vec![
            Claim::measured(
                format!(
                    "what {second} sends at the same time as the other job, against {}",
                    other.name
                ),
                "flows are staggered",
                meeting(ours) / meeting(other),
                Unit::Ratio,
                Rule::AtMost(MEETING_MOST),
            ),
            Claim::measured(
                "what a flow has of its fair share beside a paced job",
                "friendly to TCP",
                self.fairness(bins(Case::JobAndFlow, ours)),
                Unit::Percent,
                Rule::AtLeast(FAIR_LEAST),
            ),
        ])
    }

    fn names(&self, case: Case) -> [&str; 2] {
        match case {
            Case::Jobs => [&self.jobs[0].name, &self.jobs[1].name],
            Case::JobAndFlow => [&self.jobs[0].name, "a flow"],
        }
    }

    fn plot(&self, row: &Row<'_>) -> Plot {
        let steps = |(who, name): (usize, &str)| {
            let point = |(bin, bytes): (usize, &Bin)| {
                (bin as f64 * self.bin_ms * 1e3, self.share(bytes[who]) * self.gbps * 1e9)
            };
            Series::time_steps(name, row.bins.iter().enumerate().map(point).collect())
        };
        let chart = Chart::new(format!("{}, {}", row.case.name(), row.arm.name))
            .x(Axis::linear("time").unit(Unit::SpanUs))
            .y(Axis::linear("rate").unit(Unit::BitsPerSecond))
            .all(self.names(row.case).into_iter().enumerate().map(steps));
        Plot::new(chart, "What leaves the server that they share, at the size of the testbed.")
    }

    fn table(&self, rows: &[Row<'_>]) -> Listing {
        let until_s = |row: &Row<'_>| row.bins.len() as f64 * self.bin_ms / 1e3;
        let meeting = "of the second while the first sends";
        let fairness = "its share of half a link then";
        let table = Table::by_column(rows)
            .left("who shares the server", |row| self.names(row.case).join(", "))
            .left("by", |row| row.arm.name.clone())
            .right("until, s", |row| format_number(until_s(row)))
            .right(meeting, |row| format_percent(self.meeting(&row.bins)))
            .right(fairness, |row| format_ratio(self.fairness(&row.bins)));
        Listing::new(table, "How they share")
    }
}

/// Counts what leaves the watched server.
#[derive(Clone)]
struct Counted {
    bin_ps: u64,
    bins: Arc<Mutex<Vec<Bin>>>,
}

impl Tracer for Counted {
    fn on(&mut self, now: Time, link: Option<LinkId>, _: Incident, packet: Packet<'_>) {
        let Some(prefix) = peek(packet.header).ok().filter(|_| link == Some(UPLINK)) else {
            return;
        };
        if prefix.kind != Kind::FlowData {
            return;
        }
        let is_second = prefix.job == JobId::default() || packet.meta.dst.0 != 1;
        let bin = (now.as_ps() / self.bin_ps) as usize;
        let mut bins = self.bins.lock().unwrap_or_else(PoisonError::into_inner);
        if bins.len() <= bin {
            bins.resize(bin + 1, Bin::default());
        }
        bins[bin][usize::from(is_second)] += u64::from(packet.meta.wire_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 25 Gbps for 10 ms, a quarter of everything.
    const FULL: u64 = 31_250_000 / 4;

    fn setup() -> Setup {
        crate::find("mlcc-11").unwrap().form(false)
    }

    #[test]
    fn what_meets_is_what_leaves_while_the_other_sends() {
        let setup = setup();
        let bins = [[FULL, 0], [FULL / 2, FULL / 2], [0, FULL], [FULL / 1_000, FULL / 2]];
        assert!((setup.meeting(&bins) - 0.25).abs() < 1e-6);
        assert!(setup.meeting(&[[0, 0]]).is_nan());
    }

    #[test]
    fn a_flow_with_half_of_the_link_has_its_share() {
        let setup = setup();
        let bins = [[FULL / 2, FULL / 2], [FULL / 2, FULL / 4], [0, FULL], [FULL, 0]];
        assert!((setup.fairness(&bins) - 0.75).abs() < 1e-6);
    }

    #[test]
    fn the_flow_outlasts_the_job() {
        let setup = setup();
        let bytes: f64 = setup.flow().trim().rsplit(',').next().unwrap().parse().unwrap();
        let alone_s = bytes * 8.0 / 25e9 * setup.divisor;
        let job = &setup.jobs[0];
        assert!(alone_s > f64::from(job.iterations) * job.compute_ms / 1e3, "{alone_s} s");
    }
}
