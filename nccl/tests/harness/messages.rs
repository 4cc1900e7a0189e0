//! Messages through the net interface.

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use crate::life::threads;
use crate::plugin::{Common, Library, Net, Object, SUCCESS};
use crate::world::{Rank, World};

/// Lengths of messages: none, odd ones, and longer than a socket's buffers.
const LENGTHS: [usize; 9] = [0, 1, 7, 4_095, 65_536, 131_073, 524_288, 1 << 20, 6 << 20];

/// Every version of the tables: a ring, in which every rank sends to the next.
// spec: N-01 sockets
pub fn all_versions(rank: &mut Rank) {
    for version in 8..=12 {
        let threads = threads();
        let library = Library::load();
        let net = library.net(version);
        net.device();
        let (sending, receiving) = ring(&net, rank);
        let mut region = vec![0; 1 << 16];
        let registration = net.register(sending, &mut region);
        exchange(&net, rank, (sending, receiving));
        flood(&net, (sending, receiving));
        refused(&net, receiving);
        net.deregister(sending, registration);
        rank.barrier();
        net.close_send(sending);
        net.close_receive(receiving);
        assert_eq!(self::threads(), threads, "no thread is left");
        net.finalize();
        library.unload();
    }
}

/// Receivers that are far slower than `failure_after`, as when a GPU is busy: they are alive.
// spec: N-06 sockets
pub fn slow(rank: &mut Rank) {
    let library = Library::load();
    let net = library.net(11);
    let (sending, receiving) = ring(&net, rank);
    // More than the buffers of the kernel take.
    let data = vec![7; 32 << 20];
    let send = begun(net.send(sending, &data));
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        assert_eq!(net.test(send), (SUCCESS, None), "nobody receives");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut room = vec![0; 32 << 20];
    let receive = begun(net.receive(receiving, 1, &mut room));
    let mut left = vec![send, receive];
    while !left.is_empty() {
        left.retain(|request| match net.test(*request) {
            (SUCCESS, done) => done.is_none(),
            (status, _) => panic!("status {status}"),
        });
    }
    assert!(room == data);
    rank.barrier();
    net.close_send(sending);
    net.close_receive(receiving);
    net.finalize();
}

/// Every rank receives a message and closes at once, before its sender has looked for the end of the request.
// spec: N-07 sockets
pub fn last(rank: &mut Rank) {
    let library = Library::load();
    let net = library.net(11);
    for bytes in [0, 100, 1 << 20] {
        let (sending, receiving) = ring(&net, rank);
        let (data, mut room) = (vec![3; bytes], vec![0; bytes]);
        let receive = begun(net.receive(receiving, 1, &mut room));
        let send = begun(net.send(sending, &data));
        // A transport without a thread sends while it is asked.
        let (mut has_sent, mut has_received) = (false, false);
        while !has_received {
            has_received = matches!(net.test(receive), (SUCCESS, Some(_)));
            has_sent = has_sent || bytes > 100 && matches!(net.test(send), (SUCCESS, Some(_)));
        }
        net.close_receive(receiving);
        rank.barrier();
        assert!(room == data);
        assert!(has_sent || wait(&net, send) == Ok(bytes), "the other rank has the message");
        net.close_send(sending);
        rank.barrier();
    }
    net.finalize();
}

/// Messages over flows.
pub fn over_flows(world: World) {
    world.set("THALWEG_NCCL_NET", "flows").run();
}

/// Rank 1 listens for TCP, and the others for flows.
pub fn mixed(world: World) {
    over_flows(world.set_at(1, "THALWEG_NCCL_NET", "tcp"));
}

/// Sets a short `failure_after`.
pub fn impatient(world: World) {
    world.set("THALWEG_FAILURE_AFTER", "1").run();
}

/// The same with messages over flows.
pub fn impatient_flows(world: World) {
    impatient(world.set("THALWEG_NCCL_NET", "flows"));
}

/// Connects to the next rank, and accepts the one before.
pub fn ring(net: &Net, rank: &Rank) -> (Object, Object) {
    let (handle, listening) = net.listen();
    let mut handles = rank.gather(&handle);
    // A stranger finds the port, and has not the secret.
    let port = u16::from_be_bytes([handle[10], handle[11]]);
    let mut stranger = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
    stranger.write_all(&[0x17; 64]).expect("it is accepted");
    let silent = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
    assert!(net.accept(listening).is_null(), "nobody has connected");
    // All have looked for a connection before one is made: at least one call has to be made again.
    rank.barrier();
    let next = &mut handles[(rank.rank + 1) % rank.ranks];
    let (mut sending, mut receiving) = (Object::NULL, Object::NULL);
    let limit = Instant::now() + Duration::from_secs(10);
    while sending.is_null() || receiving.is_null() {
        assert!(Instant::now() < limit, "not connected");
        if sending.is_null() {
            let (status, channel) = net.connect(next);
            assert_eq!(status, SUCCESS);
            sending = channel;
        }
        if receiving.is_null() {
            receiving = net.accept(listening);
        }
    }
    drop(silent);
    net.close_listen(listening);
    (sending, receiving)
}

/// Sends and receives messages of all lengths at a time. Receives are longer than the messages.
fn exchange(net: &Net, rank: &Rank, (sending, receiving): (Object, Object)) {
    let before = (rank.rank + rank.ranks - 1) % rank.ranks;
    let sent: Vec<Vec<u8>> = LENGTHS.iter().map(|length| message(rank.rank, *length)).collect();
    let mut received: Vec<Vec<u8>> = LENGTHS.iter().map(|length| vec![0x99; length + 5]).collect();
    let sends: Vec<Object> = sent.iter().map(|data| begun(net.send(sending, data))).collect();
    let receives: Vec<Object> =
        received.iter_mut().map(|data| begun(net.receive(receiving, 1, data))).collect();
    let mut requests: Vec<(Object, usize)> =
        sends.into_iter().chain(receives).zip(LENGTHS.into_iter().chain(LENGTHS)).collect();
    let limit = Instant::now() + Duration::from_secs(20);
    while !requests.is_empty() {
        assert!(Instant::now() < limit, "{} requests are left", requests.len());
        // The last ones first: NCCL may ask in any order.
        requests = requests
            .into_iter()
            .rev()
            .filter(|(request, length)| match net.test(*request) {
                (SUCCESS, Some(bytes)) => {
                    assert_eq!(bytes, *length, "the real size");
                    false
                }
                (status, done) => {
                    assert_eq!((status, done), (SUCCESS, None));
                    true
                }
            })
            .collect();
        requests.reverse();
    }
    for (data, length) in received.iter().zip(LENGTHS) {
        assert!(data[..length] == message(before, length), "a message of {length} bytes");
        assert!(data[length..].iter().all(|byte| *byte == 0x99), "behind the message");
    }
}

/// As many requests as there may be, and the next one is refused for now.
fn flood(net: &Net, (sending, receiving): (Object, Object)) {
    let data = vec![5; 2_000];
    let mut rooms = vec![vec![0; 2_000]; 33];
    let receives: Vec<_> = rooms.iter_mut().map(|room| net.receive(receiving, 1, room)).collect();
    let sends: Vec<_> = (0..33).map(|_| net.send(sending, &data)).collect();
    for requests in [receives, sends] {
        assert_eq!(requests[32], (SUCCESS, Object::NULL), "refused with 32 in flight");
        for (status, request) in &requests[..32] {
            assert!(*status == SUCCESS && !request.is_null());
            wait(net, *request).expect("it ends");
        }
    }
    assert!(rooms[..32].iter().all(|room| *room == data));
}

/// Several receives in one are more than a device takes.
fn refused(net: &Net, receiving: Object) {
    let mut room = vec![0; 16];
    assert_eq!(net.receive(receiving, 2, &mut room).0, 4, "an invalid argument");
}

/// Waits for a request. Returns its size, or the status of its failure.
pub fn wait(net: &Net, request: Object) -> Result<usize, i32> {
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        match net.test(request) {
            (SUCCESS, Some(bytes)) => return Ok(bytes),
            (SUCCESS, None) => assert!(Instant::now() < limit, "a request has not ended"),
            (status, _) => return Err(status),
        }
    }
}

fn begun((status, request): (i32, Object)) -> Object {
    assert!(status == SUCCESS && !request.is_null(), "status {status}");
    request
}

fn message(rank: usize, length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 31 + rank * 7 + index / 251) as u8).collect()
}
