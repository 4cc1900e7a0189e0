//! Somewhere in a lab.

use std::fmt;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;

use netlink_packet_route::link::LinkAttribute;
use thalweg_core::PRIORITIES;

use crate::error::LabError;
use crate::firewall;
use crate::kernel::{BPF, NAMESPACE, NETLINK};
use crate::link;
use crate::namespace::on_thread;
use crate::queues::{Direction, QueueCounters};
use crate::sys;
use thalweg_linux::Netlink;

/// A host, a server or a switch: somewhere in a lab that programs and threads can run.
#[derive(Clone)]
pub struct Place {
    pub(crate) address: Ipv4Addr,
    pub(crate) interface: &'static str,
    pub(crate) index: u32,
    pub(crate) namespace: Arc<OwnedFd>,
    /// Queues of its link, if it is a host or a server and links have queues.
    pub(crate) queues: Option<Arc<LinkQueues>>,
}

/// The queues of both directions of a link.
pub(crate) struct LinkQueues {
    /// Towards the host.
    pub(crate) to: Direction,
    /// From the host.
    pub(crate) from: Direction,
}

/// Packets and bytes that a place has sent and received. A piece of up to 64 KB that the kernel passes on whole counts
/// as one packet. Packets that were lost on purpose count as received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets received.
    pub received_packets: u64,
    /// Bytes received; at a host with Ethernet headers.
    pub received_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes sent, with Ethernet headers.
    pub sent_bytes: u64,
}

impl Place {
    /// Address of the place.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The rack that it is in, or the switch of.
    pub fn rack(&self) -> u32 {
        // Its address says so: see `Spec`.
        u32::from(self.address.octets()[2])
    }

    /// The name of the device that has the address.
    pub fn interface(&self) -> &'static str {
        self.interface
    }

    /// Makes a command run here, and die when the **thread** that starts it ends, even by `SIGKILL`:
    /// start it from a thread that lives long enough.
    pub fn enter(&self, command: &mut Command) {
        sys::enter_before_start(command, Arc::clone(&self.namespace));
    }

    /// Moves the calling thread here for the rest of its life. Sockets that it opens from now on are
    /// here, and so are the threads that it starts.
    pub fn move_thread(&self) -> Result<(), LabError> {
        sys::enter_network(self.namespace.as_fd()).map_err(|error| NAMESPACE.refused(error))
    }

    /// Runs `work` on a thread here, and waits for it. Panics if it panics.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        on_thread(|| {
            self.move_thread()?;
            Ok(work())
        })
    }

    /// Sets the largest packet that its interface sends, while programs run.
    pub fn set_mtu(&self, mtu_bytes: u16) -> Result<(), LabError> {
        let open = || Netlink::open().map_err(|error| NETLINK.refused(error));
        self.run(|| link::set_mtu(&mut open()?, self.index, mtu_bytes))?
    }

    /// Gives its interface another address, of a network with this prefix that lies behind the interface.
    pub fn add_address(&self, address: Ipv4Addr, prefix_bits: u8) -> Result<(), LabError> {
        let open = || Netlink::open().map_err(|error| NETLINK.refused(error));
        self.run(|| link::add_address(&mut open()?, self.index, address, prefix_bits))?
    }

    /// Takes its link down for the rest of its life, as when a host dies or a cable is pulled: nothing that it sends
    /// leaves it, and nothing reaches it.
    pub fn take_down(&self) -> Result<(), LabError> {
        let open = || Netlink::open().map_err(|error| NETLINK.refused(error));
        self.run(|| link::take_down(&mut open()?, self.index))?
    }

    /// Gives it a firewall: UDP that arrives for other ports than one is dropped from now on.
    pub fn close_udp_but(&self, port: u16) -> Result<(), LabError> {
        let open = || Netlink::open().map_err(|error| NETLINK.refused(error));
        self.run(|| firewall::apply(&mut open()?, self.index, port))?
    }

    /// Packets and bytes sent and received until now.
    pub fn counters(&self) -> Result<LinkCounters, LabError> {
        let link = self.run(|| Netlink::open()?.link(self.index))?;
        let link = link.map_err(|error| NETLINK.refused(error))?;
        let counters = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Stats64(stats) => Some(LinkCounters {
                received_packets: stats.rx_packets,
                received_bytes: stats.rx_bytes,
                sent_packets: stats.tx_packets,
                sent_bytes: stats.tx_bytes,
            }),
            _ => None,
        });
        Ok(counters.unwrap_or_default())
    }
}

impl Place {
    /// Counters of the queues of its switch's port, through which it receives. `None` for a switch, and in a lab without
    /// queues.
    pub fn queues_to(&self) -> Result<Option<[QueueCounters; PRIORITIES]>, LabError> {
        self.queue_counters(|queues| &queues.to)
    }

    /// Counters of its own queues, through which it sends.
    pub fn queues_from(&self) -> Result<Option<[QueueCounters; PRIORITIES]>, LabError> {
        self.queue_counters(|queues| &queues.from)
    }

    fn queue_counters(
        &self,
        direction: impl Fn(&LinkQueues) -> &Direction,
    ) -> Result<Option<[QueueCounters; PRIORITIES]>, LabError> {
        let counters = self.queues.as_deref().map(|queues| direction(queues).counters());
        counters.transpose().map_err(|error| BPF.refused(error))
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.address, self.interface)
    }
}
