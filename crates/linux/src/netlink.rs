//! Requests to one network namespace, one at a time.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkHeader, LinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// Longest answer; the description of one link has a few kilobytes.
const ANSWER_BYTES: usize = 64 * 1024;

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

    /// The answer, or `None` where the kernel only says that it is done.
    fn ask(
        &mut self,
        question: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Option<RouteNetlinkMessage>> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(question));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
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
}
