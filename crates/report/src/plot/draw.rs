//! The drawing around the data: title, legend, grid, labels.

use super::Chart;
use super::frame::{EDGE_PX, Frame, SLANT_DEGREES};
use super::legend::{ROW_PX, SWATCH_PX};
use super::marks;
use super::text::{Px, SMALL_PX, TITLE_PX, shorten};
use crate::markup::{Escaped, Markup};

/// The whole chart.
pub(super) fn chart(chart: &Chart) -> String {
    let frame = Frame::new(chart);
    let mut out = Markup::default();
    out.push(format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {} {}\" \
         role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"{SMALL_PX}\" \
         fill=\"currentColor\">\n",
        Px(chart.width_px),
        Px(frame.height_px),
    ));
    out.push(format_args!("<title>{}</title>\n", Escaped(&chart.title)));
    title(&mut out, chart);
    legend(&mut out, chart, &frame);
    horizontal_grid(&mut out, &frame);
    vertical_grid(&mut out, &frame);
    axis_labels(&mut out, &frame);
    if frame.has_data {
        data(&mut out, chart, &frame);
    } else {
        no_data(&mut out, &frame);
    }
    out.push(format_args!("</svg>\n"));
    out.finish()
}

fn title(out: &mut Markup, chart: &Chart) {
    if chart.title.is_empty() {
        return;
    }
    let shown = shorten(&chart.title, TITLE_PX, chart.width_px - 2.0 * EDGE_PX);
    out.push(format_args!(
        "<text x=\"{}\" y=\"21\" font-size=\"{TITLE_PX}\" font-weight=\"600\">{}</text>\n",
        Px(EDGE_PX),
        Escaped(&shown),
    ));
}

fn legend(out: &mut Markup, chart: &Chart, frame: &Frame) {
    for entry in &frame.legend {
        let middle = frame.legend_top + entry.row as f64 * ROW_PX + ROW_PX / 2.0;
        let Some(series) = entry.series.map(|index| (index, &chart.series[index])) else {
            text(out, entry.left, middle + 4.0, Anchor::Start, &entry.text);
            continue;
        };
        out.push(format_args!("<g><title>{}</title>", Escaped(&series.1.name)));
        marks::swatch(out, series.0, series.1.mark, (entry.left, middle));
        text(out, entry.left + SWATCH_PX, middle + 4.0, Anchor::Start, &entry.text);
        out.push(format_args!("</g>\n"));
    }
}

/// Lines across at the vertical axis' ticks, with their labels. The ground line is stronger.
fn horizontal_grid(out: &mut Markup, frame: &Frame) {
    let (left, right) = (frame.plot.left, frame.plot.right());
    for tick in &frame.y.ticks {
        let y = frame.plot.bottom() - tick.fraction * frame.plot.height;
        line(out, (left, y), (right, y), GRID_OPACITY);
        text(out, left - 8.0, y + 4.0, Anchor::End, &tick.label);
    }
    let ground = frame.y.domain.fraction(0.0).filter(|part| (0.0..=1.0).contains(part));
    let y = frame.plot.bottom() - ground.unwrap_or(0.0) * frame.plot.height;
    line(out, (left, y), (right, y), AXIS_OPACITY);
}

fn vertical_grid(out: &mut Markup, frame: &Frame) {
    let (top, bottom) = (frame.plot.top, frame.plot.bottom());
    for tick in &frame.x.ticks {
        let x = frame.plot.left + tick.fraction * frame.plot.width;
        // Bars need no lines between them, only marks that say whose name is whose.
        let start = if frame.bar_slot_px > 0.0 { bottom } else { top };
        line(out, (x, start), (x, bottom + 4.0), GRID_OPACITY);
        if frame.slanted {
            slanted_text(out, x + 4.0, bottom + 14.0, &tick.label);
        } else {
            text(out, x, bottom + 18.0, Anchor::Middle, &tick.label);
        }
    }
}

/// The vertical axis' label stands above the axis, where it can be read without turning the head.
fn axis_labels(out: &mut Markup, frame: &Frame) {
    out.push(format_args!("<g opacity=\"0.7\">"));
    if !frame.y.title.is_empty() {
        let shown = shorten(&frame.y.title, SMALL_PX, frame.plot.right() - EDGE_PX);
        text(out, EDGE_PX, frame.plot.top - 16.0, Anchor::Start, &shown);
    }
    if !frame.x.title.is_empty() {
        let shown = shorten(&frame.x.title, SMALL_PX, frame.plot.width);
        let middle = frame.plot.left + frame.plot.width / 2.0;
        text(out, middle, frame.height_px - 8.0, Anchor::Middle, &shown);
    }
    out.push(format_args!("</g>\n"));
}

/// The data is drawn in an inner `<svg>` of the same coordinates, which cuts off what lies outside
/// without an id that could meet its double on a page of many charts.
fn data(out: &mut Markup, chart: &Chart, frame: &Frame) {
    let plot = &frame.plot;
    let (left, top) = (Px(plot.left - MARGIN_PX), Px(plot.top - MARGIN_PX));
    let (width, height) = (Px(plot.width + 2.0 * MARGIN_PX), Px(plot.height + 2.0 * MARGIN_PX));
    out.push(format_args!(
        "<svg x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"{left} {top} {width} {height}\">\n",
    ));
    marks::all(out, chart, frame);
    out.push(format_args!("</svg>\n"));
}

fn no_data(out: &mut Markup, frame: &Frame) {
    let x = frame.plot.left + frame.plot.width / 2.0;
    let y = frame.plot.top + frame.plot.height / 2.0;
    out.push(format_args!("<g opacity=\"0.6\">"));
    text(out, x, y, Anchor::Middle, "no data");
    out.push(format_args!("</g>\n"));
}

const GRID_OPACITY: f64 = 0.13;
const AXIS_OPACITY: f64 = 0.55;

/// Half a symbol: what stands on the frame is not cut in two.
const MARGIN_PX: f64 = 5.0;

/// End of a text that its position refers to.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

pub(super) fn text(out: &mut Markup, x: f64, y: f64, anchor: Anchor, content: &str) {
    let anchor = match anchor {
        Anchor::Start => "",
        Anchor::Middle => " text-anchor=\"middle\"",
        Anchor::End => " text-anchor=\"end\"",
    };
    let content = Escaped(content);
    out.push(format_args!("<text x=\"{}\" y=\"{}\"{anchor}>{content}</text>\n", Px(x), Px(y)));
}

fn slanted_text(out: &mut Markup, x: f64, y: f64, content: &str) {
    out.push(format_args!(
        "<text text-anchor=\"end\" transform=\"translate({} {}) rotate(-{SLANT_DEGREES})\">{}</text>\n",
        Px(x),
        Px(y),
        Escaped(content),
    ));
}

fn line(out: &mut Markup, from: (f64, f64), to: (f64, f64), opacity: f64) {
    out.push(format_args!(
        "<path d=\"M{} {}L{} {}\" stroke=\"currentColor\" stroke-opacity=\"{opacity}\"/>\n",
        Px(from.0),
        Px(from.1),
        Px(to.0),
        Px(to.1),
    ));
}
