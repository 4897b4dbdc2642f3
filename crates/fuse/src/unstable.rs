//! Written data that a server restart may still lose.
//!
//! Invariants:
//! - Data that was reported to a program as written is held here until it is on stable storage, up
//!   to a limit for the mount.
//! - When the server's write verifier changes, data that no close has passed to the server's file
//!   system is written again in its original order, before any other write.
//! - Data that was passed to the server's file system survives a server restart, but not a crash of
//!   the server's host. After a change of the verifier, this data is only compared with the file,
//!   because other clients may have overwritten it.
//! - Missing data, and data that was dropped for lack of space, is reported as lost through every
//!   open that existed then, until an `fsync` through that open has reported the loss. A close
//!   reports the loss too, but cannot be the only report, because programs do not always check it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use dafs_client::{Buffer, ClientError, File, OpenOptions, Session};
use dafs_types::{FileHandle, ShareAccess, Status, Verifier};

use crate::data::Transfer;
use crate::engine::{DATA_AT, Engine, ErrnoResult, RECEIVE_BYTES};
use crate::tasks::Requester;
use crate::uncovered::uncovered;

/// The written data of one file that a server restart may lose.
pub(crate) struct Unstable {
    handle: FileHandle,
    pieces: RefCell<VecDeque<Piece>>,
    /// The number of the first held piece. Pieces are numbered in ascending order.
    first: Cell<u64>,
    /// The number of bytes held for all files of the mount.
    held: Rc<Cell<usize>>,
    verifier: Cell<Option<Verifier>>,
    /// True if data was dropped before it was stable.
    is_incomplete: Cell<bool>,
    /// True while data is being written again. Other writes must wait meanwhile.
    is_rewriting: Cell<bool>,
    /// True if the session ended before all data was written again. Then the next session writes
    /// the data again first.
    needs_rewrite: Cell<bool>,
    /// The open that is used to write data again. The open is kept, because if the server reported
    /// a loss in the reply to its close, no process would get that report.
    rewriter: RefCell<Option<(u32, Rewriter)>>,
    in_flight: Cell<u32>,
    waiting: RefCell<Vec<Transfer>>,
    /// The error of a request that failed since the latest commit.
    refused: Cell<Option<i32>>,
    /// The most recent loss of data; `None` if no data was lost.
    loss: Cell<Option<Loss>>,
    /// The number of losses of data so far.
    losses: Cell<u64>,
}

#[derive(Clone)]
struct Rewriter {
    file: Rc<File>,
    may_read: bool,
}

#[derive(Clone, Copy)]
struct Loss {
    number: u64,
    errno: i32,
    /// True if a process got an error for this loss.
    is_reported: bool,
}

struct Piece {
    offset: u64,
    data: Data,
    /// True if the server's file system has this data and all data before it.
    is_passed_on: bool,
}

enum Data {
    /// A copy of the data, for small writes, because buffers are large.
    Bytes(Vec<u8>),
    Buffer(Buffer, usize, usize),
}

impl Data {
    fn length(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Buffer(_, _, length) => *length,
        }
    }

    fn truncate(&mut self, to: usize) {
        match self {
            Self::Bytes(bytes) => bytes.truncate(to),
            Self::Buffer(_, _, length) => *length = to.min(*length),
        }
    }
}

impl Unstable {
    pub(crate) fn new(handle: FileHandle, held: Rc<Cell<usize>>) -> Self {
        Self {
            handle,
            pieces: RefCell::default(),
            first: Cell::default(),
            held,
            verifier: Cell::default(),
            is_incomplete: Cell::default(),
            is_rewriting: Cell::default(),
            needs_rewrite: Cell::default(),
            rewriter: RefCell::default(),
            in_flight: Cell::default(),
            waiting: RefCell::default(),
            refused: Cell::default(),
            loss: Cell::default(),
            losses: Cell::default(),
        }
    }

    /// Registers a write that is about to be sent. Returns `None` if the write must wait.
    pub(crate) fn admit(&self, transfer: Transfer) -> Option<Transfer> {
        if self.is_rewriting.get() {
            self.waiting.borrow_mut().push(transfer);
            return None;
        }
        self.in_flight.set(self.in_flight.get() + 1);
        Some(transfer)
    }

    /// Delays the reply to a read while data is being written again, because the server may lack
    /// some of the data. Returns `None` if the read was delayed.
    pub(crate) fn delay_read(&self, transfer: Transfer) -> Option<Transfer> {
        if !self.is_rewriting.get() {
            return Some(transfer);
        }
        self.waiting.borrow_mut().push(transfer);
        None
    }

    /// Returns the minimum size to report for the file. While data is being written again, the
    /// server may report a smaller size.
    pub(crate) fn least_size(&self) -> u64 {
        if !self.is_rewriting.get() {
            return 0;
        }
        let pieces = self.pieces.borrow();
        let left = pieces.iter().filter(|piece| piece.data.length() > 0);
        left.map(|piece| piece.offset + piece.data.length() as u64).max().unwrap_or(0)
    }

    /// Notes the end of a write that was sent.
    pub(crate) fn ended(&self) {
        self.in_flight.set(self.in_flight.get() - 1);
    }

    /// Keeps written data until the server has made it stable. Returns true if the kept data still
    /// lies in `buffer`, which the caller must then neither reuse nor release.
    pub(crate) fn hold(&self, offset: u64, buffer: &Buffer, at: usize, length: usize) -> bool {
        if self.held.get() + length > HELD_BYTES_MAX {
            self.let_go();
            self.is_incomplete.set(true);
            return false;
        }
        let is_small = length < COPIED_BYTES_MAX;
        let data = match is_small {
            true => Data::Bytes(buffer.memory().to_vec(at, length)),
            false => Data::Buffer(buffer.clone(), at, length),
        };
        self.held.set(self.held.get() + length);
        self.pieces.borrow_mut().push_back(Piece { offset, data, is_passed_on: false });
        !is_small
    }

    /// Notes the write verifier of a reply. Returns false if it differs from the previous one, so
    /// that earlier data must be written again.
    pub(crate) fn note(&self, verifier: Verifier) -> bool {
        self.verifier.replace(Some(verifier)).is_none_or(|before| before == verifier)
    }

    /// Returns the number of the next piece. If a commit that begins now succeeds, all pieces with
    /// smaller numbers are stable.
    pub(crate) fn mark(&self) -> u64 {
        self.first.get() + self.pieces.borrow().len() as u64
    }

    /// Drops the pieces before a mark, which are stable now.
    pub(crate) fn settle(&self, mark: u64) {
        let mut pieces = self.pieces.borrow_mut();
        while self.first.get() < mark
            && let Some(piece) = pieces.pop_front()
        {
            self.first.set(self.first.get() + 1);
            self.held.set(self.held.get() - piece.data.length());
        }
    }

    /// Notes a successful commit: the pieces before the mark are stable, and so is all data that
    /// was dropped before.
    pub(crate) fn committed(&self, mark: u64) {
        self.is_incomplete.set(false);
        self.refused.set(None);
        self.settle(mark);
    }

    /// Notes that the server's file system has the pieces before a mark.
    pub(crate) fn passed_on(&self, mark: u64) {
        let count = usize::try_from(mark.saturating_sub(self.first.get())).unwrap_or(usize::MAX);
        let mut pieces = self.pieces.borrow_mut();
        pieces.iter_mut().take(count).for_each(|piece| piece.is_passed_on = true);
    }

    pub(crate) fn let_go(&self) {
        self.settle(self.mark());
    }

    /// Notes that a write or a close failed. An error with which the server reports a loss may
    /// refer to earlier data. The server reports a loss only once, and the process that made the
    /// request may not get the report, because the kernel drops the error of a write after it has
    /// sent a part of it. The data stays held, and the write verifier of the next reply shows
    /// whether it must be written again. Returns true if the error may report a loss.
    pub(crate) fn note_failure(&self, error: &ClientError) -> bool {
        let errno = of_lost_data(error);
        self.refused.set(errno.or(self.refused.get()));
        errno.is_some()
    }

    /// True if a successful close does not prove that all data was written.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.refused.get().is_some()
    }

    /// Returns the error of a request refused since the latest commit.
    pub(crate) fn reason(&self) -> Option<i32> {
        self.refused.get()
    }

    /// Notes the failure of a commit, or of a close that passes data on. If the server reports a
    /// loss, the loss is reported to every process that may have written the data, and the data is
    /// not written again, because that would fail too. Returns true if the server reported a loss.
    pub(crate) fn record_loss(&self, error: &ClientError) -> bool {
        let Some(errno) = of_lost_data(error) else { return false };
        if !self.pieces.borrow().is_empty() {
            self.is_incomplete.set(true);
        }
        self.let_go();
        self.verifier.set(None);
        self.set_lost(errno);
        true
    }

    /// Cancels the reply to a write that waits here. Returns false if there is no such write.
    pub(crate) fn give_up(&self, unique: u64) -> bool {
        self.waiting.borrow_mut().iter_mut().any(|transfer| transfer.give_up(unique))
    }

    /// Returns the process that waits for the reply to a waiting write.
    pub(crate) fn requester(&self, unique: u64) -> Option<Requester> {
        self.waiting.borrow().iter().find_map(|transfer| transfer.requester_of(unique))
    }

    /// Returns the number of the latest loss that need not be reported through a new open, because
    /// a process got an error for it before.
    pub(crate) fn known_loss(&self) -> u64 {
        let is_unknown = self.loss.get().is_some_and(|loss| !loss.is_reported);
        self.losses.get() - u64::from(is_unknown)
    }

    /// Returns the number and the error of the most recent loss, if it is later than the loss
    /// `after`. Marks the loss as reported.
    pub(crate) fn report_loss(&self, after: u64) -> Option<(u64, i32)> {
        let loss = self.loss.get().filter(|loss| loss.number > after)?;
        self.loss.set(Some(Loss { is_reported: true, ..loss }));
        Some((loss.number, loss.errno))
    }

    fn set_lost(&self, errno: i32) {
        self.losses.set(self.losses.get() + 1);
        self.loss.set(Some(Loss { number: self.losses.get(), errno, is_reported: false }));
    }

    /// Drops held data beyond the new end of a truncated file.
    pub(crate) fn cut(&self, size: u64) {
        let mut gone = 0;
        for piece in self.pieces.borrow_mut().iter_mut() {
            let before = piece.data.length();
            let left = usize::try_from(size.saturating_sub(piece.offset)).unwrap_or(usize::MAX);
            piece.data.truncate(left);
            gone += before - piece.data.length();
        }
        self.held.set(self.held.get() - gone);
    }

    pub(crate) fn handle(&self) -> FileHandle {
        self.handle
    }

    /// True if data is held that was not passed to the server's file system.
    pub(crate) fn holds_any(&self) -> bool {
        self.pieces.borrow().back().is_some_and(|piece| !piece.is_passed_on)
    }

    /// Returns the ranges of data that were passed to the server's file system and not overwritten
    /// since. A range consists of the number of the piece, the offset in the piece, and the length.
    fn to_compare(&self) -> Vec<(u64, usize, usize)> {
        let pieces = self.pieces.borrow();
        let range = |piece: &Piece| piece.offset..piece.offset + piece.data.length() as u64;
        let written: Vec<_> = pieces.iter().map(range).collect();
        let mut found = Vec::new();
        for (index, ranges) in uncovered(&written).into_iter().enumerate() {
            if !pieces[index].is_passed_on {
                break;
            }
            let start = written[index].start;
            found.extend(ranges.into_iter().map(|range| {
                let (skipped, length) = (range.start - start, range.end - range.start);
                (self.first.get() + index as u64, skipped as usize, length as usize)
            }));
        }
        found
    }

    fn is_passed_on(&self, number: u64) -> bool {
        let index = usize::try_from(number.saturating_sub(self.first.get())).unwrap_or(usize::MAX);
        self.pieces.borrow().get(index).is_none_or(|piece| piece.is_passed_on)
    }

    pub(crate) fn is_rewriting(&self) -> bool {
        self.is_rewriting.get()
    }
}

/// Returns the error number if the server may report lost data with this error, which it does only
/// once.
fn of_lost_data(error: &ClientError) -> Option<i32> {
    let status = error.status()?;
    let is_word = matches!(status, Status::NoSpc | Status::DQuot | Status::FBig | Status::Io);
    is_word.then(|| dafs_posix::errno::of_status(status))
}

/// The reason why data was not written again.
enum Failed {
    /// The session has ended. The data stays held.
    Session,
    Errno(i32),
}

impl Drop for Unstable {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Engine {
    /// Returns the unstable data of a file, which all its opens share.
    pub(crate) fn unstable_of(&self, handle: FileHandle) -> Rc<Unstable> {
        let mut all = self.unstable.borrow_mut();
        if let Some(known) = all.get(&handle).and_then(std::rc::Weak::upgrade) {
            return known;
        }
        all.retain(|_, unstable| unstable.strong_count() > 0);
        let new = Rc::new(Unstable::new(handle, self.held.clone()));
        all.insert(handle, Rc::downgrade(&new));
        new
    }

    /// Returns the unstable data of all files.
    pub(crate) fn all_unstable(&self) -> impl Iterator<Item = Rc<Unstable>> {
        let all = self.unstable.borrow();
        let all: Vec<_> = all.values().filter_map(std::rc::Weak::upgrade).collect();
        all.into_iter()
    }

    /// After a change of the server, writes again all data that may be lost.
    pub(crate) fn rewrite_all(self: &Rc<Self>) {
        for unstable in self.all_unstable() {
            let is_touched = unstable.verifier.get().is_some() || unstable.is_incomplete.get();
            if is_touched || unstable.needs_rewrite.get() || unstable.in_flight.get() > 0 {
                self.rewrite(&unstable);
            }
        }
    }

    /// Writes the held data of a file again. Other writes to the file wait meanwhile.
    pub(crate) fn rewrite(self: &Rc<Self>, unstable: &Rc<Unstable>) {
        if unstable.is_rewriting.replace(true) {
            return;
        }
        let (engine, unstable) = (self.clone(), unstable.clone());
        self.tasks.spawn(Requester::NONE, async move {
            while unstable.in_flight.get() > 0 {
                engine.tasks.sleep(PAUSE).await;
            }
            if unstable.is_incomplete.take() {
                unstable.set_lost(unstable.refused.get().unwrap_or(EIO));
            }
            loop {
                let (_, epoch) = engine.session();
                match engine.write_again(&unstable).await {
                    Ok(()) => {}
                    // A newer session exists already, so continue with that.
                    Err(Failed::Session) if engine.session().1 != epoch => continue,
                    Err(Failed::Session) => unstable.needs_rewrite.set(true),
                    Err(Failed::Errno(errno)) => {
                        tracing::warn!(
                            errno,
                            "data that the server has lost cannot be written again"
                        );
                        unstable.let_go();
                        unstable.set_lost(errno);
                    }
                }
                break;
            }
            unstable.is_rewriting.set(false);
            let waiting = std::mem::take(&mut *unstable.waiting.borrow_mut());
            for transfer in waiting {
                engine.resubmit(transfer);
            }
        });
    }

    async fn write_again(self: &Rc<Self>, unstable: &Rc<Unstable>) -> Result<(), Failed> {
        let numbers = unstable.first.get()..unstable.mark();
        if numbers.is_empty() {
            unstable.verifier.set(None);
            return Ok(());
        }
        let count = numbers.end - numbers.start;
        tracing::warn!(count, "the server may have lost data; writing it again");
        'anew: for _ in 0..ATTEMPTS_MAX {
            let (session, epoch) = self.session();
            let Rewriter { file, may_read } = self.rewriter(&session, epoch, unstable).await?;
            unstable.verifier.set(None);
            unstable.needs_rewrite.set(false);
            for number in numbers.clone().filter(|number| !unstable.is_passed_on(*number)) {
                let piece = self.piece(unstable, number).map_err(Failed::Errno)?;
                let Some((offset, buffer, at, length)) = piece else {
                    // The piece has become stable meanwhile.
                    continue;
                };
                let mut done = 0;
                while done < length {
                    let slice = buffer.slice(at + done, length - done);
                    let slice = slice.map_err(|error| self.failed_to_mend(&error))?;
                    let chain = session.chain().of(&file).write_from(offset + done as u64, slice);
                    let outcomes = chain.run_async().await;
                    let outcomes =
                        outcomes.map_err(|failure| self.failed_to_mend(&failure.error))?;
                    let moved = outcomes.first().and_then(|outcome| outcome.transferred());
                    let moved = moved.filter(|moved| moved.length > 0).ok_or(Failed::Errno(EIO))?;
                    if !unstable.note(moved.verifier) {
                        continue 'anew;
                    }
                    done += moved.length as usize;
                }
            }
            if !self.is_there_yet(unstable, &file, may_read).await? {
                tracing::warn!("data that a close passed to the server's file system is missing");
                unstable.set_lost(EIO);
            }
            return Ok(());
        }
        // Get the reason from a commit, because the failed write may not report it.
        let known = unstable.rewriter.borrow().clone();
        let why = match known {
            Some((_, rewriter)) => rewriter.file.commit_async().await.err(),
            None => None,
        };
        Err(Failed::Errno(why.as_ref().and_then(of_lost_data).unwrap_or(EIO)))
    }

    /// True if the file still contains the data that was passed to the server's file system.
    async fn is_there_yet(
        self: &Rc<Self>,
        unstable: &Unstable,
        file: &File,
        may_read: bool,
    ) -> Result<bool, Failed> {
        let mut found = None;
        for (number, skipped, length) in unstable.to_compare() {
            if !may_read {
                return Ok(false);
            }
            let piece = self.piece(unstable, number).map_err(Failed::Errno)?;
            // The piece has become stable meanwhile, or was cut off.
            let Some((offset, buffer, at, held)) = piece else { continue };
            let length = length.min(held.saturating_sub(skipped));
            let found = match &found {
                Some(found) => found,
                None => {
                    let made = self.client.allocate(RECEIVE_BYTES);
                    found.insert(made.map_err(|_| Failed::Errno(ENOMEM))?)
                }
            };
            let slice = found.slice(0, length).map_err(|error| self.failed_to_mend(&error))?;
            let reading = file.read_async(offset + skipped as u64, slice);
            let read = reading.await.map_err(|error| self.failed_to_mend(&error))?;
            let is_whole = read.length as usize == length;
            let held = || buffer.memory().to_vec(at + skipped, length);
            if !is_whole || found.memory().to_vec(0, length) != held() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the open that is used to write a file again.
    async fn rewriter(
        self: &Rc<Self>,
        session: &Session,
        epoch: u32,
        unstable: &Unstable,
    ) -> Result<Rewriter, Failed> {
        let known = unstable.rewriter.borrow().clone();
        if let Some((of, rewriter)) = known
            && of == epoch
        {
            return Ok(rewriter);
        }
        let (file, may_read) = self.open_to_rewrite(session, unstable.handle).await?;
        let rewriter = Rewriter { file: Rc::new(file), may_read };
        *unstable.rewriter.borrow_mut() = Some((epoch, rewriter.clone()));
        Ok(rewriter)
    }

    /// Opens a file to write it again and, if permitted, to read it. Repeats the request while the
    /// server delays it.
    async fn open_to_rewrite(
        self: &Rc<Self>,
        session: &Session,
        handle: FileHandle,
    ) -> Result<(File, bool), Failed> {
        let mut access = ShareAccess::Both;
        loop {
            let options = OpenOptions::read().access(access);
            match session.open_handle_async(handle, "", &options).await {
                Ok(file) => return Ok((file, access == ShareAccess::Both)),
                // Without read permission, the data cannot be compared.
                Err(error)
                    if error.status() == Some(Status::Access) && access == ShareAccess::Both =>
                {
                    access = ShareAccess::Write;
                }
                Err(error) if matches!(error.status(), Some(Status::Grace | Status::Delay)) => {
                    self.tasks.sleep(LONG_PAUSE).await;
                }
                Err(error) => return Err(self.failed_to_mend(&error)),
            }
        }
    }

    fn failed_to_mend(self: &Rc<Self>, error: &ClientError) -> Failed {
        let errno = self.failed(error);
        match error {
            ClientError::SessionEnded { .. } => Failed::Session,
            _ => Failed::Errno(errno),
        }
    }

    /// Returns a held piece in registered memory.
    fn piece(
        self: &Rc<Self>,
        unstable: &Unstable,
        number: u64,
    ) -> ErrnoResult<Option<(u64, Buffer, usize, usize)>> {
        let pieces = unstable.pieces.borrow();
        let index = number.checked_sub(unstable.first.get());
        let index = index.and_then(|index| usize::try_from(index).ok());
        let Some(piece) = index.and_then(|index| pieces.get(index)) else { return Ok(None) };
        Ok(Some(match &piece.data {
            Data::Buffer(buffer, at, length) => (piece.offset, buffer.clone(), *at, *length),
            Data::Bytes(bytes) => {
                let buffer = self.client.allocate(DATA_AT + bytes.len()).map_err(|_| ENOMEM)?;
                buffer.write(DATA_AT, bytes);
                (piece.offset, buffer, DATA_AT, bytes.len())
            }
        }))
    }

    /// Waits until no data of the file is being written again.
    pub(crate) async fn rewritten(&self, unstable: &Unstable) {
        while unstable.is_rewriting() {
            self.tasks.sleep(PAUSE).await;
        }
    }
}

/// The maximum number of held bytes in a mount.
const HELD_BYTES_MAX: usize = 64 << 20;
/// The size in bytes below which written data is held as a copy instead of in its buffer.
const COPIED_BYTES_MAX: usize = 128 << 10;
/// The maximum number of attempts to write data again while servers restart.
const ATTEMPTS_MAX: u32 = 5;
const PAUSE: Duration = Duration::from_millis(1);
/// The pause between two requests to a server that is not ready yet.
const LONG_PAUSE: Duration = Duration::from_millis(100);
const EIO: i32 = 5;
const ENOMEM: i32 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_write_does_not_take_away_the_word_of_lost_data() {
        let unstable = Unstable::new(FileHandle([1; 64]), Rc::default());
        let (writer, other) = (unstable.known_loss(), unstable.known_loss());
        unstable.set_lost(EIO);
        assert!(unstable.note_failure(&refused(Status::NoSpc)) && unstable.is_doubtful());
        let told = unstable.report_loss(writer);
        assert_eq!(told, Some((1, EIO)));
        assert_eq!(unstable.report_loss(other), Some((1, EIO)), "each open has its own account");
        assert_eq!(unstable.report_loss(1), None);
        assert_eq!(unstable.known_loss(), 1, "who comes now is not concerned");
    }

    #[test]
    fn only_what_is_said_of_data_is_a_word_of_lost_data() {
        let unstable = Unstable::new(FileHandle([1; 64]), Rc::default());
        assert!(!unstable.note_failure(&refused(Status::Access)) && !unstable.is_doubtful());
        assert!(!unstable.record_loss(&ClientError::TimedOut));
        assert_eq!(unstable.report_loss(0), None);
        assert!(unstable.record_loss(&refused(Status::NoSpc)));
        assert_eq!(unstable.report_loss(0), Some((1, 28)));
    }

    fn refused(status: Status) -> ClientError {
        ClientError::Status { what: "file".into(), status }
    }
}
