//! A channel between two ranks, and the requests on it.

use super::flow::Flow;
use super::stream::Stream;
use crate::REQUESTS_MAX;
use crate::failure::Failure;
use crate::memory::Memory;

/// One end of a channel. Several threads may use it at a time.
pub struct Channel {
    transport: Transport,
    requests: [Request; REQUESTS_MAX],
}

/// Transport of a channel.
pub enum Transport {
    /// A TCP connection.
    Tcp(Box<Stream>),
    /// A flow.
    Flow(Flow),
}

/// A request, as NCCL sees it: a place in the table of its channel.
pub struct Request {
    /// The channel. It is closed after its requests are.
    channel: *const Channel,
    index: usize,
}

impl Channel {
    /// A channel without requests.
    pub fn new(transport: Transport) -> Box<Channel> {
        let request = |index| Request { channel: std::ptr::null(), index };
        let mut channel = Box::new(Channel { transport, requests: std::array::from_fn(request) });
        let own: *const Channel = &raw const *channel;
        channel.requests.iter_mut().for_each(|request| request.channel = own);
        channel
    }

    /// Begins to send, or to receive into memory. `None` if as many requests are in flight as there may be: NCCL calls
    /// again.
    pub fn begin(&self, memory: Memory) -> Result<Option<&Request>, Failure> {
        let begun = match &self.transport {
            Transport::Tcp(stream) => stream.begin(memory),
            Transport::Flow(flow) => flow.begin(memory),
        };
        Ok(begun?.map(|index| &self.requests[index]))
    }
}

impl Request {
    /// The channel of the request.
    pub fn channel(&self) -> *const Channel {
        self.channel
    }

    /// Returns the number of bytes once the request has ended, which frees it.
    pub fn test(&self, channel: &Channel) -> Result<Option<usize>, Failure> {
        match &channel.transport {
            Transport::Tcp(stream) => stream.test(self.index),
            Transport::Flow(flow) => flow.test(self.index),
        }
    }
}
