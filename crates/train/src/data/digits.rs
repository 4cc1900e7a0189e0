//! Ten digits, drawn with strokes on a grid; every drawing is bent, moved and speckled on its own.

use thalweg_core::Rng;

use super::{Task, between, byte, draw};

const SIDE: usize = 28;
pub(super) const WIDTH: usize = SIDE * SIDE;
pub(super) const CLASSES: usize = GLYPHS.len();

const TRAIN: usize = 20_000;
const TEST: usize = 2_000;

// How much drawings differ: enough that a network without hidden layers falls well behind.
const SHIFT_POINTS: f64 = 3.5;
const SCALE: (f64, f64) = (0.75, 1.15);
const SHEAR: f64 = 0.3;
const TURN_RADIANS: f64 = 0.2;
/// Largest offset of a stroke's ends on the grid.
const WANDER: f64 = 0.25;
const THICKNESS_POINTS: (f64, f64) = (0.7, 1.7);
const INK: (f64, f64) = (0.5, 1.0);
const NOISE: f64 = 0.3;

/// A glyph is lines of strokes over a grid of 5 × 7 crossings, `y` downwards.
type Glyph = &'static [&'static [(i8, i8)]];

const CENTRE: (f64, f64) = (2.0, 3.0);
/// Points of the image between two crossings, before scaling.
const GRID_POINTS: f64 = 3.2;

#[rustfmt::skip]
const GLYPHS: [Glyph; 10] = [
    &[&[(1, 0), (3, 0), (4, 1), (4, 5), (3, 6), (1, 6), (0, 5), (0, 1), (1, 0)]],
    &[&[(1, 1), (2, 0), (2, 6)], &[(1, 6), (3, 6)]],
    &[&[(0, 1), (1, 0), (3, 0), (4, 1), (4, 2), (0, 6), (4, 6)]],
    &[&[(0, 1), (1, 0), (3, 0), (4, 1), (4, 2), (3, 3), (4, 4), (4, 5), (3, 6), (1, 6), (0, 5)],
      &[(2, 3), (3, 3)]],
    &[&[(3, 6), (3, 0), (0, 4), (4, 4)]],
    &[&[(4, 0), (0, 0), (0, 3), (3, 2), (4, 3), (4, 5), (3, 6), (0, 6)]],
    &[&[(4, 1), (3, 0), (1, 0), (0, 1), (0, 5), (1, 6), (3, 6), (4, 5), (4, 4), (3, 3), (1, 3),
        (0, 4)]],
    &[&[(0, 0), (4, 0), (1, 6)]],
    &[&[(1, 3), (0, 2), (0, 1), (1, 0), (3, 0), (4, 1), (4, 2), (3, 3), (1, 3), (0, 4), (0, 5),
        (1, 6), (3, 6), (4, 5), (4, 4), (3, 3)]],
    &[&[(4, 2), (3, 3), (1, 3), (0, 2), (0, 1), (1, 0), (3, 0), (4, 1), (4, 5), (3, 6), (1, 6),
        (0, 5)]],
];

pub(super) fn task(seed: u64) -> Task {
    draw(seed, (WIDTH, CLASSES), (TRAIN, TEST), drawing)
}

/// One drawing of a glyph.
fn drawing(glyph: usize, rng: &mut Rng) -> Vec<u8> {
    let pose = Pose::draw(rng);
    let pen = Pen {
        thickness: between(rng, THICKNESS_POINTS.0, THICKNESS_POINTS.1),
        ink: between(rng, INK.0, INK.1),
    };
    let mut image = vec![0.0; WIDTH];
    for line in GLYPHS[glyph] {
        let mut wander = |at: i8| f64::from(at) + between(rng, -WANDER, WANDER);
        let points: Vec<_> = line.iter().map(|&(x, y)| pose.place(wander(x), wander(y))).collect();
        for ends in points.windows(2) {
            pen.stroke(&mut image, ends[0], ends[1]);
        }
    }
    image.into_iter().map(|ink| byte(ink + between(rng, -NOISE, NOISE))).collect()
}

/// Position and slant of a drawing.
struct Pose {
    /// A step to the right on the grid, as a step in the image.
    right: (f64, f64),
    /// A step down on the grid, as a step in the image.
    down: (f64, f64),
    centre: (f64, f64),
}

impl Pose {
    fn draw(rng: &mut Rng) -> Pose {
        let angle = between(rng, -TURN_RADIANS, TURN_RADIANS);
        let (sin, cos) = (libm::sin(angle), libm::cos(angle));
        let width = GRID_POINTS * between(rng, SCALE.0, SCALE.1);
        let height = GRID_POINTS * between(rng, SCALE.0, SCALE.1);
        let shear = between(rng, -SHEAR, SHEAR);
        let middle = (SIDE - 1) as f64 / 2.0;
        let mut shifted = || middle + between(rng, -SHIFT_POINTS, SHIFT_POINTS);
        Pose {
            right: (width * cos, width * sin),
            down: (height * (shear * cos - sin), height * (shear * sin + cos)),
            centre: (shifted(), shifted()),
        }
    }

    /// From the grid to the image.
    fn place(&self, x: f64, y: f64) -> (f64, f64) {
        let (x, y) = (x - CENTRE.0, y - CENTRE.1);
        (
            self.centre.0 + x * self.right.0 + y * self.down.0,
            self.centre.1 + x * self.right.1 + y * self.down.1,
        )
    }
}

struct Pen {
    /// Half the width of a stroke, in points.
    thickness: f64,
    ink: f64,
}

impl Pen {
    /// Draws a stroke along a line segment; where strokes cross, the darker counts.
    fn stroke(&self, image: &mut [f64], from: (f64, f64), to: (f64, f64)) {
        let reach = self.thickness + 1.0;
        let span = |a: f64, b: f64| {
            // A cast from a negative number gives 0.
            let end = (a.max(b) + reach).ceil() as usize;
            (a.min(b) - reach).floor() as usize..end.min(SIDE)
        };
        for y in span(from.1, to.1) {
            for x in span(from.0, to.0) {
                let inside = self.thickness - distance((x as f64, y as f64), from, to);
                let point = &mut image[y * SIDE + x];
                // The edge fades over one point.
                *point = point.max(self.ink * (inside + 0.5).clamp(0.0, 1.0));
            }
        }
    }
}

/// Distance of a point from a stroke.
fn distance(point: (f64, f64), from: (f64, f64), to: (f64, f64)) -> f64 {
    let (along_x, along_y) = (to.0 - from.0, to.1 - from.1);
    let (x, y) = (point.0 - from.0, point.1 - from.1);
    let squared = along_x * along_x + along_y * along_y;
    // A stroke without length is its end.
    let share = ((x * along_x + y * along_y) / squared.max(1e-9)).clamp(0.0, 1.0);
    let (x, y) = (x - share * along_x, y - share * along_y);
    (x * x + y * y).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_to_a_stroke() {
        let (from, to) = ((0.0, 0.0), (4.0, 0.0));
        assert_eq!(distance((2.0, 3.0), from, to), 3.0);
        assert_eq!(distance((7.0, 4.0), from, to), 5.0, "beyond the end, the end counts");
        assert_eq!(distance((3.0, 4.0), from, from), 5.0);
    }

    #[test]
    fn a_pen_leaves_ink_where_the_stroke_is_and_nowhere_else() {
        let mut image = vec![0.0; WIDTH];
        let pen = Pen { thickness: 1.0, ink: 0.8 };
        pen.stroke(&mut image, (-9.0, 5.0), (4.0, 5.0));
        let row = |y: usize| image[y * SIDE..][..7].to_vec();
        assert_eq!(row(5), [0.8, 0.8, 0.8, 0.8, 0.8, 0.4, 0.0]);
        assert_eq!(row(6)[..4], [0.4; 4]);
        assert_eq!(row(7), [0.0; 7]);
    }
}
