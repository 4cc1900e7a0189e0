fn main() {
    for file in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&file).unwrap();
        let load = |name: &str| std::fs::read_to_string(name).map_err(|e| e.to_string());
        let scenario = thalweg_scenario::Scenario::parse(&file, &text, &load).unwrap();
        let outcome = scenario.run_bare(1).finish();
        println!("{file} \"digest\":\"{:016x}\"", outcome.digest);
    }
}
