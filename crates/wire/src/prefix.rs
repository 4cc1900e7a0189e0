//! Prefix of every header: the packet's owner, and the format of the rest.

use std::fmt;

use thalweg_core::{HEADER_BYTES, Header, JobId};
use thiserror::Error;
use zerocopy::byteorder::little_endian::U64;
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned, transmute_ref,
    try_transmute,
};

use crate::flag;
use crate::int24::{U24, U24_MAX};
use crate::tag::Generation;

/// The first two bytes of every packet, "TW". They turn stray traffic away cheaply; they prove
/// nothing, the tag does.
pub const MAGIC: [u8; 2] = *b"TW";

/// The version of all headers. It grows when a field moves or changes its meaning.
pub const VERSION: u8 = 2;

/// The oldest version whose readers understand what this one writes. It grows with [`VERSION`] where a change
/// breaks older readers, and stays where it does not.
pub const OLDEST_VERSION: u8 = 2;

/// Both, as they stand in a prefix.
const VERSIONS: u8 = VERSION | OLDEST_VERSION << 4;

/// The last epoch that a header can name. Registrars end a job that needs more.
pub const EPOCH_MAX: u32 = U24_MAX;

/// Bit of [`PrefixView::lane`]: the [`Generation`] of the key that sealed the header.
pub(crate) const GENERATION: u8 = 1 << 5;

/// Bit of [`PrefixView::lane`]: the tag covers the body.
pub(crate) const COVERS_BODY: u8 = 1 << 6;

/// Bits of the first word of a prefix that are the same in all that this version writes: the magic bytes, the versions,
/// and the lane but for two bits.
const FIXED_BITS: u64 = 0x00ff_ffff | (!(GENERATION | COVERS_BODY) as u64) << 56;

/// These bits.
const FIXED: u64 = MAGIC[0] as u64 | (MAGIC[1] as u64) << 8 | (VERSIONS as u64) << 16;

/// Size of the prefix.
pub const PREFIX_BYTES: usize = size_of::<PrefixView>();

/// Kind of the header that follows the prefix.
///
/// Numbers go by plane, sixteen to each: 1–15 flow, 16–31 aggregate, 32–47 deliver, 48–63 pace. Zero
/// is never a kind, so that a header nobody filled in is not taken for one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, TryFromBytes)]
#[repr(u8)]
pub enum Kind {
    /// A piece of a message: [`flow::Data`](crate::flow::Data).
    FlowData = 1,
    /// Packets of a message that have arrived: [`flow::Ack`](crate::flow::Ack).
    FlowAck = 2,
    /// Leave to send more of a message: [`flow::Credit`](crate::flow::Credit).
    FlowCredit = 3,
    /// A probe of what a path carries: [`path::PathProbe`](crate::path::PathProbe).
    PathProbe = 4,
    /// The answer to a path probe.
    PathAnswer = 5,
    /// Values that travel towards the server: [`aggregate::Gradient`](crate::aggregate::Gradient).
    AggregateGradient = 16,
    /// Sums that travel back: [`aggregate::Parameter`](crate::aggregate::Parameter).
    AggregateParameter = 17,
    /// The wish for a sum that does not come: [`aggregate::Query`](crate::aggregate::Query).
    AggregateQuery = 18,
    /// The wish for a contribution that is owed: [`aggregate::Request`](crate::aggregate::Request).
    AggregateRequest = 19,
    /// A switch does not know a job: [`aggregate::Notice`](crate::aggregate::Notice).
    AggregateNotice = 20,
    /// State of a job for a switch: [`aggregate::Announcement`](crate::aggregate::Announcement).
    AggregateAnnouncement = 21,
    /// The question for the limits of a switch: [`aggregate::Probe`](crate::aggregate::Probe).
    AggregateProbe = 22,
    /// The limits of a switch: [`aggregate::Description`](crate::aggregate::Description).
    AggregateDescription = 23,
    /// A segment of a tensor: [`deliver::Data`](crate::deliver::Data).
    DeliverData = 32,
    /// The echo of a segment's time: [`deliver::Ack`](crate::deliver::Ack).
    DeliverAck = 33,
    /// Offer of a tensor: [`deliver::Control`](crate::deliver::Control), as are all that follow.
    DeliverOffer = 34,
    /// There is a buffer for it.
    DeliverAccept = 35,
    /// The receiver has no buffer for the tensor yet.
    DeliverHold = 36,
    /// Asks for the segments that have arrived.
    DeliverProbe = 37,
    /// This has arrived.
    DeliverBitmap = 38,
    /// Enough has arrived.
    DeliverStop = 39,
    /// The tensor is not wanted.
    DeliverRefuse = 40,
    /// A flow's plan, and the answers of its path: [`pace::Word`](crate::pace::Word).
    PaceAsk = 48,
    /// The same, travelling back.
    PaceAnswer = 49,
}

impl Kind {
    /// The kind with this number.
    #[inline]
    pub fn from_u8(number: u8) -> Option<Kind> {
        try_transmute!(number).ok()
    }

    /// Returns whether packets of this kind are those of a transport: of flows or deliveries.
    #[inline]
    pub const fn is_transport(self) -> bool {
        matches!(self as u8, 1..=15 | 32..=47)
    }
}

/// The meaning of a prefix, as far as it can be trusted before the tag is checked.
///
/// Two words, which travel in registers: every packet's prefix is handed through all layers, and a structure of bytes would be
/// written and read again in pieces of other sizes, for which a processor waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// Job of the packet.
    pub job: JobId,
    /// The kind in the lowest byte, the epoch in the next three, and the lane: as in the header.
    word: u64,
}

/// Reason why a prefix is not valid. The packet or its sender is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PrefixError {
    /// Something else than our traffic reached the port.
    #[error("the packet begins with {0:02x?}, not with \"TW\": it is not Thalweg traffic")]
    WrongMagic([u8; 2]),
    /// The sender writes what this version does not understand.
    #[error(
        "the packet has version {version} and is for readers from {oldest} on, this program reads \
         {VERSION}: run the same release"
    )]
    Version {
        /// The version that the sender writes.
        version: u8,
        /// The oldest version whose readers understand the packet.
        oldest: u8,
    },
    /// A tree beside the first, or bits without meaning.
    #[error("the packet has lane {0:#04x}: bits 0 to 4 and 7 are zero in version {VERSION}")]
    Lane(u8),
    /// A kind that this version does not have.
    #[error("no packet of version {VERSION} has the kind {0}")]
    Kind(u8),
    /// A kind that exists, handed to the decoder of another.
    #[error("expected a packet of kind {expected:?}, found {found:?}")]
    OtherKind {
        /// Kind that the decoder reads.
        expected: Kind,
        /// Kind that it was given.
        found: Kind,
    },
}

/// The bytes of a prefix.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PrefixView {
    /// [`MAGIC`].
    pub magic: [u8; 2],
    /// [`VERSION`] in the lower half, [`OLDEST_VERSION`] in the upper.
    pub versions: u8,
    /// A [`Kind`].
    pub kind: u8,
    /// The set-up of the job.
    pub epoch: U24,
    /// Bits 0 to 4 the tree, zero in this version; bit 5 the generation of the key; bit 6 whether the tag covers the
    /// body; bit 7 zero. Sealing writes bits 5 and 6.
    pub lane: u8,
    /// The job.
    pub job: U64,
    /// The keyed [tag](crate::tag) over the header.
    pub tag: U64,
}

/// A header of which only the prefix is known.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct AnyView {
    pub(crate) prefix: PrefixView,
    rest: [u8; HEADER_BYTES - PREFIX_BYTES],
}

/// Reads the prefix: what a receiver needs to find the key and then the decoder.
#[inline]
pub fn peek(header: &Header) -> Result<Prefix, PrefixError> {
    let any: &AnyView = transmute_ref!(header);
    any.prefix.meaning()
}

impl PrefixView {
    /// The bytes of a prefix, not yet sealed.
    #[inline]
    pub(crate) fn new(kind: Kind, job: JobId, epoch: u32) -> PrefixView {
        PrefixView {
            magic: MAGIC,
            versions: VERSIONS,
            kind: kind as u8,
            epoch: U24::new(epoch),
            lane: 0,
            job: U64::new(job.0),
            tag: U64::ZERO,
        }
    }

    /// Meaning of the bytes, if they are a prefix.
    #[inline]
    pub fn meaning(&self) -> Result<Prefix, PrefixError> {
        // What this version writes, looked at first and at once: nearly every packet is.
        if self.first_word() & FIXED_BITS == FIXED && Kind::from_u8(self.kind).is_some() {
            return Ok(self.checked());
        }
        self.other_meaning()
    }

    /// The meaning of bytes that this version would have written otherwise.
    #[cold]
    fn other_meaning(&self) -> Result<Prefix, PrefixError> {
        if self.magic != MAGIC {
            return Err(PrefixError::WrongMagic(self.magic));
        }
        let (version, oldest) = (self.versions & 0xf, self.versions >> 4);
        if !(oldest..=version).contains(&VERSION) {
            return Err(PrefixError::Version { version, oldest });
        }
        if Kind::from_u8(self.kind).is_none() {
            return Err(PrefixError::Kind(self.kind));
        }
        if self.lane & !(GENERATION | COVERS_BODY) != 0 {
            return Err(PrefixError::Lane(self.lane));
        }
        Ok(self.checked())
    }

    /// The meaning, where the bytes were found to have one.
    #[inline]
    fn checked(&self) -> Prefix {
        Prefix { job: JobId(self.job.get()), word: self.first_word() >> 24 }
    }

    /// All fields before the job: the magic bytes, the versions, the kind, the epoch, the lane.
    #[inline]
    fn first_word(&self) -> u64 {
        let [first, ..]: &[[u8; 8]; 3] = transmute_ref!(self);
        u64::from_le_bytes(*first)
    }
}

impl Prefix {
    /// The prefix of a packet of this kind, job and epoch, sealed in this way.
    pub fn new(
        kind: Kind,
        job: JobId,
        epoch: u32,
        generation: Generation,
        covers_body: bool,
    ) -> Prefix {
        let odd = flag(generation == Generation::Odd, GENERATION);
        let lane = odd | flag(covers_body, COVERS_BODY);
        PrefixView { lane, ..PrefixView::new(kind, job, epoch) }.checked()
    }

    /// Kind of the rest of the header.
    #[inline]
    pub fn kind(self) -> Kind {
        Kind::from_u8(self.word as u8).expect("a prefix has a kind that was read")
    }

    /// Number of the job's set-up: at most [`EPOCH_MAX`].
    #[inline]
    pub fn epoch(self) -> u32 {
        (self.word >> 8) as u32 & EPOCH_MAX
    }

    /// Generation of the key that sealed it. Even where nothing is sealed.
    #[inline]
    pub fn generation(self) -> Generation {
        Generation::from_bit(self.has(GENERATION))
    }

    /// Returns whether the tag covers the body.
    #[inline]
    pub fn covers_body(self) -> bool {
        self.has(COVERS_BODY)
    }

    #[inline]
    fn has(self, bit: u8) -> bool {
        self.word & u64::from(bit) << 32 != 0
    }

    /// The same prefix, if it is of this kind.
    #[inline]
    pub(crate) fn expect(self, expected: Kind) -> Result<Prefix, PrefixError> {
        if self.word as u8 == expected as u8 {
            Ok(self)
        } else {
            Err(PrefixError::OtherKind { expected, found: self.kind() })
        }
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Prefix")
            .field("kind", &self.kind())
            .field("job", &self.job)
            .field("epoch", &self.epoch())
            .field("generation", &self.generation())
            .field("covers_body", &self.covers_body())
            .finish()
    }
}

/// Declares the bytes of a header, field by field in their order, each with the value that the meaning of the header
/// writes there; what the fields mean stands in `docs/wire.md`. The meaning has `decode_checked`, and gets what follows
/// from both.
macro_rules! header_view {
    (
        $(#[$doc:meta])*
        $View:ident($meaning:ident: $Meaning:ident), $Error:ident, $prefix:expr,
        { $($(#[$field_doc:meta])* $field:ident: $Type:ty = $value:expr,)+ }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[derive(::zerocopy::FromBytes, ::zerocopy::IntoBytes, ::zerocopy::KnownLayout)]
        #[derive(::zerocopy::Immutable, ::zerocopy::Unaligned)]
        #[repr(C)]
        pub struct $View {
            /// The prefix of every header.
            pub prefix: $crate::prefix::PrefixView,
            $(
                $(#[$field_doc])*
                #[doc = concat!("Written as `", stringify!($value), "`.")]
                pub $field: $Type,
            )+
        }

        impl $Meaning {
            /// Writes the whole header, tag zero.
            #[inline]
            pub fn encode(&self, header: &mut ::thalweg_core::Header) {
                let $meaning = self;
                let (kind, job, epoch) = $prefix;
                *header = ::zerocopy::transmute!($View {
                    prefix: $crate::prefix::PrefixView::new(kind, job, epoch),
                    $($field: <$Type>::from($value),)+
                });
            }
        }

        $crate::prefix::whole_headers!($Error: $Meaning);
    };
}
pub(crate) use header_view;

/// Gives the meanings of headers, which have `encode` and `decode_checked`, what follows from these.
macro_rules! whole_headers {
    ($Error:ident: $($Meaning:ident),+) => {$(
        impl $Meaning {
            /// Reads a header. Does not look at the tag.
            #[inline]
            pub fn decode(header: &::thalweg_core::Header) -> Result<$Meaning, $Error> {
                $Meaning::decode_checked($crate::peek(header)?, header)
            }

            /// Returns the whole header, tag zero.
            #[inline]
            pub fn to_header(&self) -> ::thalweg_core::Header {
                let mut header = [0; ::thalweg_core::HEADER_BYTES];
                self.encode(&mut header);
                header
            }
        }
    )+};
}
pub(crate) use whole_headers;

#[cfg(test)]
mod tests {
    use super::*;

    /// "TW", version 2 for readers from 2 on, a flow's data; epoch 7, lane 0, job 0x1122334455667788, a tag that is not looked at.
    fn bytes() -> Header {
        let mut header = [0; HEADER_BYTES];
        header[..24].copy_from_slice(&[
            0x54, 0x57, 0x22, 1, 7, 0, 0, 0, // magic, versions, kind, epoch, lane
            0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, // job
            1, 2, 3, 4, 5, 6, 7, 8, // tag
        ]);
        header
    }

    #[test]
    fn literal_bytes_have_their_meaning() {
        let job = JobId(0x1122_3344_5566_7788);
        let prefix =
            |generation, is_covered| Prefix::new(Kind::FlowData, job, 7, generation, is_covered);
        let plain = peek(&bytes()).unwrap();
        assert_eq!(plain, prefix(Generation::Even, false));
        assert_eq!((plain.kind(), plain.job, plain.epoch()), (Kind::FlowData, job, 7));
        assert_eq!((plain.generation(), plain.covers_body()), (Generation::Even, false));
        let with_lane = |lane| {
            let mut header = bytes();
            header[7] = lane;
            peek(&header)
        };
        assert_eq!(with_lane(0x20), Ok(prefix(Generation::Odd, false)));
        assert_eq!(with_lane(0x40), Ok(prefix(Generation::Even, true)));
    }

    #[test]
    fn other_traffic_versions_and_kinds_are_refused() {
        let refused = |at: usize, byte: u8| {
            let mut header = bytes();
            header[at] = byte;
            peek(&header).unwrap_err()
        };
        assert_eq!(refused(0, b't'), PrefixError::WrongMagic(*b"tW"));
        assert_eq!(refused(1, 0), PrefixError::WrongMagic([b'T', 0]));
        let version = |version, oldest| PrefixError::Version { version, oldest };
        assert_eq!(refused(2, 0x11), version(1, 1), "an older release");
        assert_eq!(refused(2, 0x33), version(3, 3), "a newer one that we cannot read");
        assert_eq!(refused(2, 0x01), version(1, 0));
        assert_eq!(refused(7, 1), PrefixError::Lane(1));
        assert_eq!(refused(7, 0x80), PrefixError::Lane(0x80));
        assert_eq!(refused(7, 0x30), PrefixError::Lane(0x30));
        assert_eq!(refused(3, 0), PrefixError::Kind(0));
        assert_eq!(refused(3, 255), PrefixError::Kind(255));
        assert_eq!(peek(&[0; HEADER_BYTES]), Err(PrefixError::WrongMagic([0, 0])));
    }

    #[test]
    fn versions_that_say_so_are_understood() {
        let readable = (0..=255_u8).filter(|&versions| {
            let mut header = bytes();
            header[2] = versions;
            peek(&header).is_ok()
        });
        let (version, oldest) = (|versions: u8| versions & 0xf, |versions: u8| versions >> 4);
        let expected = (0..=255).filter(|&of| oldest(of) <= VERSION && VERSION <= version(of));
        assert_eq!(readable.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }

    #[test]
    fn epochs_have_three_bytes() {
        let view = |epoch| PrefixView::new(Kind::FlowData, JobId(1), epoch);
        assert_eq!(view(0x03_02_01).as_bytes()[4..8], [1, 2, 3, 0]);
        let epoch = |epoch| view(epoch).meaning().unwrap().epoch();
        assert_eq!([epoch(EPOCH_MAX), epoch(EPOCH_MAX + 1)], [EPOCH_MAX; 2], "it does not wrap");
    }

    #[test]
    fn numbers_and_kinds_are_the_same_thing() {
        let known: Vec<u8> = (0..=255).filter(|&number| Kind::from_u8(number).is_some()).collect();
        let planes = [1..=5, 16..=23, 32..=40, 48..=49];
        assert_eq!(known, planes.into_iter().flatten().collect::<Vec<u8>>());
        for number in known {
            assert_eq!(Kind::from_u8(number).unwrap() as u8, number);
        }
    }
}
