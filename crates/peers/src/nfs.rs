//! One mounted NFS export, by libnfs: requests go out together and are told by their tickets.
//!
//! Invariant: a request's buffer belongs to it from its submission to its completion; a file's
//! id stays valid until its close is asked for, and then never again names another file.

use std::collections::VecDeque;

use dafs_memory::Memory;

use crate::PeerError;
use crate::calls::Mount;

/// A mounted export. One thread at a time uses it, and makes its progress in [`Nfs::wait`].
pub struct Nfs {
    mount: Mount,
    /// Completions that a synchronous call met while it waited for its own.
    early: VecDeque<Completion>,
}

/// An open file of one [`Nfs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(pub(crate) usize);

/// Which request a completion is of: they count up from 0 within one [`Nfs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) u64);

/// What can be asked. Paths begin with `/`, the export's root.
#[derive(Debug)]
pub enum Request<'path> {
    /// Opens a file: [`Answer::Opened`].
    Open {
        /// Its path.
        path: &'path str,
        /// Of [`crate::flag`].
        flags: i32,
        /// Permissions if it is made.
        mode: u32,
    },
    /// Closes a file, whose id is invalid at once: [`Answer::Done`].
    Close(FileId),
    /// Reads as much as the buffer holds, or to the file's end: [`Answer::Moved`].
    Read {
        /// From which file.
        file: FileId,
        /// From which byte on.
        offset: u64,
        /// Into it; given back with the answer.
        buffer: Vec<u8>,
    },
    /// Writes the whole buffer; stable after a [`Request::Sync`] alone: [`Answer::Moved`].
    Write {
        /// To which file.
        file: FileId,
        /// From which byte on.
        offset: u64,
        /// From it; given back with the answer.
        buffer: Vec<u8>,
    },
    /// Reads as much as the range holds, or to the file's end: [`Answer::Moved`].
    ReadTo {
        /// From which file.
        file: FileId,
        /// From which byte on.
        offset: u64,
        /// Into it.
        to: Range,
    },
    /// Writes the whole range, as [`Request::Write`] does: [`Answer::Moved`].
    WriteFrom {
        /// To which file.
        file: FileId,
        /// From which byte on.
        offset: u64,
        /// From it.
        from: Range,
    },
    /// Makes what was written stable: [`Answer::Done`].
    Sync(FileId),
    /// Sets a file's length in bytes: [`Answer::Done`].
    Truncate {
        /// Its path.
        path: &'path str,
        /// The new length in bytes.
        length: u64,
    },
    /// Sets an open file's length in bytes: [`Answer::Done`].
    SetLength(FileId, u64),
    /// Removes a file: [`Answer::Done`].
    Unlink(&'path str),
    /// Makes a directory with these permissions: [`Answer::Done`].
    MakeDirectory(&'path str, u32),
    /// Removes an empty directory: [`Answer::Done`].
    RemoveDirectory(&'path str),
    /// Renames: [`Answer::Done`].
    Rename(&'path str, &'path str),
    /// Attributes: [`Answer::Attributes`].
    Stat(&'path str),
}

/// A range of a memory, which must be inside.
#[derive(Clone, Debug)]
pub struct Range {
    /// Which memory.
    pub memory: Memory,
    /// Its first byte.
    pub start: usize,
    /// Bytes.
    pub length: usize,
}

/// What a request came to.
#[derive(Debug)]
pub enum Answer {
    /// Nothing more to say.
    Done,
    /// An open file.
    Opened(FileId),
    /// So many bytes, and the request's buffer.
    Moved {
        /// Bytes read or written.
        count: usize,
        /// As long as it was given; empty if a range was.
        buffer: Vec<u8>,
    },
    /// Attributes of a file or directory.
    Attributes(Attributes),
}

/// What is known of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Length in bytes.
    pub size: u64,
    /// Kind and permissions, as in `stat`.
    pub mode: u32,
    /// Seconds since 1970 when its content changed last.
    pub modified: u64,
}

/// A request that has ended.
#[derive(Debug)]
pub struct Completion {
    /// Which.
    pub ticket: Ticket,
    /// How. A failed read or write keeps its buffer: it is lost.
    pub result: Result<Answer, PeerError>,
}

impl Nfs {
    pub(crate) fn new(mount: Mount) -> Self {
        Self { mount, early: VecDeque::new() }
    }

    /// The most bytes that one message of a read carries; longer ones are cut by libnfs.
    #[must_use]
    pub fn read_bytes_max(&self) -> u64 {
        self.mount.read_bytes_max()
    }

    /// The most bytes that one message of a write carries; longer ones are cut by libnfs.
    #[must_use]
    pub fn write_bytes_max(&self) -> u64 {
        self.mount.write_bytes_max()
    }

    /// Sends a request; [`Nfs::wait`] tells how it ended.
    ///
    /// # Errors
    /// If it cannot even be sent; then there is no completion.
    pub fn submit(&mut self, request: Request<'_>) -> Result<Ticket, PeerError> {
        self.mount.submit(request)
    }

    /// Requests without completion.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.mount.under_way() + self.early.len()
    }

    /// The next completion, in whichever order they come.
    ///
    /// # Errors
    /// If nothing is under way, or the connection is lost.
    pub fn wait(&mut self) -> Result<Completion, PeerError> {
        if let Some(completion) = self.early.pop_front() {
            return Ok(completion);
        }
        self.mount.wait()
    }

    /// A completion if there is one without waiting.
    ///
    /// # Errors
    /// If the connection is lost.
    pub fn poll(&mut self) -> Result<Option<Completion>, PeerError> {
        if let Some(completion) = self.early.pop_front() {
            return Ok(Some(completion));
        }
        self.mount.poll()
    }

    /// Opens a file: `flags` of [`crate::flag`], `mode` if it is made.
    ///
    /// # Errors
    /// What the server says, or a lost connection.
    pub fn open(&mut self, path: &str, flags: i32, mode: u32) -> Result<FileId, PeerError> {
        match self.call(Request::Open { path, flags, mode })? {
            Answer::Opened(file) => Ok(file),
            other => unreachable!("an open is answered by a file, not by {other:?}"),
        }
    }

    /// Closes a file.
    ///
    /// # Errors
    /// As [`Nfs::open`].
    pub fn close(&mut self, file: FileId) -> Result<(), PeerError> {
        self.call(Request::Close(file)).map(drop)
    }

    /// Reads; returns the bytes read, fewer than asked for at the file's end alone.
    ///
    /// # Errors
    /// As [`Nfs::open`].
    pub fn pread(
        &mut self,
        file: FileId,
        offset: u64,
        buffer: Vec<u8>,
    ) -> Result<(usize, Vec<u8>), PeerError> {
        Ok(moved(self.call(Request::Read { file, offset, buffer })?))
    }

    /// Writes the whole buffer and gives it back.
    ///
    /// # Errors
    /// As [`Nfs::open`].
    pub fn pwrite(
        &mut self,
        file: FileId,
        offset: u64,
        buffer: Vec<u8>,
    ) -> Result<(usize, Vec<u8>), PeerError> {
        Ok(moved(self.call(Request::Write { file, offset, buffer })?))
    }

    /// Makes what was written to a file stable.
    ///
    /// # Errors
    /// As [`Nfs::open`].
    pub fn fsync(&mut self, file: FileId) -> Result<(), PeerError> {
        self.call(Request::Sync(file)).map(drop)
    }

    /// Sets a file's length in bytes.
    ///
    /// # Errors
    /// As [`Nfs::open`].
    pub fn truncate(&mut self, path: &str, length: u64) -> Result<(), PeerError> {
        self.call(Request::Truncate { path, length }).map(drop)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// As [`Nfs::open`].
    pub fn unlink(&mut self, path: &str) -> Result<(), PeerError> {
        self.call(Request::Unlink(path)).map(drop)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As [`Nfs::open`].
    pub fn mkdir(&mut self, path: &str, mode: u32) -> Result<(), PeerError> {
        self.call(Request::MakeDirectory(path, mode)).map(drop)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As [`Nfs::open`].
    pub fn rmdir(&mut self, path: &str) -> Result<(), PeerError> {
        self.call(Request::RemoveDirectory(path)).map(drop)
    }

    /// Attributes of a file or directory.
    ///
    /// # Errors
    /// As [`Nfs::open`].
    pub fn stat(&mut self, path: &str) -> Result<Attributes, PeerError> {
        match self.call(Request::Stat(path))? {
            Answer::Attributes(attributes) => Ok(attributes),
            other => unreachable!("a stat is answered by attributes, not by {other:?}"),
        }
    }

    /// One request and its answer; what ends meanwhile is kept for [`Nfs::wait`].
    ///
    /// # Errors
    /// As [`Nfs::open`].
    pub fn call(&mut self, request: Request<'_>) -> Result<Answer, PeerError> {
        let ticket = self.submit(request)?;
        loop {
            let completion = self.mount.wait()?;
            if completion.ticket == ticket {
                return completion.result;
            }
            self.early.push_back(completion);
        }
    }
}

fn moved(answer: Answer) -> (usize, Vec<u8>) {
    match answer {
        Answer::Moved { count, buffer } => (count, buffer),
        other => unreachable!("a read or write is answered by a count, not by {other:?}"),
    }
}
