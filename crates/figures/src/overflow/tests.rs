use super::*;
use crate::Findings;
use crate::study::Of;

fn form(context: &Context<'_>) -> Of<Overflow> {
    context.figure.form(true)
}

/// Numbers for every number of workers.
fn quick_rows(seed: u64, threads: usize) -> Vec<Measured> {
    let context = Context::unwatched("atp-table1", seed, threads);
    let form = form(&context);
    let tensors = form.bench.prepare(&context).unwrap();
    let measure = |cell: &Cell<'_>, point: &Point<'_>| form.bench.measure(&tensors, cell, point);
    context.each(&form.study.cells().unwrap(), Cell::label, measure).unwrap()
}

#[test]
fn flagged_packets_are_as_many_as_the_distribution_says() {
    // The chance of |value| > B, integrated by another program over layer, amplitude and normal
    // number, times the values of an epoch. Packets with two large values make it slightly less.
    let expected = [31_500.0, 221_000.0, 1_470_000.0, 9_040_000.0];
    for (row, expected) in quick_rows(1, 2).iter().zip(expected) {
        let flagged = row.number("flagged");
        let ratio = flagged / expected;
        assert!((0.75..1.25).contains(&ratio), "{row:?}: {ratio}");
        assert!(row.number("false-positives") <= flagged && flagged < row.number("packets"));
    }
}

#[test]
fn an_epoch_has_the_same_packets_however_many_share_it() {
    // 1,281,167 images in batches of 32, and 412,323 packets for the tensors of ResNet50.
    let context = Context::unwatched("atp-table1", 1, 1);
    let tensors = form(&context).bench.prepare(&context).unwrap();
    let packets: u64 = tensors.iter().map(|values| values.div_ceil(62)).sum();
    let expected = 1_281_167.0 / 32.0 * packets as f64;
    for row in quick_rows(1, 2) {
        assert!((row.number("packets") / expected - 1.0).abs() < 1e-9, "{row:?}");
    }
}

#[test]
fn threads_change_nothing_and_seeds_do() {
    let of = |seed, threads| -> Vec<f64> {
        quick_rows(seed, threads).iter().map(|row| row.number("false-positives")).collect()
    };
    assert_eq!(of(1, 1), of(1, 3));
    assert_ne!(of(1, 1), of(2, 1));
}

#[test]
fn another_tail_fails() {
    // The claim on the growth can fail: with the tail of index 1.2 the count hardly doubles.
    let context = Context::unwatched("atp-table1", 1, 2);
    let form = form(&context);
    let tensors = form.bench.prepare(&context).unwrap();
    let measure = |cell: &Cell<'_>, point: &Point<'_>| {
        let choices: Choices = cell.settings(point)?;
        let gradients = Gradients { tail: 1.2, unit: 1e-4, ..choices.gradients };
        form.bench.count(&tensors, Choices { gradients, share_of_epoch: 1e-9, ..choices }, point)
    };
    let cells = form.study.cells().unwrap();
    let measured = context.each(&cells, Cell::label, measure).unwrap();
    let Findings { claims, .. } = form.study.findings(cells, measured).unwrap();
    assert!(!claims.last().unwrap().holds(), "{claims:?}");
    assert!(claims[1].holds());
}
