//! Thresholds for a given distribution of sizes and load.
//!
//! One link serves flows that arrive at random. A flow's first bytes are in the highest priority, up to
//! its edge, the next in the second, and so on; a higher priority interrupts a lower one, and within a
//! priority flows take turns in order. With λ the rate of arrivals, X_a = min(X, a) the part of a size
//! below an edge a, and ρ_a = λ·E(X_a), a flow of size x that ends between the edges a and b is there
//! for
//!
//! T(x) = (λ·E(X_b²) / (2·(1 − ρ_b)) + x) / (1 − ρ_a)
//!
//! on average (Kleinrock, Queueing Systems, volume 2, §4.7). The edges that make the mean over all flows
//! least are found by moving one at a time over a grid, until none moves.

use thalweg_core::{Bytes, PRIORITIES};
use thiserror::Error;

use crate::tagger::Thresholds;

/// Places between the smallest and the largest size where an edge may lie, evenly by their logarithm.
const GRID: usize = 400;
/// Passes over all edges. Each makes the mean smaller or ends the search.
const MAX_PASSES: usize = 100;

/// Why there are no thresholds.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
pub enum OptimiseError {
    /// No distribution.
    #[error("there are no sizes to find thresholds for")]
    NoSizes,
    /// A link that is idle, or never done.
    #[error("a load of {0} has no mean: take one between 0 and 1")]
    Load(f64),
    /// Queues that there are not.
    #[error("{0} priorities are none: take 1 to {PRIORITIES}")]
    Priorities(usize),
}

/// The thresholds between `priorities` priorities with which flows of these sizes end soonest on average.
pub fn optimise(
    sizes: &[Bytes],
    load: f64,
    priorities: usize,
) -> Result<Thresholds, OptimiseError> {
    if !(1..=PRIORITIES).contains(&priorities) {
        return Err(OptimiseError::Priorities(priorities));
    }
    let link = Link::new(sizes, load)?;
    let grid = link.grid();
    let count = (priorities - 1).min(grid.len());
    // To begin with, evenly spread.
    let mut places: Vec<usize> = (1..=count).map(|edge| edge * grid.len() / (count + 1)).collect();
    for _ in 0..MAX_PASSES {
        let before = places.clone();
        for edge in 0..count {
            link.move_edge(&grid, &mut places, edge);
        }
        if places == before {
            break;
        }
    }
    let mut edges: Vec<Bytes> = places.iter().map(|&place| Bytes::new(grid[place])).collect();
    edges.dedup();
    Ok(Thresholds::new(&edges).expect("the grid rises from 1"))
}

/// A link and what it serves.
struct Link {
    /// Ascending.
    sizes: Vec<f64>,
    /// Sums of the first sizes, and of their squares.
    sums: Vec<f64>,
    squares: Vec<f64>,
    /// Arrivals in the time that a byte takes.
    arrivals: f64,
}

impl Link {
    fn new(sizes: &[Bytes], load: f64) -> Result<Link, OptimiseError> {
        if !(load > 0.0 && load < 1.0) {
            return Err(OptimiseError::Load(load));
        }
        let mut sizes: Vec<f64> = sizes.iter().map(|size| size.as_u64().max(1) as f64).collect();
        sizes.sort_by(f64::total_cmp);
        let cumulated = |power: fn(f64) -> f64| {
            let mut sum = 0.0;
            let after = sizes.iter().map(|&size| {
                sum += power(size);
                sum
            });
            std::iter::once(0.0).chain(after).collect::<Vec<f64>>()
        };
        let (sums, squares) = (cumulated(|size| size), cumulated(|size| size * size));
        let total = sums.last().copied().filter(|&total| total > 0.0);
        let arrivals = load * sizes.len() as f64 / total.ok_or(OptimiseError::NoSizes)?;
        Ok(Link { sizes, sums, squares, arrivals })
    }

    /// Places for edges: whole bytes between the smallest and the largest size, rising.
    fn grid(&self) -> Vec<u64> {
        let (first, last) = (self.sizes[0], self.sizes[self.sizes.len() - 1]);
        let step = libm::log(last / first) / GRID as f64;
        let place = |number| libm::rint(first * libm::exp(step * f64::from(number))) as u64;
        let mut grid: Vec<u64> = (1..GRID as u32).map(place).collect();
        grid.dedup();
        grid.retain(|&place| (place as f64) > first && (place as f64) < last);
        grid
    }

    /// Puts one edge where the mean is least, the others as they are.
    fn move_edge(&self, grid: &[u64], places: &mut [usize], edge: usize) {
        let from = edge.checked_sub(1).map_or(0, |before| places[before] + 1);
        let to = places.get(edge + 1).copied().unwrap_or(grid.len());
        let mut best = (f64::INFINITY, places[edge]);
        for place in from..to {
            places[edge] = place;
            let edges: Vec<u64> = places.iter().map(|&place| grid[place]).collect();
            let time = self.mean_time(&edges);
            if time < best.0 {
                best = (time, place);
            }
        }
        places[edge] = best.1;
    }

    /// Average time of a flow, in bytes that the link serves meanwhile.
    fn mean_time(&self, edges: &[u64]) -> f64 {
        let all = self.sizes.len();
        let mut sum = 0.0;
        let (mut ended, mut load_before) = (0, 0.0);
        for edge in edges.iter().map(|&edge| edge as f64).chain([f64::INFINITY]) {
            // A flow that is as large as the edge ends before it.
            let end = self.sizes.partition_point(|&size| size <= edge);
            let beyond = (all - end) as f64;
            let part = |sum: f64, each: f64| if beyond > 0.0 { sum + beyond * each } else { sum };
            let load = self.arrivals * part(self.sums[end], edge) / all as f64;
            let square = part(self.squares[end], edge * edge) / all as f64;
            let wait = self.arrivals * square / (2.0 * (1.0 - load));
            let here = self.sums[end] - self.sums[ended];
            sum += ((end - ended) as f64 * wait + here) / (1.0 - load_before);
            (ended, load_before) = (end, load);
        }
        sum / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(sizes: &[u64]) -> Vec<Bytes> {
        sizes.iter().copied().map(Bytes::new).collect()
    }

    fn mean_time(sizes: &[Bytes], load: f64, edges: &[Bytes]) -> f64 {
        let edges: Vec<u64> = edges.iter().map(|edge| edge.as_u64()).collect();
        Link::new(sizes, load).unwrap().mean_time(&edges)
    }

    /// Many small flows, few large ones.
    fn long_tail() -> Vec<Bytes> {
        (1..=2_000u64).map(|rank| Bytes::new(10_000_000 / (rank * rank) + 100)).collect()
    }

    #[test]
    fn one_priority_is_a_queue_in_order() {
        // Pollaczek and Khinchine: λ·E(X²) / (2·(1 − ρ)) + E(X), with λ = 0.6 / 25.
        let time = mean_time(&bytes(&[10, 40]), 0.6, &[]);
        let expected = 0.6 / 25.0 * 850.0 / (2.0 * 0.4) + 25.0;
        assert!((time - expected).abs() < 1e-9, "{time} is not {expected}");
    }

    #[test]
    fn two_priorities_by_hand() {
        // Edge at 10: the small flow waits for first parts alone, the large one for everything, and is
        // interrupted by first parts, which are a load of 0.6 / 25 · 10.
        let time = mean_time(&bytes(&[10, 40]), 0.6, &bytes(&[10]));
        let rate = 0.6 / 25.0;
        let first = rate * 100.0 / (2.0 * (1.0 - rate * 10.0)) + 10.0;
        let second = (rate * 850.0 / (2.0 * 0.4) + 40.0) / (1.0 - rate * 10.0);
        assert!((time - (first + second) / 2.0).abs() < 1e-9);
    }

    #[test]
    fn equal_sizes_gain_nothing() {
        assert_eq!(optimise(&bytes(&[500; 9]), 0.7, 8).unwrap().priorities(), 1);
    }

    #[test]
    fn no_single_edge_does_better() {
        let sizes = long_tail();
        let best = optimise(&sizes, 0.8, 2).unwrap();
        let least = mean_time(&sizes, 0.8, best.demotions());
        let link = Link::new(&sizes, 0.8).unwrap();
        for edge in link.grid() {
            assert!(least <= link.mean_time(&[edge]), "an edge at {edge}");
        }
    }

    #[test]
    fn more_priorities_are_never_worse() {
        let sizes = long_tail();
        let times: Vec<f64> = (1..=8)
            .map(|priorities| {
                let best = optimise(&sizes, 0.8, priorities).unwrap();
                mean_time(&sizes, 0.8, best.demotions())
            })
            .collect();
        assert!(times.is_sorted_by(|one, next| one >= next), "{times:?}");
        assert!(times[7] < 0.5 * times[0], "a long tail gains much: {times:?}");
    }

    #[test]
    fn what_has_no_answer_is_refused() {
        let sizes = long_tail();
        assert_eq!(optimise(&[], 0.5, 8), Err(OptimiseError::NoSizes));
        assert_eq!(optimise(&sizes, 1.0, 8), Err(OptimiseError::Load(1.0)));
        assert!(matches!(optimise(&sizes, f64::NAN, 8), Err(OptimiseError::Load(_))));
        assert_eq!(optimise(&sizes, 0.5, 0), Err(OptimiseError::Priorities(0)));
        assert_eq!(optimise(&sizes, 0.5, 9), Err(OptimiseError::Priorities(9)));
    }
}
