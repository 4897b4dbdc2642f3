//! Open files.
//!
//! Invariant: a file that is open here is open on the server, so that it is there for as long as
//! anybody has it, whatever becomes of its names. One that was opened in a session that has
//! ended is opened again, by its handle, before it is used.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use dafs_base::Key;
use dafs_client::{ClientError, File, Metadata, OpenOptions, Session};
use dafs_types::{DeleteDisposition, FileHandle, ShareAccess, ShareDeny};
use dafs_wire::messages::{Open, OpenCreation, OpenTarget};
use dafs_wire::{Path, Request, Response};

use crate::abi::{Message, RELEASE_FLOCK_UNLOCK, open};
use crate::engine::{Answer, Answered, Engine};
use crate::unstable::Unstable;

/// An open file of the kernel's.
pub(crate) struct OpenFile {
    pub handle: FileHandle,
    pub flags: u32,
    access: ShareAccess,
    /// The open of the moment, and in which session it is.
    file: RefCell<(u32, Rc<File>)>,
    /// Something was written since errors of write-back were last asked for.
    pub is_dirty: Cell<bool>,
    /// What of the file may be lost.
    pub unstable: Rc<Unstable>,
    /// The last loss that an `fsync` has told.
    known_loss: Cell<u64>,
}

impl OpenFile {
    pub fn new(file: File, epoch: u32, flags: u32, unstable: Rc<Unstable>) -> Self {
        Self {
            handle: file.handle(),
            flags,
            access: access_of(flags),
            file: RefCell::new((epoch, Rc::new(file))),
            is_dirty: Cell::new(false),
            known_loss: Cell::new(unstable.known_loss()),
            unstable,
        }
    }

    /// Whether writes go to the end, wherever that is.
    pub fn appends(&self) -> bool {
        self.flags & O_APPEND != 0
    }

    /// The open, if it is one of this session.
    pub fn in_session(&self, epoch: u32) -> Option<Rc<File>> {
        let file = self.file.borrow();
        (file.0 == epoch).then(|| file.1.clone())
    }

    /// A write by this open has failed.
    pub fn doubt(&self, error: &ClientError) {
        if self.unstable.doubt(error) {
            self.is_dirty.set(true);
        }
    }

    /// What the server says of write-back comes before what is known here: it knows why data
    /// was lost, such as for want of room, and that is noted by now.
    fn learn(&self, by_server: Answered<()>) -> Answered<()> {
        // It may be well yet.
        by_server.inspect_err(|_| self.is_dirty.set(true))
    }

    /// Tells who writes of a loss.
    fn tell_loss(&self) -> Answered<()> {
        self.loss().map_or(Ok(()), |(_, errno)| Err(errno))
    }

    /// Tells who writes of a loss, and not again.
    fn take_loss(&self) -> Answered<()> {
        let Some((number, errno)) = self.loss() else { return Ok(()) };
        self.known_loss.set(number);
        Err(errno)
    }

    fn loss(&self) -> Option<(u64, i32)> {
        let writes = self.flags & O_ACCMODE != O_RDONLY;
        writes.then(|| self.unstable.tell_loss(self.known_loss.get())).flatten()
    }
}

impl Engine {
    pub fn file(&self, number: u64) -> Answered<Rc<OpenFile>> {
        self.files.borrow().get(Key::from_bits(number)).cloned().ok_or(EBADF)
    }

    /// The open of a file in the session of the moment.
    pub async fn current(self: &Rc<Self>, open: &Rc<OpenFile>) -> Answered<Rc<File>> {
        let (session, epoch) = self.session();
        if let Some(file) = open.in_session(epoch) {
            return Ok(file);
        }
        let file = Rc::new(self.open_handle(&session, open.handle, open.access).await?);
        *open.file.borrow_mut() = (epoch, file.clone());
        Ok(file)
    }

    /// Opens a file by its handle.
    pub async fn open_handle(
        self: &Rc<Self>,
        session: &Session,
        handle: FileHandle,
        access: ShareAccess,
    ) -> Answered<File> {
        let options = OpenOptions { access, ..OpenOptions::read() };
        let opened = session.open_handle_async(handle, "", &options).await;
        opened.map_err(|error| self.failed(&error))
    }

    /// The same under an owner's name: an OPEN of ".".
    pub async fn open_as(
        self: &Rc<Self>,
        session: &Session,
        handle: FileHandle,
        access: ShareAccess,
        owner: &[u8],
    ) -> Answered<File> {
        let request = Request::Open(Open {
            target: OpenTarget::Null { directory: handle, path: Path::new(&["."]) },
            creation: OpenCreation::NoCreate,
            delete_disposition: DeleteDisposition::DontCare,
            owner,
            access,
            deny: ShareDeny::None,
            key: None,
        });
        let opened = self.ask(session, &request, |response| match response {
            Response::Open(opened) => Some((opened.file, opened.state)),
            _ => None,
        });
        let (handle, state) = opened.await?;
        Ok(session.opened(handle, state, ""))
    }

    pub async fn open(self: Rc<Self>, node: u64, flags: u32) -> Answered<Answer> {
        let handle = self.node(node)?.handle;
        let (session, epoch) = self.session();
        let wide = self.widened(flags);
        let opened = self.open_handle(&session, handle, access_of(wide)).await;
        let (file, flags) = match opened {
            // Who may only write on the server writes whole pages, or fails.
            Err(EACCES) if wide != flags => {
                (self.open_handle(&session, handle, access_of(flags)).await?, flags)
            }
            opened => (opened?, wide),
        };
        let file = OpenFile::new(file, epoch, flags, self.unstable_of(handle));
        let metadata = self.metadata(handle).await?;
        let open_flags = self.open_flags(&file, node, &metadata);
        let handle = self.files.borrow_mut().insert(Rc::new(file)).to_bits();
        let mut message = Message::default();
        message.opened(handle, open_flags);
        Ok(Answer::Body(message.0))
    }

    /// The flags that a file is opened with on the server: a page cache that keeps writes reads
    /// the pages that are written in part, for those who only write, too.
    pub fn widened(&self, flags: u32) -> u32 {
        match (self.options.writeback, flags & O_ACCMODE) {
            (true, O_WRONLY) => flags & !O_ACCMODE | O_RDWR,
            _ => flags,
        }
    }

    /// What the kernel may do with its page cache of a file that was just opened.
    pub fn open_flags(&self, file: &OpenFile, node: u64, metadata: &Metadata) -> u32 {
        // Appends land where the server says, which the page cache does not know.
        let is_direct = self.options.direct_io
            || file.appends() && !self.options.local_append && !self.options.writeback;
        let mut nodes = self.nodes.borrow_mut();
        let before =
            nodes.get_mut(node).and_then(|node| node.cached_change.replace(metadata.change));
        if is_direct {
            return open::DIRECT_IO | open::PARALLEL_DIRECT_WRITES;
        }
        if before == Some(metadata.change) || self.options.writeback { open::KEEP_CACHE } else { 0 }
    }

    pub async fn release(
        self: Rc<Self>,
        node: u64,
        number: u64,
        how: u32,
        owner: u64,
    ) -> Answered<Answer> {
        if how & RELEASE_FLOCK_UNLOCK != 0 {
            self.release_owner(node, owner, true);
        }
        self.release_owners_by(number);
        let removed = self.files.borrow_mut().remove(Key::from_bits(number));
        let Some(open) = removed else { return Ok(Answer::Done) };
        let (_, epoch) = self.session();
        let file = open.in_session(epoch);
        drop(open);
        // What is under way has an open of its own; the last one closes.
        if let Some(file) = file.and_then(|file| Rc::try_unwrap(file).ok()) {
            let unstable = self.unstable_of(file.handle());
            if let Err(error) = file.close_async().await {
                // Whoever wanted to know has closed, and was told then; others who have the file
                // open are told when they ask.
                unstable.doubt(&error);
                tracing::debug!(error = %error.in_full(), "closing");
            }
        }
        Ok(Answer::Done)
    }

    /// CLOSE of a descriptor: what write-back came to is told now, and again by an `fsync` of
    /// another descriptor of this open.
    pub async fn flush(self: Rc<Self>, node: u64, number: u64, owner: u64) -> Answered<Answer> {
        let told = self.flushed(number).await;
        self.release_owner(node, owner, false);
        told.map(|()| Answer::Done)
    }

    async fn flushed(self: &Rc<Self>, number: u64) -> Answered<()> {
        let open = self.file(number)?;
        if open.is_dirty.take() {
            let is_there = match open.unstable.is_doubtful() {
                // A close has no verifier, which alone shows what became of what was written.
                true => self.commit(&open).await,
                false => self.hand_over(&open.unstable).await,
            };
            open.learn(is_there)?;
        }
        open.tell_loss()
    }

    /// Has the server hand what was written to its file system. A loss that it tells then is
    /// noted, and no error here.
    pub async fn hand_over(self: &Rc<Self>, unstable: &Unstable) -> Answered<()> {
        for _ in 0..COMMITS_MAX {
            self.mended(unstable).await;
            let (mark, life) = (unstable.mark(), self.server_life());
            // The end of an open does it. This one's goes on: other descriptors may share it.
            let (session, _) = self.session();
            let file = self.open_handle(&session, unstable.handle(), ShareAccess::Write).await?;
            match file.close_async().await {
                Err(error) if unstable.lose(&error) => return Ok(()),
                closed => closed.map_err(|error| of_data(self.failed(&error)))?,
            }
            // A server that has restarted meanwhile may have had nothing to hand over yet. A CLOSE
            // whose answer was lost counts as carried out before it is known what has restarted.
            let is_same = life.is_some() && life == self.server_life();
            if is_same && !unstable.is_mending() {
                unstable.handed_over(mark);
                break;
            }
        }
        Ok(())
    }

    pub async fn fsync(self: Rc<Self>, number: u64) -> Answered<Answer> {
        let open = self.file(number)?;
        open.is_dirty.set(false);
        open.learn(self.commit(&open).await)?;
        open.take_loss()?;
        Ok(Answer::Done)
    }

    /// Makes all that was written stable, also what must be written again for that. A loss that
    /// the server tells then is noted, and no error here.
    async fn commit(self: &Rc<Self>, open: &Rc<OpenFile>) -> Answered<()> {
        let unstable = &open.unstable;
        for _ in 0..COMMITS_MAX {
            self.mended(unstable).await;
            let mark = unstable.mark();
            let file = self.current(open).await?;
            let committed = match file.commit_async().await {
                Err(error) if unstable.lose(&error) => return Ok(()),
                committed => committed.map_err(|error| of_data(self.failed(&error)))?,
            };
            let is_same = unstable.note(committed.verifier);
            if !is_same {
                self.mend(unstable);
            } else if !unstable.is_mending() {
                unstable.committed(mark);
                return Ok(());
            }
        }
        Err(unstable.reason().unwrap_or(EIO))
    }

    /// Names last when the server's file system has written its journal; there is no request
    /// for a directory alone.
    pub async fn fsyncdir(self: Rc<Self>, node: u64) -> Answered<Answer> {
        self.node(node)?;
        Ok(Answer::Done)
    }
}

/// The error number of a transfer. The kernel has judged who may do it when the file was opened:
/// a server that refuses it then has fenced this host out.
pub(crate) fn of_data(errno: i32) -> i32 {
    if errno == EACCES { EIO } else { errno }
}

/// What an open may do. The kernel reads pages of what it writes, so that nobody who writes only
/// writes; where the identity may not, the server says so, and the open is for writing alone.
fn access_of(flags: u32) -> ShareAccess {
    match flags & O_ACCMODE {
        O_RDONLY => ShareAccess::Read,
        O_WRONLY => ShareAccess::Write,
        _ => ShareAccess::Both,
    }
}

/// Commits that are tried while servers come and go.
const COMMITS_MAX: u32 = 8;
const O_ACCMODE: u32 = 3;
const O_RDONLY: u32 = 0;
const O_WRONLY: u32 = 1;
const O_RDWR: u32 = 2;
const O_APPEND: u32 = 0o2000;
const EIO: i32 = 5;
const EBADF: i32 = 9;
const EACCES: i32 = 13;
