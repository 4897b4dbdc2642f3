//! NFS version 3 (RFC 1813).
//!
//! The names of types and fields follow the RFC, without the `3` at the end, and in the spelling of
//! Rust.

mod attributes;
mod data;
mod directory;
mod file_system;
mod names;
mod procedures;
mod status;

pub use attributes::{
    AccessArgs, AccessOk, AccessResult, AccessRights, Attributes, DeviceNumber, FileType,
    GetAttrResult, SetAttrArgs, SetAttributes, SetTime, SetTimeHow, Time, WccAttributes, WccData,
    WccResult,
};
pub use data::{
    CommitArgs, CommitOk, CommitResult, ReadArgs, ReadLinkOk, ReadLinkResult, ReadOk, ReadResult,
    Stability, WriteArgs, WriteOk, WriteResult, WriteUnderWay, write_under_way,
};
pub use directory::{
    DirectoryList, Entry, EntryPlus, ReadDirArgs, ReadDirOk, ReadDirPlusArgs, ReadDirPlusOk,
    ReadDirPlusResult, ReadDirResult,
};
pub use file_system::{
    FsInfoOk, FsInfoResult, FsProperties, FsStatOk, FsStatResult, PathConfOk, PathConfResult,
};
pub use names::{
    CreateArgs, CreateHow, CreateMode, CreateOk, CreateResult, LinkArgs, LinkOk, LinkResult,
    LookupOk, LookupResult, MkDirArgs, MkNodArgs, MkNodData, NodeDevice, RenameArgs, RenameOk,
    RenameResult, SymLinkArgs, SymLinkData,
};
pub use procedures::{Arguments, NFS3, Procedure, Results};
pub use status::Status;

use crate::xdr::{Opaque, xdr};

/// The maximum length of a file handle, in bytes.
pub const HANDLE_BYTES_MAX: usize = 64;
/// The maximum length of a name in a message, in bytes. This is more than file systems allow, so
/// that the server can reply with NAMETOOLONG.
pub const NAME_BYTES_MAX: usize = 4096;
/// The maximum length of the target of a symbolic link on the wire, in bytes.
pub const LINK_TEXT_BYTES_MAX: usize = 8192;
/// The maximum number of entries in the reply to a READDIR or READDIRPLUS.
pub const ENTRIES_MAX: usize = 65_536;

/// The handle of a file, which only the server can interpret.
pub type Handle<'b> = Opaque<'b, HANDLE_BYTES_MAX>;
/// The name of an entry in a directory.
pub type Name<'b> = Opaque<'b, NAME_BYTES_MAX>;
/// The target of a symbolic link.
pub type LinkText<'b> = Opaque<'b, LINK_TEXT_BYTES_MAX>;
/// A value that changes when the server restarts, or when the cookies of a directory become
/// invalid.
pub type Verifier = [u8; 8];

xdr! {
    /// The arguments of a procedure that needs only a file.
    #[derive(Copy)]
    struct FileArgs<'b> {
        /// The handle of the file.
        file: Handle<'b>,
    }

    /// A name in a directory, as the argument of a procedure.
    #[derive(Copy)]
    struct DirectoryOp<'b> {
        /// The handle of the directory.
        directory: Handle<'b>,
        /// The name of the entry.
        name: Name<'b>,
    }
}
