//! Operations of all ranks, their outcomes, and the fingerprints that ranks must agree on.

use thalweg_core::fingerprint::digest_of_lengths;
use thalweg_core::{
    Combine, Element, Fingerprint, Intent, OperationKind, OperationPolicy, Reduction,
};

use super::config::Place;
use super::event::SubmitError;

/// An operation of all ranks. Every rank makes the same calls in the same order.
///
/// Values are little-endian bytes, of any [`Element`]. Combined values are those of the ranks in
/// their order, combined by one rank: the bits are the same at every rank and in every run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// Everybody gets the values of all ranks, combined.
    AllReduce {
        /// The type of the values.
        element: Element,
        /// Operation that combines them.
        how: Combine,
        /// The values of this rank, as many as everywhere.
        data: Vec<u8>,
    },
    /// Everybody gets a part of the combined values.
    ReduceScatter {
        /// The type of the values.
        element: Element,
        /// Operation that combines them.
        how: Combine,
        /// The values of this rank, as many as everywhere.
        data: Vec<u8>,
        /// Number of values that each rank gets. Together they are all.
        counts: Vec<u64>,
    },
    /// One rank gets the values of all, combined.
    Reduce {
        /// The rank that gets them.
        root: u32,
        /// The type of the values.
        element: Element,
        /// Operation that combines them.
        how: Combine,
        /// The values of this rank, as many as everywhere.
        data: Vec<u8>,
    },
    /// Everybody gets the data of one rank.
    Broadcast {
        /// The rank whose data it is.
        root: u32,
        /// The data. Ignored at the other ranks, which need not know its length.
        data: Vec<u8>,
    },
    /// Everybody gets the data of all ranks.
    AllGather {
        /// The data of this rank, of any length.
        data: Vec<u8>,
    },
    /// One rank gets the data of all.
    Gather {
        /// The rank that gets it.
        root: u32,
        /// The data of this rank, of any length.
        data: Vec<u8>,
    },
    /// Everybody gets a part of the data of one rank.
    Scatter {
        /// The rank whose data it is.
        root: u32,
        /// The part of each rank, of any lengths. Ignored at the other ranks.
        parts: Vec<Vec<u8>>,
    },
    /// Everybody gets a part of the data of each rank.
    AllToAll {
        /// Data for each rank from this one, of any lengths.
        parts: Vec<Vec<u8>>,
    },
    /// It ends when everybody is in it.
    Barrier,
}

/// Result of a call at one rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Nothing, after [`Call::Barrier`], and after [`Call::Reduce`] and [`Call::Gather`] where the rank
    /// is not their root.
    Nothing,
    /// One piece of data: all of it after [`Call::AllReduce`], [`Call::Reduce`] and [`Call::Broadcast`],
    /// this rank's part after [`Call::ReduceScatter`] and [`Call::Scatter`].
    Bytes(Vec<u8>),
    /// Data of every rank, in their order, after [`Call::AllGather`], [`Call::Gather`] and
    /// [`Call::AllToAll`].
    Parts(Vec<Vec<u8>>),
}

/// A call, with what its data means to the caller. A [`Call`] alone is one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The call.
    pub call: Call,
    /// The type of the values, for calls that only move them. Default unknown, which agrees with any type.
    pub element: Option<Element>,
    /// Length of the data, where a rank knows it that does not send any. Default unknown.
    pub bytes: Option<u64>,
    /// True if the caller divides the sum by the number of ranks.
    pub is_mean: bool,
    /// The options that the caller was asked for.
    pub policy: OperationPolicy,
    /// Lengths in bytes of the data that this rank expects from each rank, for calls that move data of all
    /// ranks or of a root. Default unknown.
    pub expected: Option<Vec<u64>>,
    /// Intent of the caller, which all ranks have to agree on. Default the call itself.
    pub intent: Intent,
    /// The operation that the call carries out for the caller, if that is another one. Default the call itself.
    pub operation: Option<Fingerprint>,
}

impl From<Call> for Request {
    fn from(call: Call) -> Request {
        Request {
            call,
            element: None,
            bytes: None,
            is_mean: false,
            policy: OperationPolicy::default(),
            expected: None,
            intent: Intent::default(),
            operation: None,
        }
    }
}

impl Request {
    /// Returns an error if a rank of this many cannot make the request, with the default limits.
    pub fn check(&self, rank: u32, ranks: u32) -> Result<(), SubmitError> {
        self.call.check(&Place::of(rank, ranks))
    }

    /// Returns the fingerprint that the other ranks have to agree on, as far as this rank knows it.
    pub fn fingerprint_at(&self, rank: u32) -> Fingerprint {
        if let Some(operation) = self.operation {
            return operation;
        }
        let fingerprint = self.call.fingerprint(rank);
        let reduction = match fingerprint.reduction {
            Some(Reduction::Sum) if self.is_mean => Some(Reduction::Mean),
            reduction => reduction,
        };
        let element = fingerprint.element.or(self.element);
        let (bytes, parts) = self.lengths_at(rank, &fingerprint);
        let policy = self.policy;
        Fingerprint { element, bytes, parts, reduction, policy, ..fingerprint }
            .with_intent(self.intent)
    }

    /// Length and digest of parts that are the same at every rank.
    fn lengths_at(&self, rank: u32, fingerprint: &Fingerprint) -> (Option<u64>, u32) {
        let unchanged = (fingerprint.bytes.or(self.bytes), fingerprint.parts);
        let Some(expected) = &self.expected else { return unchanged };
        match &self.call {
            Call::AllGather { data } => {
                let mut lengths = expected.clone();
                // A rank that expects another length of itself than it sends differs from all others.
                if let Some(own) = lengths.get_mut(rank as usize) {
                    *own = data.len() as u64;
                }
                let total = lengths.iter().fold(0u64, |sum, length| sum.saturating_add(*length));
                match the_only(&lengths) {
                    Some(length) => (Some(length), 0),
                    None => (Some(total), digest_of_lengths(&lengths)),
                }
            }
            // Where all lengths of two ranks are equal, they are those of the data between the two.
            Call::AllToAll { parts } => {
                let given = parts.iter().map(|part| part.len() as u64);
                let lengths: Vec<u64> = given.chain(expected.iter().copied()).collect();
                (the_only(&lengths), 0)
            }
            _ => unchanged,
        }
    }
}

impl Call {
    /// Returns an error if the call is invalid at a rank.
    pub(super) fn check(&self, place: &Place) -> Result<(), SubmitError> {
        let root = self.fingerprint(place.rank).root.unwrap_or(0);
        if root >= place.ranks {
            return Err(SubmitError::NoSuchRank { rank: root, ranks: place.ranks });
        }
        self.check_lengths(place)?;
        match self {
            Call::AllReduce { element, data, .. } | Call::Reduce { element, data, .. } => {
                check_whole(*element, data)?;
            }
            Call::ReduceScatter { element, data, counts, .. } => {
                check_counts(place, counts, check_whole(*element, data)?)?;
            }
            Call::Scatter { root, parts } if *root == place.rank => {
                check_parts(place, parts.len())?
            }
            Call::AllToAll { parts } => check_parts(place, parts.len())?,
            _ => {}
        }
        Ok(())
    }

    fn check_lengths(&self, place: &Place) -> Result<(), SubmitError> {
        let longest = match self {
            Call::AllReduce { data, .. }
            | Call::ReduceScatter { data, .. }
            | Call::Reduce { data, .. }
            | Call::Broadcast { data, .. }
            | Call::AllGather { data }
            | Call::Gather { data, .. } => data.len(),
            Call::Scatter { parts, .. } | Call::AllToAll { parts } => {
                parts.iter().map(Vec::len).max().unwrap_or(0)
            }
            Call::Barrier => 0,
        };
        check_length(place, longest)
    }

    fn fingerprint(&self, rank: u32) -> Fingerprint {
        let of = |root| Fingerprint { root, ..Fingerprint::new(self.kind()) };
        let reduction = |root, element: &Element, how: &Combine, data: &Vec<u8>| Fingerprint {
            element: Some(*element),
            bytes: Some(data.len() as u64),
            reduction: Some((*how).into()),
            ..of(root)
        };
        match self {
            Call::AllReduce { element, how, data } => reduction(None, element, how, data),
            Call::ReduceScatter { element, how, data, counts } => Fingerprint {
                parts: digest_of_lengths(counts),
                ..reduction(None, element, how, data)
            },
            Call::Reduce { root, element, how, data } => reduction(Some(*root), element, how, data),
            Call::Broadcast { root, data } => {
                // The data of the others does not count.
                let bytes = (*root == rank).then_some(data.len() as u64);
                Fingerprint { bytes, ..of(Some(*root)) }
            }
            Call::Gather { root, .. } | Call::Scatter { root, .. } => of(Some(*root)),
            Call::AllGather { .. } | Call::AllToAll { .. } | Call::Barrier => of(None),
        }
    }

    /// The kind of the call, whatever the caller makes it for.
    pub(super) fn kind(&self) -> OperationKind {
        match self {
            Call::AllReduce { .. } => OperationKind::AllReduce,
            Call::ReduceScatter { .. } => OperationKind::ReduceScatter,
            Call::Reduce { .. } => OperationKind::Reduce,
            Call::Broadcast { .. } => OperationKind::Broadcast,
            Call::AllGather { .. } => OperationKind::AllGather,
            Call::Gather { .. } => OperationKind::Gather,
            Call::Scatter { .. } => OperationKind::Scatter,
            Call::AllToAll { .. } => OperationKind::AllToAll,
            Call::Barrier => OperationKind::Barrier,
        }
    }

    /// Returns the type of the values and the reduction that combines them. `None` if the call combines no values.
    pub(super) fn reduction(&self) -> Option<(Element, Combine)> {
        match *self {
            Call::AllReduce { element, how, .. }
            | Call::ReduceScatter { element, how, .. }
            | Call::Reduce { element, how, .. } => Some((element, how)),
            _ => None,
        }
    }
}

/// The length that all of these are.
fn the_only(lengths: &[u64]) -> Option<u64> {
    let (first, others) = lengths.split_first()?;
    others.iter().all(|other| other == first).then_some(*first)
}

/// Checks that data is short enough to be sent.
pub(super) fn check_length(place: &Place, bytes: usize) -> Result<(), SubmitError> {
    let (bytes, max) = (bytes as u64, place.max_bytes);
    if bytes > max { Err(SubmitError::TooLong { bytes, max }) } else { Ok(()) }
}

/// Number of values of the data, if it is a whole number of them.
fn check_whole(element: Element, data: &[u8]) -> Result<u64, SubmitError> {
    if data.len().is_multiple_of(element.bytes()) {
        Ok((data.len() / element.bytes()) as u64)
    } else {
        Err(SubmitError::NotWhole { bytes: data.len() as u64, element: element.name() })
    }
}

fn check_counts(place: &Place, counts: &[u64], values: u64) -> Result<(), SubmitError> {
    check_parts(place, counts.len())?;
    let sum = counts.iter().try_fold(0u64, |sum, &count| sum.checked_add(count));
    if sum == Some(values) { Ok(()) } else { Err(SubmitError::Counts { values }) }
}

/// Checks that there is one part for each rank.
fn check_parts(place: &Place, parts: usize) -> Result<(), SubmitError> {
    if parts == place.ranks as usize {
        Ok(())
    } else {
        Err(SubmitError::Parts { parts, ranks: place.ranks })
    }
}
