//! The system calls that need pointers. Everything `unsafe` of this crate is here.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use crate::layout::{Control, NAME_BYTES, decode_address, encode_address};
use crate::message::{Arrival, MESSAGES_PER_CALL, Message};

// SAFETY: all fields are integers and pointers, for which zero and null are valid.
const EMPTY: libc::mmsghdr = unsafe { mem::zeroed() };

/// Receives into as many buffers as there is something for, without waiting.
pub(crate) fn receive_many(
    socket: BorrowedFd<'_>,
    buffers: &mut [IoSliceMut<'_>],
    arrivals: &mut [Arrival],
) -> io::Result<usize> {
    let count = buffers.len().min(arrivals.len()).min(MESSAGES_PER_CALL);
    let mut names = [[0; NAME_BYTES]; MESSAGES_PER_CALL];
    let mut controls = [Control::EMPTY; MESSAGES_PER_CALL];
    let mut headers = [EMPTY; MESSAGES_PER_CALL];
    for (index, buffer) in buffers[..count].iter_mut().enumerate() {
        let header = &mut headers[index].msg_hdr;
        header.msg_name = names[index].as_mut_ptr().cast();
        header.msg_namelen = NAME_BYTES as libc::socklen_t;
        header.msg_iov = ptr::from_mut(buffer).cast();
        header.msg_iovlen = 1;
        let room = controls[index].room();
        header.msg_controllen = room.len() as _;
        header.msg_control = room.as_mut_ptr().cast();
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    // SAFETY: the first `count` headers point at a name and a control buffer of the stated lengths
    // and at one `IoSliceMut`, which has the layout of an `iovec`. All of them live in this frame or
    // are borrowed mutably by it until the call returns, and nothing else refers to them meanwhile.
    let taken = check(unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            flags as _,
            ptr::null_mut(),
        )
    })? as usize;
    for (index, arrival) in arrivals[..taken].iter_mut().enumerate() {
        let header = &headers[index];
        #[allow(clippy::unnecessary_cast, reason = "its type differs between C libraries")]
        let control_bytes = header.msg_hdr.msg_controllen as usize;
        let ancillary = controls[index].decode(control_bytes);
        let name_bytes = (header.msg_hdr.msg_namelen as usize).min(NAME_BYTES);
        *arrival = Arrival {
            from: decode_address(&names[index][..name_bytes]),
            bytes: header.msg_len as usize,
            segment_bytes: ancillary.segment_bytes,
            tos: ancillary.tos,
        };
    }
    Ok(taken)
}

/// Sends messages in order, without waiting, and says how many the kernel took. An error is that of
/// the first message; one of a later message shows when it is first in the next call.
pub(crate) fn send_many(
    socket: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    messages: &[Message],
) -> io::Result<usize> {
    let count = messages.len().min(MESSAGES_PER_CALL);
    let mut names = [[0; NAME_BYTES]; MESSAGES_PER_CALL];
    let mut controls = [Control::EMPTY; MESSAGES_PER_CALL];
    let mut headers = [EMPTY; MESSAGES_PER_CALL];
    for (index, message) in messages[..count].iter().enumerate() {
        let header = &mut headers[index].msg_hdr;
        let (name, name_bytes) = encode_address(&message.to);
        names[index] = name;
        header.msg_name = names[index].as_mut_ptr().cast();
        header.msg_namelen = name_bytes as libc::socklen_t;
        let parts = &parts[message.parts.clone()];
        header.msg_iov = parts.as_ptr().cast::<libc::iovec>().cast_mut();
        header.msg_iovlen = parts.len() as _;
        let control = &mut controls[index];
        control.push_tos(message.to.is_ipv6(), message.tos);
        if let Some(segment_bytes) = message.segment_bytes {
            control.push_segment_bytes(segment_bytes);
        }
        let filled = control.filled();
        header.msg_controllen = filled.len() as _;
        header.msg_control = filled.as_mut_ptr().cast();
    }
    // SAFETY: the first `count` headers point at a name and control messages of the stated lengths
    // in this frame, and at `IoSlice`s, which have the layout of an `iovec` and are borrowed until
    // the call returns. Sending only reads through the pointers that were cast to mutable ones.
    let taken = check(unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT as _,
        )
    })?;
    Ok(taken as usize)
}

/// Sets an integer option.
pub(crate) fn set_option(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: i32,
) -> io::Result<()> {
    let value = value.to_ne_bytes();
    // SAFETY: the pointer and the length are those of an array that outlives the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// Makes a counter that one thread adds to and another can sleep on.
pub(crate) fn event() -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointers.
    let event = check(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
    // SAFETY: the kernel has just opened it, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(event) })
}

/// Sleeps until a socket is readable, or another one has room, or the waker was used, or the time is up, and says whether
/// the waker was used. A signal ends it early.
pub(crate) fn wait(
    [readable, writable]: [Option<BorrowedFd<'_>>; 2],
    waker: Option<BorrowedFd<'_>>,
    at_most: Duration,
) -> io::Result<bool> {
    // The kernel passes over entries with a negative file.
    let entry = |fd: Option<BorrowedFd<'_>>, events| libc::pollfd {
        fd: fd.map_or(-1, |fd| fd.as_raw_fd()),
        events,
        revents: 0,
    };
    let mut entries =
        [entry(readable, libc::POLLIN), entry(writable, libc::POLLOUT), entry(waker, libc::POLLIN)];
    let timeout = libc::timespec {
        tv_sec: at_most.as_secs().min(i32::MAX as u64) as libc::time_t,
        tv_nsec: at_most.subsec_nanos() as _,
    };
    let count = entries.len() as libc::nfds_t;
    // SAFETY: the entries, as many as stated, and the timeout live in this frame; a null mask leaves
    // signals alone.
    match check(unsafe { libc::ppoll(entries.as_mut_ptr(), count, &timeout, ptr::null()) }) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(entries[2].revents != 0),
    }
}

/// Binds the calling thread to one core.
pub(crate) fn pin_to_core(core: usize) -> io::Result<()> {
    if core >= libc::CPU_SETSIZE as usize {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: a zeroed set is an empty one, and `core` is below its size. The call reads the set,
    // whose length is stated, and changes nothing but where this thread runs.
    check(unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set)
    })?;
    Ok(())
}

/// Processor time that the calling thread has used.
pub(crate) fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one `timespec` that lives in this frame. It cannot fail for this
    // clock; if it did, the zero above would stand.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Milliseconds since a TCP connection last received data, and since it last received an acknowledgement.
pub(crate) fn last_received_ms(socket: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    // Places in `struct tcp_info`, whose fields only ever get more.
    const LAST_DATA_RECEIVED_AT: usize = 52;
    const LAST_ACK_RECEIVED_AT: usize = 56;
    let mut bytes = [0_u8; LAST_ACK_RECEIVED_AT + 4];
    let mut length = bytes.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most the stated length into a buffer, and one length; both live in this frame.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &mut length,
        )
    })?;
    let field = |at: usize| {
        let mut field = [0; 4];
        field.copy_from_slice(&bytes[at..at + 4]);
        u32::from_ne_bytes(field)
    };
    Ok((field(LAST_DATA_RECEIVED_AT), field(LAST_ACK_RECEIVED_AT)))
}

/// Has `handler` called in every child that is forked from now on. It runs where other threads of the parent may have
/// held any lock: it may make system calls and touch atomics, nothing else.
pub(crate) fn call_in_children(handler: extern "C" fn()) {
    // SAFETY: the handler is a function of this program, which takes and returns nothing. Without memory for the
    // entry the call changes nothing, and children keep what they inherit.
    unsafe { libc::pthread_atfork(None, None, Some(handler)) };
}

/// Puts a file that has no content in place of these, whose own files this process no longer refers to. For a child that
/// has just been forked.
pub(crate) fn replace_by_nothing(numbers: impl Iterator<Item = RawFd>) {
    let flags = libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: the path is a string with an end, and all calls may be made in a child of a process with threads.
    // The numbers belong to threads of the parent, which the child does not have.
    unsafe {
        let nothing = libc::open(c"/dev/null".as_ptr(), flags);
        for number in numbers {
            if libc::dup3(nothing, number, libc::O_CLOEXEC) < 0 {
                libc::close(number);
            }
        }
        libc::close(nothing);
    }
}

/// Forks a child that does nothing.
#[cfg(test)]
pub(crate) fn fork_sleeper() -> libc::pid_t {
    // SAFETY: the child sleeps and ends, by calls that may be made in a child of a process with threads.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::sleep(60);
            libc::_exit(0);
        }
        child
    }
}

/// Ends such a child.
#[cfg(test)]
pub(crate) fn end_sleeper(child: libc::pid_t) {
    // SAFETY: the child is one that was forked here and not waited for, so that the number is its own.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, ptr::null_mut(), 0);
    }
}

/// Returns the number of descriptors that this process may have.
pub(crate) fn descriptor_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` lives through the call, which writes nothing else.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    Ok(limit.rlim_cur)
}

/// Raises the number of descriptors that this process may have to the most that the system lets it have.
pub(crate) fn raise_descriptor_limit() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` lives through the call, which writes nothing else.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the call reads `limit`, which lives through it.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) })?;
    Ok(())
}

/// Lists the addresses of all interfaces of this host.
pub(crate) fn addresses_of_interfaces() -> io::Result<Vec<(CString, IpAddr)>> {
    let mut list: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: the call writes one pointer that lives in this frame.
    check(unsafe { libc::getifaddrs(&mut list) })?;
    let mut entry = list;
    let mut found = Vec::new();
    while !entry.is_null() {
        // SAFETY: the entry is one of the list, which is there until it is freed below.
        let own = unsafe { &*entry };
        // SAFETY: as above; an address, where an entry has one, is as long as its family says.
        if let Some(address) = unsafe { address_of(own.ifa_addr) } {
            // SAFETY: as above; the name has an end.
            found.push((unsafe { CStr::from_ptr(own.ifa_name) }.to_owned(), address));
        }
        entry = own.ifa_next;
    }
    // SAFETY: the list is the one that was made above, and nothing refers to it any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// Reads the address of an interface.
///
/// # Safety
///
/// The pointer is null, or one to an address that is as long as its family says.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: the caller has promised it.
    unsafe {
        let bytes = match i32::from((*address).sa_family) {
            libc::AF_INET => size_of::<libc::sockaddr_in>(),
            libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
            _ => return None,
        };
        decode_address(std::slice::from_raw_parts(address.cast(), bytes)).map(|it| it.ip())
    }
}

/// Asks the kernel for the MTU of an interface.
pub(crate) fn mtu_of_interface(name: &CStr) -> io::Result<u32> {
    let mut request = request_about(name);
    ask_about_interface(libc::SIOCGIFMTU as _, &mut request)?;
    // SAFETY: the call has written this field.
    Ok(unsafe { request.ifr_ifru.ifru_mtu }.max(0) as u32)
}

/// Asks the kernel for the name of the driver of an interface.
pub(crate) fn driver_of_interface(name: &CStr) -> io::Result<String> {
    // `struct ethtool_drvinfo`: the command, and the name of the driver in the next 32 bytes.
    const COMMAND: u32 = 3;
    let mut answer = [0; 196];
    ask_ethtool(name, COMMAND, &mut answer)?;
    let driver = &answer[4..36];
    let length = driver.iter().position(|byte| *byte == 0).unwrap_or(driver.len());
    Ok(String::from_utf8_lossy(&driver[..length]).into_owned())
}

/// Asks the driver of an interface for the speed of its link, in Mbps: 0 and `u32::MAX` where it does not know.
pub(crate) fn speed_of_interface(name: &CStr) -> io::Result<u32> {
    // `struct ethtool_cmd`: the lower half of the speed at byte 12, the upper half at byte 28.
    const COMMAND: u32 = 1;
    let mut answer = [0; 44];
    ask_ethtool(name, COMMAND, &mut answer)?;
    let half = |at: usize| u32::from(u16::from_ne_bytes([answer[at], answer[at + 1]]));
    Ok(half(28) << 16 | half(12))
}

/// Asks the driver of an interface for its number of receive queues.
pub(crate) fn receive_queues_of_interface(name: &CStr) -> io::Result<u32> {
    // `struct ethtool_channels`: four maxima, then the counts of receive, send, other and combined queues.
    const COMMAND: u32 = 0x3c;
    let mut answer = [0; 36];
    ask_ethtool(name, COMMAND, &mut answer)?;
    let count = |at: usize| {
        let mut count = [0; 4];
        count.copy_from_slice(&answer[at..at + 4]);
        u32::from_ne_bytes(count)
    };
    Ok(count(20).saturating_add(count(32)))
}

/// Asks the driver of an interface whether UDP ports choose the receive queue of a packet of IPv4.
pub(crate) fn queue_follows_ports(name: &CStr) -> io::Result<bool> {
    // `struct ethtool_rxnfc`, its first 16 bytes: the command, the kind of packets, and a bit for each field.
    const COMMAND: u32 = 0x29;
    const UDP_OVER_IPV4: u32 = 2;
    const BOTH_PORTS: u64 = 1 << 6 | 1 << 7;
    let mut answer = [0; 16];
    answer[4..8].copy_from_slice(&UDP_OVER_IPV4.to_ne_bytes());
    ask_ethtool(name, COMMAND, &mut answer)?;
    let mut fields = [0; 8];
    fields.copy_from_slice(&answer[8..]);
    Ok(u64::from_ne_bytes(fields) & BOTH_PORTS == BOTH_PORTS)
}

/// Asks the driver of an interface. The answer is as long as that of the command, which its first four bytes have.
fn ask_ethtool(name: &CStr, command: u32, answer: &mut [u8]) -> io::Result<()> {
    answer[..4].copy_from_slice(&command.to_ne_bytes());
    let mut request = request_about(name);
    request.ifr_ifru.ifru_data = answer.as_mut_ptr().cast();
    ask_about_interface(libc::SIOCETHTOOL as _, &mut request)
}

/// A request about an interface.
fn request_about(name: &CStr) -> libc::ifreq {
    // SAFETY: all bytes zero is a request without a name.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (place, byte) in
        request.ifr_name.iter_mut().zip(name.to_bytes().iter().take(libc::IFNAMSIZ - 1))
    {
        *place = *byte as libc::c_char;
    }
    request
}

/// Has the kernel answer a request about an interface of the network namespace that the thread is in. Files of sysfs
/// would show the namespace that they were mounted in.
fn ask_about_interface(what: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the call takes no pointers.
    let socket =
        check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel has just opened it, and nobody else knows of it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: the request, and what it points to, live through the call, which writes nothing else.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), what, request) }).map(drop)
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
