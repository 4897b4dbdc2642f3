//! Calls of NFS version 3 that wait for an operation on a file.

use dafs_nfs_wire::nfs3::WccAttributes;
use dafs_types::FileHandle;

/// The attributes of an object before an operation. `None` if they could not be read.
pub(in crate::nfs) type Before = Option<WccAttributes>;

/// The data that is needed to finish a call when its operation has ended.
#[derive(Debug)]
pub(in crate::nfs) enum Suspended {
    /// A GETATTR of this file, whose delegation another client holds.
    GetAttributes(FileHandle),
    /// A READ that waits for bytes of this file.
    Read(FileHandle),
    /// A WRITE to this file, which had these attributes before the call.
    Write(FileHandle, Before),
    /// A COMMIT of this file, which had these attributes before the call.
    Commit(FileHandle, Before),
    /// A SETATTR of this file, which had these attributes before the call.
    SetAttributes(FileHandle, Before),
    /// A SETACL of this file.
    SetAcl(FileHandle),
    /// A CREATE of a file that exists and is being truncated: the file, its directory, and the
    /// directory's attributes before the call.
    Create(FileHandle, FileHandle, Before),
    /// A call that was not executed yet: its procedure and its encoded arguments.
    Call(u32, Box<[u8]>),
}
