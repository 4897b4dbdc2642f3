//! What was written and may still be lost with the server.
//!
//! Invariant: what a program was told is written is held here until it is on stable storage, up to
//! a bound for the mount. When the server's verifier changes, what was not handed to the server's
//! file system by a close is written again, in the order it was written in, before anything else
//! is. What was handed over outlives a server, if not its host, and others may have written over
//! it since: it is only compared. What is not there, and what was let go for want of room, is told
//! as lost to every open of the time, until its `fsync` has told it: a close tells it too, but one
//! that nobody looks at, as of a program that starts another, must not be the only one.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use dafs_client::{Buffer, ClientError, File, OpenOptions, Session};
use dafs_types::{FileHandle, ShareAccess, Status, Verifier};

use crate::data::Transfer;
use crate::engine::{Answered, DATA_AT, Engine, RECEIVE_BYTES};
use crate::tasks::Asker;
use crate::uncovered::uncovered;

/// What of one file may be lost.
pub(crate) struct Unstable {
    handle: FileHandle,
    pieces: RefCell<VecDeque<Piece>>,
    /// The number of the first of them; numbers go up.
    first: Cell<u64>,
    /// Bytes held by the whole mount.
    held: Rc<Cell<usize>>,
    verifier: Cell<Option<Verifier>>,
    /// Something was let go before it was stable.
    is_incomplete: Cell<bool>,
    /// It is being written again, and who writes waits.
    is_mending: Cell<bool>,
    /// The session has ended before all was written again: the next one begins with that.
    is_behind: Cell<bool>,
    /// The open by which it is written again. It is kept, since its close might be what the server
    /// tells of a loss, and nobody would hear it.
    mender: RefCell<Option<(u32, Mender)>>,
    in_flight: Cell<u32>,
    waiting: RefCell<Vec<Transfer>>,
    /// Why something was refused since the last commit.
    refused: Cell<Option<i32>>,
    /// The last loss of data, and how many there were.
    loss: Cell<Option<Loss>>,
    losses: Cell<u64>,
}

#[derive(Clone)]
struct Mender {
    file: Rc<File>,
    may_read: bool,
}

#[derive(Clone, Copy)]
struct Loss {
    number: u64,
    errno: i32,
    /// Somebody knows of it.
    is_told: bool,
}

struct Piece {
    offset: u64,
    data: Data,
    /// The server's file system has it, and all before it.
    is_handed_over: bool,
}

enum Data {
    /// A small one is copied, since buffers are large.
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
    pub fn new(handle: FileHandle, held: Rc<Cell<usize>>) -> Self {
        Self {
            handle,
            pieces: RefCell::default(),
            first: Cell::default(),
            held,
            verifier: Cell::default(),
            is_incomplete: Cell::default(),
            is_mending: Cell::default(),
            is_behind: Cell::default(),
            mender: RefCell::default(),
            in_flight: Cell::default(),
            waiting: RefCell::default(),
            refused: Cell::default(),
            loss: Cell::default(),
            losses: Cell::default(),
        }
    }

    /// A write is about to be sent: `None` if it may be, else it waits.
    pub fn admit(&self, transfer: Transfer) -> Option<Transfer> {
        if self.is_mending.get() {
            self.waiting.borrow_mut().push(transfer);
            return None;
        }
        self.in_flight.set(self.in_flight.get() + 1);
        Some(transfer)
    }

    /// A read waits, too, while the file is written again: the server may not have all of it.
    pub fn hold_back(&self, transfer: Transfer) -> Option<Transfer> {
        if !self.is_mending.get() {
            return Some(transfer);
        }
        self.waiting.borrow_mut().push(transfer);
        None
    }

    /// How long the file is at least: while it is written again, the server may not know it.
    pub fn least_size(&self) -> u64 {
        if !self.is_mending.get() {
            return 0;
        }
        let pieces = self.pieces.borrow();
        let left = pieces.iter().filter(|piece| piece.data.length() > 0);
        left.map(|piece| piece.offset + piece.data.length() as u64).max().unwrap_or(0)
    }

    /// A write that was sent has ended.
    pub fn ended(&self) {
        self.in_flight.set(self.in_flight.get() - 1);
    }

    /// Holds what was written. True if the buffer is needed for that.
    pub fn hold(&self, offset: u64, buffer: &Buffer, at: usize, length: usize) -> bool {
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
        self.pieces.borrow_mut().push_back(Piece { offset, data, is_handed_over: false });
        !is_small
    }

    /// The verifier that came with an answer. False if what was written before must be again.
    pub fn note(&self, verifier: Verifier) -> bool {
        self.verifier.replace(Some(verifier)).is_none_or(|before| before == verifier)
    }

    /// The number of the next piece: what came before is stable when a commit that begins now has
    /// ended.
    pub fn mark(&self) -> u64 {
        self.first.get() + self.pieces.borrow().len() as u64
    }

    /// What was held at a mark is stable.
    pub fn settle(&self, mark: u64) {
        let mut pieces = self.pieces.borrow_mut();
        while self.first.get() < mark
            && let Some(piece) = pieces.pop_front()
        {
            self.first.set(self.first.get() + 1);
            self.held.set(self.held.get() - piece.data.length());
        }
    }

    /// As before, and all that was written before is.
    pub fn committed(&self, mark: u64) {
        self.is_incomplete.set(false);
        self.refused.set(None);
        self.settle(mark);
    }

    /// The server's file system has what was held at a mark.
    pub fn handed_over(&self, mark: u64) {
        let count = usize::try_from(mark.saturating_sub(self.first.get())).unwrap_or(usize::MAX);
        let mut pieces = self.pieces.borrow_mut();
        pieces.iter_mut().take(count).for_each(|piece| piece.is_handed_over = true);
    }

    pub fn let_go(&self) {
        self.settle(self.mark());
    }

    /// A write was refused, or somebody's close. Where the server says of data why, it may mean
    /// what was written before, which it tells once, and whoever sent the request is not sure to
    /// hear of it: the kernel drops the error of a write of which it has sent a part before. What
    /// is held stays, and the verifier of the next answer shows whether it must be written again.
    /// True if it was such a word.
    pub fn doubt(&self, error: &ClientError) -> bool {
        let errno = of_lost_data(error);
        self.refused.set(errno.or(self.refused.get()));
        errno.is_some()
    }

    /// Whether a close that succeeds does not mean that all is there.
    pub fn is_doubtful(&self) -> bool {
        self.refused.get().is_some()
    }

    /// Why something was refused since the last commit.
    pub fn reason(&self) -> Option<i32> {
        self.refused.get()
    }

    /// A commit of the file, or the close that hands it over, has failed. Where that is the
    /// server's word that data is lost, everybody is told who may have written it: to write it
    /// again is no use. True if it was such a word.
    pub fn lose(&self, error: &ClientError) -> bool {
        let Some(errno) = of_lost_data(error) else { return false };
        if !self.pieces.borrow().is_empty() {
            self.is_incomplete.set(true);
        }
        self.let_go();
        self.verifier.set(None);
        self.set_lost(errno);
        true
    }

    /// Nobody waits for the answer to a write that waits here. False if it is none of these.
    pub fn give_up(&self, unique: u64) -> bool {
        self.waiting.borrow_mut().iter_mut().any(|transfer| transfer.give_up(unique))
    }

    /// Who waits for the answer to a write that waits here.
    pub fn asker(&self, unique: u64) -> Option<Asker> {
        self.waiting.borrow().iter().find_map(|transfer| transfer.asker_of(unique))
    }

    /// The last loss that does not concern somebody who comes now, for somebody was told of it.
    pub fn known_loss(&self) -> u64 {
        let is_unknown = self.loss.get().is_some_and(|loss| !loss.is_told);
        self.losses.get() - u64::from(is_unknown)
    }

    /// Why data was lost after a loss, and the number of that loss.
    pub fn tell_loss(&self, after: u64) -> Option<(u64, i32)> {
        let loss = self.loss.get().filter(|loss| loss.number > after)?;
        self.loss.set(Some(Loss { is_told: true, ..loss }));
        Some((loss.number, loss.errno))
    }

    fn set_lost(&self, errno: i32) {
        self.losses.set(self.losses.get() + 1);
        self.loss.set(Some(Loss { number: self.losses.get(), errno, is_told: false }));
    }

    /// The file was cut: what lay behind is not to come back.
    pub fn cut(&self, size: u64) {
        let mut gone = 0;
        for piece in self.pieces.borrow_mut().iter_mut() {
            let before = piece.data.length();
            let left = usize::try_from(size.saturating_sub(piece.offset)).unwrap_or(usize::MAX);
            piece.data.truncate(left);
            gone += before - piece.data.length();
        }
        self.held.set(self.held.get() - gone);
    }

    pub fn handle(&self) -> FileHandle {
        self.handle
    }

    /// Whether anything is held that was not handed over.
    pub fn holds_any(&self) -> bool {
        self.pieces.borrow().back().is_some_and(|piece| !piece.is_handed_over)
    }

    /// Of what was handed over, all that was not written over since: the number of the piece, how
    /// many bytes of it come before, and how many there are.
    fn to_compare(&self) -> Vec<(u64, usize, usize)> {
        let pieces = self.pieces.borrow();
        let range = |piece: &Piece| piece.offset..piece.offset + piece.data.length() as u64;
        let written: Vec<_> = pieces.iter().map(range).collect();
        let mut found = Vec::new();
        for (index, ranges) in uncovered(&written).into_iter().enumerate() {
            if !pieces[index].is_handed_over {
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

    fn is_handed_over(&self, number: u64) -> bool {
        let index = usize::try_from(number.saturating_sub(self.first.get())).unwrap_or(usize::MAX);
        self.pieces.borrow().get(index).is_none_or(|piece| piece.is_handed_over)
    }

    pub fn is_mending(&self) -> bool {
        self.is_mending.get()
    }
}

/// The error number, if a request failed with what the server says once of data that it has lost.
fn of_lost_data(error: &ClientError) -> Option<i32> {
    let status = error.status()?;
    let is_word = matches!(status, Status::NoSpc | Status::DQuot | Status::FBig | Status::Io);
    is_word.then(|| dafs_posix::errno::of_status(status))
}

/// Why data was not written again.
enum Failed {
    /// There is no session any more; what is held stays.
    Session,
    Errno(i32),
}

impl Drop for Unstable {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Engine {
    /// What of a file may be lost, shared by all its opens.
    pub fn unstable_of(&self, handle: FileHandle) -> Rc<Unstable> {
        let mut all = self.unstable.borrow_mut();
        if let Some(known) = all.get(&handle).and_then(std::rc::Weak::upgrade) {
            return known;
        }
        all.retain(|_, unstable| unstable.strong_count() > 0);
        let new = Rc::new(Unstable::new(handle, self.held.clone()));
        all.insert(handle, Rc::downgrade(&new));
        new
    }

    /// The same of all files.
    pub fn all_unstable(&self) -> impl Iterator<Item = Rc<Unstable>> {
        let all = self.unstable.borrow();
        let all: Vec<_> = all.values().filter_map(std::rc::Weak::upgrade).collect();
        all.into_iter()
    }

    /// The server is another than before: whatever may have been lost with that is written again.
    pub fn mend_all(self: &Rc<Self>) {
        for unstable in self.all_unstable() {
            let is_touched = unstable.verifier.get().is_some() || unstable.is_incomplete.get();
            if is_touched || unstable.is_behind.get() || unstable.in_flight.get() > 0 {
                self.mend(&unstable);
            }
        }
    }

    /// Writes again what is held of a file. Whoever writes to it waits meanwhile.
    pub fn mend(self: &Rc<Self>, unstable: &Rc<Unstable>) {
        if unstable.is_mending.replace(true) {
            return;
        }
        let (engine, unstable) = (self.clone(), unstable.clone());
        self.tasks.spawn(Asker::NOBODY, async move {
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
                    // There is another already.
                    Err(Failed::Session) if engine.session().1 != epoch => continue,
                    Err(Failed::Session) => unstable.is_behind.set(true),
                    Err(Failed::Errno(errno)) => {
                        tracing::warn!(errno, "what the server has lost cannot be written again");
                        unstable.let_go();
                        unstable.set_lost(errno);
                    }
                }
                break;
            }
            unstable.is_mending.set(false);
            let waiting = std::mem::take(&mut *unstable.waiting.borrow_mut());
            for transfer in waiting {
                engine.submit_anew(transfer);
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
        tracing::warn!(count, "the server may have lost data: it is written again");
        'anew: for _ in 0..ATTEMPTS_MAX {
            let (session, epoch) = self.session();
            let Mender { file, may_read } = self.mender(&session, epoch, unstable).await?;
            unstable.verifier.set(None);
            unstable.is_behind.set(false);
            for number in numbers.clone().filter(|number| !unstable.is_handed_over(*number)) {
                let piece = self.piece(unstable, number).map_err(Failed::Errno)?;
                let Some((offset, buffer, at, length)) = piece else {
                    // It has become stable meanwhile.
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
                tracing::warn!("what a close handed to the server's file system is not there");
                unstable.set_lost(EIO);
            }
            return Ok(());
        }
        // It is lost each time. A commit says why, a write may not.
        let known = unstable.mender.borrow().clone();
        let why = match known {
            Some((_, mender)) => mender.file.commit_async().await.err(),
            None => None,
        };
        Err(Failed::Errno(why.as_ref().and_then(of_lost_data).unwrap_or(EIO)))
    }

    /// Whether what was handed over is in the file.
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
            // It has become stable meanwhile, or was cut off.
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

    /// The open to write a file again by.
    async fn mender(
        self: &Rc<Self>,
        session: &Session,
        epoch: u32,
        unstable: &Unstable,
    ) -> Result<Mender, Failed> {
        let known = unstable.mender.borrow().clone();
        if let Some((of, mender)) = known
            && of == epoch
        {
            return Ok(mender);
        }
        let (file, may_read) = self.open_to_mend(session, unstable.handle).await?;
        let mender = Mender { file: Rc::new(file), may_read };
        *unstable.mender.borrow_mut() = Some((epoch, mender.clone()));
        Ok(mender)
    }

    /// Opens a file to write it again, and to see what is there if that may be: a server that
    /// puts everybody off is asked until it does not.
    async fn open_to_mend(
        self: &Rc<Self>,
        session: &Session,
        handle: FileHandle,
    ) -> Result<(File, bool), Failed> {
        let mut access = ShareAccess::Both;
        loop {
            let options = OpenOptions { access, ..OpenOptions::read() };
            match session.open_handle_async(handle, "", &options).await {
                Ok(file) => return Ok((file, access == ShareAccess::Both)),
                // Who may only write sees nothing.
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

    /// A piece that is held, in registered memory.
    fn piece(
        self: &Rc<Self>,
        unstable: &Unstable,
        number: u64,
    ) -> Answered<Option<(u64, Buffer, usize, usize)>> {
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

    /// Waits until nothing of a file is being written again.
    pub async fn mended(&self, unstable: &Unstable) {
        while unstable.is_mending() {
            self.tasks.sleep(PAUSE).await;
        }
    }
}

/// Bytes that a mount holds at most.
const HELD_BYTES_MAX: usize = 64 << 20;
/// Writes below are copied.
const COPIED_BYTES_MAX: usize = 128 << 10;
/// Times that data is written again to a server that restarts meanwhile.
const ATTEMPTS_MAX: u32 = 5;
const PAUSE: Duration = Duration::from_millis(1);
/// Between two looks whether a server lets others in again.
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
        assert!(unstable.doubt(&refused(Status::NoSpc)) && unstable.is_doubtful());
        let told = unstable.tell_loss(writer);
        assert_eq!(told, Some((1, EIO)));
        assert_eq!(unstable.tell_loss(other), Some((1, EIO)), "each open has its own account");
        assert_eq!(unstable.tell_loss(1), None);
        assert_eq!(unstable.known_loss(), 1, "who comes now is not concerned");
    }

    #[test]
    fn only_what_is_said_of_data_is_a_word_of_lost_data() {
        let unstable = Unstable::new(FileHandle([1; 64]), Rc::default());
        assert!(!unstable.doubt(&refused(Status::Access)) && !unstable.is_doubtful());
        assert!(!unstable.lose(&ClientError::TimedOut));
        assert_eq!(unstable.tell_loss(0), None);
        assert!(unstable.lose(&refused(Status::NoSpc)));
        assert_eq!(unstable.tell_loss(0), Some((1, 28)));
    }

    fn refused(status: Status) -> ClientError {
        ClientError::Status { what: "file".into(), status }
    }
}
