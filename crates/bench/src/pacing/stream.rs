//! A training as the network sees it: an ordinary TCP program that knows nothing of pacing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use clap::Args;
use serde_json::json;
use thalweg_console::{Failure, files};
use thalweg_control::pacing::since_epoch;

use crate::tools::{now, sleep};

/// Bytes of one write.
const CHUNK_BYTES: usize = 64 << 10;

/// Arguments of `thalweg bench-stream`.
#[derive(Args)]
pub struct StreamArguments {
    /// Address to send to
    #[arg(long)]
    to: SocketAddr,
    /// Bytes of an iteration; the receiver answers when it has them
    #[arg(long)]
    bytes: u64,
    /// Milliseconds before each iteration's bytes
    #[arg(long, default_value_t = 0)]
    compute_ms: u64,
    /// Number of iterations
    #[arg(long, default_value_t = 1)]
    iterations: u32,
    /// When to begin, in milliseconds since 1970
    #[arg(long, default_value_t = 0)]
    at_ms: u64,
}

/// Runs it; prints how long each iteration's bytes took.
#[expect(clippy::disallowed_methods, reason = "a benchmark runs over real connections")]
pub fn stream(arguments: &StreamArguments) -> Result<(), Failure> {
    let mut connection = TcpStream::connect(arguments.to).map_err(Failure::ran)?;
    connection.set_nodelay(true).map_err(Failure::ran)?;
    let start = Duration::from_millis(arguments.at_ms);
    sleep(start.saturating_sub(since_epoch()));
    let chunk = [0; CHUNK_BYTES];
    let (begin, mut times_ms) = (now(), Vec::new());
    for _ in 0..arguments.iterations {
        sleep(Duration::from_millis(arguments.compute_ms));
        let sending = now();
        connection.write_all(&arguments.bytes.to_be_bytes()).map_err(Failure::ran)?;
        let mut left = arguments.bytes;
        while left > 0 {
            let bytes = left.min(CHUNK_BYTES as u64);
            connection.write_all(&chunk[..bytes as usize]).map_err(Failure::ran)?;
            left -= bytes;
        }
        connection.read_exact(&mut [0]).map_err(Failure::ran)?;
        times_ms.push(sending.elapsed().as_millis() as u64);
    }
    let total_ms = begin.elapsed().as_millis() as u64;
    files::print(&format!("{}\n", json!({ "total_ms": total_ms, "times_ms": times_ms })))
}
