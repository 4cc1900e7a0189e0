//! Helpers of benchmarks: the clock, rounding, and processor times.

use std::fs;
use std::time::{Duration, Instant};

use thalweg_report::stats::Sample;

/// The moment.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub fn now() -> Instant {
    Instant::now()
}

/// Waits.
#[expect(clippy::disallowed_methods, reason = "a benchmark runs in real time")]
pub fn sleep(span: Duration) {
    std::thread::sleep(span);
}

/// Returns the value with this number of digits behind the point.
pub fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// Returns a percentile, or 0 where nothing was measured.
pub fn percentile(values: &[f64], percent: f64) -> f64 {
    Sample::new(values.iter().copied()).map_or(0.0, |sample| sample.percentile(percent))
}

/// Time of all processors of the machine so far, in ticks: idle, and together.
pub fn processor_ticks() -> (u64, u64) {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let numbers = text.lines().next().unwrap_or_default().split_whitespace().skip(1);
    // Guests' time is contained in that of users.
    let ticks: Vec<u64> = numbers.take(8).filter_map(|number| number.parse().ok()).collect();
    (ticks.iter().skip(3).take(2).sum(), ticks.iter().sum())
}

/// Processor time of every thread of this process so far, in seconds, by the name of the thread.
pub fn thread_times() -> Vec<(String, f64)> {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let time = |thread: fs::DirEntry| {
        let read = |file: &str| fs::read_to_string(thread.path().join(file)).ok();
        let run_ns: u64 = read("schedstat")?.split_whitespace().next()?.parse().ok()?;
        Some((read("comm")?.trim().to_owned(), round(run_ns as f64 / 1e9, 3)))
    };
    let mut times: Vec<(String, f64)> = threads.flatten().filter_map(time).collect();
    times.sort_by(|one, other| one.0.cmp(&other.0));
    times
}
