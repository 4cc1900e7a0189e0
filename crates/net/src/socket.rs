//! A UDP socket that sends and receives many datagrams with one system call.
//!
//! With segmentation offload the kernel carries up to [`SEGMENTS_PER_SEND`] datagrams of one
//! destination and size as one, which costs a fifteenth of carrying them singly. Where the kernel
//! does not know it, the same calls carry single datagrams.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;

use crate::message::{Arrival, Message};
use crate::sys;
use crate::waker::Waker;

/// Most UDP payload of one send, whether one datagram or many: what an IPv4 packet has room for.
pub const SEND_BYTES: usize = 65_507;
/// Most datagrams of one send. Kernels before 6.9 refuse more.
pub const SEGMENTS_PER_SEND: usize = 64;

/// Whether the kernel is asked to cut and join datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Offload {
    /// Wherever it can.
    #[default]
    Kernel,
    /// Never: every datagram travels alone.
    Plain,
}

/// How to open an [`Endpoint`].
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// The address to bind. Loopback and a port of the kernel's choice by default: who wants to be
    /// reached from elsewhere says so.
    pub bind: SocketAddr,
    /// Whether to use segmentation offload.
    pub offload: Offload,
    /// Room for what arrives between two turns. A privileged process gets it as asked for, others
    /// as far as the system's limit allows. 4 MiB by default: 60 super-packets, or 1 ms at 30 Gbps.
    pub receive_buffer_bytes: usize,
    /// Room for what the interface has not sent yet, limited likewise. 512 KiB by default: what is
    /// in there can no longer be reordered, so it is only as much as keeps an interface busy.
    pub send_buffer_bytes: usize,
}

impl Default for EndpointConfig {
    fn default() -> EndpointConfig {
        EndpointConfig {
            bind: (Ipv4Addr::LOCALHOST, 0).into(),
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
        /// What was asked for.
        address: SocketAddr,
        /// What the kernel says.
        source: io::Error,
    },
    /// The kernel refuses something that every Linux since 4.0 allows.
    #[error("cannot set up a UDP socket ({step}): {source}")]
    Setup {
        /// What was tried.
        step: &'static str,
        /// What the kernel says.
        source: io::Error,
    },
}

/// A bound UDP socket that never waits, except in [`Endpoint::wait`].
#[derive(Debug)]
pub struct Endpoint {
    socket: Socket,
    local_address: SocketAddr,
    cuts_sends: bool,
    joins_receives: bool,
}

/// What to wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// Something to receive.
    Readable,
    /// Room to send.
    Writable,
}

impl Endpoint {
    /// Opens and binds a socket, and finds out once what the kernel can do.
    pub fn open(config: &EndpointConfig) -> Result<Endpoint, OpenError> {
        let domain = Domain::for_address(config.bind);
        let socket =
            Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)).map_err(setup("open"))?;
        socket.set_nonblocking(true).map_err(setup("non-blocking mode"))?;
        if config.bind.is_ipv6() {
            socket.set_only_v6(true).map_err(setup("IPv6 only"))?;
            socket.set_recv_tclass_v6(true).map_err(setup("receive traffic class"))?;
        } else {
            socket.set_recv_tos_v4(true).map_err(setup("receive type of service"))?;
        }
        grow_buffers(&socket, config).map_err(setup("buffer sizes"))?;
        let wanted = config.offload == Offload::Kernel;
        let cuts_sends = wanted && offers(&socket, libc::UDP_SEGMENT, 0);
        let joins_receives = wanted && offers(&socket, libc::UDP_GRO, 1);
        let bound = socket.bind(&config.bind.into()).and_then(|()| socket.local_addr());
        let local_address = bound
            .and_then(|address| address.as_socket().ok_or(io::ErrorKind::AddrNotAvailable.into()))
            .map_err(|source| OpenError::Bind { address: config.bind, source })?;
        Ok(Endpoint { socket, local_address, cuts_sends, joins_receives })
    }

    /// The address it is bound to.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// Whether a [`Message`] may hold several datagrams.
    pub fn cuts_sends(&self) -> bool {
        self.cuts_sends
    }

    /// Whether an [`Arrival`] may hold several datagrams.
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
        sys::receive_many(self.socket.as_fd(), buffers, arrivals)
    }

    /// Sends messages in order and says how many the kernel took, at most
    /// [`MESSAGES_PER_CALL`](crate::MESSAGES_PER_CALL). An error is that of the first one.
    pub fn send(&self, parts: &[IoSlice<'_>], messages: &[Message]) -> io::Result<usize> {
        sys::send_many(self.socket.as_fd(), parts, messages)
    }

    /// Sleeps until the socket is ready or the time is up. May end early.
    pub fn wait(&self, readiness: Readiness, at_most: Duration) -> io::Result<()> {
        self.wait_or_wake(Some(readiness), None, at_most)
    }

    /// As [`Endpoint::wait`], but a wake-up ends it too, and without a readiness the socket does not.
    pub(crate) fn wait_or_wake(
        &self,
        readiness: Option<Readiness>,
        waker: Option<&Waker>,
        at_most: Duration,
    ) -> io::Result<()> {
        let socket = readiness.map(|readiness| match readiness {
            Readiness::Readable => (self.socket.as_fd(), libc::POLLIN),
            Readiness::Writable => (self.socket.as_fd(), libc::POLLOUT),
        });
        let is_woken = sys::wait(socket, waker.map(Waker::as_fd), at_most)?;
        if let Some(waker) = waker.filter(|_| is_woken) {
            waker.clear();
        }
        Ok(())
    }
}

fn setup(step: &'static str) -> impl FnOnce(io::Error) -> OpenError {
    move |source| OpenError::Setup { step, source }
}

/// Only privileged processes may exceed the system's limit; the others get what it allows.
fn grow_buffers(socket: &Socket, config: &EndpointConfig) -> io::Result<()> {
    let forced = |name, bytes: usize| {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        sys::set_option(socket.as_fd(), libc::SOL_SOCKET, name, bytes)
    };
    forced(libc::SO_RCVBUFFORCE, config.receive_buffer_bytes)
        .or_else(|_| socket.set_recv_buffer_size(config.receive_buffer_bytes))?;
    forced(libc::SO_SNDBUFFORCE, config.send_buffer_bytes)
        .or_else(|_| socket.set_send_buffer_size(config.send_buffer_bytes))
}

fn offers(socket: &Socket, option: i32, value: i32) -> bool {
    sys::set_option(socket.as_fd(), libc::SOL_UDP, option, value).is_ok()
}
