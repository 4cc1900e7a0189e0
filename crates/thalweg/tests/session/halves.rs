//! Sums of 16-bit values: two bytes for each on every hop, and an error within that of their roundings.

use thalweg::{Collective, Policy, Reduce, Session, Value, bf16, f16};
use thalweg_values::Float;

use crate::Cluster;

const RANKS: u32 = 3;
const VALUES: usize = 704 * 40 + 9;

/// Roundings of a contribution: at the switch and at the server.
const ROUNDINGS: f64 = 2.0;

/// Numbers of both signs and of many magnitudes, so that some sums cancel. The last ones are not finite.
fn contribution<T: Float>(rank: u32) -> Vec<T> {
    let value = |at: usize| {
        let large = (at % 977) as f32 * 0.37 + 1.0;
        match rank {
            0 => large,
            1 => -large,
            _ => 1.0 / (1 + at % 61) as f32,
        }
    };
    let mut values: Vec<T> = (0..VALUES).map(|at| T::round(value(at))).collect();
    let end = values.len();
    values[end - 1] = T::round([1.0, f32::NAN, 1.0][rank as usize]);
    values[end - 2] = T::round([1.0, 1.0, f32::INFINITY][rank as usize]);
    values[end - 3] = T::round([f32::INFINITY, f32::NEG_INFINITY, 1.0][rank as usize]);
    values
}

/// Runs a sum of halves, beside one of single precision, and returns the bits of all ranks and the number of fragments that
/// each has sent for the halves.
fn sums<T: Value + Float>(loss: f64, widens_halves: bool) -> Vec<(Vec<f32>, u64)> {
    Cluster::losing(loss).run(
        RANKS,
        |config| {
            config.policy = Policy::default().collective(Collective::Aggregate);
            config.widens_halves = widens_halves;
        },
        |session: &Session| {
            let sent = || session.counters().expect("it runs").worker.fragments_sent;
            let floats = session.all_reduce(vec![1.5_f32; 1_000], Reduce::Sum).wait();
            assert_eq!(floats.expect("it ends").values, vec![4.5; 1_000]);
            let before = sent();
            let sum = session.all_reduce(contribution::<T>(session.rank()), Reduce::Sum).wait();
            let sum = sum.expect("it ends").values;
            (sum.iter().map(|value| value.widen()).collect(), sent() - before)
        },
    )
}

fn check<T: Value + Float>(unit: f64, loss: f64, widens_halves: bool) {
    let results = sums::<T>(loss, widens_halves);
    let bits = |sum: &[f32]| sum.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    for (sum, fragments) in &results {
        assert_eq!(bits(sum), bits(&results[0].0), "all ranks have the same bits");
        let of_packet = if widens_halves { 352 } else { 704 };
        assert_eq!(*fragments, VALUES.div_ceil(of_packet) as u64, "values of a packet");
    }
    let sum = &results[0].0;
    let parts: Vec<Vec<T>> = (0..RANKS).map(contribution::<T>).collect();
    let roundings = if widens_halves { 1.0 } else { ROUNDINGS };
    for at in 0..VALUES - 3 {
        let of_rank = |part: &Vec<T>| f64::from(part[at].widen());
        let exact: f64 = parts.iter().map(of_rank).sum();
        let magnitude: f64 = parts.iter().map(|part| of_rank(part).abs()).sum();
        let error = (f64::from(sum[at]) - exact).abs();
        assert!(error <= roundings * unit * magnitude, "value {at}: {} for {exact}", sum[at]);
    }
    assert!(sum[VALUES - 1].is_nan() && sum[VALUES - 3].is_nan());
    assert_eq!(sum[VALUES - 2], f32::INFINITY);
}

// spec: F-02 sockets
#[test]
fn brain_floats_take_two_bytes_on_every_hop() {
    check::<bf16>(2_f64.powi(-8), 0.0, false);
}

/// Repairs go past the switch, and what is missing there is summed at the server.
// spec: F-02 sockets
#[test]
fn half_precision_is_repaired_within_its_error() {
    check::<f16>(2_f64.powi(-11), 0.03, false);
}

// spec: F-02 sockets
#[test]
fn partial_sums_can_travel_in_single_precision() {
    check::<bf16>(2_f64.powi(-8), 0.01, true);
}
