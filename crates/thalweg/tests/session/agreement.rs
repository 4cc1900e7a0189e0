//! Ranks that call different operations: all get an error that names both sides, and nobody gets a result.
// spec: E-11 sockets

use std::error::Error as _;

use thalweg::{
    Collective, ErrorKind, Policy, Reduce, ReduceOptions, Reliability, Session, SessionConfig,
    Value,
};
use thalweg_core::{Element, Intent, Reduction, Rng};

use crate::Cluster;

/// The path that operations take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Path {
    /// Through the switch.
    Aggregate,
    Server,
    Ring,
    /// The hosts themselves, by deliveries that may lose something.
    LossyServer,
    LossyRing,
    /// Between ranks of one host.
    SharedMemory,
    /// Two ranks of one host and others.
    TwoHosts,
}

/// The paths of exact sums.
const EXACT_PATHS: [Path; 5] =
    [Path::Aggregate, Path::Server, Path::Ring, Path::SharedMemory, Path::TwoHosts];

impl Path {
    fn policy(self) -> Policy {
        let collective = match self {
            Path::Aggregate | Path::SharedMemory => Collective::Aggregate,
            Path::Server | Path::LossyServer => Collective::Server,
            Path::Ring | Path::LossyRing | Path::TwoHosts => Collective::Ring,
        };
        let reliability = match self {
            Path::LossyServer | Path::LossyRing => {
                Reliability::bounded(0.01).expect("less than one")
            }
            _ => Reliability::Exact,
        };
        Policy::default().collective(collective).reliability(reliability)
    }

    fn change(self, config: &mut SessionConfig) {
        config.share_memory = match self {
            Path::SharedMemory => true,
            Path::TwoHosts => config.rank < 2,
            _ => false,
        };
    }

    /// Runs operations that end with nothing of interest.
    fn run(
        self,
        cluster: &Cluster,
        ranks: u32,
        program: impl Fn(&Session) -> Result<(), thalweg::Error> + Sync,
    ) -> Vec<Result<(), String>> {
        let program = |session: &Session| program(session).map_err(|error| error.to_string());
        cluster.run(ranks, |config| self.change(config), program)
    }
}

fn all_reduce<T: Value + Default>(
    session: &Session,
    values: usize,
    how: Reduce,
    policy: Policy,
) -> Result<(), thalweg::Error> {
    let options = ReduceOptions::new(how).policy(policy);
    session.all_reduce(vec![T::default(); values], options).wait().map(|_| ())
}

/// Every rank has an error, which says all of this.
fn assert_all_say(ends: &[Result<(), String>], sides: &[&str], scene: &dyn std::fmt::Debug) {
    for (rank, end) in ends.iter().enumerate() {
        let Err(text) = end else { panic!("rank {rank} has a result: {scene:?}") };
        for side in sides {
            assert!(text.contains(side), "rank {rank}: {text:?} does not say {side:?}: {scene:?}");
        }
    }
}

#[test]
fn sums_of_other_lengths_are_not_mixed_by_aggregation() {
    let cluster = Cluster::losing(0.0);
    let ends = Path::Aggregate.run(&cluster, 2, |session| {
        let lengths = if session.rank() == 0 { [704, 1_056] } else { [1_056, 704] };
        let begin = |values: usize| session.all_reduce(vec![1.0f32; values], Reduce::Sum);
        let handles = [begin(lengths[0]), begin(lengths[1])];
        let [first, second] = handles.map(|handle| handle.wait());
        assert!(second.is_err(), "{second:?}");
        first.map(|_| ())
    });
    let sides = [
        "rank 0 calls all_reduce (sum) of 704 values of f32, exact",
        "rank 1 calls all_reduce (sum) of 1,056 values of f32, exact",
        "call the same operations in the same order at every rank",
    ];
    assert_all_say(&ends, &sides, &"swapped");
    // The server has noticed it, not the registrar after a while in which nothing moved.
    let notes = cluster.notes();
    let is_report = |note: &String| note.contains("ranks call different operations");
    assert!(notes.iter().any(is_report), "{notes:?}");
}

// spec: E-07 sockets
#[test]
fn an_error_has_a_kind_the_ranks_at_fault_and_a_source() {
    let cluster = Cluster::losing(0.0);
    let ends = cluster.run(
        2,
        |_| {},
        |session| {
            let values = if session.rank() == 0 { 704 } else { 1_056 };
            session.all_reduce(vec![1.0f32; values], Reduce::Sum).wait()
        },
    );
    for end in ends {
        let error = end.expect_err("their lengths differ");
        let expected = (ErrorKind::Disagreement, &[0, 1][..]);
        assert_eq!((error.kind(), error.ranks()), expected, "{error}");
    }
    let mut config = cluster.config("taken", 0, 1);
    config.bind = Some(cluster.switch.address());
    let error = Session::join(config).err().expect("the switch has the address");
    assert_eq!(error.kind(), ErrorKind::System, "{error}");
    assert!(error.source().is_some());
}

#[test]
fn a_sum_and_a_mean_are_not_the_same_on_any_path() {
    let cluster = Cluster::losing(0.0);
    for path in EXACT_PATHS {
        let ends = path.run(&cluster, 3, |session| {
            let how = if session.rank() == 1 { Reduce::Mean } else { Reduce::Sum };
            all_reduce::<f32>(session, 1_000, how, path.policy())
        });
        assert_all_say(&ends, &["all_reduce (sum)", "rank 1 calls all_reduce (mean)"], &path);
    }
    // In the mesh as well.
    let ends = Path::Server.run(&cluster, 3, |session| {
        let how = if session.rank() == 1 { Reduce::Mean } else { Reduce::Sum };
        all_reduce::<f64>(session, 10, how, Policy::default())
    });
    assert_all_say(&ends, &["(sum) of 10 values of f64", "rank 1 calls all_reduce (mean)"], &"f64");
}

/// A reduce-scatter that the mesh carries out as an all-reduce is compared as what it is.
// spec: E-11 sockets
#[test]
fn parts_of_a_reduce_scatter_are_the_same_at_every_rank() {
    let cluster = Cluster::losing(0.0);
    let bounded = Reliability::bounded(0.1).expect("a share");
    let bounded = Path::Server.policy().reliability(bounded);
    let options = ReduceOptions::new(Reduce::Max).policy(bounded);
    let ends = Path::Server.run(&cluster, 2, |session| {
        let counts = if session.rank() == 0 { [3, 5] } else { [4, 4] };
        let part = session.reduce_scatter(vec![1i32; 8], &counts, options);
        part.wait().map(|_| ())
    });
    let sides = ["rank 0 calls reduce_scatter", "rank 1 calls reduce_scatter"];
    assert_all_say(&ends, &sides, &"other parts");
    let ends = Path::Server.run(&cluster, 2, |session| {
        if session.rank() == 0 {
            return all_reduce::<i32>(session, 8, Reduce::Max, bounded);
        }
        let part = session.reduce_scatter(vec![1i32; 8], &[4, 4], options);
        part.wait().map(|_| ())
    });
    let sides = ["rank 0 calls all_reduce", "rank 1 calls reduce_scatter"];
    assert_all_say(&ends, &sides, &"another kind");
}

/// Long enough that the mesh divides it among the ranks.
#[test]
fn a_reduce_scatter_that_goes_as_an_all_reduce_gives_every_rank_its_part() {
    let cluster = Cluster::losing(0.0);
    let bounded = Reliability::bounded(0.1).expect("a share");
    let bounded = Path::Server.policy().reliability(bounded);
    let options = ReduceOptions::new(Reduce::Max).policy(bounded);
    let counts = [150_000, 50_000];
    let ends = Path::Server.run(&cluster, 2, |session| {
        let values: Vec<i32> = (0..200_000).collect();
        let part = session.reduce_scatter(values, &counts, options).wait()?;
        let expected: Vec<i32> =
            if session.rank() == 0 { (0..150_000).collect() } else { (150_000..200_000).collect() };
        assert!(part.values == expected, "rank {}: {} values", session.rank(), part.values.len());
        Ok(())
    });
    assert!(ends.iter().all(Result::is_ok), "{ends:?}");
}

/// The intent of a caller is a part of the operation.
// spec: E-11 sockets
#[test]
fn an_intent_is_compared_on_every_path() {
    let cluster = Cluster::losing(0.0);
    let scaled = Intent { reduction: Some(Reduction::PremulSum), ..Intent::default() };
    for path in EXACT_PATHS {
        for element in [Element::F32, Element::F64] {
            let ends = path.run(&cluster, 3, |session| {
                let intent = if session.rank() == 1 { scaled } else { Intent::default() };
                let options = ReduceOptions::new(Reduce::Sum).policy(path.policy());
                let summed = session.all_reduce_bytes(element, vec![0; 800], options, intent);
                summed.wait().map(|_| ())
            });
            let sides = ["all_reduce (sum)", "rank 1 calls all_reduce (premul_sum)"];
            assert_all_say(&ends, &sides, &(path, element));
        }
    }
}

#[test]
fn a_broadcast_has_one_root() {
    let cluster = Cluster::losing(0.0);
    for path in [Path::Server, Path::SharedMemory] {
        // In the second case nobody would send anything.
        for roots in [[0, 1], [1, 0]] {
            let ends = path.run(&cluster, 2, |session| {
                let root = roots[session.rank() as usize];
                session.broadcast(root, vec![1i32; 5]).wait().map(|_| ())
            });
            let sides = [
                format!("rank 0 calls broadcast with root {}", roots[0]),
                format!("rank 1 calls broadcast with root {}", roots[1]),
            ];
            assert_all_say(&ends, &[&sides[0], &sides[1]], &(path, roots));
        }
    }
}

#[test]
fn integers_and_floats_of_one_length_differ_and_the_reason_is_named() {
    let cluster = Cluster::losing(0.0);
    for path in [Path::Server, Path::Ring, Path::Aggregate] {
        let ends = path.run(&cluster, 2, |session| match session.rank() {
            0 => all_reduce::<i64>(session, 4, Reduce::Sum, path.policy()),
            _ => all_reduce::<f64>(session, 4, Reduce::Sum, path.policy()),
        });
        assert_all_say(&ends, &["4 values of i64", "4 values of f64"], &path);
        assert!(ends.iter().flatten().count() == 0);
    }
}

/// A property in which a rank differs.
#[derive(Clone, Copy, Debug)]
enum Property {
    Nothing,
    Kind,
    Element,
    Length,
    Reduction,
    Root,
    Parts,
    Path,
    Loss,
}

const PROPERTIES: [Property; 9] = [
    Property::Nothing,
    Property::Kind,
    Property::Element,
    Property::Length,
    Property::Reduction,
    Property::Root,
    Property::Parts,
    Property::Path,
    Property::Loss,
];

/// Makes the call of a rank. `property` is the one in which it differs from the calls of the other ranks.
fn call(
    session: &Session,
    path: Path,
    property: Option<Property>,
    values: usize,
) -> Result<(), thalweg::Error> {
    let policy = path.policy();
    match property {
        Some(Property::Kind) => session.barrier().wait(),
        Some(Property::Element) => all_reduce::<i32>(session, values, Reduce::Sum, policy),
        Some(Property::Length) => all_reduce::<f32>(session, values + 352, Reduce::Sum, policy),
        Some(Property::Reduction) => all_reduce::<f32>(session, values, Reduce::Max, policy),
        Some(Property::Path) => {
            let collective = match policy.collective {
                Collective::Ring => Collective::Server,
                _ => Collective::Ring,
            };
            all_reduce::<f32>(session, values, Reduce::Sum, policy.collective(collective))
        }
        Some(Property::Loss) => {
            let reliability = Reliability::bounded(0.02).expect("less than one");
            all_reduce::<f32>(session, values, Reduce::Sum, policy.reliability(reliability))
        }
        _ => all_reduce::<f32>(session, values, Reduce::Sum, policy),
    }
}

/// One operation before, which is the same, and one that differs at one rank.
fn check(cluster: &Cluster, path: Path, property: Property, odd: u32, values: usize) {
    let scene = (path, property, odd, values);
    let ends = path.run(cluster, 3, |session| {
        // A rank that is late may hear of the second one before it has the first one.
        call(session, path, None, values)?;
        if matches!(property, Property::Root) {
            let root = u32::from(session.rank() == odd);
            return session.broadcast(root, vec![1.0f32; values]).wait().map(|_| ());
        }
        if matches!(property, Property::Parts) {
            let mut counts = [0, 1, values];
            counts.rotate_left(usize::from(session.rank() == odd));
            let values = vec![1.0f32; values + 1];
            let options = ReduceOptions::new(Reduce::Sum).policy(path.policy());
            return session.reduce_scatter(values, &counts, options).wait().map(|_| ());
        }
        call(session, path, (session.rank() == odd).then_some(property), values)
    });
    if matches!(property, Property::Nothing) {
        assert!(ends.iter().all(Result::is_ok), "{ends:?}: {scene:?}");
        return;
    }
    let odd = format!("rank {odd} calls ");
    assert_all_say(&ends, &[&odd, "; rank", "call the same operations in the same order"], &scene);
}

/// Draws the rank that differs and the length, for every property: none, whole fragments, or any.
fn check_all(path: Path) {
    let cluster = Cluster::losing(0.0);
    let mut rng = Rng::new(path as u64).stream("agreement");
    for property in PROPERTIES {
        let any = 1 + rng.below(2_000) as usize;
        let lengths = [0, 352 * (1 + rng.below(4) as usize), any];
        let lengths = if matches!(property, Property::Nothing) { &lengths[..2] } else { &lengths };
        for values in lengths {
            check(&cluster, path, property, rng.below(3) as u32, *values);
        }
    }
}

#[test]
fn aggregation_fails_at_all_ranks_if_one_differs_in_anything() {
    check_all(Path::Aggregate);
}

#[test]
fn parameter_servers_fail_at_all_ranks_if_one_differs_in_anything() {
    check_all(Path::Server);
    check_all(Path::LossyServer);
}

#[test]
fn a_ring_fails_at_all_ranks_if_one_differs_in_anything() {
    check_all(Path::Ring);
    check_all(Path::LossyRing);
}

#[test]
fn a_host_fails_at_all_ranks_if_one_differs_in_anything() {
    check_all(Path::SharedMemory);
}

#[test]
fn two_hosts_fail_at_all_ranks_if_one_differs_in_anything() {
    check_all(Path::TwoHosts);
}
