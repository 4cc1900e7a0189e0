use proptest::prelude::*;
use thalweg_core::{Header, NodeId};

use super::*;
use crate::int24::U24_MAX;
use crate::peek;
use crate::prefix::{EPOCH_MAX, Kind};
use crate::testing::{assert_literal, assert_refused, whole};

const IDENTITY: Identity = Identity {
    job: JobId(0x0102_0304_0506_0708),
    epoch: 9,
    sequence: 0x1000,
    attempt: 2,
    operation: 0x1a1b_1c1d,
};

/// The sum of workers 0, 1 and 3 of a rack of 4, that goes past the second of two levels.
fn gradient() -> Gradient {
    let numbers = Numbers::Fixed(Scale::new(1e8).unwrap());
    let branch = Branch::new([4, 32, 0, 0], [3, 17, 0, 0]).unwrap();
    Gradient {
        watermark_distance: 0x0230,
        bitmap: 0b1011,
        level: 1,
        next_magnitude: Magnitude::of(1.0),
        congested: true,
        collision: true,
        resend: true,
        result: true,
        ..Gradient::fresh(IDENTITY, 0x2345, numbers, NodeId(0x0a0b_0c0d), branch)
    }
}

const GRADIENT_BYTES: Header = [
    0x54, 0x57, 0x22, 16, 9, 0, 0, 0, // magic, versions, kind, epoch, lane
    8, 7, 6, 5, 4, 3, 2, 1, // job
    0, 0, 0, 0, 0, 0, 0, 0, // tag
    0x00, 0x10, 0, 0, 0, 0, 0, 0, // sequence
    0x1d, 0x1c, 0x1b, 0x1a, 0x20, 0xbc, 0xbe, 0x4c, // operation, scale
    0x0d, 0x0c, 0x0b, 0x0a, 0x0b, 0, 0, 0, // server, bitmap
    0x45, 0x23, 0, 2, 0xc4, 0x00, 0x23, 0, // aggregator, attempt, branch
    0, 0, 0x30, 0x02, 0x2d, 1, 0x01,
    127, // watermark_distance, flags, format, levels, next_magnitude
];

/// The sum of all; from fragment 0x2000 on, 0x2345 replaces the aggregator.
fn parameter() -> Parameter {
    Parameter {
        next_aggregator: Some(0x6789),
        next_distance: 0x1000,
        job_watermark_distance: 0x0150,
        congested: true,
        paid: true,
        ..Parameter::sum(IDENTITY, 0x2345, Numbers::Float, NodeId(0x0a0b_0c0d), 3)
    }
}

const PARAMETER_BYTES: Header = [
    0x54, 0x57, 0x22, 17, 9, 0, 0, 0, // magic, versions, kind, epoch, lane
    8, 7, 6, 5, 4, 3, 2, 1, // job
    0, 0, 0, 0, 0, 0, 0, 0, // tag
    0x00, 0x10, 0, 0, 0, 0, 0, 0, // sequence
    0x1d, 0x1c, 0x1b, 0x1a, 0, 0, 0, 0, // operation, scale
    0x0d, 0x0c, 0x0b, 0x0a, 0x89, 0x67, 0, 0, // server, next_aggregator
    0x45, 0x23, 0, 2, 0, 0, 0, 0, // aggregator, attempt, next_scale
    0x00, 0x10, 0x50, 0x01, // next_distance, job_watermark_distance
    0x25, 0, 3, 0, // flags, format, level, reserved
];

#[test]
fn literal_bytes_have_their_meaning_and_back() {
    assert_literal((&GRADIENT_BYTES, gradient()), Gradient::decode, Gradient::to_header);
    assert_eq!(gradient().watermark(), 0xdd0);
    assert_literal((&PARAMETER_BYTES, parameter()), Parameter::decode, Parameter::to_header);
    assert_eq!((parameter().next_from(), parameter().job_watermark()), (0x2000, 0xeb0));
}

#[test]
fn every_flag_of_a_gradient_has_its_bit() {
    let sum = Gradient { congested: false, collision: false, ..gradient() };
    let none = Gradient { resend: false, result: false, ..sum };
    assert_eq!(none.to_header()[60], 0);
    let flags: [(u8, Gradient); 6] = [
        (0x01, Gradient { congested: true, ..none }),
        (0x02, Gradient { overflow: true, ..none }),
        (0x04, Gradient { collision: true, ..none }),
        (0x08, Gradient { resend: true, ..none }),
        (0x10, Gradient { repair: true, ..none }),
        (0x20, Gradient { result: true, ..none }),
    ];
    for (bit, gradient) in flags {
        let header = gradient.to_header();
        assert_eq!(header[60], bit);
        assert_eq!(Gradient::decode(&header), Ok(gradient));
    }
}

// spec: F-02 machine
#[test]
fn values_of_16_bits_have_formats_of_their_own() {
    for (numbers, format) in [(Numbers::Bf16, 2), (Numbers::F16, 3)] {
        let absent = Absent::of([1], 4);
        let gradient = Gradient { numbers, result: false, ..gradient() };
        let result = Gradient { result: true, absent, ..gradient };
        for gradient in [gradient, result] {
            let mut header = gradient.to_header();
            assert_eq!((header[61], Gradient::decode(&header)), (format, Ok(gradient)));
            header[36] |= 1;
            let is_refused = Gradient::decode(&header) == Err(AggregateError::Reserved);
            assert_eq!(is_refused, !gradient.result, "they have no scale");
        }
        assert_eq!((numbers.value_bytes(), numbers.is_fixed()), (2, false));
    }
}

#[test]
fn formats_that_are_named_and_not_in_use_are_refused() {
    for format in 4..=255 {
        let (lower, upper) = (format & 0xf, format & 0xf0);
        let error = |known: u8| match upper & !known {
            0 => AggregateError::Format(lower),
            _ => AggregateError::Reserved,
        };
        if lower >= 4 || upper & 0xc0 != 0 {
            // Bits 4 and 5 are the importance of the values.
            let mut header = GRADIENT_BYTES;
            header[60] &= !RESULT;
            header[61] = format;
            assert_eq!(Gradient::decode(&header), Err(error(0x30)), "{format}");
        }
        let mut header = PARAMETER_BYTES;
        header[61] = format;
        assert_eq!(Parameter::decode(&header), Err(error(0)), "{format}");
    }
    let mut floats = GRADIENT_BYTES;
    floats[61] = 0;
    assert_eq!(Gradient::decode(&floats), Err(AggregateError::Reserved), "floats have no scale");
}

// spec: M-20 machine
#[test]
fn contributions_carry_their_importance_and_results_none() {
    for bits in 0..4 {
        let importance = SumImportance::from_bits(bits);
        let gradient = Gradient { importance, result: false, ..gradient() };
        let mut header = gradient.to_header();
        assert_eq!(header[61], 1 | bits << 4);
        assert_eq!(Gradient::decode(&header), Ok(gradient));
        let result = Gradient { result: true, ..gradient };
        assert_eq!(result.to_header()[61], 1);
        header[60] |= RESULT;
        let expected = Err(AggregateError::Reserved);
        assert_eq!(Gradient::decode(&header) == expected, bits > 0);
    }
}

#[test]
fn one_kind_is_not_taken_for_another() {
    for found in (0..=255).filter_map(Kind::from_u8) {
        let mut header = GRADIENT_BYTES;
        header[3] = found as u8;
        let decoded = [
            (Kind::AggregateGradient, Gradient::decode(&header).err()),
            (Kind::AggregateParameter, Parameter::decode(&header).err()),
            (Kind::AggregateQuery, Query::decode(&header).err()),
            (Kind::AggregateRequest, Request::decode(&header).err()),
            (Kind::AggregateNotice, Notice::decode(&header).err()),
            (Kind::AggregateAnnouncement, Announcement::decode(&header).err()),
            (Kind::AggregateProbe, Probe::decode(&header).err()),
            (Kind::AggregateDescription, Description::decode(&header).err()),
        ];
        for (expected, error) in decoded {
            let other = AggregateError::from(PrefixError::OtherKind { expected, found });
            assert_eq!(error == Some(other), found != expected, "{expected:?}");
        }
    }
}

#[test]
fn reserved_bits_are_refused() {
    let error = AggregateError::Reserved;
    assert_refused(&GRADIENT_BYTES, [(60, 6), (60, 7)], Gradient::decode, error);
    let bits = whole([63]).chain([4, 6, 7].map(|bit| (60, bit)));
    assert_refused(&PARAMETER_BYTES, bits, Parameter::decode, error);
}

#[test]
fn who_is_missing_takes_the_place_of_what_it_excludes() {
    let absent = Absent::of([1, 4], 6);
    let sum = Parameter { next_aggregator: None, next_distance: 0, absent, ..parameter() };
    let mut header = sum.to_header();
    assert_eq!((header[44], header[60]), (0b1_0010, CONGESTED | LACKS | PAID));
    assert_eq!(Parameter::decode(&header), Ok(sum));
    for other in [REPEAT, NEXT_AGGREGATOR, NEXT_SCALE] {
        let mut both = header;
        both[60] |= other;
        both[52..56].copy_from_slice(&1e8_f32.to_le_bytes());
        assert_eq!(Parameter::decode(&both), Err(AggregateError::Reserved), "{other}");
    }
    header[44] = 0;
    assert_eq!(Parameter::decode(&header), Err(AggregateError::Reserved), "nobody");

    let result = Gradient { numbers: Numbers::Float, absent, ..gradient() };
    let mut header = result.to_header();
    assert_eq!((header[36], header[60] & 0x60), (0b1_0010, RESULT_LACKS | RESULT));
    assert_eq!(Gradient::decode(&header), Ok(result));
    header[60] &= !RESULT;
    assert_eq!(Gradient::decode(&header), Err(AggregateError::Reserved), "no result");
    let own = Gradient { result: false, ..result };
    assert_eq!(Gradient::decode(&own.to_header()), Ok(Gradient { absent: None, ..own }));
}

#[test]
fn fields_without_their_flag_are_refused() {
    // Floats have no scale, and there is no next scale in these bytes.
    for at in (36..40).chain(52..56) {
        let mut header = PARAMETER_BYTES;
        header[at] = 1;
        assert_eq!(Parameter::decode(&header), Err(AggregateError::Reserved), "byte {at}");
    }
    // Without the flag for it, a next aggregator and a distance to where it holds mean nothing.
    let mut header = PARAMETER_BYTES;
    header[60] = CONGESTED | PAID;
    assert_eq!(Parameter::decode(&header), Err(AggregateError::Reserved));
    header[44..48].fill(0);
    assert_eq!(Parameter::decode(&header), Err(AggregateError::Reserved));
    header[56..58].fill(0);
    assert!(Parameter::decode(&header).is_ok());

    let encoded = Parameter { next_aggregator: None, ..parameter() }.to_header();
    assert_eq!(encoded, header, "encoding drops a distance that means nothing");
}

#[test]
fn scales_that_do_not_scale_are_refused() {
    for scale in [0.0_f32, -1e8, 1e-40, f32::INFINITY, f32::NAN] {
        let mut header = GRADIENT_BYTES;
        header[36..40].copy_from_slice(&scale.to_le_bytes());
        let error = AggregateError::Scale(scale.to_bits());
        assert_eq!(Gradient::decode(&header), Err(error));
        let mut header = PARAMETER_BYTES;
        header[60] |= NEXT_SCALE;
        header[52..56].copy_from_slice(&scale.to_le_bytes());
        assert_eq!(Parameter::decode(&header), Err(error));
    }
}

#[test]
fn contradictions_with_the_branch_are_refused() {
    let decode = |gradient: Gradient| Gradient::decode(&gradient.to_header());
    let good = gradient();
    assert_eq!(decode(Gradient { level: 3, ..good }), Err(AggregateError::Level(3)));
    for wide in [16, 255] {
        let high = Gradient { level: wide, ..good };
        assert_eq!(decode(high), Err(AggregateError::Level(15)), "{wide} does not wrap");
        let high = Gradient { bitmap_level: wide, ..good };
        assert_eq!(decode(high), Err(AggregateError::Level(15)), "{wide} does not wrap");
    }
    assert_eq!(
        decode(Gradient { level: 2, bitmap_level: 2, ..good }),
        Err(AggregateError::Level(2))
    );
    assert_eq!(
        decode(Gradient { level: 0, bitmap_level: 1, ..good }),
        Err(AggregateError::Level(1))
    );
    for bitmap in [0, 0b1_0000] {
        let error = AggregateError::Bitmap { level: 0, bitmap };
        assert_eq!(decode(Gradient { bitmap, ..good }), Err(error));
    }
    let early = Gradient { watermark_distance: 0x1001, ..good };
    assert_eq!(decode(early), Err(AggregateError::Watermark(0x1001)));
    let first = Gradient { watermark_distance: 0x1000, ..good };
    assert_eq!(decode(first).unwrap().watermark(), 0);

    // Place 4 of 4, above the fan-in's six bits.
    let mut header = GRADIENT_BYTES;
    header[52..54].copy_from_slice(&[0x04, 0x01]);
    let error = BranchError::Place { level: 0, place: 4 };
    assert_eq!(Gradient::decode(&header), Err(error.into()));
}

#[test]
fn aggregators_have_three_bytes() {
    let far = Gradient { aggregator: AGGREGATORS_MAX - 1, ..gradient() };
    assert_eq!(Gradient::decode(&far.to_header()), Ok(far));
    let mut header = PARAMETER_BYTES;
    header[47] = 1;
    let error = AggregateError::Aggregator(0x0100_6789);
    assert_eq!(Parameter::decode(&header), Err(error));
}

#[test]
fn a_worker_in_the_servers_rack_has_no_level_below() {
    let branch = Branch::new([0, 3, 0, 0], [0, 2, 0, 0]).unwrap();
    let enters = Gradient { branch, bitmap: 0b100, bitmap_level: 1, level: 1, ..gradient() };
    assert_eq!(Gradient::decode(&enters.to_header()), Ok(enters));
    let below = Gradient { level: 0, ..enters };
    assert_eq!(Gradient::decode(&below.to_header()), Err(AggregateError::Level(0)));
    let below = Gradient { bitmap_level: 0, ..enters };
    assert_eq!(Gradient::decode(&below.to_header()), Err(AggregateError::Level(0)));
}

#[test]
fn a_switch_rewrites_where_the_bytes_lie() {
    let mut header = GRADIENT_BYTES;
    let prefix = peek(&header).unwrap();
    let (view, branch) = GradientView::check_mut(prefix, &mut header).unwrap();
    assert_eq!(branch, gradient().branch);
    assert_eq!((view.level(), view.bitmap_level()), (1, 0));
    view.set_levels(2, 1);
    view.flags |= OVERFLOW;
    view.bitmap.set(0xffff_ffff);
    assert_eq!((view.level(), view.bitmap_level()), (2, 1));
    assert_eq!(header[62], 0x12);
    let bitmap = 0xffff_ffff;
    let expected = Gradient { level: 2, bitmap_level: 1, overflow: true, bitmap, ..gradient() };
    assert_eq!(Gradient::decode(&header), Ok(expected));
    header[60] |= 0x80;
    assert!(GradientView::check_mut(prefix, &mut header).is_err());
}

fn any_identity() -> impl Strategy<Value = Identity> {
    (any::<(u64, u64, u8, u32)>(), 0..=EPOCH_MAX).prop_map(
        |((job, sequence, attempt, operation), epoch)| Identity {
            job: JobId(job),
            epoch,
            sequence,
            attempt,
            operation,
        },
    )
}

fn any_scale() -> impl Strategy<Value = Scale> {
    (prop::num::f32::POSITIVE | prop::num::f32::NORMAL).prop_filter_map("not a scale", Scale::new)
}

fn any_numbers() -> impl Strategy<Value = Numbers> {
    let floats = [Numbers::Float, Numbers::F16, Numbers::Bf16];
    prop_oneof![any_scale().prop_map(Numbers::Fixed), prop::sample::select(floats.to_vec())]
}

/// A branch, a level on it, and children of a switch at or below that level.
fn any_position() -> impl Strategy<Value = (Branch, u8, u8, u32)> {
    let fan_ins = prop::array::uniform4(1..=FAN_IN_MAX);
    (fan_ins, any::<[u8; 4]>(), 0..4_usize, 1..=4_usize, any::<[u8; 2]>(), any::<u32>()).prop_map(
        |(mut fan_ins, picks, entry, used, [up, down], bits)| {
            let end = (entry + used).min(LEVELS);
            fan_ins[..entry].fill(0);
            fan_ins[end..].fill(0);
            let places = std::array::from_fn(|level| picks[level] % fan_ins[level].max(1));
            let branch = Branch::new(fan_ins, places).unwrap();
            let (entry, end) = (branch.entry(), branch.end());
            let level = entry + up % (end - entry + 1);
            let bitmap_level = entry + down % (level.min(end - 1) - entry + 1);
            let bitmap = bits & branch.full(bitmap_level);
            (branch, level, bitmap_level, if bitmap == 0 { 1 } else { bitmap })
        },
    )
}

proptest! {
    #[test]
    fn gradients_come_back(
        (identity, numbers) in (any_identity(), any_numbers()),
        (branch, level, bitmap_level, bitmap) in any_position(),
        (server, distance, exponent) in any::<(u32, u16, u8)>(),
        aggregator in 0..=U24_MAX,
        flags in any::<[bool; 6]>(),
    ) {
        let gradient = Gradient {
            watermark_distance: distance.min(u16::try_from(identity.sequence).unwrap_or(u16::MAX)),
            bitmap,
            bitmap_level,
            level,
            next_magnitude: Magnitude::from_exponent(exponent),
            congested: flags[0],
            overflow: flags[1],
            collision: flags[2],
            resend: flags[3],
            repair: flags[4],
            result: flags[5],
            ..Gradient::fresh(identity, aggregator, numbers, NodeId(server), branch)
        };
        prop_assert_eq!(Gradient::decode(&gradient.to_header()), Ok(gradient));
    }

    #[test]
    fn parameters_come_back(
        (identity, numbers) in (any_identity(), any_numbers()),
        (aggregator, server) in (0..=U24_MAX, any::<u32>()),
        next_aggregator in prop::option::of(0..=U24_MAX),
        next_scale in prop::option::of(any_scale()),
        (next_distance, below) in any::<(u16, u16)>(),
        (congested, repeat, paid) in any::<(bool, bool, bool)>(),
    ) {
        let changes = next_aggregator.is_some() || next_scale.is_some();
        let level = below as u8 % 5;
        let parameter = Parameter {
            next_aggregator,
            next_scale,
            next_distance: if changes { next_distance } else { 0 },
            job_watermark_distance: below,
            congested,
            repeat,
            paid,
            ..Parameter::sum(identity, aggregator, numbers, NodeId(server), level)
        };
        prop_assert_eq!(Parameter::decode(&parameter.to_header()), Ok(parameter));
    }
}
