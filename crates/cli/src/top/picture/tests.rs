use std::time::Duration;

use super::*;
use thalweg::metrics::parse;

/// A switch whose two jobs hold 3 and 1 of its 16 aggregators.
pub(in crate::top) fn switch_text(packets: u64) -> String {
    format!(
        "thalweg_build_info{{role=\"switch\",address=\"10.0.3.1:4800\",version=\"0.1.0\"}} 1\n\
         thalweg_switch_packets_received_total {packets}\n\
         thalweg_switch_aggregations_taken_total {}\n\
         thalweg_switch_aggregations_added_total {}\n\
         thalweg_switch_collisions_total 6\n\
         thalweg_switch_drops_total{{reason=\"short\"}} 4\n\
         thalweg_switch_drops_total{{reason=\"forged\"}} {}\n\
         thalweg_switch_aggregators 16\n\
         thalweg_switch_aggregators_occupied 4\n\
         thalweg_aggregators_occupied{{job=\"0a\"}} 3\n\
         thalweg_aggregators_occupied{{job=\"0b\"}} 1\n",
        packets / 10,
        packets / 2,
        packets / 100,
    )
}

/// A server that knows one of the jobs.
pub(in crate::top) fn server_text(completed: u64) -> String {
    format!(
        "thalweg_build_info{{role=\"server\",address=\"10.0.3.2:4808\",version=\"0.1.0\"}} 1\n\
         thalweg_server_packets_received_total {completed}\n\
         thalweg_server_job_info{{job=\"0a\",name=\"resnet\"}} 1\n\
         thalweg_server_job_ranks{{job=\"0a\"}} 4\n\
         thalweg_server_job_ranks_connected{{job=\"0a\"}} 3\n\
         thalweg_server_memory_budget_bytes 4000000000\n\
         thalweg_server_memory_reserved_bytes 19000000\n\
         thalweg_server_job_memory_reserved_bytes{{job=\"0a\"}} 19000000\n\
         thalweg_server_jobs_refused_total{{reason=\"jobs\"}} 1\n\
         thalweg_server_jobs_refused_total{{reason=\"memory\"}} 2\n\
         thalweg_server_completed_total{{job=\"0a\"}} {completed}\n"
    )
}

/// A daemon with two answers, half a second apart.
#[expect(clippy::disallowed_methods, reason = "an instant is made from another")]
pub(in crate::top) fn watched(address: &str, texts: [Option<String>; 2]) -> Watched {
    let start = Instant::now();
    let mut watched = Watched::new(address);
    for (number, text) in texts.into_iter().enumerate() {
        let after = Duration::from_millis(500) * number as u32;
        let result = match text {
            Some(text) => Ok(Reading::new(start + after, parse(&text)).expect("it is a daemon")),
            None => Err("refused".to_owned()),
        };
        watched.note(Answer { daemon: 0, result, at: SystemTime::UNIX_EPOCH + after });
    }
    watched
}

#[test]
fn rates_are_over_the_time_between_readings() {
    let texts = [Some(switch_text(1_000)), Some(switch_text(3_000))];
    let picture = Picture::of(&[watched("a:1", texts)]);
    let expected = DaemonRow {
        metrics: "a:1".into(),
        role: Some("switch".into()),
        address: Some("10.0.3.1:4800".into()),
        packets_received: Some(3_000),
        packets_per_s: Some(4_000.0),
        aggregations_per_s: Some(2_400.0),
        collisions_per_s: Some(0.0),
        drops_per_s: Some(40.0),
        aggregators: Some(16),
        aggregators_occupied: Some(4),
        memory_reserved_bytes: None,
        memory_budget_bytes: None,
        jobs_refused: None,
        silent_since: None,
        error: None,
    };
    assert_eq!(picture.daemons, [expected]);
    assert_eq!(picture.packets_per_s(), 4_000.0);
    assert_eq!(picture.jobs[0].share, 3.0 / 16.0);
}

#[test]
fn a_job_is_put_together_from_all_daemons() {
    let switch = || watched("a:1", [Some(switch_text(1)), Some(switch_text(1))]);
    let server = watched("b:1", [Some(server_text(10)), Some(server_text(60))]);
    let picture = Picture::of(&[switch(), server, switch()]);
    let [first, second] = &picture.jobs[..] else { panic!("two jobs: {picture:?}") };
    assert_eq!((first.job.as_str(), first.name.as_deref()), ("0a", Some("resnet")));
    assert_eq!((first.ranks, first.ranks_connected), (Some(4), Some(3)));
    assert_eq!((first.aggregators, first.share), (6, 6.0 / 32.0));
    assert_eq!((first.completed_per_s, second.completed_per_s), (Some(100.0), Some(0.0)));
    assert_eq!((second.name.as_deref(), second.aggregators), (None, 2));
    assert_eq!(first.memory_reserved_bytes, Some(19_000_000));
    assert_eq!(second.memory_reserved_bytes, None);
    let server = &picture.daemons[1];
    assert_eq!(server.memory_reserved_bytes, Some(19_000_000));
    assert_eq!((server.memory_budget_bytes, server.jobs_refused), (Some(4_000_000_000), Some(3)));
}

#[test]
fn a_daemon_that_was_started_again_counts_from_zero() {
    let watched = watched("a:1", [Some(switch_text(1_000)), Some(switch_text(100))]);
    assert_eq!(Picture::of(&[watched]).daemons[0].packets_per_s, Some(200.0));
}

#[test]
fn silence_has_a_beginning_and_counts_for_nothing() {
    let mut silent = watched("a:1", [Some(switch_text(1)), None]);
    let again = SystemTime::UNIX_EPOCH + Duration::from_secs(90);
    let result = Err("still refused".to_owned());
    silent.note(Answer { daemon: 0, result, at: again });
    let picture = Picture::of(std::slice::from_ref(&silent));
    let row = &picture.daemons[0];
    assert_eq!(row.silent_since.as_deref(), Some("1970-01-01T00:00:00Z"));
    assert_eq!(row.error.as_deref(), Some("still refused"));
    assert_eq!((row.role.as_deref(), row.packets_per_s), (Some("switch"), None));
    assert!(picture.jobs.is_empty());
    let trouble = silent.trouble().expect("it is silent");
    assert_eq!(trouble, "a:1 does not answer: still refused");
    let never = watched("a:1", [None, None]);
    assert_eq!(Picture::of(&[never]).daemons[0].role, None);
}

#[test]
fn others_are_not_taken_for_daemons() {
    let theirs = parse("process_cpu_seconds_total 1\nthalweg_build_info 1\n");
    #[expect(clippy::disallowed_methods, reason = "any instant does")]
    let reading = Reading::new(Instant::now(), theirs);
    assert!(reading.is_none());
}
