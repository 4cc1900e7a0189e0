//! Messages of ranks while they connect: four bytes of length, then text.

use std::io::{self, Read, Write};
use std::net::TcpStream;

/// Longest message.
const BYTES_MAX: usize = 64 << 10;

/// A connection that carries messages. It never waits when it reads.
pub struct Line {
    stream: TcpStream,
    received: Vec<u8>,
}

/// State of a line after a look at it.
#[derive(PartialEq, Eq, Debug)]
pub enum Received {
    /// No whole message yet.
    Nothing,
    /// A message.
    Message(String),
    /// The other end is gone.
    Gone(String),
}

impl Line {
    /// A line over a connection.
    pub fn new(stream: TcpStream) -> io::Result<Line> {
        stream.set_nonblocking(true)?;
        Ok(Line { stream, received: Vec::new() })
    }

    /// The next message.
    pub fn poll(&mut self) -> Received {
        let mut bytes = [0; 4_096];
        loop {
            match self.message() {
                Ok(Some(message)) => return Received::Message(message),
                Ok(None) => {}
                Err(text) => return Received::Gone(text),
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return Received::Gone("it closed the connection".into()),
                Ok(read) => self.received.extend_from_slice(&bytes[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Received::Nothing;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Received::Gone(error.to_string()),
            }
        }
    }

    /// The first whole message of those received.
    fn message(&mut self) -> Result<Option<String>, String> {
        let Some(length) = self.received.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > BYTES_MAX {
            return Err(format!("it sent a message of {length} bytes"));
        }
        if self.received.len() < 4 + length {
            return Ok(None);
        }
        let rest = self.received.split_off(4 + length);
        let message = std::mem::replace(&mut self.received, rest);
        Ok(Some(String::from_utf8_lossy(&message[4..]).into_owned()))
    }

    /// Sends a message. It is far shorter than the buffers of the kernel: a connection that does not take it is broken.
    pub fn send(&mut self, message: &str) -> io::Result<()> {
        let message = &message.as_bytes()[..message.len().min(BYTES_MAX)];
        let length = u32::try_from(message.len()).unwrap_or(0).to_le_bytes();
        self.stream.write_all(&[&length, message].concat())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn messages_arrive_whole_and_in_order() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut caller = Line::new(caller).unwrap();
        let mut host = Line::new(listener.accept().unwrap().0).unwrap();
        assert_eq!(host.poll(), Received::Nothing);
        caller.send("one").unwrap();
        caller.send(&"x".repeat(10_000)).unwrap();
        let mut received = Vec::new();
        while received.len() < 2 {
            match host.poll() {
                Received::Message(message) => received.push(message),
                Received::Nothing => {}
                Received::Gone(why) => panic!("{why}"),
            }
        }
        assert_eq!(received, ["one".to_owned(), "x".repeat(10_000)]);
        drop(caller);
        assert!(matches!(host.poll(), Received::Gone(_)));
    }
}
