//! Ranges of files, an extension (`docs/spec/gaps.md`, "Holes and copies"): storage that is
//! reserved, freed or shared, copies within the server, and searches for holes.

use dafs_types::{FileHandle, Stability, StateId, Verifier};

use crate::field::{Enum, Flag32, Handle, Long, Opaque64};
use crate::section::section;

section! {
    /// The arguments of ALLOCATE and DEALLOCATE.
    FileRange: 88 {
        /// The handle of the file that the request concerns.
        file: FileHandle => Handle,
        /// The state id of the open or delegation, or the anonymous state id.
        state: StateId => Opaque64,
        /// The offset in the file of the first byte of the range.
        offset: u64 => Long,
        /// The length of the range in bytes; 0 is invalid.
        length: u64 => Long,
    }
}

section! {
    /// The arguments of SEEK.
    Seek: 88 {
        /// The handle of the file that the request concerns.
        file: FileHandle => Handle,
        /// The state id of the open or delegation, or the anonymous state id.
        state: StateId => Opaque64,
        /// The offset in the file at which the search starts.
        offset: u64 => Long,
        /// True to search for a hole, false to search for data.
        hole: bool => Flag32,
    }
}

section! {
    /// The results of SEEK.
    SeekResult: 16 {
        /// The offset in the file at which the data or the hole begins.
        offset: u64 => Long,
        /// True if this is the end of the file.
        end_of_file: bool => Flag32,
    }
}

section! {
    /// The arguments of CLONE_RANGE and COPY_RANGE.
    CopyRange: 168 {
        /// The handle of the file to read.
        source: FileHandle => Handle,
        /// The handle of the file to write.
        file: FileHandle => Handle,
        /// The state id with which the source is read.
        source_state: StateId => Opaque64,
        /// The state id with which the file is written.
        state: StateId => Opaque64,
        /// The offset in the source of the first byte.
        source_offset: u64 => Long,
        /// The offset in the file of the first byte to write.
        offset: u64 => Long,
        /// The number of bytes; 0 means up to the end of the source.
        length: u64 => Long,
    }
}

section! {
    /// The results of COPY_RANGE.
    CopyResult: 24 {
        /// The number of bytes copied, which may be less than requested.
        length: u64 => Long,
        /// The write verifier, which changes when the server may have lost unstable data.
        verifier: Verifier => Opaque64,
        /// The parts of the file (data, metadata) that are on stable storage now.
        committed: Stability => Enum,
    }
}
