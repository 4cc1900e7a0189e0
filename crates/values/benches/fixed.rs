//! Fixed point against a plain copy of the same bytes.
//!
//! Every round times the copy and each conversion in turn, so that what disturbs one disturbs all;
//! a result is the median over the rounds of a conversion's time divided by the copy's.

use std::hint::black_box;
use std::time::Instant;

use thalweg_core::Rng;
use thalweg_values::Fixed;

/// The most that a conversion of the tensor may take, in copies.
const LIMIT: f64 = 1.5;

const ROUNDS: usize = 31;

/// A round converts at least this many values, or the clock's own cost would count.
const VALUES_PER_ROUND: usize = 1 << 20;

const CONVERSIONS: [&str; 4] = ["encode", "encode_le", "decode", "decode_le"];

fn main() {
    let sizes = [("fragment, 352 values", 352), ("256 KiB", 1 << 16), ("64 MiB", 1 << 24)];
    print!("{:<22}{:>12}", "", "copy GB/s");
    CONVERSIONS.iter().for_each(|name| print!("{name:>12}"));
    println!();
    let mut rows = Vec::new();
    for (label, values) in sizes {
        let (copy_gbytes_per_s, ratios) = measure(values);
        print!("{label:<22}{copy_gbytes_per_s:>12.1}");
        ratios.iter().for_each(|ratio| print!("{:>12}", format!("{ratio:.2}×")));
        println!();
        let fields: String =
            CONVERSIONS.iter().zip(ratios).map(|(name, x)| format!(",\"{name}\":{x:.3}")).collect();
        rows.push(format!(
            "{{\"values\":{values},\"copy_gbytes_per_s\":{copy_gbytes_per_s:.2}{fields}}}"
        ));
    }
    println!("limit for 64 MiB: {LIMIT}×");
    println!("{{\"bench\":\"fixed\",\"limit\":{LIMIT},\"rows\":[{}]}}", rows.join(","));
}

/// The speed of the copy, and the time of each conversion in copies.
fn measure(count: usize) -> (f64, [f64; CONVERSIONS.len()]) {
    let fixed = Fixed::default();
    let mut rng = Rng::new(1);
    let values: Vec<f32> = (0..count).map(|_| rng.uniform() as f32 - 0.5).collect();
    // Not zeros: those would be pages that are not there yet.
    let mut floats = vec![1.0_f32; count];
    let mut integers = vec![1_i32; count];
    let mut body = vec![1_u8; 4 * count];
    let repeats = VALUES_PER_ROUND.div_ceil(count);

    let mut copies_s = Vec::new();
    let mut ratios = [const { Vec::new() }; CONVERSIONS.len()];
    for _ in 0..ROUNDS {
        let copy_s =
            seconds(repeats, || black_box(&mut floats).copy_from_slice(black_box(&values)));
        let conversions_s = [
            seconds(repeats, || fixed.encode(black_box(&values), black_box(&mut integers))),
            seconds(repeats, || fixed.encode_le(black_box(&values), black_box(&mut body))),
            seconds(repeats, || fixed.decode(black_box(&integers), black_box(&mut floats))),
            seconds(repeats, || fixed.decode_le(black_box(&body), black_box(&mut floats))),
        ];
        copies_s.push(copy_s);
        for (ratios, conversion_s) in ratios.iter_mut().zip(conversions_s) {
            ratios.push(conversion_s / copy_s);
        }
    }
    (4.0 * count as f64 / median(copies_s) / 1e9, ratios.map(median))
}

/// Time that one call takes.
#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn seconds<T>(repeats: usize, mut call: impl FnMut() -> T) -> f64 {
    let start = Instant::now();
    for _ in 0..repeats {
        black_box(call());
    }
    start.elapsed().as_secs_f64() / repeats as f64
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
