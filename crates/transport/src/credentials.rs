//! The identity that the packets of a job carry.

use thalweg_core::{Header, JobId};
use thalweg_wire::tag::{self, Key};
use thalweg_wire::{Kind, Prefix, peek};

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
    /// Returns the kind of a packet that these credentials may read.
    // spec: T-06
    #[inline]
    pub fn admit(&self, header: &Header) -> Option<Kind> {
        let prefix = peek(header).ok()?;
        self.admit_checked(prefix, header).then_some(prefix.kind)
    }

    /// Returns whether these credentials may read the packet with this header, whose prefix is this one.
    #[inline]
    pub fn admit_checked(&self, prefix: Prefix, header: &Header) -> bool {
        let is_own = prefix.job == self.job && prefix.epoch == self.epoch;
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
    use thalweg_core::{HEADER_BYTES, Time};
    use thalweg_wire::flow::Ack;

    use super::*;

    fn header(credentials: Credentials) -> Header {
        let mut header = [0; HEADER_BYTES];
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
        };
        ack.encode(&mut header);
        credentials.seal(&mut header);
        header
    }

    #[test]
    fn what_one_machine_seals_its_peers_admit_and_others_do_not() {
        let own = Credentials { job: JobId(3), epoch: 5, key: Some(Key([7; 16])) };
        assert_eq!(own.admit(&header(own)), Some(Kind::FlowAck));
        let others = [
            Credentials { job: JobId(4), ..own },
            Credentials { epoch: 6, ..own },
            Credentials { key: Some(Key([8; 16])), ..own },
            Credentials { key: None, ..own },
        ];
        for other in others {
            assert_eq!(own.admit(&header(other)), None, "{other:?}");
        }
        assert_eq!(own.admit(&[0; HEADER_BYTES]), None, "not a packet of this protocol");
    }

    #[test]
    fn without_a_key_nothing_is_sealed_and_everything_of_the_job_is_admitted() {
        let open = Credentials { job: JobId(3), epoch: 5, key: None };
        assert_eq!(open.admit(&header(open)), Some(Kind::FlowAck));
        let sealed = Credentials { key: Some(Key([7; 16])), ..open };
        assert_eq!(open.admit(&header(sealed)), Some(Kind::FlowAck));
    }
}
