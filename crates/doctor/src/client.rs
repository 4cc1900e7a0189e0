//! A socket that asks a peer, with the clock that answers are compared with.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use thalweg_control::random;
use thalweg_net::{Arrival, Endpoint, EndpointConfig, Message, OpenError, Readiness, SEND_BYTES};
use zerocopy::IntoBytes;

use crate::message::{HEADER_BYTES, Header, Kind};

/// Length of a receive buffer: of what a kernel may coalesce.
const BUFFER_BYTES: usize = 65_536;

/// A run: questions and packets that the peer counts together.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    id: u64,
    to: SocketAddr,
}

/// The answer to a question.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// Fields of the answer.
    pub header: Header,
    /// Time since the question was sent.
    pub after: Duration,
}

/// A socket that asks.
pub struct Client {
    endpoint: Endpoint,
    begin: Instant,
    buffer: Vec<u8>,
}

#[expect(clippy::disallowed_methods, reason = "round trips are measured by a clock")]
fn now() -> Instant {
    Instant::now()
}

/// Nanoseconds since 1970 by the wall clock.
#[expect(clippy::disallowed_methods, reason = "clocks of hosts are compared")]
pub fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

impl Client {
    /// Opens a socket at an address of this host.
    pub fn open(local: IpAddr) -> Result<Client, OpenError> {
        let config = EndpointConfig { bind: (local, 0).into(), ..EndpointConfig::default() };
        let endpoint = Endpoint::open(&config)?;
        Ok(Client { endpoint, begin: now(), buffer: vec![0; BUFFER_BYTES] })
    }

    /// A run of its own towards a peer.
    pub fn run(&self, to: SocketAddr) -> io::Result<Run> {
        Ok(Run { id: random::draw()?, to })
    }

    /// Time since the socket was opened.
    pub fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Sends a question of some length.
    pub fn ask(&self, run: Run, sequence: u32, bytes: usize) -> io::Result<()> {
        let mut datagram = vec![0; bytes.max(HEADER_BYTES)];
        self.write(&mut datagram, run, Kind::Question, sequence);
        let message = Message { to: run.to, tos: 0, segment_bytes: None, parts: 0..1 };
        self.endpoint.send(0, &[IoSlice::new(&datagram)], &[message]).map(drop)
    }

    /// Asks up to some times, and waits for an answer to any of these questions.
    pub fn ask_until_answered(
        &mut self,
        run: Run,
        (sequence, bytes): (u32, usize),
        (times, each): (u32, Duration),
    ) -> io::Result<Option<Reply>> {
        for _ in 0..times {
            // A packet that the interface or a router refuses is one that does not pass.
            if self.ask(run, sequence, bytes).is_err() {
                continue;
            }
            let until = self.elapsed() + each;
            while let Some(left) = until.checked_sub(self.elapsed()).filter(|left| !left.is_zero())
            {
                let is_it = |reply: &Reply| reply.header.sequence.get() == sequence;
                if let Some(reply) = self.receive(run, left)?.into_iter().find(is_it) {
                    return Ok(Some(reply));
                }
            }
        }
        Ok(None)
    }

    /// Waits for answers to questions of a run, and takes those that are there.
    pub fn receive(&mut self, run: Run, at_most: Duration) -> io::Result<Vec<Reply>> {
        self.endpoint.wait(Readiness::Readable, at_most)?;
        let mut replies = Vec::new();
        let mut arrivals = [Arrival::default()];
        loop {
            let room = &mut [IoSliceMut::new(&mut self.buffer)];
            match self.endpoint.receive(room, &mut arrivals) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(replies),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                taken => taken?,
            };
            let after = self.elapsed();
            for datagram in arrivals[0].datagrams(&self.buffer) {
                let Some((header, Kind::Answer)) = Header::parse(datagram) else { continue };
                let sent = Duration::from_nanos(header.sent_ns.get());
                let is_of_run = header.run.get() == run.id && arrivals[0].from == Some(run.to);
                if let Some(after) = after.checked_sub(sent).filter(|_| is_of_run) {
                    replies.push(Reply { header, after });
                }
            }
        }
    }

    /// Sends packets of a length that the peer counts, as fast as the interface takes them, for some time.
    pub fn burst(&mut self, run: Run, bytes: usize, lasting: Duration) -> io::Result<()> {
        let segments =
            if self.endpoint.cuts_sends() { (SEND_BYTES / bytes).clamp(1, 64) } else { 1 };
        let mut datagrams = vec![0; bytes * segments];
        for datagram in datagrams.chunks_mut(bytes) {
            self.write(datagram, run, Kind::Count, 0);
        }
        let segment_bytes = (segments > 1).then_some(bytes as u16);
        let message = Message { to: run.to, tos: 0, segment_bytes, parts: 0..1 };
        let until = self.elapsed() + lasting;
        while self.elapsed() < until {
            let parts = [IoSlice::new(&datagrams)];
            match self.endpoint.send(0, &parts, std::slice::from_ref(&message)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.endpoint.wait(Readiness::Writable(0), Duration::from_millis(5))?;
                }
                // The kernel passes on what an earlier packet met.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                sent => drop(sent?),
            }
        }
        Ok(())
    }

    fn write(&self, datagram: &mut [u8], run: Run, kind: Kind, sequence: u32) {
        let sent_ns = u64::try_from(self.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let header = Header::new(kind, run.id, sequence, sent_ns);
        datagram[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    }
}
