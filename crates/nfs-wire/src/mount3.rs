//! MOUNT version 3 (RFC 1813 appendix I): a client sends the path of an export and gets its file
//! handle.

use crate::table::program;
use crate::xdr::{Chain, Inline, Opaque, xdr};

/// The maximum length of a path, in bytes. RFC 1813 allows 1024 bytes; the reply to a longer path
/// has the status NAMETOOLONG.
pub const PATH_BYTES_MAX: usize = 4096;
/// The maximum length of the name of a host or group, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// The maximum number of authentication flavors in a reply.
pub const FLAVORS_MAX: usize = 32;
/// The maximum number of mounts, exports, or groups of one export in a list.
pub const LIST_COUNT_MAX: usize = 65_536;

/// The path of an exported directory.
pub type Path<'b> = Opaque<'b, PATH_BYTES_MAX>;
/// The name of a host or of a group of hosts (netgroup).
pub type Name<'b> = Opaque<'b, NAME_BYTES_MAX>;

xdr! {
    /// The status of MNT.
    enum MountStatus {
        /// The export is mounted.
        Ok = 0,
        /// The caller lacks the permission for this.
        Perm = 1,
        /// The path does not exist.
        NoEnt = 2,
        /// The storage failed to read or write.
        Io = 5,
        /// The client is not allowed to mount this.
        Acces = 13,
        /// The path does not lead to a directory.
        NotDir = 20,
        /// The path has a form that is not allowed.
        Inval = 22,
        /// The path is longer than the server allows.
        NameTooLong = 63,
        /// The server does not support this procedure.
        NotSupp = 10004,
        /// The server failed for another reason.
        ServerFault = 10006,
    }

    /// The results of a successful MNT.
    #[derive(Copy)]
    struct Mounted<'b> {
        /// The handle of the exported directory.
        handle: crate::nfs3::Handle<'b>,
        /// The authentication flavors that the export accepts, in the order of preference.
        flavors: Inline<u32, FLAVORS_MAX>,
    }

    /// The results of MNT.
    #[derive(Copy)]
    union MountResult<'b> on MountStatus {
        /// The export is mounted.
        Ok => Ok(Mounted<'b>),
        /// The export is not mounted.
        _ => Fail,
    }

    /// A client that has mounted a directory, as far as the server knows.
    #[derive(Copy)]
    struct MountEntry<'b> {
        /// The name or address of the client.
        host: Name<'b>,
        /// The path that the client mounted.
        directory: Path<'b>,
    }

    /// An exported directory.
    struct Export<'b> {
        /// The path of the directory.
        directory: Path<'b>,
        /// The clients that may mount the directory; an empty list means all clients.
        groups: Chain<Name<'b>, LIST_COUNT_MAX>,
    }
}

program! {
    /// The table of MOUNT version 3.
    MOUNT3 = "MOUNT version 3", 100005 version 3;
    Procedure, Arguments<'b>, Results<'b>;
    Null = 0 "NULL" (()) -> (()) Reads;
    Mnt = 1 "MNT" (Path<'b>) -> (MountResult<'b>) Repeats;
    Dump = 2 "DUMP" (()) -> (Chain<MountEntry<'b>, LIST_COUNT_MAX>) Reads;
    Umnt = 3 "UMNT" (Path<'b>) -> (()) Repeats;
    UmntAll = 4 "UMNTALL" (()) -> (()) Repeats;
    Export = 5 "EXPORT" (()) -> (Chain<Export<'b>, LIST_COUNT_MAX>) Reads;
}
