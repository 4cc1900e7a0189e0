use thalweg_aggregate::{Indexing, Member, Setup, Tree};
use thalweg_core::{Element, Fingerprint};
use thalweg_wire::tag::Generation;

use super::*;

/// Two racks with a switch above both, one worker beside the server, and settings that are not the
/// defaults.
fn setup() -> Setup {
    let member = |node: u32, path: &[u32]| Member {
        node: NodeId(node),
        path: path.iter().copied().map(NodeId).collect(),
    };
    let members = [
        member(1, &[100, 102]),
        member(2, &[101, 102]),
        member(3, &[102]),
        member(4, &[]),
        member(5, &[100, 102]),
    ];
    let parameters = JobParameters {
        fragment_values: 62,
        numeric: Numeric::Fixed { scale: Scale::new(1_024.0).unwrap(), dynamic: true },
        recovery: Recovery::Paper,
        indexing: Indexing::Hashed,
        aggregators: 77,
        span_fragments: 500,
        overhead_bytes: 99,
        seals_bodies: true,
        widens_halves: true,
        // That of the keys below.
        generation: Some(Generation::Odd),
    };
    Setup {
        job: JobId(0x1234_5678_9abc_def0),
        epoch: 7,
        trees: vec![Arc::new(Tree::build(NodeId(90), &members).unwrap())],
        parameters: parameters.check().unwrap(),
        resume_from: u64::MAX - 5,
    }
}

fn rank_ticket_of_another() -> RankTicket {
    let process = Process { node: NodeId(0x0102_0308), life: 5 };
    RankTicket { job: JobId(8), rank: 7, process, proof: Proof([3; 32]) }
}

fn crowd(workers: u32) -> Setup {
    let member = |rank| Member { node: NodeId(rank), path: vec![] };
    let members: Vec<Member> = (0..workers).map(member).collect();
    Setup { trees: vec![Arc::new(Tree::build(NodeId(9_000), &members).unwrap())], ..setup() }
}

#[test]
fn whatever_a_rank_is_told_arrives_as_it_was() {
    let key = |byte: u8| Key([byte; 16]);
    let ticket = Ticket { job: JobId(4), proof: Proof([1; 32]) };
    let roster = vec![
        Place { node: NodeId(7), more_nodes: vec![NodeId(9)], host: 0 },
        Place { node: NodeId(8), more_nodes: vec![NodeId(10)], host: 1 },
    ];
    let lane_keys = vec![[2, 3, 4, 5, 6].map(key), [7, 8, 9, 10, 11].map(key)];
    let diagnosis = Diagnosis {
        text: "why".into(),
        culprits: vec![3],
        fragment: Some(0),
        since: Span::from_ms(12),
    };
    let messages = [
        ToRank::Welcome(Arc::new(Welcome {
            ticket,
            lane_keys,
            roster,
            rounds: vec![6, 0],
            has_switch: true,
            probes_paths: true,
        })),
        ToRank::Waiting { missing: [1, 2].into() },
        ToRank::Report { round: 3, seat: 4 },
        ToRank::ProbePaths { round: 3, mtu_bytes: 9_000, nodes: vec![NodeId(5), NodeId(6)] },
        ToRank::PathMtu { mtu_bytes: 1_500 },
        ToRank::Adopt { seat: 4, key: key(9), setup: Arc::new(setup()) },
        ToRank::Adopt { seat: 0, key: key(9), setup: Arc::new(crowd(40)) },
        ToRank::Retire { round: 5 },
        ToRank::Diagnosis(Arc::new(diagnosis.clone())),
        ToRank::Diagnosis(Arc::new(Diagnosis { fragment: None, ..diagnosis })),
        ToRank::ReportOperations,
        ToRank::Failed(Arc::new(Failure::new(FailureKind::Timeout, "so", vec![]))),
        ToRank::Failed(Arc::new(Failure {
            operation: Some(3),
            since: Some(Span::from_ms(9)),
            ..Failure::new(FailureKind::Peer, "so", vec![7])
        })),
        ToRank::Left { rank: 2, operations: 9 },
        ToRank::Joined { ticket: rank_ticket_of_another() },
    ];
    for (tree, message) in (0..).zip(messages) {
        assert_eq!(read_to_rank(write_to_rank(tree, &message)), Ok((tree, message)));
    }
}

#[test]
fn whatever_a_rank_says_arrives_as_it_was() {
    let since = Span::from_ms(1_500);
    let stall = |waits| FromRank::Stalled(Stall { operation: 1, waits, since });
    let messages = [
        FromRank::Answer { round: 1, seat: 2, watermark: Some(0) },
        FromRank::Answer { round: 1, seat: 2, watermark: None },
        FromRank::Paths {
            round: 1,
            report: PathReport { mtu_bytes: None, narrow: None, silent: None },
        },
        FromRank::Paths {
            round: 1,
            report: PathReport {
                mtu_bytes: Some(1_500),
                narrow: Some(NarrowPath { node: NodeId(8), mtu_bytes: 1_500 }),
                silent: Some(NodeId(9)),
            },
        },
        FromRank::Progress(Progress { operation: 3, fragment: 4, since }),
        stall(Waits::Fragment(0)),
        stall(Waits::Ranks(vec![5, 6])),
        FromRank::Failing(Failure::new(FailureKind::Other, "no", vec![])),
        FromRank::Failing(Failure::new(FailureKind::Agreement, "no", vec![1, 3])),
        FromRank::Failing(Failure::new(FailureKind::Path, "narrow", vec![])),
        FromRank::Aborting { reason: "enough".into() },
        FromRank::Operation { number: 7, fingerprint: Fingerprint::of_sum(Element::F32, 704) },
        FromRank::Leave { operations: 12 },
    ];
    for (tree, message) in (0..).zip(messages) {
        let read = read_from_rank(write_from_rank(tree, &message));
        assert_eq!(read, Ok(StreamMessage::Later(tree, message)));
    }
    let resume = Resume {
        round: 2,
        watermark: None,
        fragment_values: Some(62),
        span_fragments: Some(99),
        sends_halves: Some(true),
    };
    let process = Process { node: NodeId(u32::MAX), life: u64::MAX };
    let (switch, ticket) = (Some(NodeId(0)), Some(rank_ticket_of_another()));
    let join = Join {
        job: JobId(8),
        rank: 1,
        process,
        host: "a".into(),
        switch,
        resumes: vec![resume, Resume { round: 9, ..resume }],
        ticket,
        more_nodes: vec![NodeId(16), NodeId(0)],
        mtu_bytes: Some(9_000),
    };
    let mut messages = [to_join(&join), to_join(&join)];
    if let Some(v1::from_rank::Message::Join(long)) = &mut messages[1].message {
        long.resumes[1].fragment_values = Some(65_536);
    }
    let expected = [Ok(StreamMessage::Join(join)), Err(Malformed("fragment_values"))];
    assert_eq!(messages.map(read_from_rank), expected);
}

#[test]
fn a_registration_arrives_as_it_was() {
    let parameters = JobParameters {
        numeric: Numeric::Fixed { scale: Scale::new(0.5).unwrap(), dynamic: false },
        recovery: Recovery::Paper,
        ..JobParameters::default()
    };
    let settings = Settings { parameters, ..Settings::default() };
    let ticket = Ticket { job: JobId(12), proof: Proof([7; 32]) };
    for resume in [None, Some(ticket)] {
        let wanted =
            Registration { name: "n".into(), workers: 3, settings: settings.clone(), resume };
        assert_eq!(registration(to_registration(&wanted)), Ok(wanted));
    }
}

// spec: E-06 machine
#[test]
fn what_ranks_say_of_switches_has_no_effect() {
    let wanted = |parameters| Registration {
        name: "n".into(),
        workers: 3,
        settings: Settings { parameters, ..Settings::default() },
        resume: None,
    };
    let own = JobParameters { fragment_values: 62, aggregators: 77, ..JobParameters::default() };
    let arrived = registration(to_registration(&wanted(own)));
    assert_eq!(arrived, Ok(wanted(JobParameters::default())));
}

#[test]
fn nonsense_is_refused() {
    assert_eq!(read_from_rank(v1::FromRank { tree: 0, message: None }), Err(Malformed("message")));
    let mut short = to_rank_ticket(&rank_ticket_of_another());
    short.proof.pop();
    let message = Some(v1::to_rank::Message::Joined(v1::Joined { ticket: Some(short) }));
    assert_eq!(read_to_rank(v1::ToRank { tree: 0, message }), Err(Malformed("proof")));
    for fingerprint in [vec![0; 24], vec![]] {
        let operation = v1::Operation { number: 0, fingerprint };
        let message = Some(v1::from_rank::Message::Operation(operation));
        assert_eq!(
            read_from_rank(v1::FromRank { tree: 0, message }),
            Err(Malformed("fingerprint"))
        );
    }
    assert_eq!(read_to_rank(v1::ToRank { tree: 0, message: None }), Err(Malformed("message")));
    let adopt = |change: fn(&mut v1::Adopt)| {
        let message = ToRank::Adopt { seat: 0, key: Key([0; 16]), setup: Arc::new(setup()) };
        let mut message = write_to_rank(0, &message);
        let Some(v1::to_rank::Message::Adopt(adopt)) = &mut message.message else { unreachable!() };
        change(adopt);
        read_to_rank(message).map(|_| ()).unwrap_err().0
    };
    fn first(adopt: &mut v1::Adopt) -> &mut v1::Setup {
        adopt.setup.as_mut().unwrap()
    }
    assert_eq!(adopt(|adopt| adopt.setup = None), "setup");
    assert_eq!(adopt(|adopt| adopt.seat = 5), "seat");
    assert_eq!(adopt(|adopt| adopt.key.truncate(15)), "key");
    assert_eq!(adopt(|adopt| first(adopt).trees.clear()), "a setting");
    assert_eq!(adopt(|adopt| first(adopt).trees[0].members.clear()), "trees");
    assert_eq!(adopt(|adopt| first(adopt).trees[0].members[0].path = vec![90]), "trees");
    assert_eq!(adopt(|adopt| first(adopt).fragment_values = 65_536 + 352), "fragment_values");
    assert_eq!(adopt(|adopt| first(adopt).span_fragments = 32_768), "a setting");
    assert_eq!(adopt(|adopt| first(adopt).recovery = 0), "recovery");
    assert_eq!(adopt(|adopt| first(adopt).numeric = None), "numeric");
    let scale = adopt(|adopt| {
        let fixed = v1::FixedPoint { scale: f32::NAN, dynamic: false };
        first(adopt).numeric = Some(v1::Numeric { fixed: Some(fixed) });
    });
    assert_eq!(scale, "scale");
}

// spec: E-05 machine
#[test]
fn a_rank_reads_its_job_only_from_a_server_of_its_version() {
    let job = JobId(8);
    let answer = to_registered(job);
    assert_eq!(registered(answer), Ok(job));
    let unsent = v1::RegisterResponse { versions: None, ..answer };
    let error = registered(unsent).expect_err("the server is older");
    assert!(error.to_string().contains("the server version 1:"), "{error}");
}

// spec: F-04, E-12 machine
#[test]
fn trees_that_a_job_cannot_have_are_refused() {
    let leave = FromRank::Leave { operations: 0 };
    let read = |tree| read_from_rank(write_from_rank(tree, &leave));
    assert_eq!(read(TREES_MAX - 1), Ok(StreamMessage::Later(TREES_MAX - 1, leave.clone())));
    assert_eq!(read(TREES_MAX), Err(Malformed("tree")));
    let read = read_to_rank(write_to_rank(TREES_MAX, &ToRank::ReportOperations));
    assert_eq!(read, Err(Malformed("tree")));
    let join = |more: u32, resumes: usize| {
        let join = v1::Join {
            more_nodes: (0..more).collect(),
            resumes: vec![v1::Resume::default(); resumes],
            ..v1::Join::default()
        };
        let message = Some(v1::from_rank::Message::Join(join));
        read_from_rank(v1::FromRank { tree: 0, message }).is_ok()
    };
    assert!(join(TREES_MAX - 1, TREES_MAX as usize));
    assert!(!join(TREES_MAX, 0) && !join(0, TREES_MAX as usize + 1));
    let welcome = |keys: usize, rounds: usize, more: usize| {
        let ticket = v1::Ticket { job: 8, proof: vec![7; 32] };
        let place = v1::Place { node: 8, more_nodes: vec![16; more], host: 0 };
        let welcome = v1::Welcome {
            ticket: Some(ticket),
            lane_keys: vec![vec![1; 16]; keys],
            roster: vec![place],
            rounds: vec![1; rounds],
            has_switch: false,
            probes_paths: false,
        };
        let message = Some(v1::to_rank::Message::Welcome(welcome));
        read_to_rank(v1::ToRank { tree: 0, message }).map(|_| ())
    };
    assert_eq!(welcome(2 * LANES, 2, 1), Ok(()));
    assert_eq!(welcome(0, 0, 0), Err(Malformed("lane_keys")));
    assert_eq!(welcome(LANES + 1, 1, 0), Err(Malformed("lane_keys")));
    assert_eq!(welcome(2 * LANES, 1, 1), Err(Malformed("rounds")));
    assert_eq!(welcome(2 * LANES, 2, 0), Err(Malformed("more_nodes")));
}

/// A service ends the streams of ranks that send longer messages.
// spec: E-12 machine
#[test]
fn the_longest_messages_of_a_rank_are_read() {
    use prost::Message as _;

    use crate::service::MESSAGE_BYTES_MAX;

    let (text, all) = ("\u{1f600}".repeat(9_000), || (0..4_096).collect::<Vec<u32>>());
    let stall = |ranks| {
        FromRank::Stalled(Stall {
            operation: u64::MAX,
            waits: Waits::Ranks(ranks),
            since: Span::from_ms(u64::MAX >> 40),
        })
    };
    let failing = FromRank::Failing(Failure::new(FailureKind::Peer, text.as_str(), all()));
    for message in [stall(all()), failing, FromRank::Aborting { reason: text.clone() }] {
        let bytes = write_from_rank(TREES_MAX - 1, &message.shortened()).encoded_len();
        assert!((300..MESSAGE_BYTES_MAX).contains(&bytes), "{bytes}");
    }
    let older = write_from_rank(TREES_MAX - 1, &stall(all())).encoded_len();
    assert!(older <= MESSAGE_BYTES_MAX, "ranks of older versions name all: {older}");
    let resume = Resume {
        round: u32::MAX,
        watermark: Some(u64::MAX),
        fragment_values: Some(u16::MAX),
        span_fragments: Some(u16::MAX),
        sends_halves: Some(true),
    };
    let join = Join {
        job: JobId(u64::MAX),
        rank: 4_095,
        process: Process { node: NodeId(u32::MAX), life: u64::MAX },
        host: "h".repeat(256),
        switch: Some(NodeId(u32::MAX)),
        resumes: vec![resume; TREES_MAX as usize],
        ticket: Some(rank_ticket_of_another()),
        more_nodes: vec![NodeId(u32::MAX); TREES_MAX as usize - 1],
        mtu_bytes: Some(u16::MAX),
    };
    let bytes = to_join(&join).encoded_len();
    assert!((1_000..MESSAGE_BYTES_MAX).contains(&bytes), "{bytes}");
}
