//! Priorities for TCP flows of programs that are not changed.
//!
//! A [`Prioritizer`] lists the connections of a host, hands them to an
//! [`Observer`](thalweg_prioritize::observer::Observer), trains forests, and passes the bounds of next flows to [`Tags`], a
//! program at egress. Packets get their priorities in the kernel, which waits for nobody.
//!
//! Without the privilege to load the program flows are observed and learned from, and nothing is tagged.
//!
//! Events have the target `thalweg::tagging` and the field `event`, a word for programs:
//!
//! | `event` | level | fields | meaning |
//! |---|---|---|---|
//! | `not_tagging` | warning | | packets of other programs get no priorities: the kernel refuses the program at egress |
//! | `learned` | info | `flows` | the first forest was learned |
//! | `not_learned` | warning | | a forest could not be learned |
//! | `unread`, `unwritten` | warning | | files with what was learned cannot be read or written |
//! | `list_failed` | warning | | connections of the host cannot be listed |
//! | `bounds_refused` | warning | | the kernel refuses bounds of a service |

mod files;
mod prioritizer;
mod program;
mod tags;

pub use prioritizer::{Prioritizer, PriorityConfig, PriorityStats, TaggingError};
pub use tags::{TagCounts, Tags};

/// Target of the events.
pub const TARGET: &str = "thalweg::tagging";
