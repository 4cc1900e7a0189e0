//! Drawings and tables.

use thalweg_report::format::{Unit, format_count, format_ratio};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::{ByColumn, Table};

use super::Results;
use super::effects::Metric;
use super::planes::{Plane, Planes, every};
use crate::{Listing, Plot};

/// What effects are shown on.
const METRICS: [(&str, Metric); 4] = [
    ("iteration, mean", |measured| measured.iteration_us),
    ("iteration, p99", |measured| measured.iteration_p99_us),
    ("small flows, p99", |measured| measured.small_p99_us),
    ("flows, mean", |measured| measured.flows_us),
];

pub(super) fn plots(results: &Results) -> Vec<Plot> {
    let drawn: [(&str, Metric); 2] = [METRICS[0], METRICS[2]];
    drawn.map(|(name, metric)| bars(results, name, metric)).into()
}

fn bars(results: &Results, name: &str, metric: Metric) -> Plot {
    // A D P C, in the order of the planes; a dot where one is off.
    let letters = |planes: super::Planes| -> String {
        let letter = |(plane, letter)| if planes.has(plane) { letter } else { '·' };
        Plane::ALL.into_iter().zip(['A', 'D', 'P', 'T']).map(letter).collect()
    };
    let chart = Chart::new(format!("{name}, by planes"))
        .x(Axis::categories("planes that are on", every().map(letters)))
        .y(Axis::linear(name).unit(Unit::SpanUs))
        .series(Series::bars(name, every().map(|planes| metric(results.of(planes)))));
    let caption = format!(
        "{name}, for every combination: A aggregate, D deliver, P prioritize, T pace (taking turns)."
    );
    Plot::new(chart, caption)
}

pub(super) fn tables(results: &Results) -> Vec<Listing> {
    let pair = "How the effect of one changes beside another: below 1× they help each other";
    vec![
        Listing::new(all(results), "Every combination"),
        Listing::new(effects(results), "What a plane makes of each: below 1× it helps"),
        Listing::new(pairs(results), pair),
    ]
}

fn all(results: &Results) -> ByColumn<Planes> {
    let time = |us: f64| Unit::SpanUs.format(us);
    let of = |planes: &Planes| results.of(*planes);
    Table::by_column(every())
        .left("planes", Planes::name)
        .right("iterations", |planes| format_count(of(planes).iterations as u64))
        .right("mean", |planes| time(of(planes).iteration_us))
        .right("p99", |planes| time(of(planes).iteration_p99_us))
        .right("goodput", |planes| Unit::BitsPerSecond.format(of(planes).goodput_bps))
        .right("flows", |planes| format_count(of(planes).flows as u64))
        .right("small, mean", |planes| time(of(planes).small_us))
        .right("small, p99", |planes| time(of(planes).small_p99_us))
        .right("all, mean", |planes| time(of(planes).flows_us))
        .right("dropped", |planes| Unit::Percent.format(of(planes).dropped))
        .right("missing", |planes| Unit::Percent.format(of(planes).missing))
}

fn effects(results: &Results) -> ByColumn<Plane> {
    let mut table = Table::by_column(Plane::ALL).left("plane", |plane| plane.name().to_owned());
    for (name, metric) in METRICS {
        table = table.right(name, |plane| format_ratio(results.effect(*plane, metric, |_| true)));
    }
    table
}

fn pairs(results: &Results) -> ByColumn<(Plane, Plane)> {
    let with = |(at, one)| Plane::ALL.into_iter().skip(at + 1).map(move |other| (one, other));
    let mut table = Table::by_column(Plane::ALL.into_iter().enumerate().flat_map(with))
        .left("pair", |(one, other)| format!("{} and {}", one.name(), other.name()));
    for (name, metric) in METRICS {
        table =
            table.right(name, |(one, other)| format_ratio(results.together(*one, *other, metric)));
    }
    table
}
