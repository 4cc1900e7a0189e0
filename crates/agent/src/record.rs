//! Records that an agent writes.

use std::fmt;
use std::net::Ipv4Addr;

/// Result of a slot for one flow. Displayed as one line of JSON.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The slot, counted from 1970.
    pub slot: u64,
    /// The job's name.
    pub job: String,
    /// Destination of the flow.
    pub to: Ipv4Addr,
    /// The last rate that it was given; 0 to wait.
    pub granted_bps: u64,
    /// Bytes that it wanted to send.
    pub asked_bytes: u64,
    /// Bytes that it sent.
    pub carried_bytes: u64,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record { slot, job, to, granted_bps, asked_bytes, carried_bytes } = self;
        // Names have no control characters, so quotes and backslashes are all there is to escape.
        let job = job.replace('\\', "\\\\").replace('"', "\\\"");
        write!(
            f,
            "{{\"slot\":{slot},\"job\":\"{job}\",\"to\":\"{to}\",\"granted_bps\":{granted_bps},\
             \"asked_bytes\":{asked_bytes},\"carried_bytes\":{carried_bytes}}}"
        )
    }
}
