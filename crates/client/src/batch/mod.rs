//! Batches: many reads and writes in a few messages, reported together (draft 4.2.3).
//!
//! [`Session::batch`] begins one; reads and writes are added, each of one piece or of lists that
//! are cut differently in the file and in memory; [`Batch::run`] asks for all of it at once and
//! waits, [`Batch::submit`] gives the server time ([`Batch::latency`]) and hears of the ends over
//! the session's back-control channel, which is opened by the first batch that needs it.
//!
//! There is no order between the requests of a batch. What was written is stable when it is
//! reported.
//!
//! Invariant: memory that a request names is held until the request has ended, whoever still
//! waits for it; what may be under way when its session ends is never used again.

mod again;
mod answers;
mod plan;
pub(crate) mod table;
mod under_way;

use std::time::Duration;

use dafs_types::CacheHint;
use dafs_wire::messages::{FileChunk, TransferDirection};
use smallvec::smallvec;

use crate::batch::table::{Asked, Few};
use crate::buffer::Slice;
use crate::device::Span;
use crate::error::{ClientError, Result};
use crate::file::File;
use crate::session::Session;

pub use under_way::Batched;

/// Requests that go to the server together.
#[must_use = "a batch does nothing until it is run or submitted"]
pub struct Batch<'s> {
    session: &'s Session,
    requests: Vec<Asked>,
    window: Duration,
    completion_count: Option<u32>,
    refused: Option<ClientError>,
}

impl Session {
    /// An empty batch.
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
    /// Adds a read of the slice's length at `offset`. Fewer bytes than that are no error.
    pub fn read(self, file: &File, offset: u64, slice: impl Into<Span>) -> Self {
        let Span(slice) = slice.into();
        let chunk = FileChunk { offset, length: slice.length, hint: CacheHint::default() };
        self.add(file, TransferDirection::Read, smallvec![chunk], smallvec![slice])
    }

    /// Adds a write of the slice at `offset`.
    pub fn write(self, file: &File, offset: u64, slice: impl Into<Span>) -> Self {
        let Span(slice) = slice.into();
        let chunk = FileChunk { offset, length: slice.length, hint: CacheHint::default() };
        self.add(file, TransferDirection::Write, smallvec![chunk], smallvec![slice])
    }

    /// Adds a read of several ranges (offset and length) of a file into several slices, which
    /// are as long together; it is one request, with one outcome. At most 64 of each.
    /// Device memory and buffers ([`Span`]) may be mixed.
    pub fn read_list(
        self,
        file: &File,
        ranges: &[(u64, u32)],
        slices: impl IntoIterator<Item = impl Into<Span>>,
    ) -> Self {
        self.add(file, TransferDirection::Read, chunks_of(ranges), slices_of(slices))
    }

    /// Adds a write of several slices to several ranges of a file, as [`Batch::read_list`].
    pub fn write_list(
        self,
        file: &File,
        ranges: &[(u64, u32)],
        slices: impl IntoIterator<Item = impl Into<Span>>,
    ) -> Self {
        self.add(file, TransferDirection::Write, chunks_of(ranges), slices_of(slices))
    }

    /// How long the server may take its time with a submitted batch: a hint by which it can
    /// carry out what lies together and while it has nothing better to do.
    pub fn latency(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// How many ends of submitted requests the server should tell at once, in this session from
    /// now on; by default as many as the batch has.
    pub fn completions(mut self, count: u32) -> Self {
        self.completion_count = Some(count);
        self
    }

    /// Requests so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Has everything done and waits for it. Gives how each request ended, in their order: the
    /// bytes moved from its start up to the first that was not, or why it failed.
    ///
    /// # Errors
    /// If nothing was asked for: [`ClientError::Foreign`] for a file of another session or a
    /// buffer of another client, a request that fits no message, a session that has ended.
    pub fn run(self) -> Result<Vec<Result<u32>>> {
        let session = self.session;
        Ok(session.run(self.start()?))
    }

    /// As [`Batch::run`], while the thread does other things.
    ///
    /// # Errors
    /// As [`Batch::run`].
    pub fn start(self) -> Result<Batched> {
        self.send(true)
    }

    /// Submits everything, to be done when it suits the server. A session that comes back by
    /// itself submits what was not told once more, with its window from the start; requests fail
    /// with an error that names the back-control channel if there is none again in time.
    ///
    /// # Errors
    /// As [`Batch::run`]; and if the server takes no back-control channel.
    pub fn submit(self) -> Result<Batched> {
        self.session.listen()?;
        self.send(false)
    }

    fn add(
        mut self,
        file: &File,
        direction: TransferDirection,
        chunks: Few<FileChunk>,
        slices: Few<Slice>,
    ) -> Self {
        let is_ours = file.is_of(self.session)
            && slices.iter().all(|slice| slice.buffer.belongs_to(&self.session.shared));
        if !is_ours {
            self.refused.get_or_insert(ClientError::Foreign { what: file.path().to_owned() });
        }
        let (file, state) = (file.handle(), file.state());
        self.requests.push(Asked { file, state, direction, chunks, slices });
        self
    }
}

fn slices_of(slices: impl IntoIterator<Item = impl Into<Span>>) -> Few<Slice> {
    slices.into_iter().map(|slice| slice.into().0).collect()
}

fn chunks_of(ranges: &[(u64, u32)]) -> Few<FileChunk> {
    let hint = CacheHint::default();
    ranges.iter().map(|&(offset, length)| FileChunk { offset, length, hint }).collect()
}
