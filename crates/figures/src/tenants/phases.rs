//! Statistics of the time series of a run.

use super::{Interval, Merges};

/// The part of all additions that the server made, over some intervals; 0 where there were none.
pub(super) fn server_share(intervals: &[Interval]) -> f64 {
    let all = intervals.iter().flatten();
    let (at_server, at_switch) = all.fold((0, 0), |(server, switch), merges| {
        (server + merges.at_server, switch + merges.at_switch)
    });
    at_server as f64 / (at_server + at_switch).max(1) as f64
}

/// The part that the server made in the first intervals with additions, and in the last quarter of all
/// intervals.
pub(super) fn convergence(intervals: &[Interval], first: usize) -> (f64, f64) {
    let begin = intervals.iter().position(|interval| interval.iter().any(is_on)).unwrap_or(0);
    let end = (begin + first).min(intervals.len());
    let last_quarter = intervals.len() - intervals.len() / 4;
    (server_share(&intervals[begin..end]), server_share(&intervals[last_quarter..]))
}

/// Number of additions that the switch makes for a job in an interval, on average, while all other jobs send, and while
/// at least one does not. `None` where one of these never happens.
///
/// Intervals in which the job itself starts or stops do not count.
pub(super) fn with_and_without(intervals: &[Interval]) -> Option<(f64, f64)> {
    let jobs = intervals.first()?.len();
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for window in intervals.windows(3) {
        for job in 0..jobs {
            if !window.iter().all(|interval| is_on(&interval[job])) {
                continue;
            }
            let now = &window[1];
            let are_on = (0..jobs).all(|other| is_on(&now[other]));
            let side = if are_on { &mut with } else { &mut without };
            side.push(now[job].at_switch as f64);
        }
    }
    Some((mean(&with)?, mean(&without)?))
}

fn is_on(merges: &Merges) -> bool {
    merges.at_switch + merges.at_server > 0
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(at_switch: u64, at_server: u64) -> Merges {
        Merges { at_switch, at_server }
    }

    #[test]
    fn the_servers_part_is_of_all_additions() {
        let intervals =
            [vec![at(0, 0), at(0, 0)], vec![at(1, 3), at(0, 0)], vec![at(6, 0), at(2, 0)]];
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
}
