//! Which packets belong together.

use thalweg_core::{Body, JobId, NodeId};
use thalweg_wire::aggregate::{
    Branch, FAN_IN_MAX, FLOAT, GradientView, Identity, LEVELS, Numbers, Scale,
};

use crate::index;

/// Which fragment is summed, for which station. What asks and parameter packets name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fragment {
    pub(super) identity: Identity,
    pub(super) server: NodeId,
    pub(super) level: u8,
    pub(super) upper_places: [u8; LEVELS],
}

/// Everything that two packets have in common if their values can be added: the fragment, what
/// the numbers mean, and how many there are. The fan-ins of one epoch are the same in all packets; they
/// are compared so that a packet that contradicts the others cannot spoil their sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Key {
    job: JobId,
    sequence: u64,
    epoch: u32,
    server: NodeId,
    upper_places: [u8; LEVELS],
    /// At the station's level and above.
    fan_ins: [u8; LEVELS],
    scale_bits: u32,
    values: u16,
    attempt: u8,
    /// The level, [`FLOATS`] and [`BYTES`].
    format: u8,
}

/// Bit of [`Key::format`]: the values are floats.
const FLOATS: u8 = 1 << 4;
/// Bit of [`Key::format`]: bodies hold bytes, not only a length.
const BYTES: u8 = 1 << 5;
const LEVEL: u8 = 0b1111;

/// What a gradient adds to a sum beside its values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) key: Key,
    /// The child that it comes from.
    pub(super) bit: u32,
    /// All children.
    pub(super) full: u32,
}

impl Key {
    /// What stands where no packet was.
    pub(super) const NONE: Key = Key {
        job: JobId(0),
        sequence: 0,
        epoch: 0,
        server: NodeId(0),
        upper_places: [0; LEVELS],
        fan_ins: [0; LEVELS],
        scale_bits: 0,
        values: 0,
        attempt: 0,
        format: 0,
    };

    /// The key of a gradient at the station it has come to.
    #[inline]
    pub(super) fn of(view: &GradientView, level: u8, body: &Body<'_>) -> Key {
        let bytes = if matches!(body, Body::Bytes(_)) { BYTES } else { 0 };
        let floats = if view.flags & FLOAT == 0 { 0 } else { FLOATS };
        Key {
            job: JobId(view.prefix.job.get()),
            sequence: view.sequence.get(),
            epoch: view.prefix.epoch.get(),
            server: NodeId(view.server.get()),
            upper_places: index::upper_places(view.places, level),
            fan_ins: from_level(view.fan_ins, level),
            scale_bits: view.scale.get(),
            values: view.values.get(),
            attempt: view.attempt,
            format: level | floats | bytes,
        }
    }

    pub(super) fn fragment(&self) -> Fragment {
        Fragment {
            identity: Identity {
                job: self.job,
                epoch: self.epoch,
                sequence: self.sequence,
                attempt: self.attempt,
            },
            server: self.server,
            level: self.level(),
            upper_places: self.upper_places,
        }
    }

    #[inline]
    pub(super) fn job(&self) -> JobId {
        self.job
    }

    pub(super) fn level(&self) -> u8 {
        self.format & LEVEL
    }

    #[inline]
    pub(super) fn upper_places(&self) -> [u8; LEVELS] {
        self.upper_places
    }

    /// The way from the station up. Its own place there is not told.
    pub(super) fn branch(&self) -> Option<Branch> {
        Branch::new(self.fan_ins, self.upper_places).ok()
    }

    /// All children of the station.
    pub(super) fn full(&self) -> u32 {
        let fan_in = self.fan_ins.get(usize::from(self.level())).copied().unwrap_or(0);
        full(fan_in)
    }

    #[inline]
    pub(super) fn is_float(&self) -> bool {
        self.format & FLOATS != 0
    }

    /// Whether bodies hold bytes, not only a length.
    pub(super) fn has_bytes(&self) -> bool {
        self.format & BYTES != 0
    }

    /// Whether the job is beyond it, as another packet with its watermark shows.
    pub(super) fn is_passed_by(&self, other: &Key, watermark: u64) -> bool {
        self.job == other.job && (self.epoch < other.epoch || self.sequence < watermark)
    }

    pub(super) fn values(&self) -> u16 {
        self.values
    }

    pub(super) fn numbers(&self) -> Option<Numbers> {
        if self.is_float() {
            return Some(Numbers::Float);
        }
        Scale::new(f32::from_bits(self.scale_bits)).map(Numbers::Fixed)
    }
}

/// The bitmap that names so many children, 32 at most.
#[inline]
pub(super) fn full(fan_in: u8) -> u32 {
    ((1_u64 << fan_in.min(FAN_IN_MAX)) - 1) as u32
}

/// The entries of a level and those above it, zero below.
#[inline]
fn from_level(entries: [u8; LEVELS], level: u8) -> [u8; LEVELS] {
    let shift = 8 * u32::from(level).min(3);
    (u32::from_le_bytes(entries) >> shift << shift).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_below_a_level_do_not_count() {
        assert_eq!(from_level([1, 2, 3, 4], 0), [1, 2, 3, 4]);
        assert_eq!(from_level([1, 2, 3, 4], 2), [0, 0, 3, 4]);
        assert_eq!(from_level([1, 2, 3, 4], 3), [0, 0, 0, 4]);
    }
}
