//! Keys of packets that belong together.

use thalweg_core::{Body, JobId, NodeId};
use thalweg_values::Half;
use thalweg_wire::Prefix;
use thalweg_wire::aggregate::{
    Branch, GradientView, Identity, LEVELS, Numbers, Scale, SharedBranch,
};
use thalweg_wire::tag::Generation;

use super::keyring::Scope;

/// Fragment that is summed, and its station. What asks and parameter packets name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fragment {
    pub(super) identity: Identity,
    pub(super) server: NodeId,
    pub(super) level: u8,
    pub(super) upper_places: [u8; LEVELS],
    /// Generation of the key that its packets are sealed with.
    pub(super) generation: Generation,
}

impl Fragment {
    /// The scope of the keys of its packets.
    pub(super) fn scope(&self) -> Scope {
        let Identity { job, epoch, .. } = self.identity;
        Scope { job, epoch, generation: self.generation }
    }
}

/// Everything that two packets have in common if their values can be added: the fragment, the operation that
/// their senders have called, what the numbers mean, and how many there are. The fan-ins of one epoch are the
/// same in all packets; they are compared so that a packet that contradicts the others cannot spoil their sum.
// spec: E-11
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Key {
    job: JobId,
    sequence: u64,
    epoch: u32,
    server: NodeId,
    /// The digest of the operation.
    operation: u32,
    scale_bits: u32,
    /// As in the headers. It need not be the place.
    aggregator: u32,
    body_bytes: u32,
    /// The fan-in of the station, and everything above it.
    branch: SharedBranch,
    attempt: u8,
    /// The level, the [`FORMAT`] of bodies, [`BYTES`] and how packets are sealed: [`ODD`], [`COVERED`].
    format: u8,
}

/// Bits of [`Key::format`]: the body format, as it travels.
const FORMAT: u8 = 0b11 << FORMAT_SHIFT;
const FORMAT_SHIFT: u8 = 3;
/// Bit of [`Key::format`]: bodies hold bytes, not only a length.
const BYTES: u8 = 1 << 5;
/// Bit of [`Key::format`]: the key of the seals is of the odd generation.
const ODD: u8 = 1 << 6;
/// Bit of [`Key::format`]: tags cover bodies.
const COVERED: u8 = 1 << 7;
const LEVEL: u8 = 0b111;
const _: () = assert!(LEVELS <= LEVEL as usize + 1, "a level fits its bits");

/// Part that a gradient adds to a sum beside its values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) key: Key,
    /// The child that it comes from.
    pub(super) bit: u32,
    /// All children.
    pub(super) full: u32,
}

impl Key {
    /// Key of a slot without a packet.
    pub(super) const NONE: Key = Key {
        job: JobId(0),
        sequence: 0,
        epoch: 0,
        server: NodeId(0),
        operation: 0,
        scale_bits: 0,
        aggregator: 0,
        body_bytes: 0,
        branch: SharedBranch::NONE,
        attempt: 0,
        format: 0,
    };

    /// The key of a gradient at the station it has come to.
    #[inline]
    pub(super) fn of(
        prefix: &Prefix,
        view: &GradientView,
        branch: &Branch,
        level: u8,
        body: &Body<'_>,
    ) -> Key {
        let odd = if prefix.generation() == Generation::Odd { ODD } else { 0 };
        let covered = if prefix.covers_body() { COVERED } else { 0 };
        let bytes = if matches!(body, Body::Bytes(_)) { BYTES } else { 0 };
        let numbers = view.format << FORMAT_SHIFT & FORMAT;
        Key {
            job: JobId(view.prefix.job.get()),
            sequence: view.sequence.get(),
            epoch: view.prefix.epoch.get(),
            server: NodeId(view.server.get()),
            operation: view.operation.get(),
            scale_bits: view.scale.get(),
            aggregator: view.aggregator.get(),
            body_bytes: body.len() as u32,
            branch: branch.shared(level),
            attempt: view.attempt,
            format: level | numbers | bytes | odd | covered,
        }
    }

    pub(super) fn fragment(&self) -> Fragment {
        Fragment {
            identity: Identity {
                job: self.job,
                epoch: self.epoch,
                sequence: self.sequence,
                attempt: self.attempt,
                operation: self.operation,
            },
            server: self.server,
            level: self.level(),
            upper_places: self.branch().places_above(self.level()),
            generation: Generation::from_bit(self.format & ODD != 0),
        }
    }

    #[inline]
    pub(super) fn job(&self) -> JobId {
        self.job
    }

    pub(super) fn level(&self) -> u8 {
        self.format & LEVEL
    }

    /// As in the headers.
    pub(super) fn aggregator(&self) -> u32 {
        self.aggregator
    }

    /// The path from the station up. Its own place there is left out.
    pub(super) fn branch(&self) -> Branch {
        self.branch.branch()
    }

    /// All children of the station.
    pub(super) fn full(&self) -> u32 {
        self.branch().full(self.level())
    }

    /// The body format, as it travels.
    #[inline]
    fn body_format(&self) -> u8 {
        (self.format & FORMAT) >> FORMAT_SHIFT
    }

    #[inline]
    pub(super) fn is_float(&self) -> bool {
        self.body_format() == Numbers::Float.format()
    }

    /// The type of 16-bit values, if bodies hold those.
    // spec: F-02
    #[inline]
    pub(super) fn half(&self) -> Option<Half> {
        const F16: u8 = Numbers::F16.format();
        const BF16: u8 = Numbers::Bf16.format();
        match self.body_format() {
            F16 => Some(Half::F16),
            BF16 => Some(Half::Bf16),
            _ => None,
        }
    }

    /// True if bodies hold bytes, not only a length.
    pub(super) fn has_bytes(&self) -> bool {
        self.format & BYTES != 0
    }

    /// Returns whether tags cover bodies.
    pub(super) fn covers_body(&self) -> bool {
        self.format & COVERED != 0
    }

    /// True if the job is beyond it, as another packet with its watermark shows.
    pub(super) fn is_passed_by(&self, other: &Key, watermark: u64) -> bool {
        self.job == other.job && (self.epoch < other.epoch || self.sequence < watermark)
    }

    pub(super) fn body_bytes(&self) -> u32 {
        self.body_bytes
    }

    pub(super) fn numbers(&self) -> Option<Numbers> {
        match self.half() {
            Some(Half::F16) => Some(Numbers::F16),
            Some(Half::Bf16) => Some(Numbers::Bf16),
            None if self.is_float() => Some(Numbers::Float),
            None => Scale::new(f32::from_bits(self.scale_bits)).map(Numbers::Fixed),
        }
    }
}
