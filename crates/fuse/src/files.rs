//! Open files.
//!
//! Invariant: a file that is open here is open on the server, so it exists as long as any process
//! has it open, even if its names are removed. A file opened in a session that has ended is opened
//! again by its handle before it is used.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use dafs_base::Key;
use dafs_client::{ClientError, File, Metadata, OpenOptions, Session};
use dafs_types::{DeleteDisposition, FileHandle, ShareAccess, ShareDeny};
use dafs_wire::messages::{Open, OpenCreation, OpenTarget};
use dafs_wire::{Path, Request, Response};

use crate::abi::{Message, RELEASE_FLOCK_UNLOCK, open};
use crate::engine::{Engine, ErrnoResult, Reply};
use crate::unstable::Unstable;

/// An open file of the kernel.
pub(crate) struct OpenFile {
    pub handle: FileHandle,
    pub flags: u32,
    access: ShareAccess,
    /// The current open on the server, with the epoch of the session that it belongs to.
    file: RefCell<(u32, Rc<File>)>,
    /// True if data was written since the latest check for write-back errors.
    pub is_dirty: Cell<bool>,
    /// The data of the file that a server restart may lose.
    pub unstable: Rc<Unstable>,
    /// The number of the most recent loss that an `fsync` has reported.
    known_loss: Cell<u64>,
}

impl OpenFile {
    pub(crate) fn new(file: File, epoch: u32, flags: u32, unstable: Rc<Unstable>) -> Self {
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

    /// True if writes go to the end of the file.
    pub(crate) fn appends(&self) -> bool {
        self.flags & O_APPEND != 0
    }

    /// Returns the open if it belongs to the session with this epoch.
    pub(crate) fn in_session(&self, epoch: u32) -> Option<Rc<File>> {
        let file = self.file.borrow();
        (file.0 == epoch).then(|| file.1.clone())
    }

    /// Notes the failure of a write through this open.
    pub(crate) fn note_failure(&self, error: &ClientError) {
        if self.unstable.note_failure(error) {
            self.is_dirty.set(true);
        }
    }

    /// Fails with the server's error of a write-back, if there is one. The server's error takes
    /// precedence over an error known here, because the server knows why data was lost, for example
    /// for lack of space. A loss that the server has reported was recorded before.
    fn prefer_server_error(&self, by_server: ErrnoResult<()>) -> ErrnoResult<()> {
        // Keep the file dirty, because the data may still be written back later.
        by_server.inspect_err(|_| self.is_dirty.set(true))
    }

    /// Fails with the error of a loss that was not reported through this open.
    fn report_loss(&self) -> ErrnoResult<()> {
        self.loss().map_or(Ok(()), |(_, errno)| Err(errno))
    }

    /// Fails with the error of a loss that was not reported through this open, and marks the loss
    /// as reported.
    fn report_loss_once(&self) -> ErrnoResult<()> {
        let Some((number, errno)) = self.loss() else { return Ok(()) };
        self.known_loss.set(number);
        Err(errno)
    }

    fn loss(&self) -> Option<(u64, i32)> {
        let writes = self.flags & O_ACCMODE != O_RDONLY;
        writes.then(|| self.unstable.report_loss(self.known_loss.get())).flatten()
    }
}

impl Engine {
    pub(crate) fn file(&self, number: u64) -> ErrnoResult<Rc<OpenFile>> {
        self.files.borrow().get(Key::from_bits(number)).cloned().ok_or(EBADF)
    }

    /// Returns the open of a file in the current session. Opens the file again if necessary.
    pub(crate) async fn current(self: &Rc<Self>, open: &Rc<OpenFile>) -> ErrnoResult<Rc<File>> {
        let (session, epoch) = self.session();
        if let Some(file) = open.in_session(epoch) {
            return Ok(file);
        }
        let file = Rc::new(self.open_handle(&session, open.handle, open.access).await?);
        *open.file.borrow_mut() = (epoch, file.clone());
        Ok(file)
    }

    /// Opens a file by its handle.
    pub(crate) async fn open_handle(
        self: &Rc<Self>,
        session: &Session,
        handle: FileHandle,
        access: ShareAccess,
    ) -> ErrnoResult<File> {
        let options = OpenOptions::read().access(access);
        let opened = session.open_handle_async(handle, "", &options).await;
        opened.map_err(|error| self.failed(&error))
    }

    /// Opens a file by its handle for a given open owner, with an OPEN of the name ".".
    pub(crate) async fn open_as(
        self: &Rc<Self>,
        session: &Session,
        handle: FileHandle,
        access: ShareAccess,
        owner: &[u8],
    ) -> ErrnoResult<File> {
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

    pub(crate) async fn open(self: Rc<Self>, node: u64, flags: u32) -> ErrnoResult<Reply> {
        let handle = self.node(node)?.handle;
        let (session, epoch) = self.session();
        let wide = self.widened(flags);
        let opened = self.open_handle(&session, handle, access_of(wide)).await;
        let (file, flags) = match opened {
            // Without read permission, the file is opened write-only, and writes of partial pages
            // fail.
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
        Ok(Reply::Body(message.0))
    }

    /// Returns the flags for the open on the server. With write-back caching, the kernel reads
    /// pages that are partly written, so write-only opens need read access, too.
    pub(crate) fn widened(&self, flags: u32) -> u32 {
        match (self.options.writeback, flags & O_ACCMODE) {
            (true, O_WRONLY) => flags & !O_ACCMODE | O_RDWR,
            _ => flags,
        }
    }

    /// Returns how the kernel may use its page cache for a file that was just opened.
    pub(crate) fn open_flags(&self, file: &OpenFile, node: u64, metadata: &Metadata) -> u32 {
        // The page cache must not serve appends, because only the server knows the end of the file.
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

    pub(crate) async fn release(
        self: Rc<Self>,
        node: u64,
        number: u64,
        how: u32,
        owner: u64,
    ) -> ErrnoResult<Reply> {
        if how & RELEASE_FLOCK_UNLOCK != 0 {
            self.release_owner(node, owner, true);
        }
        self.release_owners_by(number);
        let removed = self.files.borrow_mut().remove(Key::from_bits(number));
        let Some(open) = removed else { return Ok(Reply::Done) };
        let (_, epoch) = self.session();
        let file = open.in_session(epoch);
        drop(open);
        // Transfers in flight also hold the open; the last of them closes it.
        if let Some(file) = file.and_then(|file| Rc::try_unwrap(file).ok()) {
            let unstable = self.unstable_of(file.handle());
            if let Err(error) = file.close_async().await {
                // The process that closed the file gets the error from its close. Other processes
                // that have the file open get it from their next check.
                unstable.note_failure(&error);
                tracing::debug!(error = %error.in_full(), "closing");
            }
        }
        Ok(Reply::Done)
    }

    /// Serves the close of a descriptor. Reports write-back errors, which an `fsync` of another
    /// descriptor of this open reports again.
    pub(crate) async fn flush(
        self: Rc<Self>,
        node: u64,
        number: u64,
        owner: u64,
    ) -> ErrnoResult<Reply> {
        let told = self.flushed(number).await;
        self.release_owner(node, owner, false);
        told.map(|()| Reply::Done)
    }

    async fn flushed(self: &Rc<Self>, number: u64) -> ErrnoResult<()> {
        let open = self.file(number)?;
        if open.is_dirty.take() {
            let is_there = match open.unstable.is_doubtful() {
                // Commit, because the reply to a close has no write verifier, and only that shows
                // whether earlier data was lost.
                true => self.commit(&open).await,
                false => self.pass_on(&open.unstable).await,
            };
            open.prefer_server_error(is_there)?;
        }
        open.report_loss()
    }

    /// Makes the server pass written data to its file system. If the server reports a loss, the
    /// loss is recorded, and this call does not fail.
    pub(crate) async fn pass_on(self: &Rc<Self>, unstable: &Unstable) -> ErrnoResult<()> {
        for _ in 0..COMMITS_MAX {
            self.rewritten(unstable).await;
            let (mark, life) = (unstable.mark(), self.server_incarnation());
            // Use another open, because a CLOSE passes the data on, but other descriptors may share
            // this open.
            let (session, _) = self.session();
            let file = self.open_handle(&session, unstable.handle(), ShareAccess::Write).await?;
            match file.close_async().await {
                Err(error) if unstable.record_loss(&error) => return Ok(()),
                closed => closed.map_err(|error| data_errno(self.failed(&error)))?,
            }
            // Check for a restart: a restarted server may not have had the data yet. If the reply
            // to a CLOSE was lost, the CLOSE counts as executed before the restart is noticed.
            let is_same = life.is_some() && life == self.server_incarnation();
            if is_same && !unstable.is_rewriting() {
                unstable.passed_on(mark);
                break;
            }
        }
        Ok(())
    }

    pub(crate) async fn fsync(self: Rc<Self>, number: u64) -> ErrnoResult<Reply> {
        let open = self.file(number)?;
        open.is_dirty.set(false);
        open.prefer_server_error(self.commit(&open).await)?;
        open.report_loss_once()?;
        Ok(Reply::Done)
    }

    /// Flushes all written data to stable storage. Lost data is written again first. If the server
    /// reports a loss, the loss is recorded, and this call does not fail.
    async fn commit(self: &Rc<Self>, open: &Rc<OpenFile>) -> ErrnoResult<()> {
        let unstable = &open.unstable;
        for _ in 0..COMMITS_MAX {
            self.rewritten(unstable).await;
            let mark = unstable.mark();
            let file = self.current(open).await?;
            let committed = match file.commit_async().await {
                Err(error) if unstable.record_loss(&error) => return Ok(()),
                committed => committed.map_err(|error| data_errno(self.failed(&error)))?,
            };
            let is_same = unstable.note(committed.verifier);
            if !is_same {
                self.rewrite(unstable);
            } else if !unstable.is_rewriting() {
                unstable.committed(mark);
                return Ok(());
            }
        }
        Err(unstable.reason().unwrap_or(EIO))
    }

    /// Flushes names by committing the server's file system, since no request does this for a
    /// single directory.
    pub(crate) async fn fsyncdir(self: Rc<Self>, node: u64) -> ErrnoResult<Reply> {
        self.node(node)?;
        Ok(Reply::Done)
    }
}

/// Returns the error number of a transfer. The kernel checked permissions at the open, so if the
/// server refuses access now, it has fenced off this host.
pub(crate) fn data_errno(errno: i32) -> i32 {
    if errno == EACCES { EIO } else { errno }
}

/// Returns the access that an open needs. With write-back caching, the kernel reads the pages that
/// it writes, so write-only opens ask for both. If the server refuses that, the open is write-only.
fn access_of(flags: u32) -> ShareAccess {
    match flags & O_ACCMODE {
        O_RDONLY => ShareAccess::Read,
        O_WRONLY => ShareAccess::Write,
        _ => ShareAccess::Both,
    }
}

/// The maximum number of commit attempts while servers restart.
const COMMITS_MAX: u32 = 8;
const O_ACCMODE: u32 = 3;
const O_RDONLY: u32 = 0;
const O_WRONLY: u32 = 1;
const O_RDWR: u32 = 2;
const O_APPEND: u32 = 0o2000;
const EIO: i32 = 5;
const EBADF: i32 = 9;
const EACCES: i32 = 13;
