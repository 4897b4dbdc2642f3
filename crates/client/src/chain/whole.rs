//! Handles whole small files: opens, reads or writes, and closes each in one round trip.
//!
//! Invariant: no file stays open after a failure.

use std::ffi::OsStr;

use dafs_types::{FileHandle, SetAttributes, ShareAccess, StateId, Status, limits};

use crate::buffer::Slice;
use crate::chain::outcome::{ChainFailure, Outcome};
use crate::error::{ClientError, Result};
use crate::open_options::OpenOptions;
use crate::operation::Transferred;
use crate::path::label;
use crate::session::Session;

/// A file to create, write and close in one round trip.
#[derive(Clone, Debug)]
pub struct NewFile<'n> {
    /// The directory in which the file is created.
    pub directory: FileHandle,
    /// The file's name in that directory; the name must not exist yet.
    pub name: &'n OsStr,
    /// The path of the file, for error messages.
    pub path: &'n OsStr,
    /// The mode bits at creation. They should include write permission for the owner: after a
    /// restart of the server the client reclaims the open by the file's handle, for which the
    /// server checks the mode. To create a file without that permission, set the mode afterwards by
    /// a separate request.
    pub mode: u32,
    /// The file's content; `None` for an empty file.
    pub content: Option<Slice>,
    /// True if the content must be on stable storage when the call returns.
    pub is_stable: bool,
    /// The attributes to set after the file is closed, so that no later operation changes its
    /// times.
    pub attributes: SetAttributes,
}

impl Session {
    /// Creates a file with its content in one round trip. Returns `None` if the server wrote fewer
    /// bytes than were requested: the file then exists but is incomplete.
    ///
    /// # Errors
    /// EXIST if the name is taken; any other error of the server, with the path;
    /// [`ClientError::DataLost`] if the server lost written data before it was on stable storage.
    pub async fn make_file_async(&self, new: &NewFile<'_>) -> Result<Option<FileHandle>> {
        let options = OpenOptions {
            access: ShareAccess::Write,
            create_new: true,
            mode: new.mode,
            ..OpenOptions::read()
        };
        let mut chain = self.chain().at(new.directory).open_in(new.name, new.path, &options);
        if let Some(content) = &new.content {
            chain = chain.write_from(0, content.clone());
        }
        if new.is_stable {
            chain = chain.commit();
        }
        chain = chain.close();
        // The file is still the current object, but its open is closed.
        chain.draft().state = Some(StateId::ANONYMOUS);
        match chain.setattr(&new.attributes).run_async().await {
            Ok(outcomes) => new.check(&outcomes),
            Err(failure) => {
                let close = 1 + usize::from(new.content.is_some()) + usize::from(new.is_stable);
                // This includes a CLOSE that was refused or delayed. If the delayed CLOSE takes
                // effect later, the second CLOSE is refused, and its reply is ignored.
                if failure.member <= close
                    && let Some(Outcome::Opened { file, state }) = failure.done.first()
                {
                    // Dropping the file closes it.
                    drop(self.opened(*file, *state, new.path));
                }
                Err(match failure.error {
                    ClientError::Status { status, .. } => {
                        ClientError::Status { what: label(new.path).into_owned(), status }
                    }
                    other => other,
                })
            }
        }
    }

    /// Reads from the start of a file into a registered buffer, as many bytes as the slice holds.
    /// This takes one round trip, unless the path contains symbolic links or the server moves fewer
    /// bytes than were requested. The result is shorter than the slice only if the file is.
    ///
    /// # Errors
    /// Any error of the server, with the path.
    pub fn read_file_once(&self, path: impl AsRef<OsStr>, slice: Slice) -> Result<Transferred> {
        let path = path.as_ref();
        let options = OpenOptions::read();
        let chain = self.chain().open(path, &options).read_into(0, slice.clone()).close();
        let wanted = slice.length;
        let read = match self.evaluate(path, chain.run()) {
            Ok(Some(outcomes)) => outcomes.get(1).and_then(Outcome::transferred),
            Ok(None) => None,
            Err(error) => return Err(error),
        };
        match read.filter(|read| read.length == wanted || read.end_of_file) {
            Some(read) => Ok(read),
            None => {
                let file = self.open(path, &options)?;
                let read = file.read_into(0, slice)?;
                file.close()?;
                Ok(read)
            }
        }
    }

    /// Creates a file with these bytes, or replaces the content of an existing file. This takes one
    /// round trip, unless the path contains symbolic links. The file is then closed, so that local
    /// processes on the server see the content. The data is as durable as any unstable write.
    ///
    /// # Errors
    /// Any error of the server, with the path.
    pub fn create_file(&self, path: impl AsRef<OsStr>, bytes: &[u8], mode: u32) -> Result<()> {
        let path = path.as_ref();
        let access = ShareAccess::Write;
        let options = OpenOptions { access, truncate: true, mode, ..OpenOptions::write() };
        let mut chain = self.chain().open(path, &options);
        let mut offset = 0;
        for piece in bytes.chunks(limits::TRANSFER_BYTES_MAX as usize) {
            chain = if piece.len() <= chain.inline_bytes_max() {
                chain.write_inline(offset, piece)
            } else {
                let buffer = self.client().allocate(piece.len())?;
                buffer.write(0, piece);
                chain.write_from(offset, buffer.slice(0, piece.len())?)
            };
            offset += piece.len() as u64;
        }
        let outcomes = self.evaluate(path, chain.close().run())?;
        let is_whole = outcomes.is_some_and(|outcomes| {
            let moved = outcomes.iter().filter_map(Outcome::transferred);
            moved.map(|moved| u64::from(moved.length)).sum::<u64>() == bytes.len() as u64
        });
        if is_whole {
            return Ok(());
        }
        let file = self.open(path, &options)?;
        file.write_at(bytes, 0)?;
        file.close()
    }

    /// Evaluates a chain that opens, uses and closes a file. Returns `None` if the caller must use
    /// separate requests instead. If the chain failed with the file open, the file is closed.
    fn evaluate(
        &self,
        path: &OsStr,
        run: std::result::Result<Vec<Outcome>, ChainFailure>,
    ) -> Result<Option<Vec<Outcome>>> {
        let failure = match run {
            Ok(outcomes) => return Ok(Some(outcomes)),
            Err(failure) => failure,
        };
        let status = failure.error.status();
        let is_open = match failure.done.first() {
            Some(Outcome::Opened { file, state }) => {
                // Dropping the file closes it.
                drop(self.opened(*file, *state, path));
                true
            }
            _ => false,
        };
        match status {
            // With separate requests this client follows links, resolves `..`, and divides a path
            // that is too long for one request.
            Some(Status::Symlink | Status::NotDir | Status::Inval | Status::NameTooLong)
                if !is_open =>
            {
                Ok(None)
            }
            // A server that allows no CLOSE after a READ (draft 4.3.1) has executed all other
            // members.
            Some(Status::ChainForm) if is_open && failure.name == "CLOSE" => Ok(Some(failure.done)),
            _ => Err(failure.error),
        }
    }
}

impl NewFile<'_> {
    /// Checks that all bytes were written and that none was lost before it was on stable storage.
    fn check(&self, outcomes: &[Outcome]) -> Result<Option<FileHandle>> {
        let mut verifiers = outcomes.iter().filter_map(Outcome::transferred).map(|t| t.verifier);
        if let (Some(first), Some(second)) = (verifiers.next(), verifiers.next())
            && first != second
        {
            return Err(ClientError::DataLost { what: label(self.path).into_owned() });
        }
        let wanted = self.content.as_ref().map_or(0, |content| content.length);
        let moved = outcomes.get(1).and_then(Outcome::transferred).map_or(0, |moved| moved.length);
        let is_whole = wanted == 0 || moved == wanted;
        Ok(outcomes.first().and_then(Outcome::handle).filter(|_| is_whole))
    }
}
