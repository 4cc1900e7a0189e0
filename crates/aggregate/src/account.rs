//! Bytes that the packets of a tenant have paid for.
//!
//! Servers and switches keep one account for each job or tree, and share what a packet pays for: whatever a tenant sends pays
//! for as many bytes as it has, times the workers of its job, at one place in the network. `docs/aggregation.md` says which.
// spec: E-13

/// An account in bytes, of which there are never more than a limit: what a job has saved up in an hour is not sent at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    /// Bytes that are paid for and were not sent. Negative where packets were sent that nobody may withhold.
    bytes: i64,
    most: i64,
}

impl Account {
    /// An account that begins with some bytes.
    pub(crate) fn new(bytes: u64, most: u64) -> Account {
        let most = signed(most);
        Account { bytes: signed(bytes).min(most), most }
    }

    #[inline]
    pub(crate) fn earn(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(signed(bytes)).min(self.most);
    }

    #[inline]
    pub(crate) fn spend(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(signed(bytes));
    }

    /// Returns whether this number of bytes is paid for.
    #[inline]
    pub(crate) fn covers(&self, bytes: u64) -> bool {
        self.bytes >= signed(bytes)
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: E-13 machine
    #[test]
    fn what_was_sent_unpaid_is_paid_first_and_savings_are_limited() {
        let mut account = Account::new(300, 1_000);
        assert!(account.covers(300) && !account.covers(301));
        account.spend(400);
        account.earn(50);
        assert!(!account.covers(0));
        account.earn(u64::MAX);
        assert!(account.covers(1_000) && !account.covers(1_001));
        account.spend(u64::MAX);
        account.spend(u64::MAX);
        account.earn(1_000);
        assert!(!account.covers(0), "an account does not overflow");
    }
}
