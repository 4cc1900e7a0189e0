//! MTU and rate of the interfaces of this host.
// spec: F-01, F-04

use std::ffi::CString;
use std::net::{IpAddr, Ipv4Addr};

use thalweg_core::{MTU_BYTES, MTU_BYTES_MAX, MTU_BYTES_MIN, Rate};

use crate::sys;

/// Returns the MTU that packets from an address of this host make use of: that of its interface, at least
/// [`MTU_BYTES_MIN`] and at most [`MTU_BYTES_MAX`]. [`MTU_BYTES`] where no interface has the address or the system does
/// not say.
pub fn mtu_of(address: IpAddr) -> u16 {
    let mtu_bytes = interface_of(address).and_then(|name| sys::mtu_of_interface(&name).ok());
    let mtu_bytes = mtu_bytes.map_or(MTU_BYTES, |bytes| u16::try_from(bytes).unwrap_or(u16::MAX));
    mtu_bytes.clamp(MTU_BYTES_MIN, MTU_BYTES_MAX)
}

/// Returns the rate of the link that packets from an address of this host leave through. `None` where no interface has
/// the address, and where its driver does not know or makes a number up.
pub fn link_rate_of(address: IpAddr) -> Option<Rate> {
    let name = interface_of(address)?;
    let driver = sys::driver_of_interface(&name).ok()?;
    rate_reported(&driver, sys::speed_of_interface(&name).ok()?)
}

/// Returns the rate that a driver reports in Mbps, if it means something.
fn rate_reported(driver: &str, mbps: u32) -> Option<Rate> {
    // 10 Gbps and 10 Mbps whatever is behind them, and a bridge the largest of its ports.
    const INVENTED: [&str; 3] = ["veth", "tun", "bridge"];
    // The kernel's number for an unknown speed is -1, and some drivers report 16 bits of it.
    const UNKNOWN: [u32; 3] = [0, u16::MAX as u32, u32::MAX];
    let is_known = !INVENTED.contains(&driver) && !UNKNOWN.contains(&mbps);
    is_known.then(|| Rate::from_mbps(mbps.into()))
}

/// Returns the name of the interface that has an address. `None` if no interface of this host has it.
pub fn interface_of(address: IpAddr) -> Option<CString> {
    // All of 127.0.0.0/8 is loopback, which has one address.
    let is_loopback = address.is_loopback() && address.is_ipv4();
    let address = if is_loopback { Ipv4Addr::LOCALHOST.into() } else { address };
    sys::interface_with(address).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: F-01 sockets
    #[test]
    fn loopback_has_the_largest_mtu_and_strangers_the_usual_one() {
        for loopback in ["127.0.0.1", "127.3.2.1"] {
            assert_eq!(mtu_of(loopback.parse().unwrap()), MTU_BYTES_MAX, "{loopback}");
        }
        // Addresses for documentation belong to nobody.
        assert_eq!(mtu_of("192.0.2.1".parse().unwrap()), MTU_BYTES);
        assert_eq!(mtu_of("2001:db8::1".parse().unwrap()), MTU_BYTES);
    }

    // spec: F-04 sockets
    #[test]
    fn loopback_and_strangers_have_no_rate() {
        for address in ["127.0.0.1", "127.3.2.1", "192.0.2.1", "2001:db8::1"] {
            assert_eq!(link_rate_of(address.parse().unwrap()), None, "{address}");
        }
    }

    // spec: F-04 machine
    #[test]
    fn a_rate_is_believed_of_drivers_that_know_it() {
        assert_eq!(rate_reported("mlx5_core", 25_000), Some(Rate::from_gbps(25)));
        assert_eq!(rate_reported("bonding", 200_000), Some(Rate::from_gbps(200)));
        for unknown in [0, 65_535, u32::MAX] {
            assert_eq!(rate_reported("virtio_net", unknown), None, "{unknown}");
        }
        let invented = [("veth", 10_000), ("tun", 10), ("bridge", 10_000)];
        assert_eq!(invented.map(|(driver, mbps)| rate_reported(driver, mbps)), [None; 3]);
    }
}
