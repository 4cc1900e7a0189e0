//! Nodes that are named by where they are, and send from several ports.

use thalweg_core::{BodySize, Machine, NodeId, Outbox, Packet, Purpose, Reports, Time, Verdict};
use thalweg_net::{Driver, DriverConfig, Endpoint, EndpointConfig, Network, OpenError, Peers};

use crate::{turn, until};

/// Sends one packet over every path to a node, and notes from whom and over which path packets came.
#[derive(Default)]
struct Sprayer {
    to: Option<NodeId>,
    paths_left: u16,
    seen: Vec<(NodeId, u16)>,
}

impl Machine for Sprayer {
    fn handle_packet(&mut self, _now: Time, packet: Packet<'_>) -> Verdict<'_> {
        self.seen.push((packet.meta.src, packet.meta.entropy));
        Verdict::Consume
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, outbox: &mut dyn Outbox) {
        let Some(to) = self.to else { return };
        while self.paths_left > 0
            && let Some(packet) = outbox.lend(BodySize::Length(8), Purpose::Data)
        {
            self.paths_left -= 1;
            packet.meta.dst = to;
            packet.meta.entropy = self.paths_left;
        }
    }

    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }
}

impl Reports for Sprayer {
    type Event = ();

    fn poll_event(&mut self) -> Option<()> {
        None
    }
}

fn node(paths: u16) -> (Driver<Sprayer>, NodeId) {
    let config = EndpointConfig { paths, ..EndpointConfig::default() };
    let endpoint = Endpoint::open_block(&config).expect("a block of ports is free");
    let network = Network::of(endpoint.local_address().ip());
    let node = network.node(endpoint.local_address()).expect("it is its own network");
    let config = DriverConfig { node, ..DriverConfig::default() };
    let driver = Driver::new(config, endpoint, Peers::in_network(network), Sprayer::default());
    (driver.expect("the settings are right"), node)
}

#[test]
fn one_node_sends_from_many_ports() {
    let (mut from, from_node) = node(4);
    let (mut to, to_node) = node(1);
    let order = |machine: &mut Sprayer, _| (machine.to, machine.paths_left) = (Some(to_node), 4);
    from.command(order, |()| {});
    until("packets", || {
        turn(&mut from);
        turn(&mut to);
        to.machine().seen.len() == 4
    });
    let mut seen = to.machine().seen.clone();
    seen.sort_unstable();
    let port = from.local_address().port();
    assert_eq!(port % 8, 0);
    assert_eq!(seen, [0, 1, 2, 3].map(|path| (from_node, port + path)));
    // And back to where it is reached.
    let order = |machine: &mut Sprayer, _| (machine.to, machine.paths_left) = (Some(from_node), 1);
    to.command(order, |()| {});
    until("an answer", || {
        turn(&mut to);
        turn(&mut from);
        from.machine().seen == [(to_node, to.local_address().port())]
    });
}

#[test]
fn blocks_begin_where_they_must() {
    let open = |port, paths| {
        let bind = ([127, 0, 0, 1], port).into();
        Endpoint::open_block(&EndpointConfig { bind, paths, ..EndpointConfig::default() })
    };
    assert!(matches!(open(4_801, 1), Err(OpenError::Block { port: 4_801, paths: 1 })));
    assert!(matches!(open(0, 0), Err(OpenError::Block { .. })));
    assert!(matches!(open(0, 9), Err(OpenError::Block { paths: 9, .. })));
    let taken = open(0, 8).expect("a block of ports is free");
    let again = open(taken.local_address().port(), 1);
    assert!(matches!(again, Err(OpenError::Bind { .. })));
}
