//! Sums on their way back to the workers.

use thalweg_core::{Header, JobId};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_ref};

use super::{
    AggregateError, CONGESTED, FLOAT, Identity, NEXT_AGGREGATOR, NEXT_SCALE, Numbers, REPEAT,
    Scale, flag,
};
use crate::prefix::{Kind, PrefixView};

/// The server's answer to a fragment. It acknowledges the fragment and frees the aggregators
/// that it passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// Which fragment it answers.
    pub identity: Identity,
    /// Where the fragment was summed: what switches free.
    pub aggregator: u32,
    /// What the values are.
    pub numbers: Numbers,
    /// What fragments are to use that would have used `aggregator`.
    pub next_aggregator: Option<u32>,
    /// The scale to use from now on.
    pub next_scale: Option<Scale>,
    /// The sequence number from which the two above hold, the same for all workers, so that they
    /// change together. Means nothing without either, and is then sent as zero.
    pub next_from: u64,
    /// How many values the body holds.
    pub values: u16,
    /// Whether a queue was congested on the way up.
    pub congested: bool,
    /// Whether this is no sum, but asks the workers for floats in the next attempt, straight to the
    /// server: the sum left the range of fixed point.
    pub repeat: bool,
}

/// The bytes of [`Parameter`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ParameterView {
    /// Of kind [`Kind::AggregateParameter`].
    pub prefix: PrefixView,
    /// [`Identity::sequence`].
    pub sequence: U64,
    /// [`Parameter::aggregator`].
    pub aggregator: U32,
    /// Bits of the [`Scale`]; zero for floats.
    pub scale: U32,
    /// [`Parameter::next_from`].
    pub next_from: U64,
    /// [`Parameter::next_aggregator`]; zero without [`NEXT_AGGREGATOR`].
    pub next_aggregator: U32,
    /// Bits of [`Parameter::next_scale`]; zero without [`NEXT_SCALE`].
    pub next_scale: U32,
    /// Zero.
    pub reserved_low: [u8; 2],
    /// [`CONGESTED`], [`FLOAT`], [`REPEAT`], [`NEXT_AGGREGATOR`], [`NEXT_SCALE`]; the other bits are
    /// zero.
    pub flags: u8,
    /// [`Identity::attempt`].
    pub attempt: u8,
    /// Zero.
    pub reserved_high: [u8; 2],
    /// [`Parameter::values`].
    pub values: U16,
}

const FLAGS: u8 = CONGESTED | FLOAT | REPEAT | NEXT_AGGREGATOR | NEXT_SCALE;

impl Parameter {
    /// Writes the whole header, tag zero.
    #[inline]
    pub fn encode(&self, header: &mut Header) {
        let Identity { job, epoch, sequence, attempt } = self.identity;
        let changes = self.next_aggregator.is_some() || self.next_scale.is_some();
        *header = transmute!(ParameterView {
            prefix: PrefixView::new(Kind::AggregateParameter, job, epoch),
            sequence: U64::new(sequence),
            aggregator: U32::new(self.aggregator),
            scale: U32::new(self.numbers.scale_bits()),
            next_from: U64::new(if changes { self.next_from } else { 0 }),
            next_aggregator: U32::new(self.next_aggregator.unwrap_or(0)),
            next_scale: U32::new(self.next_scale.map_or(0, Scale::bits)),
            reserved_low: [0; 2],
            flags: self.numbers.flag()
                | flag(self.congested, CONGESTED)
                | flag(self.repeat, REPEAT)
                | flag(self.next_aggregator.is_some(), NEXT_AGGREGATOR)
                | flag(self.next_scale.is_some(), NEXT_SCALE),
            attempt,
            reserved_high: [0; 2],
            values: U16::new(self.values),
        });
    }

    /// Reads a header. Does not look at the tag.
    #[inline]
    pub fn decode(header: &Header) -> Result<Parameter, AggregateError> {
        let view: &ParameterView = transmute_ref!(header);
        view.meaning()
    }
}

impl ParameterView {
    /// Names the bytes of a header, if they keep its rules. Does not look at the tag.
    #[inline]
    pub fn check(header: &Header) -> Result<&ParameterView, AggregateError> {
        let view: &ParameterView = transmute_ref!(header);
        view.meaning().map(|_| view)
    }

    #[inline]
    fn meaning(&self) -> Result<Parameter, AggregateError> {
        self.prefix.expect(Kind::AggregateParameter)?;
        self.check_unused()?;
        let is_set = |flag| self.flags & flag != 0;
        Ok(Parameter {
            identity: Identity {
                job: JobId(self.prefix.job.get()),
                epoch: self.prefix.epoch.get(),
                sequence: self.sequence.get(),
                attempt: self.attempt,
            },
            aggregator: self.aggregator.get(),
            numbers: Numbers::read(self.flags, self.scale.get())?,
            next_aggregator: is_set(NEXT_AGGREGATOR).then(|| self.next_aggregator.get()),
            next_scale: is_set(NEXT_SCALE)
                .then(|| Scale::read(self.next_scale.get()))
                .transpose()?,
            next_from: self.next_from.get(),
            values: self.values.get(),
            congested: is_set(CONGESTED),
            repeat: is_set(REPEAT),
        })
    }

    /// Fields that a flag switches off are zero, so that one meaning has one form.
    #[inline]
    fn check_unused(&self) -> Result<(), AggregateError> {
        let unused = |flags, is_zero| self.flags & flags != 0 || is_zero;
        let clean = self.flags & !FLAGS == 0
            && self.reserved_low == [0; 2]
            && self.reserved_high == [0; 2]
            && unused(NEXT_AGGREGATOR, self.next_aggregator.get() == 0)
            && unused(NEXT_SCALE, self.next_scale.get() == 0)
            && unused(NEXT_AGGREGATOR | NEXT_SCALE, self.next_from.get() == 0);
        if clean { Ok(()) } else { Err(AggregateError::Reserved) }
    }
}
