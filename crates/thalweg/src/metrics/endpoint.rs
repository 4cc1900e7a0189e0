//! An HTTP server for metrics.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::oneshot;

/// The format of `/metrics`.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// An HTTP server for metrics, on a thread of its own, so that the data path never meets it. Stops when dropped.
pub struct Endpoint {
    local_address: SocketAddr,
    /// Dropped to stop.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Serves the text of `source` at `/metrics`, and `about` at `/`. Returns when it listens; binds to the
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
        let router = router(about, source);
        let body = move || {
            runtime.block_on(async {
                tokio::select! {
                    // It ends only when it is dropped.
                    _ = axum::serve(listener, router).into_future() => {}
                    _ = stopped => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("thalweg-metrics".into()).spawn(body)?;
        Ok(Endpoint { local_address, stop: Some(stop), thread: Some(thread) })
    }

    /// The address that it listens on.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
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

fn router(about: String, source: impl Fn() -> Option<String> + Send + Sync + 'static) -> Router {
    let source = Arc::new(source);
    let metrics = move || {
        let answer = answer(source());
        async move { answer }
    };
    let about = format!("{about}\n\nCounters for Prometheus and `thalweg top`: /metrics\n");
    Router::new().route("/metrics", get(metrics)).route("/", get(|| async move { about }))
}

fn answer(exposition: Option<String>) -> Response {
    match exposition {
        Some(text) => ([(CONTENT_TYPE, EXPOSITION)], text).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "the data path has ended\n").into_response(),
    }
}
