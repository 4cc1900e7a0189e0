use proptest::prelude::*;

use super::*;
use crate::prefix::EPOCH_MAX;
use crate::testing::{assert_literal, assert_refused, whole};

/// Packet 2 of a message of 3,500 bytes in segments of 1,436, sent for the fourth time.
const DATA: Data = Data {
    job: JobId(0x0102_0304_0506_0708),
    epoch: 9,
    flow: 0x1a,
    message_bytes: Bytes::new(3_500),
    sent_at: Time::from_ps(0x0102_0304),
    index: 2,
    transmission: 4,
    segment_bytes: 1_436,
    priority: 7,
    wants_ack: true,
};

const DATA_BYTES: Header = [
    0x54, 0x57, 0x22, 1, 9, 0, 0, 0, // magic, versions, kind, epoch, lane
    8, 7, 6, 5, 4, 3, 2, 1, // job
    0, 0, 0, 0, 0, 0, 0, 0, // tag
    0x1a, 0, 0, 0, 0, 0, 0, 0, // flow
    0xac, 0x0d, 0, 0, 0, 0, 0, 0, // message_bytes
    4, 3, 2, 1, 0, 0, 0, 0, // sent_at
    2, 0, 0, 0, 4, 0, 0, 0, // index, transmission
    0x9c, 0x05, 0, 0, 7, 1, 0, 0, // segment_bytes, priority, flags, reserved
];

/// Packets 0 to 3, 5 and 6 arrived; 6 came marked; 4 is asked for.
const ACK: Ack = Ack {
    job: JobId(0x0102_0304_0506_0708),
    epoch: 9,
    flow: 0x1a,
    sent_at: Time::from_ps(0x0102_0304),
    sack: 3,
    cumulative: 4,
    index: 6,
    transmission: 8,
    congested: true,
    resend: true,
    class: 6,
    run: 1,
};

const ACK_BYTES: Header = [
    0x54, 0x57, 0x22, 2, 9, 0, 0, 0, // magic, versions, kind, epoch, lane
    8, 7, 6, 5, 4, 3, 2, 1, // job
    0, 0, 0, 0, 0, 0, 0, 0, // tag
    0x1a, 0, 0, 0, 0, 0, 0, 0, // flow
    4, 3, 2, 1, 0, 0, 0, 0, // sent_at
    3, 0, 0, 0, 0, 0, 0, 0, // sack
    4, 0, 0, 0, 6, 0, 0, 0, // cumulative, index
    8, 0, 0, 0, 3, 6, 1, 0, // transmission, flags, class, run
];

const CREDIT: Credit = Credit {
    job: JobId(0x0102_0304_0506_0708),
    epoch: 9,
    flow: 0x1a,
    transmissions: 0x0201,
    priority: 6,
};

const CREDIT_BYTES: Header = [
    0x54, 0x57, 0x22, 3, 9, 0, 0, 0, // magic, versions, kind, epoch, lane
    8, 7, 6, 5, 4, 3, 2, 1, // job
    0, 0, 0, 0, 0, 0, 0, 0, // tag
    0x1a, 0, 0, 0, 0, 0, 0, 0, // flow
    1, 2, 0, 0, 6, 0, 0, 0, // transmissions, priority, reserved
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // reserved
];

#[test]
fn literal_bytes_have_their_meaning_and_back() {
    assert_literal((&DATA_BYTES, DATA), Data::decode, Data::to_header);
    assert_literal((&ACK_BYTES, ACK), Ack::decode, Ack::to_header);
    assert_literal((&CREDIT_BYTES, CREDIT), Credit::decode, Credit::to_header);
}

#[test]
fn one_kind_is_not_taken_for_another() {
    let (data, ack) = (Kind::FlowData, Kind::FlowAck);
    let error = PrefixError::OtherKind { expected: data, found: ack };
    assert_eq!(Data::decode(&ACK_BYTES), Err(error.into()));
    let error = PrefixError::OtherKind { expected: ack, found: data };
    assert_eq!(Ack::decode(&DATA_BYTES), Err(error.into()));
    let error = PrefixError::OtherKind { expected: Kind::FlowCredit, found: data };
    assert_eq!(Credit::decode(&DATA_BYTES), Err(error.into()));
}

#[test]
fn reserved_bits_are_refused() {
    let error = FlowError::Reserved;
    let bits = whole(62..64).chain((1..8).map(|bit| (61, bit)));
    assert_refused(&DATA_BYTES, bits, Data::decode, error);
    assert_refused(&CREDIT_BYTES, whole(37..64), Credit::decode, error);
    let bits = (2..8).map(|bit| (60, bit));
    assert_refused(&ACK_BYTES, bits, Ack::decode, error);
}

#[test]
fn a_run_begins_at_the_first_packet_or_later() {
    for run in 0..9 {
        let ack = Ack { run, ..ACK };
        let error = FlowError::Run { run, index: 6 };
        let expected = if run <= 6 { Ok(ack) } else { Err(error) };
        assert_eq!(Ack::decode(&ack.to_header()), expected);
    }
}

#[test]
fn there_are_eight_classes() {
    for class in 0..=255 {
        let mut ack = ACK_BYTES;
        ack[61] = class;
        let expected =
            if class < 8 { Ok(Ack { class, ..ACK }) } else { Err(FlowError::Class(class)) };
        assert_eq!(Ack::decode(&ack), expected);
    }
}

#[test]
fn a_packet_lies_within_its_message() {
    let decode = |data: Data| Data::decode(&data.to_header());
    // 3,500 bytes are three packets: 1,436, 1,436 and 628.
    assert_eq!(DATA.offset(), Bytes::new(2_872));
    assert_eq!(DATA.payload_bytes(), 628);
    assert_eq!(Data { index: 1, ..DATA }.payload_bytes(), 1_436);
    let beyond = FlowError::BeyondMessage { index: 3, segment_bytes: 1_436 };
    assert_eq!(decode(Data { index: 3, ..DATA }), Err(beyond));
    assert_eq!(decode(Data { segment_bytes: 0, ..DATA }), Err(FlowError::EmptySegment));

    let full = Data { message_bytes: Bytes::new(2_872), ..DATA };
    let beyond = FlowError::BeyondMessage { index: 2, segment_bytes: 1_436 };
    assert_eq!(decode(full), Err(beyond), "a message of whole segments has no empty last packet");

    let empty = Data { message_bytes: Bytes::ZERO, index: 0, ..DATA };
    assert_eq!(decode(empty), Ok(empty));
    assert_eq!(empty.payload_bytes(), 0);

    let huge = Data { index: u32::MAX, segment_bytes: u32::MAX, ..DATA };
    assert!(decode(huge).is_err());
    let huge = Data { message_bytes: Bytes::new(u64::MAX), ..huge };
    assert_eq!(decode(huge), Ok(huge));
}

proptest! {
    #[test]
    fn data_comes_back(
        (job, epoch, flow) in (any::<u64>(), 0..=EPOCH_MAX, any::<u64>()),
        (sent_at, transmission, priority, wants_ack) in any::<(u64, u32, u8, bool)>(),
        (segment_bytes, message_bytes, pick) in (1..=u32::MAX, any::<u64>(), any::<u64>()),
    ) {
        let packets = message_bytes.div_ceil(u64::from(segment_bytes)).clamp(1, 1 << 32);
        let data = Data {
            job: JobId(job),
            epoch,
            flow,
            message_bytes: Bytes::new(message_bytes),
            sent_at: Time::from_ps(sent_at),
            index: (pick % packets) as u32,
            transmission,
            segment_bytes,
            priority,
            wants_ack,
        };
        prop_assert_eq!(Data::decode(&data.to_header()), Ok(data));
        prop_assert!(data.offset().as_u64() + u64::from(data.payload_bytes()) <= message_bytes);
    }

    #[test]
    fn acks_come_back(
        (job, epoch, flow) in (any::<u64>(), 0..=EPOCH_MAX, any::<u64>()),
        (sent_at, sack, cumulative) in any::<(u64, u64, u32)>(),
        (index, transmission, run) in any::<(u32, u32, u16)>(),
        (congested, resend, class) in (any::<bool>(), any::<bool>(), 0..=CLASS_MAX),
    ) {
        let ack = Ack {
            job: JobId(job),
            epoch,
            flow,
            sent_at: Time::from_ps(sent_at),
            sack,
            cumulative,
            index,
            transmission,
            congested,
            resend,
            class,
            // No more than there are.
            run: run.min(u16::try_from(index).unwrap_or(u16::MAX)),
        };
        prop_assert_eq!(Ack::decode(&ack.to_header()), Ok(ack));
    }
}
