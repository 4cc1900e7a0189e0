//! The control channel of real clusters: how the ranks of a job find each other, are set up, and learn
//! why they wait.
//!
//! The daemon runs a [`Service`]; every rank holds one [`Attendance`] at it, a stream of gRPC. What the
//! service decides is decided by the [`Registry`], a machine without I/O; what it cannot know it asks
//! its [`DataPlane`]. Both ends hide the async runtime behind a thread of their own, so that nothing on
//! the data path ever meets it. [`inquiry`] asks a service how it does. [`pacing`] is another service: the
//! load tables of switches that cannot keep them themselves.
//!
//! A part of the crate `thalweg`, without a promise of stability: depend on that one.

mod access;
mod address;
mod attendance;
mod bucket;
mod budget;
mod caller;
mod clock;
mod connection;
mod convert;
mod credentials;
pub mod inquiry;
#[doc(hidden)]
pub mod inspection;
pub mod local;
mod message;
pub mod pacing;
mod plane;
mod proof;
pub mod random;
pub mod registry;
mod service;
mod settings;
mod text;
pub mod token;
mod versions;

pub use access::{Access, AccessError};
pub use attendance::{AttendConfig, AttendError, Attendance, ControlEvent, Departure};
pub use budget::{Budgets, CallBudgets, CallRate, ConnectionBudgets, JobBudgets, Reason};
pub use caller::{Caller, Holder};
pub use credentials::{Credentials, WallClock, since_1970_s};
pub use message::{
    Diagnosis, Failure, FailureKind, FromRank, JobTree, Join, LANES, Place, Progress, RankTicket,
    Resume, Stall, TREES_MAX, Ticket, ToRank, Waits, Welcome,
};
pub use plane::{Counters, DataPlane, Missing, MissingAnswer};
pub use proof::{PROOF_BYTES, Proof};
pub use registry::{JobSummary, Listing, Registry};
pub use service::{Reporter, Service, ServiceConfig, ServiceError, ServiceNote, TlsFiles};
pub use settings::{Settings, SettingsError};
pub use versions::{CONTROL_VERSION, VersionError, VersionRange, Versions};

/// Messages as they travel. Made from the protocol file; a test says how to make it again.
#[allow(missing_docs, clippy::all, clippy::too_many_lines, reason = "generated")]
pub mod v1 {
    include!("generated/thalweg.v1.rs");
}
