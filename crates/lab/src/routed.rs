//! Two racks that are joined by several links of routers.
//!
//! Each rack forwards what is for the other one over a route with several next hops. The kernel chooses the hop by
//! addresses and ports, as routers with equal-cost paths do, so that packets of one source port take one link. Hosts know
//! nothing of it: a rack answers their address resolution for the hosts of the other one.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;

use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteNextHop, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use thalweg_linux::Netlink;

use crate::error::LabError;
use crate::kernel::{FORWARDING, NAMESPACE, ROUTE};
use crate::namespace::{Namespace, on_thread};
use crate::sys;

/// Prefix length of the addresses of a rack, and of those of a link.
pub(crate) const PREFIX_BITS: u8 = 24;

/// The end of a link in the rack of this number.
pub(crate) fn end_address(link: u32, rack: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, link as u8, rack as u8 + 1)
}

/// Has a rack forward packets between its bridge and the links to the other one.
pub(crate) fn forward(namespace: &Namespace, bridge: &str) -> Result<(), LabError> {
    let settings = [
        ("ip_forward".to_owned(), "1"),
        // By addresses and ports.
        ("fib_multipath_hash_policy".to_owned(), "1"),
        (format!("conf/{bridge}/proxy_arp"), "1"),
        (format!("neigh/{bridge}/proxy_delay"), "0"),
    ];
    on_thread(|| {
        sys::enter_network(namespace.file.as_fd()).map_err(|error| NAMESPACE.refused(error))?;
        for (name, value) in settings {
            fs::write(format!("/proc/sys/net/ipv4/{name}"), value)
                .map_err(|error| FORWARDING.refused(error))?;
        }
        Ok(())
    })
}

/// The path of a rack to another one: its own address, and for each link the device and the address of the far end.
pub(crate) struct Path {
    pub(crate) own: Ipv4Addr,
    pub(crate) to: Ipv4Addr,
    pub(crate) hops: Vec<(u32, Ipv4Addr)>,
}

impl Path {
    /// Adds the route.
    pub(crate) fn add(&self, netlink: &mut Netlink) -> Result<(), LabError> {
        let hop = |&(device, far): &(u32, Ipv4Addr)| {
            let mut hop = RouteNextHop::default();
            hop.interface_index = device;
            hop.attributes = vec![RouteAttribute::Gateway(IpAddr::V4(far).into())];
            hop
        };
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: AddressFamily::Inet,
            destination_prefix_length: PREFIX_BITS,
            table: RouteHeader::RT_TABLE_MAIN,
            protocol: RouteProtocol::Static,
            scope: RouteScope::Universe,
            kind: RouteType::Unicast,
            ..RouteHeader::default()
        };
        let network = self.to.to_bits() >> (32 - PREFIX_BITS) << (32 - PREFIX_BITS);
        message.attributes = vec![
            RouteAttribute::Destination(IpAddr::from(Ipv4Addr::from_bits(network)).into()),
            RouteAttribute::PrefSource(IpAddr::V4(self.own).into()),
            RouteAttribute::MultiPath(self.hops.iter().map(hop).collect()),
        ];
        let made = netlink.create(RouteNetlinkMessage::NewRoute(message));
        made.map_err(|error| ROUTE.refused(error))
    }
}
