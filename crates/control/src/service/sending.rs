//! Bodies of answers that are counted until the connection has taken them, and those of streams, which are made here.
//!
//! HTTP/2 asks for the next part of a body while it keeps fewer than 400 KiB of a stream, if the peer announces a window as large.
//! Each part that it keeps drops its count with itself, when it was written or when the stream was reset.
// spec: E-12

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use http_body::Frame;
use tokio_stream::Stream;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, HeaderValue, Request, Response};
use tonic::codegen::{BoxFuture, Bytes};
use tonic::{Code, Status};
use tower::{Layer, Service};

use super::unread::{Answers, Unread};

/// Makes services count the bodies of answers that carry an [`Unread`], and send the messages of [`Messages`] as body.
#[derive(Clone, Debug)]
pub(super) struct CountAnswers;

/// A service whose answers are counted.
#[derive(Clone, Debug)]
pub(super) struct Counting<S>(S);

/// Messages that take the place of an answer's body. One of the clones has them.
#[derive(Clone)]
pub(super) struct Messages(Arc<Mutex<Option<Answers>>>);

/// A body of messages, and of the status at their end.
struct StreamBody {
    /// `None` once the status was sent.
    messages: Option<Answers>,
}

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
    if let Some(messages) = response.extensions_mut().remove::<Messages>() {
        response = response.map(|_| Body::new(StreamBody { messages: messages.take() }));
    }
    match response.extensions_mut().remove::<Unread>() {
        Some(unread) => response.map(|inner| Body::new(CountedBody { inner, unread })),
        None => response,
    }
}

impl Messages {
    pub(super) fn new(answers: Answers) -> Messages {
        Messages(Arc::new(Mutex::new(Some(answers))))
    }

    fn take(self) -> Option<Answers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl http_body::Body for StreamBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(messages) = &mut self.messages else { return Poll::Ready(None) };
        let frame = match ready!(Pin::new(messages).poll_next(context)) {
            Some(message) => Frame::data(message),
            None => {
                self.messages = None;
                let ended = HeaderValue::from(Code::Ok as i32);
                Frame::trailers(HeaderMap::from_iter([(Status::GRPC_STATUS, ended)]))
            }
        };
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.messages.is_none()
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
