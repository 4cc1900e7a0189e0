//! The tables of `docs/wire.md` are the layout of the code.

use std::mem::offset_of;
use std::path::Path;

use thalweg_core::HEADER_BYTES;
use thalweg_wire::aggregate::{GradientView, ParameterView};
use thalweg_wire::flow::{AckView, DataView};
use thalweg_wire::prefix::{PREFIX_BYTES, PrefixView};

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
    let prefix = fields!(PrefixView: magic, version, kind, epoch, job, tag);
    let data = fields!(DataView: flow, message_bytes, sent_at, index, transmission, segment_bytes,
        priority, reserved);
    let ack = fields!(AckView: flow, sent_at, sack, cumulative, index, transmission, flags,
        reserved);
    let gradient = fields!(GradientView: sequence, aggregator, scale, watermark_distance, bitmap,
        fan_ins, places, level, bitmap_level, flags, attempt, next_magnitude, reserved, values);
    let parameter = fields!(ParameterView: sequence, aggregator, scale, next_from, next_aggregator,
        next_scale, reserved_low, flags, attempt, reserved_high, values);

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/wire.md");
    let document = std::fs::read_to_string(path).expect("the document is committed");
    assert_eq!(table(&document, "## Prefix"), prefix);
    assert_covers(&prefix, 0, PREFIX_BYTES);
    for (heading, fields) in [
        ("## Flow data", data),
        ("## Flow acknowledgement", ack),
        ("## Aggregate gradient", gradient),
        ("## Aggregate parameter", parameter),
    ] {
        assert_eq!(table(&document, heading), fields, "{heading}");
        assert_covers(&fields, PREFIX_BYTES, HEADER_BYTES);
    }
}

/// The rows of the layout table under a heading: those with a number for an offset and a size.
fn table(document: &str, heading: &str) -> Vec<Field> {
    let (_, section) = document.split_once(&format!("{heading}\n")).expect("a heading");
    let section = section.split("\n## ").next().unwrap_or(section);
    section.lines().filter_map(row).collect()
}

fn row(line: &str) -> Option<Field> {
    let mut cells = line.strip_prefix("| ")?.split(" | ");
    let (offset, size) = (cells.next()?.parse().ok()?, cells.next()?.parse().ok()?);
    Some((offset, size, cells.next()?.trim_matches('`').to_owned()))
}

/// The fields follow each other without gaps, each aligned to its size.
fn assert_covers(fields: &[Field], from: usize, to: usize) {
    let end = fields.iter().fold(from, |at, (offset, size, name)| {
        assert_eq!(*offset, at, "{name}");
        let is_number = size.is_power_of_two();
        assert!(!is_number || offset % size == 0, "{name} is not aligned");
        offset + size
    });
    assert_eq!(end, to);
}

fn field_bytes<V, F>(_: impl FnOnce(&V) -> &F) -> usize {
    size_of::<F>()
}
