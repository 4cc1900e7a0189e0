//! What ranks do together, what comes of it, and what they have to agree on.

use std::fmt;

use thalweg_core::{Combine, Element};

use super::config::Place;
use super::event::{Difference, SubmitError};

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
        /// How they become one.
        how: Combine,
        /// The values of this rank, as many as everywhere.
        data: Vec<u8>,
    },
    /// Everybody gets a part of the combined values.
    ReduceScatter {
        /// The type of the values.
        element: Element,
        /// How they become one.
        how: Combine,
        /// The values of this rank, as many as everywhere.
        data: Vec<u8>,
        /// How many values each rank gets. Together they are all.
        counts: Vec<u64>,
    },
    /// One rank gets the values of all, combined.
    Reduce {
        /// The rank that gets them.
        root: u32,
        /// The type of the values.
        element: Element,
        /// How they become one.
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
        /// What each rank gets from this one, of any lengths.
        parts: Vec<Vec<u8>>,
    },
    /// It ends when everybody is in it.
    Barrier,
}

/// What a rank gets.
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

/// Which operation it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// [`Call::AllReduce`].
    AllReduce,
    /// [`Call::ReduceScatter`].
    ReduceScatter,
    /// [`Call::Reduce`].
    Reduce,
    /// [`Call::Broadcast`].
    Broadcast,
    /// [`Call::AllGather`].
    AllGather,
    /// [`Call::Gather`].
    Gather,
    /// [`Call::Scatter`].
    Scatter,
    /// [`Call::AllToAll`].
    AllToAll,
    /// [`Call::Barrier`].
    Barrier,
}

/// What all ranks have to agree on, as far as this one knows it. It goes with every message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Terms {
    pub kind: Kind,
    /// Zero without a root.
    pub root: u32,
    /// How values are combined, where they are.
    pub reduction: Option<(Element, Combine)>,
    /// How long the data is, where it has one length. A broadcast's is known to its root first.
    pub bytes: Option<u64>,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 9] = [
        Kind::AllReduce,
        Kind::ReduceScatter,
        Kind::Reduce,
        Kind::Broadcast,
        Kind::AllGather,
        Kind::Gather,
        Kind::Scatter,
        Kind::AllToAll,
        Kind::Barrier,
    ];

    /// Whether values are combined.
    pub(super) const fn is_reduction(self) -> bool {
        matches!(self, Kind::AllReduce | Kind::ReduceScatter | Kind::Reduce)
    }

    /// Whether all ranks work on data of one length.
    pub(super) const fn has_one_length(self) -> bool {
        self.is_reduction() || matches!(self, Kind::Broadcast)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::AllReduce => "all-reduce",
            Kind::ReduceScatter => "reduce-scatter",
            Kind::Reduce => "reduce",
            Kind::Broadcast => "broadcast",
            Kind::AllGather => "all-gather",
            Kind::Gather => "gather",
            Kind::Scatter => "scatter",
            Kind::AllToAll => "all-to-all",
            Kind::Barrier => "barrier",
        })
    }
}

impl Call {
    /// Whether the call makes sense at a rank, and on what terms.
    pub(super) fn check(&self, place: &Place) -> Result<Terms, SubmitError> {
        let terms = self.terms(place);
        if terms.root >= place.ranks {
            return Err(SubmitError::NoSuchRank { rank: terms.root, ranks: place.ranks });
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
        Ok(terms)
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

    fn terms(&self, place: &Place) -> Terms {
        let of = |kind, root| Terms { kind, root, reduction: None, bytes: None };
        let reduction = |kind, root, element: &Element, how: &Combine, data: &Vec<u8>| Terms {
            kind,
            root,
            reduction: Some((*element, *how)),
            bytes: Some(data.len() as u64),
        };
        match self {
            Call::AllReduce { element, how, data } => {
                reduction(Kind::AllReduce, 0, element, how, data)
            }
            Call::ReduceScatter { element, how, data, .. } => {
                reduction(Kind::ReduceScatter, 0, element, how, data)
            }
            Call::Reduce { root, element, how, data } => {
                reduction(Kind::Reduce, *root, element, how, data)
            }
            Call::Broadcast { root, data } => {
                let bytes = (*root == place.rank).then_some(data.len() as u64);
                Terms { bytes, ..of(Kind::Broadcast, *root) }
            }
            Call::AllGather { .. } => of(Kind::AllGather, 0),
            Call::Gather { root, .. } => of(Kind::Gather, *root),
            Call::Scatter { root, .. } => of(Kind::Scatter, *root),
            Call::AllToAll { .. } => of(Kind::AllToAll, 0),
            Call::Barrier => of(Kind::Barrier, 0),
        }
    }
}

/// Whether data is short enough to be sent.
pub(super) fn check_length(place: &Place, bytes: usize) -> Result<(), SubmitError> {
    let (bytes, max) = (bytes as u64, place.max_bytes);
    if bytes > max { Err(SubmitError::TooLong { bytes, max }) } else { Ok(()) }
}

/// How many values the data has, if it is a whole number of them.
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

/// Whether there is one part for each rank.
fn check_parts(place: &Place, parts: usize) -> Result<(), SubmitError> {
    if parts == place.ranks as usize {
        Ok(())
    } else {
        Err(SubmitError::Parts { parts, ranks: place.ranks })
    }
}

impl Terms {
    /// Where another rank's terms differ from what is known here.
    pub fn difference(&self, theirs: &Terms) -> Option<Difference> {
        if self.kind != theirs.kind {
            return Some(Difference::Kind { here: self.kind, there: theirs.kind });
        }
        if self.root != theirs.root {
            return Some(Difference::Root { here: self.root, there: theirs.root });
        }
        if let (Some(here), Some(there)) = (self.reduction, theirs.reduction)
            && here != there
        {
            return Some(Difference::Reduction { here, there });
        }
        match (self.bytes, theirs.bytes) {
            (Some(here), Some(there)) if here != there => Some(Difference::Length { here, there }),
            _ => None,
        }
    }
}
