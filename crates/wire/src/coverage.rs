//! Coverage of a sum as bytes: in the trailers of deliveries, and for the other processes of a host.
//!
//! A byte for the form, then a gap, a length and a bit for each rank for every part that lacks contributions. Numbers
//! are in groups of seven bits, the lowest first; the top bit of a byte says that another one follows. Every coverage
//! has one form, and every form takes at most 32 times as much memory when it is read.
// spec: T-11

use thalweg_core::Coverage;
use thalweg_core::coverage::Part;
use thiserror::Error;

const EXACT: u8 = 0;
const PARTIAL: u8 = 1;
const UNREPORTED: u8 = 2;

/// Why a coverage cannot be read. The sender is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum CoverageError {
    /// Bytes that begin like no coverage, or go on where none does.
    #[error("the coverage has another form than exact, partial or unreported")]
    Form,
    /// The last part is not whole.
    #[error("the coverage is cut off")]
    Short,
    /// A number that is too long.
    #[error("a number of the coverage needs more than 64 bits, or has a shorter form")]
    Number,
    /// A part beyond the sum.
    #[error("a part of the coverage ends beyond the values of the sum")]
    Values,
    /// A part that lacks nothing, or a rank that does not exist.
    #[error("a part of the coverage lacks no rank, or one that does not exist")]
    Ranks,
}

/// Returns the bytes of a coverage of a sum over this number of ranks.
///
/// # Panics
///
/// If a rank is missing that does not exist.
pub fn encode(coverage: &Coverage, ranks: u32) -> Vec<u8> {
    let missing = match coverage {
        Coverage::Exact => return vec![EXACT],
        Coverage::Partial(missing) => missing,
        _ => return vec![UNREPORTED],
    };
    let (mut bytes, mut end) = (vec![PARTIAL], 0);
    for Part { values, ranks: missing, .. } in missing.parts() {
        put_number(&mut bytes, values.start - end);
        put_number(&mut bytes, values.end - values.start - 1);
        put_ranks(&mut bytes, missing, ranks);
        end = values.end;
    }
    bytes
}

/// Reads the coverage of a sum of this number of values and ranks.
pub fn decode(bytes: &[u8], values: u64, ranks: u32) -> Result<Coverage, CoverageError> {
    match bytes {
        [EXACT] => Ok(Coverage::Exact),
        [UNREPORTED] => Ok(Coverage::Unreported),
        [PARTIAL, rest @ ..] if !rest.is_empty() => {
            parts(rest, values, ranks).map(Coverage::lacking)
        }
        _ => Err(CoverageError::Form),
    }
}

fn parts(mut bytes: &[u8], values: u64, ranks: u32) -> Result<Vec<Part>, CoverageError> {
    let (mut parts, mut end) = (Vec::new(), 0_u64);
    while !bytes.is_empty() {
        let (gap, length) = (take_number(&mut bytes)?, take_number(&mut bytes)?);
        let range = |from: u64| Some(from..from.checked_add(length)?.checked_add(1)?);
        let range = end.checked_add(gap).and_then(range).filter(|range| range.end <= values);
        let range = range.ok_or(CoverageError::Values)?;
        end = range.end;
        parts.push(Part::new(range, take_ranks(&mut bytes, ranks)?));
    }
    Ok(parts)
}

fn put_ranks(bytes: &mut Vec<u8>, missing: &[u32], ranks: u32) {
    let first = bytes.len();
    bytes.resize(first + ranks.div_ceil(8) as usize, 0);
    for &rank in missing {
        assert!(rank < ranks, "rank {rank} of {ranks}");
        bytes[first + rank as usize / 8] |= 1 << (rank % 8);
    }
}

fn take_ranks(bytes: &mut &[u8], ranks: u32) -> Result<Vec<u32>, CoverageError> {
    let set = bytes.split_at_checked(ranks.div_ceil(8) as usize);
    let (set, rest) = set.ok_or(CoverageError::Short)?;
    *bytes = rest;
    let is_set = |rank: &u32| set[*rank as usize / 8] >> (rank % 8) & 1 == 1;
    let missing: Vec<u32> = (0..8 * set.len() as u32).filter(is_set).collect();
    let is_known = missing.last().is_some_and(|&last| last < ranks);
    if is_known { Ok(missing) } else { Err(CoverageError::Ranks) }
}

fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Result<u64, CoverageError> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(CoverageError::Short)?;
        *bytes = rest;
        let group = u64::from(byte & 0x7f);
        let is_last = byte & 0x80 == 0;
        if group << shift >> shift != group || is_last && byte == 0 && shift != 0 {
            return Err(CoverageError::Number);
        }
        number |= group << shift;
        if is_last {
            return Ok(number);
        }
    }
    Err(CoverageError::Number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Any coverage of a sum of 100 values and 5 ranks.
    fn any_coverage() -> impl Strategy<Value = Coverage> {
        let parts = prop::collection::vec((0..6_u64, 0..6_u64, 0..16_u32), 0..12);
        let partial = parts.prop_map(|parts| {
            let mut at = 0;
            Coverage::lacking(parts.into_iter().map(|(gap, length, ranks)| {
                let from = at + gap;
                at = from + length;
                let ranks = (0..5).filter(|rank| ranks >> rank & 1 == 1).collect();
                Part::new(from..at, ranks)
            }))
        });
        prop_oneof![8 => partial, 1 => Just(Coverage::Exact), 1 => Just(Coverage::Unreported)]
    }

    // spec: T-11 machine
    #[test]
    fn bytes_that_stand_for_nothing_are_not_taken_for_an_exact_sum() {
        use CoverageError::*;
        let wrong: [(&[u8], CoverageError); 14] = [
            (&[], Form),
            (&[3], Form),
            (&[0, 0], Form),
            (&[2, 0], Form),
            (&[1], Form),
            (&[1, 0], Short),
            (&[1, 0, 0], Short),
            // Nobody is missing; a rank that does not exist is.
            (&[1, 0, 0, 0], Ranks),
            (&[1, 0, 0, 0b10_0000], Ranks),
            // A part behind the last value, and one behind what can be counted.
            (&[1, 99, 1, 1], Values),
            (&[1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 1], Values),
            (&[1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 1], Number),
            // A number with a longer form than it needs.
            (&[1, 0x80, 0, 0, 1], Number),
            (&[1, 0, 0x80], Short),
        ];
        for (bytes, error) in wrong {
            assert_eq!(decode(bytes, 100, 5), Err(error), "{bytes:?}");
        }
    }

    #[test]
    fn bytes_are_few() {
        let part = |values, ranks: &[u32]| Part::new(values, ranks.to_vec());
        let partial = Coverage::lacking([part(2..4, &[0, 1]), part(6..7, &[2])]);
        assert_eq!(encode(&partial, 5), [1, 2, 1, 0b11, 2, 0, 0b100]);
        assert_eq!([Coverage::Exact, Coverage::Unreported].map(|of| encode(&of, 5)), [[0], [2]]);
    }

    proptest! {
        // spec: T-11 machine
        #[test]
        fn bytes_stand_for_the_coverage_that_was_written(coverage in any_coverage(), kept in 0..40_usize) {
            let bytes = encode(&coverage, 5);
            prop_assert_eq!(decode(&bytes, 200, 5), Ok(coverage));
            // A message that was cut short never reports more than what is in it.
            let cut = decode(&bytes[..kept.min(bytes.len() - 1)], 200, 5);
            prop_assert!(!cut.is_ok_and(|cut| cut.is_exact()));
        }

        /// Coverage that is read is written again as it was, lies within the sum, and is not much longer in memory.
        // spec: T-11 machine
        #[test]
        fn any_bytes_are_refused_or_are_what_we_write(
            coverage in any_coverage(),
            changes in prop::collection::vec((0..60_usize, any::<u8>()), 0..4),
            noise in prop::collection::vec(any::<u8>(), 0..20),
            values in 0..200_u64,
            ranks in 0..20_u32,
        ) {
            let mut bytes = encode(&coverage, 5);
            let length = bytes.len();
            changes.into_iter().for_each(|(at, byte)| bytes[at % length] = byte);
            for bytes in [bytes, noise] {
                let Ok(read) = decode(&bytes, values, ranks) else { continue };
                prop_assert_eq!(encode(&read, ranks), &bytes[..]);
                let parts = read.missing().unwrap_or_default();
                prop_assert!(parts.iter().all(|part| part.values.end <= values));
                prop_assert!(parts.iter().all(|part| part.ranks.iter().all(|rank| *rank < ranks)));
                let listed: usize = parts.iter().map(|part| part.ranks.len()).sum();
                prop_assert!(listed <= 8 * bytes.len());
            }
        }
    }
}
