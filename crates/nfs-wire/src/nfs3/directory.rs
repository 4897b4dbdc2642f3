//! Listings: READDIR and READDIRPLUS.
//!
//! A server writes entries one by one, with `chain_item` of the writer, so that a page needs no
//! list of entries.

use super::{Attributes, ENTRIES_MAX, Handle, Name, Status, Verifier};
use crate::xdr::{Chain, xdr};

xdr! {
    /// The arguments of READDIR.
    #[derive(Copy)]
    struct ReadDirArgs<'b> {
        /// The handle of the directory.
        directory: Handle<'b>,
        /// The cookie of the last entry that the client has; 0 at the start.
        cookie: u64,
        /// The verifier of the last reply; 0 at the start.
        verifier: Verifier,
        /// The maximum length of the results in bytes.
        count: u32,
    }

    /// An entry of a directory.
    #[derive(Copy)]
    struct Entry<'b> {
        /// The number of the file in its file system.
        file_id: u64,
        /// The name of the entry.
        name: Name<'b>,
        /// The position after this entry.
        cookie: u64,
    }

    /// Some entries of a directory.
    struct DirectoryList<'b> {
        /// The entries in the server's order.
        entries: Chain<Entry<'b>, ENTRIES_MAX>,
        /// Whether the last entry of the directory is here.
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
        /// The reason of the failure, and the attributes.
        _ => Fail(Option<Attributes>),
    }

    /// The arguments of READDIRPLUS.
    #[derive(Copy)]
    struct ReadDirPlusArgs<'b> {
        /// The handle of the directory.
        directory: Handle<'b>,
        /// The cookie of the last entry that the client has; 0 at the start.
        cookie: u64,
        /// The verifier of the last reply; 0 at the start.
        verifier: Verifier,
        /// The maximum length of names and cookies in bytes.
        directory_count: u32,
        /// The maximum length of the results in bytes.
        count_max: u32,
    }

    /// An entry of a directory with its file.
    #[derive(Copy)]
    struct EntryPlus<'b> {
        /// The number of the file in its file system.
        file_id: u64,
        /// The name of the entry.
        name: Name<'b>,
        /// The position after this entry.
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
        /// Whether the last entry of the directory is here.
        eof: bool,
    }

    /// The results of READDIRPLUS.
    union ReadDirPlusResult<'b> on Status {
        /// The entries of this reply.
        Ok => Ok(ReadDirPlusOk<'b>),
        /// The reason of the failure, and the attributes.
        _ => Fail(Option<Attributes>),
    }
}
