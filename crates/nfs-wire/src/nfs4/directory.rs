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
    /// Rights that ACCESS asks for.
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
        /// The rights that the server can judge.
        supported: AccessMask,
        /// The rights that the user has.
        access: AccessMask,
    }
    /// Arguments of CREATE: a new object that is not a regular file.
    #[derive(Copy)]
    struct CreateArgs<'b> {
        /// The type of the object, with its link text or device.
        kind: CreateKind<'b>,
        /// The name of the object in the current directory.
        name: Name<'b>,
        /// The first attributes of the object.
        attributes: Fattr<'b>,
    }
    /// The type of a new object.
    #[derive(Copy)]
    union CreateKind<'b> on u32 {
        /// A directory of names.
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
        /// A type that CREATE cannot create: the status is `BADTYPE`.
        _ => Other,
    }
    /// Results of CREATE.
    #[derive(Copy, Default)]
    struct CreateDone {
        /// The change of the directory.
        change: ChangeInfo,
        /// The attributes that were set.
        attributes: Bitmap,
    }
    /// Arguments of READDIR.
    #[derive(Copy, Default)]
    struct ReadDirArgs {
        /// The position to continue at; 0 for the first entry.
        cookie: u64,
        /// The verifier of the reply that the cookie is from.
        verifier: Verifier,
        /// The wanted number of bytes of names and cookies, as a hint.
        names_bytes: u32,
        /// The maximum length of the results in bytes.
        bytes_max: u32,
        /// The attributes that the client wants of each entry.
        attributes: Bitmap,
    }
    /// Results of READDIR. A server encodes long listings with
    /// [`ListingWriter`](super::compound::ListingWriter) instead.
    #[derive(Default)]
    struct ReadDirDone<'b> {
        /// The verifier for the cookies.
        verifier: Verifier,
        /// The entries of the directory.
        entries: Chain<Entry<'b>, ENTRIES_MAX>,
        /// Whether the listing is complete.
        is_end: bool,
    }
    /// An entry of a directory.
    #[derive(Copy, Default)]
    struct Entry<'b> {
        /// The position after this entry.
        cookie: u64,
        /// The name of the entry.
        name: Name<'b>,
        /// The attributes of the entry.
        attributes: Fattr<'b>,
    }
    /// Arguments of RENAME: from the saved directory to the current one.
    #[derive(Copy, Default)]
    struct RenameArgs<'b> {
        /// The name in the saved directory.
        old_name: Name<'b>,
        /// The name in the current directory.
        new_name: Name<'b>,
    }
    /// Results of RENAME.
    #[derive(Copy, Default)]
    struct RenameDone {
        /// The change of the saved directory.
        source: ChangeInfo,
        /// The change of the current directory.
        target: ChangeInfo,
    }
    /// Arguments of SETATTR.
    #[derive(Copy, Default)]
    struct SetAttrArgs<'b> {
        /// The open or delegation that allows a change of the size.
        state: StateId,
        /// The attributes to set.
        attributes: Fattr<'b>,
    }
    /// Results of SETATTR, which has some even if it fails.
    #[derive(Copy)]
    struct SetAttrResult {
        /// The status of the operation.
        status: Status,
        /// The attributes that were set.
        attributes: Bitmap,
    }
}
