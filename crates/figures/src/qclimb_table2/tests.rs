use super::*;
use crate::workloads;

fn setup() -> Setup {
    crate::find("qclimb-table2").unwrap().form(true)
}

#[test]
fn sizes_have_the_published_shares_of_small_flows() {
    let expected = [0.95, 0.74, 0.66];
    for (workload, share) in setup().workloads.iter().zip(expected) {
        let curve = workloads::curve(&workload.name).unwrap();
        let at = curve.lines().find_map(|line| line.strip_prefix("100000,"));
        let found: f64 = at.unwrap().parse().unwrap();
        assert!((found - share).abs() < 0.005, "{}: {found}", workload.name);
    }
}

#[test]
fn precise_hints_tell_more_than_wide_ones() {
    let setup = setup();
    let context = Context::unwatched("qclimb-table2", 3, 1);
    let point = |width| Point { workload: &setup.workloads[0], depth: 10, trees: 3, width };
    let points = [point(0.0), point(10.0)];
    let measured =
        context.each(&points, Point::label, |point, at| setup.measure(point, at)).unwrap();
    let [precise, wide] = &measured[..] else { panic!("two points") };
    assert!(precise.lower_bytes[2] > 3.0 * wide.lower_bytes[2]);
    assert!(precise.share > 0.95 && wide.share > 0.95);
}

#[test]
fn the_sweep_is_where_it_is_looked_for() {
    let setup = setup();
    let points = setup.points();
    let first = setup.workloads.len() * setup.depths.len();
    let widths: Vec<f64> = points[first..][..setup.widths.len()].iter().map(|p| p.width).collect();
    assert_eq!(widths, setup.widths);
    let trees: Vec<u32> =
        points[first + setup.widths.len()..].iter().map(|point| point.trees).collect();
    assert_eq!(trees, setup.tree_counts);
}
