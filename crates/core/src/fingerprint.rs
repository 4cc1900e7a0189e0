//! Fingerprints of operations: ranks compare them before anything is delivered.
// spec: E-11

use std::fmt;

use crate::element::{Combine, Element};

/// Everything that the ranks of an operation have to agree on.
///
/// A property that a rank cannot know is `None` and agrees with any value: the length of a broadcast is
/// known to its root alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fingerprint {
    /// The kind of operation.
    pub kind: OperationKind,
    /// The type of the values. `None` where the operation moves bytes of any meaning.
    pub element: Option<Element>,
    /// Length of the data in bytes. `None` where every rank has its own length, or does not know it.
    pub bytes: Option<u64>,
    /// Digest of the lengths of the parts, where data is divided among the ranks by the caller. 0 otherwise.
    pub parts: u32,
    /// The reduction, for kinds that have one.
    pub reduction: Option<Reduction>,
    /// The root, for kinds that have one.
    pub root: Option<u32>,
    /// The options that change the result or the path of a sum.
    pub policy: OperationPolicy,
}

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OperationKind {
    /// Everybody gets the values of all ranks, combined.
    AllReduce,
    /// Everybody gets a part of the combined values.
    ReduceScatter,
    /// One rank gets the values of all, combined.
    Reduce,
    /// Everybody gets the data of one rank.
    Broadcast,
    /// Everybody gets the data of all ranks.
    AllGather,
    /// One rank gets the data of all.
    Gather,
    /// Everybody gets a part of the data of one rank.
    Scatter,
    /// Everybody gets a part of the data of each rank.
    AllToAll,
    /// It ends when everybody is in it.
    Barrier,
    /// One rank sends to another.
    Transfer,
}

/// Combination of the values of all ranks into one, as the caller requested it. A mean is a sum with a division.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reduction {
    /// The sum.
    Sum,
    /// The sum, divided by the number of ranks.
    Mean,
    /// The product.
    Product,
    /// The least.
    Min,
    /// The largest.
    Max,
    /// The sum of values that each rank has multiplied by a factor of its own.
    PremulSum,
}

/// Properties of an operation that its caller carries out around a call, and that the call does not show.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Intent {
    /// The reduction, if it is another than that of the call.
    pub reduction: Option<Reduction>,
    /// Digest of the lengths of the parts, if every rank keeps only its part of an all-reduce.
    pub parts: Option<u32>,
}

/// The options of an operation that all ranks have to agree on. How urgent it is may differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OperationPolicy {
    /// The nodes that add.
    pub path: SumPath,
    /// The largest share of a rank's values that may be missing, in millionths. 0 is exact.
    pub loss_millionths: u32,
}

/// The nodes that add.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SumPath {
    /// The caller does not choose.
    #[default]
    Any,
    /// Switches and the server.
    Aggregate,
    /// The hosts, each for its share of the values.
    Server,
    /// The hosts, in a ring.
    Ring,
    /// The hosts, by the algorithm for the length of the tensor.
    Direct,
}

/// Two ranks that called different operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Mismatch {
    /// The lower rank and its operation.
    pub one: (u32, Fingerprint),
    /// The higher rank and its operation.
    pub other: (u32, Fingerprint),
}

impl Fingerprint {
    /// The fingerprint of an operation without data, root or options.
    pub fn new(kind: OperationKind) -> Fingerprint {
        Fingerprint {
            kind,
            element: None,
            bytes: None,
            parts: 0,
            reduction: None,
            root: None,
            policy: OperationPolicy::default(),
        }
    }

    /// The fingerprint of an exact all-reduce of this number of values.
    pub fn of_sum(element: Element, values: u64) -> Fingerprint {
        Fingerprint {
            element: Some(element),
            bytes: Some(values.saturating_mul(element.bytes() as u64)),
            reduction: Some(Reduction::Sum),
            ..Fingerprint::new(OperationKind::AllReduce)
        }
    }

    /// Returns whether two ranks with these fingerprints call the same operation, as far as they know.
    pub fn agrees(&self, other: &Fingerprint) -> bool {
        self.kind == other.kind
            && self.root == other.root
            && self.reduction == other.reduction
            && self.parts == other.parts
            && self.policy == other.policy
            && is_compatible(self.element, other.element)
            && is_compatible(self.bytes, other.bytes)
    }

    /// The fingerprint of the operation for which a call with this fingerprint is made.
    pub fn with_intent(self, intent: Intent) -> Fingerprint {
        let reduction = intent.reduction.or(self.reduction);
        match intent.parts {
            Some(parts) => {
                Fingerprint { kind: OperationKind::ReduceScatter, parts, reduction, ..self }
            }
            None => Fingerprint { reduction, ..self },
        }
    }

    /// The mismatch of two ranks, if their operations differ. Both name it alike.
    pub fn compare(one: (u32, &Fingerprint), other: (u32, &Fingerprint)) -> Result<(), Mismatch> {
        if one.1.agrees(other.1) {
            return Ok(());
        }
        let (low, high) = if one.0 <= other.0 { (one, other) } else { (other, one) };
        Err(Mismatch { one: (low.0, *low.1), other: (high.0, *high.1) })
    }
}

fn is_compatible<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    }
}

/// A digest of lengths: the same for the same lengths in the same order, and never 0.
pub fn digest_of_lengths(lengths: &[u64]) -> u32 {
    // FNV-1a over the words, folded. It tells mistakes apart; it withstands nobody who means harm.
    let step = |hash: u64, word: &u64| (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = lengths.iter().fold(0xcbf2_9ce4_8422_2325, step);
    let folded = (hash ^ (hash >> 32)) as u32;
    folded.max(1)
}

impl Mismatch {
    /// The same mismatch, with its ranks numbered in another way.
    pub fn renumbered(&self, rank: impl Fn(u32) -> u32) -> Mismatch {
        let Mismatch { one, other } = *self;
        let (one, other) = ((rank(one.0), one.1), (rank(other.0), other.1));
        if one.0 <= other.0 { Mismatch { one, other } } else { Mismatch { one: other, other: one } }
    }

    /// Both ranks.
    pub fn ranks(&self) -> [u32; 2] {
        [self.one.0, self.other.0]
    }
}

impl OperationKind {
    /// The kinds in which all ranks take part.
    pub const COLLECTIVES: &[OperationKind] = OperationKind::ALL.split_at(9).0;

    /// All kinds, those in which all ranks take part first.
    pub const ALL: [OperationKind; 10] = [
        OperationKind::AllReduce,
        OperationKind::ReduceScatter,
        OperationKind::Reduce,
        OperationKind::Broadcast,
        OperationKind::AllGather,
        OperationKind::Gather,
        OperationKind::Scatter,
        OperationKind::AllToAll,
        OperationKind::Barrier,
        OperationKind::Transfer,
    ];

    /// Returns whether values are combined.
    pub const fn is_reduction(self) -> bool {
        use OperationKind::{AllReduce, Reduce, ReduceScatter};
        matches!(self, AllReduce | ReduceScatter | Reduce)
    }

    /// Returns whether one rank, the root, has another role than the others.
    pub const fn has_root(self) -> bool {
        use OperationKind::{Broadcast, Gather, Reduce, Scatter};
        matches!(self, Reduce | Broadcast | Gather | Scatter)
    }

    /// Returns whether the length of the data is that of one rank, and not of all of it.
    const fn is_per_rank(self) -> bool {
        use OperationKind::{AllGather, AllToAll, Gather, Scatter};
        matches!(self, AllGather | Gather | Scatter | AllToAll)
    }

    /// Name of the operation, as a caller writes it.
    pub const fn name(self) -> &'static str {
        match self {
            OperationKind::AllReduce => "all_reduce",
            OperationKind::ReduceScatter => "reduce_scatter",
            OperationKind::Reduce => "reduce",
            OperationKind::Broadcast => "broadcast",
            OperationKind::AllGather => "all_gather",
            OperationKind::Gather => "gather",
            OperationKind::Scatter => "scatter",
            OperationKind::AllToAll => "all_to_all",
            OperationKind::Barrier => "barrier",
            OperationKind::Transfer => "send or receive",
        }
    }
}

impl Reduction {
    /// All reductions.
    pub const ALL: [Reduction; 6] = [
        Reduction::Sum,
        Reduction::Mean,
        Reduction::Product,
        Reduction::Min,
        Reduction::Max,
        Reduction::PremulSum,
    ];

    /// Name of the reduction.
    pub const fn name(self) -> &'static str {
        match self {
            Reduction::Sum => "sum",
            Reduction::Mean => "mean",
            Reduction::Product => "product",
            Reduction::Min => "min",
            Reduction::Max => "max",
            Reduction::PremulSum => "premul_sum",
        }
    }
}

impl From<Combine> for Reduction {
    fn from(how: Combine) -> Reduction {
        match how {
            Combine::Sum => Reduction::Sum,
            Combine::Product => Reduction::Product,
            Combine::Min => Reduction::Min,
            Combine::Max => Reduction::Max,
        }
    }
}

impl SumPath {
    /// All paths.
    pub const ALL: [SumPath; 5] =
        [SumPath::Any, SumPath::Aggregate, SumPath::Server, SumPath::Ring, SumPath::Direct];
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if let Some(reduction) = self.reduction {
            write!(f, " ({})", reduction.name())?;
        }
        if let Some(root) = self.root {
            write!(f, " with root {root}")?;
        }
        match (self.bytes, self.element) {
            (Some(bytes), Some(element)) if bytes.is_multiple_of(element.bytes() as u64) => {
                let values = Grouped(bytes / element.bytes() as u64);
                write!(f, " of {values} values of {}", element.name())?;
            }
            (Some(bytes), _) => write!(f, " of {} bytes", Grouped(bytes))?,
            (None, Some(element)) => write!(f, " of {}", element.name())?,
            (None, None) => {}
        }
        if self.parts != 0 {
            write!(f, " in parts {:08x}", self.parts)?;
        } else if self.bytes.is_some() && self.kind.is_per_rank() {
            f.write_str(" per rank")?;
        }
        if self.kind.is_reduction() { write!(f, ", {}", self.policy) } else { Ok(()) }
    }
}

impl fmt::Display for OperationPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.loss_millionths {
            0 => f.write_str("exact")?,
            loss => write!(f, "at most {}% lost", f64::from(loss) / 10_000.0)?,
        }
        f.write_str(match self.path {
            SumPath::Any => "",
            SumPath::Aggregate => ", by aggregation",
            SumPath::Server => ", by parameter servers",
            SumPath::Ring => ", by a ring",
            SumPath::Direct => ", by the hosts themselves",
        })
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mismatch { one: (one, its), other: (other, theirs) } = self;
        write!(
            f,
            "rank {one} calls {its}; rank {other} calls {theirs}: call the same operations in the same \
             order at every rank"
        )
    }
}

/// A number with a comma between thousands.
struct Grouped(u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: E-11 machine
    #[test]
    fn a_mismatch_names_both_sides_in_the_order_of_their_ranks() {
        let sum = Fingerprint::of_sum(Element::F32, 704);
        let mean = Fingerprint {
            reduction: Some(Reduction::Mean),
            ..Fingerprint::of_sum(Element::F32, 1_056)
        };
        let mismatch = Fingerprint::compare((1, &mean), (0, &sum)).expect_err("they differ");
        assert_eq!(
            mismatch.to_string(),
            "rank 0 calls all_reduce (sum) of 704 values of f32, exact; rank 1 calls all_reduce (mean) \
             of 1,056 values of f32, exact: call the same operations in the same order at every rank"
        );
        assert_eq!(mismatch.renumbered(|rank| 9 - rank).ranks(), [8, 9]);
        assert_eq!(mismatch.renumbered(|rank| 9 - rank).one, (8, mean));
    }

    #[test]
    fn what_a_rank_cannot_know_agrees_with_everything() {
        let root = Fingerprint {
            root: Some(0),
            bytes: Some(9),
            ..Fingerprint::new(OperationKind::Broadcast)
        };
        let reader = Fingerprint { bytes: None, ..root };
        assert!(root.agrees(&reader) && reader.agrees(&root));
        assert!(!root.agrees(&Fingerprint { root: Some(1), ..reader }));
        assert!(!root.agrees(&Fingerprint { bytes: Some(8), ..root }));
    }

    #[test]
    fn operations_read_as_they_are_called() {
        let of = |kind| Fingerprint::new(kind);
        let broadcast = Fingerprint {
            root: Some(3),
            element: Some(Element::I64),
            bytes: Some(8_000_000),
            ..of(OperationKind::Broadcast)
        };
        assert_eq!(broadcast.to_string(), "broadcast with root 3 of 1,000,000 values of i64");
        let policy = OperationPolicy { path: SumPath::Ring, loss_millionths: 15_000 };
        let lossy = Fingerprint { policy, ..Fingerprint::of_sum(Element::F16, 5) };
        assert_eq!(
            lossy.to_string(),
            "all_reduce (sum) of 5 values of f16, at most 1.5% lost, by a ring"
        );
        assert_eq!(of(OperationKind::Barrier).to_string(), "barrier");
        let bytes = Fingerprint { bytes: Some(1_234), ..of(OperationKind::Transfer) };
        assert_eq!(bytes.to_string(), "send or receive of 1,234 bytes");
        let gather = Fingerprint {
            element: Some(Element::F32),
            bytes: Some(16),
            ..of(OperationKind::AllGather)
        };
        assert_eq!(gather.to_string(), "all_gather of 4 values of f32 per rank");
        let uneven = Fingerprint { parts: 0x1a, ..gather };
        assert_eq!(uneven.to_string(), "all_gather of 4 values of f32 in parts 0000001a");
        let odd = Fingerprint { bytes: Some(3), ..Fingerprint::of_sum(Element::F32, 1) };
        assert_eq!(odd.to_string(), "all_reduce (sum) of 3 bytes, exact");
    }

    // spec: E-11 machine
    #[test]
    fn an_intent_tells_operations_apart_that_make_the_same_call() {
        let call = Fingerprint {
            reduction: Some(Reduction::Mean),
            ..Fingerprint::of_sum(Element::F32, 704)
        };
        assert_eq!(call.with_intent(Intent::default()), call);
        let intents = [
            Intent::default(),
            Intent { reduction: Some(Reduction::Sum), ..Intent::default() },
            Intent { reduction: Some(Reduction::PremulSum), ..Intent::default() },
            Intent { parts: Some(7), ..Intent::default() },
            Intent { parts: Some(8), ..Intent::default() },
        ];
        for (at, one) in intents.iter().enumerate() {
            for (other_at, other) in intents.iter().enumerate() {
                let [one, other] = [one, other].map(|intent| call.with_intent(*intent));
                assert_eq!(one.agrees(&other), at == other_at, "{one}; {other}");
            }
        }
        let text = "reduce_scatter (mean) of 704 values of f32 in parts 00000007, exact";
        assert_eq!(call.with_intent(intents[3]).to_string(), text);
    }

    #[test]
    fn lengths_in_another_order_are_others() {
        let digest = |lengths: &[u64]| digest_of_lengths(lengths);
        assert_eq!(digest(&[2, 2, 2]), digest(&[2, 2, 2]));
        assert_ne!(digest(&[3, 2, 1]), digest(&[1, 2, 3]));
        assert_ne!(digest(&[]), 0);
    }
}
