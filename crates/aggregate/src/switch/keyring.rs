//! Keys of those that may speak for a job.

use thalweg_core::{Body, Header, JobId};
use thalweg_wire::tag::{self, Generation, Key, Secrets};
use thalweg_wire::{Kind, Prefix};

use crate::index::bucket;
use crate::keys::Keys;

/// Everything that keys follow from beside a secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scope {
    pub(super) job: JobId,
    pub(super) epoch: u32,
    /// Generation of the secret.
    pub(super) generation: Generation,
}

impl Scope {
    #[inline]
    pub(super) fn of(prefix: &Prefix) -> Scope {
        Scope { job: prefix.job, epoch: prefix.epoch(), generation: prefix.generation() }
    }
}

/// The keys of the jobs whose packets came lately. A key follows from the cluster's secret, so that
/// nobody has to tell a switch of a job, and one that has just started verifies at once.
// spec: T-06
#[derive(Debug)]
pub(super) struct Keyring {
    secrets: Secrets,
    /// By a hash of job and epoch; jobs that share a place derive their keys again.
    keys: [Option<(Scope, Keys)>; PLACES],
}

/// For how many jobs keys are kept. To derive one takes about as long as to verify a header.
const PLACES: usize = 64;

impl Keyring {
    pub(super) fn new(secrets: Secrets) -> Keyring {
        Keyring { secrets, keys: [None; PLACES] }
    }

    /// Derives keys from these secrets from now on.
    pub(super) fn replace(&mut self, secrets: Secrets) {
        *self = Keyring::new(secrets);
    }

    /// Returns the key of the job if the packet is sealed as its kind has to be. `None` if it is forged, or its body has
    /// another length, or no secret is of its generation.
    #[inline]
    pub(super) fn verify(
        &mut self,
        prefix: &Prefix,
        header: &Header,
        body: &Body<'_>,
    ) -> Option<Key> {
        let keys = self.keys(Scope::of(prefix))?;
        let key = if is_of_stations(prefix.kind()) { &keys.stations } else { &keys.job };
        tag::verify_packet(header, body, prefix.covers_body(), key).then_some(keys.job)
    }

    /// The keys of a job's epoch. `None` if no secret is of their generation.
    #[inline]
    pub(super) fn keys(&mut self, scope: Scope) -> Option<Keys> {
        let Scope { job, epoch, generation } = scope;
        let place = &mut self.keys[bucket(job.0 ^ u64::from(epoch), PLACES)];
        match place {
            Some((known, keys)) if *known == scope => Some(*keys),
            _ => {
                let keys = Keys::derive(self.secrets.of(generation)?, job, epoch);
                *place = Some((scope, keys));
                Some(keys)
            }
        }
    }
}

/// Returns whether a packet of this kind has to come from a server or a switch: the switch sends it on to many, or sends
/// more than it has received.
// spec: E-13
#[inline]
const fn is_of_stations(kind: Kind) -> bool {
    matches!(kind, Kind::AggregateAnnouncement | Kind::AggregateParameter | Kind::AggregateRequest)
}
