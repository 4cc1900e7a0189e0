//! Packets that exceed the MTU of an interface, in a lab. It needs root.

use std::io::{self, IoSlice};
use std::net::SocketAddr;

use thalweg_lab::testing::build_or_skip;
use thalweg_lab::{Place, Spec};
use thalweg_net::{Endpoint, EndpointConfig, Message, mtu_of};

/// Sends a datagram from one place to another.
fn send(from: &Place, to: &Place, bytes: usize) -> io::Result<usize> {
    let config = EndpointConfig { bind: (from.address(), 0).into(), ..EndpointConfig::default() };
    let endpoint = from.run(|| Endpoint::open(&config)).expect("a place").expect("a socket");
    let (to, payload) = (SocketAddr::from((to.address(), 9)), vec![0; bytes]);
    let message = Message { to, tos: 0, segment_bytes: None, parts: 0..1 };
    endpoint.send(0, &[IoSlice::new(&payload)], &[message])
}

// spec: F-01 sockets
#[test]
fn packets_that_exceed_the_mtu_are_refused_and_not_cut() {
    let Some(lab) = build_or_skip(&Spec { hosts: 2, ..Spec::default() }) else { return };
    let (from, to) = (lab.host(0), lab.host(1));
    assert_eq!(send(from, to, 1_472).expect("it fits"), 1);
    let refused = send(from, to, 1_473).expect_err("it does not fit");
    assert_eq!(refused.raw_os_error(), Some(libc::EMSGSIZE));
    let own_mtu = || from.run(|| mtu_of(from.address().into())).expect("a place");
    assert_eq!(own_mtu(), 1_500);
    from.set_mtu(9_000).expect("a place");
    assert_eq!(own_mtu(), 9_000);
    assert_eq!(send(from, to, 8_972).expect("it fits"), 1);
}
