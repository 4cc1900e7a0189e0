//! Traces as JSON lines.

use std::io::{self, Write};

use thalweg_core::{Packet, Time};

use super::{Incident, Tracer};
use crate::topology::LinkId;

/// Writes one JSON object a line.
pub struct JsonLines<W: Write + Send> {
    out: W,
    failure: Option<io::Error>,
}

impl<W: Write + Send> JsonLines<W> {
    /// Writes to `out`, which is best buffered.
    pub fn new(out: W) -> JsonLines<W> {
        JsonLines { out, failure: None }
    }
}

impl<W: Write + Send> Tracer for JsonLines<W> {
    fn on(&mut self, now: Time, link: Option<LinkId>, incident: Incident, packet: Packet<'_>) {
        if self.failure.is_some() {
            return;
        }
        let what = match incident {
            Incident::Arrived => "arrived",
            Incident::Dropped(reason) => reason.name(),
        };
        // All fields are numbers or fixed words, so there is nothing to escape.
        let link = link.map_or(-1, |link| i64::from(link.0));
        let meta = packet.meta;
        let written = writeln!(
            self.out,
            r#"{{"ps":{},"link":{link},"what":"{what}","src":{},"dst":{},"bytes":{},"dscp":{},"ecn":{}}}"#,
            now.as_ps(),
            meta.src,
            meta.dst,
            meta.wire_bytes,
            meta.dscp.code(),
            meta.ecn.bits(),
        );
        self.failure = written.err();
    }

    fn finish(&mut self) -> io::Result<()> {
        self.failure.take().map_or_else(|| self.out.flush(), Err)
    }
}
