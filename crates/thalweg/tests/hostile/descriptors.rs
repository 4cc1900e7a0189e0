//! Connections that use up the descriptors of a server, beside ranks that join and ranks that come back (E-12).

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use thalweg_control::AttendConfig;

use crate::memory::{Rank, rank_of, token};
use crate::process::{Process, ROLE};

/// `ulimit -n` of the server, and what follows from it for one address and for one token.
const DESCRIPTORS: usize = 1_024;
const OWN_MAX: usize = 364;

const LIMIT: Duration = Duration::from_secs(30);

/// Time that an attacker waits for the answer to a call.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A server in a process that may have few descriptors.
fn server() -> (Process, SocketAddr) {
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new("sh");
    let script = format!("ulimit -n {DESCRIPTORS}; exec \"$0\" roles::child --exact --nocapture");
    let role = format!("server {} {} 1", 64_u64 << 20, 512_u64 << 20);
    command.args(["-c", &script]).arg(program).env(ROLE, &role);
    let process = Process::spawn(&role, command, None);
    let addresses = process.expect("at", LIMIT);
    let address = addresses.split(' ').next().and_then(|at| at.parse().ok());
    (process, address.expect("an address"))
}

/// A connection from an address of this machine.
fn connect(server: SocketAddr, from: Ipv4Addr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect(&server.into())?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    Ok(stream)
}

/// The bytes of a call over HTTP/2 that anybody with a token may make, on a connection of its own.
fn call(token: &str) -> Vec<u8> {
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let [_, length @ ..] = (payload.len() as u32).to_be_bytes();
        let mut frame = length.to_vec();
        frame.extend([kind, flags, 0, 0, 0, stream]);
        frame.extend(payload);
        frame
    };
    let text = |text: &str| {
        assert!(text.len() < 127, "longer ones have another form");
        let mut bytes = vec![text.len() as u8];
        bytes.extend(text.as_bytes());
        bytes
    };
    // POST and http, then names by their numbers in the table of HPACK: path, content-type, authorization.
    let fields = [
        [vec![0x83, 0x86, 0x04], text("/thalweg.v1.Control/Health")].concat(),
        [vec![0x0f, 0x10], text("application/grpc")].concat(),
        [vec![0x00], text("te"), text("trailers")].concat(),
        [vec![0x0f, 0x08], text(&format!("Bearer {token}"))].concat(),
    ];
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let (headers, data) = (frame(1, 4, 1, &fields.concat()), frame(0, 1, 1, &[0; 5]));
    [preface, frame(4, 0, 0, &[]), headers, data].concat()
}

/// Waits for the answer to a call, or for the end of the connection. Returns whether it was answered.
fn is_answered(mut stream: &TcpStream) -> bool {
    let mut head = [0; 9];
    while stream.read_exact(&mut head).is_ok() {
        let [a, b, c, kind, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        if stream.read_exact(&mut payload).is_err() {
            return false;
        }
        // Headers.
        if kind == 1 {
            return true;
        }
    }
    false
}

/// Connections of one tenant, which all have made a call that passed.
struct Tenant {
    server: SocketAddr,
    from: Ipv4Addr,
    call: Vec<u8>,
    open: Vec<TcpStream>,
}

impl Tenant {
    fn new(server: SocketAddr, from: u8, id: u64) -> Tenant {
        let (from, call) = (Ipv4Addr::new(127, 0, 0, from), call(&token(id, "m")));
        Tenant { server, from, call, open: Vec::new() }
    }

    /// Opens connections until this number in a row was not taken.
    fn take_all(&mut self, refusals: u32) {
        let mut refused = 0;
        while refused < refusals {
            let made = connect(self.server, self.from).and_then(|mut stream| {
                stream.write_all(&self.call)?;
                Ok(stream)
            });
            match made {
                Ok(stream) if is_answered(&stream) => {
                    self.open.push(stream);
                    // A call that is refused for the limit is answered, and its connection closed then.
                    refused = if self.open.len() > OWN_MAX { refused + 1 } else { 0 };
                }
                _ => refused += 1,
            }
            assert!(self.open.len() < 2 * DESCRIPTORS, "no limit holds");
        }
    }

    /// Returns the number of connections that the server has not closed.
    fn count(&mut self) -> usize {
        self.open.retain_mut(|stream| {
            stream.set_nonblocking(true).expect("a socket");
            loop {
                match stream.read(&mut [0; 256]) {
                    Ok(0) => return false,
                    Ok(_) => {}
                    Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
                }
            }
        });
        self.open.len()
    }
}

/// Waits until a tenant has no more connections than its own.
fn settle(tenant: &mut Tenant) {
    let end = Instant::now() + LIMIT;
    while tenant.count() > OWN_MAX {
        assert!(Instant::now() < end, "{} are open", tenant.open.len());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn rank(server: SocketAddr, id: u64, name: &str, at: (u32, u32)) -> Rank {
    Rank::start(rank_of(server, id, name, at))
}

// spec: E-12 sockets
#[test]
fn connections_of_one_tenant_leave_descriptors_for_others() {
    let (_process, server) = server();
    let mut tenant = Tenant::new(server, 66, 66);
    tenant.take_all(20);
    settle(&mut tenant);
    assert!(tenant.count() > OWN_MAX - 20, "{}", tenant.count());
    // The same token from another address, and another token from the same.
    let mut moved = Tenant::new(server, 67, 66);
    moved.take_all(5);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(moved.count(), 0, "its token has all that it may have");
    let ranks = [rank(server, 5, "honest", (2, 0)), rank(server, 5, "honest", (2, 1))];
    ranks.iter().for_each(Rank::answer);
    ranks.iter().for_each(|rank| drop(rank.adopt()));
}

/// Tenants that work together take all that connections may have. Jobs that run lose no rank by it.
// spec: E-12 sockets
#[test]
fn a_rank_comes_back_where_no_descriptors_are_left_for_new_ones() {
    let (mut process, server) = server();
    let ranks = [rank(server, 5, "honest", (2, 0)), rank(server, 5, "honest", (2, 1))];
    ranks.iter().for_each(Rank::answer);
    let [first, second] = ranks;
    first.adopt();
    drop(second);
    let mut tenants = [66, 67, 68].map(|at: u8| Tenant::new(server, at, at.into()));
    for tenant in &mut tenants {
        tenant.take_all(5);
    }
    let new = AttendConfig { life: 99, ..rank_of(server, 6, "new", (1, 0)) };
    let new = Rank::start(new).begin(Duration::from_secs(1));
    assert!(new.is_none(), "there is no room for another job");
    // Nor does it keep those out that come back.
    let second = rank(server, 5, "honest", (2, 1));
    second.stays_welcome(Duration::from_secs(4));
    assert_eq!(first.failure(), None);
    process.say("counts");
    let counts = process.expect("counts", LIMIT);
    let refused = |name: &str| {
        let count = counts.split(' ').find_map(|one| one.strip_prefix(name)?.strip_prefix('='));
        count.expect("it is counted").parse::<u64>().expect("a number")
    };
    assert!(refused("connections") + refused("mute") + refused("descriptors") > 0, "{counts}");
    let open: usize = tenants.iter_mut().map(Tenant::count).sum();
    assert!((600..DESCRIPTORS).contains(&open), "{open} connections are open");
}
