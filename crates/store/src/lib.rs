//! The storage layer: names and bytes of files. It is independent of messages, sessions and
//! transports.
//!
//! Invariant: every call names the identity of its caller ([`Credentials`]). Every call about names
//! checks that identity's permission itself, and reaches only objects inside the exported trees.
//!
//! - [`Store`] is the name space: handles, names, attributes. Its calls are synchronous and may
//!   block. [`local::LocalStore`] serves directories in place; [`memory::MemoryStore`] keeps
//!   everything in memory of limited size.
//! - [`File`] is the bytes of one object, moved directly into and out of [`dafs_memory::Memory`].
//! - [`cache::Cache`] keeps blocks of files in one arena that a transport can register. It has a
//!   single owner, never blocks and does no I/O; it returns jobs that do the I/O.
//!
//! `docs/semantics.md` says which guarantees hold after which failure.
#![forbid(unsafe_code)]

pub mod acl;
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
pub mod xattrs;

pub use attributes::{Altered, AttributeChanges, Attributes};
pub use change::change_of_now;
pub use dafs_types::Credentials;
pub use error::{Result, StoreError};
pub use file::{CopySpan, File, FileKey, FileVersion};
pub use store::{
    Created, ExtraChanges, Extras, ExtrasWanted, ListEntry, ListPage, ListRequest, NewNode, Object,
    PathLookup, Removed, Renamed, Store,
};
pub use terms::ExportTerms;
pub use xattrs::{XattrListRequest, XattrPage};
