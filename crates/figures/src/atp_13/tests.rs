use super::phases::{convergence, server_share, with_and_without};
use crate::tenants::Merges;

fn at(at_switch: u64, at_server: u64) -> Merges {
    Merges { at_switch, at_server }
}

#[test]
fn the_servers_part_is_of_all_additions() {
    let intervals = [vec![at(0, 0), at(0, 0)], vec![at(1, 3), at(0, 0)], vec![at(6, 0), at(2, 0)]];
    assert_eq!(server_share(&intervals), 0.25);
    assert_eq!(server_share(&[]), 0.0);
    let mut long = vec![vec![at(0, 0)]; 2];
    long.extend(vec![vec![at(5, 5)]; 2]);
    long.extend(vec![vec![at(9, 1)]; 4]);
    assert_eq!(convergence(&long, 2), (0.5, 0.1));
}

#[test]
fn phases_count_only_where_the_job_goes_on() {
    let on = |switch| at(switch, 1);
    let off = at(0, 0);
    let intervals = [
        vec![on(10), on(1)],
        vec![on(20), on(3)],
        vec![on(30), on(5)],
        vec![on(50), off],
        vec![on(70), off],
    ];
    // Job 0 with the other: 20, 30. Without: 50. Job 1 with the other: 3.
    let (with, without) = with_and_without(&intervals).unwrap();
    assert_eq!((with, without), (53.0 / 3.0, 50.0));
    assert_eq!(with_and_without(&intervals[..3]), None);
}
