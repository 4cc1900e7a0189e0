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
use thalweg_report::table::{Column, Table};
use thalweg_scenario::{Outcome, Scenario, ServerUse};
use toml::Value;

use crate::runs::run_stepwise;
use crate::{Claim, Context, Figure, FigureError, Findings, Listing, Plot, Point, Rule};

/// How far ours may be from what the paper counts.
const TOLERANCE: f64 = 0.05;
/// How often a run says how far it is.
const STEP: Span = Span::from_us(100);
/// What scenario files call the two, and what readers do.
const SCHEMES: [(&str, &str); 2] =
    [("aggregate", "ATP, two levels"), ("rack-only", "RSS, racks only")];
/// Packets that the server receives for a fragment, in the same order.
const PAPER_PACKETS: [f64; 2] = [1.0, 3.0];

pub(crate) struct Atp9;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Setup {
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

impl Figure for Atp9 {
    fn name(&self) -> &'static str {
        "atp-9"
    }

    fn plan(&self) -> &'static str {
        include_str!("../plans/atp-9.toml")
    }

    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let setup: Setup = context.plan(self)?;
        let label = |(_, name): &(&str, &str)| (*name).to_owned();
        let rows = context.each(&SCHEMES, label, |&(collective, name), point| {
            setup.row(self, collective, name, (context.seed, point))
        })?;
        Ok(Findings {
            claims: setup.claims(&rows),
            plots: vec![setup.plot(&rows)],
            tables: vec![table(&rows)],
            not_measured: Vec::new(),
            notes: NOTES.map(str::to_owned).into(),
        })
    }
}

const NOTES: [&str; 3] = [
    "The paper counts in a simulator of its own and gives neither the tensor nor the rates. Ours are \
     tensors of 4 MB one after the other over links of 100 Gbps; SW0 and SW1 are connected to SW2 \
     directly.",
    "The ratio is a little below 3 because of collisions. While aggregators are still being found, a \
     fragment that collides passes all switches by, and its six packets reach the server in either \
     scheme.",
    "The paper cannot measure throughput here. Ours shows what the traffic costs: three sums share the \
     server's link in rack-scale aggregation, so that workers get a third of the speed.",
];

impl Setup {
    fn row(
        &self,
        figure: &Atp9,
        collective: &str,
        name: &'static str,
        (seed, point): (u64, &Point<'_>),
    ) -> Result<Row, FigureError> {
        let scenario = self.scenario(collective, name)?;
        let outcome = run_stepwise(figure.name(), &scenario, (seed, STEP), point, |_, _| ())?;
        let mistake = |reason: String| FigureError::Plan { figure: figure.name(), reason };
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

    fn scenario(&self, collective: &str, name: &str) -> Result<Scenario, FigureError> {
        let mut job = self.job.clone();
        job.insert("collective".to_owned(), collective.into());
        job.insert("rounds".to_owned(), self.rounds.into());
        let traffic = toml::Table::from_iter([("all-reduce".to_owned(), Value::Table(job))]);
        let mut file = self.scenario.clone();
        file.insert("title".to_owned(), name.into());
        file.insert("traffic".to_owned(), Value::Array(vec![Value::Table(traffic)]));
        let no_files = |file: &str| Err(format!("{file} is not there"));
        Ok(Scenario::parse("plans/atp-9.toml", &file.to_string(), &no_files)?)
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
            .y(Axis::linear("traffic").unit(Unit::Bytes));
        let caption = "Into the server's switch, SW2, both bring the same; from there to the server, \
                       PS, rack-scale aggregation brings three sums and ATP one.";
        let chart = rows.iter().map(bars).fold(chart, Chart::series);
        Plot { chart, caption: caption.to_owned() }
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
    let mut table = Table::new([
        Column::left("aggregation"),
        Column::right("gradients received"),
        Column::right("packets"),
        Column::right("packets a fragment"),
        Column::right("of them collided"),
        Column::right("speed of a worker"),
    ]);
    for row in rows {
        let stats = &row.server.stats;
        table.push([
            row.name.to_owned(),
            format_bytes(stats.gradient_bytes),
            format_count(stats.gradients),
            format_number(row.packets_a_fragment()),
            format_count(stats.collisions),
            format_rate_bps(row.goodput_bps),
        ]);
    }
    Listing { table, caption: "What the server received, and what it cost".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn racks_alone_bring_three_sums_where_two_levels_bring_one() {
        let findings = Atp9.run(&Context::unwatched(7, 2)).unwrap();
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
