//! Links: making them, and bringing them up.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::RawFd;

use netlink_packet_route::address::{AddressAttribute, AddressHeader, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoBridge, InfoData, InfoKind, InfoVeth,
    LinkAttribute, LinkFlags, LinkHeader, LinkInfo, LinkMessage, State,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::error::LabError;
use crate::kernel::{ADDRESS, BRIDGE, NETLINK, VETH};
use thalweg_linux::Netlink;

/// The kernel's number for the loopback device of every namespace.
pub(crate) const LOOPBACK: u32 = 1;

/// One end of a pair, as it shall be called in its namespace. We choose the number: the kernel may
/// have given low ones to devices of its own.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// The station's hardware address; the kernel draws one for a port.
    pub(crate) hardware: Option<[u8; 6]>,
}

/// The hardware address of a station: locally administered, and readable.
pub(crate) fn hardware_address(address: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    [2, 0, a, b, c, d]
}

/// Makes a bridge.
pub(crate) fn add_bridge(netlink: &mut Netlink, bridge: &End) -> Result<(), LabError> {
    // Group traffic is flooded: who asks for what is not known before the first query.
    let options = vec![InfoBridge::MulticastSnooping(false)];
    let kind = LinkInfo::Kind(InfoKind::Bridge);
    let mut message = message(bridge);
    let info = vec![kind, LinkInfo::Data(InfoData::Bridge(options))];
    message.attributes.push(LinkAttribute::LinkInfo(info));
    add(netlink, message).map_err(|error| BRIDGE.refused(error))
}

/// Makes a pair whose one end is in this namespace, a port of a bridge if one is given, and whose other end lies in
/// another namespace.
pub(crate) fn add_pair(
    netlink: &mut Netlink,
    port: &End,
    bridge: Option<u32>,
    far: &End,
    far_namespace: RawFd,
) -> Result<(), LabError> {
    let mut peer = message(far);
    peer.attributes.push(LinkAttribute::NetNsFd(far_namespace));
    let mut message = message(port);
    let data = LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer)));
    let info = vec![LinkInfo::Kind(InfoKind::Veth), data];
    message.attributes.push(LinkAttribute::LinkInfo(info));
    message.attributes.extend(bridge.map(LinkAttribute::Controller));
    add(netlink, message).map_err(|error| VETH.refused(error))
}

/// Makes a link a port of a bridge in the same namespace.
pub(crate) fn put_on_bridge(
    netlink: &mut Netlink,
    index: u32,
    bridge: u32,
) -> Result<(), LabError> {
    set(netlink, index, vec![LinkAttribute::Controller(bridge)])
        .map_err(|error| BRIDGE.refused(error))
}

/// Has the kernel cut everything into single packets before it enters a link.
pub(crate) fn send_one_by_one(netlink: &mut Netlink, index: u32) -> Result<(), LabError> {
    set(netlink, index, vec![LinkAttribute::GsoMaxSegs(1)]).map_err(|error| VETH.refused(error))
}

/// Sets the largest packet that a link carries. A bridge keeps it whatever its ports have.
pub(crate) fn set_mtu(netlink: &mut Netlink, index: u32, mtu_bytes: u16) -> Result<(), LabError> {
    set(netlink, index, vec![LinkAttribute::Mtu(mtu_bytes.into())])
        .map_err(|error| NETLINK.refused(error))
}

/// Brings a link up. IPv6 stays silent on it: nobody uses it, and its announcements would be
/// strange packets in every count.
pub(crate) fn bring_up(netlink: &mut Netlink, index: u32) -> Result<(), LabError> {
    if index != LOOPBACK {
        let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        let silent = LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![mode])]);
        // A kernel without IPv6 refuses, and is silent anyway.
        let _ = set(netlink, index, vec![silent]);
    }
    set_flags(netlink, index, LinkFlags::Up)
}

/// Takes a link down: no packet passes any more.
pub(crate) fn take_down(netlink: &mut Netlink, index: u32) -> Result<(), LabError> {
    set_flags(netlink, index, LinkFlags::empty())
}

/// Sets whether a link is up.
fn set_flags(netlink: &mut Netlink, index: u32, flags: LinkFlags) -> Result<(), LabError> {
    let mut message = about(index, Vec::new());
    (message.header.flags, message.header.change_mask) = (flags, LinkFlags::Up);
    netlink.change(RouteNetlinkMessage::SetLink(message), 0).map_err(|error| NETLINK.refused(error))
}

/// Gives a link its address, of a network with a prefix of this length.
pub(crate) fn add_address(
    netlink: &mut Netlink,
    index: u32,
    address: Ipv4Addr,
    prefix_bits: u8,
) -> Result<(), LabError> {
    let mut message = AddressMessage::default();
    message.header = AddressHeader {
        family: AddressFamily::Inet,
        prefix_len: prefix_bits,
        index,
        ..AddressHeader::default()
    };
    let network_bits = u32::MAX << (32 - prefix_bits);
    let broadcast = Ipv4Addr::from_bits(address.to_bits() | !network_bits);
    message.attributes = vec![
        AddressAttribute::Local(IpAddr::V4(address)),
        AddressAttribute::Address(IpAddr::V4(address)),
        AddressAttribute::Broadcast(broadcast),
    ];
    let made = netlink.create(RouteNetlinkMessage::NewAddress(message));
    made.map_err(|error| ADDRESS.refused(error))
}

/// True if packets can pass.
pub(crate) fn is_up(netlink: &mut Netlink, index: u32) -> Result<bool, LabError> {
    let link = netlink.link(index).map_err(|error| NETLINK.refused(error))?;
    Ok(link.attributes.contains(&LinkAttribute::OperState(State::Up)))
}

fn message(end: &End) -> LinkMessage {
    let hardware = end.hardware.map(|hardware| LinkAttribute::Address(hardware.to_vec()));
    let name = LinkAttribute::IfName(end.name.clone());
    about(end.index, [name].into_iter().chain(hardware).collect())
}

fn about(index: u32, attributes: Vec<LinkAttribute>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header = LinkHeader { index, ..LinkHeader::default() };
    message.attributes = attributes;
    message
}

fn add(netlink: &mut Netlink, message: LinkMessage) -> io::Result<()> {
    netlink.create(RouteNetlinkMessage::NewLink(message))
}

fn set(netlink: &mut Netlink, index: u32, attributes: Vec<LinkAttribute>) -> io::Result<()> {
    netlink.change(RouteNetlinkMessage::SetLink(about(index, attributes)), 0)
}
