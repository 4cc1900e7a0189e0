//! ATP, Figure 9: what the parameter server receives when switches of two levels sum, and when those
//! of the racks alone do.
//!
//! Six workers are in three racks, the server is in the third. In two levels the server's switch sums
//! what comes from the other two racks with its own workers' packets, and the server gets one packet a
//! fragment. In rack-scale aggregation every rack sends its own sum: three packets a fragment.

use serde::Deserialize;
use thalweg_core::{NodeId, Span};
use thalweg_report::format::{Unit, format_bytes, format_count, format_number, format_rate_bps};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::Table;
use thalweg_scenario::{Outcome, Scenario, ServerUse};

use crate::file::{changed, entries, one};
use crate::frame::figure::Form;
use crate::runs::{self, no_files, run_to_end};
use crate::{Claim, Context, FigureError, Findings, Listing, Plot, Point, Rule};

/// How far ours may be from what the paper counts.
const TOLERANCE: f64 = 0.05;
/// How often a run says how far it is.
const STEP: Span = Span::from_us(100);
/// What scenario files call the two, and what readers do.
const SCHEMES: [(&str, &str); 2] =
    [("aggregate", "ATP, two levels"), ("rack-only", "RSS, racks only")];
/// Packets that the server receives for a fragment, in the same order.
const PAPER_PACKETS: [f64; 2] = [1.0, 3.0];

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Setup {
    paper_ratio: f64,
    links: Vec<[String; 2]>,
    /// A scenario without traffic.
    scenario: toml::Table,
    /// An all-reduce without its collective and rounds.
    job: toml::Table,
    rounds: u32,
}

/// What one of the two did.
struct Row {
    name: &'static str,
    server: ServerUse,
    /// Bytes that each of the drawn links carried.
    link_bytes: Vec<u64>,
    goodput_bps: f64,
}

impl Form for Setup {
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let label = |(_, name): &(&str, &str)| (*name).to_owned();
        let rows = context.each(&SCHEMES, label, |&(collective, name), point| {
            self.row(collective, name, point)
        })?;
        Ok(Findings {
            claims: self.claims(&rows),
            plots: vec![self.plot(&rows)],
            tables: vec![table(&rows)],
        })
    }
}

impl Setup {
    fn row(
        &self,
        collective: &str,
        name: &'static str,
        point: &Point<'_>,
    ) -> Result<Row, FigureError> {
        let scenario = self.scenario(collective, name, point)?;
        let outcome = run_to_end(&scenario, STEP, point)?;
        let mistake = |reason: String| point.context.mistake(reason);
        let job = outcome.jobs.first().ok_or_else(|| mistake("no job ran".to_owned()))?;
        let server = job.servers.first();
        let of_link = |[from, to]: &[String; 2]| {
            let bytes = link_bytes(&scenario, &outcome, from, to);
            bytes.ok_or_else(|| mistake(format!("no link leads from {from} to {to}")))
        };
        Ok(Row {
            name,
            server: *server.ok_or_else(|| mistake("the job has no server".to_owned()))?,
            link_bytes: self.links.iter().map(of_link).collect::<Result<_, _>>()?,
            goodput_bps: job.goodput_bytes_per_s().unwrap_or(f64::NAN) * 8.0,
        })
    }

    fn scenario(
        &self,
        collective: &str,
        name: &str,
        point: &Point<'_>,
    ) -> Result<Scenario, FigureError> {
        let own = entries([("collective", collective.into()), ("rounds", self.rounds.into())]);
        let traffic = vec![one("all-reduce", changed(&self.job, own))];
        let own = entries([("title", name.into()), ("traffic", traffic.into())]);
        runs::scenario(point, changed(&self.scenario, own), &no_files)
    }

    fn claims(&self, rows: &[Row]) -> Vec<Claim> {
        let within = |of: f64| Rule::Within { of, share: TOLERANCE };
        let bytes = |row: &Row| row.server.stats.gradient_bytes as f64;
        let mut claims = vec![Claim::measured(
            "traffic that the server receives, RSS against ATP",
            self.paper_ratio,
            bytes(&rows[1]) / bytes(&rows[0]),
            Unit::Ratio,
            within(self.paper_ratio),
        )];
        let packets = rows.iter().zip(PAPER_PACKETS).map(|(row, paper)| {
            Claim::measured(
                format!("packets that the server receives for a fragment, {}", row.name),
                paper,
                row.packets_a_fragment(),
                Unit::Plain,
                within(paper),
            )
        });
        claims.extend(packets);
        claims
    }

    fn plot(&self, rows: &[Row]) -> Plot {
        let names = self.links.iter().map(|[from, to]| format!("{from} → {to}"));
        let bars =
            |row: &Row| Series::bars(row.name, row.link_bytes.iter().map(|bytes| *bytes as f64));
        let chart = Chart::new("Bytes on the way to the server")
            .x(Axis::categories("link", names))
            .y(Axis::linear("traffic").unit(Unit::Bytes))
            .all(rows.iter().map(bars));
        let caption = "Into the server's switch, SW2, both bring the same; from there to the server, \
                       PS, rack-scale aggregation brings three sums and ATP one.";
        Plot::new(chart, caption)
    }
}

impl Row {
    fn packets_a_fragment(&self) -> f64 {
        self.server.stats.gradients as f64 / self.server.stats.completed as f64
    }
}

/// What went from one node to the other, by name.
fn link_bytes(scenario: &Scenario, outcome: &Outcome, from: &str, to: &str) -> Option<u64> {
    let is = |node: NodeId, name: &str| scenario.node_name(node) == name;
    let link = outcome.links.iter().find(|link| is(link.from, from) && is(link.to, to))?;
    Some(link.stats.sent_bytes)
}

fn table(rows: &[Row]) -> Listing {
    let table = Table::by_column(rows)
        .left("aggregation", |row| row.name.to_owned())
        .right("gradients received", |row| format_bytes(row.server.stats.gradient_bytes))
        .right("packets", |row| format_count(row.server.stats.gradients))
        .right("packets a fragment", |row| format_number(row.packets_a_fragment()))
        .right("of them collided", |row| format_count(row.server.stats.collisions))
        .right("speed of a worker", |row| format_rate_bps(row.goodput_bps));
    Listing::new(table, "What the server received, and what it cost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn racks_alone_bring_three_sums_where_two_levels_bring_one() {
        let findings = Context::unwatched("atp-9", 7, 2).findings().unwrap();
        assert!(findings.claims.iter().all(Claim::holds), "{:?}", findings.claims);
        // Two tensors of 4 MB: 16,130 fragments each, 306 bytes a packet, the last one shorter.
        let one_sum = 2.0 * (16_130.0 * 306.0 - 60.0 * 4.0);
        let series = findings.plots[0].chart.all_series();
        for (index, sums) in [1.0, 3.0].into_iter().enumerate() {
            let bars: Vec<f64> = series[index].points().iter().map(|(_, bytes)| *bytes).collect();
            let (from_racks, from_workers, to_server) = (&bars[..2], &bars[2..4], bars[4]);
            for bytes in from_racks.iter().chain(from_workers) {
                assert!((one_sum..1.1 * one_sum).contains(bytes), "{bytes} is about one sum");
            }
            let ratio = to_server / one_sum;
            assert!((sums..1.05 * sums).contains(&ratio), "{ratio} sums reach the server");
        }
    }
}
