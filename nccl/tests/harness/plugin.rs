//! The library, loaded as NCCL loads it. Tables are read by slots, from the published numbers, and not by the library's own
//! definitions.
#![expect(unsafe_code, reason = "this is what NCCL does")]

use std::ffi::{CStr, CString, c_char, c_int, c_ulong, c_void};
use std::sync::Mutex;

use crate::world::library;

pub const SUCCESS: c_int = 0;
pub const REMOTE: c_int = 6;
pub const F16: c_int = 6;
pub const F32: c_int = 7;
pub const BF16: c_int = 9;

pub type Handle = [u8; 128];
pub type Pointer = *mut c_void;

/// Lines that the library has logged: level and text.
static LOGGED: Mutex<Vec<(c_int, String)>> = Mutex::new(Vec::new());

/// The logger of this process. NCCL's takes any number of arguments behind the format; the library gives one, and on the
/// machines that NCCL runs on it is passed in the same place.
unsafe extern "C" fn logger(
    level: c_int,
    _: c_ulong,
    _: *const c_char,
    _: c_int,
    format: *const c_char,
    text: *const c_char,
) {
    // SAFETY: the library gives a format and a text.
    let (format, text) = unsafe { (CStr::from_ptr(format), CStr::from_ptr(text)) };
    assert_eq!(format, c"%s");
    let text = text.to_string_lossy().into_owned();
    eprintln!("[{}] {level} {text}", std::process::id());
    let fatal = std::env::var("HARNESS_DIES_AT");
    if fatal.is_ok_and(|fatal| text.contains(&fatal)) {
        die();
    }
    LOGGED.lock().expect("nobody panics with it").push((level, text));
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
    logged.iter().filter(|(level, line)| *level == 2 && line.contains(text)).count()
}

/// The loaded library.
pub struct Library(Pointer);

impl Library {
    pub fn load() -> Library {
        let path = CString::new(library().to_string_lossy().as_ref()).expect("a path");
        // SAFETY: a path of a library whose initialisers do nothing.
        let loaded = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!loaded.is_null(), "the library is not loaded");
        Library(loaded)
    }

    pub fn unload(self) {
        // SAFETY: it was loaded once by this.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }

    fn table(&self, name: &str, slots: usize) -> Table {
        let symbol = CString::new(name).expect("a name");
        // SAFETY: the library is loaded.
        let table = unsafe { libc::dlsym(self.0, symbol.as_ptr()) };
        assert!(!table.is_null(), "{name} is missing");
        Table { first: table.cast(), slots }
    }

    pub fn coll(&self, version: u32) -> Coll {
        let slots = match version {
            8 => 17,
            9 | 10 => 18,
            _ => 19,
        };
        let table = self.table(&format!("ncclCollNetPlugin_v{version}"), slots);
        let mut coll = Coll { table, version, context: std::ptr::null_mut() };
        coll.init();
        coll
    }

    pub fn net(&self, version: u32) -> Net {
        let slots = match version {
            8 => 19,
            9 | 10 => 20,
            _ => 22,
        };
        let table = self.table(&format!("ncclNetPlugin_v{version}"), slots);
        let mut net = Net { table, version, context: std::ptr::null_mut() };
        net.init();
        net
    }

    pub fn tuner(&self, version: u32, nodes: usize) -> Tuner {
        let table =
            self.table(&format!("ncclTunerPlugin_v{version}"), if version == 6 { 5 } else { 4 });
        let mut context = std::ptr::null_mut();
        // SAFETY: the published signatures of the slots.
        let status = unsafe {
            match version {
                4 => table.function::<fn(usize, usize, Pointer, *mut Pointer) -> c_int>(1)(
                    nodes, nodes, log(), &raw mut context,
                ),
                _ => table.function::<fn(*mut Pointer, u64, usize, usize, Pointer, Pointer, Pointer) -> c_int>(1)(
                    &raw mut context, 7, nodes, nodes, log(), std::ptr::null_mut(), std::ptr::null_mut(),
                ),
            }
        };
        assert_eq!(status, SUCCESS);
        Tuner { table, context }
    }
}

fn log() -> Pointer {
    logger as *const () as Pointer
}

/// A table of functions.
struct Table {
    first: *const usize,
    slots: usize,
}

impl Table {
    /// The function in a slot.
    ///
    /// # Safety
    ///
    /// `F` has the published arguments of that function. It is called by C's convention.
    unsafe fn function<F: Signature>(&self, slot: usize) -> F::C {
        assert!(slot < self.slots, "there is no slot {slot}");
        // SAFETY: the table has this many slots.
        let address = unsafe { *self.first.add(slot) };
        assert_ne!(address, 0, "slot {slot} is empty");
        // SAFETY: the caller's.
        unsafe { std::mem::transmute_copy(&address) }
    }

    fn name(&self) -> String {
        // SAFETY: the first slot is a text.
        unsafe { CStr::from_ptr(*self.first as *const c_char) }.to_string_lossy().into_owned()
    }
}

/// A signature, written as a function of Rust and called by C's convention.
trait Signature {
    type C: Copy;
}

macro_rules! signatures {
    ($($argument:ident)*) => {
        impl<$($argument),*> Signature for fn($($argument),*) -> c_int {
            type C = unsafe extern "C" fn($($argument),*) -> c_int;
        }
    };
}
signatures!(A);
signatures!(A B);
signatures!(A B C);
signatures!(A B C D);
signatures!(A B C D E);
signatures!(A B C D E F);
signatures!(A B C D E F G);
signatures!(A B C D E F G H);
signatures!(A B C D E F G H I);

/// Calls that net and CollNet have in the same slots.
macro_rules! common {
    () => {
        /// Number of devices, and the name of the first; checks that nothing is written behind the properties.
        pub fn device(&self) -> String {
            let mut count = 0;
            let mut bytes = [0xaa_u8; 256];
            // SAFETY: the published signatures, with more memory than any version writes.
            let name = unsafe {
                assert_eq!(
                    self.table.function::<fn(*mut c_int) -> c_int>(2)(&raw mut count),
                    SUCCESS
                );
                let properties = self.table.function::<fn(c_int, *mut u8) -> c_int>(3);
                assert_eq!(properties(0, bytes.as_mut_ptr()), SUCCESS);
                assert_ne!(properties(1, bytes.as_mut_ptr()), SUCCESS, "there is one device");
                CStr::from_ptr(usize::from_le_bytes(*bytes.first_chunk().unwrap()) as *const c_char)
            };
            let size = match self.version {
                8 => 64,
                9 | 10 => 104,
                11 => 112,
                _ => 128,
            };
            // The last bytes may be padding, which a copy of a structure leaves as it is.
            assert!(bytes[size..].iter().all(|byte| *byte == 0xaa), "behind {size} bytes");
            let int = |at: usize| i32::from_le_bytes(*bytes[at..].first_chunk().unwrap());
            assert_eq!(int(24), 1, "memory of the host");
            let speed_at = if self.version == 8 { 32 } else { 36 };
            assert!(int(speed_at) > 0, "a speed");
            assert_eq!(int(speed_at + 16), 1, "one receive at a time");
            if self.version > 8 {
                let largest = if self.version == 12 { 104 } else { 88 };
                assert_eq!((int(64), int(largest), int(largest + 8)), (1, 1 << 30, 1 << 30));
            }
            if self.version == 12 {
                assert_eq!(bytes[124..128], [0xff; 4], "no rail and no plane");
            }
            assert_eq!(count, 1);
            name.to_string_lossy().into_owned()
        }

        pub fn listen(&self) -> (Handle, Pointer) {
            let mut handle = [0; 128];
            let mut listening = std::ptr::null_mut();
            let at: Pointer = handle.as_mut_ptr().cast();
            // SAFETY: the published signatures.
            let status = unsafe {
                if self.version < 11 {
                    self.table.function::<fn(c_int, Pointer, *mut Pointer) -> c_int>(4)(
                        0,
                        at,
                        &raw mut listening,
                    )
                } else {
                    self.table.function::<fn(Pointer, c_int, Pointer, *mut Pointer) -> c_int>(4)(
                        self.context,
                        0,
                        at,
                        &raw mut listening,
                    )
                }
            };
            assert_eq!(status, SUCCESS);
            assert!(!listening.is_null());
            (handle, listening)
        }

        pub fn register(&self, comm: Pointer, memory: &mut [u8]) -> Pointer {
            let mut registration = std::ptr::null_mut();
            let at: Pointer = memory.as_mut_ptr().cast();
            // SAFETY: the published signature.
            unsafe {
                let register = self
                    .table
                    .function::<fn(Pointer, Pointer, usize, c_int, *mut Pointer) -> c_int>(7);
                assert_eq!(register(comm, at, memory.len(), 1, &raw mut registration), SUCCESS);
                assert_ne!(
                    register(comm, at, memory.len(), 2, &raw mut registration),
                    SUCCESS,
                    "CUDA"
                );
            }
            registration
        }

        pub fn deregister(&self, comm: Pointer, registration: Pointer) {
            // SAFETY: the published signature.
            let status = unsafe {
                self.table.function::<fn(Pointer, Pointer) -> c_int>(9)(comm, registration)
            };
            assert_eq!(status, SUCCESS);
        }

        /// The status, and the number of bytes of a request that has ended.
        pub fn test(&self, request: Pointer) -> (c_int, Option<usize>) {
            let (mut done, mut bytes) = (-1, -1);
            // SAFETY: the published signature.
            let status = unsafe {
                self.table.function::<fn(Pointer, *mut c_int, *mut c_int) -> c_int>(Self::TEST)(
                    request,
                    &raw mut done,
                    &raw mut bytes,
                )
            };
            (status, (done == 1).then(|| usize::try_from(bytes).expect("a size")))
        }

        fn close(&self, slot: usize, object: Pointer) {
            // SAFETY: the published signature.
            assert_eq!(
                unsafe { self.table.function::<fn(Pointer) -> c_int>(slot)(object) },
                SUCCESS
            );
        }
    };
}

/// The CollNet interface.
pub struct Coll {
    table: Table,
    version: u32,
    context: Pointer,
}

impl Coll {
    const TEST: usize = 14;
    common!();

    fn init(&mut self) {
        assert_eq!(self.table.name(), "thalweg");
        // SAFETY: the published signatures.
        let status = unsafe {
            if self.version < 11 {
                self.table.function::<fn(Pointer) -> c_int>(1)(log())
            } else {
                self.table.function::<fn(*mut Pointer, u64, Pointer) -> c_int>(1)(
                    &raw mut self.context,
                    7,
                    log(),
                )
            }
        };
        assert_eq!(status, SUCCESS);
    }

    /// The status, and the communicator.
    pub fn connect(
        &self,
        handles: &[Vec<u8>],
        rank: usize,
        listening: Pointer,
    ) -> (c_int, Pointer) {
        let mut handles: Vec<Vec<u8>> = handles.to_vec();
        let mut pointers: Vec<Pointer> =
            handles.iter_mut().map(|handle| handle.as_mut_ptr().cast()).collect();
        let mut comm = std::ptr::null_mut();
        let (ranks, rank) =
            (c_int::try_from(pointers.len()).unwrap(), c_int::try_from(rank).unwrap());
        // SAFETY: the published signature.
        let status = unsafe {
            self.table.function::<fn(*mut Pointer, c_int, c_int, Pointer, *mut Pointer) -> c_int>(5)(
                pointers.as_mut_ptr(),
                ranks,
                rank,
                listening,
                &raw mut comm,
            )
        };
        assert_eq!(status == SUCCESS, !comm.is_null(), "a communicator comes with success alone");
        (status, comm)
    }

    pub fn supports(&self, data_type: c_int, operation: c_int) -> bool {
        let mut answer = -1;
        // SAFETY: the published signature.
        let status = unsafe {
            self.table.function::<fn(c_int, c_int, *mut c_int) -> c_int>(6)(
                data_type,
                operation,
                &raw mut answer,
            )
        };
        assert_eq!(status, SUCCESS);
        answer == 1
    }

    /// The status, and the request.
    pub fn all_reduce(
        &self,
        comm: Pointer,
        from: Pointer,
        to: Pointer,
        count: usize,
        data_type: c_int,
    ) -> (c_int, Pointer) {
        let mut request = std::ptr::null_mut();
        let none = std::ptr::null_mut();
        // SAFETY: the published signatures; callers keep the memory until the request has ended.
        let status = unsafe {
            if self.version == 8 {
                let count = c_int::try_from(count).unwrap();
                self.table.function::<fn(
                    Pointer,
                    Pointer,
                    Pointer,
                    c_int,
                    c_int,
                    c_int,
                    Pointer,
                    Pointer,
                    *mut Pointer,
                ) -> c_int>(10)(
                    comm, from, to, count, data_type, 0, none, none, &raw mut request
                )
            } else {
                self.table.function::<fn(
                    Pointer,
                    Pointer,
                    Pointer,
                    usize,
                    c_int,
                    c_int,
                    Pointer,
                    Pointer,
                    *mut Pointer,
                ) -> c_int>(10)(
                    comm, from, to, count, data_type, 0, none, none, &raw mut request
                )
            }
        };
        (status, request)
    }

    pub fn close_coll(&self, comm: Pointer) {
        self.close(15, comm);
    }

    pub fn close_listen(&self, listening: Pointer) {
        self.close(16, listening);
    }

    pub fn finalize(self) {
        if self.version > 10 {
            self.close(18, self.context);
        }
    }
}

/// The net interface.
pub struct Net {
    table: Table,
    version: u32,
    context: Pointer,
}

impl Net {
    const TEST: usize = 13;
    common!();

    fn init(&mut self) {
        assert_eq!(self.table.name(), "thalweg");
        let none = std::ptr::null_mut();
        // SAFETY: the published signatures.
        let status =
            unsafe {
                match self.version {
                    8 | 9 => self.table.function::<fn(Pointer) -> c_int>(1)(log()),
                    10 => self.table.function::<fn(Pointer, Pointer) -> c_int>(1)(log(), none),
                    _ => {
                        self.table
                            .function::<fn(*mut Pointer, u64, Pointer, Pointer, Pointer) -> c_int>(
                                1,
                            )(&raw mut self.context, 7, none, log(), none)
                    }
                }
            };
        assert_eq!(status, SUCCESS);
    }

    /// One attempt to connect: the status, and the connection or null.
    pub fn connect(&self, handle: &mut [u8]) -> (c_int, Pointer) {
        let mut channel = std::ptr::dangling_mut::<u8>().cast();
        let mut device: Pointer = std::ptr::null_mut();
        let (at, none): (Pointer, Pointer) = (handle.as_mut_ptr().cast(), std::ptr::null_mut());
        // SAFETY: the published signatures.
        let status = unsafe {
            match self.version {
                8 | 9 => self
                    .table
                    .function::<fn(c_int, Pointer, *mut Pointer, *mut Pointer) -> c_int>(5)(
                    0,
                    at,
                    &raw mut channel,
                    &raw mut device,
                ),
                10 => self
                    .table
                    .function::<fn(c_int, Pointer, Pointer, *mut Pointer, *mut Pointer) -> c_int>(
                        5,
                    )(0, none, at, &raw mut channel, &raw mut device),
                _ => self
                    .table
                    .function::<fn(Pointer, c_int, Pointer, *mut Pointer, *mut Pointer) -> c_int>(
                        5,
                    )(self.context, 0, at, &raw mut channel, &raw mut device),
            }
        };
        (status, channel)
    }

    /// One attempt to accept: the connection or null.
    pub fn accept(&self, listening: Pointer) -> Pointer {
        let mut channel = std::ptr::dangling_mut::<u8>().cast();
        let mut device: Pointer = std::ptr::null_mut();
        // SAFETY: the published signature.
        let status = unsafe {
            self.table.function::<fn(Pointer, *mut Pointer, *mut Pointer) -> c_int>(6)(
                listening,
                &raw mut channel,
                &raw mut device,
            )
        };
        assert_eq!(status, SUCCESS);
        channel
    }

    /// The status, and the request.
    pub fn send(&self, channel: Pointer, data: &[u8]) -> (c_int, Pointer) {
        let mut request = std::ptr::null_mut();
        let (at, none): (Pointer, Pointer) =
            (data.as_ptr().cast_mut().cast(), std::ptr::null_mut());
        // SAFETY: the published signatures; callers keep the memory until the request has ended.
        let status = unsafe {
            match self.version {
                8 => self
                    .table
                    .function::<fn(Pointer, Pointer, c_int, c_int, Pointer, *mut Pointer) -> c_int>(
                        10,
                    )(
                    channel, at, c_int::try_from(data.len()).unwrap(), 3, none, &raw mut request
                ),
                9 => self
                    .table
                    .function::<fn(Pointer, Pointer, usize, c_int, Pointer, *mut Pointer) -> c_int>(
                        10,
                    )(channel, at, data.len(), 3, none, &raw mut request),
                _ => self.table.function::<fn(
                    Pointer,
                    Pointer,
                    usize,
                    c_int,
                    Pointer,
                    Pointer,
                    *mut Pointer,
                ) -> c_int>(10)(
                    channel, at, data.len(), 3, none, none, &raw mut request
                ),
            }
        };
        (status, request)
    }

    /// The status, and the request. Several receives in one are refused.
    pub fn receive(&self, channel: Pointer, count: c_int, data: &mut [u8]) -> (c_int, Pointer) {
        // NCCL gives this value where it does not need the end reported.
        let mut request: Pointer = std::ptr::without_provenance_mut(1);
        let mut pointers = [data.as_mut_ptr().cast::<c_void>(); 2];
        let mut ints = [c_int::try_from(data.len()).unwrap(); 2];
        let mut sizes = [data.len(); 2];
        let mut tags = [3; 2];
        let mut none: [Pointer; 2] = [std::ptr::null_mut(); 2];
        let (at, tags, none) = (pointers.as_mut_ptr(), tags.as_mut_ptr(), none.as_mut_ptr());
        // SAFETY: the published signatures; callers keep the memory until the request has ended.
        let status = unsafe {
            match self.version {
                8 => self.table.function::<fn(
                    Pointer,
                    c_int,
                    *mut Pointer,
                    *mut c_int,
                    *mut c_int,
                    *mut Pointer,
                    *mut Pointer,
                ) -> c_int>(11)(
                    channel,
                    count,
                    at,
                    ints.as_mut_ptr(),
                    tags,
                    none,
                    &raw mut request,
                ),
                9 => self.table.function::<fn(
                    Pointer,
                    c_int,
                    *mut Pointer,
                    *mut usize,
                    *mut c_int,
                    *mut Pointer,
                    *mut Pointer,
                ) -> c_int>(11)(
                    channel,
                    count,
                    at,
                    sizes.as_mut_ptr(),
                    tags,
                    none,
                    &raw mut request,
                ),
                _ => self.table.function::<fn(
                    Pointer,
                    c_int,
                    *mut Pointer,
                    *mut usize,
                    *mut c_int,
                    *mut Pointer,
                    *mut Pointer,
                    *mut Pointer,
                ) -> c_int>(11)(
                    channel,
                    count,
                    at,
                    sizes.as_mut_ptr(),
                    tags,
                    none,
                    none,
                    &raw mut request,
                ),
            }
        };
        (status, request)
    }

    pub fn close_send(&self, channel: Pointer) {
        self.close(14, channel);
    }

    pub fn close_receive(&self, channel: Pointer) {
        self.close(15, channel);
    }

    pub fn close_listen(&self, listening: Pointer) {
        self.close(16, listening);
    }

    pub fn finalize(self) {
        if self.version > 10 {
            self.close(20, self.context);
        }
    }
}

/// The tuner interface.
pub struct Tuner {
    table: Table,
    context: Pointer,
}

impl Tuner {
    /// Costs of 7 algorithms with 3 protocols, after the tuner has changed them.
    pub fn choose(&self, function: c_int, bytes: usize, mut costs: [f32; 21]) -> [f32; 21] {
        let mut channels = 0;
        // SAFETY: the published signature.
        let status = unsafe {
            self.table.function::<fn(
                Pointer,
                c_int,
                usize,
                c_int,
                *mut f32,
                c_int,
                c_int,
                c_int,
                *mut c_int,
            ) -> c_int>(2)(
                self.context,
                function,
                bytes,
                1,
                costs.as_mut_ptr(),
                7,
                3,
                0,
                &raw mut channels,
            )
        };
        assert_eq!(status, SUCCESS);
        costs
    }

    pub fn finalize(self) {
        // SAFETY: the published signature.
        assert_eq!(
            unsafe { self.table.function::<fn(Pointer) -> c_int>(3)(self.context) },
            SUCCESS
        );
    }
}
