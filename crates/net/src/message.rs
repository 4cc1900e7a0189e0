//! What one call to the kernel sends or receives.

use std::net::SocketAddr;
use std::ops::Range;

/// Most messages that one call sends or receives. Keeps the arrays that a call needs on the stack.
pub const MESSAGES_PER_CALL: usize = 16;

/// One send: datagrams of one destination, size and type of service.
#[derive(Clone, Debug)]
pub struct Message {
    /// Where it goes.
    pub to: SocketAddr,
    /// DSCP and ECN.
    pub tos: u8,
    /// The length into which the kernel is to cut, for a send of several datagrams. The last one may
    /// be shorter.
    pub segment_bytes: Option<u16>,
    /// Which of the call's parts it consists of.
    pub parts: Range<usize>,
}

/// One receive: a datagram, or several of one source, size and type of service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Arrival {
    /// Who sent it. `None` if the kernel did not say.
    pub from: Option<SocketAddr>,
    /// Length before any cut to the size of the buffer.
    pub bytes: usize,
    /// The length by which to cut it, as the kernel passes it on from the sender. Not checked.
    pub segment_bytes: Option<i32>,
    /// DSCP and ECN.
    pub tos: u8,
}
