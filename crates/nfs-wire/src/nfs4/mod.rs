//! NFS version 4, minor versions 1 and 2 (RFC 8881, RFC 5662, RFC 7862, RFC 7863, RFC 8276).
//!
//! Invariant: each operation is one row of the [`table`]. Its calls, answers, names, errors and
//! properties are generated from the row.
//!
//! A server decodes a compound with [`CallReader`], one operation at a time, and encodes the
//! results with [`ReplyWriter`]. An *answer* is the result of one operation in the reply to a
//! compound. A client uses [`CallWriter`] and [`ReplyReader`]. Callbacks are compounds that the
//! server sends. They use the same types with [`Callback`] instead of [`Operation`].
//!
//! Attributes in calls are decoded separately ([`Fattr`]), so that a server can first check other
//! arguments. [`Fattr::decode`] decodes them, and [`Attributes::encode`] encodes them.
//!
//! ```
//! use dafs_nfs_wire::nfs4::{Answer, CallReader, Operation, ReplyWriter, Status};
//! use dafs_nfs_wire::xdr::{Reader, Writer};
//!
//! // A compound without a tag, of minor version 1: PUTROOTFH, GETFH.
//! let call = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 24, 0, 0, 0, 10];
//! let mut reader = CallReader::<Operation>::new(Reader::new(&call))?;
//! let mut writer = Writer::new();
//! let mut reply = ReplyWriter::new(&mut writer, reader.tag());
//! let mut status = Status::Ok;
//! while let Some(call) = reader.next_call() {
//!     let answer = match call? {
//!         Operation::PutRootFh => Answer::PutRootFh(Status::Ok),
//!         other => Answer::failed(other.kind(), Status::NotSupp),
//!     };
//!     status = answer.status();
//!     reply.push(&mut writer, &answer);
//!     if !status.is_ok() {
//!         break;
//!     }
//! }
//! reply.finish(&mut writer, status);
//! assert_eq!(writer.bytes().len(), 28);
//! # Ok::<(), dafs_nfs_wire::xdr::XdrError>(())
//! ```

pub mod attribute_types;
pub mod attributes;
pub mod callbacks;
pub mod compound;
pub mod copy;
pub mod data;
pub mod directory;
pub mod layout;
pub mod layout_bodies;
pub mod limits;
pub mod lock;
pub mod open;
pub mod operation;
pub mod session;
pub mod status;
pub mod table;
pub mod types;

mod bitmap;
mod errors;

pub use attributes::{AttributeError, Attributes, Fattr};
pub use bitmap::Bitmap;
pub use callbacks::{Callback, CallbackAnswer};
pub use compound::{CallReader, CallWriter, ListingWriter, NFS4, ReplyReader, ReplyWriter, Tag};
pub use operation::{Answer, Operation, Outcome, Reply};
pub use status::{Status, StatusSet};
pub use table::{CallbackKind, OperationKind};
pub use types::{StateId, Time};

/// The version of the RPC program that a client offers for callbacks. The client chooses the number
/// of this program and sends it in CREATE_SESSION.
pub const CALLBACK_VERSION: u32 = 1;
/// The lowest supported minor version.
pub const MINOR_VERSION_MIN: u32 = 1;
/// The highest supported minor version.
pub const MINOR_VERSION_MAX: u32 = 2;
