use proptest::prelude::*;
use thalweg_core::Rng;

use super::*;

fn parsed(lines: &str) -> Result<SizeDistribution, SizeError> {
    SizeDistribution::from_csv(&format!("{HEADER}\n{lines}"))
}

fn complaint(lines: &str) -> String {
    parsed(lines).expect_err("a broken curve").to_string()
}

fn sampled_mean(sizes: &SizeDistribution, draws: u64) -> f64 {
    let mut rng = Rng::new(11);
    (0..draws).map(|_| sizes.sample(&mut rng).as_u64() as f64).sum::<f64>() / draws as f64
}

#[test]
fn published_curves_have_their_means() {
    assert!((SizeDistribution::web_search().mean() - 1_711_250.0).abs() < 1.0);
    assert!((SizeDistribution::data_mining().mean() - 12_658_199.0).abs() < 1.0);
}

#[test]
fn samples_have_the_mean_of_the_curve() {
    for (sizes, tolerance) in [
        (SizeDistribution::web_search(), 0.01),
        (SizeDistribution::data_mining(), 0.03),
        (SizeDistribution::uniform(Bytes::new(100), Bytes::new(300)).unwrap(), 0.005),
        (parsed("8,0.25\n8,0.5\n24,1").unwrap(), 0.005),
    ] {
        let ratio = sampled_mean(&sizes, 400_000) / sizes.mean();
        assert!((ratio - 1.0).abs() < tolerance, "{ratio} for {sizes:?}");
    }
}

#[test]
fn sizes_below_a_byte_count_as_one() {
    for (lines, mean) in [
        ("0,1\n1,1", 1.0),
        ("0,0\n1,1", 1.0),
        ("0,0\n3,1", 1.0 / 3.0 + 2.0 / 3.0 * 2.0),
        ("0,0.5\n9,0.5\n9,1", 5.0),
    ] {
        let sizes = parsed(lines).unwrap();
        assert!((sizes.mean() - mean).abs() < 1e-12, "{lines}: {}", sizes.mean());
        let ratio = sampled_mean(&sizes, 400_000) / mean;
        assert!((ratio - 1.0).abs() < 0.005, "{lines}: {ratio}");
    }
}

#[test]
fn the_largest_size_is_known() {
    assert_eq!(SizeDistribution::data_mining().largest(), Bytes::new(1_000_000_000));
    assert_eq!(SizeDistribution::web_search().capped(Bytes::new(7)).largest(), Bytes::new(7));
    assert_eq!(parsed("0,0\n1.4,1").unwrap().largest(), Bytes::new(1));
    assert_eq!(parsed("0,0\n9007199254740992,1").unwrap().largest(), Bytes::new(1 << 53));
}

#[test]
fn samples_follow_the_curve() {
    let sizes = SizeDistribution::web_search();
    let mut rng = Rng::new(5);
    let draws = 200_000;
    let small = (0..draws).filter(|_| sizes.sample(&mut rng) <= Bytes::new(80_000)).count();
    let share = small as f64 / f64::from(draws);
    assert!((share - 0.53).abs() < 0.005, "{share}");
}

#[test]
fn steps_and_fixed_sizes_are_exact() {
    let mut rng = Rng::new(1);
    let fixed = SizeDistribution::fixed(Bytes::new(450_000));
    assert_eq!(fixed.sample(&mut rng), Bytes::new(450_000));
    assert_eq!(SizeDistribution::fixed(Bytes::ZERO).sample(&mut rng), Bytes::new(1));
    let step = parsed("1460,0\n1460,0.5\n2920,1").unwrap();
    assert_eq!(step.quantile(0.0), 1_460.0);
    assert_eq!(step.quantile(0.49), 1_460.0);
    assert_eq!(step.quantile(0.75), 2_190.0);
    assert_eq!(step.mean(), 1_825.0);
    assert_eq!(parsed("10,0.5\n30,1").unwrap().mean(), 15.0);
}

#[test]
fn complaints_name_the_line_and_the_change() {
    assert_eq!(
        complaint("0,0\n20,0.5\n10,1"),
        "line 4: size_bytes falls from 20 to 10: sort the lines by size"
    );
    assert_eq!(
        complaint("0,0\n20,0.5\n30,0.4"),
        "line 4: cdf falls from 0.5 to 0.4: sort the lines by size"
    );
    assert_eq!(
        complaint("0,0\n20,50\n30,100"),
        "line 3: cdf is 50, above 1: if it is in percent, divide it by 100"
    );
    assert_eq!(
        complaint("0,0\n20,0.97\n"),
        "line 3: the curve ends at cdf 0.97: add a line for the largest size, cdf 1"
    );
    assert_eq!(complaint("0,1"), "the largest size is below 1 byte: give sizes in bytes");
    assert_eq!(
        complaint("0,0\nbig,1"),
        "line 3: size_bytes is `big`: write a number from 0 to 2^53"
    );
    assert_eq!(
        complaint(""),
        "line 1: the curve ends at cdf 0: add a line for the largest size, cdf 1"
    );
    assert!(matches!(SizeDistribution::from_csv(""), Err(SizeError::Table(_))));
    let swapped = SizeDistribution::uniform(Bytes::new(2), Bytes::new(1));
    assert!(matches!(swapped, Err(SizeError::Range { .. })));
}

#[test]
fn a_curve_that_nearly_ends_at_one_does() {
    assert_eq!(parsed("0,0\n9,0.9999999999"), parsed("0,0\n9,1"));
    assert_eq!(parsed("0,0\n9,1.0000000001"), parsed("0,0\n9,1"));
}

#[test]
fn capping_cuts_flows_and_keeps_the_rest() {
    let sizes = parsed("0,0\n100,0.5\n300,1").unwrap();
    // From 0 to 200 three quarters of the flows, the last quarter cut to 200.
    let capped = sizes.capped(Bytes::new(200));
    // One in two hundred is below a byte, by half of one on average.
    let mean = 50.0 * 0.5 + 150.0 * 0.25 + 200.0 * 0.25 + 0.005 * 0.5;
    assert!((capped.mean() - mean).abs() < 1e-12, "{}", capped.mean());
    assert_eq!(capped.quantile(0.99), 200.0);
    assert_eq!(capped.quantile(0.6), sizes.quantile(0.6));
    assert_eq!(sizes.capped(Bytes::new(300)), sizes);
    let fixed = SizeDistribution::fixed(Bytes::new(9));
    assert_eq!(fixed.capped(Bytes::new(4)).quantile(0.0), 4.0);
}

/// Any curve of a few points, as text.
fn curves() -> impl Strategy<Value = SizeDistribution> {
    prop::collection::vec((0..1_000_000u64, 0.0..1.0f64), 1..12).prop_map(|mut points| {
        let mut cdfs: Vec<f64> = points.iter().map(|point| point.1).collect();
        cdfs.sort_by(f64::total_cmp);
        points.sort_by_key(|point| point.0);
        let mut text = format!("{HEADER}\n");
        for (point, cdf) in points.iter().zip(cdfs) {
            text += &format!("{},{cdf}\n", point.0);
        }
        SizeDistribution::from_csv(&(text + "1000000,1\n")).unwrap()
    })
}

proptest! {
    #[test]
    fn quantiles_rise_and_stay_on_the_curve(sizes in curves(), low in 0.0..1.0f64, high in 0.0..1.0f64) {
        let (low, high) = (low.min(high), low.max(high));
        prop_assert!(sizes.quantile(low) <= sizes.quantile(high));
        prop_assert!(sizes.quantile(high) <= sizes.last_bytes());
        prop_assert!(sizes.quantile(low) >= sizes.points[0].bytes);
    }

    #[test]
    fn a_capped_quantile_is_the_smaller_of_the_two(
        sizes in curves(), cap in 1..1_200_000u64, fraction in 0.0..1.0f64,
    ) {
        let capped = sizes.capped(Bytes::new(cap)).quantile(fraction);
        let expected = sizes.quantile(fraction).min(cap as f64);
        prop_assert!((capped - expected).abs() <= 1e-6 * expected.max(1.0), "{} {}", capped, expected);
    }

    #[test]
    fn text_never_panics(text in "(size_bytes,cdf\n)?([0-9.,e\n-]|nan|inf){0,60}") {
        if let Ok(sizes) = SizeDistribution::from_csv(&text) {
            let mut rng = Rng::new(0);
            prop_assert!(sizes.sample(&mut rng) >= Bytes::new(1));
        }
    }
}
