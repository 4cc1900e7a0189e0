//! Index at which a fragment is summed.

use thalweg_core::{JobId, fibonacci, mix};
use thalweg_wire::aggregate::LEVELS;

/// The index of a slot, the same at every worker.
// spec: A-30
pub(crate) fn first(job: JobId, slot: u32, aggregators: u32) -> u32 {
    below(mix(job.0 ^ mix(u64::from(slot))), aggregators)
}

/// The next index after one that collided. Two jobs that collided go different ways.
///
/// Going on from one to the next leads through all of them. A hash of the old index would not: it would
/// drive whatever collides often into a few, where it collides for ever.
// spec: A-22
pub(crate) fn next(job: JobId, index: u32, aggregators: u32) -> u32 {
    ((u64::from(index) + u64::from(stride(job, aggregators))) % u64::from(aggregators)) as u32
}

/// A step of the job's own that has no divisor in common with the size of the array.
fn stride(job: JobId, aggregators: u32) -> u32 {
    let from = below(mix(!job.0), aggregators).max(1);
    let is_coprime = |stride: &u32| gcd(*stride, aggregators) == 1;
    (from..).find(is_coprime).expect("one more than the size is")
}

const fn gcd(mut one: u32, mut other: u32) -> u32 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// Place in a switch's array at which a station sums what has this index. Stations of one switch must not all
/// want the same place.
#[inline]
pub(crate) fn place(index: u32, level: u8, upper_places: [u8; LEVELS], aggregators: u32) -> u32 {
    let station = u32::from_le_bytes(upper_places);
    if station == 0 && index < aggregators {
        return index;
    }
    shifted_place(index, level, station, aggregators)
}

/// The place of an index, moved by the station's own distance. Not inlined: the compiler would compute it for every packet,
/// and the packets of one rack do not need it.
#[inline(never)]
fn shifted_place(index: u32, level: u8, station: u32, aggregators: u32) -> u32 {
    let shift = if station == 0 { 0 } else { mix(u64::from(station) << 8 | u64::from(level)) };
    ((u64::from(index) + (shift >> 32)) % u64::from(aggregators)) as u32
}

/// The places at the levels above one: what tells the stations of a level apart.
#[inline]
pub(crate) fn upper_places(places: [u8; LEVELS], level: u8) -> [u8; LEVELS] {
    let shift = 8 * (u32::from(level) + 1).min(4);
    let above = u64::from(u32::from_le_bytes(places)) >> shift << shift;
    (above as u32).to_le_bytes()
}

/// The place of a key in a table of this many.
#[inline]
pub(crate) fn bucket(key: u64, places: usize) -> usize {
    (fibonacci(key) >> 32) as usize % places
}

#[inline]
fn below(hash: u64, bound: u32) -> u32 {
    ((u128::from(hash) * u128::from(bound)) >> 64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: A-30 machine
    #[test]
    fn indices_are_fixed_by_job_and_slot_and_spread_evenly() {
        // Literal values: workers of different releases have to agree.
        assert_eq!([0, 1, 2].map(|slot| first(JobId(7), slot, 1_000)), [393, 465, 107]);
        assert_ne!(first(JobId(7), 3, 1 << 30), first(JobId(8), 3, 1 << 30));
        let mut hits = [0_u32; 16];
        (0..16_000).for_each(|slot| hits[first(JobId(1), slot, 16) as usize] += 1);
        assert!(hits.iter().all(|&hits| (900..1_100).contains(&hits)), "{hits:?}");
    }

    // spec: A-22 machine
    #[test]
    fn two_jobs_that_collide_part() {
        assert_ne!(next(JobId(1), 5, 1 << 20), next(JobId(2), 5, 1 << 20));
        assert_ne!(next(JobId(1), 5, 1 << 20), 5);
        assert!((0..1_000).all(|index| next(JobId(1), index, 10) < 10));
    }

    // spec: A-22 machine
    #[test]
    fn moving_on_leads_through_all_indices() {
        for aggregators in [1, 2, 3, 6, 7, 100, 1_980, 4_096] {
            for job in 0..20 {
                let mut seen = vec![false; aggregators as usize];
                let mut index = 0;
                for _ in 0..aggregators {
                    let known = std::mem::replace(&mut seen[index as usize], true);
                    assert!(!known, "{index} of {aggregators} comes again");
                    index = next(JobId(job), index, aggregators);
                }
                assert_eq!(index, 0, "{aggregators}");
            }
        }
        assert!(next(JobId(1), u32::MAX - 1, u32::MAX) < u32::MAX - 1);
    }

    #[test]
    fn stations_of_one_switch_have_different_places() {
        assert_eq!(upper_places([1, 2, 3, 4], 0), [0, 2, 3, 4]);
        assert_eq!(upper_places([1, 2, 3, 4], 3), [0; 4]);
        let places = [[0, 0, 0, 0], [0, 1, 0, 0], [0, 2, 0, 0]];
        let at = places.map(|upper| place(5, 0, upper, 1 << 20));
        assert!(at[0] == 5 && at[1] != at[2] && at[1] != 5 && at[2] != 5);
        assert!(places.iter().all(|&upper| place(77, 0, upper, 1) == 0));
    }
}
