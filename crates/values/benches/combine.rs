//! Combining blocks of several workers: nanoseconds a block of 8 KiB, as ranks of one host combine them.
//!
//! Every round times all in turn, so that what disturbs one disturbs all; a result is the median over the rounds.
//!
//! `cargo bench -p thalweg-values --bench combine`

use std::hint::black_box;
use std::time::Instant;

use thalweg_core::{Combine, Element};
use thalweg_values::combine;

const ROUNDS: usize = 31;
const REPEATS: usize = 2_000;
const BLOCK_BYTES: usize = 8 << 10;
const PARTS: [usize; 4] = [2, 3, 4, 8];
const ELEMENTS: [Element; 3] = [Element::F32, Element::F16, Element::Bf16];

fn main() {
    let blocks: Vec<Vec<u8>> = (0..8).map(|part| vec![0x30 + part; BLOCK_BYTES]).collect();
    let parts: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
    let mut samples = ELEMENTS.map(|_| PARTS.map(|_| Vec::new()));
    for _ in 0..ROUNDS {
        for (element, samples) in ELEMENTS.iter().zip(&mut samples) {
            for (count, samples) in PARTS.iter().zip(samples) {
                samples.push(nanoseconds(*element, &parts[..*count]));
            }
        }
    }
    println!("{:<8}{}", "parts", PARTS.map(|count| format!("{count:>8}")).concat());
    for (element, samples) in ELEMENTS.iter().zip(&mut samples) {
        print!("{:<8}", element.name());
        for samples in samples {
            samples.sort_by(f64::total_cmp);
            print!("{:>8.0}", samples[ROUNDS / 2]);
        }
        println!();
    }
}

/// Time that one block takes.
#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn nanoseconds(element: Element, parts: &[&[u8]]) -> f64 {
    let mut result = vec![0; BLOCK_BYTES];
    let start = Instant::now();
    for _ in 0..REPEATS {
        combine(element, Combine::Sum, black_box(parts), black_box(&mut result));
    }
    start.elapsed().as_secs_f64() * 1e9 / REPEATS as f64
}
