use super::*;

fn quick_rows(seed: u64, threads: usize) -> Vec<Row> {
    let context = Context::unwatched("atp-table1", seed, threads);
    let setup: Setup = context.figure.form(true);
    let tensors = setup.check(&context).unwrap();
    setup.rows(&context, &tensors, setup.gradients, setup.share_of_epoch).unwrap()
}

#[test]
fn flagged_packets_are_as_many_as_the_distribution_says() {
    // The chance of |value| > B, integrated by another program over layer, amplitude and normal
    // number, times the values of an epoch. Packets with two large values make it slightly less.
    let expected = [31_500.0, 221_000.0, 1_470_000.0, 9_040_000.0];
    for (row, expected) in quick_rows(1, 2).iter().zip(expected) {
        let ratio = row.flagged / expected;
        assert!((0.75..1.25).contains(&ratio), "{} workers: {ratio}", row.workers);
        assert!(row.false_positives <= row.flagged && row.flagged < row.packets);
    }
}

#[test]
fn an_epoch_has_the_same_packets_however_many_share_it() {
    // 1,281,167 images in batches of 32, and 412,323 packets for the tensors of ResNet50.
    let context = Context::unwatched("atp-table1", 1, 1);
    let tensors = context.figure.form::<Setup>(true).check(&context).unwrap();
    let packets: u64 = tensors.iter().map(|values| values.div_ceil(62)).sum();
    let expected = 1_281_167.0 / 32.0 * packets as f64;
    for row in quick_rows(1, 2) {
        assert!((row.packets / expected - 1.0).abs() < 1e-9, "{} workers", row.workers);
    }
}

#[test]
fn threads_change_nothing_and_seeds_do() {
    let of = |seed, threads| -> Vec<f64> {
        quick_rows(seed, threads).iter().map(|row| row.false_positives).collect()
    };
    assert_eq!(of(1, 1), of(1, 3));
    assert_ne!(of(1, 1), of(2, 1));
}

#[test]
fn another_tail_fails() {
    // The claim on the growth can fail: with the tail of index 1.2 the count hardly doubles.
    let context = Context::unwatched("atp-table1", 1, 2);
    let setup: Setup = context.figure.form(true);
    let tensors = setup.check(&context).unwrap();
    let gradients = Gradients { tail: 1.2, unit: 1e-4, ..setup.gradients };
    let rows = setup.rows(&context, &tensors, gradients, 1e-9).unwrap();
    let claims = setup.claims(&rows);
    assert!(!claims.last().unwrap().holds(), "{claims:?}");
    assert!(claims[1].holds());
}
