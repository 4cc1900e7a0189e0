use proptest::prelude::*;
use thalweg_core::{Bytes, Header, Time};

use super::*;
use crate::prefix::{EPOCH_MAX, Kind, PrefixError};
use crate::testing::{assert_literal, assert_refused, whole};

const NAME: TensorName =
    TensorName { job: JobId(0x0102_0304_0506_0708), epoch: 9, operation: 0x1a, tensor: 0x0b };

/// The second segment of 1,408 bytes, whose time the receiver echoes.
const DATA: Data = Data {
    name: NAME,
    sent_at: Time::from_ps(0x0102_0304),
    offset: Bytes::new(1_408),
    layer: 5,
    payload_bytes: 1_408,
    echo: true,
};

const DATA_BYTES: Header = [
    0x54, 0x57, 0x22, 32, 9, 0, 0, 0, // magic, versions, kind, epoch, lane
    8, 7, 6, 5, 4, 3, 2, 1, // job
    0, 0, 0, 0, 0, 0, 0, 0, // tag
    0x1a, 0, 0, 0, 0, 0, 0, 0, // operation
    4, 3, 2, 1, 0, 0, 0, 0, // sent_at
    0x80, 5, 0, 0, 0, 0, 0, 0, // offset
    0x0b, 0, 0, 0, 5, 0, 0x80, 5, // tensor, layer, payload_bytes
    1, 0, 0, 0, 0, 0, 0, 0, // flags, reserved
];

const ACK: Ack = Ack {
    name: NAME,
    sent_at: Time::from_ps(0x0102_0304),
    congested: true,
    is_spent: true,
    class: 5,
    arrived_bytes: 0x0a0b_0c0d,
    arrived_at: Time::from_ps(0x1a1b_1c1d),
};

const ACK_BYTES: Header = [
    0x54, 0x57, 0x22, 33, 9, 0, 0, 0, // magic, versions, kind, epoch, lane
    8, 7, 6, 5, 4, 3, 2, 1, // job
    0, 0, 0, 0, 0, 0, 0, 0, // tag
    0x1a, 0, 0, 0, 0, 0, 0, 0, // operation
    4, 3, 2, 1, 0, 0, 0, 0, // sent_at
    0x0b, 0, 0, 0, 3, 5, 0, 0, // tensor, flags, class, reserved
    0x0d, 0x0c, 0x0b, 0x0a, 0, 0, 0, 0, // arrived_bytes
    0x1d, 0x1c, 0x1b, 0x1a, 0, 0, 0, 0, // arrived_at
];

/// A tensor of 3,500 bytes in segments of 1,408, of which a tenth may be lost.
const OFFER: Control = Control {
    name: NAME,
    verb: Verb::Offer {
        tensor_bytes: Bytes::new(3_500),
        segment_bytes: 1_408,
        loss: 100_000,
        layer: 5,
        trailer_bytes: 770,
    },
};

const OFFER_BYTES: Header = [
    0x54, 0x57, 0x22, 34, 9, 0, 0, 0, // magic, versions, kind, epoch, lane
    8, 7, 6, 5, 4, 3, 2, 1, // job
    0, 0, 0, 0, 0, 0, 0, 0, // tag
    0x1a, 0, 0, 0, 0, 0, 0, 0, // operation
    0xac, 0x0d, 0, 0, 0, 0, 0, 0, // tensor_bytes
    0x0b, 0, 0, 0, 0xa0, 0x86, 1, 0, // tensor, loss
    0, 0, 0, 0, 2, 3, 0, 0, // first, trailer_bytes
    0x80, 5, 5, 0, 0, 0, 0, 0, // segment_bytes, layer, reason, reserved
];

fn bytes(verb: Verb) -> Header {
    Control { name: NAME, verb }.to_header()
}

// spec: M-01 machine
#[test]
fn literal_bytes_have_their_meaning_and_back() {
    assert_literal((&DATA_BYTES, DATA), Data::decode, Data::to_header);
    assert_literal((&ACK_BYTES, ACK), Ack::decode, Ack::to_header);
    assert_literal((&OFFER_BYTES, OFFER), Control::decode, Control::to_header);
}

#[test]
fn one_kind_is_not_taken_for_another() {
    let other = |expected, found| PrefixError::OtherKind { expected, found }.into();
    assert_eq!(Data::decode(&ACK_BYTES), Err(other(Kind::DeliverData, Kind::DeliverAck)));
    assert_eq!(Ack::decode(&OFFER_BYTES), Err(other(Kind::DeliverAck, Kind::DeliverOffer)));
    assert_eq!(Control::decode(&DATA_BYTES), Err(other(Kind::DeliverOffer, Kind::DeliverData)));
}

#[test]
fn reserved_bits_are_refused() {
    let error = DeliverError::Reserved;
    let flags = |at| (1..8).map(move |bit| (at, bit));
    assert_refused(&DATA_BYTES, whole(57..64).chain(flags(56)), Data::decode, error);
    let flags_of_ack = (2..8).map(|bit| (44, bit));
    assert_refused(&ACK_BYTES, whole(46..48).chain(flags_of_ack), Ack::decode, error);
    let unused = whole((48..52).chain(60..64));
    assert_refused(&OFFER_BYTES, unused, Control::decode, error);
    // A stop says nothing but its name.
    let unused = whole((32..40).chain(44..64));
    assert_refused(&bytes(Verb::Stop), unused, Control::decode, error);
}

#[test]
fn there_are_eight_classes() {
    for class in 0..=255 {
        let mut ack = ACK_BYTES;
        ack[45] = class;
        let refused = Err(DeliverError::Class(class));
        let expected = if class < 8 { Ok(Ack { class, ..ACK }) } else { refused };
        assert_eq!(Ack::decode(&ack), expected);
    }
}

#[test]
fn ranges_hold() {
    let data = |offset, payload_bytes| {
        let data = Data { offset: Bytes::new(offset), payload_bytes, ..DATA };
        Data::decode(&data.to_header()).map(|_| ())
    };
    assert_eq!(data(0, 0), Err(DeliverError::Empty));
    assert_eq!(data(u64::MAX - 3, 4), Err(DeliverError::BeyondTensor));
    assert_eq!(data(u64::MAX - 4, 4), Ok(()));

    let offer = |tensor_bytes, segment_bytes, loss| {
        let tensor_bytes = Bytes::new(tensor_bytes);
        let (layer, trailer_bytes) = (0, 0);
        let verb = Verb::Offer { tensor_bytes, segment_bytes, loss, layer, trailer_bytes };
        Control::decode(&bytes(verb)).map(|_| ())
    };
    assert_eq!(offer(0, 4, 999_999), Ok(()));
    assert_eq!(offer(0, 4, 1_000_000), Err(DeliverError::Loss(1_000_000)));
    assert_eq!(offer(0, 0, 0), Err(DeliverError::Segment(0)));
    assert_eq!(offer(u64::from(u32::MAX) * 4, 4, 0), Ok(()));
    assert_eq!(offer(u64::from(u32::MAX) * 4 + 1, 4, 0), Err(DeliverError::TooManySegments));
    let trailing = |trailer_bytes| {
        let tensor_bytes = Bytes::new(u64::from(u32::MAX) * 4 - 4);
        let (segment_bytes, loss, layer) = (4, 0, 0);
        let verb = Verb::Offer { tensor_bytes, segment_bytes, loss, layer, trailer_bytes };
        Control::decode(&bytes(verb)).map(|_| ())
    };
    assert_eq!([3, 5].map(trailing), [Ok(()), Err(DeliverError::TooManySegments)]);

    let bitmap = |first, count| Control::decode(&bytes(Verb::Bitmap { first, count })).map(|_| ());
    let refused = |first, count| Err(DeliverError::Bitmap { first, count });
    assert_eq!(bitmap(0, 1), Ok(()));
    assert_eq!(bitmap(u32::MAX - 8_192, 8_192), Ok(()));
    assert_eq!(bitmap(0, 0), refused(0, 0));
    assert_eq!(bitmap(0, 8_193), refused(0, 8_193));
    assert_eq!(bitmap(u32::MAX, 1), refused(u32::MAX, 1));
    assert_eq!([1, 8, 9, 8_192].map(bitmap_bytes), [1, 1, 2, 1_024]);

    let mut refuse = bytes(Verb::Refuse(Refusal::GivenUp));
    refuse[60] = 4;
    assert_eq!(Control::decode(&refuse), Err(DeliverError::Reason(4)));
}

fn verbs() -> impl Strategy<Value = Verb> {
    let refusal = prop::sample::select(vec![Refusal::Length, Refusal::Segments, Refusal::GivenUp]);
    prop_oneof![
        (0..1u64 << 39, 256..=u16::MAX, 0..LOSS_UNIT, any::<u16>(), any::<u32>()).prop_map(
            |(bytes, segment_bytes, loss, layer, trailer_bytes)| Verb::Offer {
                tensor_bytes: Bytes::new(bytes),
                segment_bytes,
                loss,
                layer,
                trailer_bytes
            }
        ),
        (0..LOSS_UNIT).prop_map(|loss| Verb::Accept { loss }),
        Just(Verb::Hold),
        any::<u32>().prop_map(|first| Verb::Probe { first }),
        (0..1u32 << 31, 1..=BITMAP_BITS).prop_map(|(first, count)| Verb::Bitmap { first, count }),
        Just(Verb::Stop),
        refusal.prop_map(Verb::Refuse),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        (job, operation, tensor) in any::<(u64, u64, u32)>(),
        (epoch, class) in (0..=EPOCH_MAX, 0..=CLASS_MAX),
        (sent_at, offset) in (any::<u64>(), 0..u64::MAX >> 1),
        (layer, payload_bytes) in (any::<u16>(), 1..=u16::MAX),
        (echo, congested, is_spent) in any::<(bool, bool, bool)>(),
        (arrived_bytes, arrived_at) in any::<(u64, u64)>(),
        verb in verbs(),
    ) {
        let name = TensorName { job: JobId(job), epoch, operation, tensor };
        let (sent_at, offset) = (Time::from_ps(sent_at), Bytes::new(offset));
        let data = Data { name, sent_at, offset, layer, payload_bytes, echo };
        prop_assert_eq!(Data::decode(&data.to_header()), Ok(data));
        let arrived_at = Time::from_ps(arrived_at);
        let ack =
            Ack { name, sent_at, congested, is_spent, class, arrived_bytes, arrived_at };
        prop_assert_eq!(Ack::decode(&ack.to_header()), Ok(ack));
        let control = Control { name, verb };
        prop_assert_eq!(Control::decode(&control.to_header()), Ok(control));
    }
}
