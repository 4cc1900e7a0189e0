//! Whatever comes, in whatever order: sums are what their bitmaps say.

use proptest::prelude::*;
use thalweg_core::{Body, HEADER_BYTES, Header, JobId, Machine, Meta, Packet, Span, Time};
use thalweg_wire::aggregate::{Branch, Gradient, Identity, Parameter, Query, Request};

use super::harness::{
    Bench, Content, Fate, ME, Sent, TestOutbox, announce_both, gradient, parameter,
};
use crate::switch::aggregator::Aggregator;

const WORKERS: u8 = 3;
const RACKS: u8 = 2;

/// Contribution of a worker to a fragment: different for each, so that no wrong sum looks right.
fn value(identity: Identity, rack: u8, worker: u8) -> i32 {
    let Identity { job, epoch, sequence, attempt, operation } = identity;
    let of_job = job.0 as i32 * 7 + epoch as i32 * 11;
    let fragment = of_job + sequence as i32 * 13 + i32::from(attempt) + operation as i32 * 101;
    fragment * 1_000 + (1 << (rack * WORKERS + worker))
}

/// The exact sum of a set.
fn expected(identity: Identity, bitmap: u32, bitmap_level: u8, rack: u8) -> i32 {
    let workers = |rack| (0..WORKERS).map(move |worker| (rack, worker));
    let is_named = |&(of, worker): &(u8, u8)| match bitmap_level {
        0 => of == rack && bitmap >> worker & 1 == 1,
        _ => bitmap >> of & 1 == 1,
    };
    let all = (0..RACKS).flat_map(workers).filter(is_named);
    all.map(|(rack, worker)| value(identity, rack, worker)).sum()
}

fn check_slot(bench: &Bench, slot: &Aggregator, place: u32) {
    let fragment = slot.key.fragment();
    let rack = fragment.upper_places[1];
    let sum = expected(fragment.identity, slot.bitmap, fragment.level, rack);
    assert_eq!(bench.switch.array.values(place, 4), sum.to_le_bytes(), "{slot:?}");
}

/// Result that the server sends: no sum that a switch has.
fn result(identity: Identity) -> i32 {
    -expected(identity, 0b11, 1, 0)
}

/// A result that is sent again is the one that the server sent for this very fragment.
fn check_result(sent: &Sent) {
    let read = Parameter::decode(&sent.header).unwrap();
    assert_eq!(sent.values(), [result(read.identity)], "{read:?}");
}

fn check_gradient(sent: &Sent) {
    let read = sent.read();
    let rack = read.branch.places()[1];
    let sum = expected(read.identity, read.bitmap, read.bitmap_level, rack);
    assert_eq!(sent.values(), [sum], "{read:?}");
}

#[derive(Clone, Debug)]
struct Step {
    identity: Identity,
    aggregator: u32,
    rack: u8,
    worker: u8,
    /// Of the second level, the whole rack.
    is_above: bool,
    what: What,
    pause_us: u64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum What {
    Fresh,
    Resent,
    Repair,
    Parameter,
    Query,
    Request,
}

fn any_step() -> impl Strategy<Value = Step> {
    let what = prop_oneof![
        8 => Just(What::Fresh),
        1 => Just(What::Resent),
        2 => Just(What::Repair),
        1 => Just(What::Parameter),
        1 => Just(What::Query),
        1 => Just(What::Request),
    ];
    let identity = (1..3_u64, 1..3_u32, 10..13_u64, 0..2_u8, 5..7_u32).prop_map(
        |(job, epoch, sequence, attempt, operation)| Identity {
            job: JobId(job),
            epoch,
            sequence,
            attempt,
            operation,
        },
    );
    let position = (0..RACKS, 0..WORKERS, prop::bool::weighted(0.3), 0..2_u32);
    let pause_us = prop_oneof![9 => 0..50_u64, 1 => Just(60_000)];
    (identity, position, what, pause_us).prop_map(|(identity, position, what, pause_us)| {
        let (rack, worker, is_above, aggregator) = position;
        Step { identity, aggregator, rack, worker, is_above, what, pause_us }
    })
}

impl Step {
    fn gradient(&self) -> Gradient {
        let branch = Branch::new([WORKERS, RACKS, 0, 0], [self.worker, self.rack, 0, 0]).unwrap();
        let bitmap = if self.is_above { branch.full(0) } else { branch.bit(0) };
        Gradient {
            identity: self.identity,
            aggregator: self.aggregator,
            watermark_distance: 1,
            bitmap,
            level: u8::from(self.is_above),
            branch,
            resend: self.what == What::Resent,
            repair: self.what == What::Repair,
            ..gradient(0)
        }
    }

    fn query(&self) -> Sent {
        let Gradient { identity, aggregator, server, branch, level, .. } = self.gradient();
        let query = Query { level, ..Query::new(identity, aggregator, server, branch) };
        Sent::bare(query.to_header())
    }

    fn request(&self) -> Sent {
        let Gradient { identity, aggregator, server, branch, level, .. } = self.gradient();
        let request = Request {
            identity,
            aggregator,
            server,
            branch,
            level: level + 1,
            wanted: 0b11,
            bypass: false,
            restart: false,
        };
        Sent::bare(request.to_header())
    }

    fn sent(&self) -> Sent {
        let gradient = self.gradient();
        match self.what {
            What::Parameter => {
                let body = result(self.identity).to_le_bytes().to_vec();
                Sent { header: parameter(&gradient).header, ..Sent::new(ME, Content::Bytes(body)) }
            }
            What::Query => self.query(),
            What::Request => self.request(),
            What::Fresh | What::Resent | What::Repair => {
                let Gradient { identity, bitmap, bitmap_level, .. } = gradient;
                let sum = expected(identity, bitmap, bitmap_level, self.rack);
                Sent::gradient(ME, &gradient, &[sum])
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    // spec, E-11, T-10 machine
    #[test]
    fn sums_are_what_their_bitmaps_say(steps in prop::collection::vec(any_step(), 0..150)) {
        let mut bench = Bench::with(|config| config.aggregators = 2);
        announce_both(&mut bench, RACKS, WORKERS);
        for step in steps {
            bench.now += Span::from_us(step.pause_us);
            if bench.switch.poll_timeout() <= bench.now {
                bench.switch.handle_timeout(bench.now);
            }
            let mut sent = step.sent();
            if bench.handle(&mut sent) == Fate::Forwarded && sent.header[3] == 16 {
                check_gradient(&sent);
            }
            for sent in bench.transmit() {
                match sent.header[3] {
                    16 => check_gradient(&sent),
                    17 => check_result(&sent),
                    _ => {}
                }
            }
            let mut occupied = 0;
            for place in 0..2 {
                let slot = *bench.switch.array.slot(place);
                if !slot.is_empty() {
                    occupied += 1;
                    check_slot(&bench, &slot, place);
                }
            }
            prop_assert_eq!(occupied, bench.switch.occupied());
            prop_assert_eq!(bench.switch.poll_timeout() == Time::NEVER, occupied == 0);
        }
    }

    #[test]
    fn nothing_panics_on_any_bytes(
        packets in prop::collection::vec((any_header(), 0..40_u32, any::<bool>()), 0..60)
    ) {
        let mut bench = Bench::knowing();
        for (mut header, bytes, is_length) in packets {
            let mut body = vec![0x55; bytes as usize];
            let body = if is_length { Body::Length(bytes) } else { Body::Bytes(&mut body) };
            let mut meta = Meta { dst: ME, ..Meta::default() };
            let packet = Packet { meta: &mut meta, header: &mut header, body };
            bench.switch.handle_packet(bench.now, packet);
            let mut outbox = TestOutbox::with_room(ME, 3);
            bench.switch.poll_transmit(bench.now, &mut outbox);
            prop_assert!(bench.switch.occupied() <= 16);
        }
        bench.now += Span::from_s(1);
        bench.switch.handle_timeout(bench.now);
        prop_assert_eq!(bench.switch.occupied(), 0);
    }
}

/// Anything at all, or a good header with a few bytes changed.
fn any_header() -> impl Strategy<Value = Header> {
    let good = (any_step(), prop::collection::vec((0..HEADER_BYTES, 0..40_u8), 0..3)).prop_map(
        |(step, changes)| {
            let mut header = step.sent().header;
            changes.into_iter().for_each(|(at, byte)| header[at] = byte);
            header
        },
    );
    let noise = prop::collection::vec(any::<u8>(), HEADER_BYTES).prop_map(|bytes| {
        let mut header: Header = bytes.try_into().unwrap();
        header[..3].copy_from_slice(b"TW\x22");
        header[3] = 16 + header[3] % 6;
        header[7] = 0;
        header
    });
    prop_oneof![3 => good, 1 => noise]
}
