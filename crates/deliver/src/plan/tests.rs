use proptest::prelude::*;

use super::*;

fn layer(bytes: u64, small: f64, large: f64) -> LayerCost {
    LayerCost { bytes, small, large }
}

fn port(priorities: u8, packets: u64, load: f64) -> Port {
    let policy = FrontFirst { first_priority: 1, priorities };
    Port { policy, packet_bytes: 1_000, load, ..Port::new(1_000 * packets) }
}

/// The published formula.
fn lost(load: f64, places: u64) -> f64 {
    if load == 1.0 {
        return 1.0 / (places + 1) as f64;
    }
    let power = |exponent: u64| load.powi(exponent as i32);
    (power(places) - power(places + 1)) / (1.0 - power(places + 1))
}

// spec: M-13 machine
#[test]
fn losses_are_those_of_the_formula() {
    for load in [0.05, 0.5, 0.99, 1.0, 1.7] {
        let mut found = 1.0;
        for places in 1..60 {
            found = lost_with_one_more(load, found);
            let expected = lost(load, places);
            assert!((found - expected).abs() <= 1e-12, "{load}, {places}: {found}, {expected}");
        }
    }
}

// spec: M-13 machine
#[test]
fn the_buffer_is_dealt_out_as_well_as_can_be() {
    let layers = [layer(300, 0.2, 1.0), layer(500, 0.1, 3.0)];
    let port = port(2, 12, 0.8);
    let found = plan(&layers, &port).unwrap();
    // Every way to deal out 12 places to the four halves.
    let loads = [0.8 * 0.375, 0.8 * 0.625 / (1.0 - 0.8 * 0.375)];
    let mut least = f64::INFINITY;
    for a in 1..=9 {
        for b in 1..=10 - a {
            for c in 1..=11 - a - b {
                let places = [a, b, c, 12 - a - b - c];
                let costs = [0.2, 1.0, 0.1, 3.0];
                let expense = |at: usize| 100.0 * costs[at] * lost(loads[at / 2], places[at]);
                least = least.min((0..4).map(expense).sum());
            }
        }
    }
    assert!((found.cost - least).abs() < 1e-9, "{} against {least}", found.cost);
    assert_eq!(found.queues.iter().map(|queue| queue.limit_bytes).sum::<u64>(), 12_000);
}

// spec: M-13 machine
#[test]
fn urgent_queues_get_lower_thresholds() {
    let layers = vec![layer(1_000_000, 1.0, 4.0); 56];
    let plan = plan(&layers, &Port::new(512_000)).unwrap();
    assert_eq!(plan.queues.len(), 7);
    let thresholds: Vec<u64> = plan.queues.iter().map(|queue| queue.threshold_bytes).collect();
    assert!(thresholds.is_sorted() && thresholds[0] < thresholds[6], "{thresholds:?}");
    for (at, queue) in plan.queues.iter().enumerate() {
        assert_eq!((usize::from(queue.priority), queue.layers.len()), (at + 1, 8));
        assert!(queue.threshold_bytes <= queue.limit_bytes);
        assert!(queue.lost_large <= queue.lost_small, "what costs more is kept longer");
    }
    assert!(plan.queues[6].lost_large < plan.queues[6].lost_small);
}

#[test]
fn what_costs_more_gets_more() {
    let threshold = |small| {
        let layers = [layer(1_000, small, 4.0), layer(1_000, 1.0, 4.0)];
        plan(&layers, &port(2, 100, 0.9)).unwrap().queues[0].threshold_bytes
    };
    assert!(threshold(5.0) > threshold(1.0) && threshold(1.0) > threshold(0.2));
}

#[test]
fn what_cannot_be_planned_is_refused() {
    let layers = [layer(1_000, 1.0, 1.0)];
    assert_eq!(plan(&[], &port(2, 100, 0.9)), Err(PlanError::NoLayers));
    assert_eq!(plan(&layers, &port(0, 100, 0.9)), Err(PlanError::NoQueues));
    assert!(matches!(plan(&layers, &port(2, 100, 1.0)), Err(PlanError::Share { .. })));
    assert_eq!(plan(&[layer(1, f64::NAN, 1.0)], &port(2, 100, 0.9)), Err(PlanError::Cost(0)));
    let error = PlanError::Buffer { buffer_bytes: 3_000, needed_bytes: 4_000 };
    assert_eq!(plan(&layers, &port(2, 3, 0.9)), Err(error));
}

proptest! {
    #[test]
    fn any_model_gets_a_plan_within_the_buffer(
        layers in prop::collection::vec((1..1u64 << 30, 0.0..9.0f64, 0.0..9.0f64), 1..80),
        (priorities, packets, load) in (1..8u8, 14..600u64, 0.01..0.99f64),
    ) {
        let layers: Vec<_> =
            layers.into_iter().map(|(bytes, small, large)| layer(bytes, small, large)).collect();
        let plan = plan(&layers, &port(priorities, packets, load)).unwrap();
        prop_assert_eq!(plan.queues.len(), usize::from(priorities));
        let limits: u64 = plan.queues.iter().map(|queue| queue.limit_bytes).sum();
        prop_assert_eq!(limits, 1_000 * packets);
        // Every layer is in one queue, in order.
        let mut next = 0;
        for queue in &plan.queues {
            prop_assert_eq!(queue.layers.start, next);
            next = queue.layers.end;
            prop_assert!(queue.threshold_bytes <= queue.limit_bytes);
            prop_assert!((0.0..=1.0).contains(&queue.lost_small));
        }
        prop_assert_eq!(next, layers.len());
    }
}
