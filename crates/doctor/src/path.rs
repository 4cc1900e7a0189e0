//! The path to a peer, measured.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;
use thalweg_console::{Failure, interrupt};
use thalweg_net::{Reach, local_address_towards, reach};

use crate::answer::REPORT;
use crate::client::{Client, Reply, wall_ns};
use crate::host::{Interface, interface_of};
use crate::message::HEADER_BYTES;
use crate::peers::Peer;

/// The port of a server's control channel.
pub const SERVER_PORT: u16 = 4_808;
/// Questions by which losses are counted.
const QUESTIONS: u32 = 2_000;
const QUESTION_BYTES: usize = 128;
/// Time in which they are sent.
const QUESTIONS_WITHIN: Duration = Duration::from_secs(1);
const BURST_FOR: Duration = Duration::from_millis(200);
/// Longest wait for the answer to a question that is not one of many.
const ANSWER_WITHIN: Duration = Duration::from_millis(200);
/// Longest wait where a question may be too long for the path: round trips are known to be shorter by then.
const LENGTH_WITHIN: Duration = Duration::from_millis(60);
const REACH_WITHIN: Duration = Duration::from_secs(1);
/// Shortest packet that every path carries.
const LEAST_PACKET_BYTES: u16 = 576;

/// Extent of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// True if bursts are sent.
    pub measures_rate: bool,
}

/// Packets of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Losses {
    /// Questions that were sent.
    pub sent: u64,
    /// Questions that the peer received.
    pub arrived: u64,
    /// Answers that came back.
    pub returned: u64,
}

/// Reaction of a peer that does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reaction {
    /// Something answers.
    Answers,
    /// The host says that nothing listens.
    Refused,
    /// Nothing comes back.
    Silent,
    /// There is no route or no such host.
    Unreachable,
}

/// The path to a peer. What was not measured is `None`.
#[derive(Clone, Debug, Serialize)]
pub struct Path {
    /// Name of the peer.
    pub name: String,
    /// Address and port at which it should answer.
    pub address: SocketAddr,
    /// The interface that packets to it leave from. `None` if this host has no route.
    pub interface: Option<Interface>,
    /// Reaction to questions.
    pub doctor: Reaction,
    /// Reaction to a TCP connection to the port of questions, if these were not answered.
    pub tcp: Option<Reaction>,
    /// Reaction to a TCP connection to the port of a server.
    pub server: Reaction,
    /// Shortest and middle round trip.
    pub round_trip_us: Option<(u64, u64)>,
    /// Losses of short packets.
    pub losses: Option<Losses>,
    /// Longest packet that passes in both directions.
    pub longest_bytes: Option<u16>,
    /// MTU of the peer's interface.
    pub peer_mtu_bytes: Option<u16>,
    /// True if packets pass to a port that the peer's kernel chose.
    pub session_port_is_open: Option<bool>,
    /// That port.
    pub session_port: Option<u16>,
    /// Rate at which a burst arrived, in bits of IP packets a second.
    pub rate_bps: Option<u64>,
    /// True if the peer's kernel coalesced packets of the burst.
    pub is_coalesced: Option<bool>,
    /// Time by which the peer's clock is ahead.
    pub clock_ahead_us: Option<i64>,
}

/// Measures the path to a peer.
pub fn measure(peer: &Peer, extent: Extent) -> Result<Path, Failure> {
    let mut path = Path::unknown(peer);
    let Ok(local) = local_address_towards(peer.address) else {
        path.doctor = Reaction::Unreachable;
        return Ok(path);
    };
    path.interface = Some(interface_of(local.ip()));
    let server = SocketAddr::new(peer.address.ip(), SERVER_PORT);
    path.server = reach::tcp(server, REACH_WITHIN).into();
    let mut client = Client::open(local.ip()).map_err(Failure::ran)?;
    let measured = path.measure(&mut client, extent);
    measured.map_err(|error| Failure::ran(format_args!("{}: {error}", peer.name)))?;
    if interrupt::is_asked() {
        return Err(Failure::Interrupted);
    }
    Ok(path)
}

impl From<Reach> for Reaction {
    fn from(reach: Reach) -> Reaction {
        match reach {
            Reach::Answers => Reaction::Answers,
            Reach::Refused => Reaction::Refused,
            Reach::Silent => Reaction::Silent,
            Reach::Unreachable => Reaction::Unreachable,
        }
    }
}

impl Path {
    /// A path of which nothing is known.
    pub fn unknown(peer: &Peer) -> Path {
        Path {
            name: peer.name.clone(),
            address: peer.address,
            interface: None,
            doctor: Reaction::Silent,
            tcp: None,
            server: Reaction::Silent,
            round_trip_us: None,
            losses: None,
            longest_bytes: None,
            peer_mtu_bytes: None,
            session_port_is_open: None,
            session_port: None,
            rate_bps: None,
            is_coalesced: None,
            clock_ahead_us: None,
        }
    }

    fn measure(&mut self, client: &mut Client, extent: Extent) -> io::Result<()> {
        let run = client.run(self.address)?;
        let Some(first) = client.ask_until_answered(run, (0, HEADER_BYTES), (5, ANSWER_WITHIN))?
        else {
            return self.find_out_why();
        };
        self.doctor = Reaction::Answers;
        self.peer_mtu_bytes = Some(first.header.mtu_bytes.get());
        self.measure_losses(client)?;
        self.measure_longest(client)?;
        self.try_session_port(client, first.header.session_port.get())?;
        if extent.measures_rate {
            self.measure_rate(client)?;
        }
        Ok(())
    }

    /// Tells a peer that is not there from one whose firewall drops questions.
    fn find_out_why(&mut self) -> io::Result<()> {
        self.doctor = reach::udp(self.address, &[0], REACH_WITHIN)?.into();
        self.tcp = Some(reach::tcp(self.address, REACH_WITHIN).into());
        Ok(())
    }

    fn measure_losses(&mut self, client: &mut Client) -> io::Result<()> {
        let run = client.run(self.address)?;
        let begin = client.elapsed();
        let gap = QUESTIONS_WITHIN / QUESTIONS;
        let (mut sent, mut replies) = (0, Vec::new());
        while sent < QUESTIONS && !interrupt::is_asked() {
            // As many as are due: a sleep takes longer than the gap.
            while sent < QUESTIONS && begin + gap * sent <= client.elapsed() {
                // One that this host drops counts as lost.
                let _ = client.ask(run, sent, QUESTION_BYTES);
                sent += 1;
            }
            replies.extend(client.receive(run, gap)?);
        }
        let until = client.elapsed() + ANSWER_WITHIN;
        while client.elapsed() < until && replies.len() < sent as usize {
            replies.extend(client.receive(run, ANSWER_WITHIN / 10)?);
        }
        let report = client.ask_until_answered(run, (REPORT, HEADER_BYTES), (5, ANSWER_WITHIN))?;
        let Some(report) = report else { return Ok(()) };
        self.losses = Some(Losses {
            sent: sent.into(),
            arrived: report.header.packets.get(),
            returned: replies.len() as u64,
        });
        self.note_times(&mut replies, client.elapsed());
        Ok(())
    }

    /// Notes round trips, and the peer's clock by the shortest of them: it was read in its middle.
    fn note_times(&mut self, replies: &mut [Reply], now: Duration) {
        replies.sort_by_key(|reply| reply.after);
        let Some(shortest) = replies.first() else { return };
        let us = |reply: &Reply| u64::try_from(reply.after.as_micros()).unwrap_or(u64::MAX);
        self.round_trip_us = Some((us(shortest), us(&replies[replies.len() / 2])));
        let sent = Duration::from_nanos(shortest.header.sent_ns.get());
        let age = now.saturating_sub(sent + shortest.after / 2);
        let here_ns = i128::from(wall_ns()) - age.as_nanos() as i128;
        let ahead_us = (i128::from(shortest.header.wall_ns.get()) - here_ns) / 1_000;
        self.clock_ahead_us = i64::try_from(ahead_us).ok();
    }

    fn measure_longest(&mut self, client: &mut Client) -> io::Result<()> {
        let Some(interface) = &self.interface else { return Ok(()) };
        let headers_bytes = self.headers_bytes();
        let run = client.run(self.address)?;
        let mut passes = |packet_bytes: u16| {
            let bytes = usize::from(packet_bytes.saturating_sub(headers_bytes)).max(HEADER_BYTES);
            client
                .ask_until_answered(run, (u32::from(packet_bytes), bytes), (3, LENGTH_WITHIN))
                .map(|reply| reply.is_some())
        };
        self.longest_bytes = longest(interface.mtu_bytes, &mut passes)?;
        Ok(())
    }

    /// Length of the headers of IP and UDP.
    fn headers_bytes(&self) -> u16 {
        if self.address.is_ipv4() { 28 } else { 48 }
    }

    fn try_session_port(&mut self, client: &mut Client, port: u16) -> io::Result<()> {
        let run = client.run(SocketAddr::new(self.address.ip(), port))?;
        let reply = client.ask_until_answered(run, (0, HEADER_BYTES), (5, ANSWER_WITHIN))?;
        self.session_port = Some(port);
        self.session_port_is_open = Some(reply.is_some());
        Ok(())
    }

    fn measure_rate(&mut self, client: &mut Client) -> io::Result<()> {
        let Some(longest_bytes) = self.longest_bytes else { return Ok(()) };
        let headers_bytes = self.headers_bytes();
        let payload_bytes = usize::from(longest_bytes - headers_bytes);
        let run = client.run(self.address)?;
        client.burst(run, payload_bytes, BURST_FOR)?;
        // What waits in queues arrives first.
        let report =
            client.ask_until_answered(run, (REPORT, HEADER_BYTES), (10, ANSWER_WITHIN * 2))?;
        let Some(report) = report.map(|report| report.header) else { return Ok(()) };
        let lasted_ns = report.lasted_ns.get();
        if lasted_ns > 0 {
            let bits = u128::from(report.bytes.get()) * u128::from(longest_bytes) * 8;
            let bps = bits * 1_000_000_000 / (payload_bytes as u128 * u128::from(lasted_ns));
            self.rate_bps = u64::try_from(bps).ok().filter(|bps| *bps > 0);
        }
        self.is_coalesced = Some(report.is_coalesced > 0);
        Ok(())
    }
}

/// Finds the longest packet that passes, up to the MTU of the interface: that first, since it passes mostly.
fn longest(
    mtu_bytes: u16,
    passes: &mut impl FnMut(u16) -> io::Result<bool>,
) -> io::Result<Option<u16>> {
    if passes(mtu_bytes)? {
        return Ok(Some(mtu_bytes));
    }
    if !passes(LEAST_PACKET_BYTES)? {
        return Ok(None);
    }
    let (mut passed, mut failed) = (LEAST_PACKET_BYTES, mtu_bytes);
    while failed - passed > 1 {
        let middle = passed + (failed - passed) / 2;
        if passes(middle)? { passed = middle } else { failed = middle }
    }
    Ok(Some(passed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_packet_is_found_in_few_steps() {
        for limit in [576, 577, 1_399, 1_400, 1_500, 8_999, 9_000] {
            let mut steps = 0;
            let mut passes = |bytes| {
                steps += 1;
                Ok(bytes <= limit)
            };
            assert_eq!(longest(9_000, &mut passes).expect("no sockets"), Some(limit));
            assert!(steps <= 16, "{limit}: {steps} steps");
        }
        assert_eq!(longest(9_000, &mut |_| Ok(false)).expect("no sockets"), None);
    }
}
