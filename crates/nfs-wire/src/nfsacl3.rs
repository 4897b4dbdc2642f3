//! NFSACL version 3: POSIX access control lists, in addition to NFS version 3.
//!
//! No RFC describes this program. The messages are those of Solaris, as Linux uses them.

use crate::nfs3::{Attributes, Handle, Status};
use crate::table::program;
use crate::xdr::{List, xdr};

/// The maximum number of entries of a list.
pub const ENTRIES_MAX: usize = 1024;
/// The bit in the kind of an entry that marks an entry of a default list.
pub const DEFAULT_ENTRY: u32 = 0x1000;

xdr! {
    /// The parts of the access control lists that a message asks for or contains.
    flags AclMask: u32 {
        /// The entries of the access list.
        ACL = 0x1,
        /// The number of entries of the access list.
        ACL_COUNT = 0x2,
        /// The entries of the default list of a directory.
        DEFAULT = 0x4,
        /// The number of entries of the default list.
        DEFAULT_COUNT = 0x8,
    }

    /// The kind of an entry: one of these bits, combined with [`DEFAULT_ENTRY`] for a default list.
    flags AclKind: u32 {
        /// The owner of the file.
        USER_OBJECT = 0x01,
        /// A user with a user id.
        USER = 0x02,
        /// The group of the file.
        GROUP_OBJECT = 0x04,
        /// A group with a group id.
        GROUP = 0x08,
        /// The mask that limits users and groups.
        CLASS_OBJECT = 0x10,
        /// All other users and groups.
        OTHER_OBJECT = 0x20,
    }

    /// An entry of an access control list.
    #[derive(Copy)]
    struct AclEntry {
        /// The kind of the entry.
        kind: AclKind,
        /// The user id or group id, depending on the kind.
        id: u32,
        /// The permission bits: 4 for reading, 2 for writing, 1 for executing.
        permissions: u32,
    }

    /// The access control lists of a file.
    struct Acl {
        /// The parts that this message contains.
        mask: AclMask,
        /// The number of entries of the access list, even if the message does not contain them.
        access_count: u32,
        /// The entries of the access list.
        access: List<AclEntry, ENTRIES_MAX>,
        /// The number of entries of the default list, even if the message does not contain them.
        default_count: u32,
        /// The entries of the default list.
        default: List<AclEntry, ENTRIES_MAX>,
    }

    /// The arguments of GETACL.
    #[derive(Copy)]
    struct GetAclArgs<'b> {
        /// The handle of the file.
        file: Handle<'b>,
        /// The parts that the client asks for.
        mask: AclMask,
    }

    /// The results of a successful GETACL.
    struct GetAclOk {
        /// The attributes of the file.
        attributes: Option<Attributes>,
        /// The access control lists of the file.
        acl: Acl,
    }

    /// The results of GETACL.
    union GetAclResult on Status {
        /// The access control lists of the file.
        Ok => Ok(GetAclOk),
        /// The status of a failed procedure, and attributes if the server has any.
        _ => Fail(Option<Attributes>),
    }

    /// The arguments of SETACL.
    struct SetAclArgs<'b> {
        /// The handle of the file.
        file: Handle<'b>,
        /// The access control lists to set.
        acl: Acl,
    }

    /// The results of SETACL.
    #[derive(Copy)]
    union SetAclResult on Status {
        /// The attributes of the file.
        Ok => Ok(Option<Attributes>),
        /// The status of a failed procedure, and attributes if the server has any.
        _ => Fail(Option<Attributes>),
    }
}

program! {
    /// The table of NFSACL version 3.
    NFSACL3 = "NFSACL version 3", 100227 version 3;
    Procedure, Arguments<'b>, Results;
    Null = 0 "NULL" (()) -> (()) Reads;
    GetAcl = 1 "GETACL" (GetAclArgs<'b>) -> (GetAclResult) Reads;
    SetAcl = 2 "SETACL" (SetAclArgs<'b>) -> (SetAclResult) Repeats;
}
