//! Outcomes of calls, from the definition of each.

use thalweg_collective::mesh::{Call, Outcome};
use thalweg_core::{Combine, Element, Rng};
use thalweg_values::combine;

/// Outcome for a rank when every rank makes its call.
pub fn outcome(calls: &[Call], rank: usize) -> Outcome {
    let is_root = |root: u32| root as usize == rank;
    match &calls[rank] {
        Call::AllReduce { element, how, .. } => Outcome::Bytes(combined(*element, *how, calls)),
        Call::ReduceScatter { element, how, counts, .. } => {
            let start: u64 = counts[..rank].iter().sum();
            let range =
                start as usize * element.bytes()..(start + counts[rank]) as usize * element.bytes();
            Outcome::Bytes(combined(*element, *how, calls)[range].to_vec())
        }
        Call::Reduce { root, element, how, .. } => match is_root(*root) {
            true => Outcome::Bytes(combined(*element, *how, calls)),
            false => Outcome::Nothing,
        },
        Call::Broadcast { root, .. } => Outcome::Bytes(data(&calls[*root as usize]).to_vec()),
        Call::AllGather { .. } => Outcome::Parts(all_data(calls)),
        Call::Gather { root, .. } => match is_root(*root) {
            true => Outcome::Parts(all_data(calls)),
            false => Outcome::Nothing,
        },
        Call::Scatter { root, .. } => Outcome::Bytes(parts(&calls[*root as usize])[rank].clone()),
        Call::AllToAll { .. } => {
            Outcome::Parts(calls.iter().map(|call| parts(call)[rank].clone()).collect())
        }
        Call::Barrier => Outcome::Nothing,
    }
}

fn data(call: &Call) -> &[u8] {
    match call {
        Call::AllReduce { data, .. }
        | Call::ReduceScatter { data, .. }
        | Call::Reduce { data, .. }
        | Call::Broadcast { data, .. }
        | Call::AllGather { data }
        | Call::Gather { data, .. } => data,
        _ => panic!("{call:?} has parts"),
    }
}

fn parts(call: &Call) -> &[Vec<u8>] {
    match call {
        Call::Scatter { parts, .. } | Call::AllToAll { parts } => parts,
        _ => panic!("{call:?} has no parts"),
    }
}

fn all_data(calls: &[Call]) -> Vec<Vec<u8>> {
    calls.iter().map(|call| data(call).to_vec()).collect()
}

fn combined(element: Element, how: Combine, calls: &[Call]) -> Vec<u8> {
    let parts: Vec<&[u8]> = calls.iter().map(data).collect();
    let mut result = vec![0; parts[0].len()];
    combine(element, how, &parts, &mut result);
    result
}

/// Values of any bits but those of infinity and NaN, whose sums depend on the order.
pub fn values(rng: &mut Rng, element: Element, count: usize) -> Vec<u8> {
    let mut values = bytes(rng, count * element.bytes());
    if element.is_float() {
        // Without the highest bit of the exponent it is small.
        values.chunks_mut(element.bytes()).for_each(|value| value[element.bytes() - 1] &= 0xbf);
    }
    values
}

pub fn bytes(rng: &mut Rng, count: usize) -> Vec<u8> {
    (0..count).map(|_| rng.below(256) as u8).collect()
}
