//! Directory listings (draft 6.5.29, 6.5.30).
//!
//! Invariant: the results of the inline and the direct procedure contain the same counted array of
//! entries, with offsets from the start of the array, so that one encoder and one decoder serve
//! both.

use dafs_types::{CookieVerifier, FileHandle, ReaddirCookie};

use crate::array::{DirectBuffers, List};
use crate::attributes::AttributeBitmap;
use crate::checksum::Checksum;
use crate::field::{Flag32, Handle, Long, Opaque64, Sum, Word};
use crate::readdir::{DirectoryEntries, Entries};
use crate::section::section;

section! {
    /// The arguments of READDIR_INLINE.
    ReadDirectory: 96 {
        /// The handle of the directory.
        directory: FileHandle => Handle,
        /// The position at which the listing continues; 0 for the start of the directory.
        cookie: ReaddirCookie => Long,
        /// The verifier that came with the cookie; 0 for the start of the directory.
        verifier: CookieVerifier => Opaque64,
        /// The number of bytes of names and cookies that the client would like to get. The server
        /// may return fewer or more.
        names_bytes: u32 => Word,
        /// The maximum size of the results in bytes.
        result_bytes_max: u32 => Word,
        /// The attributes requested for each entry.
        wanted: AttributeBitmap => Long,
    }
}

section! {
    /// The results of READDIR_INLINE.
    ReadDirectoryResult<'a>: 16 {
        /// The verifier that the client must send with a cookie of these entries. It may become
        /// invalid when the directory changes.
        verifier: CookieVerifier => Opaque64,
        /// True if the listing includes the last entry of the directory.
        end_of_directory: bool => Flag32,
        /// The entries of the directory.
        entries: DirectoryEntries<'a> => Entries,
    }
}

section! {
    /// The arguments of READDIR_DIRECT.
    ReadDirectoryDirect<'a>: 104 {
        /// The handle of the directory.
        directory: FileHandle => Handle,
        /// The position at which the listing continues; 0 for the start of the directory.
        cookie: ReaddirCookie => Long,
        /// The verifier that came with the cookie; 0 for the start of the directory.
        verifier: CookieVerifier => Opaque64,
        /// The number of bytes of names and cookies that the client would like to get. The server
        /// may return fewer or more.
        names_bytes: u32 => Word,
        /// The maximum size of the results in bytes.
        result_bytes_max: u32 => Word,
        /// The attributes requested for each entry.
        wanted: AttributeBitmap => Long,
        /// The client memory into which the server writes the entries.
        buffers: DirectBuffers<'a> => List,
    }
}

section! {
    /// The results of READDIR_DIRECT.
    ReadDirectoryDirectResult: 16 {
        /// The verifier that the client must send with a cookie of these entries. It may become
        /// invalid when the directory changes.
        verifier: CookieVerifier => Opaque64,
        /// True if the listing includes the last entry of the directory.
        end_of_directory: bool => Flag32,
        /// The checksum of the transferred entries.
        checksum: Checksum => Sum,
    }
}
