//! Layout: the axes fitted to the data, and the drawing divided among its parts.

use super::Chart;
use super::axis::{Axis, Scale};
use super::legend::{self, Entry};
use super::ruler::{Ruler, Tick};
use super::scale::{Domain, transform};
use super::series::Mark;
use super::text::{SMALL_PX, shorten, width_px};

/// The distance of title, legend and vertical label from the left edge.
pub(super) const EDGE_PX: f64 = 8.0;

/// A laid-out chart.
pub(super) struct Frame {
    pub(super) height_px: f64,
    pub(super) plot: Rect,
    pub(super) x: Ruler,
    pub(super) y: Ruler,
    pub(super) legend: Vec<Entry>,
    pub(super) legend_top: f64,
    /// Names under the axis are slanted when they would run into each other.
    pub(super) slanted: bool,
    /// The width of one group of bars in pixels; 0 when there are none.
    pub(super) bar_slot_px: f64,
    pub(super) has_data: bool,
}

/// The rectangle that the axes enclose.
#[derive(Clone, Copy)]
pub(super) struct Rect {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Rect {
    pub(super) fn right(&self) -> f64 {
        self.left + self.width
    }

    pub(super) fn bottom(&self) -> f64 {
        self.top + self.height
    }
}

impl Frame {
    pub(super) fn new(chart: &Chart) -> Self {
        let extent = Extent::of(chart);
        let legend_top = if chart.title.is_empty() { EDGE_PX } else { 36.0 };
        let max_rows = (chart.height_px * 0.3 / legend::ROW_PX) as usize;
        let legend = legend::place(chart, EDGE_PX, chart.width_px - EDGE_PX, max_rows);
        let legend_rows = legend.last().map_or(0, |entry| entry.row + 1);

        let y = y_ruler(chart, extent.as_ref());
        let y_label_px = if y.title.is_empty() { 0.0 } else { 25.0 };
        let top = legend_top + legend_rows as f64 * legend::ROW_PX + y_label_px + 10.0;
        let left = EDGE_PX + widest_px(&y.ticks) + 8.0;
        let right = chart.width_px - 20.0;

        let x = x_ruler(chart, extent.as_ref(), right - left);
        let names = NameLayout::new(chart, &x, left, right);
        let x_label_px = if x.title.is_empty() { 0.0 } else { 20.0 };
        let bottom_px = names.height_px + x_label_px + 8.0;
        let height_px = chart.height_px.max(top + bottom_px + MIN_PLOT_HEIGHT_PX);

        let plot = Rect {
            left: names.left,
            top,
            width: right - names.left,
            height: height_px - top - bottom_px,
        };
        let slot = extent.as_ref().and_then(|extent| extent.bar_slot).unwrap_or(0.0);
        let bar_slot_px = slot / (x.domain.high - x.domain.low) * plot.width;
        Self {
            height_px,
            plot,
            x: Ruler { ticks: names.ticks, ..x },
            y,
            legend,
            legend_top,
            slanted: names.slanted,
            bar_slot_px,
            has_data: extent.is_some(),
        }
    }

    /// Position of a point in the drawing; `None` when the axes cannot show it.
    pub(super) fn place(&self, point: (f64, f64)) -> Option<(f64, f64)> {
        let x = self.x.domain.fraction(point.0)?;
        let y = self.y.domain.fraction(point.1)?;
        Some((self.plot.left + x * self.plot.width, self.plot.bottom() - y * self.plot.height))
    }
}

const MIN_PLOT_HEIGHT_PX: f64 = 80.0;

/// The range of everything that can be drawn, in transformed values.
struct Extent {
    x: (f64, f64),
    y: (f64, f64),
    /// The distance of neighbouring bars; `None` without bars.
    bar_slot: Option<f64>,
    has_scatter: bool,
}

impl Extent {
    /// `None` when there is nothing to draw.
    fn of(chart: &Chart) -> Option<Self> {
        let places = |mark: Option<Mark>| {
            chart
                .series
                .iter()
                .filter(move |series| mark.is_none_or(|mark| series.mark == mark))
                .flat_map(|series| &series.points)
                .filter_map(|(x, y)| {
                    Some((transform(chart.x.scale, *x)?, transform(chart.y.scale, *y)?))
                })
        };
        let mut all = places(None);
        let first = all.next()?;
        let grow = |range: (f64, f64), value: f64| (range.0.min(value), range.1.max(value));
        let start = ((first.0, first.0), (first.1, first.1));
        let (x, y) = all.fold(start, |(x, y), place| (grow(x, place.0), grow(y, place.1)));
        let bar_slot = narrowest_gap(places(Some(Mark::Bar)).map(|place| place.0).collect());
        Some(Self { x, y, bar_slot, has_scatter: places(Some(Mark::Scatter)).next().is_some() })
    }
}

/// The least distance of different values: 1 when all are the same, `None` when there are none.
fn narrowest_gap(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let magnitude = values.first()?.abs().max(values.last()?.abs());
    let gaps = values.windows(2).map(|pair| pair[1] - pair[0]);
    let distinct = gaps.filter(|gap| *gap > magnitude * 1e-9).min_by(f64::total_cmp);
    Some(distinct.unwrap_or(1.0))
}

fn y_ruler(chart: &Chart, extent: Option<&Extent>) -> Ruler {
    let axis = &chart.y;
    let Some(extent) = extent else { return Ruler::blank(axis) };
    let max_steps = ((chart.height_px / 60.0) as usize).clamp(2, 8);
    if let Some(domain) = fixed_domain(axis) {
        return Ruler::exact(axis, domain, max_steps);
    }
    let (low, high) = extent.y;
    let has_bars = extent.bar_slot.is_some();
    let (low, high) = match axis.scale {
        // The lowest bar has to have some length, and the label of the highest some room.
        Scale::Log10 if has_bars => (low - 0.3, high + 0.1 * (high - low + 0.3)),
        Scale::Log10 => (low, high),
        Scale::Linear if has_bars => (low.min(0.0) * 1.06, high.max(0.0) * 1.06),
        Scale::Linear if low > 0.0 && low <= high / 2.0 => (0.0, high),
        Scale::Linear if high < 0.0 && high >= low / 2.0 => (low, 0.0),
        Scale::Linear => (low, high),
    };
    Ruler::extended(axis, Domain::new(axis.scale, low, high), max_steps)
}

/// The horizontal axis with as many ticks as have room side by side.
fn x_ruler(chart: &Chart, extent: Option<&Extent>, width_px: f64) -> Ruler {
    let axis = &chart.x;
    let Some(extent) = extent else { return Ruler::blank(axis) };
    let fixed = fixed_domain(axis);
    let domain = fixed.unwrap_or_else(|| x_domain(axis, extent));
    let ruler = if fixed.is_some() { Ruler::exact } else { Ruler::nearly_exact };
    if !axis.categories.is_empty() {
        return Ruler::named(axis, domain);
    }
    let mut max_steps = ((width_px / 70.0) as usize).clamp(1, 10);
    loop {
        let ruler = ruler(axis, domain, max_steps);
        if max_steps == 1 || have_room(&ruler.ticks, width_px) {
            return ruler;
        }
        max_steps -= 1;
    }
}

fn x_domain(axis: &Axis, extent: &Extent) -> Domain {
    let (low, high) = extent.x;
    if !axis.categories.is_empty() {
        let last = (axis.categories.len() as f64 - 1.0).max(high);
        return Domain::new(Scale::Linear, -0.5, last + 0.5);
    }
    if let Some(slot) = extent.bar_slot {
        return Domain::new(axis.scale, low - slot / 2.0, high + slot / 2.0);
    }
    let domain = Domain::new(axis.scale, low, high);
    if !extent.has_scatter {
        return domain;
    }
    // Symbols on the frame are hard to see, but an axis of sizes should not begin below zero.
    let padded = domain.padded((domain.high - domain.low) * 0.03);
    let begins_at_zero = axis.scale == Scale::Linear && low >= 0.0;
    Domain { low: if begins_at_zero { padded.low.max(0.0) } else { padded.low }, ..padded }
}

fn fixed_domain(axis: &Axis) -> Option<Domain> {
    let (min, max) = axis.range?;
    let (low, high) = (transform(axis.scale, min)?, transform(axis.scale, max)?);
    Some(Domain::new(axis.scale, low, high))
}

fn widest_px(ticks: &[Tick]) -> f64 {
    ticks.iter().map(|tick| width_px(&tick.label, SMALL_PX)).fold(0.0, f64::max)
}

/// True if labels that are centred on their ticks keep a distance.
fn have_room(ticks: &[Tick], axis_px: f64) -> bool {
    ticks.windows(2).all(|pair| {
        let distance = (pair[1].fraction - pair[0].fraction) * axis_px;
        let widths = pair.iter().map(|tick| width_px(&tick.label, SMALL_PX)).sum::<f64>();
        distance >= widths / 2.0 + 10.0
    })
}

/// The labels under the horizontal axis and the room they need.
struct NameLayout {
    ticks: Vec<Tick>,
    slanted: bool,
    left: f64,
    height_px: f64,
}

impl NameLayout {
    const MAX_NAME_PX: f64 = 130.0;

    fn new(chart: &Chart, x: &Ruler, left: f64, right: f64) -> Self {
        let level = |ticks| Self { ticks, slanted: false, left, height_px: 20.0 };
        if chart.x.categories.is_empty() || have_room(&x.ticks, right - left) {
            return level(x.ticks.clone());
        }
        let slot_px = (right - left) / (x.domain.high - x.domain.low);
        // Slanted names need a line's height each; where they have less, some are left out.
        let stride = (SMALL_PX * 1.5 / slot_px).ceil().max(1.0) as usize;
        let ticks: Vec<Tick> = x
            .ticks
            .iter()
            .step_by(stride)
            .map(|tick| Tick {
                label: shorten(&tick.label, SMALL_PX, Self::MAX_NAME_PX).into_owned(),
                ..*tick
            })
            .collect();
        let (sin, cos) = SLANT_DEGREES.to_radians().sin_cos();
        let widest = widest_px(&ticks);
        // Names end at their tick; the first one must not begin outside of the drawing.
        let overhang = |tick: &Tick| {
            width_px(&tick.label, SMALL_PX) * cos - tick.fraction * (right - left) + EDGE_PX
        };
        let left = ticks.iter().map(overhang).fold(left, f64::max);
        Self { ticks, slanted: true, left, height_px: widest * sin + 20.0 }
    }
}

/// The angle of slanted names.
pub(super) const SLANT_DEGREES: f64 = 35.0;
