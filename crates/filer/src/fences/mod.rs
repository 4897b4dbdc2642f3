//! Fences: which sessions may still access a file or a file system (draft 4.4.4 and 6.4).
//!
//! Invariant: once a change is [`FenceAction::Completed`], its list is on stable storage, no
//! operation of a session outside the list is running on the object, and none starts until a later
//! change admits the session.
//!
//! The list of a fenced object contains the fence identities that may access it. An object without
//! a list is open to every session. A request for a change has two flags, and the draft does not
//! define what some of the six combinations mean. `L` is the list before the change, `A` the list
//! in the request:
//!
//! | access | update    | the list after   | why                                         |
//! |--------|-----------|------------------|---------------------------------------------|
//! | ALLOW  | OVERWRITE | `A`; none if empty | 6.4.2 says exactly this                   |
//! | ALLOW  | APPEND    | `L` and `A`      | "added"; the first `A` leaves all others out |
//! | ALLOW  | REMOVE    | INVAL            | the two flags contradict each other         |
//! | DENY   | OVERWRITE | INVAL            | it overwrites only "in the case of allowing" |
//! | DENY   | APPEND    | `L` without `A`  | access: "add or remove"; APPEND: "modifies" |
//! | DENY   | REMOVE    | `L` without `A`  | the plain reading                           |
//!
//! A list contains the identities that may access the object, so a denial that a list cannot
//! express must be refused. It gets INVAL if the object has no list (the result would be "everyone
//! except `A`"), or if the list would become empty (an empty list would admit everyone). The fence
//! is then unchanged; the caller can overwrite the list with the identities that may stay.
//!
//! The draft waits for running operations after a DENY. This server waits after every change, for
//! the operations of all sessions that the new list leaves out, because an ALLOW that leaves out a
//! session must promise no less than a DENY.
//!
//! Further decisions that the draft leaves to the server:
//! - The list of a file and that of its file system are independent; both must admit a session.
//! - A session without a fence identity (an empty text) is in no list.
//! - Fenced requests get ACCES. Fencing is a permission (4.4.4.3), and of the possible statuses
//!   only ACCES is in the lists of READ, WRITE and the other procedures. NOT_AUTHORIZED is for
//!   callers that may not read or change a list (6.4.1, 6.4.2).
//! - Sessions are not closed, and locks and opens are not dropped (the note in 4.4.4.4).
//! - GET_FENCING_LIST has no object flag: see [`FencedObject::asked_for`].
//! - The fencing procedures are never fenced; otherwise no outside client could lift a fence.
//! - A change of an object's list while another change of it is pending gets DELAY.
//!
//! # Running operations
//!
//! While there is no fence, READ and WRITE pay one load and one branch in [`FenceTable::enter`] and
//! the same in [`FenceTable::leave`], so these calls do not count operations. The server knows
//! which operations are running and passes them to [`FenceTable::set`], which records those that
//! must end before the change is complete. After that, only the `leave` calls of the recorded
//! operations matter: sessions that the new list leaves out cannot start operations, and the change
//! need not wait for sessions that the new list admits. The same holds while fences exist, so there
//! is only one code path. The cost is one pass over the running operations for each change, and
//! changes are rare. In return the server must report every operation between its `enter` and its
//! `leave`, including transfers of batches.
//!
//! ```text
//! set ─► changing ──stored and drained──► Completed: the new list is in force
//!           │      both lists must let a session in meanwhile
//!           └──────not stored───────────► Failed: the old list is in force again
//! ```

mod list;
mod table;

pub use list::{FenceId, FenceLimits};
pub use table::{FenceCounters, FenceInformation, FenceTable};

use dafs_types::{FenceAccess, FenceObject, FenceUpdate, FileHandle, FsHandle};

/// The object that a fence protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FencedObject {
    /// One file.
    File(FileHandle),
    /// A whole file system.
    FileSystem(FsHandle),
}

impl FencedObject {
    /// Returns the object of a SET_FENCING_LIST request.
    #[must_use]
    pub fn named(file: &FileHandle, object: FenceObject) -> Self {
        match object {
            FenceObject::File => Self::File(*file),
            FenceObject::FileSystem => Self::FileSystem(file.fs()),
        }
    }

    /// Returns the object of a GET_FENCING_LIST request. The draft defines the request's handle as
    /// "file or fshandle" and has no flag that says which it is (draft 6.4.1). The handle is taken
    /// to be that of a file system if all bytes after the first 16 are zero, because no file has
    /// such a handle.
    #[must_use]
    pub fn asked_for(handle: &FileHandle) -> Self {
        if handle.file_id() == [0; 48] {
            Self::FileSystem(handle.fs())
        } else {
            Self::File(*handle)
        }
    }

    /// Returns true if the object's fencing list applies to operations on this file.
    #[must_use]
    pub fn covers(&self, file: &FileHandle) -> bool {
        match self {
            Self::File(fenced) => fenced == file,
            Self::FileSystem(fenced) => *fenced == file.fs(),
        }
    }

    /// Returns the handle as bytes: 64 bytes for a file, or 16 bytes for a file system, so that a
    /// file and a file system never compare as equal.
    fn bytes(&self) -> &[u8] {
        match self {
            Self::File(file) => &file.0,
            Self::FileSystem(fs) => &fs.0,
        }
    }
}

impl Ord for FencedObject {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.bytes().cmp(other.bytes())
    }
}

impl PartialOrd for FencedObject {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The facts that decide whether a caller may read or change a fencing list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FenceAuthority {
    /// True if the user for whom the request acts owns the file.
    pub is_owner: bool,
    /// True if the access rules trust the client.
    pub is_trusted: bool,
}

impl FenceAuthority {
    /// Returns true if the caller may read or change the object's fencing list (draft 4.4.4.4).
    #[must_use]
    pub fn extends_to(self, object: &FencedObject) -> bool {
        match object {
            FencedObject::File(_) => self.is_owner || self.is_trusted,
            FencedObject::FileSystem(_) => self.is_trusted,
        }
    }
}

/// A change of one fencing list (draft 6.4.2).
#[derive(Clone, Copy, Debug)]
pub struct FenceChange<'a> {
    /// The object whose list changes.
    pub object: FencedObject,
    /// The flag that says whether the identities are allowed or denied.
    pub access: FenceAccess,
    /// The flag that says how the identities are combined with the present list.
    pub update: FenceUpdate,
    /// The fence identities in the request, in any order. Duplicates are ignored.
    pub fence_ids: &'a [FenceId],
}

/// The id of a request that changes a fencing list. The server assigns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FenceRequest(pub u64);

/// The id of an operation, which the server assigns. It is unique among running operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u64);

/// An operation that is running, which means that it is between its calls of `enter` and `leave`.
/// An operation that accesses two files is reported once for each file.
#[derive(Clone, Copy, Debug)]
pub struct RunningOperation<'a> {
    /// The id of the operation.
    pub operation: OperationId,
    /// The fence identity of the session that started the operation.
    pub fence_id: &'a FenceId,
    /// The file that the operation accesses.
    pub file: &'a FileHandle,
}

/// The id of one [`FenceAction::Store`], to report its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FenceStoreId(pub u64);

/// A fencing list as it is stored on stable storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceRecord {
    /// The object to which the list belongs.
    pub object: FencedObject,
    /// The fence identities that may access the object, sorted. An empty list means that stable
    /// storage keeps no record of the object.
    pub fence_ids: Box<[FenceId]>,
}

/// The next action that the fence table requires of the server. Actions must be executed in the
/// order in which they are returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FenceAction {
    /// Store a record on stable storage, atomically replacing the object's earlier record, then
    /// call [`FenceTable::stored`].
    Store {
        /// The id to pass to [`FenceTable::stored`].
        id: FenceStoreId,
        /// The record to store.
        record: FenceRecord,
    },
    /// The change is complete, so the server must reply OK.
    Completed {
        /// The request that changes the list.
        request: FenceRequest,
    },
    /// The change has failed without effect, so the server must reply with this fault.
    Failed {
        /// The request that changes the list.
        request: FenceRequest,
        /// The reason of the failure.
        fault: dafs_ops::Fault,
    },
}

/// The reason why the stored fencing lists cannot be restored at the start. The server does not
/// start then, because without the lists it would admit sessions that were fenced out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FenceRestoreError {
    /// There are two records for one object.
    #[error("two stored fencing lists for {0:?}")]
    Twice(FencedObject),
    /// A stored list is empty or contains an empty identity, so the record is not valid.
    #[error("the stored fencing list of {0:?} is empty or has an empty identity")]
    Empty(FencedObject),
    /// There are more records than the limits allow, because the limits were lowered after the
    /// records were written.
    #[error("the stored fencing lists exceed the configured limits at {0:?}; raise them")]
    TooMany(FencedObject),
}
