//! The largest packets that paths carry.
//!
//! A probe is as long as a packet of data, and its answer as long as the probe, so that one exchange tests a path in both
//! directions. [`PathSearch`] finds the largest size that passes one path, [`PathProber`] those of all paths of a worker, and
//! [`answer`] makes an answer of a probe, where it lies.
// spec: F-01

mod prober;
mod search;

pub use prober::{NarrowPath, PathProber, PathReport};
pub use search::{PathOutcome, PathSearch, TRIES};

use thalweg_core::{JobId, Packet};
use thalweg_wire::Prefix;
use thalweg_wire::path::PathProbe;
use thalweg_wire::tag::{self, Key};

/// Makes the answer of a probe, in its place: it goes to the node that the probe came from, and is never longer. Returns
/// `false`, and changes nothing, where the packet is not a probe that the key seals.
pub fn answer(prefix: Prefix, packet: &mut Packet<'_>, key: Option<&Key>) -> bool {
    let body_bytes = packet.body.len();
    let is_sealed = key.is_none_or(|key| tag::verify_sized(packet.header, body_bytes, key));
    let probe = PathProbe::decode_checked(prefix, packet.header).ok();
    let Some(probe) = probe.filter(|probe| is_sealed && !probe.is_answer) else { return false };
    PathProbe { is_answer: true, ..probe }.encode(packet.header);
    if let Some(key) = key {
        tag::seal_sized(packet.header, body_bytes, key);
    }
    std::mem::swap(&mut packet.meta.src, &mut packet.meta.dst);
    true
}

/// The job whose key seals the probes of a job's paths, and its epoch: the job's first lane, whose key all its ranks have
/// before anything is set up.
pub fn probe_scope(job: JobId) -> (JobId, u32) {
    (JobId(job.0.wrapping_add(1)), 1)
}
