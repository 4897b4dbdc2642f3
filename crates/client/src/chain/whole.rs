//! Small files as a whole: opened, read or written, and closed in one round trip.
//!
//! Invariant: nothing stays open, whatever fails.

use std::ffi::OsStr;

use dafs_types::{FileHandle, SetAttributes, ShareAccess, StateId, Status, limits};

use crate::buffer::Slice;
use crate::chain::outcome::{ChainFailure, Outcome};
use crate::error::{ClientError, Result};
use crate::file::OpenOptions;
use crate::operation::Transferred;
use crate::path::label;
use crate::session::Session;

/// A file that is made, written and closed in one round trip.
#[derive(Clone, Debug)]
pub struct NewFile<'n> {
    /// Where it is made.
    pub directory: FileHandle,
    /// Its name there, which nobody must have.
    pub name: &'n OsStr,
    /// What messages call it.
    pub path: &'n OsStr,
    /// The mode it is made with. Let its owner write: after a restart of the server the client
    /// takes the open back by the file's handle, and the server asks the mode whether it may. A
    /// mode without that bit is set once the file is made, by a request of its own.
    pub mode: u32,
    /// What it holds; `None` for nothing.
    pub content: Option<Slice>,
    /// Whether it is on stable storage when it is there.
    pub is_stable: bool,
    /// What is set once it is closed, so that nothing changes its times any more.
    pub attributes: SetAttributes,
}

impl Session {
    /// Makes a file, in one round trip. `None` if the server has written less than it was given:
    /// then the file is there, and is not whole.
    ///
    /// # Errors
    /// EXIST if something has the name; as the server says, with the path;
    /// [`ClientError::DataLost`] if the server lost data before it was stable.
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
        // The object is still there, its open is not.
        chain.draft().state = Some(StateId::ANONYMOUS);
        match chain.setattr(&new.attributes).run_async().await {
            Ok(outcomes) => new.check(&outcomes),
            Err(failure) => {
                let close = 1 + usize::from(new.content.is_some()) + usize::from(new.is_stable);
                // Also if CLOSE itself was refused or put off. Another one of what is closed after
                // all is refused, and nobody waits for it.
                if failure.member <= close
                    && let Some(Outcome::Opened { file, state }) = failure.done.first()
                {
                    // Dropping it closes it.
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

    /// Reads the beginning of a file into a registered buffer, as much as the slice holds: one
    /// round trip, unless the path leads over symbolic links or the server moves less than it
    /// was asked for. Fewer bytes than the slice has only at the end of the file.
    ///
    /// # Errors
    /// As the server says, with the path.
    pub fn read_file_once(&self, path: impl AsRef<OsStr>, slice: Slice) -> Result<Transferred> {
        let path = path.as_ref();
        let options = OpenOptions::read();
        let chain = self.chain().open(path, &options).read_into(0, slice.clone()).close();
        let wanted = slice.length;
        let read = match self.settle(path, chain.run()) {
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

    /// Makes a file of these bytes, or gives one that is there this content: one round trip,
    /// unless the path leads over symbolic links. It is closed, so that local processes on the
    /// server see it; it lasts as any unstable write does.
    ///
    /// # Errors
    /// As the server says, with the path.
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
        let outcomes = self.settle(path, chain.close().run())?;
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

    /// What an open, something with it and a close have come to. `None` if it must be done step
    /// by step. A file that was left open is closed.
    fn settle(
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
                // Dropping it closes it.
                drop(self.opened(*file, *state, path));
                true
            }
            _ => false,
        };
        match status {
            // Links are followed on this side, `..` is understood here, and a path that is too long
            // for one request goes in several.
            Some(Status::Symlink | Status::NotDir | Status::Inval | Status::NameTooLong)
                if !is_open =>
            {
                Ok(None)
            }
            // A server that takes no CLOSE behind a READ (draft 4.3.1): all is done but that.
            Some(Status::ChainForm) if is_open && failure.name == "CLOSE" => Ok(Some(failure.done)),
            _ => Err(failure.error),
        }
    }
}

impl NewFile<'_> {
    /// Whether what was moved is all, and was not lost before it was stable.
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
