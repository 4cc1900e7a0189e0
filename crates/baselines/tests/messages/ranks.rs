//! Properties of all transports that rank messages.

use thalweg_core::{Bytes, Span, Time};
use thalweg_fabric::Config;
use thalweg_fabric::topology::OneSwitch;

use crate::stage::{CABLE, Sending, Transport, run};

/// A short message of `bytes` passes long ones as if they were not there; they share what is left and
/// all end.
pub fn a_short_message_does_not_notice_long_ones<T: Transport>(config: &Config, bytes: u64) {
    let topology = OneSwitch { hosts: 6, host_cable: CABLE }.build().expect("valid");
    let short = || Sending::new(Time::ZERO + Span::from_us(400), 5, 0, bytes);
    let (_, alone) = run::<T>(&topology, config, 1, vec![short()]);
    let mut messages: Vec<Sending> =
        (1..5).map(|host| Sending::new(Time::ZERO, host, 0, 1_000_000)).collect();
    messages.push(short());
    let (_, messages) = run::<T>(&topology, config, 1, messages);
    let fct = |messages: &[Sending]| {
        let sending = messages.iter().find(|sending| sending.src == 5).expect("it was sent");
        sending.received[0].since(sending.at).as_us_f64()
    };
    // At most the packet that is being sent delays it.
    assert!(fct(&messages) <= fct(&alone) + 1.3, "{} and {}", fct(&messages), fct(&alone));
}

/// The message that is taken for shorter goes first, and both arrive in full: the smaller one waits for the larger,
/// which was estimated to be smaller, up to where that is known to be wrong.
// spec: Q-12 simulator
pub fn the_estimated_size_decides<T: Transport>(config: &Config) {
    let topology = OneSwitch { hosts: 3, host_cable: CABLE }.build().expect("valid");
    let ends_us = |estimated: [u64; 2]| {
        let mut messages =
            vec![Sending::new(Time::ZERO, 1, 0, 600_000), Sending::new(Time::ZERO, 2, 0, 300_000)];
        for (sending, bytes) in messages.iter_mut().zip(estimated) {
            sending.estimated = Bytes::new(bytes);
        }
        let (_, messages) = run::<T>(&topology, config, 1, messages);
        [1, 2].map(|src| {
            let sending = messages.iter().find(|sending| sending.src == src).expect("it was sent");
            sending.received[0].as_us_f64()
        })
    };
    let [large, small] = ends_us([600_000, 300_000]);
    assert!(small < 280.0 && large > 720.0, "{small} and {large}");
    // Taken for each other, the larger one goes first, also past its estimate: up to its end it has sent less than the
    // smaller one is estimated to have left.
    let [large, small] = ends_us([300_000, 600_000]);
    assert!(large < 530.0 && small > 720.0, "{small} and {large}");
    // Past an estimate that was much too small it goes first until it has sent what the smaller one has left.
    let [large, small] = ends_us([30_000, 300_000]);
    assert!((450.0..540.0).contains(&small) && large > 720.0, "{small} and {large}");
}
