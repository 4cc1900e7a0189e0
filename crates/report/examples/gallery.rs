//! Prints a page with every kind of block and chart: `cargo run --example gallery > gallery.html`.

#![expect(clippy::disallowed_methods, reason = "made-up numbers decide nothing")]

use thalweg_report::format::{Unit, format_bytes, format_count, format_ratio, format_span_us};
use thalweg_report::page::{Card, Page, Section, Tone};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::stats::{Histogram, Sample};
use thalweg_report::table::{Column, Table};

fn main() {
    let page = Page::new("Report gallery")
        .subtitle("Every block and chart that a report can hold, drawn from made-up numbers.")
        .section(overview())
        .section(distributions())
        .section(over_time())
        .section(comparisons())
        .section(corner_cases())
        .footer("Made by the gallery example. Seed 7. All numbers are invented.");
    print!("{}", page.to_html());
}

fn overview() -> Section {
    let completion_us = completion_times_us(3, 1.0);
    let summary = Sample::new(completion_us).expect("the sample is not empty").summary();
    Section::new("Overview")
        .paragraph(
            "Eight workers reduced a gradient of 100 MB through one switch, while one packet in a \
             hundred was lost and a second tenant filled half of every link.",
        )
        .cards([
            Card::new("median", format_span_us(summary.p50)).note("of all operations"),
            Card::new("99th percentile", format_span_us(summary.p99))
                .note("bound 2 ms exceeded")
                .tone(Tone::Warning),
            Card::new("speed-up", format_ratio(1.53)).note("over a ring").tone(Tone::Good),
            Card::new("wrong sums", "3").note("of 40,000").tone(Tone::Bad),
        ])
        .definitions([
            ("Topology", "2 racks of 4 hosts, 100 Gbps links".to_owned()),
            ("Gradient", format_bytes(100_000_000)),
            ("Packets", format_count(1_420_455)),
        ])
        .table(arms(), "All-reduce of 100 MB, by collective")
}

fn arms() -> Table {
    let mut table = Table::new([
        Column::left("collective"),
        Column::right("operations"),
        Column::right("median"),
        Column::right("p99"),
        Column::right("speed-up"),
    ]);
    for (name, operations, median_us, p99_us, speed_up) in [
        ("in-network", 40_000, 812.0, 2_310.0, 1.53),
        ("ring", 26_144, 1_242.0, 3_877.0, 1.0),
        ("parameter server", 9_310, 3_490.0, 12_040.0, 0.356),
    ] {
        table.push([
            name.to_owned(),
            format_count(operations),
            format_span_us(median_us),
            format_span_us(p99_us),
            format_ratio(speed_up),
        ]);
    }
    table
}

fn distributions() -> Section {
    let cdf = Chart::new("Completion time")
        .x(Axis::log10("completion time").unit(Unit::SpanUs))
        .y(Axis::linear("operations not slower").unit(Unit::Percent))
        .series(Series::cdf("in-network", &completion_times_us(3, 1.0)))
        .series(Series::cdf("ring", &completion_times_us(5, 1.7)))
        .series(Series::cdf("parameter server", &completion_times_us(9, 6.0)));
    let sample = Sample::new((0..4_000).map(|i| 40.0 + 9.0 * bell(i))).expect("not empty");
    let histogram = Chart::new("Queue length at arrival")
        .x(Axis::linear("queue length").unit(Unit::Bytes))
        .y(Axis::linear("arrivals"))
        .series(Series::histogram("arrivals", &Histogram::new(&sample, 32)));
    Section::new("Distributions")
        .plot(cdf, "Each curve keeps its extremes and a dense tail. Time is logarithmic.")
        .plot(histogram, "Thirty-two bins of equal width.")
}

fn over_time() -> Section {
    let goodput = |phase: f64| -> Vec<(f64, f64)> {
        (0..50_000)
            .map(|i| {
                let t = f64::from(i) * 20.0;
                let wave = ((t / 90_000.0 + phase).sin() * 2.0).tanh();
                (t, 5e9 + 4e9 * wave + 2.5e8 * bell(i))
            })
            .collect()
    };
    let lines = Chart::new("Two jobs that take turns")
        .x(Axis::linear("time").unit(Unit::SpanUs))
        .y(Axis::linear("goodput").unit(Unit::BitsPerSecond))
        .series(Series::time_series("job A", goodput(0.0)))
        .series(Series::time_series("job B", goodput(std::f64::consts::PI)));
    let mut queue_bytes = 0.0;
    let queue: Vec<(f64, f64)> = (0..120)
        .map(|i| {
            queue_bytes = f64::max(0.0, queue_bytes + 9_000.0 * bell(i) - 300.0);
            (f64::from(i) * 12.0, queue_bytes)
        })
        .collect();
    let steps = Chart::new("Bytes waiting")
        .x(Axis::linear("time").unit(Unit::SpanUs))
        .y(Axis::linear("queue").unit(Unit::Bytes))
        .series(Series::time_steps("queue", queue));
    Section::new("Over time")
        .plot(lines, "Fifty thousand points each, thinned without losing a spike.")
        .plot(steps, "A value holds until the next one.")
}

fn comparisons() -> Section {
    let bars = Chart::new("Iteration time by model")
        .x(Axis::categories("", ["AlexNet", "VGG-16", "ResNet-50", "GPT-2"]))
        .y(Axis::linear("speed-up over a ring").unit(Unit::Ratio))
        .series(Series::bars("in-network", [1.82, 1.94, 1.21, 1.47]))
        .series(Series::bars("parameter server", [0.61, 0.44, 0.92, 0.58]));
    let slanted = Chart::new("Slowdown by workload")
        .x(Axis::categories(
            "workload",
            [
                "web search",
                "data mining",
                "hadoop shuffle",
                "parameter sync",
                "cache follower",
                "key-value store",
                "video conference",
            ],
        ))
        .y(Axis::log10("99th percentile slowdown").unit(Unit::Ratio))
        .series(Series::bars("bounds", [2.1, 4.0, 12.0, 1.4, 3.3, 1.9, 2.6]))
        .series(Series::bars("no priorities", [19.0, 170.0, 88.0, 9.4, 41.0, 16.0, 22.0]));
    let sizes = |seed: i32, slope: f64| -> Vec<(f64, f64)> {
        (0..160)
            .map(|i| {
                let size = 10_f64.powf(3.0 + 5.0 * uniform(i * 7 + seed));
                (size, 10.0 + slope * size.powf(0.82) * (0.5 + uniform(i * 13 + seed)))
            })
            .collect()
    };
    let scatter = Chart::new("Flow size and completion time")
        .x(Axis::log10("flow size").unit(Unit::Bytes))
        .y(Axis::log10("completion time").unit(Unit::SpanUs))
        .series(Series::scatter("scheduled", sizes(1, 0.004)))
        .series(Series::scatter("unscheduled", sizes(2, 0.02)));
    let scaling = (0..7).fold(
        Chart::new("Goodput as workers join")
            .x(Axis::log10("workers"))
            .y(Axis::linear("goodput").unit(Unit::BitsPerSecond)),
        |chart, arm| {
            let loss = 1.0 + f64::from(arm) * 0.12;
            let points = (1..=10).map(|i| {
                let workers = f64::from(1 << i);
                (workers, 9.4e10 / (1.0 + (loss - 1.0) * workers.log10()))
            });
            chart.series(Series::line(format!("loss {}‰", arm * 2), points.collect()))
        },
    );
    Section::new("Comparisons")
        .plot(bars, "Values stand over the bars where they fit.")
        .plot(slanted, "Long names are slanted; this axis is logarithmic.")
        .plot(scatter, "Point at a symbol to read it.")
        .plot(scaling, "Seven colours before the lines are dashed.")
}

fn corner_cases() -> Section {
    let gap = (0..60).map(|i| match i {
        20..28 => (f64::from(i), f64::NAN),
        _ => (f64::from(i), (f64::from(i) / 6.0).sin() * 3e-7),
    });
    Section::new("Corner cases")
        .plot(Chart::new("Nothing arrived").x(Axis::linear("time")).y(Axis::linear("flows")), "")
        .plot(
            Chart::new("A gap, and values around zero")
                .x(Axis::linear("step"))
                .y(Axis::linear("error"))
                .series(Series::line("error", gap.collect())),
            "Values that are not finite interrupt the line.",
        )
        .details("Raw numbers", arms().to_string())
        .details("<script>alert(\"not run\")</script>", "a & b < c")
}

fn completion_times_us(seed: i32, factor: f64) -> Vec<f64> {
    (0..20_000)
        .map(|i| {
            let tail =
                if uniform(i * 3 + seed) > 0.97 { 1.0 + 9.0 * uniform(i + seed) } else { 1.0 };
            800.0 * factor * tail * (0.22 * bell(i + seed * 50_000)).exp()
        })
        .collect()
}

/// Close to a normal distribution: the sum of twelve uniform numbers, centred.
fn bell(index: i32) -> f64 {
    (0..12).map(|part| uniform(index.wrapping_mul(12).wrapping_add(part))).sum::<f64>() - 6.0
}

/// A number between 0 and 1 that depends on the index alone.
fn uniform(index: i32) -> f64 {
    let mut bits = (index as u32 as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9_u64), (27, 0x94d0_49bb_1331_11eb)] {
        bits = (bits ^ (bits >> shift)).wrapping_mul(factor);
    }
    ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}
