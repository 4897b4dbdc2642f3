//! The storage floor: where names and bytes are kept. It knows no messages, no
//! sessions and no transports.
//!
//! Invariant: whoever calls says as whom ([`Credentials`]), and every call of the
//! name-space plane checks that identity's permission itself; nothing reaches an
//! object outside the exported trees.
//!
//! - [`Store`] is the name space: handles, names, attributes. Synchronous; run it
//!   where blocking is allowed. [`local::LocalStore`] serves directories in place,
//!   [`memory::MemoryStore`] keeps everything in a bounded piece of memory.
//! - [`File`] is one object's bytes, moved straight into and out of
//!   [`dafs_memory::Memory`].
//! - [`cache::Cache`] keeps file blocks in one arena that a transport can register.
//!   It has a single owner, never blocks and does no I/O: it hands out jobs.
//!
//! What is promised to whom after which failure: `docs/semantics.md`.
#![forbid(unsafe_code)]

mod acl;
pub mod attributes;
pub mod cache;
mod change;
pub mod error;
pub mod file;
pub mod local;
pub mod memory;
pub mod name;
pub mod posix;
mod rules;
pub mod store;
mod terms;

pub use attributes::{Altered, AttributeChanges, Attributes};
pub use dafs_types::Credentials;
pub use error::{Result, StoreError};
pub use file::{File, FileKey, FileVersion};
pub use store::{
    Created, ExtraChanges, Extras, ExtrasWanted, ListEntry, ListPage, ListRequest, NewNode, Object,
    PathLookup, Removed, Renamed, Store,
};
pub use terms::ExportTerms;
