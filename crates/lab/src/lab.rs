//! A network of many hosts on one machine.

use std::os::fd::AsFd;

use crate::builder::Builder;
use crate::error::LabError;
use crate::inhabitants;
use crate::place::{LinkCounters, Place};
use crate::spec::Spec;
use crate::sys;

/// A network of many hosts on one machine. When this is dropped, all other processes in it are killed, and the network
/// is gone when the last thread in it has ended.
///
/// ```no_run
/// use std::process::Command;
/// use thalweg_lab::{Lab, Spec};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let lab = Lab::build(&Spec { hosts: 2, ..Spec::default() })?;
/// let mut ping = Command::new("ping");
/// ping.arg("-c1").arg(lab.host(1).address().to_string());
/// lab.host(0).enter(&mut ping);
/// assert!(ping.status()?.success());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Lab {
    pub(crate) hosts: Vec<Place>,
    pub(crate) servers: Vec<Place>,
    pub(crate) racks: Vec<Place>,
    /// The ends of routed links in the first rack.
    pub(crate) paths: Vec<Place>,
    /// The namespace that joins the racks, if there are several.
    pub(crate) core: Option<Place>,
}

impl Drop for Lab {
    fn drop(&mut self) {
        let places = self.hosts.iter().chain(&self.servers).chain(&self.racks).chain(&self.core);
        let places = places.filter_map(|place| sys::file_number(place.namespace.as_fd()).ok());
        inhabitants::kill_all(&places.collect());
    }
}

impl Lab {
    /// Builds it, and returns when packets can pass.
    pub fn build(spec: &Spec) -> Result<Lab, LabError> {
        spec.check()?;
        if !sys::is_root() {
            return Err(LabError::NotRoot);
        }
        Builder::new(spec)?.build()
    }

    /// All hosts.
    pub fn hosts(&self) -> &[Place] {
        &self.hosts
    }

    /// A host. Panics on a number out of range, as a slice does.
    pub fn host(&self, host: u32) -> &Place {
        &self.hosts[host as usize]
    }

    /// One of the further hosts in rack 0. Panics on a number out of range, as a slice does.
    pub fn server(&self, server: u32) -> &Place {
        &self.servers[server as usize]
    }

    /// Counters of each of the [routed links](crate::RoutedLinks), at the first rack.
    // spec: M-21
    pub fn routed_links(&self) -> Result<Vec<LinkCounters>, LabError> {
        self.paths.iter().map(Place::counters).collect()
    }

    /// The switches of all racks.
    pub fn racks(&self) -> &[Place] {
        &self.racks
    }

    /// The switch of a rack. Panics on a number out of range, as a slice does.
    pub fn rack(&self, rack: u32) -> &Place {
        &self.racks[rack as usize]
    }
}
