//! Classes of packets of deliveries: what a [`Policy`] decides, and how a session is given one.
//!
//! ```
//! use thalweg::tagging::{BackFirst, Dscp, Segment, Tag, Tagging};
//!
//! let back_first = Tagging::new(BackFirst::default());
//! let all_alike = Tagging::new(|segment: &Segment| {
//!     Tag { dscp: Dscp::new(10), rank: segment.layer.into(), ..Tag::default() }
//! });
//! # let _ = (back_first, all_alike);
//! ```
// spec: M-14

use std::fmt;
use std::sync::Arc;

use thalweg_collective::Delivery;
use thalweg_core::Rng;

pub use thalweg_core::{Dscp, Ecn, Tag};
pub use thalweg_deliver::{BackFirst, FrontFirst, Policy, Segment};

/// The policy that gives packets of deliveries their classes and their order. Default the paper's, in the class of
/// training: front layers first, and important packets ECN-capable.
#[derive(Clone)]
pub struct Tagging(Arc<dyn Policy>);

impl Tagging {
    /// Classes by a policy: a function from a [`Segment`] to a [`Tag`] is one. The class of control packets, priority 0,
    /// is not for data.
    pub fn new(policy: impl Policy + 'static) -> Tagging {
        Tagging(Arc::new(policy))
    }

    pub(crate) fn policy(&self) -> Arc<dyn Policy> {
        Arc::clone(&self.0)
    }
}

impl Default for Tagging {
    fn default() -> Tagging {
        Tagging(Delivery::new(Rng::new(0)).policy)
    }
}

impl fmt::Debug for Tagging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tagging").finish_non_exhaustive()
    }
}
