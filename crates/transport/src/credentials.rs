//! The identity that the packets of a job carry.

use thalweg_core::{Header, JobId};
use thalweg_wire::Prefix;
use thalweg_wire::tag::{self, Key};

/// The job, the epoch and the key of a machine. It reads packets of the same job and epoch that were sealed
/// with the same key, and seals its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Credentials {
    /// Job of the packets. Packets of others are dropped.
    pub job: JobId,
    /// Epoch of the job. Packets of others are dropped.
    pub epoch: u32,
    /// Key of the epoch. Default none: a simulation without attackers.
    pub key: Option<Key>,
}

impl Credentials {
    /// Returns whether these credentials may read the packet with this header, whose prefix is this one.
    // spec: T-06
    #[inline]
    pub fn admit(&self, prefix: Prefix, header: &Header) -> bool {
        let is_own = prefix.job == self.job && prefix.epoch() == self.epoch;
        is_own && self.key.as_ref().is_none_or(|key| tag::verify(header, key))
    }

    /// Writes the tag of the key, if there is one, over a header that is otherwise finished.
    #[inline]
    pub fn seal(&self, header: &mut Header) {
        if let Some(key) = &self.key {
            tag::seal(header, key);
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::Time;
    use thalweg_wire::flow::Ack;
    use thalweg_wire::peek;

    use super::*;

    /// Returns whether these credentials may read what the others have sealed.
    fn admits(own: Credentials, credentials: Credentials) -> bool {
        let ack = Ack {
            job: credentials.job,
            epoch: credentials.epoch,
            flow: 1,
            sent_at: Time::ZERO,
            sack: 0,
            cumulative: 1,
            index: 0,
            transmission: 0,
            congested: false,
            resend: false,
            class: 0,
            run: 0,
        };
        let mut header = ack.to_header();
        credentials.seal(&mut header);
        own.admit(peek(&header).expect("a prefix"), &header)
    }

    #[test]
    fn what_one_machine_seals_its_peers_admit_and_others_do_not() {
        let own = Credentials { job: JobId(3), epoch: 5, key: Some(Key([7; 16])) };
        assert!(admits(own, own));
        let others = [
            Credentials { job: JobId(4), ..own },
            Credentials { epoch: 6, ..own },
            Credentials { key: Some(Key([8; 16])), ..own },
            Credentials { key: None, ..own },
        ];
        for other in others {
            assert!(!admits(own, other), "{other:?}");
        }
    }

    #[test]
    fn without_a_key_nothing_is_sealed_and_everything_of_the_job_is_admitted() {
        let open = Credentials { job: JobId(3), epoch: 5, key: None };
        assert!(admits(open, open));
        let sealed = Credentials { key: Some(Key([7; 16])), ..open };
        assert!(admits(open, sealed));
    }
}
