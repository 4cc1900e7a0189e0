use super::*;

/// What one variant costs with so many workers, at the quick size.
fn cost(variant: &str, workers: u32) -> Cost {
    let context = Context::unwatched("atp-scale", 5, 1);
    let setup: Setup = context.figure.form(true);
    let variant = setup.variants.iter().find(|known| known.name == variant).unwrap();
    let size = setup.sizes.iter().find(|size| size.workers() == workers).unwrap();
    let measure = |size: &Size, point: &crate::Point<'_>| setup.measure(variant, *size, point);
    context.each(&[*size], |_| String::new(), measure).unwrap()[0]
}

/// Bytes by formula. Acknowledgements come on top: 64 bytes for a packet of 1,538.
#[test]
fn traffic_is_what_formulas_say() {
    let acknowledged = 1.0 + 64.0 / 1_538.0;
    let server = cost("parameter server", 8);
    assert!((8.0..8.1 * acknowledged).contains(&server.busiest_host), "{server:?}");
    // Each worker is reached over six links, and reaches the server over six.
    assert!((12.0..12.1 * acknowledged).contains(&server.all_links), "{server:?}");
    let ring = cost("ring", 8);
    // Two tensors less one eighth of each, and as many acknowledgements.
    assert!((1.75..1.77 * acknowledged).contains(&ring.busiest_host), "{ring:?}");
    assert_eq!((server.server, ring.server), (None, None));
}

// spec: A-13 simulator
#[test]
fn a_thousand_workers_get_every_sum_and_the_server_one() {
    for levels in ["two levels", "three levels"] {
        let cost = cost(levels, 1_024);
        assert_eq!((cost.fewest_sums, cost.server), (2, Some(1.0)), "{levels}: {cost:?}");
        // A tensor of 64 frames takes 7.9 µs at 100 Gbps, the way to the server and back 12 µs.
        assert!((19.9..25.0).contains(&cost.time_us), "{levels}: {cost:?}");
    }
}
