//! Batches: many reads and writes in a few messages, reported together (draft 4.2.3).
//!
//! [`Session::batch`] creates a batch, to which reads and writes are added. Each moves one range of
//! a file to or from one slice, or a list of ranges to or from a list of slices. [`Batch::run`]
//! sends all requests immediately and waits. [`Batch::submit`] allows the server to delay the
//! requests ([`Batch::latency`]); their completions arrive over the session's back-control channel,
//! which is opened when a batch first needs it.
//!
//! The requests of a batch are not ordered. Written data is on stable storage when its completion
//! is reported.
//!
//! Invariant: memory that a request names is kept until the request has ended, even if its batch
//! was dropped. Memory that the server may still access when the session ends is never used again.

mod in_flight;
mod plan;
mod replies;
mod resubmit;
pub(crate) mod table;

use std::time::Duration;

use dafs_types::CacheHint;
use dafs_wire::messages::{FileChunk, TransferDirection};
use smallvec::smallvec;

use crate::batch::table::{BatchOperation, ShortList};
use crate::buffer::Slice;
use crate::device::Span;
use crate::error::{ClientError, Result};
use crate::file::File;
use crate::session::Session;

pub use in_flight::Batched;

/// A set of reads and writes that go to the server together, in no particular order.
#[must_use = "a batch does nothing until it is run or submitted"]
pub struct Batch<'s> {
    session: &'s Session,
    requests: Vec<BatchOperation>,
    window: Duration,
    completion_count: Option<u32>,
    refused: Option<ClientError>,
}

impl Session {
    /// Creates an empty batch in this session.
    pub fn batch(&self) -> Batch<'_> {
        Batch {
            session: self,
            requests: Vec::new(),
            window: Duration::ZERO,
            completion_count: None,
            refused: None,
        }
    }
}

impl Batch<'_> {
    /// Adds a read from byte `offset` of the file that fills the slice. Reading fewer bytes at the
    /// end of the file is not an error.
    pub fn read(self, file: &File, offset: u64, slice: impl Into<Span>) -> Self {
        let Span(slice) = slice.into();
        let chunk = FileChunk { offset, length: slice.length, hint: CacheHint::default() };
        self.add(file, TransferDirection::Read, smallvec![chunk], smallvec![slice])
    }

    /// Adds a write of the whole slice at byte `offset` of the file.
    pub fn write(self, file: &File, offset: u64, slice: impl Into<Span>) -> Self {
        let Span(slice) = slice.into();
        let chunk = FileChunk { offset, length: slice.length, hint: CacheHint::default() };
        self.add(file, TransferDirection::Write, smallvec![chunk], smallvec![slice])
    }

    /// Adds a read of several ranges of a file, each an offset and a length in bytes, into several
    /// slices of the same total length. The read is one request with one outcome, and is limited to
    /// 64 ranges and 64 slices. Device memory and buffers ([`Span`]) may be mixed.
    pub fn read_list(
        self,
        file: &File,
        ranges: &[(u64, u32)],
        slices: impl IntoIterator<Item = impl Into<Span>>,
    ) -> Self {
        self.add(file, TransferDirection::Read, chunks_of(ranges), slices_of(slices))
    }

    /// Adds a write of several slices to several ranges of a file, with the limits of
    /// [`Batch::read_list`].
    pub fn write_list(
        self,
        file: &File,
        ranges: &[(u64, u32)],
        slices: impl IntoIterator<Item = impl Into<Span>>,
    ) -> Self {
        self.add(file, TransferDirection::Write, chunks_of(ranges), slices_of(slices))
    }

    /// Sets the time for which the server may delay the requests of a submitted batch. The time is
    /// a hint: a delay lets the server merge adjacent requests and use idle time.
    pub fn latency(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// Sets how many completions of submitted requests the server should report in one message, in
    /// this session from now on. The default is the number of requests in the batch.
    pub fn completions(mut self, count: u32) -> Self {
        self.completion_count = Some(count);
        self
    }

    /// Returns the number of requests added so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns true if no request has been added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Runs all requests and waits for them. Returns the outcomes in the order in which the
    /// requests were added. An outcome is an error or the number of bytes moved, counted from the
    /// start of the request up to the first byte that was not moved.
    ///
    /// # Errors
    /// If nothing was sent: [`ClientError::Foreign`] for a file of another session or a buffer of
    /// another client; a request that does not fit in a message; a session that has ended.
    pub fn run(self) -> Result<Vec<Result<u32>>> {
        let session = self.session;
        Ok(session.run(self.start()?))
    }

    /// Starts the batch as [`Batch::run`] does, without waiting; the returned future yields the
    /// outcomes.
    ///
    /// # Errors
    /// The errors of [`Batch::run`].
    pub fn start(self) -> Result<Batched> {
        self.send(true)
    }

    /// Submits all requests; the server may delay them ([`Batch::latency`]). After a reconnect the
    /// session resubmits the requests whose completions were not reported, with the whole latency
    /// window. If the back-control channel cannot be reopened within its deadline, the requests
    /// fail with an error that names the channel.
    ///
    /// # Errors
    /// The errors of [`Batch::run`], and an error if the server supports no back-control channel.
    pub fn submit(self) -> Result<Batched> {
        self.session.listen()?;
        self.send(false)
    }

    fn add(
        mut self,
        file: &File,
        direction: TransferDirection,
        chunks: ShortList<FileChunk>,
        slices: ShortList<Slice>,
    ) -> Self {
        let is_ours = file.is_of(self.session)
            && slices.iter().all(|slice| slice.buffer.belongs_to(&self.session.shared));
        if !is_ours {
            self.refused.get_or_insert(ClientError::Foreign { what: file.path().to_owned() });
        }
        let (file, state) = (file.handle(), file.state());
        self.requests.push(BatchOperation { file, state, direction, chunks, slices });
        self
    }
}

fn slices_of(slices: impl IntoIterator<Item = impl Into<Span>>) -> ShortList<Slice> {
    slices.into_iter().map(|slice| slice.into().0).collect()
}

fn chunks_of(ranges: &[(u64, u32)]) -> ShortList<FileChunk> {
    let hint = CacheHint::default();
    ranges.iter().map(|&(offset, length)| FileChunk { offset, length, hint }).collect()
}
