//! Operations on names in directories (RFC 8881 sections 18.4, 18.9, 18.13, 18.14 and 18.23 to
//! 18.26), on access rights and on attributes.
//!
//! Invariant: every list in these messages has a named bound.

use crate::xdr::{Chain, xdr};

use super::attributes::Fattr;
use super::bitmap::Bitmap;
use super::limits::ENTRIES_MAX;
use super::status::Status;
use super::types::{ChangeInfo, DeviceNumber, LinkText, Name, StateId, Verifier};

xdr! {
    /// Access rights that ACCESS checks.
    flags AccessMask: u32 {
        /// Read the data of a file, or list a directory.
        READ = 0x1,
        /// Look up a name in a directory.
        LOOKUP = 0x2,
        /// Write to existing data or change entries of a directory.
        MODIFY = 0x4,
        /// Append data or add entries to a directory.
        EXTEND = 0x8,
        /// Remove an entry from a directory.
        DELETE = 0x10,
        /// Execute a file.
        EXECUTE = 0x20,
        /// Read extended attributes.
        XATTR_READ = 0x40,
        /// Write extended attributes.
        XATTR_WRITE = 0x80,
        /// List extended attributes.
        XATTR_LIST = 0x100,
    }
    /// Results of ACCESS.
    #[derive(Copy, Default)]
    struct AccessDone {
        /// The rights that the server is able to check.
        supported: AccessMask,
        /// The rights that the user has.
        access: AccessMask,
    }
    /// Arguments of CREATE: a new object that is not a regular file.
    #[derive(Copy)]
    struct CreateArgs<'b> {
        /// The type of the object, with the target of a link or the number of a device.
        kind: CreateKind<'b>,
        /// The name of the object in the current directory.
        name: Name<'b>,
        /// The attributes to set on the new object.
        attributes: Fattr<'b>,
    }
    /// The type of a new object.
    #[derive(Copy)]
    union CreateKind<'b> on u32 {
        /// A directory, which is created empty.
        2 => Directory,
        /// A block device node.
        3 => BlockDevice(DeviceNumber),
        /// A character device node.
        4 => CharacterDevice(DeviceNumber),
        /// A symbolic link with its target.
        5 => SymbolicLink(LinkText<'b>),
        /// A Unix domain socket.
        6 => Socket,
        /// A named pipe (FIFO).
        7 => Fifo,
        /// A type that CREATE cannot create. The operation fails with `BADTYPE`.
        _ => Other,
    }
    /// Results of CREATE.
    #[derive(Copy, Default)]
    struct CreateDone {
        /// The change attribute of the directory before and after the operation.
        change: ChangeInfo,
        /// The attributes that the server has set.
        attributes: Bitmap,
    }
    /// Arguments of READDIR.
    #[derive(Copy, Default)]
    struct ReadDirArgs {
        /// The cookie after which the listing continues; 0 for the first entry.
        cookie: u64,
        /// The verifier of the reply that contained the cookie.
        verifier: Verifier,
        /// A hint: the number of bytes of names and cookies that the client wants.
        names_bytes: u32,
        /// The maximum length of the results in bytes.
        bytes_max: u32,
        /// The attributes of each entry that the client wants.
        attributes: Bitmap,
    }
    /// Results of READDIR. A server encodes long listings with
    /// [`ListingWriter`](super::compound::ListingWriter) instead.
    #[derive(Default)]
    struct ReadDirDone<'b> {
        /// The verifier that the client sends with the cookies of this reply.
        verifier: Verifier,
        /// The entries of the directory.
        entries: Chain<Entry<'b>, ENTRIES_MAX>,
        /// True if the listing contains the last entry of the directory.
        is_end: bool,
    }
    /// An entry of a directory.
    #[derive(Copy, Default)]
    struct Entry<'b> {
        /// The cookie by which the client asks for the entries after this one.
        cookie: u64,
        /// The name of the entry.
        name: Name<'b>,
        /// The attributes of the entry's object.
        attributes: Fattr<'b>,
    }
    /// Arguments of RENAME: from the saved directory (that of the saved file handle) to the current
    /// one.
    #[derive(Copy, Default)]
    struct RenameArgs<'b> {
        /// The old name, in the saved directory.
        old_name: Name<'b>,
        /// The new name, in the current directory.
        new_name: Name<'b>,
    }
    /// Results of RENAME.
    #[derive(Copy, Default)]
    struct RenameDone {
        /// The change attribute of the saved directory before and after the operation.
        source: ChangeInfo,
        /// The change attribute of the current directory before and after the operation.
        target: ChangeInfo,
    }
    /// Arguments of SETATTR.
    #[derive(Copy, Default)]
    struct SetAttrArgs<'b> {
        /// The state id of the open or delegation that allows a change of the size.
        state: StateId,
        /// The attributes to set.
        attributes: Fattr<'b>,
    }
    /// Results of SETATTR. They contain the attributes even if the operation has failed.
    #[derive(Copy)]
    struct SetAttrResult {
        /// The status of the operation.
        status: Status,
        /// The attributes that the server has set.
        attributes: Bitmap,
    }
}
