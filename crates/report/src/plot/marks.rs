//! The data itself: lines, steps, symbols and bars.

use std::fmt::Write;

use super::axis::Scale;
use super::draw::{Anchor, text};
use super::frame::Frame;
use super::series::{Mark, Series};
use super::text::{Px, SMALL_PX, width_px};
use super::{Chart, palette};
use crate::markup::{Escaped, Markup};

/// Every series, in order. A series is a group in its colour, so that its marks are drawn in
/// `currentColor` too; its title is what a pointer shows.
pub(super) fn all(out: &mut Markup, chart: &Chart, frame: &Frame) {
    let bars = BarLayout::new(chart, frame);
    for (index, series) in chart.series.iter().enumerate() {
        open_group(out, index);
        out.push(format_args!("<title>{}</title>\n", Escaped(&series.name)));
        match series.mark {
            Mark::Line | Mark::Step => path(out, index, &line_path(series, frame)),
            Mark::Scatter => symbols(out, index, chart, series, frame),
            Mark::Bar => bars.draw(out, index, chart, frame),
        }
        out.push(format_args!("</g>\n"));
    }
    bars.label(out, chart, frame);
}

/// A sample of a series' mark for the legend; `at` is its left end and its middle height.
pub(super) fn swatch(out: &mut Markup, index: usize, mark: Mark, at: (f64, f64)) {
    open_group(out, index);
    let (left, middle) = at;
    match mark {
        Mark::Line | Mark::Step => path(out, index, &format!("M{} {}h12", Px(left), Px(middle))),
        Mark::Scatter => symbol(out, index, (left + 6.0, middle), None),
        Mark::Bar => rect(out, (left + 1.0, middle - 5.0, 10.0, 10.0), None),
    }
    out.push(format_args!("</g>"));
}

fn open_group(out: &mut Markup, index: usize) {
    out.push(format_args!("<g style=\"color:{}\" fill=\"currentColor\">", palette::color(index)));
}

fn path(out: &mut Markup, index: usize, commands: &str) {
    if commands.is_empty() {
        return;
    }
    let dash = match palette::dash(index) {
        "" => String::new(),
        pattern => format!(" stroke-dasharray=\"{pattern}\""),
    };
    out.push(format_args!(
        "<path d=\"{commands}\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.75\" \
         stroke-linejoin=\"round\" stroke-linecap=\"round\"{dash}/>\n",
    ));
}

/// Path commands; a point without a position ends a stretch, and the next one begins a new one.
fn line_path(series: &Series, frame: &Frame) -> String {
    let mut commands = String::new();
    let places: Vec<Option<(f64, f64)>> =
        series.points.iter().map(|point| frame.place(*point)).collect();
    for stretch in places.split(Option::is_none) {
        for (index, (x, y)) in stretch.iter().flatten().enumerate() {
            let (x, y) = (Px(*x), Px(*y));
            let written = match (index, series.mark) {
                (0, _) => write!(commands, "M{x} {y}"),
                (_, Mark::Step) => write!(commands, "H{x}V{y}"),
                _ => write!(commands, "L{x} {y}"),
            };
            written.expect("a string takes everything that displays");
        }
        if stretch.len() == 1 {
            // A stretch of no length still shows as a dot, through its round cap.
            commands.push_str("h0");
        }
    }
    commands
}

/// Above this many points single titles would make most of the file.
const MAX_TITLED_POINTS: usize = 300;

fn symbols(out: &mut Markup, index: usize, chart: &Chart, series: &Series, frame: &Frame) {
    let titled = series.points.len() <= MAX_TITLED_POINTS;
    out.push(format_args!("<g fill-opacity=\"0.75\">\n"));
    for point in &series.points {
        if let Some(place) = frame.place(*point) {
            let title = titled.then(|| point_title(chart, series, *point));
            symbol(out, index, place, title.as_deref());
        }
    }
    out.push(format_args!("</g>\n"));
}

fn symbol(out: &mut Markup, index: usize, at: (f64, f64), title: Option<&str>) {
    let shape = palette::symbol(index);
    out.push(format_args!("<path d=\"M{} {}{shape}\"", Px(at.0), Px(at.1)));
    close(out, "path", title);
}

fn rect(out: &mut Markup, area: (f64, f64, f64, f64), title: Option<&str>) {
    let (left, top, width, height) = (Px(area.0), Px(area.1), Px(area.2), Px(area.3));
    out.push(format_args!(
        "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" rx=\"1.5\""
    ));
    close(out, "rect", title);
}

fn close(out: &mut Markup, tag: &str, title: Option<&str>) {
    match title {
        Some(title) => out.push(format_args!("><title>{}</title></{tag}>\n", Escaped(title))),
        None => out.push(format_args!("/>\n")),
    }
}

/// `name: x, y`, in the axes' units.
fn point_title(chart: &Chart, series: &Series, (x, y): (f64, f64)) -> String {
    let category = chart.x.categories.get(x as usize).filter(|_| x >= 0.0);
    let x = category.cloned().unwrap_or_else(|| chart.x.unit.format(x));
    format!("{}: {x}, {}", series.name, chart.y.unit.format(y))
}

/// Widths and offsets of bars in their slots.
struct BarLayout {
    /// For each series that is drawn as bars, its place in a group.
    order: Vec<Option<usize>>,
    bar_px: f64,
    gap_px: f64,
    /// From a slot's middle to the left side of its first bar.
    start_px: f64,
    /// The height that bars stand on.
    base_px: f64,
}

impl BarLayout {
    fn new(chart: &Chart, frame: &Frame) -> Self {
        let is_bar: Vec<bool> = chart.series.iter().map(|s| s.mark == Mark::Bar).collect();
        let bars_before = |index: usize| is_bar[..index].iter().filter(|bar| **bar).count();
        let order = (0..is_bar.len()).map(|index| is_bar[index].then(|| bars_before(index)));
        // Bins of a histogram touch, groups of categories stand apart.
        let filled = if chart.x.categories.is_empty() { 1.0 } else { 0.72 };
        let pitch_px = frame.bar_slot_px * filled / bars_before(is_bar.len()).max(1) as f64;
        let gap_px = if pitch_px > 8.0 { 2.0 } else { pitch_px * 0.15 };
        let base = match chart.y.scale {
            Scale::Linear => frame.y.domain.fraction(0.0).unwrap_or(0.0).clamp(0.0, 1.0),
            Scale::Log10 => 0.0,
        };
        Self {
            order: order.collect(),
            bar_px: pitch_px - gap_px,
            gap_px,
            start_px: -frame.bar_slot_px * filled / 2.0 + gap_px / 2.0,
            base_px: frame.plot.bottom() - base * frame.plot.height,
        }
    }

    fn draw(&self, out: &mut Markup, index: usize, chart: &Chart, frame: &Frame) {
        let series = &chart.series[index];
        for point in &series.points {
            if let Some((left, y)) = self.left_and_end(index, frame, *point) {
                let top = y.min(self.base_px);
                let area = (left, top, self.bar_px, (y - self.base_px).abs());
                rect(out, area, Some(&point_title(chart, series, *point)));
            }
        }
    }

    /// Values over the bars of categories, when all of them fit.
    fn label(&self, out: &mut Markup, chart: &Chart, frame: &Frame) {
        if chart.x.categories.is_empty() {
            return;
        }
        let mut labels = Vec::new();
        for (index, series) in chart.series.iter().enumerate() {
            for point in &series.points {
                if let Some((left, y)) = self.left_and_end(index, frame, *point) {
                    let below = y > self.base_px;
                    let baseline = if below { y + SMALL_PX + 1.0 } else { y - 5.0 };
                    let middle = left + self.bar_px / 2.0;
                    labels.push((middle, baseline, chart.y.unit.format(point.1)));
                }
            }
        }
        let room_px = self.bar_px + self.gap_px;
        if labels.iter().all(|(_, _, label)| width_px(label, SMALL_PX) <= room_px) {
            for (x, y, label) in labels {
                text(out, x, y, Anchor::Middle, &label);
            }
        }
    }

    /// The left side of a point's bar and the height of its end; `None` for other marks.
    fn left_and_end(&self, index: usize, frame: &Frame, point: (f64, f64)) -> Option<(f64, f64)> {
        let order = self.order[index]?;
        let (middle, y) = frame.place(point)?;
        Some((middle + self.start_px + order as f64 * (self.bar_px + self.gap_px), y))
    }
}
