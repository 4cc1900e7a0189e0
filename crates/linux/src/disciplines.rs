//! Queue disciplines of a device as the kernel describes them, so that they can be made again.

use std::io;

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcHeader, TcMessage};

use crate::netlink::Netlink;
use crate::traffic::traffic_control;

// From the kernel's `rtnetlink.h`.
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_DUMP_INVISIBLE: u16 = 10;
/// Length of `struct tcmsg`.
const TCMSG_BYTES: usize = 20;
/// Flags in the type of an attribute.
const TYPE_MASK: u16 = 0x3fff;

/// A queue discipline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Discipline {
    /// Handle. Zero for one that the kernel made by itself.
    pub handle: TcHandle,
    /// Place that it is attached to.
    pub parent: TcHandle,
    /// The kernel's name of its kind.
    pub kind: String,
    /// Options as the kernel describes and takes them.
    pub options: Vec<u8>,
}

impl Discipline {
    /// All of a device.
    pub fn all(netlink: &mut Netlink, index: u32) -> io::Result<Vec<Discipline>> {
        let mut question = TcMessage::default();
        question.header.index = index as i32;
        // Those that other disciplines have made are not described otherwise.
        let invisible = DefaultNla::new(TCA_DUMP_INVISIBLE, Vec::new());
        question.attributes.push(TcAttribute::Other(invisible));
        let answers = netlink.dump(RouteNetlinkMessage::GetQueueDiscipline(question))?;
        let of_device = |bytes: &Vec<u8>| word(bytes, 4) == Some(index);
        Ok(answers.iter().filter(|bytes| of_device(bytes)).filter_map(|it| parse(it)).collect())
    }

    /// Makes it at its place of a device, in place of what is there.
    pub fn restore(&self, netlink: &mut Netlink, index: u32) -> io::Result<()> {
        let Discipline { handle, parent, kind, options } = self;
        let header = TcHeader { handle: *handle, parent: *parent, ..TcHeader::default() };
        let mut message = traffic_control(header, index, kind);
        if !options.is_empty() {
            let options = DefaultNla::new(TCA_OPTIONS, options.clone());
            message.attributes.push(TcAttribute::Other(options));
        }
        let message = RouteNetlinkMessage::NewQueueDiscipline(message);
        netlink.change(message, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Removes what is at a place of a device. At its root the kernel puts what it would have by itself.
    pub fn remove(netlink: &mut Netlink, index: u32, parent: TcHandle) -> io::Result<()> {
        let mut message = TcMessage::default();
        message.header = TcHeader { index: index as i32, parent, ..TcHeader::default() };
        netlink.change(RouteNetlinkMessage::DelQueueDiscipline(message), 0)
    }
}

/// Reads a description: a header, and attributes. `None` if there is no discipline in it.
fn parse(bytes: &[u8]) -> Option<Discipline> {
    let (handle, parent) = (word(bytes, 8)?, word(bytes, 12)?);
    let (mut kind, mut options) = (None, Vec::new());
    let mut rest = bytes.get(TCMSG_BYTES..)?;
    while let Some([a, b, c, d]) = rest.first_chunk() {
        let length = usize::from(u16::from_ne_bytes([*a, *b]));
        let value = rest.get(4..length)?;
        match u16::from_ne_bytes([*c, *d]) & TYPE_MASK {
            TCA_KIND => kind = Some(String::from_utf8_lossy(value).trim_end_matches('\0').into()),
            TCA_OPTIONS => options = value.to_vec(),
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(Discipline { handle: handle.into(), parent: parent.into(), kind: kind?, options })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_read_and_what_is_none_is_not() {
        let mut bytes = vec![0; TCMSG_BYTES];
        bytes[4..8].copy_from_slice(&7_u32.to_ne_bytes());
        bytes[8..12].copy_from_slice(&0x0001_0000_u32.to_ne_bytes());
        bytes[12..16].copy_from_slice(&0xffff_ffff_u32.to_ne_bytes());
        let attribute = |kind: u16, value: &[u8]| {
            let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        assert_eq!(parse(&bytes), None, "without a kind");
        bytes.extend(attribute(TCA_KIND, b"bfifo\0"));
        bytes.extend(attribute(9, &[1]));
        bytes.extend(attribute(TCA_OPTIONS | 0x8000, &[1, 2, 3, 4]));
        let found = parse(&bytes).unwrap();
        assert_eq!((found.kind.as_str(), &found.options[..]), ("bfifo", &[1, 2, 3, 4][..]));
        assert_eq!((found.handle.major, found.parent), (1, TcHandle::ROOT));
        for length in 0..bytes.len() {
            let _ = parse(&bytes[..length]);
        }
        bytes[TCMSG_BYTES] = 0xff;
        assert_eq!(parse(&bytes), None, "an attribute that is longer than its message");
        bytes[TCMSG_BYTES..TCMSG_BYTES + 2].fill(0);
        assert_eq!(parse(&bytes), None, "an attribute without a length");
    }
}
