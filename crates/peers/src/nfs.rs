//! One NFS export mounted with libnfs. Several requests can be in flight; completions carry their
//! tickets.
//!
//! Invariant: a request owns its buffer from its submission to its completion. A file's id stays
//! valid until its close is requested, and never names another file afterwards.

use std::collections::VecDeque;

use dafs_memory::Memory;

use crate::PeerError;
use crate::calls::Mount;

/// A mounted export. Only one thread uses it at a time. Requests make progress only during
/// [`Nfs::wait`] and [`Nfs::poll`].
pub struct Nfs {
    mount: Mount,
    /// Completions that arrived while a synchronous call waited for its own.
    early: VecDeque<Completion>,
}

/// The id of an open file of one [`Nfs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(pub(crate) usize);

/// Identifies the request of a completion. Tickets count up from 0 within one [`Nfs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) u64);

/// A request to the server. Paths begin with `/`, the export's root.
#[derive(Debug)]
pub enum Request<'path> {
    /// Opens a file: [`Reply::Opened`].
    Open {
        /// The path of the file.
        path: &'path str,
        /// The flags of [`crate::flag`].
        flags: i32,
        /// The permissions, if the file is created.
        mode: u32,
    },
    /// Closes a file, whose id becomes invalid immediately: [`Reply::Done`].
    Close(FileId),
    /// Reads until the buffer is full or the file ends: [`Reply::Moved`].
    Read {
        /// The file to read.
        file: FileId,
        /// The offset of the first byte.
        offset: u64,
        /// The buffer to fill; returned with the result.
        buffer: Vec<u8>,
    },
    /// Writes the whole buffer; stable only after a [`Request::Sync`]: [`Reply::Moved`].
    Write {
        /// The file to write.
        file: FileId,
        /// The offset of the first byte.
        offset: u64,
        /// The data; the buffer is returned with the result.
        buffer: Vec<u8>,
    },
    /// Reads until the range is full or the file ends: [`Reply::Moved`].
    ReadTo {
        /// The file to read.
        file: FileId,
        /// The offset of the first byte.
        offset: u64,
        /// The memory to fill.
        to: Range,
    },
    /// Writes the whole range, like [`Request::Write`]: [`Reply::Moved`].
    WriteFrom {
        /// The file to write.
        file: FileId,
        /// The offset of the first byte.
        offset: u64,
        /// The memory with the data.
        from: Range,
    },
    /// Makes written data stable: [`Reply::Done`].
    Sync(FileId),
    /// Sets a file's length: [`Reply::Done`].
    Truncate {
        /// The path of the file.
        path: &'path str,
        /// The new length in bytes.
        length: u64,
    },
    /// Sets an open file's length in bytes: [`Reply::Done`].
    SetLength(FileId, u64),
    /// Removes a file: [`Reply::Done`].
    Unlink(&'path str),
    /// Makes a directory with these permissions: [`Reply::Done`].
    MakeDirectory(&'path str, u32),
    /// Removes an empty directory: [`Reply::Done`].
    RemoveDirectory(&'path str),
    /// Renames the first path to the second: [`Reply::Done`].
    Rename(&'path str, &'path str),
    /// Reads the attributes of a path: [`Reply::Attributes`].
    Stat(&'path str),
}

/// A range of a [`Memory`], which must lie inside it.
#[derive(Clone, Debug)]
pub struct Range {
    /// The memory that contains the range.
    pub memory: Memory,
    /// The index of the range's first byte.
    pub start: usize,
    /// The length in bytes.
    pub length: usize,
}

/// The result of a request.
#[derive(Debug)]
pub enum Reply {
    /// The request succeeded and returns no value.
    Done,
    /// The file that was opened.
    Opened(FileId),
    /// The request moved data.
    Moved {
        /// The number of bytes read or written.
        count: usize,
        /// The request's buffer with its full length; empty if the request used a range.
        buffer: Vec<u8>,
    },
    /// The attributes of a file or directory.
    Attributes(Attributes),
}

/// The attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The length in bytes.
    pub size: u64,
    /// The type and permission bits, as in `stat`.
    pub mode: u32,
    /// The time of the last change of the content, in seconds since 1970.
    pub modified: u64,
}

/// A request that has ended.
#[derive(Debug)]
pub struct Completion {
    /// The ticket of the request.
    pub ticket: Ticket,
    /// The result. A read or write that fails does not return its buffer.
    pub result: Result<Reply, PeerError>,
}

impl Nfs {
    pub(crate) fn new(mount: Mount) -> Self {
        Self { mount, early: VecDeque::new() }
    }

    /// Mounts an export of another server on this machine, which serves NFS version 3 and MOUNT at
    /// one port of the loopback interface.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn mount_local(export: &str, port: u16) -> Result<Self, PeerError> {
        Ok(Self::new(Mount::new(c"127.0.0.1", export, port, port)?))
    }

    /// Returns the maximum number of bytes in one read message; libnfs splits longer reads.
    #[must_use]
    pub fn read_bytes_max(&self) -> u64 {
        self.mount.read_bytes_max()
    }

    /// Returns the maximum number of bytes in one write message; libnfs splits longer writes.
    #[must_use]
    pub fn write_bytes_max(&self) -> u64 {
        self.mount.write_bytes_max()
    }

    /// Sends a request; [`Nfs::wait`] returns its completion.
    ///
    /// # Errors
    /// If the request cannot be sent. The request then has no completion.
    pub fn submit(&mut self, request: Request<'_>) -> Result<Ticket, PeerError> {
        self.mount.submit(request)
    }

    /// Returns the number of requests in flight.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.mount.under_way() + self.early.len()
    }

    /// Waits for the next completion. Requests may complete in any order.
    ///
    /// # Errors
    /// If no request is in flight, or the connection is lost.
    pub fn wait(&mut self) -> Result<Completion, PeerError> {
        if let Some(completion) = self.early.pop_front() {
            return Ok(completion);
        }
        self.mount.wait()
    }

    /// Returns a completion if there is one, without waiting.
    ///
    /// # Errors
    /// If the connection is lost.
    pub fn poll(&mut self) -> Result<Option<Completion>, PeerError> {
        if let Some(completion) = self.early.pop_front() {
            return Ok(Some(completion));
        }
        self.mount.poll()
    }

    /// Opens a file with `flags` of [`crate::flag`]; `mode` sets the permissions if it is created.
    ///
    /// # Errors
    /// An error of the server, or a lost connection.
    pub fn open(&mut self, path: &str, flags: i32, mode: u32) -> Result<FileId, PeerError> {
        match self.call(Request::Open { path, flags, mode })? {
            Reply::Opened(file) => Ok(file),
            other => unreachable!("an open returned {other:?}"),
        }
    }

    /// Closes a file; its id becomes invalid.
    ///
    /// # Errors
    /// The errors of [`Nfs::open`].
    pub fn close(&mut self, file: FileId) -> Result<(), PeerError> {
        self.call(Request::Close(file)).map(drop)
    }

    /// Reads and returns the bytes; fewer than requested only at the end of the file.
    ///
    /// # Errors
    /// The errors of [`Nfs::open`].
    pub fn pread(
        &mut self,
        file: FileId,
        offset: u64,
        buffer: Vec<u8>,
    ) -> Result<(usize, Vec<u8>), PeerError> {
        Ok(moved(self.call(Request::Read { file, offset, buffer })?))
    }

    /// Writes the whole buffer and returns it.
    ///
    /// # Errors
    /// The errors of [`Nfs::open`].
    pub fn pwrite(
        &mut self,
        file: FileId,
        offset: u64,
        buffer: Vec<u8>,
    ) -> Result<(usize, Vec<u8>), PeerError> {
        Ok(moved(self.call(Request::Write { file, offset, buffer })?))
    }

    /// Makes the data written to a file stable.
    ///
    /// # Errors
    /// The errors of [`Nfs::open`].
    pub fn fsync(&mut self, file: FileId) -> Result<(), PeerError> {
        self.call(Request::Sync(file)).map(drop)
    }

    /// Sets a file's length in bytes.
    ///
    /// # Errors
    /// The errors of [`Nfs::open`].
    pub fn truncate(&mut self, path: &str, length: u64) -> Result<(), PeerError> {
        self.call(Request::Truncate { path, length }).map(drop)
    }

    /// Removes a file by its path.
    ///
    /// # Errors
    /// The errors of [`Nfs::open`].
    pub fn unlink(&mut self, path: &str) -> Result<(), PeerError> {
        self.call(Request::Unlink(path)).map(drop)
    }

    /// Makes a directory with these permissions.
    ///
    /// # Errors
    /// The errors of [`Nfs::open`].
    pub fn mkdir(&mut self, path: &str, mode: u32) -> Result<(), PeerError> {
        self.call(Request::MakeDirectory(path, mode)).map(drop)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The errors of [`Nfs::open`].
    pub fn rmdir(&mut self, path: &str) -> Result<(), PeerError> {
        self.call(Request::RemoveDirectory(path)).map(drop)
    }

    /// Returns the attributes of a file or directory.
    ///
    /// # Errors
    /// The errors of [`Nfs::open`].
    pub fn stat(&mut self, path: &str) -> Result<Attributes, PeerError> {
        match self.call(Request::Stat(path))? {
            Reply::Attributes(attributes) => Ok(attributes),
            other => unreachable!("a stat returned {other:?}"),
        }
    }

    /// Sends one request and waits for its result; other completions are kept for [`Nfs::wait`].
    ///
    /// # Errors
    /// The errors of [`Nfs::open`].
    pub fn call(&mut self, request: Request<'_>) -> Result<Reply, PeerError> {
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

fn moved(answer: Reply) -> (usize, Vec<u8>) {
    match answer {
        Reply::Moved { count, buffer } => (count, buffer),
        other => unreachable!("a read or write returned {other:?}"),
    }
}
