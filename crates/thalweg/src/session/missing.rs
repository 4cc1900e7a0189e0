//! What sums lack.

use std::ops::Range;

use thalweg_aggregate::Absences;
use thalweg_control::Welcome;
use thalweg_core::Tensor;
use thalweg_core::element::divide;

use super::team::bytes_of;
use crate::engine::Summed;

/// A result, and what it lacks.
#[derive(Clone, PartialEq, Debug)]
pub struct Reduced<T> {
    /// The values, combined.
    pub values: T,
    /// Whose are missing where. Always nothing of what is exact.
    pub missing: Missing,
}

/// Whose values a sum lacks, and where. The same at every rank.
// spec: T-02
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Missing {
    parts: Vec<Part>,
}

/// A part of a tensor that lacks values of some ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// Which values.
    pub values: Range<u64>,
    /// Whose. Never all ranks'.
    pub ranks: Vec<u32>,
}

impl Missing {
    /// Whether everybody's values are everywhere.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The parts that lack something, in order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// How many values of a rank are missing.
    pub fn of_rank(&self, rank: u32) -> u64 {
        let lacking = self.parts.iter().filter(|part| part.ranks.contains(&rank));
        lacking.map(|part| part.values.end - part.values.start).sum()
    }

    /// What is missing of some of the values, counted from the first of these.
    pub(super) fn within(&self, values: &Range<u64>) -> Missing {
        let cut = |part: &Part| {
            let from = part.values.start.max(values.start);
            let to = part.values.end.min(values.end);
            let values = from.checked_sub(values.start)?..to.checked_sub(values.start)?;
            (from < to).then(|| Part { values, ranks: part.ranks.clone() })
        };
        Missing { parts: self.parts.iter().filter_map(cut).collect() }
    }

    /// As numbers, to be handed to the other ranks of a host.
    pub(super) fn to_words(&self) -> Vec<u64> {
        let words = |part: &Part| {
            let head = [part.values.start, part.values.end, part.ranks.len() as u64];
            head.into_iter().chain(part.ranks.iter().copied().map(u64::from)).collect::<Vec<_>>()
        };
        self.parts.iter().flat_map(words).collect()
    }

    /// What numbers of [`to_words`](Missing::to_words) stand for.
    pub(super) fn from_words(mut words: &[u64]) -> Missing {
        let mut parts = Vec::new();
        while let [from, to, count, rest @ ..] = words {
            let (ranks, rest) = rest.split_at((*count as usize).min(rest.len()));
            let ranks = ranks.iter().map(|&rank| rank as u32).collect();
            parts.push(Part { values: *from..*to, ranks });
            words = rest;
        }
        Missing { parts }
    }
}

/// The ranks of every host, by seat.
#[derive(Clone, Debug)]
pub(super) struct Hosts(Vec<Vec<u32>>);

impl Hosts {
    pub fn new(welcome: &Welcome) -> Hosts {
        let mut hosts = Vec::new();
        for (rank, place) in (0..).zip(&welcome.roster) {
            let host = place.host as usize;
            hosts.resize(hosts.len().max(host + 1), Vec::new());
            hosts[host].push(rank);
        }
        Hosts(hosts)
    }

    pub fn count(&self) -> u32 {
        self.0.len() as u32
    }

    fn ranks(&self) -> u32 {
        self.0.iter().map(|ranks| ranks.len() as u32).sum()
    }

    /// A sum over hosts, with the ranks that it lacks.
    pub fn reduced(&self, summed: Summed) -> Reduced<Tensor> {
        let Summed { tensor, absences } = summed;
        let missing = self.missing(&absences, tensor.len());
        Reduced { values: tensor, missing }
    }

    /// A host that is missing takes all its ranks with it.
    fn missing(&self, absences: &Absences, length: u64) -> Missing {
        let fragment = u64::from(absences.fragment_values());
        let of_host = |seat: u32| self.0.get(seat as usize).into_iter().flatten().copied();
        let part = |(at, seats): (u64, Vec<u32>)| {
            let mut ranks: Vec<u32> = seats.into_iter().flat_map(of_host).collect();
            ranks.sort_unstable();
            Part { values: at * fragment..length.min((at + 1) * fragment), ranks }
        };
        let seats = absences.fragments().map(|(at, seats)| (at, seats.collect()));
        Missing { parts: seats.map(part).collect() }
    }

    /// Turns a sum into the mean of those that are in it, where it lies.
    // spec: T-02
    pub fn divide(&self, sum: &mut Reduced<Tensor>) {
        let ranks = self.ranks();
        let (element, bytes) = bytes_of(&mut sum.values);
        let size = element.bytes() as u64;
        let place = |value: u64| (value * size) as usize;
        let mut done = 0;
        for Part { values, ranks: missing } in &sum.missing.parts {
            let present = ranks.saturating_sub(missing.len() as u32).max(1);
            divide(element, &mut bytes[done..place(values.start)], ranks);
            divide(element, &mut bytes[place(values.start)..place(values.end)], present);
            done = place(values.end);
        }
        divide(element, &mut bytes[done..], ranks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing() -> Missing {
        let part = |values, ranks: &[u32]| Part { values, ranks: ranks.to_vec() };
        Missing { parts: vec![part(2..4, &[0, 1]), part(6..7, &[2])] }
    }

    // spec: T-02 machine
    #[test]
    fn a_mean_is_that_of_the_ranks_that_are_in_it() {
        let hosts = Hosts(vec![vec![0, 1], vec![2], vec![3]]);
        let mut sum = Reduced { values: Tensor::from(vec![12.0; 7]), missing: missing() };
        hosts.divide(&mut sum);
        assert_eq!(sum.values, Tensor::from(vec![3.0, 3.0, 6.0, 6.0, 3.0, 3.0, 4.0]));
        assert_eq!([0, 1, 2, 3].map(|rank| sum.missing.of_rank(rank)), [2, 2, 1, 0]);
        let mut exact = Reduced { values: Tensor::from(vec![8.0]), missing: Missing::default() };
        hosts.divide(&mut exact);
        assert_eq!(exact.values, Tensor::from(vec![2.0]));
    }

    #[test]
    fn what_is_missing_can_be_handed_on() {
        assert_eq!(Missing::from_words(&missing().to_words()), missing());
        assert_eq!(Missing::from_words(&[]), Missing::default());
        assert!(Missing::from_words(&[1, 2]).is_empty(), "cut short");
    }

    #[test]
    fn a_part_has_its_own_share_of_it() {
        let part = |values, ranks: &[u32]| Part { values, ranks: ranks.to_vec() };
        assert_eq!(missing().within(&(3..7)).parts, [part(0..1, &[0, 1]), part(3..4, &[2])]);
        assert_eq!(missing().within(&(4..6)).parts, []);
    }
}
