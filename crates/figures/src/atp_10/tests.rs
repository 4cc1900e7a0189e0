use super::*;

fn setup() -> Setup {
    crate::Plan::of(&Atp10).unwrap().settings(&Atp10, false).unwrap()
}

#[test]
fn the_last_rounds_do_not_count() {
    let at = |us: [u64; 6]| us.map(|us| Time::ZERO + Span::from_us(us)).to_vec();
    // The slower worker has its fourth sum after 64 us.
    let sums_at = [at([1, 20, 21, 50, 51, 900]), at([5, 10, 30, 64, 70, 80])];
    assert_eq!(bits_per_s(&sums_at, 1_000.0, 2), 4.0 * 8_000.0 / 64e-6);
}

#[test]
fn runs_come_back_in_the_order_in_which_they_were_listed() {
    let setup = setup();
    let items = setup.items();
    assert_eq!(items.len(), 3 + 2 * 3 * 4);
    let numbered = |(number, _)| Measured {
        bits_per_s: f64::from(number as u32),
        resent: 0,
        queries: 0,
        timeouts: 0,
    };
    let sorted = setup.sort(&items.iter().enumerate().map(numbered).collect::<Vec<_>>());
    let number = |measured: &Measured| measured.bits_per_s as usize;
    let label = |measured: &Measured| items[number(measured)].label();
    assert_eq!(label(&sorted.without_loss[SWITCHML]), "SwitchML, no loss");
    assert_eq!(label(&sorted.with_loss[1][SELECTIVE][3]), "selective repair, 1% at every link");
    assert_eq!(label(&sorted.with_loss[0][ATP][0]), "ATP, 0.001% at one worker");
}

#[test]
fn every_run_is_a_scenario_with_the_same_bytes_on_the_way() {
    let setup = setup();
    for item in setup.items() {
        let text = setup.scenario(&item).to_string();
        Scenario::parse("test", &text, &|_| Err(String::new())).unwrap();
    }
    let slots = &setup.systems[SWITCHML].aggregation;
    let number = |key: &str| slots[key].as_integer().unwrap();
    let bytes = number("slots") * (number("fragment-values") * 4 + number("overhead-bytes"));
    assert_eq!(bytes, 119_880);
    assert_eq!(setup.systems[ATP].aggregation["window"].as_str(), Some("120KB"));
}
