//! Laws for any bytes. The fuzz targets call these functions, and so does a test of
//! the wire crate, over the corpus and mutations of it.
//!
//! Each panics where a rule is broken and answers whether the bytes were accepted, so that a caller
//! can tell whether it tried more than refusals.

use thalweg_core::{HEADER_BYTES, Header, JobId, NodeId};
use thalweg_wire::aggregate::{
    AGGREGATORS_MAX, Announcement, Branch, Description, FAN_IN_MAX, Gradient, GradientView, LEVELS,
    Notice, Parameter, Probe, Query, Request, StationBytes,
};
use thalweg_wire::coverage::{decode, encode};
use thalweg_wire::deliver::{self, BITMAP_BITS, Control, LOSS_UNIT, Verb};
use thalweg_wire::flow::{Ack, Credit, Data};
use thalweg_wire::frame::{SUM_FRAME_BYTES, SumFrame};
use thalweg_wire::pace::{Direction, OTHERS_MAX, SLOTS_MAX, Word};
use thalweg_wire::path::PathProbe;
use thalweg_wire::tag::{
    Generation, Key, seal, seal_sized, seal_with_body, verify, verify_sized, verify_with_body,
};
use thalweg_wire::trailer::{TRAILER_BYTES, Trailer};
use thalweg_wire::{Kind, Prefix, peek, prefix as layout};

/// A prefix is read as its layout says, and the decoders accept only their own kinds.
pub fn prefix(bytes: &[u8]) -> bool {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return false };
    let read = peek(header).ok();
    assert_eq!(read, prefix_by_hand(header));
    let accepted = [
        (Kind::FlowData, Data::decode(header).is_ok()),
        (Kind::FlowAck, Ack::decode(header).is_ok()),
        (Kind::FlowCredit, Credit::decode(header).is_ok()),
        (Kind::PathProbe, path_in(header, false)),
        (Kind::PathAnswer, path_in(header, true)),
        (Kind::PaceAsk, word_in(header, true)),
        (Kind::PaceAnswer, word_in(header, false)),
        (Kind::AggregateGradient, Gradient::decode(header).is_ok()),
        (Kind::AggregateParameter, Parameter::decode(header).is_ok()),
        (Kind::AggregateQuery, Query::decode(header).is_ok()),
        (Kind::AggregateRequest, Request::decode(header).is_ok()),
        (Kind::AggregateNotice, Notice::decode(header).is_ok()),
        (Kind::AggregateAnnouncement, Announcement::decode(header).is_ok()),
        (Kind::AggregateProbe, Probe::decode(header).is_ok()),
        (Kind::AggregateDescription, Description::decode(header).is_ok()),
        (Kind::DeliverData, deliver::Data::decode(header).is_ok()),
        (Kind::DeliverAck, deliver::Ack::decode(header).is_ok()),
    ];
    if let Ok(control) = Control::decode(header) {
        assert!(read.is_some_and(|prefix| prefix.kind() == control.verb.kind()));
    }
    for (kind, is_accepted) in accepted {
        assert!(!is_accepted || read.is_some_and(|prefix| prefix.kind() == kind));
    }
    read.is_some()
}

/// Flow headers that are accepted are the encoding of their meaning.
pub fn flow(bytes: &[u8]) -> bool {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return false };
    let data = Data::decode(header);
    if let Ok(data) = data {
        assert_canonical(header, data.to_header());
        let end = data.offset().as_u64().checked_add(u64::from(data.payload_bytes()));
        assert!(end.is_some_and(|end| end <= data.message_bytes.as_u64()));
    }
    let ack = Ack::decode(header);
    if let Ok(ack) = ack {
        assert_canonical(header, ack.to_header());
    }
    let credit = Credit::decode(header);
    if let Ok(credit) = credit {
        assert_canonical(header, credit.to_header());
    }
    let probe = PathProbe::decode(header);
    if let Ok(probe) = probe {
        assert_canonical(header, probe.to_header());
    }
    data.is_ok() || ack.is_ok() || credit.is_ok() || probe.is_ok()
}

/// Returns whether a header is accepted as the probe of a path, or as its answer.
fn path_in(header: &Header, is_answer: bool) -> bool {
    PathProbe::decode(header).is_ok_and(|probe| probe.is_answer == is_answer)
}

/// Aggregation headers that are accepted are the encoding of their meaning, and their fields agree.
/// Behind an announcement's header stands its body; behind the others, nothing is looked at.
pub fn aggregate(bytes: &[u8]) -> bool {
    let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return false };
    // All of them, so that each decoder sees every input.
    let accepted = [
        gradient(header),
        parameter(header),
        query(header),
        request(header),
        announcement(header, body),
        notice(header),
        probe(header),
        description(header),
    ];
    accepted.contains(&true)
}

/// Delivery headers that are accepted are the encoding of their meaning, and their ranges hold.
pub fn deliver(bytes: &[u8]) -> bool {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return false };
    let data = deliver::Data::decode(header);
    if let Ok(data) = data {
        assert_canonical(header, data.to_header());
        assert!(data.payload_bytes > 0);
        assert!(data.offset.as_u64().checked_add(u64::from(data.payload_bytes)).is_some());
    }
    let ack = deliver::Ack::decode(header);
    if let Ok(ack) = ack {
        assert_canonical(header, ack.to_header());
    }
    let control = Control::decode(header);
    if let Ok(control) = control {
        assert_canonical(header, control.to_header());
        match control.verb {
            Verb::Offer { segment_bytes, loss, .. } => {
                assert!(segment_bytes > 0 && loss < LOSS_UNIT);
            }
            Verb::Accept { loss } => assert!(loss < LOSS_UNIT),
            Verb::Bitmap { first, count } => {
                assert!((1..=BITMAP_BITS).contains(&count) && first.checked_add(count).is_some());
            }
            Verb::Hold | Verb::Probe { .. } | Verb::Stop | Verb::Refuse(_) => {}
        }
    }
    data.is_ok() || ack.is_ok() || control.is_ok()
}

/// Words are canonical, and their bodies have the length that they say.
pub fn pace(bytes: &[u8]) -> bool {
    let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return false };
    let Ok(word) = Word::decode(header) else { return false };
    assert_canonical(header, word.to_header());
    assert!((1..=SLOTS_MAX).contains(&word.slots));
    assert!(word.refused.is_none_or(|refused| word.has_plan && refused.at < word.slots));
    let others = match word.direction {
        Direction::Ask => 0,
        Direction::Answer { others } => others,
    };
    assert!(others <= OTHERS_MAX);
    let Ok(read) = word.read_body(body) else { return false };
    assert_eq!((read.slots.len(), read.others.len()), (word.slots.into(), others.into()));
    let mut again = vec![0xff; word.body_bytes() as usize];
    let (slots, others) = (read.slots.iter().copied(), read.others.iter().copied());
    word.write_body(&mut again, *read.facts, slots, others);
    assert_eq!(again, body);
    true
}

fn word_in(header: &Header, asks: bool) -> bool {
    Word::decode(header).is_ok_and(|word| (word.direction == Direction::Ask) == asks)
}

fn gradient(header: &Header) -> bool {
    let gradient = Gradient::decode(header);
    if let Ok(gradient) = gradient {
        assert_canonical(header, gradient.to_header());
        let branch = gradient.branch;
        assert!((branch.entry()..=branch.end()).contains(&gradient.level));
        for level in branch.entry()..branch.end() {
            assert_eq!(branch.bit(level) & branch.full(level), branch.bit(level));
            assert_eq!(branch.full(level).count_ones(), u32::from(branch.fan_in(level)));
        }
        assert!(gradient.watermark() <= gradient.identity.sequence);
        assert!(gradient.aggregator < AGGREGATORS_MAX);
        for level in branch.entry()..branch.end() {
            let shared = branch.shared(level).branch();
            assert_eq!(Branch::unpack(shared.pack()), Ok(shared));
            assert_eq!(
                (shared.entry(), shared.full(level), shared.bit(level)),
                (level, branch.full(level), 1)
            );
        }
        let (mut copy, prefix) = (*header, peek(header).expect("it was accepted"));
        let (view, named) = GradientView::check_mut(prefix, &mut copy).expect("it was accepted");
        assert_eq!((view.level(), view.bitmap_level()), (gradient.level, gradient.bitmap_level));
        assert_eq!(named, branch);
    }
    gradient.is_ok()
}

fn parameter(header: &Header) -> bool {
    let parameter = Parameter::decode(header);
    if let Ok(parameter) = parameter {
        assert_canonical(header, parameter.to_header());
        assert!(parameter.job_watermark() <= parameter.identity.sequence);
        assert!(parameter.next_from() >= parameter.identity.sequence);
        assert!(parameter.next_aggregator.is_none_or(|next| next < AGGREGATORS_MAX));
    }
    parameter.is_ok()
}

fn query(header: &Header) -> bool {
    let Ok(query) = Query::decode(header) else { return false };
    assert_canonical(header, query.to_header());
    assert!(usize::from(query.level) <= LEVELS);
    assert!(query.watermark() <= query.identity.sequence);
    assert!(query.bounded.is_none_or(|bounded| bounded.first_distance < bounded.fragments));
    true
}

fn request(header: &Header) -> bool {
    let Ok(request) = Request::decode(header) else { return false };
    assert_canonical(header, request.to_header());
    assert!(usize::from(request.level) <= LEVELS);
    true
}

fn announcement(header: &Header, body: &[u8]) -> bool {
    let Ok(announcement) = Announcement::decode(header) else { return false };
    assert_canonical(header, announcement.to_header());
    let Ok(stations) = announcement.stations(body) else { return false };
    assert_eq!(stations.len(), usize::from(announcement.stations));
    assert_eq!(Announcement::body_bytes(stations.len()), body.len());
    for station in stations {
        let children: Vec<NodeId> = station.children().collect();
        assert!((1..=usize::from(FAN_IN_MAX)).contains(&children.len()));
        assert_eq!(StationBytes::new(station.places, &children), *station);
        assert!(station.places[..=usize::from(announcement.level)].iter().all(|&place| place == 0));
    }
    true
}

fn notice(header: &Header) -> bool {
    let Ok(notice) = Notice::decode(header) else { return false };
    assert_canonical(header, notice.to_header());
    true
}

fn probe(header: &Header) -> bool {
    let Ok(probe) = Probe::decode(header) else { return false };
    assert_canonical(header, probe.to_header());
    true
}

fn description(header: &Header) -> bool {
    let Ok(description) = Description::decode(header) else { return false };
    assert_canonical(header, description.to_header());
    let limits = description.limits;
    assert!((1..=AGGREGATORS_MAX).contains(&limits.aggregators));
    assert!(limits.fragment_values > 0 && limits.formats.bits() != 0);
    true
}

/// Sealed headers verify; those that are changed afterwards do not. The bytes are a key, a header, and
/// a body of any length.
pub fn tag(bytes: &[u8]) -> bool {
    let Some((key, rest)) = bytes.split_first_chunk::<16>() else { return false };
    let Some((header, body)) = rest.split_first_chunk::<HEADER_BYTES>() else { return false };
    let key = Key(*key);

    let mut sealed = *header;
    seal(&mut sealed, &key);
    assert!(verify(&sealed, &key));
    assert_eq!(untagged(&sealed), untagged(header));
    // A holder of the key can also seal a lane that we would not write.
    assert!(verify(header, &key) || sealed != *header);

    let mut sized = *header;
    seal_sized(&mut sized, body.len(), &key);
    assert!(verify_sized(&sized, body.len(), &key) && !verify_sized(&sized, body.len() + 1, &key));
    assert_eq!(untagged(&sized), untagged(header));

    let mut with_body = *header;
    seal_with_body(&mut with_body, body, &key);
    assert!(verify_with_body(&with_body, body, &key));
    assert_eq!(untagged(&with_body), untagged(header));
    // A body of nothing is covered by any tag.
    assert_eq!(verify_sized(&with_body, body.len(), &key), body.is_empty());
    let odd = key.generation() == Generation::Odd;
    for (sealed, covers_body) in [(&sealed, false), (&sized, false), (&with_body, true)] {
        assert_eq!(sealed[7] & GENERATION != 0, odd);
        assert_eq!(sealed[7] & COVERS_BODY != 0, covers_body);
    }

    // The input says which bit to flip.
    let bit = usize::from(key.0[0]) << 8 | usize::from(key.0[1]);
    sealed[bit / 8 % HEADER_BYTES] ^= 1 << (bit % 8);
    assert!(!verify(&sealed, &key));
    with_body[bit / 8 % HEADER_BYTES] ^= 1 << (bit % 8);
    assert!(!verify_with_body(&with_body, body, &key));
    true
}

/// A trailer that is accepted is the one encoding of its meaning, and only the trailer is cut off.
pub fn trailer(bytes: &[u8]) -> bool {
    let mut message = bytes.to_vec();
    let Ok(trailer) = Trailer::unframe(&mut message) else {
        assert_eq!(message, bytes, "what is refused stays as it is");
        return false;
    };
    assert_eq!(message.len() + TRAILER_BYTES, bytes.len());
    assert_eq!(trailer.frame(&message).into_vec(), bytes);
    true
}

/// Coverage that is accepted is the one encoding of its meaning, and lies within the sum. The bytes are the numbers of
/// ranks and of values, two bytes each, and the coverage.
pub fn coverage(bytes: &[u8]) -> bool {
    let Some(([low, high, few, many], rest)) = bytes.split_first_chunk() else { return false };
    let ranks = u16::from_le_bytes([*low, *high]).into();
    let values = u16::from_le_bytes([*few, *many]).into();
    let Ok(read) = decode(rest, values, ranks) else { return false };
    assert_eq!(encode(&read, ranks), rest);
    for part in read.missing().unwrap_or_default() {
        assert!(part.values.end <= values && part.ranks.iter().all(|rank| *rank < ranks));
    }
    true
}

/// A frame that is accepted is the one encoding of its meaning, whatever stands before it.
pub fn frame(bytes: &[u8]) -> bool {
    let Ok(frame) = SumFrame::unframe(bytes) else { return false };
    let mut again = vec![0xff; bytes.len()];
    again[..bytes.len() - SUM_FRAME_BYTES].copy_from_slice(&bytes[..bytes.len() - SUM_FRAME_BYTES]);
    frame.frame(&mut again);
    assert_eq!(again, bytes);
    true
}

/// Encoding again gives the same bytes, but for the tag and what it covers, which encoders leave to the sealer, and
/// the versions, which may be those of a newer sender.
fn assert_canonical(header: &Header, mut again: Header) {
    assert_eq!(again[2], layout::VERSION | layout::OLDEST_VERSION << 4);
    assert_eq!(again[7], 0);
    again[2] = header[2];
    assert_eq!(again, untagged(header));
}

fn untagged(header: &Header) -> Header {
    let mut header = *header;
    header[7] &= !(GENERATION | COVERS_BODY);
    header[16..24].fill(0);
    header
}

/// Bits of the lane that sealing writes.
const GENERATION: u8 = 1 << 5;
const COVERS_BODY: u8 = 1 << 6;

/// The prefix, read without the crate's views.
fn prefix_by_hand(header: &Header) -> Option<Prefix> {
    let kind = match header[3] {
        1 => Kind::FlowData,
        2 => Kind::FlowAck,
        3 => Kind::FlowCredit,
        4 => Kind::PathProbe,
        5 => Kind::PathAnswer,
        16 => Kind::AggregateGradient,
        17 => Kind::AggregateParameter,
        18 => Kind::AggregateQuery,
        19 => Kind::AggregateRequest,
        20 => Kind::AggregateNotice,
        21 => Kind::AggregateAnnouncement,
        22 => Kind::AggregateProbe,
        23 => Kind::AggregateDescription,
        32 => Kind::DeliverData,
        33 => Kind::DeliverAck,
        34 => Kind::DeliverOffer,
        35 => Kind::DeliverAccept,
        36 => Kind::DeliverHold,
        37 => Kind::DeliverProbe,
        38 => Kind::DeliverBitmap,
        39 => Kind::DeliverStop,
        40 => Kind::DeliverRefuse,
        48 => Kind::PaceAsk,
        49 => Kind::PaceAnswer,
        _ => return None,
    };
    let number = |from: usize, bytes: usize| {
        header[from..from + bytes].iter().rev().fold(0, |high, &low| high << 8 | u64::from(low))
    };
    let (version, oldest) = (header[2] % 16, header[2] / 16);
    let is_readable = oldest <= layout::VERSION && layout::VERSION <= version;
    let lane = header[7];
    let is_known = lane & !(GENERATION | COVERS_BODY) == 0;
    let is_known_format = header[..2] == layout::MAGIC && is_readable && is_known;
    let generation = if lane & GENERATION != 0 { Generation::Odd } else { Generation::Even };
    let (job, epoch) = (JobId(number(8, 8)), number(4, 3) as u32);
    is_known_format.then(|| Prefix::new(kind, job, epoch, generation, lane & COVERS_BODY != 0))
}
