//! Bodies of answers that are counted until the connection has taken them.
//!
//! HTTP/2 asks for the next part of a body while it keeps fewer than 400 KiB of a stream, if the peer announces a window as large.
//! Each part that it keeps drops its count with itself, when it was written or when the stream was reset.
// spec: E-12

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::Frame;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::{BoxFuture, Bytes};
use tower::{Layer, Service};

use super::unread::Unread;

/// Makes services count the bodies of answers that carry an [`Unread`].
#[derive(Clone, Debug)]
pub(super) struct CountAnswers;

/// A service whose answers are counted.
#[derive(Clone, Debug)]
pub(super) struct Counting<S>(S);

/// A body that is counted.
struct CountedBody {
    inner: Body,
    unread: Unread,
}

/// A part of a body that is counted until this is dropped.
struct CountedBytes {
    bytes: Bytes,
    unread: Unread,
}

impl<S> Layer<S> for CountAnswers {
    type Service = Counting<S>;

    fn layer(&self, inner: S) -> Counting<S> {
        Counting(inner)
    }
}

impl<S> Service<Request<Body>> for Counting<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<Response<Body>, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answered = self.0.call(request);
        Box::pin(async move { answered.await.map(count) })
    }
}

fn count(mut response: Response<Body>) -> Response<Body> {
    match response.extensions_mut().remove::<Unread>() {
        Some(unread) => response.map(|inner| Body::new(CountedBody { inner, unread })),
        None => response,
    }
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        let unread = &self.unread;
        let counted = |bytes: Bytes| {
            unread.keep(bytes.len());
            Bytes::from_owner(CountedBytes { bytes, unread: unread.clone() })
        };
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(counted))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }
}

impl Drop for CountedBody {
    fn drop(&mut self) {
        self.unread.end();
    }
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.unread.release(self.bytes.len());
    }
}
