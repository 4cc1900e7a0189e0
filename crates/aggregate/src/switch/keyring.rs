//! Who may speak for a job.

use thalweg_core::{Header, JobId};
use thalweg_wire::Prefix;
use thalweg_wire::tag::{self, Key, Secret};

use crate::index::bucket;

/// The keys of the jobs whose packets came lately. A key follows from the cluster's secret, so that
/// nobody has to tell a switch of a job, and one that has just started verifies at once.
// spec: T-06
#[derive(Debug)]
pub(super) struct Keyring {
    secret: Secret,
    /// By a hash of job and epoch; jobs that share a place derive their keys again.
    keys: [Option<(JobId, u32, Key)>; PLACES],
}

/// For how many jobs keys are kept. To derive one takes about as long as to verify a header.
const PLACES: usize = 64;

impl Keyring {
    pub(super) fn new(secret: Secret) -> Keyring {
        Keyring { secret, keys: [None; PLACES] }
    }

    /// The key that a header is sealed with. `None` if it is forged, or its body has another length.
    #[inline]
    pub(super) fn verify(
        &mut self,
        prefix: Prefix,
        header: &Header,
        body_bytes: usize,
    ) -> Option<Key> {
        let key = self.key(prefix.job, prefix.epoch);
        tag::verify_sized(header, body_bytes, &key).then_some(key)
    }

    /// The key of a job's epoch.
    #[inline]
    pub(super) fn key(&mut self, job: JobId, epoch: u32) -> Key {
        let place = &mut self.keys[bucket(job.0 ^ u64::from(epoch), PLACES)];
        match place {
            Some((own, at, key)) if (*own, *at) == (job, epoch) => *key,
            _ => {
                let key = Key::derive(&self.secret, job, epoch);
                *place = Some((job, epoch, key));
                key
            }
        }
    }
}
