//! Drawings and tables.

use thalweg_report::format::{Unit, format_count, format_ratio};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::{Column, Table};

use super::Results;
use super::effects::Metric;
use super::planes::{Plane, every};
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
    Plot { chart, caption }
}

pub(super) fn tables(results: &Results) -> Vec<Listing> {
    vec![
        Listing { table: all(results), caption: "Every combination".to_owned() },
        Listing {
            table: effects(results),
            caption: "What a plane makes of each: below 1× it helps".to_owned(),
        },
        Listing {
            table: pairs(results),
            caption: "How the effect of one changes beside another: below 1× they help each other"
                .to_owned(),
        },
    ]
}

fn all(results: &Results) -> Table {
    let names = [
        "iterations",
        "mean",
        "p99",
        "goodput",
        "flows",
        "small, mean",
        "small, p99",
        "all, mean",
        "dropped",
        "missing",
    ];
    let rest = names.map(Column::right);
    let mut table = Table::new([Column::left("planes")].into_iter().chain(rest));
    let time = |us: f64| Unit::SpanUs.format(us);
    for planes in every() {
        let it = results.of(planes);
        table.push([
            planes.name(),
            format_count(it.iterations as u64),
            time(it.iteration_us),
            time(it.iteration_p99_us),
            Unit::BitsPerSecond.format(it.goodput_bps),
            format_count(it.flows as u64),
            time(it.small_us),
            time(it.small_p99_us),
            time(it.flows_us),
            Unit::Percent.format(it.dropped),
            Unit::Percent.format(it.missing),
        ]);
    }
    table
}

fn effects(results: &Results) -> Table {
    let names = METRICS.map(|(name, _)| Column::right(name));
    let mut table = Table::new([Column::left("plane")].into_iter().chain(names));
    for plane in Plane::ALL {
        let cells = METRICS.map(|(_, metric)| results.effect(plane, metric, |_| true));
        let cells = cells.map(format_ratio);
        table.push([plane.name().to_owned()].into_iter().chain(cells));
    }
    table
}

fn pairs(results: &Results) -> Table {
    let names = METRICS.map(|(name, _)| Column::right(name));
    let mut table = Table::new([Column::left("pair")].into_iter().chain(names));
    for (at, one) in Plane::ALL.into_iter().enumerate() {
        for other in Plane::ALL.into_iter().skip(at + 1) {
            let cells = METRICS.map(|(_, metric)| results.together(one, other, metric));
            let name = format!("{} and {}", one.name(), other.name());
            table.push([name].into_iter().chain(cells.map(format_ratio)));
        }
    }
    table
}
