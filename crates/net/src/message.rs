//! Unit that one call to the kernel sends or receives.

use std::net::SocketAddr;
use std::ops::Range;

use crate::cut;

/// Most messages that one call sends or receives. Keeps the arrays that a call needs on the stack.
pub const MESSAGES_PER_CALL: usize = 16;

/// One send: datagrams of one destination, size and type of service.
#[derive(Clone, Debug)]
pub struct Message {
    /// Destination.
    pub to: SocketAddr,
    /// DSCP and ECN.
    pub tos: u8,
    /// The length into which the kernel is to cut, for a send of several datagrams. The last one may
    /// be shorter.
    pub segment_bytes: Option<u16>,
    /// Indices of the call's parts that it consists of.
    pub parts: Range<usize>,
}

/// One receive: a datagram, or several of one source, size and type of service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Arrival {
    /// Sender. `None` if the kernel did not say.
    pub from: Option<SocketAddr>,
    /// Length before any cut to the size of the buffer.
    pub bytes: usize,
    /// The length by which to cut it, as the kernel passes it on from the sender. Not checked.
    pub segment_bytes: Option<i32>,
    /// DSCP and ECN.
    pub tos: u8,
}

impl Arrival {
    /// The datagrams of this arrival, in the buffer that it was received into. None of one that did not fit, or whose
    /// length to cut by makes no sense.
    pub fn datagrams<'a>(&self, buffer: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (bytes, length) = match cut::segment_bytes(self, buffer.len()) {
            Ok(length) => (self.bytes, length),
            Err(_) => (0, 1),
        };
        buffer[..bytes].chunks(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_cut_into_datagrams_and_dropped_where_that_is_impossible() {
        let buffer = [7; 10];
        let lengths = |bytes, segment_bytes| {
            let arrival = Arrival { bytes, segment_bytes, ..Arrival::default() };
            arrival.datagrams(&buffer).map(<[u8]>::len).collect::<Vec<_>>()
        };
        assert_eq!(lengths(10, Some(4)), [4, 4, 2]);
        assert_eq!(lengths(9, None), [9]);
        assert_eq!(lengths(0, None), [0; 0]);
        assert_eq!(lengths(11, None), [0; 0]);
        assert_eq!(lengths(10, Some(-1)), [0; 0]);
    }
}
