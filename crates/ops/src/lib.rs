//! Operations on files and their results, independent of any protocol.
//!
//! A front, which is the code of one protocol (DAFS now, others later), translates its requests
//! into an [`Operation`] and passes the operation to the part of the server that owns the files.
//! The result is an [`Outcome`]: a [`Done`], or a [`Refusal`] with its [`Fault`]. Each front
//! translates outcomes into its protocol.
//!
//! All types here are plain data, and names are bytes. They do not depend on a protocol, a byte
//! order, a connection or a process. So the bytes from [`Operation::encode`] can be stored in a
//! journal, kept while a request waits, or sent to another node. `docs/spec/operations.md`
//! describes them.
//!
//! File data that is read or written is never part of an operation: it moves between the cache and
//! the client's memory.
//!
//! Invariant: an encoded value decodes to the same value. Decoding never panics, allocates memory
//! only in proportion to its input, and refuses trailing bytes.
#![forbid(unsafe_code)]

mod arguments;
mod codec;
mod done;
mod fault;
#[doc(hidden)]
pub mod fuzzing;
mod names;
mod operation;
mod origin;
mod status;

pub use arguments::{
    Access, Append, Attributes, Claim, Close, Commit, CopyRange, CreateNode, Creation, Downgrade,
    Empty, Extras, Fence, FileRange, Hint, Link, List, ListXattrs, Lock, LockClaim, LockMode,
    LockSpan, Lookup, NewNode, OneFile, Open, Remove, Rename, ReturnDelegation, Seek, SeekFor,
    SetAttributes, SetXattr, TestLock, Xattr, XattrMode,
};
pub use codec::{ENCODED_BYTES_MAX, LIST_COUNT_MAX, decode_outcome, encode_outcome};
pub use done::{
    Appended, AttributeSet, Changed, Committed, Conflict, Copied, Created, Delegated, Delegation,
    Done, Entry, FenceIds, Granted, Opened, Outcome, OwnedDone, Page, Partial, Refusal, Renamed,
    Set, Sought, Text, Walked, Written, XattrChanged, XattrNames, XattrValue,
};
pub use fault::Fault;
pub use names::Names;
pub use operation::{Class, Layout, Operation};
pub use origin::{FrontId, Origin, Ticket};
