//! Sums over hosts as sums over ranks, with what they lack.

use thalweg_control::Welcome;
use thalweg_values::{Coverage, Part, Tensor, divide};

use super::team::bytes_of;
use crate::engine::Summed;
use crate::error::Error;
use crate::policy::{Collective, Reduce};

/// A result, and the ranks whose values are in it.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Reduced<T> {
    /// The values, combined.
    pub values: T,
    /// Ranks whose values are in the result: all, unless it has a loss bound.
    pub coverage: Coverage,
}

/// The ranks of every host, by host number.
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

    /// Number of ranks of all hosts.
    pub fn ranks(&self) -> u32 {
        self.0.iter().map(|ranks| ranks.len() as u32).sum()
    }

    /// A sum over hosts, with the ranks that are in it.
    pub fn reduced(&self, summed: Summed) -> Reduced<Tensor> {
        let Summed { tensor, coverage } = summed;
        Reduced { values: tensor, coverage: self.of_ranks(&coverage) }
    }

    /// A host that is missing takes all its ranks with it.
    fn of_ranks(&self, of_hosts: &Coverage) -> Coverage {
        let of_host = |seat: &u32| self.0.get(*seat as usize).into_iter().flatten().copied();
        let part = |Part { values, ranks: seats, .. }: &Part| {
            let mut ranks: Vec<u32> = seats.iter().flat_map(of_host).collect();
            ranks.sort_unstable();
            Part::new(values.clone(), ranks)
        };
        match of_hosts.missing() {
            Some(parts) => Coverage::lacking(parts.iter().map(part)),
            None => Coverage::Unreported,
        }
    }

    /// Completes a sum: for a mean, divides it.
    pub fn finish(
        &self,
        mut sum: Reduced<Tensor>,
        how: Reduce,
        collective: Collective,
    ) -> Result<Reduced<Tensor>, Error> {
        if how == Reduce::Mean {
            let missing = sum.coverage.missing().ok_or_else(|| unreported_mean(collective))?;
            self.divide(&mut sum.values, missing);
        }
        Ok(sum)
    }

    /// Turns a sum into the mean of the ranks that are in it, where it lies.
    // spec: T-02
    fn divide(&self, sum: &mut Tensor, missing: &[Part]) {
        let ranks = self.ranks();
        let (element, bytes) = bytes_of(sum);
        let size = element.bytes() as u64;
        let place = |value: u64| (value * size) as usize;
        let mut done = 0;
        for Part { values, ranks: missing, .. } in missing {
            let present = ranks.saturating_sub(missing.len() as u32).max(1);
            divide(element, &mut bytes[done..place(values.start)], ranks);
            divide(element, &mut bytes[place(values.start)..place(values.end)], present);
            done = place(values.end);
        }
        divide(element, &mut bytes[done..], ranks);
    }
}

/// A mean with a loss bound, of a sum whose coverage did not fit its messages: of thousands of ranks.
fn unreported_mean(collective: Collective) -> Error {
    Error::call(format!(
        "Collective::{collective:?} could not report which values the sum lacks, so that a mean would divide \
         by ranks that are not in it: sum by switches (name a switch and choose Collective::Aggregate), ask \
         for Reduce::Sum and accept that its coverage is unreported, or ask for Reliability::Exact"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn hosts() -> Hosts {
        Hosts(vec![vec![0, 1], vec![2], vec![3]])
    }

    fn mean(value: f32, values: usize, coverage: Coverage) -> Result<Reduced<Tensor>, Error> {
        let sum = Reduced { values: Tensor::from(vec![value; values]), coverage };
        hosts().finish(sum, Reduce::Mean, Collective::Ring)
    }

    // spec: T-02 machine
    #[test]
    fn a_mean_is_that_of_the_ranks_that_are_in_it() {
        let part = |values, seats: &[u32]| Part::new(values, seats.to_vec());
        let of_hosts = Coverage::lacking([part(2..4, &[0]), part(6..7, &[1])]);
        let tensor = Tensor::from(vec![12.0; 7]);
        let sum = hosts().reduced(Summed { tensor, coverage: of_hosts });
        assert_eq!([0, 1, 2, 3].map(|rank| sum.coverage.missing_of(rank)), [2, 2, 1, 0].map(Some));
        let mean_of_sum = hosts().finish(sum, Reduce::Mean, Collective::Aggregate).unwrap();
        let expected = vec![3.0, 3.0, 6.0, 6.0, 3.0, 3.0, 4.0];
        assert_eq!(mean_of_sum.values, Tensor::from(expected));
        assert_eq!(mean(8.0, 1, Coverage::Exact).unwrap().values, Tensor::from(vec![2.0]));
    }

    // spec: T-11 machine
    #[test]
    fn a_sum_of_unreported_coverage_is_never_divided() {
        let error = mean(8.0, 1, Coverage::Unreported).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Call);
        assert!(error.to_string().starts_with("Collective::Ring could not report"), "{error}");
        let summed = Summed { tensor: Tensor::from(vec![8.0]), coverage: Coverage::Unreported };
        let sum = hosts().finish(hosts().reduced(summed), Reduce::Sum, Collective::Ring).unwrap();
        assert_eq!(sum, Reduced { values: vec![8.0].into(), coverage: Coverage::Unreported });
    }
}
