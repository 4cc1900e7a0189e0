//! Messages of traffic control.

use std::io;
use std::os::fd::AsRawFd;

use netlink_packet_core::DefaultNla;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{
    TcAttribute, TcBpfFlags, TcFilterBpfOption, TcHandle, TcHeader, TcMessage, TcOption,
};

use crate::netlink::Netlink;
use crate::sys::Program;

/// Returns the message of traffic control at a device that makes something of a kind.
pub fn traffic_control(header: TcHeader, index: u32, kind: &str) -> TcMessage {
    let mut message = TcMessage::default();
    message.header = TcHeader { index: index as i32, ..header };
    message.attributes = vec![TcAttribute::Kind(kind.to_owned())];
    message
}

/// An option of a queue discipline or class, as bytes.
pub fn option(kind: u16, value: &[u8]) -> TcOption {
    TcOption::Other(DefaultNla::new(kind, value.to_vec()))
}

/// Adds the hook that filters hang on, unless the device has it.
pub fn add_clsact(netlink: &mut Netlink, index: u32) -> io::Result<()> {
    let handle = TcHandle { major: u16::MAX, minor: 0 };
    let header = TcHeader { handle, parent: TcHandle::CLSACT, ..TcHeader::default() };
    let message = traffic_control(header, index, "clsact");
    match netlink.create(RouteNetlinkMessage::NewQueueDiscipline(message)) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        other => other,
    }
}

/// Adds a program to what a device receives or sends. `hook` is [`TcHandle::MIN_INGRESS`] or [`TcHandle::MIN_EGRESS`],
/// `protocol` a number such as `ETH_P_IP`. Programs of lower `priority` run first.
pub fn add_filter(
    netlink: &mut Netlink,
    index: u32,
    hook: u16,
    (priority, protocol): (u16, u16),
    (program, name): (&Program, &str),
) -> io::Result<()> {
    let header = TcHeader {
        parent: TcHandle { major: u16::MAX, minor: hook },
        info: u32::from(priority) << 16 | u32::from(protocol.to_be()),
        ..TcHeader::default()
    };
    let options = [
        TcFilterBpfOption::ProgFd(program.as_raw_fd() as u32),
        TcFilterBpfOption::ProgName(name.to_owned()),
        TcFilterBpfOption::Flags(TcBpfFlags::DirectAction),
    ];
    let mut message = traffic_control(header, index, "bpf");
    message.attributes.push(TcAttribute::Options(options.map(TcOption::Bpf).to_vec()));
    netlink.create(RouteNetlinkMessage::NewTrafficFilter(message))
}
