//! Laws that all windows keep.

use super::testing::{Feeder, acked, lost, rng};
use super::*;

const START: ControlStart = ControlStart { packet_bytes: 1_000, initial_packets: 10 };

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    for control in [Control::default(), NewReno.into(), Cubic.into()] {
        let mut control = control.start(&START);
        let mut ack = |in_flight: u64, in_recovery: bool| {
            let acked = Acked { in_flight: Bytes::new(in_flight), in_recovery, ..acked() };
            control.on_ack(&acked, &mut rng());
            control.window()
        };
        assert_eq!(ack(4_999, false), Bytes::new(10_000));
        assert_eq!(ack(10_000, true), Bytes::new(10_000));
        assert_eq!(ack(5_000, false), Bytes::new(11_000));
    }
}

#[test]
fn a_timeout_leaves_one_packet_and_a_second_one_keeps_the_threshold() {
    for (control, threshold) in
        [(Control::default(), 5_000), (NewReno.into(), 5_000), (Cubic.into(), 7_000)]
    {
        let mut control = control.start(&START);
        control.on_timeout(Time::ZERO);
        control.on_timeout(Time::ZERO);
        assert_eq!(control.window(), Bytes::new(1_000));
        // Slow start goes on exactly up to the threshold.
        let mut feeder = Feeder::default();
        while control.window().as_u64() < threshold {
            let before = control.window().as_u64();
            feeder.ack(&mut control, false);
            assert_eq!(control.window().as_u64(), before + 1_000);
        }
        feeder.ack(&mut control, false);
        assert!(control.window().as_u64() < threshold + 1_000);
    }
}

#[test]
fn no_reduction_goes_below_two_packets() {
    for control in [Control::default(), NewReno.into(), Cubic.into(), Aimd::default().into()] {
        let mut control = control.start(&START);
        (0..20).for_each(|number| assert!(control.on_loss(&lost(number, number + 1))));
        assert_eq!(control.window(), Bytes::new(2_000));
    }
}

#[test]
fn losses_of_one_window_cut_it_once() {
    for control in [Control::default(), NewReno.into(), Cubic.into(), Bbr.into()] {
        let mut control = control.start(&START);
        assert!(control.on_loss(&lost(3, 10)));
        let window = control.window();
        assert!(!control.on_loss(&lost(4, 12)), "it left before the cut");
        assert_eq!(control.window(), window);
        assert!(control.on_loss(&lost(10, 20)));
        control.restart();
        assert!(control.on_loss(&lost(0, 1)), "numbers begin again");
    }
}
