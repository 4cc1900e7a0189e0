//! TCP connections of the control channel.
//!
//! Both ends ask their kernel how long the other kernel has been silent. That, and a connection that closes, is all the
//! evidence there is of a death: nothing here looks at what the application sends.
// spec: E-01

use std::io::{self, IoSlice};
use std::net::{IpAddr, Shutdown};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use thalweg_core::Span;
use thalweg_net::fork::KeptFromChildren;
use thalweg_net::tcp;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tonic::Extensions;
use tonic::transport::server::{Connected, TlsConnectInfo};

use crate::caller::Holder;
use crate::clock::milliseconds;
use crate::service::Permit;

/// A connection that can be watched from elsewhere, and that ends with this process even if a child lives on.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Arc<OwnStream>,
}

/// The kernels of a connection, as long as it is open.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    stream: Weak<OwnStream>,
}

/// A stream that children of this process do not keep.
#[derive(Debug)]
struct OwnStream {
    /// Dropped before the stream.
    _kept: KeptFromChildren,
    stream: TcpStream,
    /// Of a connection that a service has taken in.
    permit: Option<Permit>,
}

impl Deref for OwnStream {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        &self.stream
    }
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> Connection {
        Connection::with(stream, None)
    }

    /// A connection that a service has taken in.
    pub(crate) fn admitted(stream: TcpStream, permit: Permit) -> Connection {
        Connection::with(stream, Some(permit))
    }

    fn with(stream: TcpStream, permit: Option<Permit>) -> Connection {
        // Merely faster.
        let _ = stream.set_nodelay(true);
        let _kept = KeptFromChildren::new(&stream);
        Connection { stream: Arc::new(OwnStream { _kept, stream, permit }) }
    }

    pub(crate) fn watch(&self) -> Watch {
        Watch { stream: Arc::downgrade(&self.stream) }
    }
}

impl Watch {
    /// Sizes the kernel's probes for a job. A system without them notices hosts that die by its own rules.
    pub(crate) fn set_failure_after(&self, failure_after: Span) {
        if let Some(stream) = self.stream.upgrade() {
            let _ = tcp::watch(&**stream, duration(failure_after));
        }
    }

    /// The address of the other end, of a connection that a service has taken in.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.stream.upgrade()?.permit.as_ref().map(|permit| permit.address)
    }

    /// A call of this holder has passed on the connection: it stays open from now on, unless its descriptor is kept for ranks that
    /// come back and the call is none of such a rank. Fails with the most connections that the holder may have, if it has them.
    // spec: E-12
    pub(crate) fn prove(&self, holder: Holder, is_back: bool) -> Result<(), usize> {
        let stream = self.stream.upgrade();
        let Some(permit) = stream.as_ref().and_then(|stream| stream.permit.as_ref()) else {
            return Ok(());
        };
        if permit.prove(holder, is_back) { Ok(()) } else { Err(permit.per_token()) }
    }

    /// Returns whether the connection has a descriptor that is kept for ranks that come back, and none has come on it.
    pub(crate) fn is_kept(&self) -> bool {
        let stream = self.stream.upgrade();
        let permit = stream.as_ref().and_then(|stream| stream.permit.as_ref());
        permit.is_some_and(Permit::is_kept)
    }

    /// Closes the connection unless a call has passed on it. Returns whether it did.
    pub(crate) fn close_if_unproven(&self) -> bool {
        let Some(stream) = self.stream.upgrade() else { return false };
        let is_mute = stream.permit.as_ref().is_some_and(|permit| !permit.is_proven());
        if is_mute {
            self.close();
        }
        is_mute
    }

    /// Closes the connection, whatever came on it before.
    pub(crate) fn close(&self) {
        if let Some(stream) = self.stream.upgrade() {
            // A connection that is closed already is what was wanted.
            let _ = SockRef::from(&**stream).shutdown(Shutdown::Both);
        }
    }

    /// Closes the connection after a time, unless a call has passed on it by then.
    pub(crate) fn close_unproven_after(&self, after: Duration) {
        let watch = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            watch.close_if_unproven();
        });
    }

    /// Returns how long the other kernel has been silent, if that is longer than `failure_after`.
    pub(crate) fn silence(&self, failure_after: Span) -> Option<Span> {
        let silence = tcp::silence(&**self.stream.upgrade()?).ok()?;
        let is_long = silence >= duration(failure_after).max(tcp::SILENCE_MIN);
        is_long.then(|| Span::from_ms(silence.as_millis() as u64))
    }
}

/// The connection of a request, encrypted or not.
pub(crate) fn watch_of(extensions: &Extensions) -> Watch {
    let encrypted = extensions.get::<TlsConnectInfo<Watch>>().map(TlsConnectInfo::get_ref);
    extensions.get::<Watch>().or(encrypted).cloned().unwrap_or_default()
}

fn duration(span: Span) -> Duration {
    Duration::from_millis(milliseconds(span))
}

impl Connected for Connection {
    type ConnectInfo = Watch;

    fn connect_info(&self) -> Watch {
        self.watch()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            match self.stream.try_read(buffer.initialize_unfilled()) {
                Ok(bytes) => {
                    buffer.advance(bytes);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&**self.stream).shutdown(Shutdown::Write))
    }
}

impl Connection {
    fn write(
        &self,
        context: &mut Context<'_>,
        attempt: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(context))?;
            match attempt(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }
}
