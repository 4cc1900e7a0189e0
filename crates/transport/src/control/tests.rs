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

/// Window after acknowledgements of two classes in turn, of which the less urgent one takes far longer.
fn window_beside_waiting_packets(control: Control, classes: SampledClasses) -> u64 {
    let mut control = control.with_classes(classes).start(&START);
    for number in 0..400 {
        let is_urgent = number % 2 == 0;
        let acked = Acked {
            now: Time::ZERO + Span::from_ms(number),
            round_trip: Some(Span::from_us(if is_urgent { 20 } else { 5_000 })),
            priority: Some(if is_urgent { 1 } else { 6 }),
            in_flight: control.window(),
            transmission: number,
            next_transmission: number + 10,
            ..acked()
        };
        control.on_ack(&acked, &mut rng());
    }
    control.window().as_u64()
}

// spec: M-17 machine
#[test]
fn packets_behind_a_more_urgent_class_slow_no_control_down() {
    let swift = Swift { scaling: Span::ZERO, ..Swift::default() };
    let all = window_beside_waiting_packets(swift.into(), SampledClasses::All);
    let most_urgent = window_beside_waiting_packets(swift.into(), SampledClasses::MostUrgent);
    assert!(all < 10_000 && most_urgent > 10_000, "{all}, {most_urgent}");
}

/// The shortest of a round decides in these. So the urgent class pauses, though not for long.
// spec: M-17 machine
#[test]
fn a_pause_of_the_most_urgent_class_does_not_make_others_count() {
    let decrease = Decrease::OnDelay {
        target: Span::from_us(100),
        classes: SampledClasses::All,
        shared_phase: None,
    };
    let by_delay = Aimd { initial_bytes: 10_000, decrease, ..Aimd::default() };
    for control in [Control::from(by_delay), Delay::to(Span::from_us(100)).into()] {
        let window = |classes| {
            let mut control = control.with_classes(classes).start(&START);
            for number in 0..40 {
                let is_urgent = number < 10;
                let acked = Acked {
                    now: Time::ZERO + Span::from_us(number),
                    round_trip: Some(Span::from_us(if is_urgent { 20 } else { 5_000 })),
                    priority: Some(if is_urgent { 1 } else { 6 }),
                    in_flight: control.window(),
                    transmission: number,
                    next_transmission: number + 1,
                    ..acked()
                };
                control.on_ack(&acked, &mut rng());
            }
            control.window().as_u64()
        };
        let (all, most_urgent) = (window(SampledClasses::All), window(SampledClasses::MostUrgent));
        assert!(2 * all < most_urgent, "{control:?}: {all}, {most_urgent}");
    }
}

#[test]
fn classes_matter_to_controls_by_delay_alone() {
    let urgent = SampledClasses::MostUrgent;
    for control in [Control::default(), NewReno.into(), Aimd::default().into()] {
        assert_eq!(control.with_classes(urgent), control);
    }
    let rate = DelayRate { classes: urgent, ..DelayRate::default() };
    assert_eq!(Control::from(DelayRate::default()).with_classes(urgent), rate.into());
}
