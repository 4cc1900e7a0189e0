//! TCP connections whose kernels are asked whether the other end still answers.
//!
//! A process that is stopped or busy does not answer, and yet its kernel acknowledges. So a kernel that is silent
//! tells a dead host from a slow process, which no message of the application can.
// spec: E-01

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use crate::sys;

/// Interval of the kernel's probes on an idle connection, the shortest there is.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// The shortest silence of a kernel that means something: two probes were not answered.
pub const SILENCE_MIN: Duration = Duration::from_secs(2);

/// Time beyond `failure_after` at which the kernel closes a connection by itself, should nobody look at it.
const CLOSE_MARGIN: Duration = Duration::from_secs(2);

/// Has the kernel probe the other end while the connection is idle, and give the connection up once the other end has
/// not answered for a little longer than `failure_after`.
pub fn watch(socket: &impl AsFd, failure_after: Duration) -> io::Result<()> {
    let socket = SockRef::from(socket);
    let close_after = failure_after.max(SILENCE_MIN) + CLOSE_MARGIN;
    let probes = u32::try_from(close_after.as_secs() + 1).unwrap_or(u32::MAX).min(100);
    let keepalive = TcpKeepalive::new().with_time(PROBE_EVERY).with_interval(PROBE_EVERY);
    socket.set_tcp_keepalive(&keepalive.with_retries(probes))?;
    socket.set_tcp_user_timeout(Some(close_after))
}

/// Returns the time since the kernel of the other end last acknowledged or sent something. On a connection that is
/// [watched](watch) it stays below [`SILENCE_MIN`] while that kernel lives.
pub fn silence(socket: &impl AsFd) -> io::Result<Duration> {
    let (data_ms, ack_ms) = sys::last_received_ms(socket.as_fd())?;
    Ok(Duration::from_millis(data_ms.min(ack_ms).into()))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "real sockets, real time")]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    // spec: E-01 sockets
    #[test]
    fn a_kernel_answers_for_a_process_that_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        watch(&near, Duration::from_secs(1)).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let idle = silence(&near).unwrap();
        assert!(idle >= Duration::from_millis(200), "{idle:?}");
        far.write_all(b"data").unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(silence(&near).unwrap() < Duration::from_millis(200), "data is an answer");
        near.write_all(b"data").unwrap();
        // Nobody reads at the far end, as in a process that is stopped.
        let mut longest = Duration::ZERO;
        for _ in 0..30 {
            std::thread::sleep(Duration::from_millis(100));
            longest = longest.max(silence(&near).unwrap());
        }
        assert!(longest < SILENCE_MIN, "{longest:?}");
        assert!(longest > Duration::from_millis(500), "it is the probes that are answered");
    }
}
