//! Fences: who may still reach a file or a file system (draft 4.4.4 and 6.4).
//!
//! Invariant: once a change is [`FenceAction::Completed`], its list is on stable storage,
//! no operation of a session that the list leaves out runs on the object, and none enters
//! until a later change lets it in.
//!
//! A list of a fenced object names the fence identities that may enter; an object without
//! a list is open to everybody. The draft has two flags for a change and leaves open what
//! some of their six combinations mean. `L` is the list before, `A` the one in the request:
//!
//! | access | update    | the list after   | why                                         |
//! |--------|-----------|------------------|---------------------------------------------|
//! | ALLOW  | OVERWRITE | `A`; none if empty | 6.4.2 says just this                      |
//! | ALLOW  | APPEND    | `L` and `A`      | "added"; the first `A` leaves all others out |
//! | ALLOW  | REMOVE    | INVAL            | the two flags contradict each other         |
//! | DENY   | OVERWRITE | INVAL            | it overwrites only "in the case of allowing" |
//! | DENY   | APPEND    | `L` without `A`  | access: "add or remove"; APPEND: "modifies" |
//! | DENY   | REMOVE    | `L` without `A`  | the plain reading                           |
//!
//! A list says who may enter, so a denial must be refused where a list cannot say it:
//! with INVAL if the object has no list (everybody but `A`), or if none would be left
//! (an empty list would let everybody in). The fence is unchanged then; the caller
//! overwrites the list with those who may stay.
//!
//! The draft drains after a DENY. Here every change drains those whom the new list leaves
//! out, however they got out: an ALLOW that drops somebody promises no less.
//!
//! More choices the draft leaves to a server:
//! - A file's list and its file system's are independent; both must let a session in.
//! - A session without a fence identity (an empty text) is in no list.
//! - Fenced requests are answered with ACCES: fencing is a permission (4.4.4.3), and of the
//!   statuses that could say so only ACCES stands in the lists of READ, WRITE and the rest.
//!   NOT_AUTHORIZED is for who may not ask for or change a list (6.4.1, 6.4.2).
//! - Sessions are not closed, locks and opens not dropped (the note in 4.4.4.4).
//! - GET_FENCING_LIST has no object flag: see [`FencedObject::asked_for`].
//! - The fencing procedures are never fenced, or nobody could lift a fence from outside.
//! - A second change of an object while one is under way is answered with DELAY.
//!
//! # What runs
//!
//! While there is no fence, READ and WRITE pay one load and one branch in
//! [`FenceTable::enter`] and one in [`FenceTable::leave`]; so nothing is counted there. The
//! driver knows what runs anyway, and shows it to [`FenceTable::set`], which notes those
//! operations that must end first. After that only their `leave` means anything: what the
//! new list leaves out cannot enter, and what it lets in need not be waited for. This
//! holds with fences in place too, so there is one way and not two. Its price is one walk
//! over the running operations for each change, which is rare; the duty of the driver is to
//! show every operation between its `enter` and its `leave`, transfers of batches included.
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

/// What a fence stands around.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FencedObject {
    /// One file.
    File(FileHandle),
    /// A whole file system.
    FileSystem(FsHandle),
}

impl FencedObject {
    /// What SET_FENCING_LIST means.
    #[must_use]
    pub fn named(file: &FileHandle, object: FenceObject) -> Self {
        match object {
            FenceObject::File => Self::File(*file),
            FenceObject::FileSystem => Self::FileSystem(file.fs()),
        }
    }

    /// What GET_FENCING_LIST means, whose handle is "file or fshandle" without a flag
    /// (draft 6.4.1): the file system if behind its 16 bytes there are only zeros, which
    /// no file has, or else the file.
    #[must_use]
    pub fn asked_for(handle: &FileHandle) -> Self {
        if handle.file_id() == [0; 48] {
            Self::FileSystem(handle.fs())
        } else {
            Self::File(*handle)
        }
    }

    /// Whether an operation on this file meets the fence.
    #[must_use]
    pub fn covers(&self, file: &FileHandle) -> bool {
        match self {
            Self::File(fenced) => fenced == file,
            Self::FileSystem(fenced) => *fenced == file.fs(),
        }
    }

    /// 64 bytes or 16, so that no file is equal to a file system.
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

/// What the caller knows of whoever asks for or changes a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FenceAuthority {
    /// The request's identity owns the file.
    pub is_owner: bool,
    /// The client is trusted.
    pub is_trusted: bool,
}

impl FenceAuthority {
    /// The rule of draft 4.4.4.4.
    #[must_use]
    pub fn extends_to(self, object: &FencedObject) -> bool {
        match object {
            FencedObject::File(_) => self.is_owner || self.is_trusted,
            FencedObject::FileSystem(_) => self.is_trusted,
        }
    }
}

/// A change of one list (draft 6.4.2).
#[derive(Clone, Copy, Debug)]
pub struct FenceChange<'a> {
    /// Whose list.
    pub object: FencedObject,
    /// What is said of the identities.
    pub access: FenceAccess,
    /// How they are applied.
    pub update: FenceUpdate,
    /// The identities, in any order; twice is as good as once.
    pub fence_ids: &'a [FenceId],
}

/// The driver's name for a request to change a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FenceRequest(pub u64);

/// The driver's name for an operation, unique among those that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u64);

/// An operation that has entered and not left. One that touches two files is shown twice.
#[derive(Clone, Copy, Debug)]
pub struct RunningOperation<'a> {
    /// Which.
    pub operation: OperationId,
    /// Fence identity of its session.
    pub fence_id: &'a FenceId,
    /// The file it touches.
    pub file: &'a FileHandle,
}

/// Names one [`FenceAction::Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FenceStoreId(pub u64);

/// A list as it is kept on stable storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceRecord {
    /// Whose list.
    pub object: FencedObject,
    /// Who may enter, sorted. Empty: the record of this object is erased.
    pub fence_ids: Box<[FenceId]>,
}

/// What the driver does next, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FenceAction {
    /// Put a record on stable storage in place of the object's earlier one, atomically,
    /// and call [`FenceTable::stored`].
    Store {
        /// To be named then.
        id: FenceStoreId,
        /// What to store.
        record: FenceRecord,
    },
    /// The change holds; answer OK.
    Completed {
        /// Which.
        request: FenceRequest,
    },
    /// Nothing was changed; answer with this fault.
    Failed {
        /// Which.
        request: FenceRequest,
        /// Why.
        fault: dafs_ops::Fault,
    },
}

/// Why the lists of an earlier run cannot be taken over. A server that would go on
/// without them would let in those who were fenced out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FenceRestoreError {
    /// Two records for one object.
    #[error("two stored fencing lists for {0:?}")]
    Twice(FencedObject),
    /// Nobody can be let in by it.
    #[error("the stored fencing list of {0:?} is empty or has an empty identity")]
    Empty(FencedObject),
    /// The limits were lowered since.
    #[error("the stored fencing lists exceed the configured limits at {0:?}; raise them")]
    TooMany(FencedObject),
}
