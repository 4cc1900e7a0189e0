//! The named inputs that the fuzz targets' corpus is made of.

use thalweg_core::coverage::Part;
use thalweg_core::{Bytes, Coverage, Element, Fingerprint, Header, JobId, Mismatch, NodeId, Time};
use thalweg_wire::aggregate::{
    Absent, Announcement, BodyFormats, Bounded, Branch, Description, Gradient, Identity, LEVELS,
    LossShare, Magnitude, Notice, Numbers, Parameter, Probe, Query, Request, Scale, StationBytes,
    SwitchLimits,
};
use thalweg_wire::coverage;
use thalweg_wire::deliver::{self, Control, Refusal, TensorName, Verb};
use thalweg_wire::flow::{Ack, Credit, Data};
use thalweg_wire::frame::{CalledOperation, SumFrame};
use thalweg_wire::pace::{Direction, Refused, Word};
use thalweg_wire::path::PathProbe;
use thalweg_wire::tag::{Key, Secret, seal, seal_with_body};
use thalweg_wire::trailer::{StreamId, Trailer};
use zerocopy::IntoBytes;

use crate::checks;
use crate::search::{Inputs, Target};

/// Every fuzz target of headers.
pub fn targets() -> [Target; 9] {
    let headers = |named: &[(&'static str, Header)]| {
        named.iter().map(|&(name, header)| (name, header.to_vec())).collect::<Vec<_>>()
    };
    let flow = headers(&flow_headers());
    let aggregate = [
        headers(&gradient_headers()),
        headers(&parameter_headers()),
        headers(&question_headers()),
        group_packets(),
        headers(&description_headers()),
    ]
    .concat();
    let deliver = [headers(&segment_headers()), headers(&control_headers())].concat();
    let pace = pace_packets();
    let all = [flow.clone(), aggregate.clone(), deliver.clone(), pace.clone()].concat();
    let target = |name, check, inputs| Target { name, check, inputs };
    [
        target("prefix", checks::prefix, all),
        target("flow", checks::flow, flow),
        target("aggregate", checks::aggregate, aggregate),
        target("deliver", checks::deliver, deliver),
        target("pace", checks::pace, pace),
        target("tag", checks::tag, tagged_packets()),
        target("trailer", checks::trailer, framed_messages()),
        target("frame", checks::frame, sum_messages()),
        target("coverage", checks::coverage, coverages()),
    ]
}

fn pace_packets() -> Inputs {
    let question = Word {
        job: JobId(0x5eed_0000_0000_0001),
        epoch: 1,
        flow: 3,
        direction: Direction::Ask,
        slot: 77,
        slots: 10,
        has_plan: false,
        is_summed: false,
        refused: None,
        iteration: 5,
        volume: 6_000_000,
    };
    let plan = Word { has_plan: true, is_summed: true, ..question };
    let refused = Word { refused: Some(Refused { at: 4, free: 1_000 }), ..plan };
    let answer = Word { direction: Direction::Answer { others: 2 }, ..refused };
    let packet = |word: Word| {
        let body = (0..word.body_bytes()).map(|at| (at % 8 == 0) as u8);
        word.to_header().into_iter().chain(body).collect()
    };
    vec![
        ("question", packet(question)),
        ("plan", packet(plan)),
        ("plan-refused", packet(refused)),
        ("answer", packet(answer)),
    ]
}

fn flow_headers() -> [(&'static str, Header); 8] {
    let data = Data {
        job: JobId(0x5eed_0000_0000_0001),
        epoch: 1,
        flow: 42,
        message_bytes: Bytes::new(100_000),
        sent_at: Time::from_ps(1_234_567),
        index: 0,
        transmission: 0,
        segment_bytes: 1_436,
        priority: 0,
        wants_ack: false,
    };
    let ack = Ack {
        job: data.job,
        epoch: data.epoch,
        flow: data.flow,
        sent_at: data.sent_at,
        sack: 0,
        cumulative: 1,
        index: 0,
        transmission: 0,
        congested: false,
        resend: false,
        class: 0,
        run: 0,
    };
    let last = Data { index: 69, transmission: 80, priority: 7, ..data };
    let empty = Data { message_bytes: Bytes::ZERO, ..data };
    let Ack { job, epoch, flow, .. } = ack;
    let credit = Credit { job, epoch, flow, transmissions: 17, priority: 5 };
    let probe = PathProbe { job, epoch, number: 3, is_answer: false };
    let gap = Ack {
        sack: 0b1011,
        index: 5,
        transmission: 5,
        congested: true,
        resend: true,
        class: 7,
        ..ack
    };
    [
        ("data-first", data.to_header()),
        ("data-last", last.to_header()),
        ("data-empty", empty.to_header()),
        ("ack-in-order", ack.to_header()),
        ("ack-gap", gap.to_header()),
        ("credit", credit.to_header()),
        ("path-probe", probe.to_header()),
        ("path-answer", PathProbe { is_answer: true, ..probe }.to_header()),
    ]
}

const IDENTITY: Identity = Identity {
    job: JobId(0x5eed_0000_0000_0002),
    epoch: 3,
    sequence: 5_000,
    attempt: 0,
    operation: 0x0123_4567,
};
const SERVER: NodeId = NodeId(9);

fn branch(fan_ins: [u8; LEVELS], places: [u8; LEVELS]) -> Branch {
    Branch::new(fan_ins, places).expect("a branch")
}

fn fixed() -> Numbers {
    Numbers::Fixed(Scale::new(1e8).expect("a scale"))
}

fn gradient_headers() -> [(&'static str, Header); 9] {
    let branch_of_two = branch([4, 3, 0, 0], [2, 1, 0, 0]);
    let worker = Gradient {
        watermark_distance: 40,
        next_magnitude: Magnitude::of(0.25),
        ..Gradient::fresh(IDENTITY, 777, fixed(), SERVER, branch_of_two)
    };
    let rack = Gradient { bitmap: 0b1111, level: 1, congested: true, overflow: true, ..worker };
    let collided = Gradient { level: 1, collision: true, resend: true, ..worker };
    let repair = Gradient { repair: true, ..worker };
    let result = Gradient { numbers: Numbers::Float, level: 2, result: true, ..worker };
    let lacks = Gradient { absent: Absent::of([0, 5], 8), ..result };
    let brain = Gradient { numbers: Numbers::Bf16, ..worker };
    let half = Gradient { numbers: Numbers::F16, ..lacks };
    let deep = Gradient {
        identity: Identity { attempt: 1, ..IDENTITY },
        numbers: Numbers::Float,
        bitmap: 0xffff_ffff,
        bitmap_level: 3,
        level: 4,
        branch: branch([32; 4], [31, 0, 15, 7]),
        ..worker
    };
    [
        ("gradient-worker", worker.to_header()),
        ("gradient-rack", rack.to_header()),
        ("gradient-collided", collided.to_header()),
        ("gradient-repair", repair.to_header()),
        ("gradient-result", result.to_header()),
        ("gradient-result-lacks", lacks.to_header()),
        ("gradient-deep", deep.to_header()),
        ("gradient-bf16", brain.to_header()),
        ("gradient-result-f16", half.to_header()),
    ]
}

fn parameter_headers() -> [(&'static str, Header); 4] {
    let sum = Parameter {
        job_watermark_distance: 60,
        ..Parameter::sum(IDENTITY, 777, fixed(), SERVER, 2)
    };
    let changes = Parameter {
        next_aggregator: Some(1_234),
        next_scale: Scale::new(1e6),
        next_distance: 100,
        congested: true,
        ..sum
    };
    let lacks = Parameter { absent: Absent::of([0, 5], 8), ..sum };
    let repeat = Parameter { repeat: true, ..sum };
    [
        ("parameter-sum", sum.to_header()),
        ("parameter-changes", changes.to_header()),
        ("parameter-lacks", lacks.to_header()),
        ("parameter-repeat", repeat.to_header()),
    ]
}

fn question_headers() -> [(&'static str, Header); 6] {
    let branch = branch([4, 3, 0, 0], [2, 1, 0, 0]);
    let query = Query {
        watermark_distance: 40,
        received_distance: 3,
        ..Query::new(IDENTITY, 777, SERVER, branch)
    };
    let bypass = Query { level: 2, bypass: true, received_distance: -3, ..query };
    let share = LossShare::from_parts(25);
    let operation = Bounded { first_distance: 900, fragments: 4_000, share };
    let bounded = Query { bounded: Some(operation), ..query };
    let awaited = Query { awaited: true, ..query };
    let request = Request {
        identity: IDENTITY,
        aggregator: 777,
        server: SERVER,
        branch,
        level: 0,
        wanted: 0b1010,
        bypass: false,
        restart: false,
    };
    let restart = Request { level: 1, wanted: 0b111, restart: true, ..request };
    [
        ("query", query.to_header()),
        ("query-bypass", bypass.to_header()),
        ("query-bounded", bounded.to_header()),
        ("query-awaited", awaited.to_header()),
        ("request", request.to_header()),
        ("request-restart", restart.to_header()),
    ]
}

/// Announcements with their bodies, and a notice.
fn group_packets() -> Inputs {
    let rack = Announcement {
        job: IDENTITY.job,
        epoch: IDENTITY.epoch,
        server: SERVER,
        parent: NodeId(8),
        level: 0,
        stations: 1,
        switches: [0; 4],
    };
    let switches = [0b1011, 1, 0, 0];
    let wide = Announcement { parent: SERVER, level: 1, stations: 2, switches, ..rack };
    let children: Vec<NodeId> = (10..42).map(NodeId).collect();
    let rack_station = [StationBytes::new([0, 1, 0, 0], &children[..4])];
    let wide_stations = [
        StationBytes::new([0; LEVELS], &children),
        StationBytes::new([0, 0, 1, 0], &children[..1]),
    ];
    let notice = Notice { job: IDENTITY.job, epoch: IDENTITY.epoch, switch: NodeId(8) };
    let packet = |announcement: Announcement, stations: &[StationBytes]| {
        [&announcement.to_header(), stations.as_bytes()].concat()
    };
    vec![
        ("announcement-rack", packet(rack, &rack_station)),
        ("announcement-wide", packet(wide, &wide_stations)),
        ("notice", notice.to_header().to_vec()),
    ]
}

fn description_headers() -> [(&'static str, Header); 3] {
    let (server, switch) = (SERVER, NodeId(8));
    let words = SwitchLimits {
        aggregators: 16_384,
        fragment_values: 352,
        formats: BodyFormats::FLOAT_AND_FIXED,
        cores: 1,
        mtu_bytes: 0,
    };
    let newer = SwitchLimits {
        formats: BodyFormats::from_bits(0b10_1101),
        cores: 4,
        mtu_bytes: 9_000,
        ..words
    };
    let via = Some(NodeId(16));
    let description = |limits| Description { server, switch, via, limits }.to_header();
    [
        ("switch-probe", Probe { server, switch, via: None }.to_header()),
        ("switch-description", description(words)),
        ("switch-description-newer", description(newer)),
    ]
}

const NAME: TensorName =
    TensorName { job: JobId(0x5eed_0000_0000_0003), epoch: 2, operation: 900, tensor: 17 };

fn segment_headers() -> [(&'static str, Header); 4] {
    let first = deliver::Data {
        name: NAME,
        sent_at: Time::from_ps(1_234_567),
        offset: Bytes::ZERO,
        layer: 3,
        payload_bytes: 1_408,
        echo: true,
    };
    let last =
        deliver::Data { offset: Bytes::new(14_080), payload_bytes: 12, echo: false, ..first };
    let ack = deliver::Ack {
        name: NAME,
        sent_at: first.sent_at,
        congested: false,
        is_spent: false,
        class: 0,
        arrived_bytes: 14_860,
        arrived_at: Time::from_ps(7_654_321),
    };
    let marked = deliver::Ack { congested: true, is_spent: true, class: 3, ..ack };
    [
        ("segment-first", first.to_header()),
        ("segment-last", last.to_header()),
        ("echo", ack.to_header()),
        ("echo-marked", marked.to_header()),
    ]
}

fn control_headers() -> [(&'static str, Header); 7] {
    let tensor_bytes = Bytes::new(14_092);
    let (segment_bytes, loss, layer, trailer_bytes) = (1_408, 100_000, 3, 40);
    let offer = Verb::Offer { tensor_bytes, segment_bytes, loss, layer, trailer_bytes };
    [
        ("offer", offer),
        ("accept", Verb::Accept { loss: 50_000 }),
        ("hold", Verb::Hold),
        ("probe", Verb::Probe { first: 8_192 }),
        ("bitmap", Verb::Bitmap { first: 8_192, count: 11 }),
        ("stop", Verb::Stop),
        ("refuse", Verb::Refuse(Refusal::Length)),
    ]
    .map(|(name, verb)| (name, Control { name: NAME, verb }.to_header()))
}

/// Key, header and body, one behind the other.
fn tagged_packets() -> Inputs {
    let key = Key::derive(&Secret(*b"a cluster secret"), JobId(0x5eed_0000_0000_0001), 1);
    let (_, mut alone) = flow_headers()[3];
    seal(&mut alone, &key);
    let (_, mut with_body) = flow_headers()[0];
    let body = b"values of a gradient";
    seal_with_body(&mut with_body, body, &key);
    let packet = |header: Header, body: &[u8]| [&key.0[..], &header, body].concat();
    vec![("header", packet(alone, &[])), ("header-and-body", packet(with_body, body))]
}

/// Messages between ranks, with their trailers.
fn framed_messages() -> Inputs {
    let (fingerprint, differ) = mismatch();
    let (give, point) = (StreamId::Give(7), StreamId::Point { tag: 5, number: 2 });
    let chunk = Trailer::Operation { stream: give, fingerprint, total: 2_816, chunk: 1 };
    let transfer = Trailer::Point { tag: 5, number: 2, fingerprint, total: 100, chunk: 0 };
    let message = |trailer: Trailer, bytes: &[u8]| trailer.frame(bytes).into_vec();
    vec![
        ("chunk", message(chunk, b"values of a slice")),
        ("transfer", message(transfer, b"bytes from one rank to another")),
        ("called", message(Trailer::Called { operation: 7, fingerprint }, &[])),
        ("agreed", message(Trailer::Agreed { operation: 7, fingerprint }, &[])),
        ("go", message(Trailer::Go { stream: point }, &[])),
        ("stop", message(Trailer::Stop { culprit: 9 }, &[])),
        ("differ", message(Trailer::Differ(differ), &[])),
    ]
}

/// A sum, and what two ranks say that differ in it.
fn mismatch() -> (Fingerprint, Mismatch) {
    let [sum, other] = [704, 1_056].map(|values| Fingerprint::of_sum(Element::F32, values));
    (sum, Fingerprint::compare((0, &sum), (3, &other)).expect_err("they differ"))
}

/// Messages of sums, with their frames.
fn sum_messages() -> Inputs {
    let (fingerprint, differ) = mismatch();
    let message = |frame: SumFrame, values: &[u8]| [values, &frame.encode()].concat();
    let called = CalledOperation { number: 7, fingerprint };
    vec![
        ("values", message(SumFrame::Values(called), b"values of a slice")),
        ("stop", message(SumFrame::Stop(differ), &[])),
    ]
}

/// Numbers of ranks and values, and a coverage.
fn coverages() -> Inputs {
    let wide = Part::new(0..300, vec![0, 255, 499]);
    let parts = [(3..4, vec![1]), (200..800, vec![0, 2])];
    let parts = parts.map(|(values, ranks)| Part::new(values, ranks));
    let named = [
        ("wide", 500, Coverage::lacking([wide])),
        ("parts", 3, Coverage::lacking(parts)),
        ("exact", 3, Coverage::Exact),
        ("unreported", 3, Coverage::Unreported),
    ];
    let bytes = |ranks: u16, of: &Coverage| {
        let lengths = [ranks, 1_000].map(u16::to_le_bytes);
        [lengths.as_flattened(), &coverage::encode(of, ranks.into())].concat()
    };
    named.map(|(name, ranks, of)| (name, bytes(ranks, &of))).into()
}
