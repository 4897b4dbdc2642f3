//! What comes of a chain.
//!
//! Invariant: members before the one that failed were carried out, and their results are
//! there; of those behind it none was.

use std::ops::Range;

use dafs_types::{AccessMask, FileHandle, StateId, Verifier};
use dafs_wire::messages::InlineData;
use dafs_wire::{Checksum, DirectChecksum, Response};

use crate::buffer::Slice;
use crate::error::ClientError;
use crate::metadata::{Metadata, to_metadata};
use crate::operation::Transferred;

/// What a member of a chain has brought.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It was carried out, and there is no more to say.
    Done,
    /// The object that was found or made.
    Found(FileHandle),
    /// A file was opened, and is open unless a later member has closed it.
    Opened {
        /// The file.
        file: FileHandle,
        /// Its open: [`Session::opened`](crate::Session::opened) makes a file of it.
        state: StateId,
    },
    /// Bytes were moved, or made to last.
    Moved(Transferred),
    /// Bytes that came with the answer.
    Bytes {
        /// The bytes.
        bytes: Vec<u8>,
        /// The file ends behind them.
        end_of_file: bool,
    },
    /// Bytes were appended.
    Appended {
        /// Where they are.
        offset: u64,
        /// Changes when data may have been lost.
        verifier: Verifier,
    },
    /// Attributes.
    Metadata(Box<Metadata>),
    /// Rights, of those that were asked for.
    Access(AccessMask),
    /// The text of a symbolic link.
    LinkText(Vec<u8>),
}

impl Outcome {
    /// The object that was found, made or opened.
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

    /// What was moved, of a read or a write.
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

/// Why a chain was not carried out to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("member {} of the chain, {name}: {}", member + 1, error.in_full())]
pub struct ChainFailure {
    /// The member that failed, counted from 0. If the session has ended: the first whose
    /// answer is missing, and whether it and those behind it were carried out is not known.
    pub member: usize,
    /// Its procedure.
    pub name: &'static str,
    /// Why. In the text already, since it is kept to be compared.
    pub error: ClientError,
    /// What those before it have brought. They stay done: a file that one of them has opened
    /// is open.
    pub done: Vec<Outcome>,
}

impl From<ChainFailure> for ClientError {
    fn from(failure: ChainFailure) -> Self {
        failure.error
    }
}

/// What is known of a member when its answer comes.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// What messages call it, in the chain's names.
    pub what: Option<Range<usize>>,
    /// Where bytes were to go.
    pub slice: Option<Slice>,
    /// Bytes asked for.
    pub length: u32,
}

impl Asked {
    /// Reads the results of a member that was carried out. `named` gives the object that its
    /// request names, if it does. `Err` says what is wrong with them.
    pub fn outcome(
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
                    return Err("data that is not in it");
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

    /// No more than was asked for.
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
