//! The native part of the Python package `dafs`: sessions, files and memory.
//!
//! Python objects hold numbers. All client objects of a session are in one `core::State`, which any
//! thread can use while it holds the lock of the session's [`dafs_share::SharedClient`]. Each call
//! is an `operation::Operation`. A thread waits for it without the interpreter's lock while it
//! checks for signals, or an event loop starts and drives it.
//!
//! Invariant: a thread that holds a client's lock never waits for the interpreter's lock.

mod connect;
mod core;
mod errors;
mod file;
mod gate;
mod memory;
mod names;
mod operation;
mod session;
mod staged;
mod tasks;
mod transfer;
mod value;
mod whole;

use pyo3::prelude::*;

/// The native module `dafs._dafs`.
#[pymodule(name = "_dafs")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("STRAIGHT_MIN", transfer::STRAIGHT_MIN)?;
    module.add_class::<session::Session>()?;
    module.add_class::<file::File>()?;
    module.add_class::<memory::Memory>()?;
    module.add_class::<operation::Operation>()?;
    module.add_function(wrap_pyfunction!(connect::connect, module)?)?;
    Ok(())
}
