//! Coverage as bytes: for messages, and for the other processes of a host.
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | 0 exact, 1 partial, 2 unreported. Only a partial one goes on |
//! | for each part: | |
//! | 1 to 10 | number of values between the part before, or the first value, and this one |
//! | 1 to 10 | number of values of the part, less one |
//! | ⌈ranks / 8⌉ | a bit for each rank, the lowest of each byte first: set where its values are missing |
//!
//! Numbers are in groups of seven bits, the lowest first; the top bit of a byte says that another one follows. Every
//! coverage has one form, and every form takes at most 32 times as much memory when it is read.

use super::{Coverage, Missing, Part};

const EXACT: u8 = 0;
const PARTIAL: u8 = 1;
const UNREPORTED: u8 = 2;

pub(super) fn encode(coverage: &Coverage, ranks: u32) -> Vec<u8> {
    let missing = match coverage {
        Coverage::Exact => return vec![EXACT],
        Coverage::Unreported => return vec![UNREPORTED],
        Coverage::Partial(missing) => missing,
    };
    let (mut bytes, mut end) = (vec![PARTIAL], 0);
    for Part { values, ranks: missing } in missing.parts() {
        put_number(&mut bytes, values.start - end);
        put_number(&mut bytes, values.end - values.start - 1);
        put_ranks(&mut bytes, missing, ranks);
        end = values.end;
    }
    bytes
}

pub(super) fn decode(bytes: &[u8], values: u64, ranks: u32) -> Option<Coverage> {
    match bytes {
        [EXACT] => Some(Coverage::Exact),
        [UNREPORTED] => Some(Coverage::Unreported),
        [PARTIAL, rest @ ..] if !rest.is_empty() => {
            let parts = parts(rest, values, ranks)?;
            Some(Coverage::Partial(Missing { parts }))
        }
        _ => None,
    }
}

fn parts(mut bytes: &[u8], values: u64, ranks: u32) -> Option<Vec<Part>> {
    let (mut parts, mut end) = (Vec::new(), 0_u64);
    while !bytes.is_empty() {
        let from = end.checked_add(take_number(&mut bytes)?)?;
        end = from.checked_add(take_number(&mut bytes)?)?.checked_add(1)?;
        let missing = take_ranks(&mut bytes, ranks)?;
        if end > values {
            return None;
        }
        parts.push(Part { values: from..end, ranks: missing });
    }
    Some(parts)
}

fn put_ranks(bytes: &mut Vec<u8>, missing: &[u32], ranks: u32) {
    let first = bytes.len();
    bytes.resize(first + ranks.div_ceil(8) as usize, 0);
    for &rank in missing {
        assert!(rank < ranks, "rank {rank} of {ranks}");
        bytes[first + rank as usize / 8] |= 1 << (rank % 8);
    }
}

/// `None` if no rank is missing, or one that does not exist.
fn take_ranks(bytes: &mut &[u8], ranks: u32) -> Option<Vec<u32>> {
    let (set, rest) = bytes.split_at_checked(ranks.div_ceil(8) as usize)?;
    *bytes = rest;
    let is_set = |rank: &u32| set[*rank as usize / 8] >> (rank % 8) & 1 == 1;
    let missing: Vec<u32> = (0..8 * set.len() as u32).filter(is_set).collect();
    missing.last().is_some_and(|&last| last < ranks).then_some(missing)
}

fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// `None` if the number is cut off, needs more than 64 bits, or has a shorter form.
fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let group = u64::from(byte & 0x7f);
        if group << shift >> shift != group {
            return None;
        }
        number |= group << shift;
        if byte & 0x80 == 0 {
            return (byte != 0 || shift == 0).then_some(number);
        }
    }
    None
}
