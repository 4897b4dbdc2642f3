//! Open files.
//!
//! Invariant: unstable writes are remembered by the verifier they came with, so that a
//! commit that finds another one reports that data was lost; so does a close without a
//! commit, behind a restart of the server.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use dafs_types::limits::APPEND_BYTES_MAX;
use dafs_types::{
    CacheHint, CachePattern, DeleteDisposition, FileHandle, SetAttributes, ShareAccess, ShareDeny,
    ShareKey, Stability, StateId, Status, Verifier,
};
use dafs_wire::limits::PLAIN_ATTRIBUTE_BYTES_MAX;
use dafs_wire::messages::{AppendDirect, CacheHintRequest, Close, Open, OpenCreation, OpenTarget};
use dafs_wire::{Checksum, Path, Request, Response};

use crate::buffer::{Buffer, Slice};
use crate::device::Span;
use crate::direct::DirectFile;
use crate::ends::{Destination, TransferTicket};
use crate::error::{ClientError, Result};
use crate::groups::Group;
use crate::metadata::Metadata;
use crate::opens::Opened;
use crate::operation::{OperationId, Transferred};
use crate::path::{beside, label, split_last, too_many_links};
use crate::refusal::{done, encode_set, failed};
use crate::session::Session;
use crate::transfer::{TransferJob, TransferKind};

/// How a file is opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// What this open may do.
    pub access: ShareAccess,
    /// What it keeps others from doing.
    pub deny: ShareDeny,
    /// Make the file if it is not there.
    pub create: bool,
    /// It must not be there.
    pub create_new: bool,
    /// Cut it to nothing.
    pub truncate: bool,
    /// Mode of a new file.
    pub mode: u32,
    /// User and group that a new file is to belong to, if they are not those of whom the session
    /// acts for: the superuser may name any, others a group of theirs.
    pub owner: Option<(u32, u32)>,
    /// Key that all opens must show.
    pub key: Option<ShareKey>,
    /// Whether others may remove its name meanwhile.
    pub delete_disposition: DeleteDisposition,
}

impl OpenOptions {
    /// For reading.
    #[must_use]
    pub fn read() -> Self {
        Self {
            access: ShareAccess::Read,
            deny: ShareDeny::None,
            create: false,
            create_new: false,
            truncate: false,
            mode: 0o644,
            owner: None,
            key: None,
            delete_disposition: DeleteDisposition::DontCare,
        }
    }

    /// For reading and writing, made if it is not there.
    #[must_use]
    pub fn write() -> Self {
        Self { access: ShareAccess::Both, create: true, ..Self::read() }
    }

    fn creates(&self) -> bool {
        self.create || self.create_new
    }

    /// Whether the size must be set after the open, since OPEN without creation carries
    /// no attributes.
    pub(crate) fn truncates_later(&self) -> bool {
        self.truncate && !self.creates()
    }
}

/// An open file. Dropping it closes it without a word; [`File::close`] tells errors.
pub struct File {
    session: Session,
    opened: Rc<Opened>,
    path: String,
    /// Verifier of unstable writes not yet committed.
    unstable: Cell<Option<Verifier>>,
    /// Registered memory for plain slices.
    staging: RefCell<Option<Buffer>>,
    is_closed: Cell<bool>,
    /// The delegation that its open has brought.
    delegation: Cell<Option<StateId>>,
    /// The file itself, which may be over.
    pub(crate) direct: RefCell<Option<Rc<DirectFile>>>,
}

impl Session {
    /// Opens a file by path, following symbolic links.
    ///
    /// # Errors
    /// As the server says, with the path.
    pub fn open(&self, path: impl AsRef<OsStr>, options: &OpenOptions) -> Result<File> {
        self.prepare_delegations();
        self.run(self.open_async(path.as_ref(), options))
    }

    /// The same, by round trips of which each waits for the one before. What it opens has a
    /// delegation only behind [`Session::prepare_delegations`].
    ///
    /// # Errors
    /// As [`Session::open`].
    pub async fn open_async<P>(&self, path: &P, options: &OpenOptions) -> Result<File>
    where
        P: AsRef<OsStr> + ?Sized,
    {
        let path = path.as_ref();
        if path.is_empty() {
            return Err(failed(path, Status::Inval));
        }
        let mut here = path.to_owned();
        for _ in 0..=LINKS_MAX {
            let parent = self.resolve_parent_async(&here).await?;
            if matches!(parent.name.as_bytes(), b"" | b"." | b"..") {
                self.resolve_async(&here, true).await?;
                let status = if options.create_new { Status::Exist } else { Status::IsDir };
                return Err(failed(path, status));
            }
            let opened = self.open_in_async(parent.directory, &parent.name, path, options).await;
            if !opened.as_ref().is_err_and(|error| error.status() == Some(Status::Symlink)) {
                return opened;
            }
            let link = self.resolve_async(&here, false).await?;
            let text = self.read_link_async(link, path).await?;
            here = beside(split_last(&here).0, text);
        }
        Err(too_many_links(path))
    }

    /// Makes a file without a name, in the file system of a directory. It lives while
    /// it is open.
    ///
    /// # Errors
    /// As the server says.
    pub fn create_unlinked(
        &self,
        directory: impl AsRef<OsStr>,
        options: &OpenOptions,
    ) -> Result<File> {
        self.run(self.create_unlinked_async(directory.as_ref(), options))
    }

    /// The same, by round trips of which each waits for the one before.
    ///
    /// # Errors
    /// As [`Session::create_unlinked`].
    pub async fn create_unlinked_async<P>(
        &self,
        directory: &P,
        options: &OpenOptions,
    ) -> Result<File>
    where
        P: AsRef<OsStr> + ?Sized,
    {
        let directory = directory.as_ref();
        let handle = self.resolve_async(directory, true).await?;
        let target = OpenTarget::CreateUnlinked { directory: handle };
        self.open_target(Ok(target), directory, options).await
    }

    /// Opens a file by its name in a directory that is known by handle, which saves the
    /// way there. `path` is for messages. A symbolic link is not followed.
    ///
    /// # Errors
    /// As the server says, with the path.
    pub fn open_in(
        &self,
        directory: FileHandle,
        name: impl AsRef<OsStr>,
        path: impl AsRef<OsStr>,
        options: &OpenOptions,
    ) -> Result<File> {
        self.prepare_delegations();
        self.run(self.open_in_async(directory, name.as_ref(), path.as_ref(), options))
    }

    /// Opens a file that is known by its handle, whatever its name is by now, if it has one still.
    /// `path` is for messages. A server of another make may refuse it with INVAL
    /// (`docs/spec/gaps.md`, "Opens").
    ///
    /// # Errors
    /// INVAL for options that make files; SYMLINK for a symbolic link; as the server says.
    pub fn open_handle(
        &self,
        handle: FileHandle,
        path: impl AsRef<OsStr>,
        options: &OpenOptions,
    ) -> Result<File> {
        self.prepare_delegations();
        self.run(self.open_handle_async(handle, path.as_ref(), options))
    }

    /// The same; under way at once.
    pub fn open_handle_async<'s, P>(
        &'s self,
        handle: FileHandle,
        path: &'s P,
        options: &OpenOptions,
    ) -> impl Future<Output = Result<File>> + use<'s, P>
    where
        P: AsRef<OsStr> + ?Sized,
    {
        let path = path.as_ref();
        let target = match options.creates() {
            true => Err(failed(path, Status::Inval)),
            false => Ok(OpenTarget::Null { directory: handle, path: Path::new(&["."]) }),
        };
        self.open_target(target, path, options)
    }

    /// A file to be read by its handle, without an open: fit for a few reads. The server
    /// checks permission and share reservations at each.
    #[must_use]
    pub fn reader(&self, handle: FileHandle, path: impl AsRef<OsStr>) -> File {
        let file = self.file(handle, StateId::ANONYMOUS, path.as_ref());
        file.is_closed.set(true);
        file
    }

    pub(crate) fn file(&self, handle: FileHandle, state: StateId, path: &OsStr) -> File {
        let opened = self.shared.borrow().sessions[self.key].opened(handle, state);
        File {
            session: self.clone(),
            opened,
            path: label(path).into_owned(),
            unstable: Cell::new(None),
            staging: RefCell::new(None),
            is_closed: Cell::new(false),
            delegation: Cell::new(None),
            direct: RefCell::new(None),
        }
    }

    /// Puts an OPEN together, if it can be, and has it sent.
    pub(crate) fn with_open<T>(
        &self,
        target: OpenTarget<'_>,
        path: &OsStr,
        options: &OpenOptions,
        send: impl FnOnce(Result<&Request<'_>>) -> T,
    ) -> T {
        let mut buffer;
        let creation = if options.creates() {
            let wanted = SetAttributes {
                mode: Some(self.masked(options.mode)),
                size: options.truncate.then_some(0),
                owner: options.owner.map(|(user, _)| user.to_string()),
                owner_group: options.owner.map(|(_, group)| group.to_string()),
                ..SetAttributes::default()
            };
            buffer = [0; PLAIN_ATTRIBUTE_BYTES_MAX];
            let block = match encode_set(&wanted, &mut buffer, path) {
                Ok(block) => block,
                Err(error) => return send(Err(error)),
            };
            if options.create_new {
                OpenCreation::Guarded(block)
            } else {
                OpenCreation::Unchecked(block)
            }
        } else {
            OpenCreation::NoCreate
        };
        let owner = self.next_owner();
        send(Ok(&Request::Open(Open {
            target,
            creation,
            delete_disposition: options.delete_disposition,
            owner: &owner.to_ne_bytes(),
            access: options.access,
            deny: options.deny,
            key: options.key,
        })))
    }

    /// Every open has an owner of its own, so that each has a state of its own.
    fn next_owner(&self) -> u64 {
        self.shared.borrow_mut().ends.next_id().0
    }

    /// Submits a read of the slice's length at `offset`, into a buffer or device memory. The
    /// slice belongs to the transport until the completion. More than a server moves at once
    /// (16 MiB) goes as several requests, one behind the other.
    ///
    /// # Errors
    /// If the session has ended or the group was released; [`ClientError::Foreign`] if
    /// the file is of another session or the buffer of another client.
    #[inline]
    pub fn submit_read(
        &self,
        file: &File,
        offset: u64,
        slice: impl Into<Span>,
        group: Group,
        context: u64,
    ) -> Result<OperationId> {
        let Span(slice) = slice.into();
        let job = file.job(TransferKind::Read, offset, slice.length);
        self.submit(file, job, Some(slice), Destination::Group(group), context)
    }

    /// Submits a write of the slice at `offset`.
    ///
    /// # Errors
    /// As [`Session::submit_read`].
    #[inline]
    pub fn submit_write(
        &self,
        file: &File,
        offset: u64,
        slice: impl Into<Span>,
        stability: Stability,
        group: Group,
        context: u64,
    ) -> Result<OperationId> {
        let Span(slice) = slice.into();
        let job = file.job(TransferKind::Write(stability), offset, slice.length);
        self.submit(file, job, Some(slice), Destination::Group(group), context)
    }

    /// Submits a commit of everything written to the file.
    ///
    /// # Errors
    /// As [`Session::submit_read`].
    pub fn submit_commit(&self, file: &File, group: Group, context: u64) -> Result<OperationId> {
        let job = file.job(TransferKind::Commit, 0, 0);
        self.submit(file, job, None, Destination::Group(group), context)
    }

    #[inline]
    fn submit(
        &self,
        file: &File,
        job: TransferJob,
        slice: Option<Slice>,
        destination: Destination,
        context: u64,
    ) -> Result<OperationId> {
        let is_ours = file.is_of(self)
            && slice.as_ref().is_none_or(|slice| slice.buffer.belongs_to(&self.shared));
        if !is_ours {
            return Err(ClientError::Foreign { what: file.path.clone() });
        }
        self.shared.borrow_mut().submit(self.key, job, slice, destination, context)
    }
}

impl File {
    /// The session it is open in.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Whether it was opened in this session.
    pub(crate) fn is_of(&self, session: &Session) -> bool {
        self.session.key == session.key && Rc::ptr_eq(&self.session.shared, &session.shared)
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its handle.
    #[must_use]
    pub fn handle(&self) -> FileHandle {
        self.opened.handle
    }

    #[inline]
    fn job(&self, kind: TransferKind, offset: u64, length: u32) -> TransferJob {
        let file = self.opened.clone();
        TransferJob { file, offset, kind, length, hint: CacheHint::default() }
    }

    /// Submits one transfer whose end only the holder of the ticket looks for.
    pub(crate) fn start(
        &self,
        kind: TransferKind,
        offset: u64,
        slice: Option<Slice>,
    ) -> Result<(OperationId, TransferTicket)> {
        let length = slice.as_ref().map_or(0, |slice| slice.length);
        let job = self.job(kind, offset, length);
        let ticket = self.session.shared.borrow_mut().ends.transfers.make();
        match self.session.submit(self, job, slice, Destination::Waiter(ticket), 0) {
            Ok(id) => Ok((id, ticket)),
            Err(error) => {
                self.session.shared.borrow_mut().ends.transfers.withdraw(ticket);
                Err(error)
            }
        }
    }

    /// Submits one transfer and waits for it.
    fn run(&self, kind: TransferKind, offset: u64, slice: Option<Slice>) -> Result<Transferred> {
        let (_, ticket) = self.start(kind, offset, slice)?;
        let shared = &self.session.shared;
        let result = shared.turn_until(self.session.key, |core| core.ends.transfers.take(ticket));
        result.map_err(|error| self.name(error))
    }

    /// Puts the path into an error that only names a procedure.
    pub(crate) fn name(&self, error: ClientError) -> ClientError {
        match error {
            ClientError::Status { what, status } => {
                ClientError::Status { what: format!("{what} {}", self.path), status }
            }
            other => other,
        }
    }

    /// Reads into a registered buffer, or device memory. Returns what was read: fewer bytes
    /// than the slice has only at the end of the file.
    ///
    /// # Errors
    /// As the server says, with the path.
    pub fn read_into(&self, offset: u64, slice: impl Into<Span>) -> Result<Transferred> {
        let Span(slice) = slice.into();
        let wanted = slice.length;
        let mut done = self.run(TransferKind::Read, offset, Some(slice.clone()))?;
        // A server may move less than was asked for (draft 6.5.27).
        while done.length < wanted && !done.end_of_file {
            let at = offset.saturating_add(u64::from(done.length));
            let more = self.run(TransferKind::Read, at, Some(slice.behind(done.length)))?;
            if more.length == 0 && !more.end_of_file {
                return Err(self.no_progress("READ_DIRECT"));
            }
            done.length += more.length;
            done.end_of_file = more.end_of_file;
        }
        Ok(done)
    }

    /// Writes the whole slice of a registered buffer or device memory, unstable:
    /// [`File::commit`] makes it last.
    ///
    /// # Errors
    /// As the server says, with the path; [`ClientError::DataLost`] if data written
    /// before is known to be lost.
    pub fn write_from(&self, offset: u64, slice: impl Into<Span>) -> Result<Transferred> {
        let Span(slice) = slice.into();
        let kind = TransferKind::Write(Stability::Unstable);
        let wanted = slice.length;
        let mut done = self.run(kind, offset, Some(slice.clone()))?;
        self.note_unstable(done.verifier)?;
        while done.length < wanted {
            let at = offset.saturating_add(u64::from(done.length));
            let more = self.run(kind, at, Some(slice.behind(done.length)))?;
            self.note_unstable(more.verifier)?;
            if more.length == 0 {
                return Err(self.no_progress("WRITE"));
            }
            done.length += more.length;
        }
        Ok(done)
    }

    pub(crate) fn no_progress(&self, what: &str) -> ClientError {
        ClientError::Protocol {
            address: self.session.address().to_string(),
            what: format!("{what} of {} moved nothing, short of the file's end", self.path),
        }
    }

    /// Takes note of the verifier of an unstable write that was submitted by hand.
    ///
    /// # Errors
    /// [`ClientError::DataLost`] if it differs from that of earlier writes.
    pub fn note_unstable(&self, verifier: Verifier) -> Result<()> {
        match self.unstable.replace(Some(verifier)) {
            Some(before) if before != verifier => {
                Err(ClientError::DataLost { what: self.path.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Reads into a plain slice, through registered memory or straight
    /// ([`crate::ClientConfig::own_memory`]). Returns the bytes read, fewer only at the end of
    /// the file.
    ///
    /// # Errors
    /// As [`File::read_into`].
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize> {
        if let Some(read) = self.read_delegated(bytes, offset) {
            return read;
        }
        let mut done = 0;
        while done < bytes.len() {
            let at = offset.saturating_add(done as u64);
            let (length, moved) = match self.read_lent(&mut bytes[done..], at) {
                Some(read) => read?,
                None => self.read_staged(&mut bytes[done..], at)?,
            };
            done += moved;
            if moved < length {
                break;
            }
        }
        Ok(done)
    }

    /// Reads a piece from the beginning of `bytes`. What was wanted, and what was read.
    fn read_staged(&self, bytes: &mut [u8], offset: u64) -> Result<(usize, usize)> {
        let (slice, buffer) = self.stage(bytes.len())?;
        let length = slice.length as usize;
        let moved = self.read_into(offset, slice)?.length as usize;
        buffer.read(0, &mut bytes[..moved]);
        Ok((length, moved))
    }

    /// Writes a plain slice whole, as [`File::read_at`] reads; unstable.
    ///
    /// # Errors
    /// As [`File::write_from`].
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset.saturating_add(done as u64);
            if let Some(written) = self.write_lent(&bytes[done..], at) {
                done += written?;
                continue;
            }
            let (slice, buffer) = self.stage(bytes.len() - done)?;
            let length = slice.length as usize;
            buffer.write(0, &bytes[done..done + length]);
            done += self.write_from(at, slice)?.length as usize;
        }
        Ok(())
    }

    /// Appends to the file, all or nothing, as data that lasts. Returns the offset it
    /// was put at.
    ///
    /// # Errors
    /// As the server says; WRITE_TOOBIG beyond its MAX_APPEND.
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        if bytes.len() > APPEND_BYTES_MAX as usize {
            return Err(ClientError::Status {
                what: self.path.clone(),
                status: Status::WriteTooBig,
            });
        }
        let (slice, buffer) = self.stage_exactly(bytes.len())?;
        buffer.write(0, bytes);
        let checksums = {
            let core = self.session.shared.borrow();
            core.sessions[self.session.key].terms.checksums
        };
        let request = Request::AppendDirect(AppendDirect {
            file: self.handle(),
            state: self.state(),
            stability: Stability::DataSync,
            length: slice.length,
            hint: CacheHint::default(),
            checksum: if checksums { Checksum::of(bytes) } else { Checksum::NONE },
            buffer: slice.named(),
        });
        self.session.call(&request, |status, response| match response {
            Response::AppendDirect(result) | Response::AppendInline(result)
                if status == Status::Ok =>
            {
                Ok(result.offset)
            }
            _ => Err(self.refused(status)),
        })
    }

    /// Brings everything written to stable storage.
    ///
    /// # Errors
    /// [`ClientError::DataLost`] if the server lost unstable data meanwhile; otherwise as
    /// the server says.
    pub fn commit(&self) -> Result<()> {
        let done = self.run(TransferKind::Commit, 0, None)?;
        self.note_committed(done.verifier)
    }

    /// Takes note of the verifier of a commit that was submitted by hand, or as a future.
    ///
    /// # Errors
    /// [`ClientError::DataLost`] if it differs from that of the writes before it.
    pub fn note_committed(&self, verifier: Verifier) -> Result<()> {
        let before = self.unstable.take();
        // A write that was answered after the commit was sent may still be lost.
        if self.opened.has_unconfirmed() {
            self.unstable.set(Some(verifier));
        }
        match before {
            Some(before) if before != verifier => {
                Err(ClientError::DataLost { what: self.path.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Attributes now.
    ///
    /// # Errors
    /// As the server says, with the path.
    pub fn metadata(&self) -> Result<Metadata> {
        match self.kept_metadata() {
            Some(kept) => Ok(kept),
            None => self.fetch_metadata(),
        }
    }

    /// Sets attributes, the size among them.
    ///
    /// # Errors
    /// As the server says, with the path.
    pub fn set_attributes(&self, wanted: &SetAttributes) -> Result<()> {
        self.session.run(self.set_attributes_async(wanted))
    }

    /// The same; under way at once.
    pub fn set_attributes_async(
        &self,
        wanted: &SetAttributes,
    ) -> impl Future<Output = Result<()>> + use<'_> {
        let set = self.session.set_with(self.handle(), self.state(), wanted, self.path.as_ref());
        async move {
            set.await.map_err(|error| match error.status() {
                Some(status) => self.refused(status),
                None => error,
            })
        }
    }

    /// Cuts or extends the file.
    ///
    /// # Errors
    /// As the server says, with the path.
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.set_attributes(&SetAttributes { size: Some(size), ..SetAttributes::default() })
    }

    /// Tells the server what use is expected of a range.
    ///
    /// # Errors
    /// As the server says, with the path.
    pub fn hint(
        &self,
        offset: u64,
        length: u32,
        pattern: CachePattern,
        hint: CacheHint,
    ) -> Result<()> {
        self.session.run(self.hint_async(offset, length, pattern, hint))
    }

    /// The same; under way at once.
    pub fn hint_async(
        &self,
        offset: u64,
        length: u32,
        pattern: CachePattern,
        hint: CacheHint,
    ) -> impl Future<Output = Result<()>> + '_ {
        let file = self.handle();
        let request = Request::CacheHint(CacheHintRequest { file, offset, length, pattern, hint });
        self.session.ask(&request, |status, _| done(&self.path, status))
    }

    /// Closes the file: local processes on the server see what was written.
    ///
    /// # Errors
    /// As the server says, with the path; [`ClientError::DataLost`] if data was written
    /// and not committed before the server restarted.
    pub fn close(self) -> Result<()> {
        let session = self.session.clone();
        session.run(self.close_async())
    }

    /// Names this open in requests of the caller's own. A server that restarts gives it
    /// another; requests with a former one are understood as long as the file is open.
    #[must_use]
    pub fn state(&self) -> StateId {
        self.opened.state()
    }

    pub(crate) fn opened(&self) -> &Opened {
        &self.opened
    }

    /// What the server's refusal means.
    pub(crate) fn refused(&self, status: Status) -> ClientError {
        self.opened.refusal(&self.path, status)
    }

    /// Whether a restart has lost what was written and not committed.
    pub(crate) fn lost_data(&self) -> Result<()> {
        match self.opened.take_lost_data() {
            true => Err(ClientError::DataLost { what: self.path.clone() }),
            false => Ok(()),
        }
    }

    /// From now on it counts as closed. True if it did before.
    pub(crate) fn note_closed(&self) -> bool {
        let was_closed = self.is_closed.replace(true);
        if !was_closed {
            self.let_go();
        }
        was_closed
    }

    /// The delegation that its open has brought, held or not.
    #[inline]
    pub(crate) fn delegation(&self) -> Option<StateId> {
        self.delegation.get()
    }

    pub(crate) fn note_delegation(&self, delegation: Option<StateId>) {
        self.delegation.set(delegation);
    }

    /// A slice of registered memory for up to `wanted` bytes, and its buffer.
    fn stage(&self, wanted: usize) -> Result<(Slice, Buffer)> {
        self.stage_exactly(wanted.clamp(1, STAGING_BYTES_MAX))
    }

    pub(crate) fn stage_exactly(&self, wanted: usize) -> Result<(Slice, Buffer)> {
        let mut staging = self.staging.borrow_mut();
        let buffer = match staging.as_ref().filter(|buffer| buffer.len() >= wanted) {
            Some(buffer) => buffer.clone(),
            None => {
                let length = wanted.next_power_of_two().max(STAGING_BYTES_MIN);
                let buffer = self.session.client().allocate(length)?;
                *staging = Some(buffer.clone());
                buffer
            }
        };
        Ok((buffer.slice(0, wanted)?, buffer))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.note_closed() {
            return;
        }
        // Who wants to know how it ends calls `close`.
        let request = Request::Close(Close { file: self.handle(), state: self.state() });
        let _ = self.session.shared.borrow_mut().cast(self.session.key, &request);
    }
}

const LINKS_MAX: u32 = 40;

const STAGING_BYTES_MIN: usize = 64 << 10;

const STAGING_BYTES_MAX: usize = 4 << 20;
