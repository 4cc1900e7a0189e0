//! Why there is no lab.

use std::io;

use thiserror::Error;

use crate::spec::SpecError;

/// Why there is no lab, or why something cannot run in it.
#[derive(Debug, Error)]
pub enum LabError {
    /// A lab that cannot be.
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
        /// What was tried.
        what: &'static str,
    },
    /// The kernel was built without something.
    #[error("this kernel has no {what}: load its module, or use a kernel with {option}")]
    Missing {
        /// What it lacks.
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
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A link stayed down.
    #[error("the lab's links did not come up within {0} seconds: is the machine overloaded?")]
    Down(u32),
    /// A program did not start.
    #[error("cannot start {program}: {source}; check its name and its path")]
    Start {
        /// Its name as given.
        program: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl LabError {
    /// Whether the caller asked for what cannot be, and not the machine at fault.
    pub fn is_input(&self) -> bool {
        matches!(self, LabError::Spec(_) | LabError::NotRoot | LabError::Start { .. })
    }
}
