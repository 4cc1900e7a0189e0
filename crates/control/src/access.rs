//! Access to a service.

use std::error::Error;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fs, io};

use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;
use tonic::codegen::http::Uri;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};

use crate::connection::{Connection, Watch};
use crate::v1::control_client::ControlClient;
use crate::v1::pacing_client::PacingClient;

/// Time that a connection may take to be opened.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// Bytes that the other end may send before they are read. Less than a kernel buffers, so that a process that is stopped
/// does not close the window of TCP, which a kernel takes for a peer that no longer answers.
pub(crate) const WINDOW_BYTES: u32 = 65_535;

/// Address of a service, and what it asks for.
#[derive(Clone, Debug)]
pub struct Access {
    /// Host and port.
    pub endpoint: String,
    /// The token, if it wants one.
    pub token: Option<String>,
    /// The certificate of the authority that signed the service's: then the connection is encrypted.
    pub tls_ca: Option<PathBuf>,
}

/// Why a service cannot even be tried.
#[derive(Debug, Error)]
pub enum AccessError {
    /// No address.
    #[error("{endpoint:?} is no address: give host:port")]
    Endpoint {
        /// The text that was given.
        endpoint: String,
    },
    /// A token that no header can carry.
    #[error("the token has characters that no header carries: use printable ASCII")]
    Token,
    /// An unreadable file.
    #[error("{path:?} cannot be read: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: std::io::Error,
    },
    /// An invalid certificate.
    #[error("{path:?} is no certificate: {reason}")]
    Certificate {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
}

/// A service that can be tried.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    endpoint: Endpoint,
    bearer: Bearer,
}

/// A client that shows its token.
pub(crate) type Client = ControlClient<InterceptedService<Channel, Bearer>>;

/// The same for load tables.
pub(crate) type PacingCaller = PacingClient<InterceptedService<Channel, Bearer>>;

/// Adds the token to every request.
#[derive(Clone, Debug)]
pub(crate) struct Bearer(Option<MetadataValue<Ascii>>);

impl Access {
    /// Checks everything that can be checked here.
    pub(crate) fn door(&self) -> Result<Door, AccessError> {
        let wrong = || AccessError::Endpoint { endpoint: self.endpoint.clone() };
        let scheme = if self.tls_ca.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{}", self.endpoint));
        let mut endpoint = endpoint
            .map_err(|_| wrong())?
            .connect_timeout(CONNECT_WITHIN)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES);
        if endpoint.uri().port().is_none() {
            return Err(wrong());
        }
        if let Some(path) = &self.tls_ca {
            let pem = fs::read(path)
                .map_err(|reason| AccessError::File { path: path.clone(), reason })?;
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
            endpoint = endpoint.tls_config(tls).map_err(|error| AccessError::Certificate {
                path: path.clone(),
                reason: chain(&error),
            })?;
        }
        let bearer = |token: &String| format!("Bearer {token}").parse();
        let bearer = self.token.as_ref().map(bearer).transpose();
        Ok(Door { endpoint, bearer: Bearer(bearer.map_err(|_| AccessError::Token)?) })
    }
}

impl Door {
    /// Tries it. The connection that was opened can be watched.
    pub(crate) async fn open(&self) -> Result<(Client, Watch), tonic::transport::Error> {
        let opened = Arc::new(Mutex::new(Watch::default()));
        let place = Arc::clone(&opened);
        let connector = tower::service_fn(move |uri: Uri| connect(uri, Arc::clone(&place)));
        let channel = self.endpoint.connect_with_connector(connector).await?;
        let watch = opened.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok((ControlClient::with_interceptor(channel, self.bearer.clone()), watch))
    }

    /// Tries it for load tables, which are given up sooner than a job: pacing goes on without them.
    pub(crate) async fn open_pacing(&self) -> Result<PacingCaller, tonic::transport::Error> {
        let endpoint = self.endpoint.clone().tcp_nodelay(true);
        let endpoint = endpoint
            .http2_keep_alive_interval(Duration::from_secs(2))
            .keep_alive_timeout(Duration::from_secs(3))
            .keep_alive_while_idle(true);
        let channel = endpoint.connect().await?;
        Ok(PacingClient::with_interceptor(channel, self.bearer.clone()))
    }
}

async fn connect(uri: Uri, opened: Arc<Mutex<Watch>>) -> io::Result<TokioIo<Connection>> {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, uri.port_u16().unwrap_or_default())).await?;
    let connection = Connection::new(stream);
    *opened.lock().unwrap_or_else(PoisonError::into_inner) = connection.watch();
    Ok(TokioIo::new(connection))
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(bearer) = &self.0 {
            request.metadata_mut().insert("authorization", bearer.clone());
        }
        Ok(request)
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut texts = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        texts.push(error.to_string());
        cause = error.source();
    }
    texts.dedup();
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_refused_before_it_is_tried() {
        let text = |endpoint: &str, token: Option<&str>, tls_ca: Option<&str>| {
            let access = Access {
                endpoint: endpoint.into(),
                token: token.map(String::from),
                tls_ca: tls_ca.map(PathBuf::from),
            };
            access.door().map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(text("localhost:4800", Some("secret"), None), Ok(()));
        let no_port = "\"localhost\" is no address: give host:port";
        assert_eq!(text("localhost", None, None), Err(no_port.into()));
        assert!(text("two words:1", None, None).is_err());
        assert!(text("localhost:1", Some("new\nline"), None).unwrap_err().contains("printable"));
        let missing = text("localhost:1", None, Some("/nowhere/ca.pem")).unwrap_err();
        assert!(missing.starts_with("\"/nowhere/ca.pem\" cannot be read"), "{missing}");
    }
}
