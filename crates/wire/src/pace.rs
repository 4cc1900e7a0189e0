//! Packets by which flows learn what their path has left, and links what flows plan.
//!
//! A [`Word`] travels the way of a flow. It says how far the flow is and, if it carries a plan, what it
//! wants of the coming slots; every switch along the path adds what its link says. The receiver sends it back
//! as an answer, with how far the flows of the job are that leave there. The body has [`FactsView`], then
//! a [`SlotView`] for each slot, then an [`OtherView`] for each such flow.

use thalweg_core::{Header, JobId};
use thiserror::Error;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_ref};

use crate::flag;
use crate::prefix::{Kind, Prefix, PrefixError, header_view};

/// Most slots of a word.
pub const SLOTS_MAX: u8 = 12;
/// Most other flows of an answer.
pub const OTHERS_MAX: u8 = 64;

const PLAN: u8 = 1 << 0;
const REFUSED: u8 = 1 << 1;
const SUMMED: u8 = 1 << 2;

/// A word about a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word {
    /// Job of the flow.
    pub job: JobId,
    /// The set-up of the job.
    pub epoch: u32,
    /// The flow's number in the job.
    pub flow: u32,
    /// Direction: with the flow, or back as an answer.
    pub direction: Direction,
    /// The first slot that it speaks of.
    pub slot: u64,
    /// Number of slots: 1 to [`SLOTS_MAX`].
    pub slots: u8,
    /// True if links take its plan.
    pub has_plan: bool,
    /// True if switches sum the flow with others of its job, so that links count all of them as one.
    pub is_summed: bool,
    /// Refusal of the plan along the path, if there was one.
    pub refused: Option<Refused>,
    /// The flow's iteration.
    pub iteration: u64,
    /// Bytes that the flow will have sent in it at the end of the first slot.
    pub volume: u64,
}

/// Direction in which a word travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// With the flow.
    Ask,
    /// Back to its sender.
    Answer {
        /// Flows of the job that leave where it comes from: at most [`OTHERS_MAX`].
        others: u8,
    },
}

/// A link has no room for a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The slot that is too full, counted from the first.
    pub at: u8,
    /// Bytes of the slot that the flow could have.
    pub free: u64,
}

header_view! {
    /// The bytes of [`Word`].
    WordView(word: Word), PaceError, (word.kind(), word.job, word.epoch),
    {
        slot: U64 = word.slot,
        flow: U32 = word.flow,
        slots: u8 = word.slots,
        flags: u8 = flag(word.has_plan, PLAN)
            | flag(word.refused.is_some(), REFUSED)
            | flag(word.is_summed, SUMMED),
        refused_at: u8 = word.refused.map_or(0, |refused| refused.at),
        others: u8 = word.others(),
        iteration: U64 = word.iteration,
        volume: U64 = word.volume,
        refused_free: U64 = word.refused.map_or(0, |refused| refused.free),
    }
}

/// The facts that a body begins with, in bytes a slot.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct FactsView {
    /// Capacity of the narrowest link of the path so far.
    pub narrowest: U64,
    /// Volume that the flow wanted of the slot before the first.
    pub asked: U64,
    /// Volume that it got.
    pub carried: U64,
    /// Rank of the flow where there is not enough, 0 to 255: the lower one goes first.
    pub rank: U64,
}

/// The volumes of one slot, in bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct SlotView {
    /// Plan of the flow.
    pub plan: U64,
    /// Plans of other jobs, summed over the links of the path so far.
    pub load: U64,
    /// Volume that the tightest link of the path so far has left.
    pub free: U64,
}

/// The progress of another flow of the job.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct OtherView {
    /// Volume of the flow, as [`Word::volume`].
    pub volume: U64,
    /// Number of the flow.
    pub flow: U32,
    /// Zero.
    pub reserved: U32,
}

/// Why a word cannot be read. The sender is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PaceError {
    /// The prefix is not that of a word.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// Slots that no word has.
    #[error("the word speaks of {0} slots: it must be 1 to {SLOTS_MAX}")]
    Slots(u8),
    /// More flows than an answer has.
    #[error(
        "the word speaks of {0} other flows: an answer has at most {OTHERS_MAX}, a question none"
    )]
    Others(u8),
    /// Bits that mean nothing in this version, or contradict each other.
    #[error("reserved bits of the word are set: senders must leave them zero")]
    Reserved,
    /// A refusal of nothing.
    #[error("slot {0} is refused and not spoken of")]
    RefusedAt(u8),
    /// A body of another length than the header states.
    #[error("the body has {found} bytes, the header states {expected}")]
    Length {
        /// Length that follows from the header.
        expected: u32,
        /// Length of the body.
        found: usize,
    },
    /// A rank that no flow has.
    #[error("the rank is {0}: the last is 255")]
    Rank(u64),
}

/// The body of a word.
#[derive(Clone, Copy, Debug)]
pub struct WordBody<'a> {
    /// The facts that it begins with.
    pub facts: &'a FactsView,
    /// The volumes of each slot.
    pub slots: &'a [SlotView],
    /// The other flows.
    pub others: &'a [OtherView],
}

impl Word {
    const fn kind(&self) -> Kind {
        match self.direction {
            Direction::Ask => Kind::PaceAsk,
            Direction::Answer { .. } => Kind::PaceAnswer,
        }
    }

    /// Number of other flows that the body has.
    const fn others(&self) -> u8 {
        match self.direction {
            Direction::Ask => 0,
            Direction::Answer { others } => others,
        }
    }

    /// Reads a header whose prefix was [read](crate::peek) before. Does not look at the tag.
    pub fn decode_checked(prefix: Prefix, header: &Header) -> Result<Word, PaceError> {
        let view: &WordView = transmute_ref!(header);
        let direction = match prefix.kind() {
            Kind::PaceAnswer => Direction::Answer { others: view.others },
            _ => prefix.expect(Kind::PaceAsk).map(|_| Direction::Ask)?,
        };
        let others_max = if direction == Direction::Ask { 0 } else { OTHERS_MAX };
        if view.others > others_max {
            return Err(PaceError::Others(view.others));
        }
        if !(1..=SLOTS_MAX).contains(&view.slots) {
            return Err(PaceError::Slots(view.slots));
        }
        Ok(Word {
            job: prefix.job,
            epoch: prefix.epoch(),
            flow: view.flow.get(),
            direction,
            slot: view.slot.get(),
            slots: view.slots,
            has_plan: view.flags & PLAN != 0,
            is_summed: view.flags & SUMMED != 0,
            refused: view.refused()?,
            iteration: view.iteration.get(),
            volume: view.volume.get(),
        })
    }

    /// The length of its body.
    pub const fn body_bytes(&self) -> u32 {
        let slots = self.slots as usize * size_of::<SlotView>();
        let others = self.others() as usize * size_of::<OtherView>();
        (size_of::<FactsView>() + slots + others) as u32
    }

    /// Reads the body.
    pub fn read_body<'a>(&self, body: &'a [u8]) -> Result<WordBody<'a>, PaceError> {
        let (expected, found) = (self.body_bytes(), body.len());
        let wrong = PaceError::Length { expected, found };
        if found != expected as usize {
            return Err(wrong);
        }
        let (facts, rest) = FactsView::ref_from_prefix(body).map_err(|_| wrong)?;
        let slots = usize::from(self.slots);
        let slots = <[SlotView]>::ref_from_prefix_with_elems(rest, slots).map_err(|_| wrong);
        let (slots, rest) = slots?;
        let others = <[OtherView]>::ref_from_bytes(rest).map_err(|_| wrong)?;
        if others.iter().any(|other| other.reserved != U32::ZERO) {
            return Err(PaceError::Reserved);
        }
        let rank = facts.rank.get();
        if rank > u64::from(u8::MAX) {
            return Err(PaceError::Rank(rank));
        }
        Ok(WordBody { facts, slots, others })
    }

    /// Writes the body: the facts, then the slots, then the other flows, of which there are as many as the word
    /// speaks of. What the buffer has no room for is left out.
    pub fn write_body(
        &self,
        body: &mut [u8],
        facts: FactsView,
        slots: impl IntoIterator<Item = SlotView>,
        others: impl IntoIterator<Item = OtherView>,
    ) {
        let bytes = body.len().min(self.body_bytes() as usize);
        let mut rest = &mut body[..bytes];
        let mut put = |bytes: &[u8]| {
            if let Some((room, behind)) =
                std::mem::take(&mut rest).split_at_mut_checked(bytes.len())
            {
                room.copy_from_slice(bytes);
                rest = behind;
            }
        };
        put(facts.as_bytes());
        slots.into_iter().for_each(|slot| put(slot.as_bytes()));
        others.into_iter().for_each(|other| put(other.as_bytes()));
    }
}

impl WordView {
    fn refused(&self) -> Result<Option<Refused>, PaceError> {
        let (at, free) = (self.refused_at, self.refused_free.get());
        match self.flags {
            flags if flags & !(PLAN | REFUSED | SUMMED) != 0 => Err(PaceError::Reserved),
            // Only a plan can be refused.
            flags if flags & (PLAN | REFUSED) == REFUSED => Err(PaceError::Reserved),
            flags if flags & REFUSED == 0 && (at != 0 || free != 0) => Err(PaceError::Reserved),
            flags if flags & REFUSED == 0 => Ok(None),
            _ if at >= self.slots => Err(PaceError::RefusedAt(at)),
            _ => Ok(Some(Refused { at, free })),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use thalweg_core::HEADER_BYTES;

    use super::*;
    use crate::testing::assert_literal;

    /// A plan of ten slots that found its fourth too full, on the path back with one other flow.
    const WORD: Word = Word {
        job: JobId(0x0102_0304_0506_0708),
        epoch: 9,
        flow: 0x0b0a,
        direction: Direction::Answer { others: 1 },
        slot: 0x1112,
        slots: 10,
        has_plan: true,
        is_summed: true,
        refused: Some(Refused { at: 3, free: 0x2122 }),
        iteration: 7,
        volume: 0x3132,
    };

    const WORD_BYTES: Header = [
        0x54, 0x57, 0x22, 49, 9, 0, 0, 0, // magic, versions, kind, epoch, lane
        8, 7, 6, 5, 4, 3, 2, 1, // job
        0, 0, 0, 0, 0, 0, 0, 0, // tag
        0x12, 0x11, 0, 0, 0, 0, 0, 0, // slot
        0x0a, 0x0b, 0, 0, 10, 7, 3, 1, // flow, slots, flags, refused_at, others
        7, 0, 0, 0, 0, 0, 0, 0, // iteration
        0x32, 0x31, 0, 0, 0, 0, 0, 0, // volume
        0x22, 0x21, 0, 0, 0, 0, 0, 0, // refused_free
    ];

    // spec: C-02 machine
    #[test]
    fn literal_bytes_have_their_meaning_and_back() {
        assert_literal((&WORD_BYTES, WORD), Word::decode, Word::to_header);
        let ask = Word { direction: Direction::Ask, has_plan: false, refused: None, ..WORD };
        assert_eq!(Word::decode(&ask.to_header()), Ok(ask));
    }

    #[test]
    fn every_rule_is_checked() {
        let broken = |at: usize, value: u8| {
            let mut header = WORD_BYTES;
            header[at] = value;
            Word::decode(&header)
        };
        assert_eq!(broken(36, 0), Err(PaceError::Slots(0)));
        assert_eq!(broken(36, 13), Err(PaceError::Slots(13)));
        assert_eq!(broken(36, 3), Err(PaceError::RefusedAt(3)));
        assert_eq!(broken(37, 2), Err(PaceError::Reserved), "nothing was planned");
        assert_eq!(broken(37, 1), Err(PaceError::Reserved), "nothing was refused");
        assert_eq!(broken(37, 15), Err(PaceError::Reserved));
        assert_eq!(broken(39, 65), Err(PaceError::Others(65)));
        assert_eq!(broken(3, 48), Err(PaceError::Others(1)), "a question has none");
        assert!(matches!(broken(3, 1), Err(PaceError::Prefix(PrefixError::OtherKind { .. }))));
    }

    #[test]
    fn bodies_have_their_length_and_their_rules() {
        let word = Word { slots: 2, ..WORD };
        let [narrowest, asked, carried, rank] = [1, 2, 3, 4].map(U64::new);
        let facts = FactsView { narrowest, asked, carried, rank };
        let slots = [[5, 6, 7], [8, 9, 10]].map(|volumes| {
            let [plan, load, free] = volumes.map(U64::new);
            SlotView { plan, load, free }
        });
        let other = OtherView { volume: U64::new(11), flow: U32::new(12), reserved: U32::ZERO };
        let mut body = [0xff; 32 + 2 * 24 + 16 + 1];
        word.write_body(&mut body[..96], facts, slots, [other]);
        let numbers: Vec<u8> = (0..12).flat_map(|at| [at + 1, 0, 0, 0, 0, 0, 0, 0]).collect();
        assert_eq!(body[..96], numbers);
        let read = word.read_body(&body[..96]).unwrap();
        assert_eq!((*read.facts, read.slots, read.others), (facts, &slots[..], &[other][..]));

        let broken = |body: &[u8]| word.read_body(body).map(|_| ()).unwrap_err();
        for found in [0, 95, 97] {
            assert_eq!(broken(&body[..found]), PaceError::Length { expected: 96, found });
        }
        let changed = |at: usize| {
            let mut body = body;
            body[at] = 1;
            broken(&body[..96])
        };
        assert_eq!(changed(25), PaceError::Rank(256 + 4));
        assert_eq!(changed(92), PaceError::Reserved);
    }

    proptest! {
        #[test]
        fn bodies_that_can_be_read_are_written_again_as_they_were(
            slots in 1..=SLOTS_MAX,
            others in 0..=OTHERS_MAX,
            mut body in prop::collection::vec(any::<u8>(), 2_000),
            (is_short, is_clean) in any::<(bool, bool)>(),
        ) {
            let word = Word { slots, direction: Direction::Answer { others }, ..WORD };
            body.truncate(word.body_bytes() as usize - usize::from(is_short));
            body[25..32].fill(0);
            // A body without others that is short ends before them.
            let others_at = (32 + 24 * usize::from(slots)).min(body.len());
            for other in body[others_at..].chunks_mut(16).filter(|_| is_clean) {
                other.iter_mut().skip(12).for_each(|byte| *byte = 0);
            }
            let read = word.read_body(&body);
            prop_assert!(read.is_ok() || is_short || !is_clean);
            if let Ok(read) = read {
                let mut again = vec![0xff; body.len()];
                let (slots, others) = (read.slots.iter().copied(), read.others.iter().copied());
                word.write_body(&mut again, *read.facts, slots, others);
                prop_assert_eq!(again, body);
            }
        }

        #[test]
        fn what_can_be_read_is_written_again_as_it_was(mut header: [u8; HEADER_BYTES], keep in 0u8..4) {
            // Else next to no header would pass the first bytes.
            header[..3].copy_from_slice(&WORD_BYTES[..3]);
            header[3] = 48 + (keep & 1);
            header[16..24].fill(0);
            header[36] %= 14;
            header[37] &= 7;
            if let Ok(word) = Word::decode(&header) {
                prop_assert_eq!(header, word.to_header());
            }
        }
    }
}
