//! Sums of 16-bit values in packets against those of single precision.
//!
//! Every round times all kernels in turn, so that what disturbs one disturbs all; a result is the median over the
//! rounds, in nanoseconds a packet with the same length of body.

use std::hint::black_box;
use std::time::Instant;

use thalweg_values::{Half, sum};

const ROUNDS: usize = 31;
const REPEATS: usize = 20_000;

fn main() {
    println!("{:<14}{:>10}{:>10}{:>10}{:>10}", "body", "add f32", "take", "add", "round");
    for body_bytes in [1_408, 8_908] {
        for half in [Half::Bf16, Half::F16] {
            let times = measure(half, body_bytes);
            print!("{:<14}", format!("{body_bytes} {half:?}"));
            times.iter().for_each(|nanoseconds| print!("{nanoseconds:>10.0}"));
            println!();
        }
    }
}

/// Median times of adding single precision, and of the kernels of a half.
fn measure(half: Half, body_bytes: usize) -> [f64; 4] {
    let mut body = vec![0x3c; body_bytes];
    let (mut floats, mut sums) = (vec![0; body_bytes], vec![0; 2 * body_bytes]);
    let mut samples = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        let times = [
            nanoseconds(|| sum::add_float(black_box(&mut floats), black_box(&body))),
            nanoseconds(|| half.take(black_box(&body), black_box(&mut sums))),
            nanoseconds(|| half.add(black_box(&body), black_box(&mut sums))),
            nanoseconds(|| half.round(black_box(&sums), black_box(&mut body))),
        ];
        samples.iter_mut().zip(times).for_each(|(samples, time)| samples.push(time));
    }
    samples.map(|mut samples| {
        samples.sort_by(f64::total_cmp);
        samples[samples.len() / 2]
    })
}

/// Time that one call takes.
#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn nanoseconds(mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..REPEATS).for_each(|_| call());
    start.elapsed().as_secs_f64() * 1e9 / REPEATS as f64
}
