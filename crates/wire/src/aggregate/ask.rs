//! Who lacks something asks for it.

use thalweg_core::{Header, NodeId};
use zerocopy::byteorder::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_ref};

use super::{AggregateError, Bounded, Branch, Identity, LEVELS, flag};
use crate::prefix::{Kind, Prefix, PrefixView, peek};

/// Flag: past all switches, between worker and server.
const STRAIGHT: u8 = 1 << 0;
/// Flag: nothing of the sum is left.
const AFRESH: u8 = 1 << 1;
/// Flag: the operation need not be exact.
const BOUNDED: u8 = 1 << 2;

/// A packet without body that asks for what does not come (T-10).
///
/// A *query* goes up from a worker that misses a sum, to the first switch that lacks a contribution,
/// or to the server. A *request* goes down from there to those that owe it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Which way it goes.
    pub kind: AskKind,
    /// Which fragment it is about.
    pub identity: Identity,
    /// Which aggregator sums it.
    pub aggregator: u32,
    /// The root of the tree.
    pub server: NodeId,
    /// Query: the way of the worker that asks. Request: of whom is asked, as far as it lies above
    /// `level`; what lies below means nothing.
    pub branch: Branch,
    /// Query: the level of the next switch. Request: the level of the switch that lacks something,
    /// [`Branch::end`] or above for the server.
    pub level: u8,
    /// Query: how far below the fragment the worker's watermark lies. Request: means nothing, and is
    /// sent as zero.
    pub watermark_distance: u16,
    /// Query: how far above the fragment the sum is that came to the worker last, or below it; zero if it
    /// asks because time has passed. Request: means nothing, and is sent as zero.
    pub heard_distance: i32,
    /// Request: which children of the asking switch owe something. Query: means nothing, and is sent
    /// as zero.
    pub wanted: u32,
    /// Query: for the server alone. Request: to be answered straight to the server, with the resend
    /// flag.
    pub straight: bool,
    /// Request: nothing of the sum is left where it is asked for, so that the answer may take an
    /// aggregator. Query: means nothing, and is sent as not set.
    pub afresh: bool,
    /// Query: the operation, if the sum may come without some contributions (T-02). Request: means
    /// nothing, and is not sent.
    pub bounded: Option<Bounded>,
}

/// Which way an [`Ask`] goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskKind {
    /// Up.
    Query,
    /// Down.
    Request,
}

/// The bytes of [`Ask`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AskView {
    /// Of kind [`Kind::AggregateQuery`] or [`Kind::AggregateRequest`].
    pub prefix: PrefixView,
    /// [`Identity::sequence`].
    pub sequence: U64,
    /// [`Ask::aggregator`].
    pub aggregator: U32,
    /// [`Ask::heard_distance`]; zero in a request.
    pub heard_distance: I32,
    /// [`Ask::server`].
    pub server: U32,
    /// Request: [`Ask::wanted`]. Query with [`Ask::bounded`]: its share in the lowest byte and the number
    /// of fragments above; any other query: zero.
    pub wanted: U32,
    /// [`Branch::fan_ins`].
    pub fan_ins: [u8; LEVELS],
    /// [`Branch::places`].
    pub places: [u8; LEVELS],
    /// [`Ask::watermark_distance`]; zero in a request.
    pub watermark_distance: U16,
    /// Bit 0 [`Ask::straight`], bit 1 [`Ask::afresh`], in requests only, bit 2 [`Ask::bounded`], in queries
    /// only; the other bits are zero.
    pub flags: u8,
    /// [`Identity::attempt`].
    pub attempt: u8,
    /// [`Ask::level`].
    pub level: u8,
    /// [`Bounded::first_distance`]; zero without [`Ask::bounded`].
    pub first_distance: [u8; 3],
}

impl AskKind {
    const fn kind(self) -> Kind {
        match self {
            AskKind::Query => Kind::AggregateQuery,
            AskKind::Request => Kind::AggregateRequest,
        }
    }
}

impl Ask {
    /// Writes the whole header, tag zero, without what means nothing in its kind: a switch may turn a
    /// query into a request field by field.
    #[inline]
    pub fn encode(&self, header: &mut Header) {
        let Identity { job, epoch, sequence, attempt } = self.identity;
        let bounded = self.bounded.filter(|_| self.kind == AskKind::Query);
        let (operation, first_distance) = bounded.map_or((0, [0; 3]), Bounded::pack);
        let (watermark_distance, heard_distance, wanted, afresh) = match self.kind {
            AskKind::Query => (self.watermark_distance, self.heard_distance, operation, false),
            AskKind::Request => (0, 0, self.wanted, self.afresh),
        };
        *header = transmute!(AskView {
            prefix: PrefixView::new(self.kind.kind(), job, epoch),
            sequence: U64::new(sequence),
            aggregator: U32::new(self.aggregator),
            heard_distance: I32::new(heard_distance),
            server: U32::new(self.server.0),
            wanted: U32::new(wanted),
            fan_ins: self.branch.fan_ins(),
            places: self.branch.places(),
            watermark_distance: U16::new(watermark_distance),
            flags: flag(self.straight, STRAIGHT)
                | flag(afresh, AFRESH)
                | flag(bounded.is_some(), BOUNDED),
            attempt,
            level: self.level,
            first_distance,
        });
    }

    /// Reads a header of either kind. Does not look at the tag.
    pub fn decode(header: &Header) -> Result<Ask, AggregateError> {
        Ask::decode_checked(peek(header)?, header)
    }

    /// Reads a header of either kind whose prefix was [read](peek) before. Does not look at the tag.
    pub fn decode_checked(prefix: Prefix, header: &Header) -> Result<Ask, AggregateError> {
        let view: &AskView = transmute_ref!(header);
        let Prefix { job, epoch, .. } = prefix;
        let kind = match prefix.kind {
            Kind::AggregateQuery => AskKind::Query,
            _ => {
                prefix.expect(Kind::AggregateRequest)?;
                AskKind::Request
            }
        };
        let is_bounded = view.flags & BOUNDED != 0;
        let is_clean = view.flags & !(STRAIGHT | AFRESH | BOUNDED) == 0
            && (is_bounded || view.first_distance == [0; 3])
            && (kind == AskKind::Query || !is_bounded);
        if !is_clean {
            return Err(AggregateError::Reserved);
        }
        let wanted = view.wanted.get();
        let bounded = is_bounded
            .then(|| Bounded::unpack(wanted, view.first_distance).ok_or(AggregateError::Operation))
            .transpose()?;
        let ask = Ask {
            kind,
            identity: Identity { job, epoch, sequence: view.sequence.get(), attempt: view.attempt },
            aggregator: view.aggregator.get(),
            server: NodeId(view.server.get()),
            branch: Branch::new(view.fan_ins, view.places)?,
            level: view.level,
            watermark_distance: view.watermark_distance.get(),
            heard_distance: view.heard_distance.get(),
            wanted: if is_bounded { 0 } else { wanted },
            straight: view.flags & STRAIGHT != 0,
            afresh: view.flags & AFRESH != 0,
            bounded,
        };
        ask.check()?;
        Ok(ask)
    }

    /// Everything below this number is complete at the worker that asks.
    pub fn watermark(&self) -> u64 {
        self.identity.sequence.saturating_sub(u64::from(self.watermark_distance))
    }

    /// The fragment whose sum came to the worker last, where that made it ask.
    pub fn heard(&self) -> Option<u64> {
        let heard = self.identity.sequence.checked_add_signed(i64::from(self.heard_distance));
        heard.filter(|_| self.heard_distance != 0)
    }

    /// Whether the fields agree with each other and with the kind.
    fn check(&self) -> Result<(), AggregateError> {
        let clean = match self.kind {
            AskKind::Query => self.wanted == 0 && !self.afresh,
            AskKind::Request => self.watermark_distance == 0 && self.heard_distance == 0,
        };
        if !clean {
            return Err(AggregateError::Reserved);
        }
        if usize::from(self.level) > LEVELS {
            return Err(AggregateError::Level(self.level));
        }
        if u64::from(self.watermark_distance) > self.identity.sequence {
            return Err(AggregateError::Watermark(self.watermark_distance));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use thalweg_core::{HEADER_BYTES, JobId};

    use super::super::{BranchError, LossShare};
    use super::*;

    /// Worker 3 of a rack of 4 misses fragment 500, at the first of two levels.
    fn query() -> Ask {
        Ask {
            kind: AskKind::Query,
            identity: Identity { job: JobId(7), epoch: 1, sequence: 500, attempt: 2 },
            aggregator: 9,
            server: NodeId(0x0a0b_0c0d),
            branch: Branch::new([4, 2, 0, 0], [3, 1, 0, 0]).unwrap(),
            level: 0,
            watermark_distance: 300,
            heard_distance: -2,
            wanted: 0,
            straight: true,
            afresh: false,
            bounded: None,
        }
    }

    const QUERY_BYTES: Header = [
        0x54, 0x57, 1, 18, 1, 0, 0, 0, // magic, version, kind, epoch
        7, 0, 0, 0, 0, 0, 0, 0, // job
        0, 0, 0, 0, 0, 0, 0, 0, // tag
        0xf4, 0x01, 0, 0, 0, 0, 0, 0, // sequence
        9, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, // aggregator, heard_distance
        0x0d, 0x0c, 0x0b, 0x0a, 0, 0, 0, 0, // server, wanted
        4, 2, 0, 0, 3, 1, 0, 0, // fan_ins, places
        0x2c, 0x01, 1, 2, 0, 0, 0,
        0, // watermark_distance, flags, attempt, level, first_distance
    ];

    /// The switch of the second level lacks its child 1.
    fn request() -> Ask {
        Ask {
            kind: AskKind::Request,
            level: 1,
            watermark_distance: 0,
            heard_distance: 0,
            wanted: 0b10,
            straight: false,
            afresh: true,
            ..query()
        }
    }

    const REQUEST_BYTES: Header = [
        0x54, 0x57, 1, 19, 1, 0, 0, 0, // magic, version, kind, epoch
        7, 0, 0, 0, 0, 0, 0, 0, // job
        0, 0, 0, 0, 0, 0, 0, 0, // tag
        0xf4, 0x01, 0, 0, 0, 0, 0, 0, // sequence
        9, 0, 0, 0, 0, 0, 0, 0, // aggregator, heard_distance
        0x0d, 0x0c, 0x0b, 0x0a, 2, 0, 0, 0, // server, wanted
        4, 2, 0, 0, 3, 1, 0, 0, // fan_ins, places
        0, 0, 2, 2, 1, 0, 0, 0, // watermark_distance, flags, attempt, level, first_distance
    ];

    fn encoded(ask: &Ask) -> Header {
        let mut header = [0xff; HEADER_BYTES];
        ask.encode(&mut header);
        header
    }

    #[test]
    fn literal_bytes_have_their_meaning_and_back() {
        assert_eq!(encoded(&query()), QUERY_BYTES);
        assert_eq!(Ask::decode(&QUERY_BYTES), Ok(query()));
        assert_eq!((query().watermark(), query().heard()), (200, Some(498)));
        assert_eq!(encoded(&request()), REQUEST_BYTES);
        assert_eq!(Ask::decode(&REQUEST_BYTES), Ok(request()));
        assert_eq!((request().watermark(), request().heard()), (500, None));
    }

    /// The operation of 1,000 fragments began 400 before, and a tenth of it may be missing.
    fn bounded_query() -> Ask {
        let share = LossShare::new(0.1).unwrap();
        let operation = Bounded { first_distance: 400, fragments: 1_000, share };
        Ask { bounded: Some(operation), ..query() }
    }

    #[test]
    fn a_query_names_the_operation_that_need_not_be_exact() {
        let mut bytes = QUERY_BYTES;
        bytes[44..48].copy_from_slice(&[25, 0xe8, 0x03, 0]);
        bytes[58] |= BOUNDED;
        bytes[61..64].copy_from_slice(&[0x90, 0x01, 0]);
        assert_eq!(encoded(&bounded_query()), bytes);
        assert_eq!(Ask::decode(&bytes), Ok(bounded_query()));
        bytes[45..48].copy_from_slice(&[0x90, 0x01, 0]);
        assert_eq!(Ask::decode(&bytes), Err(AggregateError::Operation), "400 of 400");
        let down = Ask { kind: AskKind::Request, bounded: bounded_query().bounded, ..request() };
        assert_eq!(encoded(&down), REQUEST_BYTES);
        let mut bytes = REQUEST_BYTES;
        bytes[58] |= BOUNDED;
        assert_eq!(Ask::decode(&bytes), Err(AggregateError::Reserved));
    }

    #[test]
    fn reserved_bits_are_refused() {
        for header in [QUERY_BYTES, REQUEST_BYTES] {
            let reserved = (61..64).flat_map(|at| (0..8).map(move |bit| (at, bit)));
            for (at, bit) in reserved.chain((3..8).map(|bit| (58, bit))) {
                let mut bad = header;
                bad[at] |= 1 << bit;
                assert_eq!(Ask::decode(&bad), Err(AggregateError::Reserved), "{at}, bit {bit}");
            }
        }
    }

    #[test]
    fn fields_of_the_other_kind_are_refused_and_not_written() {
        let mixed = Ask { watermark_distance: 300, wanted: 0b10, afresh: true, ..query() };
        assert_eq!(encoded(&Ask { straight: true, ..mixed }), QUERY_BYTES);
        let down = Ask { kind: AskKind::Request, level: 1, straight: false, ..mixed };
        assert_eq!(encoded(&down), REQUEST_BYTES);

        let refused = |mut header: Header, at: usize, byte: u8| {
            header[at] = byte;
            Ask::decode(&header) == Err(AggregateError::Reserved)
        };
        assert!(refused(QUERY_BYTES, 44, 1), "wanted");
        assert!(refused(QUERY_BYTES, 58, AFRESH), "afresh");
        assert!(refused(REQUEST_BYTES, 56, 1), "watermark_distance");
        assert!(refused(REQUEST_BYTES, 36, 1), "heard_distance");
    }

    #[test]
    fn contradictions_are_refused() {
        let high = Ask { level: 5, ..query() };
        assert_eq!(Ask::decode(&encoded(&high)), Err(AggregateError::Level(5)));
        let early = Ask { watermark_distance: 501, ..query() };
        assert_eq!(Ask::decode(&encoded(&early)), Err(AggregateError::Watermark(501)));
        let first = Ask { watermark_distance: 500, ..query() };
        assert_eq!(Ask::decode(&encoded(&first)).unwrap().watermark(), 0);
        let mut header = QUERY_BYTES;
        header[52] = 4;
        let error = BranchError::Place { level: 0, place: 4 };
        assert_eq!(Ask::decode(&header), Err(error.into()));
    }

    proptest! {
        #[test]
        fn queries_come_back(
            (job, epoch, sequence, attempt) in any::<(u64, u32, u64, u8)>(),
            (aggregator, server, distance) in any::<(u32, u32, u16)>(),
            (level, straight, heard_distance) in (0..=4_u8, any::<bool>(), any::<i32>()),
        ) {
            let query = Ask {
                identity: Identity { job: JobId(job), epoch, sequence, attempt },
                aggregator,
                server: NodeId(server),
                level,
                watermark_distance: distance.min(u16::try_from(sequence).unwrap_or(u16::MAX)),
                heard_distance,
                straight,
                ..query()
            };
            prop_assert_eq!(Ask::decode(&encoded(&query)), Ok(query));
        }

        #[test]
        fn requests_come_back(
            (job, epoch, sequence, attempt) in any::<(u64, u32, u64, u8)>(),
            (aggregator, server, wanted) in any::<(u32, u32, u32)>(),
            (level, straight, afresh) in (0..=4_u8, any::<bool>(), any::<bool>()),
        ) {
            let request = Ask {
                identity: Identity { job: JobId(job), epoch, sequence, attempt },
                aggregator,
                server: NodeId(server),
                level,
                wanted,
                straight,
                afresh,
                ..request()
            };
            prop_assert_eq!(Ask::decode(&encoded(&request)), Ok(request));
        }
    }
}
