//! A switch or the server asks for contributions that are owed.

use thalweg_core::{Header, NodeId};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::transmute_ref;

use super::{AggregateError, BRANCH_BYTES, BYPASS, Branch, Identity, LEVELS};
use crate::flag;
use crate::int24::U24;
use crate::prefix::{Kind, Prefix, header_view};

/// Flag: nothing of the sum is left.
const RESTART: u8 = 1 << 1;

/// A packet without body, from a switch that lacks contributions, or from the server, down to those that owe
/// them (T-10).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The fragment that contributions are missing of.
    pub identity: Identity,
    /// Aggregator that sums it.
    pub aggregator: u32,
    /// The root of the tree.
    pub server: NodeId,
    /// The switches above those that are asked, as far as they lie above `level`; what lies below means nothing.
    pub branch: Branch,
    /// The level of the switch that lacks something; [`Branch::end`] or above for the server.
    pub level: u8,
    /// Children of that switch that owe something.
    pub wanted: u32,
    /// True if the contribution goes past all switches to the server, with the resend flag.
    pub bypass: bool,
    /// True if nothing of the sum is left at the switch, so that the contribution may take an aggregator.
    pub restart: bool,
}

header_view! {
    /// The bytes of [`Request`].
    RequestView(request: Request), AggregateError,
    (Kind::AggregateRequest, request.identity.job, request.identity.epoch),
    {
        sequence: U64 = request.identity.sequence,
        operation: U32 = request.identity.operation,
        reserved: [u8; 4] = [0; 4],
        server: U32 = request.server.0,
        wanted: U32 = request.wanted,
        aggregator: U24 = request.aggregator,
        attempt: u8 = request.identity.attempt,
        branch: [u8; BRANCH_BYTES] = request.branch.pack(),
        reserved_middle: [u8; 2] = [0; 2],
        flags: u8 = flag(request.bypass, BYPASS) | flag(request.restart, RESTART),
        level: u8 = request.level,
        reserved_end: [u8; 2] = [0; 2],
    }
}

impl Request {
    /// Reads a header whose prefix was [read](crate::peek) before. Does not look at the tag.
    pub fn decode_checked(prefix: Prefix, header: &Header) -> Result<Request, AggregateError> {
        let view: &RequestView = transmute_ref!(header);
        let prefix = prefix.expect(Kind::AggregateRequest)?;
        let is_clean = view.flags & !(BYPASS | RESTART) == 0
            && view.reserved == [0; 4]
            && view.reserved_middle == [0; 2]
            && view.reserved_end == [0; 2];
        if !is_clean {
            return Err(AggregateError::Reserved);
        }
        if usize::from(view.level) > LEVELS {
            return Err(AggregateError::Level(view.level));
        }
        Ok(Request {
            identity: Identity::read(&prefix, view.sequence, view.attempt, view.operation),
            aggregator: view.aggregator.get(),
            server: NodeId(view.server.get()),
            branch: Branch::unpack(view.branch)?,
            level: view.level,
            wanted: view.wanted.get(),
            bypass: view.flags & BYPASS != 0,
            restart: view.flags & RESTART != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use thalweg_core::JobId;

    use super::super::BranchError;
    use super::*;
    use crate::int24::U24_MAX;
    use crate::prefix::EPOCH_MAX;
    use crate::testing::{assert_literal, assert_refused, whole};

    /// The switch of the second level lacks its child 1.
    fn request() -> Request {
        Request {
            identity: Identity {
                job: JobId(7),
                epoch: 1,
                sequence: 500,
                attempt: 2,
                operation: 0x0102_0304,
            },
            aggregator: 9,
            server: NodeId(0x0a0b_0c0d),
            branch: Branch::new([4, 2, 0, 0], [3, 1, 0, 0]).unwrap(),
            level: 1,
            wanted: 0b10,
            bypass: false,
            restart: true,
        }
    }

    const REQUEST_BYTES: Header = [
        0x54, 0x57, 0x22, 19, 1, 0, 0, 0, // magic, versions, kind, epoch, lane
        7, 0, 0, 0, 0, 0, 0, 0, // job
        0, 0, 0, 0, 0, 0, 0, 0, // tag
        0xf4, 0x01, 0, 0, 0, 0, 0, 0, // sequence
        4, 3, 2, 1, 0, 0, 0, 0, // operation, reserved
        0x0d, 0x0c, 0x0b, 0x0a, 2, 0, 0, 0, // server, wanted
        9, 0, 0, 2, 0xc4, 0x10, 0x02, 0, // aggregator, attempt, branch
        0, 0, 0, 0, 2, 1, 0, 0, // branch, reserved, flags, level, reserved
    ];

    #[test]
    fn literal_bytes_have_their_meaning_and_back() {
        assert_literal((&REQUEST_BYTES, request()), Request::decode, Request::to_header);
    }

    #[test]
    fn reserved_bits_are_refused() {
        let reserved = whole([36, 37, 38, 39, 58, 59, 62, 63]).chain((2..8).map(|bit| (60, bit)));
        assert_refused(&REQUEST_BYTES, reserved, Request::decode, AggregateError::Reserved);
    }

    #[test]
    fn contradictions_are_refused() {
        let high = Request { level: 5, ..request() };
        assert_eq!(Request::decode(&high.to_header()), Err(AggregateError::Level(5)));
        let mut header = REQUEST_BYTES;
        header[52..54].copy_from_slice(&[0x04, 0x11]);
        let error = BranchError::Place { level: 0, place: 4 };
        assert_eq!(Request::decode(&header), Err(error.into()));
    }

    proptest! {
        #[test]
        fn requests_come_back(
            (job, sequence, attempt, operation) in any::<(u64, u64, u8, u32)>(),
            (epoch, aggregator) in (0..=EPOCH_MAX, 0..=U24_MAX),
            (server, wanted) in any::<(u32, u32)>(),
            (level, bypass, restart) in (0..=4_u8, any::<bool>(), any::<bool>()),
        ) {
            let request = Request {
                identity: Identity { job: JobId(job), epoch, sequence, attempt, operation },
                aggregator,
                server: NodeId(server),
                level,
                wanted,
                bypass,
                restart,
                ..request()
            };
            prop_assert_eq!(Request::decode(&request.to_header()), Ok(request));
        }
    }
}
