//! Operations on ranges of open files: reserving, freeing and sharing storage, copies within the
//! server, and searches for holes.
//!
//! Invariant: these requests are extensions of DAFS. A server that does not support them replies
//! NOTSUPP. The caller must then use other requests.

use dafs_types::Status;
use dafs_wire::messages::{CopyRange, FileRange, Seek};
use dafs_wire::{Request, Response};

use crate::error::Result;
use crate::file::File;

/// A range of a source file, and the offset in the target file to which it is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopySpan {
    /// The offset in the source file of the first byte.
    pub source_offset: u64,
    /// The offset in the target file of the first byte.
    pub offset: u64,
    /// The number of bytes; 0 means up to the end of the source.
    pub length: u64,
}

impl File {
    /// Reserves storage for a range of the file, so that later writes to the range do not fail for
    /// lack of space. If the range ends after the end of the file, the file becomes longer.
    ///
    /// # Errors
    /// NOTSUPP if the server or its file system does not support this; any other error of the
    /// server.
    pub fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.session().run(self.allocate_async(offset, length))
    }

    /// Reserves storage as [`File::allocate`] does, as a future. The request is sent immediately.
    pub fn allocate_async(
        &self,
        offset: u64,
        length: u64,
    ) -> impl Future<Output = Result<()>> + '_ {
        self.ask_done(&Request::Allocate(self.range(offset, length)))
    }

    /// Frees the storage of a range of the file, which then reads as zeros. The size stays.
    ///
    /// # Errors
    /// See [`File::allocate`].
    pub fn deallocate(&self, offset: u64, length: u64) -> Result<()> {
        self.session().run(self.deallocate_async(offset, length))
    }

    /// Frees storage as [`File::deallocate`] does, as a future. The request is sent immediately.
    pub fn deallocate_async(
        &self,
        offset: u64,
        length: u64,
    ) -> impl Future<Output = Result<()>> + '_ {
        self.ask_done(&Request::Deallocate(self.range(offset, length)))
    }

    /// Returns the offset of the first data at or after `offset`. `None` if only a hole follows, or
    /// if `offset` is not before the end of the file.
    ///
    /// # Errors
    /// NOTSUPP if the server does not support the request; any other error of the server.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        self.session().run(self.seek_async(offset, false))
    }

    /// Returns the offset of the first hole at or after `offset`. The end of the file counts as a
    /// hole. `None` if `offset` is not before the end of the file.
    ///
    /// # Errors
    /// See [`File::seek_data`].
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        self.session().run(self.seek_async(offset, true))
    }

    /// Searches for a hole if `hole` is true, otherwise for data, as [`File::seek_hole`] and
    /// [`File::seek_data`] do, as a future. The request is sent immediately.
    pub fn seek_async(
        &self,
        offset: u64,
        hole: bool,
    ) -> impl Future<Output = Result<Option<u64>>> + '_ {
        let (file, state) = (self.handle(), self.state());
        let request = Request::Seek(Seek { file, state, offset, hole });
        self.session().ask(&request, |status, response| match (status, response) {
            (Status::Ok, Response::Seek(found)) => Ok(Some(found.offset)),
            (Status::Nxio, _) => Ok(None),
            _ => Err(self.refused(status)),
        })
    }

    /// Makes a range of this file share the storage of a range of `source`.
    ///
    /// # Errors
    /// NOTSUPP if the server or its file system does not support this; XDEV if the files are on
    /// different file systems; INVAL if the range does not consist of whole blocks or exceeds the
    /// source; any other error of the server.
    pub fn clone_range(&self, source: &File, span: CopySpan) -> Result<()> {
        self.session().run(self.clone_range_async(source, span))
    }

    /// Shares storage as [`File::clone_range`] does, as a future. The request is sent immediately.
    pub fn clone_range_async<'f>(
        &'f self,
        source: &File,
        span: CopySpan,
    ) -> impl Future<Output = Result<()>> + use<'f> {
        self.ask_done(&Request::CloneRange(self.copy(source, span)))
    }

    /// Copies a range of `source` to this file within the server. Returns the number of bytes
    /// copied, which may be less than requested. A commit makes the copied data stable.
    ///
    /// # Errors
    /// NOTSUPP if the server does not support the request; INVAL if the range exceeds the source,
    /// or if source and target ranges overlap in one file; any other error of the server.
    pub fn copy_range(&self, source: &File, span: CopySpan) -> Result<u64> {
        self.session().run(self.copy_range_async(source, span))
    }

    /// Copies a range as [`File::copy_range`] does, as a future. The request is sent immediately.
    pub fn copy_range_async<'f>(
        &'f self,
        source: &File,
        span: CopySpan,
    ) -> impl Future<Output = Result<u64>> + use<'f> {
        let request = Request::CopyRange(self.copy(source, span));
        self.session().ask(&request, |status, response| match (status, response) {
            (Status::Ok, Response::CopyRange(copied)) => {
                self.note_unstable(copied.verifier)?;
                Ok(copied.length)
            }
            _ => Err(self.refused(status)),
        })
    }

    fn range(&self, offset: u64, length: u64) -> FileRange {
        FileRange { file: self.handle(), state: self.state(), offset, length }
    }

    fn copy(&self, source: &File, span: CopySpan) -> CopyRange {
        CopyRange {
            source: source.handle(),
            file: self.handle(),
            source_state: source.state(),
            state: self.state(),
            source_offset: span.source_offset,
            offset: span.offset,
            length: span.length,
        }
    }

    fn ask_done<'f>(&'f self, request: &Request<'_>) -> impl Future<Output = Result<()>> + use<'f> {
        self.session().ask(request, |status, _| match status {
            Status::Ok => Ok(()),
            status => Err(self.refused(status)),
        })
    }
}
