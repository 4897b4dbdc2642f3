//! The native part of the Python package `dafs`: sessions, files and memory.
//!
//! What Python holds are numbers. Everything of the client's is in one `core::State` per
//! session, which is reached with the lock of its [`dafs_share::SharedClient`] held alone, from
//! whatever thread. Each call is an `operation::Operation`: it is waited for, without the
//! interpreter's lock and looking for signals, or started and driven by an event loop.
//!
//! Invariant: whoever holds a client's lock never waits for the interpreter's.

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

/// `dafs._dafs`.
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
