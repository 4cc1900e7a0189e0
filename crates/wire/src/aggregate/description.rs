//! A server asks a switch for its limits, and the switch answers.
//!
//! An answer is exactly as long as its question. A body is padding: with one, a probe also asks whether packets of its
//! length pass in both directions.
// spec: E-06, F-01

use thalweg_core::{Header, JobId, MTU_BYTES, NodeId};
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromZeros, transmute, transmute_ref};

use super::{AGGREGATORS_MAX, AggregateError, Numbers};
use crate::prefix::{Kind, Prefix, PrefixView, header_view, whole_headers};

/// The job of probes and descriptions: an id that registries give to nobody, and so a key that no worker has.
pub const PROBE_JOB: JobId = JobId(u64::MAX);

/// Epoch of probes and descriptions.
pub const PROBE_EPOCH: u32 = 0;

/// Asks a switch whether it is there, and for its limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// The server that asks.
    pub server: NodeId,
    /// The switch, as the server calls it.
    pub switch: NodeId,
    /// The switch that the probe and its answer travel by; `None` if the server sends it to the switch itself.
    pub via: Option<NodeId>,
}

/// The answer of a switch to a [`Probe`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Description {
    /// The server that asked.
    pub server: NodeId,
    /// The switch, as the server calls it.
    pub switch: NodeId,
    /// The switch that the answer travels by.
    pub via: Option<NodeId>,
    /// Limits of the switch.
    pub limits: SwitchLimits,
}

/// Limits of a switch, which the set-up of a job keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwitchLimits {
    /// Number of aggregators, 1 to [`AGGREGATORS_MAX`].
    pub aggregators: u32,
    /// Most values of a fragment that is summed, at least 1.
    pub fragment_values: u16,
    /// Body formats that are summed, at least one.
    pub formats: BodyFormats,
    /// Number of cores that sum, at least 1: each is a node of its own, and those follow the node that answers.
    pub cores: u16,
    /// MTU of its interface. 0 where a switch of an older version does not say it.
    // spec: F-01
    pub mtu_bytes: u16,
}

impl SwitchLimits {
    /// MTU of its interface: where it does not say, that of Ethernet without jumbo frames.
    pub const fn mtu(&self) -> u16 {
        if self.mtu_bytes == 0 { MTU_BYTES } else { self.mtu_bytes }
    }
}

/// A set of body formats. It may have formats that this version does not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyFormats(u16);

impl BodyFormats {
    /// Floats and fixed point of 32 bits.
    pub const FLOAT_AND_FIXED: BodyFormats = BodyFormats(0b11);

    /// All formats of this version: those of 32 bits, `f16` and `bf16`.
    pub const ALL: BodyFormats = BodyFormats(0b1111);

    /// The set with these bits: bit *i* is body format *i*.
    pub const fn from_bits(bits: u16) -> BodyFormats {
        BodyFormats(bits)
    }

    /// The bits as they travel.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Returns whether both formats of 16 bits are in the set.
    // spec: F-02
    pub const fn has_halves(self) -> bool {
        self.contains(Numbers::F16) && self.contains(Numbers::Bf16)
    }

    /// Returns whether bodies of these numbers are in the set.
    pub const fn contains(self, numbers: Numbers) -> bool {
        self.0 >> numbers.format() & 1 == 1
    }
}

header_view! {
    /// The bytes of [`Description`] and [`Probe`]. A probe has zeros in place of the limits.
    DescriptionView(described: Description), AggregateError,
    (Kind::AggregateDescription, PROBE_JOB, PROBE_EPOCH),
    {
        aggregators: U32 = described.limits.aggregators,
        fragment_values: U16 = described.limits.fragment_values,
        formats: U16 = described.limits.formats.0,
        cores: U16 = described.limits.cores,
        mtu_bytes: U16 = described.limits.mtu_bytes,
        reserved: [u8; 4] = [0; 4],
        server: U32 = described.server.0,
        switch: U32 = described.switch.0,
        via: U32 = described.via.map_or(0, |via| via.0),
        reserved_end: [u8; 12] = [0; 12],
    }
}

whole_headers!(AggregateError: Probe);

impl DescriptionView {
    /// Reads what both packets have.
    fn check(prefix: Prefix, header: &Header) -> Result<&DescriptionView, AggregateError> {
        let view: &DescriptionView = transmute_ref!(header);
        if (prefix.job, prefix.epoch()) != (PROBE_JOB, PROBE_EPOCH) {
            return Err(AggregateError::ProbeJob);
        }
        let is_clean = view.reserved == [0; 4] && view.reserved_end == [0; 12];
        if is_clean { Ok(view) } else { Err(AggregateError::Reserved) }
    }

    /// The switch that both packets travel by. No node is 0.
    fn via(&self) -> Option<NodeId> {
        Some(NodeId(self.via.get())).filter(|via| via.0 != 0)
    }
}

impl Description {
    /// Reads a header whose prefix was [read](crate::peek) before. Does not look at the tag.
    pub fn decode_checked(prefix: Prefix, header: &Header) -> Result<Description, AggregateError> {
        let prefix = prefix.expect(Kind::AggregateDescription)?;
        let view = DescriptionView::check(prefix, header)?;
        let limits = SwitchLimits {
            aggregators: view.aggregators.get(),
            fragment_values: view.fragment_values.get(),
            formats: BodyFormats(view.formats.get()),
            cores: view.cores.get(),
            mtu_bytes: view.mtu_bytes.get(),
        };
        let SwitchLimits { aggregators, fragment_values, formats, cores, .. } = limits;
        let has_some = fragment_values > 0 && formats.0 != 0 && cores > 0;
        if !has_some || !(1..=AGGREGATORS_MAX).contains(&aggregators) {
            return Err(AggregateError::Limits);
        }
        let (server, switch) = (NodeId(view.server.get()), NodeId(view.switch.get()));
        Ok(Description { server, switch, via: view.via(), limits })
    }
}

impl Probe {
    /// Writes the whole header, tag zero.
    pub fn encode(&self, header: &mut Header) {
        *header = transmute!(DescriptionView {
            prefix: PrefixView::new(Kind::AggregateProbe, PROBE_JOB, PROBE_EPOCH),
            server: U32::new(self.server.0),
            switch: U32::new(self.switch.0),
            via: U32::new(self.via.map_or(0, |via| via.0)),
            ..DescriptionView::new_zeroed()
        });
    }

    /// Reads a header whose prefix was [read](crate::peek) before. Does not look at the tag.
    pub fn decode_checked(prefix: Prefix, header: &Header) -> Result<Probe, AggregateError> {
        let prefix = prefix.expect(Kind::AggregateProbe)?;
        let view = DescriptionView::check(prefix, header)?;
        let small = [view.fragment_values, view.formats, view.cores, view.mtu_bytes];
        if view.aggregators.get() != 0 || small.map(U16::get) != [0; 4] {
            return Err(AggregateError::Reserved);
        }
        let (server, switch) = (NodeId(view.server.get()), NodeId(view.switch.get()));
        Ok(Probe { server, switch, via: view.via() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{assert_literal, assert_refused, whole};

    const PROBE: Probe =
        Probe { server: NodeId(0x0a0b_0c0d), switch: NodeId(0x4d), via: Some(NodeId(0x5e)) };

    const PROBE_BYTES: Header = [
        0x54, 0x57, 0x22, 22, 0, 0, 0, 0, // magic, versions, kind, epoch, lane
        255, 255, 255, 255, 255, 255, 255, 255, // job
        0, 0, 0, 0, 0, 0, 0, 0, // tag
        0, 0, 0, 0, 0, 0, 0, 0, // aggregators, fragment_values, formats
        0, 0, 0, 0, 0, 0, 0, 0, // cores, mtu_bytes, reserved
        0x0d, 0x0c, 0x0b, 0x0a, 0x4d, 0, 0, 0, // server, switch
        0x5e, 0, 0, 0, 0, 0, 0, 0, // via, reserved_end
        0, 0, 0, 0, 0, 0, 0, 0, // reserved_end
    ];

    const DESCRIPTION: Description = Description {
        server: NodeId(0x0a0b_0c0d),
        switch: NodeId(0x4d),
        via: None,
        limits: SwitchLimits {
            aggregators: 0x4000,
            fragment_values: 352,
            formats: BodyFormats::FLOAT_AND_FIXED,
            cores: 4,
            mtu_bytes: 9_000,
        },
    };

    const DESCRIPTION_BYTES: Header = [
        0x54, 0x57, 0x22, 23, 0, 0, 0, 0, // magic, versions, kind, epoch, lane
        255, 255, 255, 255, 255, 255, 255, 255, // job
        0, 0, 0, 0, 0, 0, 0, 0, // tag
        0, 0x40, 0, 0, 0x60, 1, 3, 0, // aggregators, fragment_values, formats
        4, 0, 0x28, 0x23, 0, 0, 0, 0, // cores, mtu_bytes, reserved
        0x0d, 0x0c, 0x0b, 0x0a, 0x4d, 0, 0, 0, // server, switch
        0, 0, 0, 0, 0, 0, 0, 0, // reserved_end
        0, 0, 0, 0, 0, 0, 0, 0, // reserved_end
    ];

    // spec: E-06 machine
    #[test]
    fn literal_bytes_have_their_meaning_and_back() {
        assert_literal((&PROBE_BYTES, PROBE), Probe::decode, Probe::to_header);
        let description = (&DESCRIPTION_BYTES, DESCRIPTION);
        assert_literal(description, Description::decode, Description::to_header);
    }

    #[test]
    fn reserved_bits_are_refused() {
        let error = AggregateError::Reserved;
        assert_refused(&PROBE_BYTES, whole((24..40).chain(52..64)), Probe::decode, error);
        let bits = whole((36..40).chain(52..64));
        assert_refused(&DESCRIPTION_BYTES, bits, Description::decode, error);
    }

    #[test]
    fn a_job_that_workers_can_have_is_refused() {
        for at in (4..7).chain(8..16) {
            let (mut probe, mut description) = (PROBE_BYTES, DESCRIPTION_BYTES);
            (probe[at], description[at]) = (probe[at] ^ 1, description[at] ^ 1);
            assert_eq!(Probe::decode(&probe), Err(AggregateError::ProbeJob), "byte {at}");
            assert_eq!(Description::decode(&description), Err(AggregateError::ProbeJob));
        }
    }

    #[test]
    fn limits_that_hold_nothing_are_refused() {
        let decode = |change: fn(&mut SwitchLimits)| {
            let mut description = DESCRIPTION;
            change(&mut description.limits);
            Description::decode(&description.to_header()).map(|_| ())
        };
        assert_eq!(decode(|limits| limits.aggregators = AGGREGATORS_MAX), Ok(()));
        let refused = Err(AggregateError::Limits);
        assert_eq!(decode(|limits| limits.aggregators = 0), refused);
        assert_eq!(decode(|limits| limits.aggregators = AGGREGATORS_MAX + 1), refused);
        assert_eq!(decode(|limits| limits.fragment_values = 0), refused);
        assert_eq!(decode(|limits| limits.formats = BodyFormats(0)), refused);
        assert_eq!(decode(|limits| limits.cores = 0), refused);
    }

    #[test]
    fn a_set_of_formats_has_a_bit_for_each() {
        let fixed = Numbers::Fixed(super::super::Scale::new(1e8).unwrap());
        let has = |bits: u16| {
            let formats = BodyFormats::from_bits(bits);
            [Numbers::Float, fixed].map(|numbers| formats.contains(numbers))
        };
        assert_eq!([has(0b01), has(0b10), has(0b11)], [[true, false], [false, true], [true; 2]]);
        assert_eq!(has(0b100), [false; 2], "a format that this version does not read");
        assert_eq!(has(BodyFormats::FLOAT_AND_FIXED.bits()), [true; 2]);
    }

    proptest! {
        #[test]
        fn probes_and_descriptions_come_back(
            (server, switch, via) in any::<(u32, u32, u32)>(),
            aggregators in 1..=AGGREGATORS_MAX,
            (fragment_values, bits, cores) in (1..=u16::MAX, 1..=u16::MAX, 1..=u16::MAX),
            mtu_bytes: u16,
        ) {
            let (server, switch) = (NodeId(server), NodeId(switch));
            let via = Some(NodeId(via)).filter(|via| via.0 != 0);
            let probe = Probe { server, switch, via };
            prop_assert_eq!(Probe::decode(&probe.to_header()), Ok(probe));
            let formats = BodyFormats(bits);
            let limits = SwitchLimits { aggregators, fragment_values, formats, cores, mtu_bytes };
            let description = Description { server, switch, via, limits };
            prop_assert_eq!(Description::decode(&description.to_header()), Ok(description));
        }
    }
}
