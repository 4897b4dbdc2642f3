//! Written data that a server restart may still lose.
//!
//! Invariants: data that was reported to the program as written is held here until it is on stable
//! storage or its file is closed, up to a limit for the process. When the server's write verifier
//! changes, the held data is written again in its original order. If data cannot be written again,
//! or was not held, the next write, sync or close reports its loss.
//!
//! Another client may read the data and then overwrite it. If the data were written again later,
//! the other client's write would be undone. Therefore held data is dropped at a fork and when a
//! lock is released. A loss of dropped data is reported.

use std::collections::HashMap;
use std::rc::Rc;

use dafs_client::{ClientError, File, Status};
use dafs_types::{FileHandle, Verifier};

use crate::errors::{Failure, Outcome, fail};
use crate::state::{Description, State};
use crate::waiting::wait_result;

/// Identifies a file: the index of its mount, and its handle.
pub(crate) type Key = (usize, FileHandle);

/// The written data of all files that a server restart may lose.
#[derive(Default)]
pub(crate) struct AllUnstable {
    files: HashMap<Key, Unstable>,
    /// The number of held bytes.
    held: usize,
    /// The number of server restarts after which data was already written again.
    restarts: u64,
}

/// The written data of one file that a server restart may lose.
#[derive(Default)]
struct Unstable {
    pieces: Vec<Piece>,
    /// The bytes of all pieces, one piece after the other.
    bytes: Vec<u8>,
    verifier: Option<Verifier>,
    /// True if data that may be lost is no longer held.
    is_incomplete: bool,
    /// True if a server has restarted and does not have the held data.
    needs_rewrite: bool,
    /// The error of a request that failed since the latest sync. The error may mean that earlier
    /// data was lost.
    refused: Option<i32>,
    /// The error of a loss that must still be reported to the program.
    lost: Option<i32>,
}

/// A range of written bytes.
#[derive(Clone, Copy)]
struct Piece {
    offset: u64,
    start: usize,
    length: usize,
}

impl Unstable {
    /// Adds a piece after the held pieces.
    fn push(&mut self, offset: u64, bytes: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        match self.pieces.last_mut() {
            Some(last)
                if last.offset + last.length as u64 == offset
                    && last.start + last.length == start =>
            {
                last.length += bytes.len();
            }
            _ => self.pieces.push(Piece { offset, start, length: bytes.len() }),
        }
    }

    /// Notes the write verifier of a reply. Returns false if it differs from the previous one, so
    /// that earlier data must be written again.
    fn note(&mut self, verifier: Verifier) -> bool {
        self.verifier.replace(verifier).is_none_or(|before| before == verifier)
    }

    /// Drops all held data of the file. Returns the number of bytes dropped.
    fn drop_held(&mut self) -> usize {
        self.pieces.clear();
        std::mem::take(&mut self.bytes).len()
    }
}

impl AllUnstable {
    /// Holds written data.
    fn hold(&mut self, key: Key, offset: u64, bytes: &[u8]) {
        let has_room = self.held + bytes.len() <= HELD_BYTES_MAX;
        let of = self.files.entry(key).or_default();
        if of.is_incomplete {
            return;
        }
        if !has_room || of.pieces.len() >= PIECES_MAX {
            of.is_incomplete = true;
            self.held -= of.drop_held();
            return;
        }
        of.push(offset, bytes);
        self.held += bytes.len();
    }

    fn note(&mut self, key: Key, verifier: Verifier) -> bool {
        self.files.entry(key).or_default().note(verifier)
    }

    /// Notes the error of a failed request for a file's data. The next sync shows whether data was
    /// lost.
    fn note_failure(&mut self, key: Key, failure: &Failure) {
        if let Failure::Errno(errno) = failure
            && may_report_loss(*errno)
        {
            self.files.entry(key).or_default().refused = Some(*errno);
        }
    }

    /// Records a loss of a file's data, to be reported once. An error that came from the server is
    /// not replaced.
    pub(crate) fn record_loss(&mut self, key: Key, errno: i32) {
        let of = self.files.entry(key).or_default();
        self.held -= of.drop_held();
        let before = of.lost.filter(|before| *before != libc::EIO);
        of.lost = Some(before.unwrap_or(errno));
    }

    /// Keeps the error of a call that returns a short count, so that the next call reports the
    /// error. Keeps only errors that the server reports once.
    pub(crate) fn defer_error(&mut self, key: Key, failure: &Failure) {
        if let Failure::Errno(errno) = failure
            && may_report_loss(*errno)
        {
            self.files.entry(key).or_default().lost = Some(*errno);
        }
    }

    /// Fails with the error of a recorded loss of the file's data.
    pub(crate) fn loss(&self, key: Key) -> Outcome<()> {
        let lost = self.files.get(&key).and_then(|of| of.lost);
        lost.map_or(Ok(()), fail)
    }

    /// Fails with the error of a recorded loss of the file's data, and clears the record.
    pub(crate) fn take_loss(&mut self, key: Key) -> Outcome<()> {
        let told = self.loss(key);
        if let Some(of) = self.files.get_mut(&key) {
            of.lost = None;
        }
        told
    }

    /// Forgets a file's data after it was flushed or its loss was reported.
    fn forget_flushed(&mut self, key: Key) {
        if let Some(of) = self.files.get_mut(&key) {
            self.held -= of.drop_held();
            (of.is_incomplete, of.refused) = (false, None);
        }
    }

    /// Forgets a file that this process no longer has open.
    fn forget(&mut self, key: Key) {
        if let Some(mut of) = self.files.remove(&key) {
            self.held -= of.drop_held();
        }
    }

    /// Drops the held data of a file, because other clients may overwrite it from now on.
    pub(crate) fn release(&mut self, key: Key) {
        if let Some(of) = self.files.get_mut(&key)
            && !of.pieces.is_empty()
        {
            of.is_incomplete = true;
            self.held -= of.drop_held();
        }
    }

    /// Drops the held data of all files.
    pub(crate) fn release_all(&mut self) {
        let keys: Vec<Key> = self.files.keys().copied().collect();
        keys.into_iter().for_each(|key| self.release(key));
    }

    /// Drops held data beyond the new end of a truncated file.
    pub(crate) fn truncate(&mut self, key: Key, size: u64) {
        let Some(of) = self.files.get_mut(&key) else { return };
        for piece in &mut of.pieces {
            let left = usize::try_from(size.saturating_sub(piece.offset)).unwrap_or(usize::MAX);
            piece.length = piece.length.min(left);
        }
    }

    /// Notes that a server does not have the held data of a file.
    pub(crate) fn note_needs_rewrite(&mut self, key: Key) {
        self.files.entry(key).or_default().needs_rewrite = true;
    }

    /// True if a server may not have the held data of a file.
    fn needs_rewrite(&self, key: Key) -> bool {
        self.files.get(&key).is_some_and(|of| of.needs_rewrite)
    }

    /// True if a successful close does not prove that all data of the file was written.
    fn has_refused_request(&self, key: Key) -> bool {
        self.files.get(&key).is_some_and(|of| of.refused.is_some())
    }

    /// True if any data of the file may be lost.
    fn has_unstable_data(&self, key: Key) -> bool {
        self.files.get(&key).is_some_and(|of| !of.pieces.is_empty() || of.is_incomplete)
    }
}

impl State {
    /// Holds written data. If the server has lost earlier data, writes all of it again.
    pub(crate) fn note_written(
        &mut self,
        key: Key,
        file: &File,
        (offset, bytes): (u64, &[u8]),
        verifiers: [Verifier; 2],
    ) {
        self.unstable.hold(key, offset, bytes);
        let are_same = verifiers.map(|verifier| self.unstable.note(key, verifier));
        if are_same.contains(&false) {
            self.rewrite(key, file);
        }
    }

    /// Notes a failed write.
    pub(crate) fn note_refused(&mut self, of: &Description, failure: &Failure) {
        self.unstable.note_failure(of.key(), failure);
    }

    /// Flushes all data written to a file. Writes lost data again first.
    pub(crate) fn commit(&mut self, of: &Description) -> Outcome<()> {
        let (key, file) = (of.key(), self.file(of)?);
        for _ in 0..COMMITS_MAX {
            let committed = wait_result(&file.session().client(), file.commit_async());
            let committed = match committed {
                Ok(committed) => committed,
                Err(failure) => {
                    if matches!(failure, Failure::Errno(errno) if may_report_loss(errno)) {
                        // The server's error takes precedence over what is known here.
                        self.unstable.forget_flushed(key);
                        let _ = self.unstable.take_loss(key);
                    }
                    return Err(failure);
                }
            };
            if self.unstable.note(key, committed.verifier) {
                self.unstable.forget_flushed(key);
                return self.unstable.take_loss(key);
            }
            self.rewrite(key, &file);
            self.unstable.take_loss(key)?;
        }
        fail(libc::EIO)
    }

    /// Writes held data of a file again. Data that cannot be written is reported as lost.
    fn rewrite(&mut self, key: Key, file: &File) {
        let mut has_failed = false;
        'anew: for _ in 0..ATTEMPTS_MAX {
            let Some(of) = self.unstable.files.get_mut(&key) else { return };
            (of.verifier, of.needs_rewrite) = (None, false);
            if std::mem::take(&mut of.is_incomplete) {
                let known = of.refused;
                let why = known.or_else(|| commit_error(file)).unwrap_or(libc::EIO);
                return self.unstable.record_loss(key, why);
            }
            let mut number = 0;
            while let Some((offset, bytes)) = self.piece(key, number) {
                number += 1;
                match self.write_held(file, offset, &bytes) {
                    Ok(verifiers) => {
                        if verifiers.map(|it| self.unstable.note(key, it)).contains(&false) {
                            continue 'anew;
                        }
                    }
                    // The error may be the report of an earlier loss, which the server sends only
                    // once, so try again.
                    Err(Failure::Errno(errno)) if may_report_loss(errno) && !has_failed => {
                        has_failed = true;
                        continue 'anew;
                    }
                    Err(Failure::Errno(errno)) => return self.unstable.record_loss(key, errno),
                    Err(Failure::Elsewhere(_)) => return self.unstable.record_loss(key, libc::EIO),
                }
            }
            return;
        }
        self.unstable.record_loss(key, libc::EIO);
    }

    fn piece(&self, key: Key, number: usize) -> Option<(u64, Vec<u8>)> {
        let of = self.unstable.files.get(&key)?;
        let piece = of.pieces.get(number)?;
        Some((piece.offset, of.bytes[piece.start..piece.start + piece.length].to_vec()))
    }

    /// If a server has restarted, writes again all data that may be lost. Called before any read.
    pub(crate) fn rewrite_after_restart(&mut self) {
        let restarts = self.connection.restarts();
        if std::mem::replace(&mut self.unstable.restarts, restarts) == restarts {
            return;
        }
        let keys: Vec<Key> = self.unstable.files.keys().copied().collect();
        for key in keys {
            if !self.unstable.has_unstable_data(key) {
                continue;
            }
            let writer = self.writer(key).ok_or(Failure::Errno(libc::EIO));
            let file = writer.and_then(|of| self.file(&of));
            match file {
                Ok(file) => self.rewrite(key, &file),
                Err(_) => self.unstable.record_loss(key, libc::EIO),
            }
        }
    }

    /// Returns an open description of the file that can write, if there is one.
    fn writer(&self, key: Key) -> Option<Rc<Description>> {
        let mut all = self.descriptions().chain(self.mappings.descriptions());
        let writes = |of: &Description| of.identity.access != libc::O_RDONLY && of.key() == key;
        all.find(|of| writes(of)).cloned()
    }

    /// Closes files with unflushed data before the process ends, as if the program had closed them.
    pub(crate) fn close_unstable_files(&mut self) {
        let all: Vec<Rc<Description>> = self.descriptions().cloned().collect();
        for of in all.into_iter().filter(|of| of.identity.access != libc::O_RDONLY) {
            if self.unstable.has_unstable_data(of.key()) {
                // The process is ending, so the error cannot be reported.
                let _ = self.close_last(&of);
            }
        }
    }

    /// Closes the last open of a file in this process. The close reports neither errors of data
    /// written before a refused request nor a server restart. So after a refused request, the data
    /// is committed before the close. After a restart, the data is written again.
    pub(crate) fn close_last(&mut self, of: &Description) -> Outcome<()> {
        let key = of.key();
        if self.connection.restarts() != self.unstable.restarts
            && self.unstable.has_unstable_data(key)
        {
            let file = self.file(of)?;
            self.rewrite(key, &file);
        }
        let before = if self.unstable.has_refused_request(key) { self.commit(of) } else { Ok(()) };
        let restarts = self.connection.restarts();
        let closed = before.and(self.end(of));
        let needs_rewrite =
            self.connection.restarts() != restarts || self.unstable.needs_rewrite(key);
        if needs_rewrite && self.unstable.has_unstable_data(key) {
            self.rewrite_closed(of);
        }
        let told = self.unstable.take_loss(key);
        self.unstable.forget(key);
        closed.and(told)
    }

    /// Writes the held data again if the server restarted while the file was being closed.
    fn rewrite_closed(&mut self, of: &Description) {
        let key = of.key();
        match self.open_again(of, crate::opening::access_of(of.identity.access)) {
            Ok(file) => {
                self.rewrite(key, &file);
                let closed = wait_result(&file.session().client(), file.close_async());
                if let Err(Failure::Errno(errno)) = closed {
                    self.unstable.record_loss(key, errno);
                }
            }
            // The file had no name any more, so its data does not matter.
            Err(Failure::Errno(libc::ENOENT | libc::ESTALE)) => {}
            Err(_) => self.unstable.record_loss(key, libc::EIO),
        }
    }
}

/// Asks the server, by a commit, for the error of lost data of a file, if there was a loss.
fn commit_error(file: &File) -> Option<i32> {
    let committed = wait_result::<_, ClientError>(&file.session().client(), file.commit_async());
    match committed {
        Err(Failure::Errno(errno)) if may_report_loss(errno) => Some(errno),
        _ => None,
    }
}

/// True if an error number may be the server's report of lost data, which the server sends once.
fn may_report_loss(errno: i32) -> bool {
    const WORDS: [Status; 4] = [Status::NoSpc, Status::DQuot, Status::FBig, Status::Io];
    WORDS.iter().any(|status| dafs_posix::errno::of_status(*status) == errno)
}

/// The maximum number of held bytes in a process.
const HELD_BYTES_MAX: usize = 16 << 20;
/// The maximum number of held pieces of a file.
const PIECES_MAX: usize = 1 << 16;
/// The maximum number of commit attempts while servers restart.
const COMMITS_MAX: u32 = 8;
/// The maximum number of attempts to write data again while servers restart.
const ATTEMPTS_MAX: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = (0, FileHandle([1; 64]));

    fn held(all: &AllUnstable) -> Vec<(u64, usize)> {
        all.files[&KEY].pieces.iter().map(|piece| (piece.offset, piece.length)).collect()
    }

    #[test]
    fn what_follows_is_one_piece_and_what_is_cut_off_is_gone() {
        let mut all = AllUnstable::default();
        all.hold(KEY, 0, b"0123");
        all.hold(KEY, 4, b"4567");
        all.hold(KEY, 2, b"xx");
        assert_eq!(held(&all), [(0, 8), (2, 2)]);
        all.truncate(KEY, 3);
        assert_eq!(held(&all), [(0, 3), (2, 1)]);
        all.forget_flushed(KEY);
        assert_eq!((held(&all).len(), all.held), (0, 0));
    }

    #[test]
    fn what_there_is_no_room_to_hold_is_let_go_until_it_is_stable() {
        let mut all = AllUnstable::default();
        let much = vec![1; HELD_BYTES_MAX / 2 + 1];
        all.hold(KEY, 0, &much);
        all.hold(KEY, 0, &much);
        assert!(all.files[&KEY].is_incomplete && all.held == 0);
        all.hold(KEY, 0, b"more");
        assert!(held(&all).is_empty());
        all.forget_flushed(KEY);
        all.hold(KEY, 0, b"more");
        assert_eq!(held(&all), [(0, 4)]);
    }

    #[test]
    fn a_loss_is_told_once_and_by_the_servers_reason_if_there_is_one() {
        let mut all = AllUnstable::default();
        all.record_loss(KEY, libc::ENOSPC);
        all.record_loss(KEY, libc::EIO);
        assert_eq!(all.loss(KEY), fail(libc::ENOSPC));
        assert_eq!(all.take_loss(KEY), fail(libc::ENOSPC));
        assert_eq!(all.take_loss(KEY), Ok(()));
        all.defer_error(KEY, &Failure::Errno(libc::EFAULT));
        assert_eq!(all.take_loss(KEY), Ok(()));
    }
}
