//! Calls without our client.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use thalweg_control::v1::control_client::ControlClient;
use thalweg_control::{Versions, v1};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

pub type Client = ControlClient<InterceptedService<Channel, Shown>>;

/// Shows a token with every call, which may be changed.
#[derive(Clone)]
pub struct Shown(Arc<Mutex<Option<MetadataValue<Ascii>>>>);

impl Shown {
    fn new(token: Option<&str>) -> Shown {
        let shown = token.map(|token| format!("Bearer {token}").parse().expect("printable ASCII"));
        Shown(Arc::new(Mutex::new(shown)))
    }
}

impl tonic::service::Interceptor for Shown {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &*self.0.lock().expect("no test thread panicked") {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

/// Connects with a token, or without.
pub async fn connect(address: SocketAddr, token: Option<&str>) -> Client {
    try_connect(address, token).await.expect("the service is there")
}

/// Connects, unless the service closes the connection at once.
pub async fn try_connect(address: SocketAddr, token: Option<&str>) -> Option<Client> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let channel = endpoint.connect().await.ok()?;
    Some(ControlClient::with_interceptor(channel, Shown::new(token)))
}

/// Connects with a token that can be changed later.
pub async fn connect_changing(
    address: SocketAddr,
    token: &str,
) -> (Client, Arc<Mutex<Option<MetadataValue<Ascii>>>>) {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let channel = endpoint.connect().await.expect("the service is there");
    let shown = Shown::new(Some(token));
    (ControlClient::with_interceptor(channel, shown.clone()), shown.0)
}

/// Largest window that HTTP/2 knows.
const WINDOW_MAX: u32 = (1 << 31) - 1;

/// A connection that announces the largest windows, and reads nothing once the flag is set.
pub async fn connect_deaf(address: SocketAddr, token: &str) -> (Client, Arc<AtomicBool>) {
    let is_deaf = Arc::new(AtomicBool::new(false));
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let endpoint =
        endpoint.initial_stream_window_size(WINDOW_MAX).initial_connection_window_size(WINDOW_MAX);
    let flag = Arc::clone(&is_deaf);
    let connector = tower::service_fn(move |_| {
        let is_deaf = Arc::clone(&flag);
        async move {
            let socket = TcpSocket::new_v4()?;
            // Kernels keep little as well.
            socket.set_recv_buffer_size(4 << 10)?;
            let stream = socket.connect(address).await?;
            Ok::<_, io::Error>(TokioIo::new(Deaf { stream, is_deaf }))
        }
    });
    let channel = endpoint.connect_with_connector(connector).await.expect("the service is there");
    (ControlClient::with_interceptor(channel, Shown::new(Some(token))), is_deaf)
}

/// A stream that nobody reads once it is deaf.
struct Deaf {
    stream: TcpStream,
    is_deaf: Arc<AtomicBool>,
}

impl AsyncRead for Deaf {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_deaf.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Deaf {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Talks to the service over a connection of its own.
pub fn raw<T>(address: SocketAddr, token: Option<&str>, talk: impl AsyncFnOnce(Client) -> T) -> T {
    block_on(async { talk(connect(address, token).await).await })
}

pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts").block_on(work)
}

/// A registration as our client would make it.
pub fn request(name: &str, workers: u32) -> v1::RegisterRequest {
    let Versions { control, wire } = Versions::OWN;
    v1::RegisterRequest {
        name: name.into(),
        workers,
        settings: Some(v1::Settings {
            numeric: Some(v1::Numeric { fixed: None }),
            recovery: v1::Recovery::Selective.into(),
            span_fragments: 4_096,
            sends_halves: true,
            operation_timeout_ms: 300_000,
            stall_after_ms: 5_000,
            failure_after_ms: 10_000,
            join_timeout_ms: 300_000,
            ..Default::default()
        }),
        resume: None,
        versions: Some(v1::Versions {
            control_oldest: control.oldest,
            control_newest: control.newest,
            wire_oldest: wire.oldest,
            wire_newest: wire.newest,
        }),
    }
}

/// A join of a rank, in a place of its own.
pub fn join(job: u64, rank: u32, port: u16) -> v1::Join {
    v1::Join {
        job,
        rank,
        node: 0x0001_0000 | u32::from(port),
        host: "raw".into(),
        life: port.into(),
        ..Default::default()
    }
}

/// A stream that begins with a join, and ends when the sender is dropped.
pub fn open_stream(
    join: v1::Join,
) -> (tokio::sync::mpsc::Sender<v1::FromRank>, ReceiverStream<v1::FromRank>) {
    let (sender, messages) = tokio::sync::mpsc::channel(1);
    let message = Some(v1::from_rank::Message::Join(join));
    sender.try_send(v1::FromRank { tree: 0, message }).expect("the queue is empty");
    (sender, ReceiverStream::new(messages))
}

/// A stream that begins with a join, and stays open.
pub fn stream_of(join: v1::Join) -> impl tokio_stream::Stream<Item = v1::FromRank> + Send {
    let message = Some(v1::from_rank::Message::Join(join));
    tokio_stream::StreamExt::chain(
        tokio_stream::once(v1::FromRank { tree: 0, message }),
        tokio_stream::pending(),
    )
}
