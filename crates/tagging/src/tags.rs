//! The program at egress with its maps, and the interfaces that it is attached to.

use std::io;
use std::net::IpAddr;

use thalweg_core::{Bytes, PRIORITIES};
use thalweg_linux::{Attached, Hook, Map, Memory, Program, WhenFull};
use thalweg_prioritize::Bounds;
use thalweg_prioritize::observer::Service;
use thalweg_prioritize::tagger::PacketRule;

use crate::program::{
    BOUNDED, COUNTS_BYTES, EDGES, FLOW_BYTES, FLOW_KEY_BYTES, IDLE_NANOS, LEFT_ALONE, LOWEST,
    NEXT_BYTES, NEXT_KEY_BYTES, OF_PRIORITY, SETTINGS_BYTES, SLACK, Shared, UNBOUNDED, program,
};

/// Connections whose state is kept; one that was not used for long makes place for a new one.
const FLOWS: u32 = 65_536;
/// Sizes above are taken for this one, so that sums of the program do not overflow.
const LARGEST: u64 = 1 << 62;

/// Priorities that packets of TCP get as they leave this host. The kernel stops giving them when this is dropped, or the
/// process ends in whatever way.
// spec: Q-14
#[derive(Debug)]
pub struct Tags {
    program: Program,
    counts: Memory,
    next: Map,
    attached: Vec<Attached>,
    // The program holds them as well.
    _settings: Memory,
    #[cfg_attr(not(test), expect(dead_code, reason = "tests compare it"))]
    flows: Map,
}

/// Counters of the program.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TagCounts {
    /// Packets of each priority, the highest first. A GSO batch counts as one.
    pub packets: [u64; PRIORITIES],
    /// Packets of TCP that had a code point.
    pub left_alone: u64,
    /// Flows that began with bounds.
    pub bounded: u64,
    /// Flows that began without bounds.
    pub unbounded: u64,
    /// Runs of the program, while somebody measures programs.
    pub runs: u64,
    /// Nanoseconds that those runs took.
    pub nanos: u64,
}

impl Tags {
    /// Loads the program, with room for the bounds of this number of services. Nothing is tagged yet.
    pub fn load(rule: &PacketRule, services: u32) -> io::Result<Tags> {
        let settings = Memory::new(SETTINGS_BYTES, "tag_settings")?;
        settings.write(&settings_of(rule))?;
        let counts = Memory::new(COUNTS_BYTES, "tag_counts")?;
        let (key, value) = (FLOW_KEY_BYTES, FLOW_BYTES);
        let flows = Map::new(WhenFull::Replace, (key, value), FLOWS, "tag_flows")?;
        let (key, value) = (NEXT_KEY_BYTES, NEXT_BYTES);
        let next = Map::new(WhenFull::Refuse, (key, value), services, "tag_next")?;
        let shared = Shared { settings: &settings, counts: &counts, flows: &flows, next: &next };
        let program = Program::load(&program(&shared), Hook::Device, "tag_flows")?;
        let attached = Vec::new();
        Ok(Tags { program, counts, next, attached, _settings: settings, flows })
    }

    /// Begins to tag what an interface of the calling thread's namespace sends.
    pub fn attach(&mut self, index: u32) -> io::Result<()> {
        self.attached.push(self.program.attach_to_sends(index)?);
        Ok(())
    }

    /// Sets the bounds of the next flows of a service, or removes them.
    pub fn set_next(&self, service: &Service, bounds: Option<Bounds>) -> io::Result<()> {
        let key = service_key(service);
        match bounds {
            Some(bounds) => self.next.set(&key, &value_of(bounds)),
            None => self.next.remove(&key).map(|_| ()),
        }
    }

    /// Counters until now.
    pub fn counts(&self) -> io::Result<TagCounts> {
        let bytes = self.counts.read()?;
        let field = |at: i16| {
            let word = bytes[at as usize..].first_chunk().expect("counts have all fields");
            u64::from_ne_bytes(*word)
        };
        let (runs, nanos) = self.program.runs()?;
        Ok(TagCounts {
            runs,
            nanos,
            packets: std::array::from_fn(|priority| field(OF_PRIORITY + 8 * priority as i16)),
            left_alone: field(LEFT_ALONE),
            bounded: field(BOUNDED),
            unbounded: field(UNBOUNDED),
        })
    }
}

fn settings_of(rule: &PacketRule) -> Vec<u8> {
    let mut words = [u64::MAX; SETTINGS_BYTES / 8];
    words[SLACK as usize / 8] = rule.slack.as_u64();
    words[IDLE_NANOS as usize / 8] = rule.idle_after.as_ps() / 1_000;
    words[LOWEST as usize / 8] = u64::from(rule.thresholds.lowest());
    for (word, edge) in words[EDGES as usize / 8..].iter_mut().zip(rule.thresholds.demotions()) {
        *word = edge.as_u64();
    }
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn value_of(bounds: Bounds) -> Vec<u8> {
    let capped = |bytes: Bytes| bytes.as_u64().min(LARGEST).to_ne_bytes();
    [capped(bounds.lower), capped(bounds.upper)].concat()
}

fn service_key(service: &Service) -> Vec<u8> {
    let mut key = mapped(service.peer).to_vec();
    key.extend(service.port.to_ne_bytes());
    key.extend(u16::from(service.is_answer).to_ne_bytes());
    key
}

/// The address as one of IPv6.
fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests;
