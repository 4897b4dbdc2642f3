//! What can be done to files, and what comes of it, in words that no protocol owns.
//!
//! A front (DAFS now, others later) turns its requests into an [`Operation`] and hands it to the
//! half of the server that owns the files. What comes back is an [`Outcome`]: a [`Done`], or a
//! [`Refusal`] with its [`Fault`]. Each front has its own words for these.
//!
//! Everything here is plain data. Names are bytes. Nothing knows a protocol, a byte order, a
//! connection or a process, so the bytes that [`Operation::encode`] makes can be kept in a
//! journal, be kept while a request waits, and be sent to another node. `docs/spec/operations.md`
//! shows them.
//!
//! Data that is read and written never passes through an operation: it moves between the
//! cache and the asker's memory.
//!
//! Invariant: what is encoded decodes to the same; decoding never panics, takes memory in
//! proportion to its input alone, and refuses bytes behind the end.
#![forbid(unsafe_code)]

mod arguments;
mod asker;
mod codec;
mod done;
mod fault;
#[doc(hidden)]
pub mod fuzzing;
mod names;
mod operation;
mod status;

pub use arguments::{
    Access, Append, Attributes, Claim, Close, Commit, CreateNode, Creation, Downgrade, Empty,
    Extras, Fence, Hint, Link, List, Lock, LockClaim, LockMode, LockSpan, Lookup, NewNode, OneFile,
    Open, Remove, Rename, ReturnDelegation, SetAttributes, TestLock,
};
pub use asker::{FrontId, Origin, Ticket};
pub use codec::{ENCODED_BYTES_MAX, LIST_COUNT_MAX, decode_outcome, encode_outcome};
pub use done::{
    Appended, AttributeSet, Changed, Committed, Conflict, Created, Delegated, Delegation, Done,
    Entry, FenceIds, Granted, Opened, Outcome, OwnedDone, Page, Partial, Refusal, Renamed, Set,
    Text, Walked, Written,
};
pub use fault::Fault;
pub use names::Names;
pub use operation::{Class, Layout, Operation};
