//! Requests to one network namespace, one at a time.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkHeader, LinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// Longest answer; the description of one link has a few kilobytes.
const ANSWER_BYTES: usize = 64 * 1024;

/// Length of a header.
const HEADER_BYTES: usize = 16;
// Kinds of messages that are no answer.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// Requests to the namespace that the thread which opened it was in, from whatever thread.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket in the namespace of the calling thread.
    pub fn open() -> io::Result<Netlink> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Asks for a change, and waits until it is made.
    pub fn change(&mut self, change: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.ask(change, flags | NLM_F_ACK).map(drop)
    }

    /// Asks for something that is not there yet, and waits until it is made.
    pub fn create(&mut self, wanted: RouteNetlinkMessage) -> io::Result<()> {
        self.change(wanted, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Describes a link.
    pub fn link(&mut self, index: u32) -> io::Result<LinkMessage> {
        let mut question = LinkMessage::default();
        question.header = LinkHeader { index, ..LinkHeader::default() };
        match self.ask(RouteNetlinkMessage::GetLink(question), 0)? {
            Some(RouteNetlinkMessage::NewLink(link)) => Ok(link),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The number of a link by its name.
    pub fn index_of(&mut self, name: &str) -> io::Result<u32> {
        let mut question = LinkMessage::default();
        question.attributes.push(LinkAttribute::IfName(name.to_owned()));
        match self.ask(RouteNetlinkMessage::GetLink(question), 0)? {
            Some(RouteNetlinkMessage::NewLink(link)) => Ok(link.header.index),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Everything that there is of a kind, as bytes behind the header of each message.
    pub fn dump(&mut self, question: RouteNetlinkMessage) -> io::Result<Vec<Vec<u8>>> {
        self.send(question, NLM_F_DUMP)?;
        let mut answers = Vec::new();
        loop {
            let mut bytes = Vec::with_capacity(ANSWER_BYTES);
            self.socket.recv(&mut bytes, 0)?;
            let mut rest = &bytes[..];
            while let Some(header) = rest.first_chunk::<HEADER_BYTES>() {
                let [a, b, c, d, e, f, _, _, sequence @ .., _, _, _, _] = *header;
                let length = u32::from_ne_bytes([a, b, c, d]) as usize;
                let kind = u16::from_ne_bytes([e, f]);
                let invalid = io::ErrorKind::InvalidData;
                let body = rest.get(HEADER_BYTES..length).ok_or(invalid)?;
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
                if u32::from_ne_bytes(sequence) != self.sequence {
                    continue;
                }
                match kind {
                    NLMSG_DONE => return Ok(answers),
                    NLMSG_ERROR => {
                        let code = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                        return Err(io::Error::from_raw_os_error(-code));
                    }
                    _ => answers.push(body.to_vec()),
                }
            }
        }
    }

    /// The answer, or `None` where the kernel only says that it is done.
    fn ask(
        &mut self,
        question: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Option<RouteNetlinkMessage>> {
        self.send(question, flags)?;
        loop {
            let mut bytes = Vec::with_capacity(ANSWER_BYTES);
            self.socket.recv(&mut bytes, 0)?;
            let answer = NetlinkMessage::deserialize(&bytes)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            if answer.header.sequence_number != self.sequence {
                continue;
            }
            return match answer.payload {
                NetlinkPayload::InnerMessage(answer) => Ok(Some(answer)),
                NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
                _ => Ok(None),
            };
        }
    }

    fn send(&mut self, question: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(question));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map(drop)
    }
}
