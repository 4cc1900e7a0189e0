//! Puts a lab together.
//!
//! ```text
//!   host 0   host 1   server 0        host 2   host 3
//!    eth0     eth0      eth0           eth0     eth0
//!      \       |        /                \       /
//!     br0 in rack 0 (10.77.0.254)       br0 in rack 1 (10.77.1.254)
//!                     \                  /
//!                       br0 in the core
//! ```
//!
//! With [routed links](RoutedLinks) there is no core: the racks are joined by several pairs of `path0`, `path1`, ….
//!
//! Every line is a pair of devices. Each end shapes what it sends. Packets are lost where they end:
//! at `eth0` of a host, and at `br0` of a rack, which is given only what is for the switch itself.

use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use crate::error::LabError;
use crate::lab::Lab;
use crate::link::{self, End, LOOPBACK};
use crate::loss::Loss;
use crate::namespace::Namespace;
use crate::place::{LinkQueues, Place};
use crate::queues::Direction;
use crate::routed::{self, Path};
use crate::shape::Shape;
use crate::spec::{PREFIX_BITS, RoutedLinks, Spec};
use thalweg_linux::Netlink;

const HOST_INTERFACE: &str = "eth0";
const BRIDGE_INTERFACE: &str = "br0";
/// The number of the device that a place is named after, `eth0` or `br0`.
const MAIN: u32 = 1_000;
/// Longest time that links may take to come up. They take milliseconds.
const UP_WITHIN_S: u32 = 5;
const LOOK_EVERY_MS: u32 = 1;

pub(crate) struct Builder<'a> {
    spec: &'a Spec,
    loss: Option<Loss>,
}

/// A namespace that becomes a place.
struct Node {
    namespace: Namespace,
    /// All devices but the loopback one, in the order in which they were made.
    devices: u32,
    /// Queues of a host's link.
    queues: Option<LinkQueues>,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(spec: &'a Spec) -> Result<Builder<'a>, LabError> {
        Ok(Builder { spec, loss: Loss::load(spec.loss)? })
    }

    pub(crate) fn build(&self) -> Result<Lab, LabError> {
        let mut racks = (0..self.spec.racks)
            .map(|rack| self.switch(Some(self.spec.switch_address(rack))))
            .collect::<Result<Vec<Node>, LabError>>()?;
        if let (Some(links), [first, second]) = (&self.spec.routed_links, &mut racks[..]) {
            self.route(links, [first, second])?;
        }
        let paths = racks[0].paths();
        let mut core = match racks.len() {
            1 => None,
            _ if self.spec.routed_links.is_some() => None,
            _ => Some(self.switch(None)?),
        };
        if let Some(core) = &mut core {
            for (rack, node) in racks.iter_mut().enumerate() {
                self.join(core, node, rack)?;
            }
        }
        let mut hosts = Vec::new();
        for host in 0..self.spec.hosts {
            let rack = &mut racks[self.spec.rack_of(host) as usize];
            let address = self.spec.host_address(host);
            let lossy = self.lossy(Some(host));
            hosts.push(self.host(rack, format!("host{host}"), address, lossy)?);
        }
        let mut servers = Vec::new();
        for server in 0..self.spec.servers {
            let address = self.spec.server_address(server);
            let lossy = self.lossy(None);
            servers.push(self.host(&mut racks[0], format!("server{server}"), address, lossy)?);
        }
        let all = racks.iter_mut().chain(&mut core).chain(&mut hosts).chain(&mut servers);
        await_links(all)?;
        let spec = self.spec;
        Ok(Lab {
            hosts: places(hosts, HOST_INTERFACE, |host| spec.host_address(host)),
            servers: places(servers, HOST_INTERFACE, |server| spec.server_address(server)),
            paths,
            racks: places(racks, BRIDGE_INTERFACE, |rack| spec.switch_address(rack)),
            core: core.map(|core| core.into_place(BRIDGE_INTERFACE, Ipv4Addr::UNSPECIFIED)),
        })
    }

    /// A namespace with a bridge, which has the address if one is given.
    fn switch(&self, address: Option<Ipv4Addr>) -> Result<Node, LabError> {
        let mut node = Node::new()?;
        let bridge = node.end(BRIDGE_INTERFACE.to_owned(), address);
        let netlink = &mut node.namespace.netlink;
        link::add_bridge(netlink, &bridge)?;
        link::set_mtu(netlink, MAIN, self.spec.mtu_bytes)?;
        if let Some(address) = address {
            link::add_address(netlink, MAIN, address, PREFIX_BITS)?;
            if self.spec.lossy_hosts.is_none() {
                self.lose(netlink, MAIN)?;
            }
        }
        link::bring_up(netlink, MAIN)?;
        Ok(node)
    }

    /// Packets that are lost on the link of a host, or of a server.
    fn lossy(&self, host: Option<u32>) -> Lossy {
        match (self.spec.lossy_hosts, host) {
            (None, _) => Lossy::Receives,
            (Some(hosts), Some(host)) if host < hosts => Lossy::BothWays,
            (Some(_), _) => Lossy::No,
        }
    }

    /// A namespace with a link to a switch.
    fn host(
        &self,
        rack: &mut Node,
        port: String,
        address: Ipv4Addr,
        lossy: Lossy,
    ) -> Result<Node, LabError> {
        let mut node = Node::new()?;
        let far = node.end(HOST_INTERFACE.to_owned(), Some(address));
        let port = rack.end(port, None);
        let shape = Shape::new(self.spec.rate, 1, self.spec.per_packet);
        node.queues = self.connect((rack, &port), (&mut node, &far), shape, self.spec.mtu_bytes)?;
        let netlink = &mut node.namespace.netlink;
        link::add_address(netlink, MAIN, address, PREFIX_BITS)?;
        match lossy {
            Lossy::No => {}
            Lossy::Receives => self.lose(netlink, MAIN)?,
            Lossy::BothWays => {
                self.lose(netlink, MAIN)?;
                self.lose(&mut rack.namespace.netlink, port.index)?;
            }
        }
        link::bring_up(&mut node.namespace.netlink, MAIN)?;
        Ok(node)
    }

    /// A link from the core to a switch, as fast as all its hosts together.
    fn join(&self, core: &mut Node, rack: &mut Node, number: usize) -> Result<(), LabError> {
        let far = rack.end("up".to_owned(), None);
        let port = core.end(format!("rack{number}"), None);
        let links = self.spec.hosts_per_rack();
        let shape = Shape::new(self.spec.rate, links, self.spec.per_packet);
        let mtu_bytes = self.spec.core_mtu_bytes.unwrap_or(self.spec.mtu_bytes);
        self.connect((core, &port), (rack, &far), shape, mtu_bytes)?;
        let netlink = &mut rack.namespace.netlink;
        link::put_on_bridge(netlink, far.index, MAIN)?;
        link::bring_up(netlink, far.index)
    }

    /// Joins two racks by links among which the kernel chooses by ports, each as fast as all hosts of a rack together.
    fn route(&self, links: &RoutedLinks, racks: [&mut Node; 2]) -> Result<(), LabError> {
        let [first, second] = racks;
        let loss = Loss::load_of_udp(links.loss_of_last)?;
        let mut hops = [Vec::new(), Vec::new()];
        let last = links.links - 1;
        for number in 0..links.links {
            let name = format!("path{number}");
            let ends = [first.end(name.clone(), None), second.end(name, None)];
            let far_namespace = second.namespace.file.as_raw_fd();
            link::add_pair(&mut first.namespace.netlink, &ends[0], None, &ends[1], far_namespace)?;
            let nodes = [&mut *first, &mut *second];
            for (rack, (node, end)) in (0..).zip(nodes.into_iter().zip(&ends)) {
                let netlink = &mut node.namespace.netlink;
                if self.spec.per_packet {
                    link::send_one_by_one(netlink, end.index)?;
                }
                link::set_mtu(netlink, end.index, self.spec.mtu_bytes)?;
                let links = self.spec.hosts_per_rack();
                Shape::new(self.spec.rate, links, self.spec.per_packet)
                    .apply(netlink, end.index)?;
                let own = routed::end_address(number, rack);
                link::add_address(netlink, end.index, own, routed::PREFIX_BITS)?;
                if let Some(loss) = loss.as_ref().filter(|_| number == last) {
                    loss.apply(netlink, end.index)?;
                }
                link::bring_up(netlink, end.index)?;
                hops[rack as usize].push((end.index, routed::end_address(number, 1 - rack)));
            }
        }
        for (rack, (node, hops)) in (0..).zip([first, second].into_iter().zip(hops)) {
            routed::forward(&node.namespace, BRIDGE_INTERFACE)?;
            let [own, to] = [rack, 1 - rack].map(|rack| self.spec.switch_address(rack));
            Path { own, to, hops }.add(&mut node.namespace.netlink)?;
        }
        Ok(())
    }

    /// Makes a shaped pair and brings its near end up. The far end follows when it is ready: the
    /// last one up can send at once, and of the two that should be the host.
    fn connect(
        &self,
        (near, port): (&mut Node, &End),
        (far, end): (&mut Node, &End),
        shape: Shape,
        mtu_bytes: u16,
    ) -> Result<Option<LinkQueues>, LabError> {
        let near = &mut near.namespace.netlink;
        link::add_pair(near, port, Some(MAIN), end, far.namespace.file.as_raw_fd())?;
        let far = &mut far.namespace.netlink;
        for (netlink, index) in [(&mut *near, port.index), (far, end.index)] {
            if self.spec.per_packet {
                link::send_one_by_one(netlink, index)?;
            }
            link::set_mtu(netlink, index, mtu_bytes)?;
            shape.apply(netlink, index)?;
        }
        let queues = self.add_queues(shape, (&mut *near, port.index), (far, end.index))?;
        link::bring_up(near, port.index)?;
        Ok(queues)
    }

    /// Makes the queues of both directions of a link, if it has queues.
    fn add_queues(
        &self,
        shape: Shape,
        (near, port): (&mut Netlink, u32),
        (far, end): (&mut Netlink, u32),
    ) -> Result<Option<LinkQueues>, LabError> {
        let Some(queues) = &self.spec.queues else { return Ok(None) };
        let shape = (&shape, self.piece_bytes());
        let to = Direction::apply(queues, shape, (&mut *near, port), (&mut *far, end))?;
        let from = Direction::apply(queues, shape, (far, end), (near, port))?;
        Ok(Some(LinkQueues { to, from }))
    }

    /// Bytes of the longest piece that the kernel passes on whole.
    fn piece_bytes(&self) -> u32 {
        if self.spec.per_packet { self.spec.mtu_bytes.into() } else { u16::MAX.into() }
    }

    /// Makes a device lose some of the packets that it receives.
    fn lose(&self, netlink: &mut Netlink, index: u32) -> Result<(), LabError> {
        self.loss.as_ref().map_or(Ok(()), |loss| loss.apply(netlink, index))
    }
}

/// Packets of a link that may be lost.
enum Lossy {
    No,
    Receives,
    BothWays,
}

impl Node {
    fn new() -> Result<Node, LabError> {
        let mut namespace = Namespace::new()?;
        link::bring_up(&mut namespace.netlink, LOOPBACK)?;
        Ok(Node { namespace, devices: 0, queues: None })
    }

    /// The next device.
    fn end(&mut self, name: String, address: Option<Ipv4Addr>) -> End {
        let index = MAIN + self.devices;
        self.devices += 1;
        End { index, name, hardware: address.map(link::hardware_address) }
    }

    /// The devices of a rack beside its bridge, of which there are none before it has hosts but routed links.
    fn paths(&self) -> Vec<Place> {
        let place = |index| Place {
            address: Ipv4Addr::UNSPECIFIED,
            interface: "path",
            index,
            namespace: Arc::clone(&self.namespace.file),
            queues: None,
        };
        (MAIN + 1..MAIN + self.devices).map(place).collect()
    }

    fn is_up(&mut self) -> Result<bool, LabError> {
        for index in MAIN..MAIN + self.devices {
            if !link::is_up(&mut self.namespace.netlink, index)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn into_place(self, interface: &'static str, address: Ipv4Addr) -> Place {
        let queues = self.queues.map(Arc::new);
        Place { address, interface, index: MAIN, namespace: self.namespace.file, queues }
    }
}

/// Waits until packets can pass everywhere. The kernel tells a bridge of its ports a little later.
#[expect(clippy::disallowed_methods, reason = "the kernel brings links up in real time")]
fn await_links<'n>(nodes: impl Iterator<Item = &'n mut Node>) -> Result<(), LabError> {
    let mut looks_left = UP_WITHIN_S * 1_000 / LOOK_EVERY_MS;
    for node in nodes {
        while !node.is_up()? {
            if looks_left == 0 {
                return Err(LabError::Down(UP_WITHIN_S));
            }
            looks_left -= 1;
            std::thread::sleep(Duration::from_millis(u64::from(LOOK_EVERY_MS)));
        }
    }
    Ok(())
}

fn places(
    nodes: Vec<Node>,
    interface: &'static str,
    address: impl Fn(u32) -> Ipv4Addr,
) -> Vec<Place> {
    (0..).zip(nodes).map(|(number, node)| node.into_place(interface, address(number))).collect()
}
