//! The library, loaded as NCCL loads it. A call that fails where NCCL's part expects success ends the test.
#![expect(unsafe_code, reason = "memory is lent to requests")]

use std::ops::Deref;
use std::sync::Mutex;

use thalweg_plugin::{CallError, Costs, Interface, log};

pub use thalweg_plugin::{BF16, F16, F32, Handle, Object, SUCCESS};

use crate::world::library;

pub const REMOTE: i32 = 6;

/// Lines that the library has logged: level and text.
static LOGGED: Mutex<Vec<(i32, String)>> = Mutex::new(Vec::new());

fn on_line(level: i32, text: &str) {
    eprintln!("[{}] {level} {text}", std::process::id());
    let fatal = std::env::var("HARNESS_DIES_AT");
    if fatal.is_ok_and(|fatal| text.contains(&fatal)) {
        die();
    }
    LOGGED.lock().expect("nobody panics with it").push((level, text.to_owned()));
}

/// Ends this process as a crash does.
pub fn die() -> ! {
    // SAFETY: a signal to this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    unreachable!("nobody survives it");
}

/// Warnings so far that have a text.
pub fn warnings_with(text: &str) -> usize {
    let logged = LOGGED.lock().expect("nobody panics with it");
    logged.iter().filter(|(level, line)| *level == log::WARN && line.contains(text)).count()
}

/// The status of a call, and its result or nothing.
fn with_status(result: Result<Object, CallError>) -> (i32, Object) {
    match result {
        Ok(object) => (SUCCESS, object),
        Err(CallError::Status { status, .. }) => (status, Object::NULL),
        Err(error) => panic!("{error}"),
    }
}

/// The loaded library.
pub struct Library(thalweg_plugin::Library);

impl Library {
    pub fn load() -> Library {
        log::listen(on_line);
        Library(thalweg_plugin::Library::load(&library()).unwrap())
    }

    pub fn unload(self) {
        self.0.unload().unwrap();
    }

    pub fn coll(&self, version: u32) -> Coll {
        Coll(self.0.coll(version).unwrap(), version)
    }

    pub fn net(&self, version: u32) -> Net {
        Net(self.0.net(version).unwrap(), version)
    }

    pub fn tuner(&self, version: u32, nodes: usize) -> Tuner {
        Tuner(self.0.tuner(version, nodes).unwrap())
    }
}

/// Name of the only device; checks its properties, and that nothing is written behind them.
fn device(interface: &Interface, version: u32) -> String {
    assert_eq!(interface.plugin_name(), "thalweg");
    assert_eq!(interface.devices(), Ok(1));
    assert!(interface.properties(1).is_err(), "there is one device");
    let properties = interface.properties(0).unwrap();
    let bytes = properties.bytes;
    let size = match version {
        8 => 64,
        9 | 10 => 104,
        11 => 112,
        _ => 128,
    };
    // The last bytes may be padding, which a copy of a structure leaves as it is.
    assert!(bytes[size..].iter().all(|byte| *byte == 0xaa), "behind {size} bytes");
    let int = |at: usize| i32::from_le_bytes(*bytes[at..].first_chunk().unwrap());
    assert_eq!(int(24), 1, "memory of the host");
    assert!(properties.speed_mbps > 0, "a speed");
    let speed_at = if version == 8 { 32 } else { 36 };
    assert_eq!(int(speed_at), properties.speed_mbps);
    assert_eq!(int(speed_at + 16), 1, "one receive at a time");
    if version > 8 {
        let largest = if version == 12 { 104 } else { 88 };
        assert_eq!((int(64), int(largest), int(largest + 8)), (1, 1 << 30, 1 << 30));
    }
    if version == 12 {
        assert_eq!(bytes[124..128], [0xff; 4], "no rail and no plane");
    }
    properties.name
}

/// Calls that net and CollNet have in the same slots.
pub trait Common: Deref<Target: Deref<Target = Interface>> {
    fn version(&self) -> u32;

    fn device(&self) -> String {
        device(self, self.version())
    }

    fn listen(&self) -> (Handle, Object) {
        let (handle, listening) = Interface::listen(self).unwrap();
        assert!(!listening.is_null());
        (handle, listening)
    }

    fn register(&self, comm: Object, memory: &mut [u8]) -> Object {
        assert!(Interface::register(self, comm, memory, 2).is_err(), "CUDA");
        Interface::register(self, comm, memory, 1).unwrap()
    }

    fn deregister(&self, comm: Object, registration: Object) {
        Interface::deregister(self, comm, registration).unwrap();
    }

    /// The status, and the number of bytes of a request that has ended.
    fn test(&self, request: Object) -> (i32, Option<usize>) {
        match Interface::test(self, request) {
            Ok(bytes) => (SUCCESS, bytes),
            Err(CallError::Status { status, .. }) => (status, None),
            Err(error) => panic!("{error}"),
        }
    }

    fn close_listen(&self, listening: Object) {
        Interface::close_listen(self, listening).unwrap();
    }
}

/// The CollNet interface.
pub struct Coll(thalweg_plugin::Coll, u32);

impl Deref for Coll {
    type Target = thalweg_plugin::Coll;

    fn deref(&self) -> &thalweg_plugin::Coll {
        &self.0
    }
}

impl Common for Coll {
    fn version(&self) -> u32 {
        self.1
    }
}

impl Coll {
    /// The status, and the communicator.
    pub fn connect(&self, handles: &[Vec<u8>], rank: usize, listening: Object) -> (i32, Object) {
        let (status, comm) = with_status(self.0.connect(handles, rank, listening));
        assert_eq!(status == SUCCESS, !comm.is_null(), "a communicator comes with success alone");
        (status, comm)
    }

    pub fn supports(&self, data_type: i32, operation: i32) -> bool {
        self.0.supports(data_type, operation).unwrap()
    }

    /// The status, and the request. Callers keep the memory until it has ended.
    pub fn all_reduce(
        &self,
        comm: Object,
        places: (*const u8, *mut u8),
        count: usize,
        data_type: i32,
    ) -> (i32, Object) {
        // SAFETY: the callers'.
        with_status(unsafe { self.0.all_reduce(comm, places, count, data_type) })
    }

    pub fn close_coll(&self, comm: Object) {
        self.0.close_coll(comm).unwrap();
    }

    pub fn finalize(self) {
        self.0.finalize().unwrap();
    }
}

/// The net interface.
pub struct Net(thalweg_plugin::Net, u32);

impl Deref for Net {
    type Target = thalweg_plugin::Net;

    fn deref(&self) -> &thalweg_plugin::Net {
        &self.0
    }
}

impl Common for Net {
    fn version(&self) -> u32 {
        self.1
    }
}

impl Net {
    /// One attempt to connect: the status, and the connection or null.
    pub fn connect(&self, handle: &mut [u8]) -> (i32, Object) {
        with_status(self.0.connect(handle))
    }

    /// One attempt to accept: the connection or null.
    pub fn accept(&self, listening: Object) -> Object {
        self.0.accept(listening).unwrap()
    }

    /// The status, and the request. Callers keep the memory until it has ended.
    pub fn send(&self, channel: Object, data: &[u8]) -> (i32, Object) {
        // SAFETY: the callers'.
        with_status(unsafe { self.0.send(channel, data) })
    }

    /// The status, and the request. Several receives in one are refused. Callers keep the memory until it has ended.
    pub fn receive(&self, channel: Object, count: i32, data: &mut [u8]) -> (i32, Object) {
        // SAFETY: the callers'.
        with_status(unsafe { self.0.receive(channel, count, data) })
    }

    pub fn close_send(&self, channel: Object) {
        self.0.close_send(channel).unwrap();
    }

    pub fn close_receive(&self, channel: Object) {
        self.0.close_receive(channel).unwrap();
    }

    pub fn finalize(self) {
        self.0.finalize().unwrap();
    }
}

/// The tuner interface.
pub struct Tuner(thalweg_plugin::Tuner);

impl Tuner {
    /// Costs of 7 algorithms with 3 protocols, after the tuner has changed them.
    pub fn choose(&self, function: i32, bytes: usize, costs: Costs) -> Costs {
        self.0.choose(function, bytes, costs).unwrap()
    }

    pub fn finalize(self) {
        self.0.finalize().unwrap();
    }
}
