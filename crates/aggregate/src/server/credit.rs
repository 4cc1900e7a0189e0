//! Bytes that the packets of a job have paid for.
//!
//! A query is a header, and its answer a whole result: a tenant that asks again and again would have the server send many
//! times the bytes that it sends itself, to every address that it has joined with. So a job's packets pay for what the
//! server sends because of them, each as many bytes as it has, times the workers, and a result that is not paid for is not
//! sent. The packet that completes a sum pays for the result, and a query for the requests that follow from it. Honest
//! workers have paid for the repeats that they need with their contributions; where these do not suffice, they ask again, and
//! their queries pay in time.
// spec: E-13

/// The least number of workers that packets pay for: what the only worker of a job has contributed pays for its result, and
/// for that once more.
const LEAST: u32 = 2;

/// The account of one job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credit {
    /// Bytes that are paid for and were not sent.
    bytes: i64,
    /// Bytes that one byte pays for.
    factor: i64,
}

impl Credit {
    /// The account of a job that begins, with one packet of this size for each worker: the first result can be lost by all.
    pub(super) fn new(workers: u32, longest_wire_bytes: u32) -> Credit {
        let factor = i64::from(workers.max(LEAST));
        Credit { bytes: i64::from(longest_wire_bytes).saturating_mul(factor), factor }
    }

    /// A genuine packet of the job has arrived.
    #[inline]
    pub(super) fn earn(&mut self, wire_bytes: u32) {
        self.bytes = self.bytes.saturating_add(i64::from(wire_bytes).saturating_mul(self.factor));
    }

    /// A packet was sent to the job.
    #[inline]
    pub(super) fn spend(&mut self, wire_bytes: u32) {
        self.bytes = self.bytes.saturating_sub(i64::from(wire_bytes));
    }

    /// Returns whether a packet is paid for.
    pub(super) fn covers(&self, wire_bytes: u32) -> bool {
        self.bytes >= i64::from(wire_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: E-13 machine
    #[test]
    fn packets_pay_for_as_many_bytes_times_the_workers() {
        let mut credit = Credit::new(3, 100);
        assert!(credit.covers(300) && !credit.covers(301));
        credit.spend(300);
        credit.earn(50);
        assert!(credit.covers(150) && !credit.covers(151));
        credit.spend(200);
        credit.earn(10);
        assert!(!credit.covers(0), "what was sent unpaid is paid first");
    }

    #[test]
    fn the_only_worker_has_its_result_twice() {
        let mut credit = Credit::new(1, 0);
        credit.earn(100);
        credit.spend(100);
        assert!(credit.covers(100));
    }
}
