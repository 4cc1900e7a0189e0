//! The keys of a job's epoch at switches and servers.

use thalweg_core::JobId;
use thalweg_wire::tag::{Key, Secret};

/// Both keys of a job's epoch.
// spec: E-13
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Keys {
    /// The key that workers also have.
    pub(crate) job: Key,
    /// The key that servers and switches alone have.
    pub(crate) stations: Key,
}

/// Receiver of a packet on its path down the tree. It decides which key seals the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Receiver {
    /// A worker.
    Worker,
    /// A switch, which acts on nothing that a worker could have sealed.
    Switch,
}

impl Keys {
    pub(crate) fn derive(secret: &Secret, job: JobId, epoch: u32) -> Keys {
        Keys { job: Key::derive(secret, job, epoch), stations: Key::stations(secret, job, epoch) }
    }

    /// The key of a packet down the tree.
    #[inline]
    pub(crate) fn to(&self, receiver: Receiver) -> &Key {
        match receiver {
            Receiver::Worker => &self.job,
            Receiver::Switch => &self.stations,
        }
    }
}
