//! Sums that travel back to the workers.

use thalweg_core::{Header, NodeId};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{transmute_mut, transmute_ref};

use super::{
    AGGREGATORS_MAX, Absent, AggregateError, CONGESTED, Identity, LACKS, LEVELS, NEXT_AGGREGATOR,
    NEXT_SCALE, Numbers, PAID, REPEAT, Scale,
};
use crate::flag;
use crate::int24::U24;
use crate::prefix::{Kind, Prefix, header_view};

/// The server's answer to a fragment. It acknowledges the fragment and frees the aggregators
/// that it passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// Fragment that it answers.
    pub identity: Identity,
    /// Index at which the fragment was summed: switches free it.
    pub aggregator: u32,
    /// Format of the values. Their number follows from the length of the body.
    pub numbers: Numbers,
    /// The server that sends it: the root of the tree that it goes down.
    pub server: NodeId,
    /// Aggregator for fragments that would have used `aggregator`.
    pub next_aggregator: Option<u32>,
    /// The scale to use from now on.
    pub next_scale: Option<Scale>,
    /// Distance from this fragment up to the first one for which the two above hold, the same for all
    /// workers, so that they change together. Means nothing without either, and is then sent as
    /// zero.
    pub next_distance: u16,
    /// Everything that lies at least so far below this fragment is complete at every worker: nobody
    /// will ask for it again.
    pub job_watermark_distance: u16,
    /// The level from which it comes: only stations below it take it, so that it cannot go round.
    pub level: u8,
    /// True if a queue was congested on the path up.
    pub congested: bool,
    /// True if this is no sum, but asks the workers to send floats in the next attempt directly to the
    /// server: the sum left the range of fixed point.
    pub repeat: bool,
    /// Ranks whose contributions the sum lacks (T-02). Such a sum brings no changes: it is sent with neither
    /// `next_aggregator` nor `next_scale`, and refused with either or as a repeat.
    pub absent: Option<Absent>,
    /// True if the server has paid for the copies that switches make of it (E-13). Means nothing to a worker.
    pub paid: bool,
}

header_view! {
    /// The bytes of [`Parameter`]. Fields that a flag switches off are zero.
    ParameterView(parameter: Parameter), AggregateError,
    (Kind::AggregateParameter, parameter.identity.job, parameter.identity.epoch),
    {
        sequence: U64 = parameter.identity.sequence,
        operation: U32 = parameter.identity.operation,
        scale: U32 = parameter.numbers.scale_bits(),
        server: U32 = parameter.server.0,
        /// With [`LACKS`] the bits of [`Parameter::absent`].
        next_aggregator: U32 =
            parameter.absent.map(Absent::bits).or(parameter.next_aggregator).unwrap_or(0),
        aggregator: U24 = parameter.aggregator,
        attempt: u8 = parameter.identity.attempt,
        next_scale: U32 = parameter.next_scale.map_or(0, Scale::bits),
        next_distance: U16 = if parameter.has_changes() { parameter.next_distance } else { 0 },
        job_watermark_distance: U16 = parameter.job_watermark_distance,
        flags: u8 = parameter.flags(),
        /// The upper half is zero: bits 4 to 6 are for the class of the gradients that it answers.
        format: u8 = parameter.numbers.format(),
        level: u8 = parameter.level,
        reserved: u8 = 0,
    }
}

const FLAGS: u8 = CONGESTED | REPEAT | NEXT_AGGREGATOR | NEXT_SCALE | LACKS | PAID;

impl Parameter {
    /// The sum of all contributions, from above this level, without changes for later fragments. Everything
    /// below the fragment is complete everywhere.
    pub fn sum(
        identity: Identity,
        aggregator: u32,
        numbers: Numbers,
        server: NodeId,
        level: u8,
    ) -> Parameter {
        Parameter {
            identity,
            aggregator,
            numbers,
            server,
            next_aggregator: None,
            next_scale: None,
            next_distance: 0,
            job_watermark_distance: 0,
            level,
            congested: false,
            repeat: false,
            absent: None,
            paid: false,
        }
    }

    /// The sequence number from which a next aggregator or scale holds.
    pub fn next_from(&self) -> u64 {
        self.identity.sequence.saturating_add(u64::from(self.next_distance))
    }

    /// Everything below this number is complete at every worker.
    pub fn job_watermark(&self) -> u64 {
        self.identity.sequence.saturating_sub(u64::from(self.job_watermark_distance))
    }

    #[inline]
    fn has_changes(&self) -> bool {
        self.next_aggregator.is_some() || self.next_scale.is_some()
    }

    #[inline]
    fn flags(&self) -> u8 {
        flag(self.congested, CONGESTED)
            | flag(self.repeat, REPEAT)
            | flag(self.next_aggregator.is_some(), NEXT_AGGREGATOR)
            | flag(self.next_scale.is_some(), NEXT_SCALE)
            | flag(self.absent.is_some(), LACKS)
            | flag(self.paid, PAID)
    }

    /// Reads a header whose prefix was [read](crate::peek) before. Does not look at the tag.
    #[inline]
    pub fn decode_checked(prefix: Prefix, header: &Header) -> Result<Parameter, AggregateError> {
        let view: &ParameterView = transmute_ref!(header);
        view.meaning(prefix)
    }
}

impl ParameterView {
    /// Names the bytes of a header, if they keep its rules, for a switch that rewrites them where they lie, and reads
    /// them. The prefix was [read](crate::peek) before. Does not look at the tag.
    #[inline]
    pub fn check_mut(
        prefix: Prefix,
        header: &mut Header,
    ) -> Result<(&mut ParameterView, Parameter), AggregateError> {
        let view: &mut ParameterView = transmute_mut!(header);
        view.meaning(prefix).map(|parameter| (view, parameter))
    }

    /// Takes back, in the header of a parameter packet, that the server has paid for copies.
    #[inline]
    pub fn mark_unpaid(header: &mut Header) {
        let view: &mut ParameterView = transmute_mut!(header);
        view.flags &= !PAID;
    }

    #[inline]
    fn meaning(&self, prefix: Prefix) -> Result<Parameter, AggregateError> {
        let prefix = prefix.expect(Kind::AggregateParameter)?;
        self.check_unused()?;
        if usize::from(self.level) > LEVELS {
            return Err(AggregateError::Level(self.level));
        }
        let is_set = |flag| self.flags & flag != 0;
        let next_aggregator = is_set(NEXT_AGGREGATOR).then(|| self.next_aggregator.get());
        if let Some(next) = next_aggregator.filter(|&next| next >= AGGREGATORS_MAX) {
            return Err(AggregateError::Aggregator(next));
        }
        Ok(Parameter {
            identity: Identity::read(&prefix, self.sequence, self.attempt, self.operation),
            aggregator: self.aggregator.get(),
            numbers: Numbers::read(self.format, self.scale.get())?,
            server: NodeId(self.server.get()),
            next_aggregator,
            next_scale: is_set(NEXT_SCALE)
                .then(|| Scale::read(self.next_scale.get()))
                .transpose()?,
            next_distance: self.next_distance.get(),
            job_watermark_distance: self.job_watermark_distance.get(),
            level: self.level,
            congested: is_set(CONGESTED),
            repeat: is_set(REPEAT),
            absent: Absent::read(self.next_aggregator.get()).filter(|_| is_set(LACKS)),
            paid: is_set(PAID),
        })
    }

    /// Fields that a flag switches off are zero, so that one meaning has one form.
    #[inline]
    fn check_unused(&self) -> Result<(), AggregateError> {
        let unused = |flags, is_zero| self.flags & flags != 0 || is_zero;
        let clean = self.flags & !FLAGS == 0
            && self.reserved == 0
            && unused(NEXT_AGGREGATOR | LACKS, self.next_aggregator.get() == 0)
            && unused(NEXT_SCALE, self.next_scale.get() == 0)
            && unused(NEXT_AGGREGATOR | NEXT_SCALE, self.next_distance.get() == 0);
        let lacks_alone = self.flags & LACKS == 0
            || self.flags & (REPEAT | NEXT_AGGREGATOR | NEXT_SCALE) == 0
                && self.next_aggregator.get() != 0;
        if clean && lacks_alone { Ok(()) } else { Err(AggregateError::Reserved) }
    }
}
