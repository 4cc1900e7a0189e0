//! This host: its addresses and the limits of its kernel.

use std::net::IpAddr;

use serde::Serialize;
use thalweg_console::Failure;
use thalweg_core::Rate;
use thalweg_net::{
    Endpoint, EndpointConfig, descriptors, interface, interface_name, link_rate_of, mtu_of,
    receive_queues_of,
};

/// This host.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// Addresses, without loopback.
    pub addresses: Vec<Interface>,
    /// True if the kernel cuts one send into many datagrams (GSO).
    pub cuts_sends: bool,
    /// True if the kernel coalesces received datagrams (GRO).
    pub joins_receives: bool,
    /// Bytes that a socket gets for what arrives, and those that were asked for.
    pub receive_buffer_bytes: (usize, usize),
    /// The same for what it sends.
    pub send_buffer_bytes: (usize, usize),
    /// Files and connections that a process may have open.
    pub descriptors: Option<u64>,
}

/// An address and its interface.
#[derive(Clone, Debug, Serialize)]
pub struct Interface {
    /// The address.
    pub address: IpAddr,
    /// Name of the interface.
    pub name: String,
    /// MTU of the interface.
    pub mtu_bytes: u16,
    /// Rate of its link in bits a second, where the driver knows.
    pub rate_bps: Option<u64>,
    /// Number of receive queues, where the driver says.
    pub receive_queues: Option<u32>,
    /// True if UDP ports choose the receive queue.
    pub queue_follows_ports: Option<bool>,
}

/// Looks at this host.
pub fn look() -> Result<Host, Failure> {
    let config = EndpointConfig::default();
    let endpoint = Endpoint::open(&config).map_err(Failure::ran)?;
    let (receive, send) = endpoint.buffer_bytes().map_err(Failure::ran)?;
    let addresses = interface::addresses().map_err(Failure::ran)?.into_iter();
    let addresses =
        addresses.filter(|(_, address)| !address.is_loopback() && !is_link_local(*address));
    Ok(Host {
        addresses: addresses.map(|(_, address)| interface_of(address)).collect(),
        cuts_sends: endpoint.cuts_sends(),
        joins_receives: endpoint.joins_receives(),
        receive_buffer_bytes: (receive, config.receive_buffer_bytes),
        send_buffer_bytes: (send, config.send_buffer_bytes),
        descriptors: descriptors::limit(),
    })
}

/// The interface of an address of this host.
pub fn interface_of(address: IpAddr) -> Interface {
    let queues = receive_queues_of(address);
    Interface {
        address,
        name: interface_name(address).unwrap_or_else(|| "?".into()),
        mtu_bytes: mtu_of(address),
        rate_bps: link_rate_of(address).map(Rate::as_bps),
        receive_queues: queues.map(|queues| queues.queues),
        queue_follows_ports: queues.and_then(|queues| queues.follows_ports),
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
