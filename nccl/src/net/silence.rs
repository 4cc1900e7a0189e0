//! Peers whose host no longer answers, while bytes wait to be sent.
//!
//! A receiver finds out by the kernel's keepalive probes, which stop while a sender has bytes that wait. The kernel's own
//! limit for those would also end a connection whose other process is slow, and a slow process is alive: NCCL may not
//! receive for minutes. So a sender looks at what the other kernel has answered.
// spec: N-06
#![expect(unsafe_code, reason = "the state of a connection comes from the C library")]

use std::mem::{MaybeUninit, size_of};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Unanswered packets in a row that make silence. One may have been sent a moment ago.
const UNANSWERED_MIN: u8 = 2;

/// Looks at a connection now and then.
pub struct Silence {
    limit: Duration,
    looked_at: Instant,
}

impl Silence {
    /// Looks for silence of this length.
    pub fn new(limit: Duration) -> Silence {
        Silence { limit, looked_at: Instant::now() }
    }

    /// Returns whether the other host is silent. Called while bytes wait to be sent.
    pub fn is_there(&mut self, stream: &TcpStream) -> bool {
        let now = Instant::now();
        if now.duration_since(self.looked_at) < LOOK_EVERY {
            return false;
        }
        self.looked_at = now;
        State::of(stream).is_some_and(|state| state.is_silent(self.limit))
    }
}

/// Answers of the other kernel.
#[derive(Clone, Copy, Debug)]
struct State {
    /// Retransmissions in a row that were not answered.
    retransmissions: u8,
    /// Probes in a row, of a receiver without room, that were not answered.
    probes: u8,
    /// Time since the last answer.
    since_answer: Duration,
}

impl State {
    fn of(stream: &TcpStream) -> Option<State> {
        let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
        let mut bytes = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).ok()?;
        // SAFETY: the kernel writes at most the stated length, and one length; a structure of numbers may be all zero.
        let (result, info) = unsafe {
            let file = stream.as_raw_fd();
            let at = info.as_mut_ptr().cast();
            let result =
                libc::getsockopt(file, libc::IPPROTO_TCP, libc::TCP_INFO, at, &raw mut bytes);
            (result, info.assume_init())
        };
        (result == 0).then(|| State {
            retransmissions: info.tcpi_retransmits,
            probes: info.tcpi_probes,
            since_answer: Duration::from_millis(info.tcpi_last_ack_recv.into()),
        })
    }

    fn is_silent(self, limit: Duration) -> bool {
        let unanswered = self.retransmissions.max(self.probes);
        unanswered >= UNANSWERED_MIN && self.since_answer >= limit
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_host_is_silent_when_it_answers_nothing_for_long() {
        let limit = Duration::from_secs(10);
        let state = |retransmissions, probes, seconds| State {
            retransmissions,
            probes,
            since_answer: Duration::from_secs(seconds),
        };
        assert!(state(5, 0, 11).is_silent(limit) && state(0, 3, 10).is_silent(limit));
        assert!(!state(5, 0, 9).is_silent(limit), "not for long");
        assert!(!state(0, 0, 600).is_silent(limit), "nothing was asked");
        assert!(!state(0, 1, 600).is_silent(limit), "a probe of a moment ago");
    }

    #[test]
    fn a_process_that_does_not_read_is_not_silent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _idle = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        while stream.write(&[0; 1 << 16]).is_ok() {}
        std::thread::sleep(Duration::from_millis(700));
        let state = State::of(&stream).expect("it is a connection");
        assert!(!state.is_silent(Duration::from_millis(300)), "{state:?}");
    }
}
