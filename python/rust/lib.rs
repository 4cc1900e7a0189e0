//! The part of Thalweg that Python sees: daemons, and sessions whose operations work on memory of the caller.
//!
//! The layer above (`thalweg/torch`) knows tensors and process groups. Here memory is an address and a
//! length, and operations are numbers: they are started, and [`Session::next`](session::Session) tells
//! which one has ended. So one thread of Python serves any number of them, in the order in which they
//! end, and holds no lock of the interpreter while it waits.

mod daemons;
mod errors;
mod memory;
mod names;
mod notes;
mod process;
mod session;
mod settings;

use pyo3::prelude::*;

/// The compiled part of `thalweg`.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<daemons::Switch>()?;
    module.add_class::<daemons::Server>()?;
    module.add_class::<session::Session>()?;
    module.add("SessionError", module.py().get_type::<errors::SessionError>())?;
    Ok(())
}
