//! Errors of building a lab and of running programs in it.

use std::io;

use thiserror::Error;

use crate::spec::SpecError;

/// Why there is no lab, or why something cannot run in it.
#[derive(Debug, Error)]
pub enum LabError {
    /// An invalid lab.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The user may not make networks.
    #[error("a lab needs root: run with sudo")]
    NotRoot,
    /// Root, but without the powers of root: a container.
    #[error(
        "this root may not use {what}: run outside of the container, or give it CAP_NET_ADMIN, \
         CAP_SYS_ADMIN and CAP_BPF"
    )]
    NotPermitted {
        /// Operation that was tried.
        what: &'static str,
    },
    /// The kernel was built without something.
    #[error("this kernel has no {what}: load its module, or use a kernel with {option}")]
    Missing {
        /// Feature that the kernel lacks.
        what: &'static str,
        /// The setting it has to be built with.
        option: &'static str,
    },
    /// The machine's limit on namespaces.
    #[error(
        "the machine allows no more network namespaces: raise the sysctl user.max_net_namespaces, \
         or use fewer hosts"
    )]
    Full,
    /// The kernel refused for another reason.
    #[error("setting up {what} failed: {source}")]
    Kernel {
        /// Operation that was tried.
        what: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A link stayed down.
    #[error("the lab's links did not come up within {0} seconds: is the machine overloaded?")]
    Down(u32),
    /// A program did not start.
    #[error("cannot start {program}: {source}; check its name and its path")]
    Start {
        /// Name of the program as given.
        program: String,
        /// Error of the kernel.
        source: io::Error,
    },
}

impl LabError {
    /// True if the caller's request is at fault, and not the machine.
    pub fn is_input(&self) -> bool {
        matches!(self, LabError::Spec(_) | LabError::NotRoot | LabError::Start { .. })
    }
}
