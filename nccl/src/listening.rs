//! Sockets that wait for other ranks, and the first bytes of a connection.
#![expect(unsafe_code, reason = "random bytes come from the system")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};

use crate::abi::{HANDLE_BYTES, status};
use crate::device::device;
use crate::failure::Failure;
use crate::handle::{ADDRESS_BYTES, Handle, Kind, SECRET_BYTES, address_bytes, read_address};

/// Bytes that a caller sends first: the secret of the handle, its rank, and the address of its socket for flows.
pub const HELLO_BYTES: usize = SECRET_BYTES + 4 + ADDRESS_BYTES;
/// Time that a caller has for them.
const HELLO_LIMIT: Duration = Duration::from_secs(10);
/// Most callers that have not sent them yet. Of more, the oldest are turned away.
const STRANGERS_MAX: usize = 64;

/// A socket that other ranks connect to.
pub struct Listening {
    /// Purpose.
    pub kind: Kind,
    listener: TcpListener,
    secret: [u8; SECRET_BYTES],
    strangers: Mutex<Vec<Stranger>>,
}

/// A connection whose caller has shown the secret.
pub struct Caller {
    /// The connection.
    pub stream: TcpStream,
    /// Rank of the caller, where the handle is for sums.
    pub rank: u32,
    /// Socket of the caller for flows, where the handle is for those.
    pub socket: Option<SocketAddr>,
}

/// A connection whose caller has not shown the secret yet.
struct Stranger {
    stream: TcpStream,
    hello: [u8; HELLO_BYTES],
    received: usize,
    since: Instant,
}

/// NCCL forgets what listens if connecting fails, and closes it itself otherwise. So it gets a key, and a key that is
/// closed twice, or used after that, is merely unknown.
static OPEN: Mutex<BTreeMap<u64, Arc<Listening>>> = Mutex::new(BTreeMap::new());
static NEXT_KEY: AtomicU64 = AtomicU64::new(1);

/// Begins to listen. Writes the handle, and returns the key.
pub fn open(kind: Kind, handle: &mut [u8; HANDLE_BYTES]) -> Result<*mut c_void, Failure> {
    let address = device().address;
    if address.is_unspecified() {
        let name = device().name.to_string_lossy();
        let text =
            format!("there is no interface {name} with an IPv4 address: set THALWEG_INTERFACE");
        return Err(Failure::new(status::INVALID_USAGE, text));
    }
    let listener = TcpListener::bind((address, 0))
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(Failure::system(&format!("cannot listen at {address}")))?;
    let address = listener.local_addr().map_err(Failure::system("a socket has no address"))?;
    let secret = random().map_err(Failure::system("there are no random bytes"))?;
    Handle { kind, address, secret }.write(handle);
    let key = NEXT_KEY.fetch_add(1, Ordering::Relaxed);
    let listening = Listening { kind, listener, secret, strangers: Mutex::default() };
    lock(&OPEN).insert(key, Arc::new(listening));
    Ok(key as *mut c_void)
}

/// The socket of a key.
pub fn find(key: *mut c_void) -> Result<Arc<Listening>, Failure> {
    let found = lock(&OPEN).get(&(key as u64)).cloned();
    found.ok_or_else(|| Failure::argument("nothing listens any more"))
}

/// Ends listening.
pub fn close(key: *mut c_void) {
    lock(&OPEN).remove(&(key as u64));
}

impl Listening {
    /// Accepts a caller that has shown the secret, without waiting. `None` if there is no such caller yet.
    pub fn accept(&self) -> Result<Option<Caller>, Failure> {
        let mut strangers = lock(&self.strangers);
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if stream.set_nonblocking(true).is_ok() {
                        let hello = [0; HELLO_BYTES];
                        let since = Instant::now();
                        strangers.push(Stranger { stream, hello, received: 0, since });
                    }
                    if strangers.len() > STRANGERS_MAX {
                        strangers.remove(0);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // A caller that was gone again.
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(Failure::system("cannot accept a connection")(error)),
            }
        }
        let mut index = 0;
        while let Some(stranger) = strangers.get_mut(index) {
            match stranger.read() {
                Hello::Incomplete => index += 1,
                Hello::Gone => drop(strangers.remove(index)),
                Hello::Complete => {
                    let Stranger { stream, hello, .. } = strangers.remove(index);
                    let (secret, sent) = hello.split_at(SECRET_BYTES);
                    if secret == self.secret {
                        let (rank, socket) = sent.split_at(4);
                        let rank = u32::from_le_bytes(rank.try_into().unwrap_or_default());
                        let socket = socket.first_chunk().and_then(read_address);
                        return Ok(Some(Caller { stream, rank, socket }));
                    }
                }
            }
        }
        Ok(None)
    }
}

/// State of a caller's first bytes.
enum Hello {
    Incomplete,
    Complete,
    Gone,
}

impl Stranger {
    fn read(&mut self) -> Hello {
        while self.received < HELLO_BYTES {
            match self.stream.read(&mut self.hello[self.received..]) {
                Ok(0) => return Hello::Gone,
                Ok(read) => self.received += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let is_late = self.since.elapsed() > HELLO_LIMIT;
                    return if is_late { Hello::Gone } else { Hello::Incomplete };
                }
                Err(_) => return Hello::Gone,
            }
        }
        Hello::Complete
    }
}

/// The first bytes of a connection to a handle.
pub fn hello(
    secret: [u8; SECRET_BYTES],
    rank: u32,
    socket: Option<SocketAddr>,
) -> [u8; HELLO_BYTES] {
    let socket = socket.map_or([0; ADDRESS_BYTES], address_bytes);
    let mut hello = [0; HELLO_BYTES];
    hello[..SECRET_BYTES].copy_from_slice(&secret);
    hello[SECRET_BYTES..][..4].copy_from_slice(&rank.to_le_bytes());
    hello[SECRET_BYTES + 4..].copy_from_slice(&socket);
    hello
}

/// Has the kernel end an idle connection whose other host does not answer for this long.
// spec: N-06
pub fn watch(stream: &TcpStream, failure_after: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let probes = u32::try_from(failure_after.as_secs()).unwrap_or(u32::MAX).clamp(1, 100);
    let second = Duration::from_secs(1);
    let keepalive = TcpKeepalive::new().with_time(second).with_interval(second);
    socket.set_tcp_keepalive(&keepalive.with_retries(probes))
}

/// Random bytes.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: the memory is an array of this function, as long as the call is given.
    let written = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), N, 0) };
    if usize::try_from(written) == Ok(N) { Ok(bytes) } else { Err(io::Error::last_os_error()) }
}

fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

/// The value of a mutex, also after a panic.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
