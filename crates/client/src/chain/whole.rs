//! Small files as a whole: opened, read or written, and closed in one round trip.
//!
//! Invariant: nothing stays open, whatever fails.

use std::ffi::OsStr;

use dafs_types::{ShareAccess, Status, limits};

use crate::buffer::Slice;
use crate::chain::outcome::{ChainFailure, Outcome};
use crate::error::Result;
use crate::file::OpenOptions;
use crate::operation::Transferred;
use crate::session::Session;

impl Session {
    /// Reads the beginning of a file into a registered buffer, as much as the slice holds: one
    /// round trip, unless the path leads over symbolic links or the server moves less than it
    /// was asked for. Fewer octets than the slice has only at the end of the file.
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

    /// Makes a file of these octets, or gives one that is there this content: one round trip,
    /// unless the path leads over symbolic links. It is closed, so that local processes on the
    /// server see it; it lasts as any unstable write does.
    ///
    /// # Errors
    /// As the server says, with the path.
    pub fn create_file(&self, path: impl AsRef<OsStr>, octets: &[u8], mode: u32) -> Result<()> {
        let path = path.as_ref();
        let access = ShareAccess::Write;
        let options = OpenOptions { access, truncate: true, mode, ..OpenOptions::write() };
        let mut chain = self.chain().open(path, &options);
        let mut offset = 0;
        for piece in octets.chunks(limits::TRANSFER_BYTES_MAX as usize) {
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
            moved.map(|moved| u64::from(moved.length)).sum::<u64>() == octets.len() as u64
        });
        if is_whole {
            return Ok(());
        }
        let file = self.open(path, &options)?;
        file.write_at(octets, 0)?;
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
