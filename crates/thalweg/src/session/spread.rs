//! A sum in parts, one for each sending thread.

use thalweg_core::Fingerprint;
use thalweg_values::{Coverage, Tensor, split, unsplit};

use super::other_type;
use super::team::begin;
use crate::engine::{Command, JointOperation, OpenPart, Post, Sum, Summed};
use crate::error::Error;
use crate::handle::{Handle, all, pair};
use crate::policy::Policy;

/// Least bytes of a part: shorter ones gain little from a second thread. Programs such as NCCL have many sums of up to
/// twice as many bytes in flight, which keep all threads busy without being divided.
const PART_BYTES: u64 = 512 << 10;

/// Parts begin at multiples of this number of values, so that two threads write no cache line in common.
const PART_VALUES: u64 = 1 << 10;

/// The sending threads of one sum, each with the end of its part.
#[derive(Debug)]
pub(super) struct Spread {
    parts: Vec<(Post, u64)>,
    /// The first thread of the session, which numbers operations, and whether it has a part.
    numbering: (Post, bool),
}

/// Number of parts of a sum, on at most this number of threads. The same at every rank.
// spec: F-04
pub(super) fn parts_of(bytes: u64, threads: usize) -> usize {
    // More parts than threads are of no use, and there are few threads.
    ((bytes / PART_BYTES) as usize).clamp(1, threads)
}

/// The ends of this number of parts.
fn ends(values: u64, parts: u64) -> impl Iterator<Item = u64> {
    let even = values.div_ceil(parts).next_multiple_of(PART_VALUES);
    (1..=parts).map(move |part| if part == parts { values } else { (part * even).min(values) })
}

impl Spread {
    /// A sum of this number of values on these threads, given the first thread of the session and whether it is among them.
    pub fn new(values: u64, threads: Vec<Post>, numbering: (Post, bool)) -> Spread {
        let ends = ends(values, threads.len() as u64);
        Spread { parts: threads.into_iter().zip(ends).collect(), numbering }
    }

    /// The first thread.
    pub fn first(&self) -> &Post {
        &self.parts[0].0
    }

    /// Has the first thread of the session number an operation of this host, in the order of the calls.
    pub fn begin(&self, fingerprint: Fingerprint) -> OpenPart {
        begin(&self.numbering.0, fingerprint)
    }

    /// Sums a tensor over all hosts, as a part of an operation that the ranks of this host have begun, if they have.
    // spec: F-04
    pub fn sum(
        self,
        tensor: Tensor,
        (policy, fingerprint): (Policy, Fingerprint),
        begun: Option<&OpenPart>,
    ) -> Handle<Summed> {
        let whole_sum = match (begun, &self.numbering) {
            (Some(begun), _) => begun.another(),
            // The thread numbers it when it begins its part.
            (None, (_, true)) => JointOperation::begin(fingerprint),
            (None, (first, false)) => begin(first, fingerprint),
        };
        let ends: Vec<u64> = self.parts.iter().map(|(_, end)| *end).collect();
        let tensors = if ends.len() == 1 { vec![tensor] } else { split(tensor, &ends) };
        let handles = tensors.into_iter().zip(&self.parts).map(|(tensor, (post, _))| {
            let (handle, reply) = pair(|summed: Summed| Ok(summed));
            let part = whole_sum.another();
            post.send(Command::Sum(Sum { tensor, policy, fingerprint, part, reply }));
            handle
        });
        let mut handles: Vec<_> = handles.collect();
        match handles.pop() {
            Some(only) if handles.is_empty() => only,
            last => {
                all(handles.into_iter().chain(last).collect(), move |parts| whole(parts, &ends))
            }
        }
    }
}

fn whole(parts: Vec<Summed>, ends: &[u64]) -> Result<Summed, Error> {
    let starts = std::iter::once(&0).chain(ends);
    let (tensors, coverages): (Vec<Tensor>, Vec<Coverage>) = parts
        .into_iter()
        .zip(starts)
        .map(|(part, start)| (part.tensor, part.coverage.placed_at(*start)))
        .unzip();
    let tensor = unsplit(tensors).ok_or_else(other_type)?;
    Ok(Summed { tensor, coverage: Coverage::joined(coverages) })
}

#[cfg(test)]
mod tests {
    use thalweg_values::Part;

    use super::*;

    // spec: F-04 machine
    #[test]
    fn parts_are_even_and_long_enough() {
        assert_eq!(
            [0, 1, 600_000, 1_200_000, 10 << 20].map(|bytes| parts_of(bytes, 4)),
            [1, 1, 1, 2, 4]
        );
        assert_eq!(parts_of(u64::MAX, 3), 3);
        let ends_of = |values, parts| ends(values, parts).collect::<Vec<_>>();
        assert_eq!(ends_of(100_000, 1), [100_000]);
        assert_eq!(ends_of(100_000, 3), [33_792, 67_584, 100_000]);
        assert_eq!(ends_of(1_500, 3), [1_024, 1_500, 1_500]);
    }

    // spec: T-11 machine
    #[test]
    fn the_whole_lacks_what_its_parts_lack() {
        let tensors = split(Tensor::from(vec![1.0; 10]), &[4, 10]);
        let lacks = |values, ranks: &[u32]| Coverage::lacking([Part::new(values, ranks.to_vec())]);
        let coverages = [lacks(1..2, &[0]), lacks(0..3, &[5])];
        let parts = tensors.into_iter().zip(coverages);
        let parts = parts.map(|(tensor, coverage)| Summed { tensor, coverage }).collect();
        let Ok(summed) = whole(parts, &[4, 10]) else { panic!("they are the whole") };
        assert_eq!(summed.tensor, Tensor::from(vec![1.0; 10]));
        let expected = [Part::new(1..2, vec![0]), Part::new(4..7, vec![5])];
        assert_eq!(summed.coverage, Coverage::lacking(expected));
    }
}
