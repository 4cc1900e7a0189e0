//! Output for people: [`table`]s for terminals, [`plot`]s as SVG, self-contained HTML [`page`]s, and
//! the [`stats`] and number [`mod@format`]s that go into them.
//!
//! Nothing here does I/O: everything comes back as a `String`, and the caller writes it. The same
//! input gives the same text. Text from outside (host names, job names) may be passed in as it is:
//! whatever is written into markup is escaped, whatever is written to a terminal has its control
//! characters removed, and a number that is not finite is never printed.

pub mod format;
mod markup;
pub mod page;
pub mod plot;
pub mod stats;
pub mod table;
