//! Ends of connections.

use thalweg_core::Span;

/// End of a connection without a goodbye: the evidence of a death, unless the rank comes back.
// spec: E-01
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The connection was closed, by the process or by the kernel when the process ended.
    Closed,
    /// The kernel at the other end has not answered for this long.
    Silent(Span),
}

impl Ending {
    /// Time for which the kernel at the other end was silent when the connection ended.
    pub(super) fn silence(self) -> Span {
        match self {
            Ending::Closed => Span::ZERO,
            Ending::Silent(silence) => silence,
        }
    }
}
