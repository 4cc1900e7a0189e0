//! Sums of 16-bit values.

use thalweg_core::testing::OwnedBody as Content;
use thalweg_values::Half;
use thalweg_wire::aggregate::{Gradient, Numbers, RESEND};

use super::asks::request;
use super::harness::{Bench, Fate, ME, PARENT, SERVER, Sent, gradient};

const KINDS: [(Half, Numbers); 2] = [(Half::F16, Numbers::F16), (Half::Bf16, Numbers::Bf16)];

/// Values, rounded, as bytes.
fn body(half: Half, values: &[f32]) -> Vec<u8> {
    let wide: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut body = vec![0; 2 * values.len()];
    half.round(&wide, &mut body);
    body
}

fn send(bench: &mut Bench, gradient: &Gradient, body: Vec<u8>) -> (Fate, Vec<u8>) {
    let header = gradient.to_header();
    let mut sent = Sent { header, ..Sent::new(ME, Content::Bytes(body)) };
    let fate = bench.handle(&mut sent);
    let Content::Bytes(bytes) = sent.body else { panic!("only a length") };
    (fate, bytes)
}

// spec: F-02 machine
#[test]
fn halves_are_summed_wide_and_sent_as_halves() {
    for (half, numbers) in KINDS {
        let mut bench = Bench::knowing();
        let own = |worker| Gradient { numbers, ..gradient(worker) };
        // Twice as many values as an aggregator holds of 32 bits.
        let one: Vec<f32> = (0..8).map(|at| at as f32).collect();
        let (fate, _) = send(&mut bench, &own(0), body(half, &one));
        assert_eq!(fate, Fate::Consumed);
        let (fate, sum) = send(&mut bench, &own(1), body(half, &[0.5; 8]));
        let expected: Vec<f32> = one.iter().map(|value| value + 0.5).collect();
        assert_eq!((fate, sum), (Fate::Forwarded, body(half, &expected)));
    }
}

// spec: F-02 machine
#[test]
fn a_sum_is_rounded_when_it_is_sent_and_not_before() {
    // Each step alone is lost to rounding.
    for (half, numbers, large) in
        [(Half::F16, Numbers::F16, 2_048.0), (Half::Bf16, Numbers::Bf16, 256.0)]
    {
        let mut bench = Bench::knowing();
        let own = |worker| Gradient { numbers, ..super::harness::of_three(worker) };
        send(&mut bench, &own(0), body(half, &[large]));
        send(&mut bench, &own(1), body(half, &[1.0]));
        let (_, sum) = send(&mut bench, &own(2), body(half, &[1.0]));
        assert_eq!(sum, body(half, &[large + 2.0]), "{half:?}");
    }
}

// spec: F-02 machine
#[test]
fn a_sum_that_is_sent_again_has_the_same_bits() {
    let mut bench = Bench::knowing();
    let own = |worker| Gradient { numbers: Numbers::Bf16, ..gradient(worker) };
    send(&mut bench, &own(0), body(Half::Bf16, &[256.0, 3.0]));
    let (_, sum) = send(&mut bench, &own(1), body(Half::Bf16, &[1.0, 4.0]));
    assert_eq!(bench.handle(&mut Sent::bare(request().to_header())), Fate::Consumed);
    let sent = bench.transmit();
    let [again] = &sent[..] else { panic!("once, not {sent:?}") };
    assert_eq!((again.meta.dst, again.read().numbers), (PARENT, Numbers::Bf16));
    assert_eq!(again.body, Content::Bytes(sum));
}

/// Values of other lengths or meanings are other fragments.
// spec: F-02, A-03 machine
#[test]
fn halves_are_added_to_halves_of_their_type_alone() {
    let others = [Numbers::F16, Numbers::Float, gradient(0).numbers];
    for other in others {
        let mut bench = Bench::knowing();
        send(&mut bench, &Gradient { numbers: Numbers::Bf16, ..gradient(0) }, vec![0; 8]);
        let mut sent = Sent {
            header: Gradient { numbers: other, ..gradient(1) }.to_header(),
            ..Sent::new(ME, Content::Bytes(vec![0; 8]))
        };
        assert_eq!((bench.handle(&mut sent), sent.meta.dst), (Fate::Forwarded, SERVER));
        assert_eq!(sent.header[60] & RESEND, RESEND, "{other:?}");
        assert_eq!(bench.switch.stats().collisions, 1);
    }
}

// spec: F-02 machine
#[test]
fn a_body_has_whole_values() {
    let mut bench = Bench::knowing();
    let half = Gradient { numbers: Numbers::F16, ..gradient(0) };
    send(&mut bench, &half, vec![0; 3]);
    assert_eq!(bench.switch.stats().malformed, 1);
    send(&mut bench, &half, vec![0; 6]);
    assert_eq!((bench.switch.stats().malformed, bench.switch.occupied()), (1, 1));
}
