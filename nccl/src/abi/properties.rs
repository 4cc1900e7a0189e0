//! Properties of a device, in the layouts of all versions.

use std::ffi::{c_char, c_int};

use super::{BYTES_MAX, PTR_HOST};
use crate::device::Device;

/// Number of communicators that a device is good for.
const COMMUNICATORS_MAX: c_int = 65_536;
/// A device of no rail and no plane.
const NO_RAIL: i16 = -1;

/// Fields that all versions begin with.
#[repr(C)]
pub struct Head {
    name: *const c_char,
    pci_path: *const c_char,
    guid: u64,
    pointers: c_int,
    is_registration_global: c_int,
}

/// Fields that all versions have behind the first ones.
#[repr(C)]
pub struct Link {
    speed_mbps: c_int,
    port: c_int,
    latency: f32,
    communicators_max: c_int,
    receives_max: c_int,
    device_type: c_int,
    device_version: c_int,
}

/// Physical devices of a device.
#[repr(C)]
pub struct Parts<const N: usize> {
    count: c_int,
    devices: [c_int; N],
}

/// Largest messages.
#[repr(C)]
pub struct Limits {
    message_bytes_max: usize,
    sum_bytes_max: usize,
}

/// Properties of version 8.
#[repr(C)]
pub struct PropertiesV8 {
    head: Head,
    link: Link,
}

/// Properties of versions 9 and 10.
#[repr(C)]
pub struct PropertiesV9 {
    head: Head,
    must_flush: c_int,
    link: Link,
    parts: Parts<4>,
    limits: Limits,
}

/// Properties of version 11.
#[repr(C)]
pub struct PropertiesV11 {
    common: PropertiesV9,
    requests_in_one_max: c_int,
}

/// Properties of version 12.
#[repr(C)]
pub struct PropertiesV12 {
    head: Head,
    must_flush: c_int,
    link: Link,
    parts: Parts<8>,
    limits: Limits,
    requests_in_one_max: c_int,
    rail: i16,
    plane: i16,
}

impl From<&'static Device> for Head {
    fn from(device: &'static Device) -> Head {
        let pci_path = device.pci_path.as_ref().map_or(std::ptr::null(), |path| path.as_ptr());
        let name = device.name.as_ptr();
        Head { name, pci_path, guid: 0, pointers: PTR_HOST, is_registration_global: 0 }
    }
}

impl From<&'static Device> for Link {
    fn from(device: &'static Device) -> Link {
        Link {
            speed_mbps: device.speed_mbps,
            port: 0,
            latency: 0.0,
            communicators_max: COMMUNICATORS_MAX,
            receives_max: 1,
            device_type: 0,
            device_version: 0,
        }
    }
}

impl<const N: usize> Parts<N> {
    /// The only device, by itself.
    fn one() -> Parts<N> {
        Parts { count: 1, devices: [0; N] }
    }
}

const LIMITS: Limits = Limits { message_bytes_max: BYTES_MAX, sum_bytes_max: BYTES_MAX };

impl From<&'static Device> for PropertiesV8 {
    fn from(device: &'static Device) -> PropertiesV8 {
        PropertiesV8 { head: device.into(), link: device.into() }
    }
}

impl From<&'static Device> for PropertiesV9 {
    fn from(device: &'static Device) -> PropertiesV9 {
        let (head, link) = (device.into(), device.into());
        PropertiesV9 { head, must_flush: 0, link, parts: Parts::one(), limits: LIMITS }
    }
}

impl From<&'static Device> for PropertiesV11 {
    fn from(device: &'static Device) -> PropertiesV11 {
        PropertiesV11 { common: device.into(), requests_in_one_max: 1 }
    }
}

impl From<&'static Device> for PropertiesV12 {
    fn from(device: &'static Device) -> PropertiesV12 {
        PropertiesV12 {
            head: device.into(),
            must_flush: 0,
            link: device.into(),
            parts: Parts::one(),
            limits: LIMITS,
            requests_in_one_max: 1,
            rail: NO_RAIL,
            plane: NO_RAIL,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::super::assert_offsets;
    use super::*;

    /// Offsets of a link's fields behind its first.
    fn assert_link(begin: usize, expected: [usize; 7]) {
        let offsets = [
            offset_of!(Link, speed_mbps),
            offset_of!(Link, port),
            offset_of!(Link, latency),
            offset_of!(Link, communicators_max),
            offset_of!(Link, receives_max),
            offset_of!(Link, device_type),
            offset_of!(Link, device_version),
        ];
        assert_eq!(offsets.map(|offset| offset + begin), expected);
    }

    #[test]
    fn all_versions_begin_alike() {
        assert_offsets!(Head, name: 0, pci_path: 8, guid: 16, pointers: 24, is_registration_global: 28);
        assert_eq!(size_of::<Head>(), 32);
    }

    // The offsets are those of NCCL's headers on 64-bit machines.
    #[test]
    fn properties_have_the_published_offsets() {
        assert_eq!(size_of::<PropertiesV8>(), 64);
        assert_link(offset_of!(PropertiesV8, link), [32, 36, 40, 44, 48, 52, 56]);

        assert_offsets!(PropertiesV9, must_flush: 32, parts: 64, limits: 88);
        assert_link(offset_of!(PropertiesV9, link), [36, 40, 44, 48, 52, 56, 60]);
        assert_offsets!(Parts<4>, count: 0, devices: 4);
        assert_offsets!(Limits, message_bytes_max: 0, sum_bytes_max: 8);
        assert_eq!(size_of::<PropertiesV9>(), 104);

        assert_offsets!(PropertiesV11, common: 0, requests_in_one_max: 104);
        assert_eq!(size_of::<PropertiesV11>(), 112);

        assert_offsets!(PropertiesV12, must_flush: 32, parts: 64, limits: 104, requests_in_one_max: 120);
        assert_offsets!(PropertiesV12, rail: 124, plane: 126);
        assert_link(offset_of!(PropertiesV12, link), [36, 40, 44, 48, 52, 56, 60]);
        assert_eq!((size_of::<Parts<8>>(), size_of::<PropertiesV12>()), (36, 128));
    }
}
