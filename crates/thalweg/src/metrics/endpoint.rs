//! An HTTP server for metrics.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::{runtime, time};

use super::exposition::{Exposition, Kind};

/// The format of `/metrics`.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Connections at a time. More are closed at once.
const CONNECTIONS_MAX: usize = 64;

/// Connections at a time from one address, so that one host does not keep all others out.
const CONNECTIONS_PER_ADDRESS: usize = 16;

/// Time that a request may take to come in, and that a connection may be idle.
const REQUEST_WITHIN: Duration = Duration::from_secs(5);

/// Time that a connection may take in total: one that reads slowly holds its place no longer.
const CONNECTION_FOR: Duration = Duration::from_secs(60);

/// Pause after the system had no room for a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// An HTTP server for metrics, on a thread of its own, so that the data path never meets it. Stops when dropped.
pub struct Endpoint {
    local_address: SocketAddr,
    connections: Connections,
    /// Dropped to stop.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Serves the text of `source` at `/metrics`, followed by counts of the connections that the endpoint has closed, and
    /// `about` at `/`. Returns when it listens; binds to the
    /// address as it is, so that only a loopback address keeps other machines out.
    ///
    /// # Errors
    ///
    /// The error of the system if the address cannot be bound or a thread cannot be started.
    pub fn start(
        bind: SocketAddr,
        about: String,
        source: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> io::Result<Endpoint> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind(bind))?;
        let local_address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let connections = Connections::default();
        let router = router(about, source, connections.clone());
        let served = connections.clone();
        let body = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(listener, router, served) => {}
                    _ = stopped => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("thalweg-metrics".into()).spawn(body)?;
        Ok(Endpoint { local_address, connections, stop: Some(stop), thread: Some(thread) })
    }

    /// The address that it listens on.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// Number of connections that the endpoint has closed itself, by reason.
    #[doc(hidden)]
    pub fn closed(&self) -> [(&'static str, u64); 4] {
        self.connections.closed().named()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Endpoint").field(&self.local_address).finish()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A panic was printed by the thread itself.
            let _ = thread.join();
        }
    }
}

/// Serves until it is dropped. Nobody who connects can keep others out for long, or take the last descriptors.
// spec: E-12
async fn serve(listener: TcpListener, router: Router, connections: Connections) {
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            time::sleep(PAUSE).await;
            continue;
        };
        if let Some(open) = connections.admit(from.ip()) {
            tokio::spawn(answer_all(stream, router.clone(), open));
        }
    }
}

/// Connections that were closed by this end, by reason.
#[derive(Clone, Copy, Debug, Default)]
struct Closed {
    /// Connections beyond [`CONNECTIONS_MAX`].
    connections: u64,
    /// Connections beyond [`CONNECTIONS_PER_ADDRESS`].
    address: u64,
    /// Connections without a request within [`REQUEST_WITHIN`].
    idle: u64,
    /// Connections that were open for [`CONNECTION_FOR`].
    time: u64,
}

impl Closed {
    fn named(self) -> [(&'static str, u64); 4] {
        let Closed { connections, address, idle, time } = self;
        [("address", address), ("connections", connections), ("idle", idle), ("time", time)]
    }
}

/// Open connections by address, and those that were closed.
#[derive(Debug, Default)]
struct Counts {
    open: BTreeMap<IpAddr, usize>,
    closed: Closed,
}

/// The counts of connections, which all tasks share.
#[derive(Clone, Debug, Default)]
struct Connections(Arc<Mutex<Counts>>);

/// A connection that is counted until this is dropped.
struct Open {
    connections: Connections,
    address: IpAddr,
}

impl Connections {
    /// Counts a connection. `None` if there are too many, from its address or in total.
    fn admit(&self, address: IpAddr) -> Option<Open> {
        let is_admitted = self.change(|Counts { open, closed }| {
            let total: usize = open.values().sum();
            let own = open.get(&address).copied().unwrap_or(0);
            let has_room = total < CONNECTIONS_MAX && own < CONNECTIONS_PER_ADDRESS;
            if has_room {
                open.insert(address, own + 1);
            } else if total < CONNECTIONS_MAX {
                closed.address += 1;
            } else {
                closed.connections += 1;
            }
            has_room
        });
        if !is_admitted {
            return None;
        }
        Some(Open { connections: self.clone(), address })
    }

    fn closed(&self) -> Closed {
        self.change(|counts| counts.closed)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Counts) -> T) -> T {
        // Every change leaves the counts whole.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connections.change(|Counts { open, .. }| {
            let left = open.get(&self.address).map_or(0, |own| own.saturating_sub(1));
            match left {
                0 => open.remove(&self.address),
                left => open.insert(self.address, left),
            }
        });
    }
}

async fn answer_all(stream: TcpStream, router: Router, open: Open) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(REQUEST_WITHIN);
    let service = TowerToHyperService::new(router);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    match time::timeout(CONNECTION_FOR, connection).await {
        Err(_) => open.connections.change(|counts| counts.closed.time += 1),
        Ok(Err(error)) if error.is_timeout() => {
            open.connections.change(|counts| counts.closed.idle += 1);
        }
        // Any other end concerns the other end alone.
        Ok(_) => {}
    }
}

fn router(
    about: String,
    source: impl Fn() -> Option<String> + Send + Sync + 'static,
    connections: Connections,
) -> Router {
    let source = Arc::new(source);
    let metrics = move || {
        let answer = answer(source().map(|text| text + &exposition(connections.closed())));
        async move { answer }
    };
    let about = format!("{about}\n\nCounters for Prometheus and `thalweg top`: /metrics\n");
    Router::new().route("/metrics", get(metrics)).route("/", get(|| async move { about }))
}

/// Counts of connections that were closed, as part of the metrics of the process.
fn exposition(closed: Closed) -> String {
    let mut out = Exposition::default();
    let help = "Connections of readers of metrics that were closed, by reason.";
    out.family("thalweg_metrics_connections_closed_total", Kind::Counter, help);
    for (reason, count) in closed.named() {
        out.sample(&[("reason", reason)], count);
    }
    out.finish()
}

fn answer(exposition: Option<String>) -> Response {
    match exposition {
        Some(text) => ([(CONTENT_TYPE, EXPOSITION)], text).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "the data path has ended\n").into_response(),
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "real sockets, real time")]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Instant;

    use socket2::{Domain, Socket, Type};

    use super::*;

    fn endpoint() -> Endpoint {
        let bind = ([127, 0, 0, 1], 0).into();
        Endpoint::start(bind, "about".into(), || Some("a 1\n".into())).expect("a free port")
    }

    fn connect(endpoint: &Endpoint, last: u8) -> TcpStream {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::from(([127, 0, 0, last], 0)).into()).expect("loopback");
        socket.connect(&endpoint.local_address().into()).expect("it listens");
        socket.set_read_timeout(Some(REQUEST_WITHIN * 3)).expect("a socket");
        socket.into()
    }

    /// The answer to a reader at an address of loopback.
    fn fetch(endpoint: &Endpoint, last: u8) -> String {
        let mut stream = connect(endpoint, last);
        let request = b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        // It may have been closed at once.
        let _ = stream.write_all(request);
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text
    }

    // spec: E-12 sockets
    #[test]
    fn connections_that_ask_for_nothing_are_closed_and_others_are_served() {
        let endpoint = endpoint();
        let began = Instant::now();
        let mut slow: Vec<TcpStream> =
            (0..CONNECTIONS_PER_ADDRESS).map(|_| connect(&endpoint, 1)).collect();
        for stream in &mut slow {
            stream.write_all(b"GET /metrics HTT").expect("it reads");
        }
        assert!(fetch(&endpoint, 2).contains("\na 1\n"), "another address has connections left");
        assert!(began.elapsed() < REQUEST_WITHIN / 2, "at once");
        let mut refused = 0;
        while fetch(&endpoint, 1).is_empty() {
            refused += 1;
            assert!(began.elapsed() < REQUEST_WITHIN * 3, "nobody is served");
            std::thread::sleep(PAUSE);
        }
        assert!(began.elapsed() >= REQUEST_WITHIN / 2, "the address had none left before");
        let mut rest = Vec::new();
        // A connection ends with or without a line about the time.
        let _ = slow[0].read_to_end(&mut rest);
        let line = |reason: &str, count: usize| {
            format!("thalweg_metrics_connections_closed_total{{reason=\"{reason}\"}} {count}\n")
        };
        let idle = line("idle", CONNECTIONS_PER_ADDRESS);
        while !fetch(&endpoint, 2).contains(&idle) {
            assert!(began.elapsed() < REQUEST_WITHIN * 3, "all that are closed are counted");
            std::thread::sleep(PAUSE);
        }
        let text = fetch(&endpoint, 1);
        assert!(text.contains("\na 1\n"));
        let others = [line("address", refused), line("connections", 0), line("time", 0)];
        assert!(others.iter().all(|line| text.contains(line)), "{text}");
    }

    // spec: E-12 machine
    #[test]
    fn connections_are_counted_by_address_until_they_end() {
        let connections = Connections::default();
        let admit = |last| connections.admit([10, 0, 0, last].into());
        let mut open: Vec<Option<Open>> = (0..99).map(|_| admit(1)).collect();
        open.retain(Option::is_some);
        assert_eq!(open.len(), CONNECTIONS_PER_ADDRESS);
        open.extend((2..99).map(admit));
        open.retain(Option::is_some);
        assert_eq!(open.len(), CONNECTIONS_MAX, "all addresses together");
        let refused = 99 + 97 - CONNECTIONS_MAX as u64;
        let of_address = 99 - CONNECTIONS_PER_ADDRESS as u64;
        let counts = connections.closed().named().map(|(_, count)| count);
        assert_eq!(counts, [of_address, refused - of_address, 0, 0]);
        drop(open);
        assert!(connections.change(|counts| counts.open.is_empty()));
    }
}
