use thalweg_scenario::Scenario;

use super::*;

fn setup() -> Setup {
    crate::find("atp-10").unwrap().form(false)
}

#[test]
fn the_last_rounds_do_not_count() {
    let at = |us: [u64; 6]| us.map(|us| Time::ZERO + Span::from_us(us)).to_vec();
    // The slower worker has its fourth sum after 64 us.
    let sums_at = [at([1, 20, 21, 50, 51, 900]), at([5, 10, 30, 64, 70, 80])];
    assert_eq!(bits_per_s(&sums_at, 1_000.0, 2), 4.0 * 8_000.0 / 64e-6);
}

#[test]
fn every_run_is_a_scenario_with_the_same_bytes_on_the_way() {
    let setup = setup();
    let cells = setup.cells();
    assert_eq!(cells.len(), 3 + 2 * 3 * 4);
    for cell in &cells {
        let text = setup.scenario(cell).to_string();
        Scenario::parse("test", &text, &no_files).unwrap();
    }
    assert_eq!(setup.label(&cells[SWITCHML]), "SwitchML, no loss");
    assert_eq!(setup.label(cells.last().unwrap()), "selective repair, 1% at every link");
    let slots = &setup.systems[SWITCHML].aggregation;
    let number = |key: &str| slots[key].as_integer().unwrap();
    let bytes = number("slots") * (number("fragment-values") * 4 + number("overhead-bytes"));
    assert_eq!(bytes, 119_880);
    assert_eq!(setup.systems[ATP].aggregation["window"].as_str(), Some("120KB"));
}
