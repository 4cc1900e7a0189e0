//! The thread of all channels.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use thalweg_core::{JobId, Span, Time};
use thalweg_net::Driver;
use thalweg_net::fork::KeptFromChildren;

use super::link::{Fault, Link, LinkEvent};
use super::links::Links;
use super::{Direction, RequestMemory, State};
use crate::error::{self, Error};

/// Time between two looks at the connections.
const LOOK_EVERY: Span = Span::from_ms(100);
/// Longest sleep.
const NAP: Duration = Duration::from_millis(50);

/// Bytes of the last message over a connection: the number of messages that were received.
const COUNT_BYTES: usize = 8;

/// A command to the thread.
pub(super) enum Command {
    Open(JobId, Box<Link>, Opened),
    /// Begins a request.
    Begin(JobId, usize, RequestMemory),
    /// Closes a channel, and reports that its memory is not used any more.
    Close(JobId, Sender<()>),
    Stop,
}

/// A channel, as the thread has it.
pub(super) struct Opened {
    /// A child would hold the connection open when this process dies.
    _kept: KeptFromChildren,
    /// The connection over which the ends have met.
    pub line: TcpStream,
    pub direction: Direction,
    /// Address of the other end, for people.
    pub name: SocketAddr,
    pub state: Arc<State>,
}

impl Opened {
    pub fn new(
        line: TcpStream,
        direction: Direction,
        name: SocketAddr,
        state: Arc<State>,
    ) -> Opened {
        Opened { _kept: KeptFromChildren::new(&line), line, direction, name, state }
    }
}

/// The thread.
pub(super) struct Engine {
    driver: Driver<Links>,
    inbox: Receiver<Command>,
    channels: BTreeMap<JobId, Watched>,
    looked_at: Time,
}

/// A channel whose connection is looked at.
struct Watched {
    opened: Opened,
    /// Bytes of the last message of the other end.
    count: Vec<u8>,
    has_failed: bool,
}

/// The end of a connection.
struct Closed {
    /// Number of messages that the other end has received.
    received: u64,
    why: String,
}

impl Engine {
    pub fn new(driver: Driver<Links>, inbox: Receiver<Command>) -> Engine {
        let looked_at = driver.now();
        Engine { driver, inbox, channels: BTreeMap::new(), looked_at }
    }

    pub fn run(mut self) {
        let mut events = Vec::new();
        loop {
            while let Ok(command) = self.inbox.try_recv() {
                if matches!(command, Command::Stop) {
                    return;
                }
                self.obey(command, &mut events);
            }
            let turned = self.driver.turn(|event| events.push(event));
            self.take_in(&mut events);
            if self.driver.now().since(self.looked_at) >= LOOK_EVERY {
                self.looked_at = self.driver.now();
                self.look(&mut events);
            }
            let waited = match turned {
                Ok(turn) if turn.is_idle => self.driver.wait(NAP),
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = waited {
                let text = format!("messages cannot go on: {error}");
                return self.fail_all(&Error::caused(error::ErrorKind::System, text, error));
            }
        }
    }

    fn obey(&mut self, command: Command, events: &mut Vec<(JobId, LinkEvent)>) {
        let sink = |event| events.push(event);
        match command {
            Command::Open(job, link, opened) => {
                self.driver.command(|links, _| links.open(job, *link), sink);
                let watched = Watched { opened, count: Vec::new(), has_failed: false };
                self.channels.insert(job, watched);
            }
            Command::Begin(job, request, memory) => {
                self.driver.command(|links, now| links.begin(now, job, request, memory), sink);
            }
            Command::Close(job, done) => {
                let received = self.driver.command(|links, _| links.close(job), sink);
                if let Some(watched) = self.channels.remove(&job) {
                    watched.close(received);
                }
                // The caller may be gone.
                let _ = done.send(());
            }
            Command::Stop => {}
        }
    }

    fn take_in(&mut self, events: &mut Vec<(JobId, LinkEvent)>) {
        for (job, event) in events.drain(..) {
            let Some(watched) = self.channels.get_mut(&job) else { continue };
            match event {
                LinkEvent::Ended { request, bytes } => watched.opened.state.end(request, bytes),
                LinkEvent::Failed(fault) => watched.fail(&fault),
            }
        }
    }

    /// Looks at the connections of all channels: one that has closed ends its channel.
    fn look(&mut self, events: &mut Vec<(JobId, LinkEvent)>) {
        let look = |(job, watched): (&JobId, &mut Watched)| Some((*job, watched.look()?));
        let closed: Vec<(JobId, Closed)> = self.channels.iter_mut().filter_map(look).collect();
        for (job, Closed { received, why }) in closed {
            // What has arrived is no failure, although the acknowledgement is not here.
            let settle = |links: &mut Links, _| links.settle(job, received);
            self.driver.command(settle, |event| events.push(event));
            self.take_in(events);
            self.driver.command(|links, _| links.fail(job), |_| {});
            if let Some(watched) = self.channels.get_mut(&job) {
                watched.gone(&why);
            }
        }
    }

    fn fail_all(&mut self, error: &Error) {
        for watched in self.channels.values() {
            watched.opened.state.fail(error.clone());
        }
    }
}

impl Drop for Engine {
    /// A thread that ends without a command has failed, or panicked.
    fn drop(&mut self) {
        self.fail_all(&Error::internal("the thread of all channels has ended"));
    }
}

impl Watched {
    /// Reads what the other end has sent over the connection. Returns its end, if it is there.
    fn look(&mut self) -> Option<Closed> {
        let closed = |received, why: String| Some(Closed { received, why });
        while !self.has_failed {
            let mut bytes = [0; COUNT_BYTES + 1];
            match self.opened.line.read(&mut bytes) {
                Ok(0) => {
                    let received = self.count[..].try_into().map_or(0, u64::from_le_bytes);
                    return closed(received, "it closed the connection".into());
                }
                Ok(read) => self.count.extend(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return closed(0, error.to_string()),
            }
            if self.count.len() > COUNT_BYTES {
                return closed(0, Fault::Invalid.to_string());
            }
        }
        None
    }

    /// Closes the connection. A receiver sends how much it has.
    fn close(mut self, received: u64) {
        if self.opened.direction == Direction::Receiving && !self.has_failed {
            // Its buffer is empty. Where the other end is gone, nobody needs it.
            let _ = self.opened.line.write(&received.to_le_bytes());
        }
    }

    fn fail(&mut self, fault: &Fault) {
        match fault {
            Fault::TooLong { .. } => {
                self.has_failed = true;
                self.opened
                    .state
                    .fail(Error::new(error::ErrorKind::Disagreement, fault.to_string()));
            }
            Fault::Silent | Fault::Invalid => self.gone(&fault.to_string()),
        }
    }

    fn gone(&mut self, why: &str) {
        self.has_failed = true;
        let text = format!("the rank at {} is gone: {why}", self.opened.name);
        self.opened.state.fail(Error::new(error::ErrorKind::Peer, text));
    }
}
