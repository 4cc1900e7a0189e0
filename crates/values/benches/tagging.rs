//! Cost that telling important packets apart adds to packing them.
//!
//! Packs a tensor into packets' bodies: alone, and with the sum of magnitudes and the comparison with the
//! threshold in the same pass; also the sample that the threshold comes from. Every round times all of
//! them and a plain copy of the same bytes in turn, so that what disturbs one disturbs all; a result is
//! the median over the rounds of a time divided by the copy's.

use std::hint::black_box;
use std::time::Instant;

use thalweg_core::{Operation, Rng};
use thalweg_values::Importance;
use thalweg_values::float::write_le;
use thalweg_values::importance::{Threshold, pack_and_sum};

/// The most that tagging may add, sample included, in copies.
const LIMIT: f64 = 0.5;

const ROUNDS: usize = 31;
const SEGMENT_VALUES: u16 = 352;
const SEGMENT: usize = SEGMENT_VALUES as usize;

/// Bodies of packets in a ring, as in the memory of a driver: 1.4 MB.
const BODIES: usize = 1_000;

/// A round packs at least this many values, or the clock's own cost would count.
const VALUES_PER_ROUND: usize = 1 << 20;

fn main() {
    let sizes =
        [("256 KiB", 186 * SEGMENT), ("4 MiB", 2_979 * SEGMENT), ("64 MiB", 47_662 * SEGMENT)];
    println!(
        "{:<10}{:>12}{:>10}{:>16}{:>10}{:>12}{:>12}",
        "", "copy GB/s", "pack", "pack and tag", "sample", "tag adds", "the limit"
    );
    let mut rows = Vec::new();
    for (label, values) in sizes {
        let Measured { copy_gbytes_per_s, pack, tagged, sample } = measure(values);
        let adds = tagged - pack + sample;
        let verdict = if adds <= LIMIT { "within" } else { "above" };
        println!(
            "{label:<10}{copy_gbytes_per_s:>12.1}{pack:>9.2}×{tagged:>15.2}×{sample:>9.2}×\
             {adds:>11.2}×{verdict:>12}"
        );
        rows.push(format!(
            "{{\"values\":{values},\"copy_gbytes_per_s\":{copy_gbytes_per_s:.2},\"pack\":{pack:.3},\
             \"pack_and_tag\":{tagged:.3},\"sample\":{sample:.3},\"tag_adds\":{adds:.3}}}"
        ));
    }
    println!("limit: {LIMIT}×");
    println!("{{\"bench\":\"tagging\",\"limit\":{LIMIT},\"rows\":[{}]}}", rows.join(","));
}

/// Times in copies.
struct Measured {
    copy_gbytes_per_s: f64,
    pack: f64,
    tagged: f64,
    sample: f64,
}

fn measure(count: usize) -> Measured {
    let mut rng = Rng::new(1);
    let values: Vec<f32> = (0..count).map(|_| rng.uniform() as f32 - 0.5).collect();
    // Not zeros: those would be pages that are not there yet.
    let mut copy = vec![1.0_f32; count];
    let mut bodies = vec![1_u8; 4 * SEGMENT * BODIES];
    let threshold = Threshold::of(Importance::PacketMean, &values, SEGMENT_VALUES, Operation(0));
    let repeats = VALUES_PER_ROUND.div_ceil(count);
    let mut copies_s = Vec::new();
    let mut ratios = [const { Vec::new() }; 3];
    for round in 0..ROUNDS {
        let copy_s = seconds(repeats, || black_box(&mut copy).copy_from_slice(black_box(&values)));
        let times_s = [
            seconds(repeats, || pack_all(black_box(&values), black_box(&mut bodies))),
            seconds(repeats, || tag_all(black_box(&values), black_box(&mut bodies), threshold)),
            seconds(repeats, || {
                let operation = Operation(round as u64);
                Threshold::of(Importance::PacketMean, black_box(&values), SEGMENT_VALUES, operation)
            }),
        ];
        copies_s.push(copy_s);
        ratios.iter_mut().zip(times_s).for_each(|(ratios, time_s)| ratios.push(time_s / copy_s));
    }
    let [pack, tagged, sample] = ratios.map(median);
    let copy_gbytes_per_s = 4.0 * count as f64 / median(copies_s) / 1e9;
    Measured { copy_gbytes_per_s, pack, tagged, sample }
}

fn pack_all(values: &[f32], bodies: &mut [u8]) {
    for (at, segment) in values.chunks(SEGMENT).enumerate() {
        write_le(segment, body(bodies, at, segment.len()));
    }
}

/// Number of packets that were important.
fn tag_all(values: &[f32], bodies: &mut [u8], threshold: Threshold) -> u32 {
    let mut important = 0;
    for (at, segment) in values.chunks(SEGMENT).enumerate() {
        let sum = pack_and_sum(segment, body(bodies, at, segment.len()));
        important += u32::from(threshold.is_below(sum, segment.len()));
    }
    important
}

fn body(bodies: &mut [u8], at: usize, values: usize) -> &mut [u8] {
    let from = at % BODIES * 4 * SEGMENT;
    &mut bodies[from..from + 4 * values]
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
