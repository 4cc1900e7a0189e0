//! The tables of `docs/wire.md` are the layout of the code.

use std::mem::offset_of;
use std::path::Path;

use thalweg_core::coverage::Part;
use thalweg_core::{Coverage, HEADER_BYTES};
use thalweg_wire::aggregate::{
    DescriptionView, GradientView, GroupView, ParameterView, QueryView, RequestView, StationBytes,
};
use thalweg_wire::coverage::encode;
use thalweg_wire::deliver;
use thalweg_wire::fingerprint::{FINGERPRINT_BYTES, FingerprintView};
use thalweg_wire::flow::{AckView, CreditView, DataView};
use thalweg_wire::frame::{MismatchView, SUM_FRAME_BYTES, SumFrameView};
use thalweg_wire::pace::{FactsView, OtherView, SlotView, WordView};
use thalweg_wire::path::PathProbeView;
use thalweg_wire::prefix::{PREFIX_BYTES, PrefixView};
use thalweg_wire::trailer::{TRAILER_BYTES, TrailerView};

/// Offset, size and name of fields, in the order given.
macro_rules! fields {
    ($view:ident: $($field:ident),+) => {
        vec![$((
            offset_of!($view, $field),
            field_bytes(|view: &$view| &view.$field),
            stringify!($field).to_owned(),
        )),+]
    };
}

type Field = (usize, usize, String);

#[test]
fn the_document_has_the_fields_of_the_code() {
    let prefix = fields!(PrefixView: magic, versions, kind, epoch, lane, job, tag);
    let data = fields!(DataView: flow, message_bytes, sent_at, index, transmission, segment_bytes,
        priority, flags, reserved);
    let ack = fields!(AckView: flow, sent_at, sack, cumulative, index, transmission, flags,
        class, run);
    let credit = fields!(CreditView: flow, transmissions, priority, reserved);
    let [gradient, parameter, query, request] = fragment_fields();
    let group = fields!(GroupView: switches, server, other, level, stations, reserved_end);
    let description = fields!(DescriptionView: aggregators, fragment_values, formats, cores,
        mtu_bytes, reserved, server, switch, via, reserved_end);
    let path = fields!(PathProbeView: number, reserved);
    let [deliver_data, deliver_ack, deliver_control] = deliver_fields();
    let word = fields!(WordView: slot, flow, slots, flags, refused_at, others, iteration, volume,
        refused_free);

    let document = document();
    assert_eq!(table(&document, "## Prefix"), prefix);
    assert_covers(&prefix, 0, PREFIX_BYTES);
    for (heading, fields) in [
        ("## Flow data", data),
        ("## Flow acknowledgement", ack),
        ("## Flow credit", credit),
        ("## Path probe", path),
        ("## Aggregate gradient", gradient),
        ("## Aggregate parameter", parameter),
        ("## Aggregate query", query),
        ("## Aggregate request", request),
        ("## Aggregate announcement", group.clone()),
        ("## Aggregate notice", group),
        ("## Aggregate probe", description.clone()),
        ("## Aggregate description", description),
        ("## Deliver data", deliver_data),
        ("## Deliver acknowledgement", deliver_ack),
        ("## Deliver control", deliver_control),
        ("## Pace question and answer", word),
    ] {
        assert_eq!(table(&document, heading), fields, "{heading}");
        assert_covers(&fields, PREFIX_BYTES, HEADER_BYTES);
    }
}

fn fragment_fields() -> [Vec<Field>; 4] {
    [
        fields!(GradientView: sequence, operation, scale, server, bitmap, aggregator, attempt, branch,
            watermark_distance, flags, format, levels, next_magnitude),
        fields!(ParameterView: sequence, operation, scale, server, next_aggregator, aggregator, attempt,
            next_scale, next_distance, job_watermark_distance, flags, format, level, reserved),
        fields!(QueryView: sequence, operation, received_distance, share, server, first_distance, level,
            aggregator, attempt, branch, watermark_distance, flags, fragments),
        fields!(RequestView: sequence, operation, reserved, server, wanted, aggregator, attempt, branch,
            reserved_middle, flags, level, reserved_end),
    ]
}

fn deliver_fields() -> [Vec<Field>; 3] {
    use deliver::{AckView, ControlView, DataView};
    [
        fields!(DataView: operation, sent_at, offset, tensor, layer, payload_bytes, flags, reserved),
        fields!(AckView: operation, sent_at, tensor, flags, class, reserved, arrived_bytes, arrived_at),
        fields!(ControlView: operation, tensor_bytes, tensor, loss, first, count, segment_bytes,
            layer, reason, reserved),
    ]
}

#[test]
fn the_document_has_the_body_of_announcements() {
    let station = fields!(StationBytes: places, count, children);
    assert_eq!(table(&document(), "## Stations"), station);
    assert_covers(&station, 0, 136);
}

#[test]
fn the_document_has_the_body_of_pace_words() {
    let facts = fields!(FactsView: narrowest, asked, carried, rank);
    let slot = fields!(SlotView: plan, load, free);
    let other = fields!(OtherView: volume, flow, reserved);
    for (heading, fields, bytes) in [
        ("## Pace facts", facts, 32),
        ("## Pace slot", slot, 24),
        ("## Pace other flow", other, 16),
    ] {
        assert_eq!(table(&document(), heading), fields, "{heading}");
        assert_covers(&fields, 0, bytes);
    }
}

#[test]
fn the_document_has_the_ends_of_messages() {
    let fingerprint =
        fields!(FingerprintView: kind, element, reduction, path, root, bytes, loss, parts);
    let frame = fields!(SumFrameView: form, reserved, number, fingerprint, reserved_end);
    let mismatch = fields!(MismatchView: form, reserved, one_rank, other_rank, one, other);
    let trailer =
        fields!(TrailerView: form, stream, reserved, number, fingerprint, total, chunk, tag);
    for (heading, fields, bytes) in [
        ("## Fingerprints", fingerprint, FINGERPRINT_BYTES),
        ("## Sum frames", frame, SUM_FRAME_BYTES),
        ("## Mismatches", mismatch, SUM_FRAME_BYTES),
        ("## Trailers", trailer, TRAILER_BYTES),
    ] {
        assert_eq!(table(&document(), heading), fields, "{heading}");
        assert_covers(&fields, 0, bytes);
    }
}

#[test]
fn the_document_has_the_sizes_of_a_coverage() {
    let document = document();
    let rows = section(&document, "## Coverage").lines();
    let sizes = rows.filter_map(|row| row.strip_prefix("| ")?.split(" | ").next());
    let bytes = |values, ranks| {
        let part = Part::new(values, vec![0]);
        // Behind the form stand two numbers and a bit for each rank.
        encode(&Coverage::lacking([part]), ranks).len() - 3
    };
    let least = bytes(0..1, 1);
    let [gap, length] = [u64::MAX - 1..u64::MAX, 0..u64::MAX].map(|long| bytes(long, 1));
    let expected = ["size".into(), format!("{least} to {gap}"), format!("{least} to {length}")];
    assert!(sizes.eq(expected.iter().map(String::as_str).chain(["⌈ranks / 8⌉"])));
    assert_eq!([1, 8, 9, 17].map(|ranks| bytes(0..1, ranks)), [1, 1, 2, 3]);
}

/// Fields that a switch compares lie at the same offset in every header about a fragment.
#[test]
fn headers_about_fragments_agree() {
    let gradient = fields!(GradientView: sequence, operation, server, aggregator, attempt, flags);
    assert_eq!(
        gradient,
        fields!(ParameterView: sequence, operation, server, aggregator, attempt, flags)
    );
    assert_eq!(
        gradient,
        fields!(QueryView: sequence, operation, server, aggregator, attempt, flags)
    );
    assert_eq!(
        gradient,
        fields!(RequestView: sequence, operation, server, aggregator, attempt, flags)
    );
    assert_eq!(fields!(GradientView: server), fields!(GroupView: server));
    assert_eq!(fields!(GradientView: server), fields!(DescriptionView: server));
    let branch = fields!(GradientView: branch, watermark_distance);
    assert_eq!(branch, fields!(QueryView: branch, watermark_distance));
    assert_eq!(fields!(GradientView: branch), fields!(RequestView: branch));
}

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/wire.md");
    std::fs::read_to_string(path).expect("the document is committed")
}

/// The rows of the layout table under a heading: those with a number for an offset and a size.
fn table(document: &str, heading: &str) -> Vec<Field> {
    section(document, heading).lines().filter_map(row).collect()
}

fn section<'a>(document: &'a str, heading: &str) -> &'a str {
    let (_, section) = document.split_once(&format!("{heading}\n")).expect("a heading");
    section.split("\n## ").next().unwrap_or(section)
}

fn row(line: &str) -> Option<Field> {
    let mut cells = line.strip_prefix("| ")?.split(" | ");
    let (offset, size) = (cells.next()?.parse().ok()?, cells.next()?.parse().ok()?);
    Some((offset, size, cells.next()?.trim_matches('`').to_owned()))
}

/// The fields follow each other without gaps, each number aligned to its size.
fn assert_covers(fields: &[Field], from: usize, to: usize) {
    let end = fields.iter().fold(from, |at, (offset, size, name)| {
        assert_eq!(*offset, at, "{name}");
        let is_number = size.is_power_of_two() && *size <= 8;
        assert!(!is_number || offset % size == 0, "{name} is not aligned");
        offset + size
    });
    assert_eq!(end, to);
}

fn field_bytes<V, F>(_: impl FnOnce(&V) -> &F) -> usize {
    size_of::<F>()
}
