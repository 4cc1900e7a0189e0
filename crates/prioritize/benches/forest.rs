//! Cost of a forest on one core: a prediction, and training.
//!
//! Predictions are of flows that the forest has not seen, in random order. The mean is over all of
//! them without a look at the clock in between; the percentiles are over single calls and contain the
//! clock's own cost, which is printed above them. Run it on a machine that is idle.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::Instant;

use thalweg_core::{Bytes, Rng};
use thalweg_prioritize::forest::{ROW_LEN, Row, Scratch, Settings, TrainingSet, train};

const FLOWS: usize = 60_000;
const QUERIES: usize = 10_000;
const ROUNDS: usize = 11;

/// Trees, and the most nanoseconds that a prediction may take on average.
const TARGETS: [(u32, f64); 2] = [(10, 400.0), (100, 1_500.0)];

fn main() {
    let mut rng = Rng::new(1);
    let (set, _) = flows(FLOWS, &mut rng);
    let (_, queries) = flows(QUERIES, &mut rng);
    let clock_ns = percentile(&mut singles(&queries, |_| 0), 0.5);
    println!(
        "{FLOWS} flows, depth 10; predictions of {QUERIES} others; the clock costs {clock_ns} ns"
    );
    println!(
        "{:>6}{:>12}{:>12}{:>8}{:>8}{:>10}{:>12}",
        "trees", "training", "mean", "p50", "p99", "target", "beta 0.9"
    );
    let mut rows = Vec::new();
    for (trees, target_ns) in TARGETS {
        let settings = Settings { trees, ..Settings::default() };
        let (forest, training_s) = timed(|| train(&set, &settings, &|_| ControlFlow::Continue(())));
        let forest = forest.expect("there are flows");
        let range = |row: &Row| forest.range(row).0.as_u64();
        let mean = mean_ns(&queries, 50, range);
        let mut singles = singles(&queries, range);
        let (p50, p99) = (percentile(&mut singles, 0.5), percentile(&mut singles, 0.99));
        let mut scratch = Scratch::default();
        let inner_ns =
            mean_ns(&queries[..20], 1, |row| forest.quantiles(row, 0.05, 0.95, &mut scratch));
        println!(
            "{trees:>6}{training_s:>10.2} s{mean:>9.0} ns{p50:>8}{p99:>8}{target_ns:>10}{:>9.1} us",
            inner_ns / 1e3
        );
        rows.push(format!("{{\"trees\":{trees},\"training_s\":{training_s:.3},\"mean_ns\":{mean:.1},\"p50_ns\":{p50},\"p99_ns\":{p99},\"target_ns\":{target_ns},\"beta_0.9_ns\":{inner_ns:.0}}}"));
    }
    println!("{{\"bench\":\"forest\",\"clock_ns\":{clock_ns},\"rows\":[{}]}}", rows.join(","));
}

/// Flows with long-tailed sizes and features that tell something about them.
fn flows(count: usize, rng: &mut Rng) -> (TrainingSet, Vec<Row>) {
    let mut set = TrainingSet::default();
    let mut rows = Vec::new();
    for _ in 0..count {
        let size = libm::exp(4.0 + 14.0 * rng.uniform() * rng.uniform());
        let mut row: Row = [0.0; ROW_LEN];
        for value in &mut row[..14] {
            *value = (size * (0.2 + 5.0 * rng.uniform())) as f32;
        }
        set.push(&row, Bytes::new(size as u64));
        rows.push(row);
    }
    (set, rows)
}

/// The median over batches of a batch's mean: the clock's cost is spread over a batch, and a batch that
/// was interrupted does not count.
fn mean_ns<T>(queries: &[Row], batch: usize, mut call: impl FnMut(&Row) -> T) -> f64 {
    let mut batches: Vec<f64> = Vec::new();
    for _ in 0..ROUNDS {
        for rows in queries.chunks_exact(batch) {
            let ((), seconds) = timed(|| {
                for row in rows {
                    black_box(call(black_box(row)));
                }
            });
            batches.push(seconds * 1e9 / batch as f64);
        }
    }
    batches.sort_by(f64::total_cmp);
    batches[batches.len() / 2]
}

fn singles(queries: &[Row], call: impl Fn(&Row) -> u64) -> Vec<u64> {
    let single = |row| {
        let (_, seconds) = timed(|| black_box(call(black_box(row))));
        (seconds * 1e9) as u64
    };
    queries.iter().map(single).collect()
}

fn percentile(times: &mut [u64], share: f64) -> u64 {
    times.sort_unstable();
    times[((times.len() - 1) as f64 * share) as usize]
}

#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed().as_secs_f64())
}
