//! The one device that the plug-in has: a network interface.
#![expect(unsafe_code, reason = "the list of interfaces comes from the C library")]

use std::ffi::{CStr, CString, c_int};
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::OnceLock;

use crate::log;
use crate::settings::{self, Settings};

/// Speed of an interface that does not say: NCCL's own sockets assume the same.
const DEFAULT_SPEED_MBPS: c_int = 10_000;

/// A network interface, as NCCL sees it.
#[derive(Debug)]
pub struct Device {
    /// Name of the interface. NCCL merges the net device and the CollNet device by it.
    pub name: CString,
    /// Path of the PCI device. `None` for a virtual interface.
    pub pci_path: Option<CString>,
    /// Speed, never zero.
    pub speed_mbps: c_int,
    /// Address to listen at and to send from. Unspecified if the settings name an interface that this host lacks.
    pub address: IpAddr,
}

/// The device. It is chosen once: NCCL reads its properties whenever it makes a communicator.
pub fn device() -> &'static Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    DEVICE.get_or_init(|| {
        let settings = settings::current();
        let settings = settings.settings.as_ref().ok();
        let interfaces = interfaces();
        let (name, address) =
            choose(&interfaces, settings, std::env::var("NCCL_SOCKET_IFNAME").ok());
        log::info(&format!("interface {name}, address {address}"));
        Device::new(&name, address, settings.and_then(|settings| settings.link_rate_mbps))
    })
}

impl Device {
    fn new(name: &str, address: IpAddr, rate_mbps: Option<u32>) -> Device {
        let folder = Path::new("/sys/class/net").join(name);
        let speed = fs::read_to_string(folder.join("speed")).ok();
        let speed = speed.and_then(|speed| speed.trim().parse().ok());
        let speed = rate_mbps.and_then(|rate| rate.try_into().ok()).or(speed);
        let pci_path = fs::canonicalize(folder.join("device")).ok();
        let pci_path = pci_path.and_then(|path| CString::new(path.to_string_lossy().as_ref()).ok());
        Device {
            name: CString::new(name).unwrap_or_default(),
            pci_path,
            speed_mbps: speed.filter(|speed| *speed > 0).unwrap_or(DEFAULT_SPEED_MBPS),
            address,
        }
    }
}

/// An interface and its address.
type Interface = (String, IpAddr);

/// The interface that the settings name, else the first that NCCL's own sockets would use, else loopback. A name or an
/// address that this host lacks is no reason to have no device, or NCCL would go on without the plug-in at this rank alone:
/// listening fails, and says why.
fn choose(
    interfaces: &[Interface],
    settings: Option<&Settings>,
    names: Option<String>,
) -> Interface {
    let loopback = ("lo".to_owned(), Ipv4Addr::LOCALHOST.into());
    if let Some(bind) = settings.and_then(|settings| settings.bind) {
        let found = interfaces.iter().find(|(_, address)| *address == bind);
        return (found.map_or(loopback.0, |(name, _)| name.clone()), bind);
    }
    let wanted = settings.and_then(|settings| settings.interface.as_deref());
    if let Some(wanted) = wanted {
        let found = interfaces.iter().find(|(name, _)| name == wanted);
        return found.cloned().unwrap_or_else(|| (wanted.to_owned(), Ipv4Addr::UNSPECIFIED.into()));
    }
    let names = names.unwrap_or_else(|| "^docker,lo".to_owned());
    let found = interfaces.iter().find(|(name, _)| is_named(&names, name));
    found.cloned().unwrap_or(loopback)
}

/// Returns whether a name is among those of `NCCL_SOCKET_IFNAME`: prefixes, after `=` whole names, after `^` those to
/// leave out.
fn is_named(names: &str, name: &str) -> bool {
    let (is_excluding, names) = match names.strip_prefix('^') {
        Some(names) => (true, names),
        None => (false, names),
    };
    let (is_exact, names) = match names.strip_prefix('=') {
        Some(names) => (true, names),
        None => (false, names),
    };
    let is_listed = names
        .split(',')
        .filter(|listed| !listed.is_empty())
        .any(|listed| if is_exact { name == listed } else { name.starts_with(listed) });
    is_listed != is_excluding
}

/// The interfaces that are up and have an IPv4 address.
fn interfaces() -> Vec<Interface> {
    let mut first = std::ptr::null_mut();
    // SAFETY: the call writes a pointer to a list, or fails and writes nothing.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: the list stays until it is freed below; every entry has a name, and links to the next or to nothing.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        let is_up = entry.ifa_flags & (libc::IFF_UP as u32) != 0;
        // SAFETY: an address begins with its family, and one of this family is a `sockaddr_in`.
        let address = unsafe {
            let is_ipv4 =
                |address: &&libc::sockaddr| c_int::from(address.sa_family) == libc::AF_INET;
            entry.ifa_addr.as_ref().filter(is_ipv4).map(|_| {
                let address = entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr))
            })
        };
        if let Some(address) = address.filter(|_| is_up) {
            // SAFETY: as above.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            found.push((name.to_string_lossy().into_owned(), address.into()));
        }
    }
    // SAFETY: it came from `getifaddrs`, and nothing points into it any more.
    unsafe { libc::freeifaddrs(first) };
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Vec<Interface> {
        let of = |name: &str, address: [u8; 4]| (name.to_owned(), IpAddr::from(address));
        vec![
            of("lo", [127, 0, 0, 1]),
            of("docker0", [172, 17, 0, 1]),
            of("eth0", [10, 0, 0, 7]),
            of("eth1", [10, 1, 0, 7]),
        ]
    }

    #[test]
    fn the_settings_choose_the_interface() {
        let name = |settings: Option<Settings>, names: Option<&str>| {
            choose(&known(), settings.as_ref(), names.map(str::to_owned)).0
        };
        assert_eq!(name(None, None), "eth0");
        assert_eq!(name(None, Some("eth1")), "eth1");
        assert_eq!(name(None, Some("^eth0,lo,docker")), "eth1");
        assert_eq!(name(None, Some("=eth")), "lo", "no whole name");
        let named = Settings { interface: Some("eth1".into()), ..Settings::default() };
        assert_eq!(name(Some(named), Some("eth0")), "eth1");
        let bound = Settings { bind: Some([172, 17, 0, 1].into()), ..Settings::default() };
        assert_eq!(name(Some(bound), None), "docker0");
        let missing = Settings { interface: Some("ib0".into()), ..Settings::default() };
        assert_eq!(name(Some(missing), None), "ib0");
    }

    #[test]
    fn loopback_is_among_the_interfaces_of_this_host() {
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        assert!(interfaces().iter().any(|(_, address)| *address == loopback));
    }
}
