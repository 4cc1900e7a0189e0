//! Bytes that the packets of a job have paid for at its server.
//!
//! A query is a header, and its answer a whole result: a tenant that asks again and again would have the server send many
//! times the bytes that it sends itself, to every address that it has joined with. So a job's packets pay for what the
//! server sends because of them, each as many bytes as it has, times the workers, and a result that is not paid for is not
//! sent. The packet that completes a sum pays for the result, and a query for the requests that follow from it. Honest
//! workers have paid for the repeats that they need with their contributions; where these do not suffice, they ask again, and
//! their queries pay in time.
//!
//! A switch copies a result for the nodes below it. Where the switches have summed everything, contributions stayed with them,
//! and pay for the copies there. Everything else came here, so that the server pays for all workers below, and says so in the
//! result.
// spec: E-13

use crate::account::Account;

/// The account of one job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credit {
    account: Account,
    /// Bytes that one byte pays for.
    factor: u32,
}

/// Bytes that a packet is charged for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Charge {
    bytes: u64,
    /// True if they pay for the copies as well.
    pub(super) for_all: bool,
}

impl Credit {
    /// The account of a job that begins, with one packet of this size for each worker: the first result can be lost by all. It
    /// holds at most what as many packets as a window has fragments pay for.
    pub(super) fn new(workers: u32, longest_wire_bytes: u32, window: u64) -> Credit {
        let factor = workers;
        let bytes = u64::from(longest_wire_bytes).saturating_mul(u64::from(factor));
        let account = Account::new(bytes, bytes.saturating_mul(window.max(1)));
        Credit { account, factor }
    }

    /// A genuine packet of the job has arrived.
    #[inline]
    pub(super) fn earn(&mut self, wire_bytes: u32) {
        self.account.earn(u64::from(wire_bytes) * u64::from(self.factor));
    }

    /// A packet was sent.
    #[inline]
    pub(super) fn spend(&mut self, charge: Charge) {
        self.account.spend(charge.bytes);
    }

    /// Returns the cost of a result for this number of workers: all copies of it, or, where switches have what pays for them or the
    /// account does not suffice, one. `None` if not even that is paid for.
    pub(super) fn charge(
        &self,
        wire_bytes: u32,
        workers: u32,
        is_with_switches: bool,
    ) -> Option<Charge> {
        let all = Charge::of_all(wire_bytes, workers);
        let one = Charge { bytes: wire_bytes.into(), for_all: false };
        let charge = if is_with_switches || !self.account.covers(all.bytes) { one } else { all };
        self.account.covers(charge.bytes).then_some(charge)
    }
}

impl Charge {
    /// All copies of a packet for this number of workers.
    pub(super) fn of_all(wire_bytes: u32, workers: u32) -> Charge {
        Charge { bytes: u64::from(wire_bytes) * u64::from(workers), for_all: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of the longest packet that is paid for.
    fn paid_for(credit: &Credit) -> u32 {
        (0..1_000).take_while(|bytes| credit.charge(*bytes, 1, false).is_some()).count() as u32
    }

    // spec: E-13 machine
    #[test]
    fn packets_pay_for_as_many_bytes_times_the_workers() {
        let mut credit = Credit::new(3, 100, 10);
        assert_eq!(paid_for(&credit), 301);
        credit.spend(Charge::of_all(100, 3));
        credit.earn(50);
        assert_eq!(paid_for(&credit), 151);
        credit.spend(Charge::of_all(200, 1));
        credit.earn(10);
        assert_eq!(paid_for(&credit), 0, "what was sent unpaid is paid first");
    }

    // spec: E-13 machine
    #[test]
    fn copies_are_charged_to_who_has_what_pays_for_them() {
        let mut credit = Credit::new(8, 100, 10);
        let charge = |credit: &Credit, is_with_switches| {
            credit.charge(100, 8, is_with_switches).map(|it| (it.bytes, it.for_all))
        };
        assert_eq!(charge(&credit, false), Some((800, true)));
        assert_eq!(charge(&credit, true), Some((100, false)));
        credit.spend(Charge::of_all(1, 1));
        assert_eq!(charge(&credit, false), Some((100, false)), "it does not suffice for all");
        credit.spend(Charge::of_all(700, 1));
        assert_eq!(charge(&credit, false), None);
    }

    // spec: E-13 machine
    #[test]
    fn the_only_worker_has_a_result_for_each_contribution() {
        let mut credit = Credit::new(1, 100, 2);
        assert_eq!(paid_for(&credit), 101, "the first may be lost");
        for _ in 0..2 {
            credit.earn(100);
            credit.spend(Charge::of_all(100, 1));
        }
        assert_eq!(paid_for(&credit), 101);
    }
}
