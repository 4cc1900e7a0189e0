//! Reaction of a host to packets for a port: what a firewall lets through, and what listens behind it.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

/// Reaction to a packet for a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Something listens there and has answered.
    Answers,
    /// The host says that nothing listens there.
    Refused,
    /// Nothing came back: packets are dropped in between, or the host is down.
    Silent,
    /// This host has no route, or a router says that there is no such host.
    Unreachable,
}

/// Connects by TCP, and hangs up.
pub fn tcp(remote: SocketAddr, within: Duration) -> Reach {
    match TcpStream::connect_timeout(&remote, within) {
        Ok(_) => Reach::Answers,
        Err(error) => reaction(&error),
    }
}

/// Sends one UDP datagram, and waits for an answer or for a refusal.
#[expect(clippy::disallowed_methods, reason = "this is where sockets are made")]
pub fn udp(remote: SocketAddr, datagram: &[u8], within: Duration) -> io::Result<Reach> {
    let any: SocketAddr = if remote.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(any)?;
    socket.set_read_timeout(Some(within))?;
    // Errors of the path are reported to connected sockets only.
    let reached = socket.connect(remote).and_then(|()| socket.send(datagram));
    let answer = reached.and_then(|_| socket.recv(&mut [0; 1]));
    Ok(match answer {
        Ok(_) => Reach::Answers,
        Err(error) => reaction(&error),
    })
}

fn reaction(error: &io::Error) -> Reach {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Reach::Refused,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Reach::Unreachable,
        _ => Reach::Silent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Endpoint, EndpointConfig};

    const WITHIN: Duration = Duration::from_millis(200);

    #[test]
    fn a_closed_port_refuses_and_an_open_one_is_silent() {
        let endpoint = Endpoint::open(&EndpointConfig::default()).unwrap();
        let address = endpoint.local_address();
        assert_eq!(udp(address, b"anybody", WITHIN).unwrap(), Reach::Silent);
        // Nothing listens at that port by TCP.
        assert_eq!(tcp(address, WITHIN), Reach::Refused);
        drop(endpoint);
        assert_eq!(udp(address, b"anybody", WITHIN).unwrap(), Reach::Refused);
    }
}
