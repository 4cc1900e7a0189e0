//! Traces of a run, packet by packet.

mod json;
mod pcapng;

pub use json::JsonLines;
pub use pcapng::PcapNg;

use std::io;

use thalweg_core::{Packet, Time};

use crate::stats::DropReason;
use crate::topology::LinkId;

/// Something that happened to a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Incident {
    /// It came out of a link.
    Arrived,
    /// It ended.
    Dropped(DropReason),
}

/// Receives every incident, in order of time. It can change nothing: a traced run is the same run.
pub trait Tracer: Send {
    /// A packet arrived over a link, or was dropped in front of it or on it. `link` is `None` when
    /// there was no way to go.
    fn on(&mut self, now: Time, link: Option<LinkId>, incident: Incident, packet: Packet<'_>);

    /// Nothing more will come. Fails if not everything could be written.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}
