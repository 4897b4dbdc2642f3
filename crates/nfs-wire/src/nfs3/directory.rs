//! The procedures that list directories: READDIR and READDIRPLUS.
//!
//! A server writes entries one after the other with
//! [`Writer::chain_item`](crate::xdr::Writer::chain_item), so that it needs no list of the entries.

use super::{Attributes, ENTRIES_MAX, Handle, Name, Status, Verifier};
use crate::xdr::{Chain, xdr};

xdr! {
    /// The arguments of READDIR.
    #[derive(Copy)]
    struct ReadDirArgs<'b> {
        /// The handle of the directory.
        directory: Handle<'b>,
        /// The cookie of the last entry that the client has received; 0 for the first entries.
        cookie: u64,
        /// The verifier of the previous reply; 0 for the first entries.
        verifier: Verifier,
        /// The maximum length of the results in bytes.
        count: u32,
    }

    /// An entry of a directory.
    #[derive(Copy)]
    struct Entry<'b> {
        /// The inode number: identifies the file in its file system.
        file_id: u64,
        /// The name of the entry.
        name: Name<'b>,
        /// The cookie by which the client asks for the entries after this one.
        cookie: u64,
    }

    /// Consecutive entries of a directory.
    struct DirectoryList<'b> {
        /// The entries in the server's order.
        entries: Chain<Entry<'b>, ENTRIES_MAX>,
        /// True if the list ends with the directory's last entry.
        eof: bool,
    }

    /// The results of a successful READDIR.
    struct ReadDirOk<'b> {
        /// The attributes of the directory.
        attributes: Option<Attributes>,
        /// The verifier for the next call.
        verifier: Verifier,
        /// The entries of this reply.
        list: DirectoryList<'b>,
    }

    /// The results of READDIR.
    union ReadDirResult<'b> on Status {
        /// The entries of this reply.
        Ok => Ok(ReadDirOk<'b>),
        /// The status of a failed procedure, and attributes if the server has any.
        _ => Fail(Option<Attributes>),
    }

    /// The arguments of READDIRPLUS.
    #[derive(Copy)]
    struct ReadDirPlusArgs<'b> {
        /// The handle of the directory.
        directory: Handle<'b>,
        /// The cookie of the last entry that the client has received; 0 for the first entries.
        cookie: u64,
        /// The verifier of the previous reply; 0 for the first entries.
        verifier: Verifier,
        /// The maximum number of bytes of file ids, names and cookies in the results.
        directory_count: u32,
        /// The maximum length of the results in bytes.
        count_max: u32,
    }

    /// An entry of a directory, with the attributes and the handle of its file.
    #[derive(Copy)]
    struct EntryPlus<'b> {
        /// The inode number: identifies the file in its file system.
        file_id: u64,
        /// The name of the entry.
        name: Name<'b>,
        /// The cookie by which the client asks for the entries after this one.
        cookie: u64,
        /// The attributes of the file.
        attributes: Option<Attributes>,
        /// The handle of the file.
        file: Option<Handle<'b>>,
    }

    /// The results of a successful READDIRPLUS.
    struct ReadDirPlusOk<'b> {
        /// The attributes of the directory.
        attributes: Option<Attributes>,
        /// The verifier for the next call.
        verifier: Verifier,
        /// The entries of this reply.
        entries: Chain<EntryPlus<'b>, ENTRIES_MAX>,
        /// True if the list ends with the directory's last entry.
        eof: bool,
    }

    /// The results of READDIRPLUS.
    union ReadDirPlusResult<'b> on Status {
        /// The entries of this reply.
        Ok => Ok(ReadDirPlusOk<'b>),
        /// The status of a failed procedure, and attributes if the server has any.
        _ => Fail(Option<Attributes>),
    }
}
