//! Behaviour of a host with feedback and progress of others, and without.

use thalweg_core::{Bytes, JobId, NodeId, Rate, Rng, Span, Time};
use thalweg_pace::host::{Event, FlowSpec};
use thalweg_pace::path::Progress;
use thalweg_pace::{Ahead, Feedback, FlowId, Host, Relation, Settings, Slot};

const FLOW: FlowId = FlowId { job: JobId(1), number: 0 };
const OTHER: FlowId = FlowId { job: JobId(1), number: 1 };
/// A slot of 60 ms at 1 Gbps.
const SLOT_BYTES: u64 = 7_500_000;

/// A host with one flow of four slots, which can be sent from slot 1 on.
fn host(relation: Relation) -> Host {
    let settings = Settings::default();
    let host = Host::new(NodeId(1), settings, Rate::from_gbps(1), &Rng::new(1));
    let mut host = host.expect("the settings work");
    host.add_job(FLOW.job);
    let volume = Bytes::new(4 * SLOT_BYTES);
    let spec = FlowSpec { id: FLOW, to: NodeId(2), volume, relation, others: vec![OTHER] };
    host.add_flow(spec).expect("the job is there");
    host.begin_iteration(FLOW.job).expect("the job is there");
    host.ready(at(60), FLOW, volume).expect("the flow is there");
    host
}

fn at(ms: u64) -> Time {
    Time::ZERO + Span::from_ms(ms)
}

/// Lets the host do what is due until then; what the flow may send in the slot after it.
fn granted(host: &mut Host, until: Time) -> u64 {
    while host.poll_timeout() <= until {
        host.handle_timeout(host.poll_timeout());
    }
    let mut granted = None;
    while let Some(event) = host.poll_event() {
        if let Event::Grant { volume, .. } = event {
            granted = Some(volume.as_u64());
        }
    }
    granted.expect("something was decided")
}

// spec: C-02, C-11 machine
#[test]
fn feedback_of_the_network_counts_in_its_slot_only() {
    let mut host = host(Relation::Alone);
    let full = Feedback {
        load: Ahead::empty(Slot(1), 10),
        free: Ahead::filled(Slot(1), 10, 1_000),
        narrowest: SLOT_BYTES,
    };
    host.handle_feedback(FLOW, &full).expect("the flow is there");
    assert!(granted(&mut host, at(70)) <= 1_000, "the path has no more");
    let alone = granted(&mut host, at(130));
    assert!(alone > SLOT_BYTES / 2, "no feedback came since, and it is granted {alone}");
}

// spec: C-06 machine
#[test]
fn a_new_slot_does_not_let_a_flow_run_ahead() {
    let mut host = host(Relation::Broadcast);
    let progress = Progress { flow: OTHER, iteration: 1, volume: 3_000_000 };
    host.handle_progress(at(61), progress);
    assert_eq!(granted(&mut host, at(70)), 3_000_000, "as far as the other");
    host.sent(FLOW, Bytes::new(3_000_000)).expect("the flow is there");
    assert_eq!(granted(&mut host, at(120)), 0, "the other is no further");
    host.handle_progress(at(121), Progress { volume: 4_000_000, ..progress });
    assert_eq!(granted(&mut host, at(130)), 1_000_000, "now it is");
}
