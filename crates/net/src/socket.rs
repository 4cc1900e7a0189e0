//! A UDP socket that sends and receives many datagrams with one system call.
//!
//! With segmentation offload the kernel carries up to [`SEGMENTS_PER_SEND`] datagrams of one
//! destination and size as one, which costs a fifteenth of carrying them singly. Where the kernel
//! does not know it, the same calls carry single datagrams.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;

use crate::message::{Arrival, Message};
use crate::network::{PORTS_PER_NODE, SHARD_PORTS};
use crate::sys;
use crate::waker::Waker;

/// Most UDP payload of one send, whether one datagram or many: what an IPv4 packet has room for.
pub const SEND_BYTES: usize = 65_507;
/// Most datagrams of one send. Kernels before 6.9 refuse more.
pub const SEGMENTS_PER_SEND: usize = 64;

/// Use of the kernel's segmentation (GSO) and coalescing (GRO) of datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Offload {
    /// Wherever it can.
    #[default]
    Kernel,
    /// Never: every datagram travels alone.
    Plain,
}

/// Settings of an [`Endpoint`].
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// The address to bind. Loopback and a port of the kernel's choice by default: a node to be
    /// reached from elsewhere names another.
    pub bind: SocketAddr,
    /// Number of source ports to send from, beginning with that of `bind`: 1 to [`PORTS_PER_NODE`].
    /// With more than one, that has to be a multiple of [`PORTS_PER_NODE`], or 0 for a free block. 1
    /// by default.
    pub paths: u16,
    /// Use of segmentation offload.
    pub offload: Offload,
    /// Room for what arrives between two turns. A privileged process gets it as asked for, others
    /// as far as the system's limit allows. 4 MiB by default: 60 GSO batches, or 1 ms at 30 Gbps.
    pub receive_buffer_bytes: usize,
    /// Room for what the interface has not sent yet, of all paths together, limited likewise. 512 KiB by default: what is
    /// in there can no longer be reordered, so it is only as much as keeps an interface busy.
    pub send_buffer_bytes: usize,
}

impl Default for EndpointConfig {
    fn default() -> EndpointConfig {
        EndpointConfig {
            bind: (Ipv4Addr::LOCALHOST, 0).into(),
            paths: 1,
            offload: Offload::Kernel,
            receive_buffer_bytes: 4 << 20,
            send_buffer_bytes: 512 << 10,
        }
    }
}

/// Why an endpoint could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The address is taken, not of this host, or not allowed.
    #[error("cannot bind {address}: {source}; choose another address or port")]
    Bind {
        /// Address that was asked for.
        address: SocketAddr,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A port that no node of a [`Network`](crate::Network) can have, or too many paths.
    #[error(
        "port {port} with {paths} paths: choose a port that is a multiple of {PORTS_PER_NODE}, or 0 for \
         a free one, and 1 to {PORTS_PER_NODE} paths"
    )]
    Block {
        /// The first port.
        port: u16,
        /// Number of paths.
        paths: u16,
    },
    /// More cores than there are ports.
    #[error("{cores} cores from port {port} on: there are not enough ports, choose a lower port")]
    Shards {
        /// The first port.
        port: u16,
        /// The number of cores.
        cores: u16,
    },
    /// The kernel refuses something that every Linux since 4.0 allows.
    #[error("cannot set up a UDP socket ({step}): {source}")]
    Setup {
        /// Step that failed.
        step: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
}

/// Number of tries to find a free block of ports: with half of all blocks in use, one try in 2⁶⁴ fails.
const BLOCK_TRIES: u32 = 64;

/// A bound UDP socket, or one for each path, that never waits, except in [`Endpoint::wait`].
#[derive(Debug)]
pub struct Endpoint {
    /// One a path. What arrives, arrives at the first.
    sockets: Vec<Socket>,
    local_address: SocketAddr,
    cuts_sends: bool,
    joins_receives: bool,
}

/// Events to wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// Something to receive.
    Readable,
    /// Room to send on this path.
    Writable(u8),
}

impl Endpoint {
    /// Opens and binds sockets, and finds out once what the kernel can do.
    pub fn open(config: &EndpointConfig) -> Result<Endpoint, OpenError> {
        if config.paths == 1 {
            return Endpoint::open_at(config, config.bind);
        }
        Endpoint::open_block(config)
    }

    /// Opens and binds the ports of a node of a [`Network`](crate::Network): a block that begins at a
    /// multiple of [`PORTS_PER_NODE`].
    pub fn open_block(config: &EndpointConfig) -> Result<Endpoint, OpenError> {
        let (port, paths) = (config.bind.port(), config.paths);
        let is_right = port.is_multiple_of(PORTS_PER_NODE) && (1..=PORTS_PER_NODE).contains(&paths);
        if !is_right {
            return Err(OpenError::Block { port, paths });
        }
        if port > 0 {
            return Endpoint::open_at(config, config.bind);
        }
        // The kernel chooses a port; its block may be in use all the same.
        let mut tries = 0;
        loop {
            let probe =
                Endpoint::open_at(&EndpointConfig { paths: 1, ..config.clone() }, config.bind)?;
            let port = probe.local_address.port();
            drop(probe);
            let first = (port - port % PORTS_PER_NODE).max(PORTS_PER_NODE);
            match Endpoint::open_at(config, SocketAddr::new(config.bind.ip(), first)) {
                Err(OpenError::Bind { .. }) if tries < BLOCK_TRIES => tries += 1,
                result => return result,
            }
        }
    }

    /// Opens the nodes of a daemon on several cores: blocks of ports that are [`SHARD_PORTS`] apart.
    // spec: F-03
    pub fn open_shards(config: &EndpointConfig, cores: u16) -> Result<Vec<Endpoint>, OpenError> {
        let mut tries = if config.bind.port() == 0 { BLOCK_TRIES } else { 0 };
        loop {
            let first = Endpoint::open_block(config)?;
            match Endpoint::open_others(config, &first, cores) {
                Err(OpenError::Bind { .. } | OpenError::Shards { .. }) if tries > 0 => tries -= 1,
                others => return others.map(|others| [first].into_iter().chain(others).collect()),
            }
        }
    }

    fn open_others(
        config: &EndpointConfig,
        first: &Endpoint,
        cores: u16,
    ) -> Result<Vec<Endpoint>, OpenError> {
        let address = first.local_address;
        let port_of = |core: u16| {
            let ports = core.checked_mul(SHARD_PORTS);
            let port = ports.and_then(|ports| address.port().checked_add(ports));
            port.ok_or(OpenError::Shards { port: address.port(), cores })
        };
        let open = |core: u16| {
            let bind = SocketAddr::new(address.ip(), port_of(core)?);
            Endpoint::open_block(&EndpointConfig { bind, ..config.clone() })
        };
        (1..cores).map(open).collect()
    }

    fn open_at(config: &EndpointConfig, first: SocketAddr) -> Result<Endpoint, OpenError> {
        let wanted = config.offload == Offload::Kernel;
        let mut endpoint = Endpoint {
            sockets: Vec::new(),
            local_address: first,
            cuts_sends: wanted,
            joins_receives: wanted,
        };
        for path in 0..config.paths {
            let mut address = first;
            if path > 0 {
                address.set_port(first.port().saturating_add(path));
            }
            endpoint.add_socket(config, address)?;
        }
        Ok(endpoint)
    }

    fn add_socket(
        &mut self,
        config: &EndpointConfig,
        address: SocketAddr,
    ) -> Result<(), OpenError> {
        let domain = Domain::for_address(address);
        let socket =
            Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)).map_err(setup("open"))?;
        socket.set_nonblocking(true).map_err(setup("non-blocking mode"))?;
        if address.is_ipv6() {
            socket.set_only_v6(true).map_err(setup("IPv6 only"))?;
            socket.set_recv_tclass_v6(true).map_err(setup("receive traffic class"))?;
        } else {
            socket.set_recv_tos_v4(true).map_err(setup("receive type of service"))?;
        }
        forbid_fragments(&socket, address.is_ipv6()).map_err(setup("don't-fragment bit"))?;
        grow_buffers(&socket, config).map_err(setup("buffer sizes"))?;
        self.cuts_sends = self.cuts_sends && offers(&socket, libc::UDP_SEGMENT, 0);
        self.joins_receives = self.joins_receives && offers(&socket, libc::UDP_GRO, 1);
        let bound = socket.bind(&address.into()).and_then(|()| socket.local_addr());
        let bound = bound
            .and_then(|bound| bound.as_socket().ok_or(io::ErrorKind::AddrNotAvailable.into()))
            .map_err(|source| OpenError::Bind { address, source })?;
        if self.sockets.is_empty() {
            self.local_address = bound;
        }
        self.sockets.push(socket);
        Ok(())
    }

    /// Number of source ports it sends from.
    #[inline]
    pub fn paths(&self) -> u16 {
        self.sockets.len() as u16
    }

    /// The address it is bound to.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// Bytes that the kernel keeps for what arrives, and for what the interface has not sent yet.
    pub fn buffer_bytes(&self) -> io::Result<(usize, usize)> {
        let socket = &self.sockets[0];
        // The kernel doubles what it is asked for, to have room for its own records.
        Ok((socket.recv_buffer_size()? / 2, socket.send_buffer_size()? / 2))
    }

    /// True if a [`Message`] may hold several datagrams.
    pub fn cuts_sends(&self) -> bool {
        self.cuts_sends
    }

    /// True if an [`Arrival`] may hold several datagrams.
    pub fn joins_receives(&self) -> bool {
        self.joins_receives
    }

    /// From now on sends single datagrams: an interface turned out not to be able to cut.
    pub fn stop_cutting(&mut self) {
        self.cuts_sends = false;
    }

    /// Receives what is there, one arrival a buffer, and says how many buffers were filled. At most
    /// [`MESSAGES_PER_CALL`](crate::MESSAGES_PER_CALL).
    pub fn receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        arrivals: &mut [Arrival],
    ) -> io::Result<usize> {
        sys::receive_many(self.sockets[0].as_fd(), buffers, arrivals)
    }

    /// Sends messages from one of the source ports, in order, and says how many the kernel took, at most
    /// [`MESSAGES_PER_CALL`](crate::MESSAGES_PER_CALL). An error is that of the first one.
    pub fn send(&self, path: u8, parts: &[IoSlice<'_>], messages: &[Message]) -> io::Result<usize> {
        sys::send_many(self.sockets[usize::from(path)].as_fd(), parts, messages)
    }

    /// Sleeps until the socket is ready or the time is up. May end early.
    pub fn wait(&self, readiness: Readiness, at_most: Duration) -> io::Result<()> {
        match readiness {
            Readiness::Readable => self.wait_or_wake(true, None, None, at_most),
            Readiness::Writable(path) => self.wait_or_wake(false, Some(path), None, at_most),
        }
    }

    /// Waits until the socket is readable, or has room on the path that is given, or somebody wakes it, but not longer than
    /// `at_most`.
    pub(crate) fn wait_or_wake(
        &self,
        is_readable: bool,
        writable: Option<u8>,
        waker: Option<&Waker>,
        at_most: Duration,
    ) -> io::Result<()> {
        let readable = is_readable.then(|| self.sockets[0].as_fd());
        let writable = writable.map(|path| self.sockets[usize::from(path)].as_fd());
        let is_woken = sys::wait([readable, writable], waker.map(Waker::as_fd), at_most)?;
        if let Some(waker) = waker.filter(|_| is_woken) {
            waker.clear();
        }
        Ok(())
    }

    /// Sets the room for what the interface has not sent yet, of all paths together.
    // spec: F-07
    pub(crate) fn set_send_buffer_bytes(&self, bytes: usize) -> io::Result<()> {
        let bytes = bytes / self.sockets.len();
        self.sockets.iter().try_for_each(|socket| set_send_buffer(socket, bytes))
    }
}

/// The address that packets to `remote` leave from, with port 0. Sends nothing.
#[expect(clippy::disallowed_methods, reason = "this is where sockets are made")]
pub fn local_address_towards(remote: SocketAddr) -> io::Result<SocketAddr> {
    let any: SocketAddr = if remote.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(remote)?;
    let mut local = socket.local_addr()?;
    local.set_port(0);
    Ok(local)
}

fn setup(step: &'static str) -> impl FnOnce(io::Error) -> OpenError {
    move |source| OpenError::Setup { step, source }
}

/// Sets the don't-fragment bit of all that the socket sends. Of the two ways the kernel offers, this one keeps to the MTU
/// of the interface and not to what ICMP messages claim about the path: anybody can forge those, and what a path carries
/// is found by probes that are sealed.
// spec: F-01
fn forbid_fragments(socket: &Socket, is_ipv6: bool) -> io::Result<()> {
    let (level, name, value) = if is_ipv6 {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)
    } else {
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)
    };
    sys::set_option(socket.as_fd(), level, name, value)
}

/// Only privileged processes may exceed the system's limit; the others get what it allows.
fn grow_buffers(socket: &Socket, config: &EndpointConfig) -> io::Result<()> {
    forced(socket, libc::SO_RCVBUFFORCE, config.receive_buffer_bytes)
        .or_else(|_| socket.set_recv_buffer_size(config.receive_buffer_bytes))?;
    set_send_buffer(socket, config.send_buffer_bytes / usize::from(config.paths.max(1)))
}

fn set_send_buffer(socket: &Socket, bytes: usize) -> io::Result<()> {
    forced(socket, libc::SO_SNDBUFFORCE, bytes).or_else(|_| socket.set_send_buffer_size(bytes))
}

fn forced(socket: &Socket, name: i32, bytes: usize) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    sys::set_option(socket.as_fd(), libc::SOL_SOCKET, name, bytes)
}

fn offers(socket: &Socket, option: i32, value: i32) -> bool {
    sys::set_option(socket.as_fd(), libc::SOL_UDP, option, value).is_ok()
}
