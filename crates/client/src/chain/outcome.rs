//! The results of a chain.
//!
//! Invariant: all members before the failed one were executed, and their results are available. No
//! member after the failed one was executed.

use std::ops::Range;

use dafs_types::{AccessMask, FileHandle, StateId, Verifier};
use dafs_wire::messages::InlineData;
use dafs_wire::{Checksum, DirectChecksum, Response};

use crate::buffer::Slice;
use crate::error::ClientError;
use crate::metadata::{Metadata, to_metadata};
use crate::operation::Transferred;

/// The outcome of one member of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The member was executed, and its procedure has no results.
    Done,
    /// The handle of the object that was found or created.
    Found(FileHandle),
    /// A file was opened. The file is still open unless a later member has closed it.
    Opened {
        /// The handle of the opened file.
        file: FileHandle,
        /// The open's state id; [`Session::opened`](crate::Session::opened) makes a
        /// [`File`](crate::File) of it.
        state: StateId,
    },
    /// Bytes were read, written, or flushed to stable storage.
    Moved(Transferred),
    /// The member's data, which arrived inside the reply.
    Bytes {
        /// The bytes that the member has read.
        bytes: Vec<u8>,
        /// True if the file ends after these bytes.
        end_of_file: bool,
    },
    /// Bytes were appended to the file.
    Appended {
        /// The offset of the first appended byte.
        offset: u64,
        /// The server's write verifier, which changes when the server may have lost unstable data.
        verifier: Verifier,
    },
    /// The attributes of the member's object.
    Metadata(Box<Metadata>),
    /// The access rights that the user has, among those that were requested.
    Access(AccessMask),
    /// The target of the symbolic link.
    LinkText(Vec<u8>),
}

impl Outcome {
    /// Returns the handle of the object that was found, created or opened.
    #[must_use]
    pub fn handle(&self) -> Option<FileHandle> {
        match self {
            Self::Found(file) | Self::Opened { file, .. } => Some(*file),
            Self::Metadata(metadata) => Some(metadata.handle),
            Self::Done
            | Self::Moved(_)
            | Self::Bytes { .. }
            | Self::Appended { .. }
            | Self::Access(_)
            | Self::LinkText(_) => None,
        }
    }

    /// Returns the transfer result of a read, a write or a commit; `None` for other outcomes.
    #[must_use]
    pub fn transferred(&self) -> Option<Transferred> {
        match self {
            Self::Moved(transferred) => Some(*transferred),
            Self::Done
            | Self::Found(_)
            | Self::Opened { .. }
            | Self::Bytes { .. }
            | Self::Appended { .. }
            | Self::Metadata(_)
            | Self::Access(_)
            | Self::LinkText(_) => None,
        }
    }
}

/// The failure of the member that stopped a chain, and the outcomes of the members before it.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("member {} of the chain, {name}: {}", member + 1, error.in_full())]
pub struct ChainFailure {
    /// The index of the failed member, counted from 0. If the session has ended, this is the first
    /// member without a reply; it is unknown whether that member and those after it were executed.
    pub member: usize,
    /// The name of the failed member's procedure.
    pub name: &'static str,
    /// The error. It is not returned by `source()`, because the text of this failure includes the
    /// error's text.
    pub error: ClientError,
    /// The outcomes of the members before the failed one. Their effects remain: for example, a file
    /// that one of them opened is still open.
    pub done: Vec<Outcome>,
}

impl From<ChainFailure> for ClientError {
    fn from(failure: ChainFailure) -> Self {
        failure.error
    }
}

/// The data that the client needs to decode a member's reply.
#[derive(Clone, Debug)]
pub(crate) struct MemberDetails {
    /// The range of the chain's names that error messages use for this member.
    pub what: Option<Range<usize>>,
    /// The slice that the member reads into or writes from.
    pub slice: Option<Slice>,
    /// The number of bytes that were requested.
    pub length: u32,
}

impl MemberDetails {
    /// Decodes the results of a member that was executed. `named` returns the object that the
    /// member's request names, if any. An error describes what is wrong with the results.
    pub(crate) fn outcome(
        &self,
        response: &Response<'_>,
        named: impl FnOnce() -> FileHandle,
        has_checksums: bool,
    ) -> std::result::Result<Outcome, &'static str> {
        Ok(match response {
            Response::Lookup(found) => Outcome::Found(found.file),
            Response::LookupP(found) | Response::GetRootHandle(found) => Outcome::Found(found.file),
            Response::OpenAttr(found) => Outcome::Found(found.file),
            Response::Create(created) => Outcome::Found(created.file),
            Response::Open(opened) => Outcome::Opened { file: opened.file, state: opened.state },
            Response::ReadDirect(read) => {
                if has_checksums && self.checksum(read.length) != read.checksum {
                    return Err("the data does not match its checksum");
                }
                let (length, end_of_file) = (self.bounded(read.length)?, read.end_of_file);
                let verifier = Verifier::default();
                Outcome::Moved(Transferred { length, end_of_file, verifier })
            }
            Response::ReadInline(read) => {
                let InlineData::Here(bytes) = read.data else {
                    return Err("data that is not in the message");
                };
                self.bounded(u32::try_from(bytes.len()).unwrap_or(u32::MAX))?;
                Outcome::Bytes { bytes: bytes.to_vec(), end_of_file: read.end_of_file }
            }
            Response::WriteInline(write) | Response::WriteDirect(write) => {
                let length = self.bounded(write.length)?;
                let verifier = write.verifier;
                Outcome::Moved(Transferred { length, end_of_file: false, verifier })
            }
            Response::AppendInline(appended) | Response::AppendDirect(appended) => {
                Outcome::Appended { offset: appended.offset, verifier: appended.verifier }
            }
            Response::Commit(commit) => {
                let verifier = commit.verifier;
                Outcome::Moved(Transferred { verifier, ..Transferred::default() })
            }
            Response::GetAttrInline(result) => {
                let attributes = result.attributes.file();
                let handle = attributes.file_handle.unwrap_or_else(named);
                let metadata = to_metadata(attributes, handle);
                Outcome::Metadata(Box::new(metadata.ok_or("attributes are missing")?))
            }
            Response::Access(result) => Outcome::Access(result.access),
            Response::ReadLinkInline(link) => Outcome::LinkText(link.text.to_vec()),
            _ => Outcome::Done,
        })
    }

    /// Checks that the server moved no more bytes than were requested.
    fn bounded(&self, length: u32) -> std::result::Result<u32, &'static str> {
        if length <= self.length { Ok(length) } else { Err("more bytes than were asked for") }
    }

    fn checksum(&self, length: u32) -> Checksum {
        let mut sums = DirectChecksum::new();
        if let Some(slice) = &self.slice
            && slice.buffer.memory.contains(slice.offset, length as usize)
        {
            sums.update(&slice.buffer.memory.to_vec(slice.offset, length as usize));
        }
        sums.finish()
    }
}
