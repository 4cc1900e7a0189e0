use super::*;

fn streamed(bits_per_s: &[f64]) -> Streamed {
    Streamed { bits_per_s: bits_per_s.to_vec(), ..Streamed::default() }
}

#[test]
fn means_and_variation_begin_after_the_warm_up() {
    let steady = streamed(&[900.0, 4.0, 4.0, 4.0]);
    assert_eq!(steady.mean_bits_per_s(1), 4.0);
    assert_eq!(steady.variation(1), 0.0);
    let unsteady = streamed(&[0.0, 0.0, 8.0, 0.0, 8.0]);
    assert_eq!(unsteady.mean_bits_per_s(1), 4.0);
    assert_eq!(unsteady.variation(1), 1.0, "as far from the mean as it is large");
}

#[test]
fn a_job_needs_the_first_size_that_comes_close_to_the_last() {
    let setup: Setup = crate::find("atp-15").unwrap().form(true);
    let setup = Setup { candidates: vec![512, 1_024, 2_048], enough: 0.95, ..setup };
    let trained = |images_per_s| Trained { images_per_s, summed_share: 1.0 };
    let needed = |images_per_s: [f64; 3]| setup.needed(&images_per_s.map(trained));
    assert_eq!(needed([40.0, 95.0, 100.0]), 1_024);
    assert_eq!(needed([40.0, 94.0, 100.0]), 2_048);
    assert_eq!(needed([96.0, 90.0, 100.0]), 512);
}

#[test]
fn what_is_dropped_was_sent_too() {
    let counted = Streamed { sent: 3, dropped: 1, ..Streamed::default() };
    assert_eq!(counted.dropped_share(), 0.25);
}
