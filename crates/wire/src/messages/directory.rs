//! Listing directories (draft 6.5.29, 6.5.30). Invariant: the results of the inline
//! and the direct form hold the same counted array of entries, with offsets from its
//! start, so one writer and one reader serve both.

use dafs_types::{CookieVerifier, FileHandle, ReaddirCookie};

use crate::array::{DirectBuffers, List};
use crate::attributes::AttributeBitmap;
use crate::checksum::Checksum;
use crate::field::{Flag32, Handle, Long, Opaque64, Sum, Word};
use crate::readdir::{DirectoryEntries, Entries};
use crate::section::section;

section! {
    /// Arguments of READDIR_INLINE.
    ReadDirectory: 96 {
        /// The directory.
        directory: FileHandle => Handle,
        /// Where to go on; 0 for the start.
        cookie: ReaddirCookie => Long,
        /// Came with the cookie; 0 for the start.
        verifier: CookieVerifier => Opaque64,
        /// Bytes of names and cookies the client would like; a hint.
        names_bytes: u32 => Word,
        /// Most bytes of results.
        result_bytes_max: u32 => Word,
        /// Attributes wanted of each entry.
        wanted: AttributeBitmap => Long,
    }
}

section! {
    /// Results of READDIR_INLINE.
    ReadDirectoryResult<'a>: 16 {
        /// Ties the cookies to this state of the directory.
        verifier: CookieVerifier => Opaque64,
        /// Whether the last entry is among them.
        end_of_directory: bool => Flag32,
        /// The entries.
        entries: DirectoryEntries<'a> => Entries,
    }
}

section! {
    /// Arguments of READDIR_DIRECT.
    ReadDirectoryDirect<'a>: 104 {
        /// The directory.
        directory: FileHandle => Handle,
        /// Where to go on; 0 for the start.
        cookie: ReaddirCookie => Long,
        /// Came with the cookie; 0 for the start.
        verifier: CookieVerifier => Opaque64,
        /// Bytes of names and cookies the client would like; a hint.
        names_bytes: u32 => Word,
        /// Most bytes of results.
        result_bytes_max: u32 => Word,
        /// Attributes wanted of each entry.
        wanted: AttributeBitmap => Long,
        /// Where the entries go.
        buffers: DirectBuffers<'a> => List,
    }
}

section! {
    /// Results of READDIR_DIRECT.
    ReadDirectoryDirectResult: 16 {
        /// Ties the cookies to this state of the directory.
        verifier: CookieVerifier => Opaque64,
        /// Whether the last entry is among them.
        end_of_directory: bool => Flag32,
        /// Checksum of what was placed.
        checksum: Checksum => Sum,
    }
}
