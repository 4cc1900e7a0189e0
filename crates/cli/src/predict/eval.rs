//! `thalweg predict eval`.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde_json::{Value, json};
use thalweg_console::{Failure, files};
use thalweg_core::Bytes;
use thalweg_prioritize::evaluate::{Class, Summary, judge};
use thalweg_prioritize::{Model, NewFlow, Scratch};
use thalweg_report::format::{Unit, format_count, format_span_us};
use thalweg_report::table::Table;

use super::{page, read_flows};

/// Predictions that are timed, at most.
const TIMED: usize = 100_000;

/// Arguments of `thalweg predict eval`.
#[derive(Args)]
pub(crate) struct EvalArguments {
    /// The flows to predict bounds for, a table with a header
    #[arg(long, value_name = "CSV")]
    input: PathBuf,
    /// Model that `thalweg predict train` wrote
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// Print one JSON document instead of tables
    #[arg(long)]
    json: bool,
    /// Write bounds.svg and index.html into this folder: sizes within their bounds
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Results of an evaluation.
pub(super) struct Evaluation {
    pub(super) summary: Summary,
    /// Flows of the file that never ended.
    pub(super) unfinished: usize,
    pub(super) trees: usize,
    /// Mean duration of a prediction.
    pub(super) inference_ns: f64,
}

/// Runs it.
pub(super) fn eval(arguments: &EvalArguments) -> Result<(), Failure> {
    let model = Model::decode(&files::read_bytes(&arguments.model)?)
        .map_err(|error| Failure::Usage(format!("{}: {error}", arguments.model.display())))?;
    let (flows, unfinished) = read_flows(&arguments.input)?;
    let judged = judge(&model, &flows);
    let evaluation = Evaluation {
        summary: Summary::of(&judged),
        unfinished,
        trees: model.forest().trees(),
        inference_ns: inference_ns(&model, &flows),
    };
    if arguments.json {
        files::print(&format!("{}\n", evaluation.json()))?;
    } else {
        files::print(&evaluation.text())?;
    }
    if let Some(out) = &arguments.out {
        files::create_folder(out)?;
        files::write(&out.join("bounds.svg"), page::chart(&judged).to_svg())?;
        files::write(&out.join("index.html"), page::html(&evaluation, &judged))?;
        eprintln!("wrote {}", out.join("index.html").display());
    }
    Ok(())
}

/// The mean over all flows, of those that the model knows and of others.
#[expect(clippy::disallowed_methods, reason = "the program reports how long a prediction takes")]
fn inference_ns(model: &Model, flows: &[(NewFlow, Bytes)]) -> f64 {
    let mut scratch = Scratch::default();
    let timed = &flows[..flows.len().min(TIMED)];
    let start = Instant::now();
    for (flow, _) in timed {
        black_box(model.bounds(black_box(flow), &mut scratch));
    }
    start.elapsed().as_secs_f64() * 1e9 / timed.len() as f64
}

impl Evaluation {
    fn json(&self) -> Value {
        let summary = &self.summary;
        let class = |class: Class| {
            let of_class = summary.class(class);
            let values = json!({
                "flows": of_class.flows,
                "mean_lower_bytes": of_class.mean_lower(),
                "mean_gap_bytes": of_class.mean_gap(),
            });
            (class.name().to_owned(), values)
        };
        json!({
            "schema": "thalweg.predict-eval/1",
            "flows": summary.known + summary.unknown,
            "unfinished": self.unfinished,
            "known": summary.known,
            "unknown": summary.unknown,
            "bounded_share": summary.bounded_share(),
            "below": summary.below,
            "above": summary.above,
            "classes": serde_json::Map::from_iter(Class::ALL.map(class)),
            "trees": self.trees,
            "inference_ns": self.inference_ns,
        })
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.lines() {
            text.push_str(&format!("{name:<26}{value}\n"));
        }
        format!("{text}\n{}", self.table().to_text(files::table_style()))
    }

    /// Names and values of the results.
    pub(super) fn lines(&self) -> Vec<(&'static str, String)> {
        let summary = &self.summary;
        let count = |number: usize| format_count(number as u64);
        let mut lines = vec![
            ("flows", count(summary.known + summary.unknown)),
            ("unknown, left to PIAS", count(summary.unknown)),
            ("within their bounds", share(summary.bounded_share())),
            ("below the lower bound", count(summary.below)),
            ("above the upper bound", count(summary.above)),
            (
                "a prediction takes",
                format!("{}, {} trees", format_span_us(self.inference_ns / 1e3), self.trees),
            ),
        ];
        if self.unfinished > 0 {
            lines.insert(1, ("never ended, left out", count(self.unfinished)));
        }
        lines
    }

    /// Lower bounds by class.
    pub(super) fn table(&self) -> Table {
        let bytes =
            |mean: Option<f64>| mean.map_or("–".to_owned(), |mean| Unit::Bytes.format(mean));
        let of = |class: &Class| self.summary.class(*class);
        Table::by_column(Class::ALL)
            .left("flows", |class| class.name().to_owned())
            .right("number", |class| format_count(of(class).flows as u64))
            .right("mean lower bound", |class| bytes(of(class).mean_lower()))
            .right("mean gap to it", |class| bytes(of(class).mean_gap()))
            .into()
    }
}

/// Shares near one need more digits than others.
pub(super) fn share(share: Option<f64>) -> String {
    share.map_or("–".to_owned(), |share| format!("{:.4}%", share * 100.0))
}
