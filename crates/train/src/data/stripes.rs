//! Stripes in one of eight directions, of any width and anywhere, under noise.

use std::f64::consts::{PI, TAU};

use thalweg_core::Rng;

use super::{Task, between, byte, draw};

const SIDE: usize = 16;
pub(super) const WIDTH: usize = SIDE * SIDE;
pub(super) const CLASSES: usize = 8;

const TRAIN: usize = 12_000;
const TEST: usize = 2_000;

/// Largest distance of a direction from its class, as a share of the distance to the next class.
const STRAY: f64 = 0.4;
/// Points from one stripe to the next.
const PERIOD_POINTS: (f64, f64) = (4.0, 8.0);
const CONTRAST: (f64, f64) = (0.3, 0.5);
const NOISE: f64 = 0.45;

pub(super) fn task(seed: u64) -> Task {
    draw(seed, (WIDTH, CLASSES), (TRAIN, TEST), image)
}

fn image(direction: usize, rng: &mut Rng) -> Vec<u8> {
    let angle = (direction as f64 + between(rng, -STRAY, STRAY)) * PI / CLASSES as f64;
    let frequency = TAU / between(rng, PERIOD_POINTS.0, PERIOD_POINTS.1);
    let (across_x, across_y) = (frequency * libm::cos(angle), frequency * libm::sin(angle));
    let phase = between(rng, 0.0, TAU);
    let contrast = between(rng, CONTRAST.0, CONTRAST.1);
    (0..WIDTH)
        .map(|at| {
            let (x, y) = ((at % SIDE) as f64, (at / SIDE) as f64);
            let wave = libm::sin(across_x * x + across_y * y + phase);
            byte(0.5 + contrast * wave + between(rng, -NOISE, NOISE))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Differences of neighbours, to the right and downwards.
    fn differences(image: &[u8]) -> (u32, u32) {
        let differs = |a: usize, b: usize| u32::from(image[a].abs_diff(image[b]));
        let inner = (0..WIDTH - SIDE).filter(|at| at % SIDE < SIDE - 1);
        inner.fold((0, 0), |(right, down), at| {
            (right + differs(at, at + 1), down + differs(at, at + SIDE))
        })
    }

    #[test]
    fn the_class_is_the_direction_across_the_stripes() {
        for seed in 0..20 {
            let (right, down) = differences(&image(0, &mut Rng::new(seed)));
            assert!(right > down, "class 0 changes to the right: {right}, {down}");
            let (right, down) = differences(&image(4, &mut Rng::new(seed)));
            assert!(right < down, "class 4 changes downwards: {right}, {down}");
        }
    }
}
