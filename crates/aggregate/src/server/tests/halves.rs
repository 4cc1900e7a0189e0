//! Sums of 16-bit values.

use thalweg_values::Half;

use super::*;

const HALF: Half = Half::Bf16;

fn body(values: &[f32]) -> Vec<u8> {
    let mut body = vec![0; 2 * values.len()];
    HALF.round(&floats(values), &mut body);
    body
}

fn in_halves() -> Setup {
    setup(&side_by_side()).with(|parameters| parameters.numeric = Numeric::Float)
}

fn of_halves(gradient: Gradient) -> Gradient {
    Gradient { numbers: Numbers::Bf16, ..gradient }
}

// spec: F-02 machine
#[test]
fn halves_are_summed_wide_and_rounded_once_for_all() {
    let mut bench = Bench::new(in_halves());
    // Twice as many values as fragments have of 32 bits. The ones alone would be lost to rounding.
    bench.give(of_halves(bench.own(0, 0)), &body(&[256.0; 8]));
    for rank in 1..5 {
        bench.give(of_halves(bench.own(rank, 0)), &body(&[1.0; 8]));
    }
    let sent = bench.drain();
    assert_eq!(destinations(&sent), [100, 101, 4]);
    for sent in &sent {
        assert_eq!((sent.parameter().numbers, &sent.body), (Numbers::Bf16, &body(&[260.0; 8])));
    }
    // A worker that asks gets the same bits.
    bench.wait_us(1_000);
    bench.ask(bench.query(4, 0, true));
    assert_eq!(bench.drain()[0].body, body(&[260.0; 8]));
}

// spec: F-02, A-41 machine
#[test]
fn a_result_that_workers_bring_back_is_not_rounded_again() {
    let mut bench = Bench::new(in_halves());
    let result = Gradient { result: true, ..of_halves(bench.own(0, 0)) };
    bench.give(result, &body(&[1.5, -3.0]));
    let sent = bench.drain();
    assert_eq!((sent.len(), &sent[0].body), (3, &body(&[1.5, -3.0])));
    assert_eq!((bench.stats().adopted, sent[0].parameter().numbers), (1, Numbers::Bf16));
}

// spec: F-02 machine
#[test]
fn halves_are_refused_where_values_travel_wide() {
    let wide = in_halves().with(|parameters| parameters.widens_halves = true);
    for setup in [wide, setup(&side_by_side())] {
        let mut bench = Bench::new(setup);
        bench.give(of_halves(bench.own(0, 0)), &body(&[1.0]));
        assert_eq!((bench.stats().mismatched, bench.stats().added), (1, 0));
    }
    let mut bench = Bench::new(in_halves());
    bench.give(of_halves(bench.own(0, 0)), &[0; 3]);
    bench.give(of_halves(bench.own(0, 0)), &[0; 18]);
    assert_eq!(bench.stats().mismatched, 2, "half a value, and more than a fragment has");
    bench.give(of_halves(bench.own(0, 0)), &[0; 16]);
    bench.give(bench.own(1, 0), &[0; 16]);
    assert_eq!((bench.stats().mismatched, bench.stats().added), (3, 1), "other numbers");
}
