//! Values that travel towards the server.

use thalweg_core::{Header, NodeId};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{transmute_mut, transmute_ref};

use super::numbers::{BF16, F16, FIXED, VALUE_BYTES};
use super::{
    Absent, AggregateError, BRANCH_BYTES, Branch, COLLISION, CONGESTED, Identity, Magnitude,
    Numbers, OVERFLOW, REPAIR, RESEND, RESULT, RESULT_LACKS, SumImportance,
};
use crate::flag;
use crate::int24::U24;
use crate::prefix::{Kind, Prefix, header_view};

/// One worker's values of a fragment, or the sum of several workers' values.
///
/// Whose values are in it: those of the children of one switch, `bitmap_level` levels up, that
/// `bitmap` names, each child with everything below it. Which switch that is, follows from the branch.
/// Only one level of a packet can be partial, so one bitmap and the places say as much as a bitmap for
/// every level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gradient {
    /// Fragment of the values.
    pub identity: Identity,
    /// Aggregator that sums it, in every switch along the path: below
    /// [`AGGREGATORS_MAX`](super::AGGREGATORS_MAX).
    pub aggregator: u32,
    /// Format of the values. Their number follows from the length of the body.
    pub numbers: Numbers,
    /// The server that completes the sum: the root of the tree that `branch` is a part of.
    pub server: NodeId,
    /// Distance from the sender's watermark up to this fragment. Everything below the watermark is
    /// complete at the sender, or at all senders of a sum: the server may forget it when all are
    /// past it, and switches may free it.
    pub watermark_distance: u16,
    /// Children of the switch at `bitmap_level` that have contributed; a worker that sends its own
    /// values names itself at the level where it enters.
    pub bitmap: u32,
    /// The level that `bitmap` belongs to: at most `level`, since it was summed below.
    pub bitmap_level: u8,
    /// The level of the switch that it comes to next; [`Branch::end`] on the last stretch, to the
    /// server.
    pub level: u8,
    /// The switches along the path.
    pub branch: Branch,
    /// Magnitude of the numbers that the sender will send when this fragment is answered.
    pub next_magnitude: Magnitude,
    /// Importance of the contributions in it (M-20). Means nothing in a result, and is not sent.
    pub importance: SumImportance,
    /// See [`CONGESTED`].
    pub congested: bool,
    /// See [`OVERFLOW`].
    pub overflow: bool,
    /// See [`COLLISION`].
    pub collision: bool,
    /// See [`RESEND`].
    pub resend: bool,
    /// See [`REPAIR`].
    pub repair: bool,
    /// See [`RESULT`].
    pub result: bool,
    /// Result, in floats: whose contributions the sum lacks (T-02). Means nothing in any other packet, and
    /// is not sent.
    pub absent: Option<Absent>,
}

header_view! {
    /// The bytes of [`Gradient`].
    GradientView(gradient: Gradient), AggregateError,
    (Kind::AggregateGradient, gradient.identity.job, gradient.identity.epoch),
    {
        sequence: U64 = gradient.identity.sequence,
        operation: U32 = gradient.identity.operation,
        /// Zero for floats, but with [`RESULT_LACKS`] the bits of [`Gradient::absent`].
        scale: U32 = gradient.absent_bits().unwrap_or(gradient.numbers.scale_bits()),
        server: U32 = gradient.server.0,
        bitmap: U32 = gradient.bitmap,
        aggregator: U24 = gradient.aggregator,
        attempt: u8 = gradient.identity.attempt,
        branch: [u8; BRANCH_BYTES] = gradient.branch.pack(),
        watermark_distance: U16 = gradient.watermark_distance,
        flags: u8 = gradient.flags(),
        /// The body format in the lower half, [`Gradient::importance`] in bits 4 and 5.
        format: u8 = gradient.numbers.format() | gradient.importance_bits(),
        /// One level in each half.
        levels: u8 = pack_levels(gradient.level, gradient.bitmap_level),
        next_magnitude: u8 = gradient.next_magnitude.exponent(),
    }
}

const FLAGS: u8 = CONGESTED | OVERFLOW | COLLISION | RESEND | REPAIR | RESULT | RESULT_LACKS;

impl Gradient {
    /// A worker's own values of a fragment, sent for the first time, to the first switch of its branch. The
    /// watermark is the fragment itself.
    pub fn fresh(
        identity: Identity,
        aggregator: u32,
        numbers: Numbers,
        server: NodeId,
        branch: Branch,
    ) -> Gradient {
        let entry = branch.entry();
        Gradient {
            identity,
            aggregator,
            numbers,
            server,
            watermark_distance: 0,
            bitmap: branch.bit(entry),
            bitmap_level: entry,
            level: entry,
            branch,
            next_magnitude: Magnitude::default(),
            importance: SumImportance::UNKNOWN,
            congested: false,
            overflow: false,
            collision: false,
            resend: false,
            repair: false,
            result: false,
            absent: None,
        }
    }

    /// Everything below this number is complete at the sender.
    pub fn watermark(&self) -> u64 {
        self.identity.sequence.saturating_sub(u64::from(self.watermark_distance))
    }

    /// The bits of [`Gradient::absent`], where they are sent.
    #[inline]
    fn absent_bits(&self) -> Option<u32> {
        let is_result = self.result && !self.numbers.is_fixed();
        self.absent.filter(|_| is_result).map(Absent::bits)
    }

    /// The bits of [`Gradient::importance`], where they are sent.
    #[inline]
    fn importance_bits(&self) -> u8 {
        if self.result { 0 } else { self.importance.in_byte() }
    }

    #[inline]
    fn flags(&self) -> u8 {
        flag(self.congested, CONGESTED)
            | flag(self.overflow, OVERFLOW)
            | flag(self.collision, COLLISION)
            | flag(self.resend, RESEND)
            | flag(self.repair, REPAIR)
            | flag(self.result, RESULT)
            | flag(self.absent_bits().is_some(), RESULT_LACKS)
    }

    /// Reads a header whose prefix was [read](crate::peek) before. Does not look at the tag.
    #[inline]
    pub fn decode_checked(prefix: Prefix, header: &Header) -> Result<Gradient, AggregateError> {
        let view: &GradientView = transmute_ref!(header);
        view.meaning(prefix)
    }
}

/// Result of a check of the bytes.
struct Checked {
    branch: Branch,
    numbers: Numbers,
    absent: Option<Absent>,
}

impl GradientView {
    /// Names the bytes of a header, if they keep its rules, for a switch that rewrites them where they lie. The
    /// prefix was [read](crate::peek) before; the branch is unpacked once. Does not look at the tag.
    #[inline]
    pub fn check_mut(
        prefix: Prefix,
        header: &mut Header,
    ) -> Result<(&mut GradientView, Branch), AggregateError> {
        let view: &mut GradientView = transmute_mut!(header);
        view.check(prefix).map(|checked| (view, checked.branch))
    }

    /// [`Gradient::level`].
    #[inline]
    pub fn level(&self) -> u8 {
        self.levels & HALF_MAX
    }

    /// Length of a value in the body.
    #[inline]
    pub fn value_bytes(&self) -> usize {
        // Even before the format is checked, no other has a length.
        if matches!(self.body_format(), F16 | BF16) { VALUE_BYTES / 2 } else { VALUE_BYTES }
    }

    /// The body format.
    #[inline]
    pub fn body_format(&self) -> u8 {
        self.format & !SumImportance::MASK
    }

    /// [`Gradient::importance`].
    #[inline]
    pub fn importance(&self) -> SumImportance {
        SumImportance::read(self.format)
    }

    /// Writes the importance of a sum.
    #[inline]
    pub fn set_importance(&mut self, importance: SumImportance) {
        self.format = self.body_format() | importance.in_byte();
    }

    /// [`Gradient::bitmap_level`].
    #[inline]
    pub fn bitmap_level(&self) -> u8 {
        self.levels >> 4
    }

    /// Writes both levels, as they are; the far end refuses those that contradict the branch.
    #[inline]
    pub fn set_levels(&mut self, level: u8, bitmap_level: u8) {
        self.levels = pack_levels(level, bitmap_level);
    }

    #[inline]
    fn meaning(&self, prefix: Prefix) -> Result<Gradient, AggregateError> {
        let Checked { branch, numbers, absent } = self.check(prefix)?;
        let is_set = |flag| self.flags & flag != 0;
        Ok(Gradient {
            identity: Identity::read(&prefix, self.sequence, self.attempt, self.operation),
            aggregator: self.aggregator.get(),
            numbers,
            server: NodeId(self.server.get()),
            watermark_distance: self.watermark_distance.get(),
            bitmap: self.bitmap.get(),
            bitmap_level: self.bitmap_level(),
            level: self.level(),
            branch,
            next_magnitude: Magnitude::from_exponent(self.next_magnitude),
            importance: self.importance(),
            congested: is_set(CONGESTED),
            overflow: is_set(OVERFLOW),
            collision: is_set(COLLISION),
            resend: is_set(RESEND),
            repair: is_set(REPAIR),
            result: is_set(RESULT),
            absent,
        })
    }

    /// Checks that the fields keep their rules and agree with each other.
    #[inline]
    fn check(&self, prefix: Prefix) -> Result<Checked, AggregateError> {
        prefix.expect(Kind::AggregateGradient)?;
        let is_blank = self.flags & RESULT == 0 || self.importance() == SumImportance::UNKNOWN;
        if self.flags & !FLAGS != 0 || !is_blank {
            return Err(AggregateError::Reserved);
        }
        let absent = if self.flags & RESULT_LACKS != 0 { Some(self.absent()?) } else { None };
        let scale_bits = if absent.is_some() { 0 } else { self.scale.get() };
        let numbers = Numbers::read(self.body_format(), scale_bits)?;
        let branch = Branch::unpack(self.branch)?;
        let (level, bitmap_level, bitmap) = (self.level(), self.bitmap_level(), self.bitmap.get());
        if !branch.has(level) && !branch.ends_at(level) {
            return Err(AggregateError::Level(level));
        }
        if !branch.has(bitmap_level) || bitmap_level > level {
            return Err(AggregateError::Level(bitmap_level));
        }
        if bitmap == 0 || bitmap & !branch.full(bitmap_level) != 0 {
            return Err(AggregateError::Bitmap { level: bitmap_level, bitmap });
        }
        let watermark_distance = self.watermark_distance.get();
        if u64::from(watermark_distance) > self.sequence.get() {
            return Err(AggregateError::Watermark(watermark_distance));
        }
        Ok(Checked { branch, numbers, absent })
    }

    /// Workers whose contributions a result in floats lacks.
    #[cold]
    fn absent(&self) -> Result<Absent, AggregateError> {
        let may_lack = self.flags & RESULT != 0 && self.body_format() != FIXED;
        Absent::read(self.scale.get()).filter(|_| may_lack).ok_or(AggregateError::Reserved)
    }
}

/// The largest level that half a byte holds. There are never more than four levels.
const HALF_MAX: u8 = 0xf;

/// `lower` in the lower half of a byte, `upper` in the upper. What does not fit becomes [`HALF_MAX`], which no branch has:
/// a wrong level must not wrap to a right one.
#[inline]
const fn pack_levels(lower: u8, upper: u8) -> u8 {
    let lower = if lower < HALF_MAX { lower } else { HALF_MAX };
    let upper = if upper < HALF_MAX { upper } else { HALF_MAX };
    lower | upper << 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_has_its_half() {
        assert_eq!(pack_levels(1, 2), 0x21);
        assert_eq!((pack_levels(16, 0), pack_levels(0, 255)), (0x0f, 0xf0));
    }
}
