//! A worker asks for a sum that does not come.

use thalweg_core::{Header, NodeId};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::transmute_ref;

use super::{AggregateError, BRANCH_BYTES, BYPASS, Bounded, Branch, Identity, LEVELS};
use crate::flag;
use crate::int24::{I24, U24};
use crate::prefix::{Kind, Prefix, header_view};

/// Flag: the operation need not be exact.
const BOUNDED: u8 = 1 << 1;
/// Flag: the last switch has the whole sum, and no result.
const AWAITED: u8 = 1 << 2;

/// Flag: the values of the worker that asks are important.
const IMPORTANT: u8 = 1 << 3;

/// A packet without body, from a worker that misses a sum up to the first switch that lacks a contribution, or
/// to the server (T-10).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Query {
    /// The fragment that the worker misses.
    pub identity: Identity,
    /// Aggregator that sums it.
    pub aggregator: u32,
    /// The root of the tree.
    pub server: NodeId,
    /// The switches between the worker and the server.
    pub branch: Branch,
    /// The level of the next switch.
    pub level: u8,
    /// Distance from the worker's watermark up to the fragment.
    pub watermark_distance: u16,
    /// Distance from the fragment to the one whose sum arrived last, above it or below; zero if time alone makes
    /// the worker ask. At most 2²³ either way.
    pub received_distance: i32,
    /// True if it is for the server alone.
    pub bypass: bool,
    /// True if the last switch that it passed has sent the whole sum on and waits for the result as well: nobody below
    /// has it. Workers send no such query.
    pub awaited: bool,
    /// The operation, if the sum may come without some contributions (T-02).
    pub bounded: Option<Bounded>,
    /// True if the operation is bounded and the values of the worker that asks are important (M-20).
    pub important: bool,
}

header_view! {
    /// The bytes of [`Query`]. What describes a bounded operation is zero in an exact one.
    QueryView(query: Query), AggregateError,
    (Kind::AggregateQuery, query.identity.job, query.identity.epoch),
    {
        sequence: U64 = query.identity.sequence,
        operation: U32 = query.identity.operation,
        received_distance: I24 = query.received_distance,
        share: u8 = query.bounded.map_or(0, |bounded| bounded.share.parts()),
        server: U32 = query.server.0,
        first_distance: U24 = query.bounded.map_or(0, |bounded| bounded.first_distance),
        level: u8 = query.level,
        aggregator: U24 = query.aggregator,
        attempt: u8 = query.identity.attempt,
        branch: [u8; BRANCH_BYTES] = query.branch.pack(),
        watermark_distance: U16 = query.watermark_distance,
        flags: u8 = flag(query.bypass, BYPASS)
            | flag(query.bounded.is_some(), BOUNDED)
            | flag(query.awaited, AWAITED)
            | flag(query.important, IMPORTANT),
        fragments: U24 = query.bounded.map_or(0, |bounded| bounded.fragments),
    }
}

impl Query {
    /// A query about a fragment of an exact operation, to the first switch of the branch, because time has
    /// passed. The watermark is the fragment itself.
    pub fn new(identity: Identity, aggregator: u32, server: NodeId, branch: Branch) -> Query {
        Query {
            identity,
            aggregator,
            server,
            branch,
            level: branch.entry(),
            watermark_distance: 0,
            received_distance: 0,
            bypass: false,
            awaited: false,
            bounded: None,
            important: false,
        }
    }

    /// Reads a header whose prefix was [read](crate::peek) before. Does not look at the tag.
    pub fn decode_checked(prefix: Prefix, header: &Header) -> Result<Query, AggregateError> {
        let view: &QueryView = transmute_ref!(header);
        let prefix = prefix.expect(Kind::AggregateQuery)?;
        let query = Query {
            identity: Identity::read(&prefix, view.sequence, view.attempt, view.operation),
            aggregator: view.aggregator.get(),
            server: NodeId(view.server.get()),
            branch: Branch::unpack(view.branch)?,
            level: view.level,
            watermark_distance: view.watermark_distance.get(),
            received_distance: view.received_distance.get(),
            bypass: view.flags & BYPASS != 0,
            awaited: view.flags & AWAITED != 0,
            bounded: view.bounded()?,
            important: view.flags & IMPORTANT != 0,
        };
        if usize::from(query.level) > LEVELS {
            return Err(AggregateError::Level(query.level));
        }
        if u64::from(query.watermark_distance) > query.identity.sequence {
            return Err(AggregateError::Watermark(query.watermark_distance));
        }
        Ok(query)
    }

    /// Everything below this number is complete at the worker that asks.
    pub fn watermark(&self) -> u64 {
        self.identity.sequence.saturating_sub(u64::from(self.watermark_distance))
    }

    /// The fragment whose sum arrived last at the worker, where that made it ask.
    pub fn last_received(&self) -> Option<u64> {
        let last_received =
            self.identity.sequence.checked_add_signed(i64::from(self.received_distance));
        last_received.filter(|_| self.received_distance != 0)
    }
}

impl QueryView {
    /// Reads the operation. What describes it is zero where it is exact, so that one meaning has one form.
    fn bounded(&self) -> Result<Option<Bounded>, AggregateError> {
        let (first_distance, fragments) = (self.first_distance.get(), self.fragments.get());
        let is_bounded = self.flags & BOUNDED != 0;
        let is_important = self.flags & IMPORTANT != 0;
        let is_blank = first_distance == 0 && fragments == 0 && self.share == 0 && !is_important;
        if self.flags & !(BYPASS | BOUNDED | AWAITED | IMPORTANT) != 0 || !(is_bounded || is_blank)
        {
            return Err(AggregateError::Reserved);
        }
        if !is_bounded {
            return Ok(None);
        }
        let bounded = Bounded::read(first_distance, fragments, self.share);
        bounded.map(Some).ok_or(AggregateError::Operation)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use thalweg_core::JobId;

    use super::super::{BranchError, LossShare};
    use super::*;
    use crate::int24::U24_MAX;
    use crate::prefix::EPOCH_MAX;
    use crate::testing::{assert_literal, assert_refused, whole};

    const IDENTITY: Identity =
        Identity { job: JobId(7), epoch: 1, sequence: 500, attempt: 2, operation: 0x0102_0304 };

    /// Worker 3 of a rack of 4 misses fragment 500, at the first of two levels.
    fn query() -> Query {
        let branch = Branch::new([4, 2, 0, 0], [3, 1, 0, 0]).unwrap();
        Query {
            watermark_distance: 300,
            received_distance: -2,
            bypass: true,
            awaited: true,
            ..Query::new(IDENTITY, 9, NodeId(0x0a0b_0c0d), branch)
        }
    }

    const QUERY_BYTES: Header = [
        0x54, 0x57, 0x22, 18, 1, 0, 0, 0, // magic, versions, kind, epoch, lane
        7, 0, 0, 0, 0, 0, 0, 0, // job
        0, 0, 0, 0, 0, 0, 0, 0, // tag
        0xf4, 0x01, 0, 0, 0, 0, 0, 0, // sequence
        4, 3, 2, 1, 0xfe, 0xff, 0xff, 0, // operation, received_distance, share
        0x0d, 0x0c, 0x0b, 0x0a, 0, 0, 0, 0, // server, first_distance, level
        9, 0, 0, 2, 0xc4, 0x10, 0x02, 0, // aggregator, attempt, branch
        0, 0, 0x2c, 0x01, 5, 0, 0, 0, // branch, watermark_distance, flags, fragments
    ];

    #[test]
    fn literal_bytes_have_their_meaning_and_back() {
        assert_literal((&QUERY_BYTES, query()), Query::decode, Query::to_header);
        assert_eq!((query().watermark(), query().last_received()), (200, Some(498)));
        assert_eq!(Query { received_distance: 0, ..query() }.last_received(), None);
    }

    #[test]
    fn a_query_names_the_operation_that_need_not_be_exact() {
        // The operation of 1,000 fragments began 400 before, and a tenth of it may be missing.
        let share = LossShare::new(0.1).unwrap();
        let operation = Bounded { first_distance: 400, fragments: 1_000, share };
        let bounded = Query { bounded: Some(operation), ..query() };
        let mut bytes = QUERY_BYTES;
        bytes[39] = 25;
        bytes[44..47].copy_from_slice(&[0x90, 0x01, 0]);
        bytes[60] |= BOUNDED;
        bytes[61..64].copy_from_slice(&[0xe8, 0x03, 0]);
        assert_literal((&bytes, bounded), Query::decode, Query::to_header);
        // The values of the worker that asks are important.
        // spec: M-20 machine
        let important = Query { important: true, ..bounded };
        assert_eq!(important.to_header()[60], bytes[60] | 1 << 3);
        assert_eq!(Query::decode(&important.to_header()), Ok(important));
        bytes[61..64].copy_from_slice(&[0x90, 0x01, 0]);
        assert_eq!(Query::decode(&bytes), Err(AggregateError::Operation), "400 of 400");
    }

    #[test]
    fn reserved_bits_are_refused() {
        // An exact operation has neither share nor distance nor length.
        let unused = whole([39, 44, 45, 46, 61, 62, 63]).chain((3..8).map(|bit| (60, bit)));
        assert_refused(&QUERY_BYTES, unused, Query::decode, AggregateError::Reserved);
    }

    #[test]
    fn contradictions_are_refused() {
        let high = Query { level: 5, ..query() };
        assert_eq!(Query::decode(&high.to_header()), Err(AggregateError::Level(5)));
        let early = Query { watermark_distance: 501, ..query() };
        assert_eq!(Query::decode(&early.to_header()), Err(AggregateError::Watermark(501)));
        let first = Query { watermark_distance: 500, ..query() };
        assert_eq!(Query::decode(&first.to_header()).unwrap().watermark(), 0);
        let mut header = QUERY_BYTES;
        header[52..54].copy_from_slice(&[0x04, 0x11]);
        let error = BranchError::Place { level: 0, place: 4 };
        assert_eq!(Query::decode(&header), Err(error.into()));
    }

    proptest! {
        #[test]
        fn queries_come_back(
            (job, sequence, attempt, operation) in any::<(u64, u64, u8, u32)>(),
            (epoch, aggregator) in (0..=EPOCH_MAX, 0..=U24_MAX),
            (server, distance, bypass, awaited) in any::<(u32, u16, bool, bool)>(),
            (level, received_distance) in (0..=4_u8, I24::MIN..=I24::MAX),
            bounded in prop::option::of((0..1_u32 << 23, 1..1_u32 << 23, any::<u8>())),
            important in any::<bool>(),
        ) {
            let bounded = bounded.map(|(first_distance, more, share)| Bounded {
                first_distance,
                fragments: first_distance + more,
                share: LossShare::from_parts(share),
            });
            let query = Query {
                identity: Identity { job: JobId(job), epoch, sequence, attempt, operation },
                aggregator,
                server: NodeId(server),
                level,
                watermark_distance: distance.min(u16::try_from(sequence).unwrap_or(u16::MAX)),
                received_distance,
                bypass,
                awaited,
                bounded,
                important: important && bounded.is_some(),
                ..query()
            };
            prop_assert_eq!(Query::decode(&query.to_header()), Ok(query));
        }
    }
}
