use proptest::prelude::*;

use super::*;
use crate::format::Unit;
use crate::markup::check_balance;
use crate::stats::{Histogram, Sample};

/// A chart whose plot reaches from (29.92, 18) to (280, 172): 8 + two characters + 8 on the left.
fn small(series: Series) -> Chart {
    Chart::new("")
        .size(300, 200)
        .x(Axis::linear("").range(0.0, 10.0))
        .y(Axis::linear("").range(0.0, 10.0))
        .series(series)
}

/// The values of one attribute, in order of appearance.
fn attributes<'a>(svg: &'a str, tag: &str, name: &str) -> Vec<&'a str> {
    svg.split(&format!("<{tag} "))
        .skip(1)
        .filter_map(|rest| {
            let inside = rest.split('>').next()?;
            inside.split(&format!("{name}=\"")).nth(1)?.split('"').next()
        })
        .collect()
}

fn numbers(svg: &str, tag: &str, name: &str) -> Vec<f64> {
    attributes(svg, tag, name).iter().map(|value| value.parse().unwrap()).collect()
}

#[test]
fn a_line_goes_where_arithmetic_says() {
    let svg = small(Series::line("a", vec![(0.0, 0.0), (5.0, 10.0), (10.0, 5.0)])).to_svg();
    assert!(svg.contains("d=\"M29.92 172L154.96 18L280 95\" fill=\"none\""), "{svg}");
}

#[test]
fn a_step_holds_its_value() {
    let svg = small(Series::step("a", vec![(0.0, 0.0), (5.0, 10.0), (10.0, 5.0)])).to_svg();
    assert!(svg.contains("d=\"M29.92 172H154.96V18H280V95\""), "{svg}");
}

#[test]
fn what_cannot_be_drawn_interrupts_the_line() {
    let points = vec![(0.0, 0.0), (5.0, f64::NAN), (5.0, 10.0), (f64::INFINITY, 1.0), (10.0, 5.0)];
    let svg = small(Series::line("a", points)).to_svg();
    assert!(svg.contains("d=\"M29.92 172h0M154.96 18h0M280 95h0\""), "{svg}");
}

#[test]
fn a_logarithmic_axis_places_factors_evenly_and_skips_zero() {
    let points = vec![(1.0, 5.0), (0.0, 5.0), (10.0, 5.0), (100.0, 5.0)];
    let svg = small(Series::scatter("a", points)).x(Axis::log10("").range(1.0, 100.0)).to_svg();
    let paths = attributes(&svg, "path", "d");
    let symbols: Vec<&str> =
        paths.iter().filter_map(|path| path.split_once("m-3.2 0a")).map(|s| s.0).collect();
    assert_eq!(symbols, ["M29.92 95", "M154.96 95", "M280 95"]);
}

#[test]
fn bars_stand_on_zero_side_by_side() {
    let chart = Chart::new("")
        .size(300, 200)
        .x(Axis::categories("", ["a", "b"]))
        .y(Axis::linear("").range(-10.0, 10.0))
        .series(Series::bars("first", [5.0, -5.0]))
        .series(Series::bars("second", [10.0, f64::NAN]));
    let svg = chart.to_svg();
    let inner = svg.split("<svg ").nth(2).unwrap();
    let (x, y) = (numbers(inner, "rect", "x"), numbers(inner, "rect", "y"));
    let (width, height) = (numbers(inner, "rect", "width"), numbers(inner, "rect", "height"));
    assert_eq!(x.len(), 3, "the bar without a value is not drawn");
    // A row for the legend is above the plot, which reaches from 38 to 172: zero is at 105.
    assert_eq!(y, [71.5, 105.0, 38.0]);
    assert_eq!(height, [33.5, 33.5, 67.0]);
    assert!(x[0] + width[0] < x[2], "bars of a group do not overlap");
    assert!(x[2] + width[2] < x[1], "groups do not overlap");
    for value in ["5", "-5", "10"] {
        assert!(inner.contains(&format!(">{value}</text>")), "{value} stands at its bar");
    }
}

#[test]
fn bars_include_zero_even_when_the_values_are_far_from_it() {
    let chart = |series| Chart::new("").y(Axis::linear("")).series(series).to_svg();
    assert!(chart(Series::bars("a", [100.0, 101.0])).contains(">0</text>"));
    let line = chart(Series::line("a", vec![(0.0, 100.0), (1.0, 101.0)]));
    assert!(line.contains(">100.0</text>") && !line.contains(">0</text>"), "{line}");
}

#[test]
fn a_histogram_fills_the_axis_with_touching_bars() {
    let sample = Sample::new((0..100).map(f64::from)).unwrap();
    let series = Series::histogram("a", &Histogram::new(&sample, 10));
    assert_eq!(series.points().len(), 10);
    assert_eq!(series.points()[0], (4.95, 10.0));
    let svg = Chart::new("").series(series).to_svg();
    let (x, width) = (numbers(&svg, "rect", "x"), numbers(&svg, "rect", "width"));
    for bar in 0..9 {
        let gap = x[bar + 1] - x[bar] - width[bar];
        assert!((gap - 2.0).abs() < 0.05, "gap of {gap}");
    }
}

#[test]
fn crowded_names_are_slanted_and_begin_inside_the_drawing() {
    let chart = |names: [&str; 4]| {
        let axis = Axis::categories("", names);
        Chart::new("").size(300, 200).x(axis).series(Series::bars("a", [1.0; 4])).to_svg()
    };
    assert!(!chart(["a", "b", "c", "d"]).contains("rotate"));
    let svg = chart(["a rather long name", "b", "another long name", "d"]);
    let places = attributes(&svg, "text", "transform");
    assert_eq!(places.len(), 4);
    for (place, name_px) in places.iter().zip([125.28, 6.96]) {
        let x = place.trim_start_matches("translate(").split(' ').next().unwrap();
        let begins: f64 = x.parse::<f64>().unwrap() - name_px * libm::cos(35_f64.to_radians());
        assert!(begins >= 0.0, "{place}");
    }
}

#[test]
fn many_series_leave_room_for_the_plot() {
    let chart = (0..60).fold(Chart::new("t").size(300, 200), |chart, index| {
        chart.series(Series::line(format!("series {index}"), vec![(0.0, 0.0), (1.0, 1.0)]))
    });
    let svg = chart.to_svg();
    assert!(svg.contains(" more</text>"));
    let plot_height = numbers(&svg, "svg", " height")[0];
    assert!(plot_height >= 80.0, "{plot_height}");
}

#[test]
fn a_chart_without_data_says_so() {
    let empty = [
        Chart::new("t"),
        Chart::new("t").series(Series::line("a", vec![])),
        Chart::new("t").series(Series::line("a", vec![(f64::NAN, 1.0), (1.0, f64::INFINITY)])),
        Chart::new("t").y(Axis::log10("y")).series(Series::bars("a", [0.0, -1.0])),
        Chart::new("t").series(Series::cdf("a", &[])),
        Chart::new("t").x(Axis::categories("x", ["a", "b"])),
    ];
    for chart in empty {
        let svg = chart.to_svg();
        assert!(svg.contains(">no data</text>"), "{svg}");
        assert!(check_balance(&svg).is_ok());
    }
    let one = Chart::new("t").series(Series::line("a", vec![(1.0, 1.0)])).to_svg();
    assert!(!one.contains("no data"));
}

#[test]
fn a_distribution_reaches_from_zero_to_one() {
    let series = Series::cdf("a", &[3.0, f64::NAN, 1.0]);
    assert_eq!(series.points(), [(1.0, 0.0), (1.0, 0.5), (3.0, 1.0)]);
    assert_eq!(series.mark(), Mark::Step);
    let many: Vec<f64> = (0..100_000).map(f64::from).collect();
    assert!(Series::cdf("a", &many).points().len() <= Series::MAX_CDF_POINTS);
}

#[test]
fn a_long_time_series_keeps_its_spike() {
    let mut points: Vec<(f64, f64)> = (0..100_000).map(|i| (f64::from(i), 1.0)).collect();
    points[77_777].1 = 50.0;
    let series = Series::time_series("a", points);
    assert!(series.points().len() <= Series::MAX_TIME_POINTS);
    assert!(series.points().contains(&(77_777.0, 50.0)));
}

#[test]
fn units_are_written_once_on_linear_axes_and_at_every_tick_on_logarithmic_ones() {
    let points = vec![(1.0, 2_000.0), (1_000_000.0, 9_000.0)];
    let svg = Chart::new("")
        .x(Axis::log10("size").unit(Unit::Bytes))
        .y(Axis::linear("time").unit(Unit::SpanUs))
        .series(Series::line("a", points))
        .to_svg();
    for text in [">size<", ">1 B<", ">1 KB<", ">1 MB<", ">time (ms)<", ">10<"] {
        assert!(svg.contains(text), "{text} in {svg}");
    }
}

#[test]
fn an_invalid_range_is_ignored() {
    let with = |axis: Axis| {
        Chart::new("").x(axis).series(Series::line("a", vec![(1.0, 1.0), (9.0, 2.0)])).to_svg()
    };
    assert_eq!(with(Axis::log10("").range(0.0, 10.0)), with(Axis::log10("")));
    assert_eq!(with(Axis::linear("").range(3.0, 3.0)), with(Axis::linear("")));
    assert_eq!(with(Axis::linear("").range(f64::NAN, 3.0)), with(Axis::linear("")));
    assert_ne!(with(Axis::linear("").range(0.0, 20.0)), with(Axis::linear("")));
}

#[test]
fn every_text_is_escaped() {
    const EVIL: &str = "<script>\"'&";
    let svg = Chart::new(EVIL)
        .x(Axis::categories(EVIL, [EVIL, EVIL]))
        .y(Axis::linear(EVIL))
        .series(Series::bars(EVIL, [1.0, 2.0]))
        .series(Series::scatter(EVIL, vec![(0.0, 1.0)]))
        .to_svg();
    assert!(!svg.contains("<script"));
    // Title twice, two names under the axis, both axis labels, and for each series its name in the
    // legend, its titles there and at the data; two titles at bars and one at a symbol name the
    // series and the category.
    assert_eq!(svg.matches("&lt;script&gt;&quot;&#39;&amp;").count(), 2 + 2 + 2 + 6 + 6);
    assert!(check_balance(&svg).is_ok());
}

#[test]
fn values_far_beyond_a_tiny_range_keep_their_coordinates_finite() {
    let svg = Chart::new("")
        .x(Axis::linear("").range(-1e-99, 0.0))
        .series(Series::bars("a", [0.0]))
        .series(Series::new("a", Mark::Bar, vec![(9e99, 0.0), (-9e99, 1.0)]))
        .to_svg();
    assert!(!svg.contains("NaN"), "{svg}");
    assert!(svg.contains("x=\"-1000000\""), "{svg}");
}

fn any_series() -> impl Strategy<Value = Series> {
    let mark =
        prop_oneof![Just(Mark::Line), Just(Mark::Step), Just(Mark::Scatter), Just(Mark::Bar)];
    let value = || prop_oneof![any::<f64>(), -10.0..10.0_f64, Just(0.0), Just(f64::NAN)];
    let points = prop::collection::vec((value(), value()), 0..30);
    // No letters of which a value that is not finite could be spelt.
    ("[<>&\"' a-e]{0,40}", mark, points).prop_map(|(name, mark, points)| Series {
        name,
        mark,
        points,
    })
}

fn any_axis() -> impl Strategy<Value = Axis> {
    let unit = prop_oneof![
        Just(Unit::Plain),
        Just(Unit::Bytes),
        Just(Unit::SpanUs),
        Just(Unit::BitsPerSecond),
        Just(Unit::Percent),
        Just(Unit::Ratio)
    ];
    let base = prop_oneof![
        Just(Axis::linear("a")),
        Just(Axis::log10("b")),
        prop::collection::vec("[a-e]{0,30}", 0..40).prop_map(|names| Axis::categories("c", names)),
    ];
    let range = prop::option::of((any::<f64>(), any::<f64>()));
    (base, unit, range).prop_map(|(axis, unit, range)| {
        let axis = axis.unit(unit);
        range.map_or(axis.clone(), |(min, max)| axis.range(min, max))
    })
}

#[test]
fn a_chart_says_what_it_was_given() {
    let chart = Chart::new("bars")
        .x(Axis::categories("model", ["a", "b"]))
        .y(Axis::linear("speed-up"))
        .series(Series::bars("thalweg", [1.0, 2.0]));
    assert_eq!((chart.x_axis().label(), chart.y_axis().label()), ("model", "speed-up"));
    assert_eq!(chart.all_series()[0].points(), [(0.0, 1.0), (1.0, 2.0)]);
    let names = [0.0, 1.0, 2.0, 0.5, -1.0, f64::NAN].map(|x| chart.x_axis().category(x));
    assert_eq!(names, [Some("a"), Some("b"), None, None, None, None]);
    assert_eq!(chart.y_axis().category(0.0), None);
}

proptest! {
    #[test]
    fn whatever_the_input_the_drawing_is_sound(
        (x, y) in (any_axis(), any_axis()),
        series in prop::collection::vec(any_series(), 0..12),
        (width, height) in (0_u32..1_000, 0_u32..1_000),
    ) {
        let chart = series
            .into_iter()
            .fold(Chart::new("a").x(x).y(y).size(width, height), Chart::series);
        let svg = chart.to_svg();
        check_balance(&svg).map_err(TestCaseError::fail)?;
        let lower = svg.to_lowercase();
        prop_assert!(!lower.contains("nan") && !lower.contains("inf"), "{}", svg);
        prop_assert!(!svg.contains(">-0<") && !svg.contains("\"-0\""));

        let size: Vec<f64> = attributes(&svg, "svg", "viewBox")[0]
            .split(' ')
            .map(|number| number.parse().unwrap())
            .collect();
        let inner_from = svg.match_indices("<svg ").nth(1).map_or(svg.len(), |(at, _)| at);
        for x in numbers(&svg[..inner_from], "text", " x") {
            prop_assert!((0.0..=size[2]).contains(&x), "text at {} of {}", x, size[2]);
        }
        for y in numbers(&svg[..inner_from], "text", " y") {
            prop_assert!((0.0..=size[3]).contains(&y), "text at {} of {}", y, size[3]);
        }
        for length in numbers(&svg, "rect", "width").into_iter().chain(numbers(&svg, "rect", "height")) {
            prop_assert!(length >= 0.0);
        }
    }

    #[test]
    fn any_text_is_escaped(text: String) {
        let svg = Chart::new(text.clone())
            .x(Axis::categories(text.clone(), [text.clone()]))
            .series(Series::bars(text.clone(), [1.0]))
            .series(Series::bars(text, [1.0]))
            .to_svg();
        prop_assert!(check_balance(&svg).is_ok());
    }
}
