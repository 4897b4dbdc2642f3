//! Open files.
//!
//! Invariant: a file remembers the verifier of its unstable writes. A commit that returns a
//! different verifier reports lost data. A close without a commit also reports lost data if the
//! server has restarted since the writes.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use dafs_types::limits::APPEND_BYTES_MAX;
use dafs_types::{
    CacheHint, CachePattern, FileHandle, SetAttributes, Stability, StateId, Status, Verifier,
};
use dafs_wire::limits::PLAIN_ATTRIBUTE_BYTES_MAX;
use dafs_wire::messages::{AppendDirect, CacheHintRequest, Close, Open, OpenCreation, OpenTarget};
use dafs_wire::{Checksum, Path, Request, Response};

use crate::buffer::{Buffer, Slice};
use crate::device::Span;
use crate::direct::DirectFile;
use crate::error::{ClientError, Result};
use crate::groups::Group;
use crate::metadata::Metadata;
use crate::open_options::OpenOptions;
use crate::opens::Opened;
use crate::operation::{OperationId, Transferred};
use crate::path::{label, link_target, split_last, too_many_links};
use crate::refusal::{done, encode_set, failed};
use crate::result_sinks::{Destination, TransferTicket};
use crate::session::Session;
use crate::transfer::{TransferJob, TransferKind};

/// An open file. Dropping it closes the file and ignores errors; call [`File::close`] to get the
/// errors.
pub struct File {
    session: Session,
    opened: Rc<Opened>,
    path: String,
    /// The verifier of unstable writes that are not committed yet; `None` if there are no such
    /// writes.
    unstable: Cell<Option<Verifier>>,
    /// The registered memory through which the bytes of unregistered slices are copied.
    staging: RefCell<Option<Buffer>>,
    is_closed: Cell<bool>,
    /// The delegation that the server granted with the open.
    delegation: Cell<Option<StateId>>,
    /// The file descriptor for direct reads, which may be marked as unusable.
    pub(crate) direct: RefCell<Option<Rc<DirectFile>>>,
}

impl Session {
    /// Opens a file by its path, following symbolic links.
    ///
    /// # Errors
    /// Any error of the server, with the path.
    pub fn open(&self, path: impl AsRef<OsStr>, options: &OpenOptions) -> Result<File> {
        self.prepare_delegations();
        self.run(self.open_async(path.as_ref(), options))
    }

    /// Opens a file as [`Session::open`] does, as a future. The future sends each request after the
    /// reply to the previous one. The server grants a delegation only if
    /// [`Session::prepare_delegations`] was called before.
    ///
    /// # Errors
    /// The errors of [`Session::open`].
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
            here = link_target(split_last(&here).0, text);
        }
        Err(too_many_links(path))
    }

    /// Creates a file without a name, in the file system that contains `directory`. The file exists
    /// until it is closed.
    ///
    /// # Errors
    /// Any error of the server.
    pub fn create_unlinked(
        &self,
        directory: impl AsRef<OsStr>,
        options: &OpenOptions,
    ) -> Result<File> {
        self.run(self.create_unlinked_async(directory.as_ref(), options))
    }

    /// Creates a file without a name as [`Session::create_unlinked`] does, as a future. The future
    /// sends each request after the reply to the previous one.
    ///
    /// # Errors
    /// The errors of [`Session::create_unlinked`].
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

    /// Opens a file by its name in the directory with the given handle, which avoids resolving a
    /// path. `path` is used in error messages only. A symbolic link is not followed.
    ///
    /// # Errors
    /// Any error of the server, with the path.
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

    /// Opens a file by its handle, even if the file was renamed or its name was removed. `path` is
    /// used in error messages only. Servers of other implementations may refuse this with INVAL
    /// (`docs/spec/gaps.md`, "Opens").
    ///
    /// # Errors
    /// INVAL for options that create files; SYMLINK for a symbolic link; any other error of the
    /// server.
    pub fn open_handle(
        &self,
        handle: FileHandle,
        path: impl AsRef<OsStr>,
        options: &OpenOptions,
    ) -> Result<File> {
        self.prepare_delegations();
        self.run(self.open_handle_async(handle, path.as_ref(), options))
    }

    /// Opens a file as [`Session::open_handle`] does, as a future. The request is sent immediately.
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

    /// Returns a file for reading by its handle, without opening it on the server. This suits a few
    /// reads: the server checks permissions and share reservations at each read.
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

    /// Builds an OPEN request and passes it, or the error that prevented building it, to `send`.
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

    /// Returns a new open owner. Each open has its own owner, so that each has its own state id.
    fn next_owner(&self) -> u64 {
        self.shared.borrow_mut().sinks.next_id().0
    }

    /// Submits a read from byte `offset` that fills the slice, which may be device memory. Do not
    /// access the slice until the completion arrives. A read of more than 16 MiB, the most that a
    /// server moves in one request, is sent as several consecutive requests.
    ///
    /// # Errors
    /// If the session has ended or the group was released; [`ClientError::Foreign`] if the file
    /// belongs to another session or the buffer to another client.
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

    /// Submits an unstable write of the whole slice at byte `offset`.
    ///
    /// # Errors
    /// The errors of [`Session::submit_read`].
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

    /// Submits a commit of all data written to the file.
    ///
    /// # Errors
    /// The errors of [`Session::submit_read`].
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
    /// Returns the session in which the file is open.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns true if the file was opened in this session.
    pub(crate) fn is_of(&self, session: &Session) -> bool {
        self.session.key == session.key && Rc::ptr_eq(&self.session.shared, &session.shared)
    }

    /// Returns the path by which the file was opened.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the file's handle, which names it in requests.
    #[must_use]
    pub fn handle(&self) -> FileHandle {
        self.opened.handle
    }

    #[inline]
    fn job(&self, kind: TransferKind, offset: u64, length: u32) -> TransferJob {
        let file = self.opened.clone();
        TransferJob { file, offset, kind, length, hint: CacheHint::default() }
    }

    /// Submits one transfer whose result is delivered to the returned ticket.
    pub(crate) fn start(
        &self,
        kind: TransferKind,
        offset: u64,
        slice: Option<Slice>,
    ) -> Result<(OperationId, TransferTicket)> {
        let length = slice.as_ref().map_or(0, |slice| slice.length);
        let job = self.job(kind, offset, length);
        let ticket = self.session.shared.borrow_mut().sinks.transfers.make();
        match self.session.submit(self, job, slice, Destination::Waiter(ticket), 0) {
            Ok(id) => Ok((id, ticket)),
            Err(error) => {
                self.session.shared.borrow_mut().sinks.transfers.withdraw(ticket);
                Err(error)
            }
        }
    }

    /// Submits one transfer and waits for its result.
    fn run(&self, kind: TransferKind, offset: u64, slice: Option<Slice>) -> Result<Transferred> {
        let (_, ticket) = self.start(kind, offset, slice)?;
        let shared = &self.session.shared;
        let result = shared.turn_until(self.session.key, |core| core.sinks.transfers.take(ticket));
        result.map_err(|error| self.name(error))
    }

    /// Adds the file's path to an error that names only a procedure.
    pub(crate) fn name(&self, error: ClientError) -> ClientError {
        match error {
            ClientError::Status { what, status } => {
                ClientError::Status { what: format!("{what} {}", self.path), status }
            }
            other => other,
        }
    }

    /// Reads from byte `offset` into a registered buffer or device memory. The result is shorter
    /// than the slice only at the end of the file.
    ///
    /// # Errors
    /// Any error of the server, with the path.
    pub fn read_into(&self, offset: u64, slice: impl Into<Span>) -> Result<Transferred> {
        let Span(slice) = slice.into();
        let wanted = slice.length;
        let mut done = self.run(TransferKind::Read, offset, Some(slice.clone()))?;
        // A server may move fewer bytes than were requested (draft 6.5.27).
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

    /// Writes the whole slice of a registered buffer or device memory at byte `offset`, unstable:
    /// call [`File::commit`] to make the data durable.
    ///
    /// # Errors
    /// Any error of the server, with the path; [`ClientError::DataLost`] if earlier unstable data
    /// is known to be lost.
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
            what: format!("{what} of {} moved no bytes before the end of the file", self.path),
        }
    }

    /// Records the verifier of an unstable write that was submitted separately, so that later
    /// commits can detect lost data.
    ///
    /// # Errors
    /// [`ClientError::DataLost`] if `verifier` differs from the verifier of earlier writes.
    pub fn note_unstable(&self, verifier: Verifier) -> Result<()> {
        match self.unstable.replace(Some(verifier)) {
            Some(before) if before != verifier => {
                Err(ClientError::DataLost { what: self.path.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Reads from byte `offset` into an unregistered slice. The data is copied through registered
    /// memory, or is placed directly if [`crate::ClientConfig::own_memory`] allows it. Returns the
    /// number of bytes read, which is less than the slice's length only at the end of the file.
    ///
    /// # Errors
    /// The errors of [`File::read_into`].
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

    /// Reads into the beginning of `bytes`. Returns the number of bytes requested and the number of
    /// bytes read.
    fn read_staged(&self, bytes: &mut [u8], offset: u64) -> Result<(usize, usize)> {
        let (slice, buffer) = self.stage(bytes.len())?;
        let length = slice.length as usize;
        let moved = self.read_into(offset, slice)?.length as usize;
        buffer.read(0, &mut bytes[..moved]);
        Ok((length, moved))
    }

    /// Writes a whole unregistered slice at byte `offset`, unstable. The data is copied through
    /// registered memory, or is taken directly if [`crate::ClientConfig::own_memory`] allows it.
    ///
    /// # Errors
    /// The errors of [`File::write_from`].
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

    /// Appends `bytes` to the file on stable storage: either all of them or none. Returns the
    /// offset of the first appended byte.
    ///
    /// # Errors
    /// WRITE_TOOBIG if there are more bytes than the server's MAX_APPEND; any other error of the
    /// server.
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

    /// Flushes all data written to the file to stable storage.
    ///
    /// # Errors
    /// [`ClientError::DataLost`] if the server has lost unstable data; any other error of the
    /// server.
    pub fn commit(&self) -> Result<()> {
        let done = self.run(TransferKind::Commit, 0, None)?;
        self.note_committed(done.verifier)
    }

    /// Records the verifier of a commit that was submitted separately or as a future.
    ///
    /// # Errors
    /// [`ClientError::DataLost`] if `verifier` differs from the verifier of earlier writes.
    pub fn note_committed(&self, verifier: Verifier) -> Result<()> {
        let before = self.unstable.take();
        // A write whose reply arrived after the commit was sent may still be lost.
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

    /// Returns the file's current attributes.
    ///
    /// # Errors
    /// Any error of the server, with the path.
    pub fn metadata(&self) -> Result<Metadata> {
        match self.kept_metadata() {
            Some(kept) => Ok(kept),
            None => self.fetch_metadata(),
        }
    }

    /// Sets attributes of the file, including its size.
    ///
    /// # Errors
    /// Any error of the server, with the path.
    pub fn set_attributes(&self, wanted: &SetAttributes) -> Result<()> {
        self.session.run(self.set_attributes_async(wanted))
    }

    /// Sets attributes as [`File::set_attributes`] does, as a future. The request is sent
    /// immediately.
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

    /// Truncates or extends the file to `size` bytes.
    ///
    /// # Errors
    /// Any error of the server, with the path.
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.set_attributes(&SetAttributes { size: Some(size), ..SetAttributes::default() })
    }

    /// Sends a hint about the expected use of a range of bytes, so that the server can read ahead
    /// or cache it.
    ///
    /// # Errors
    /// Any error of the server, with the path.
    pub fn hint(
        &self,
        offset: u64,
        length: u32,
        pattern: CachePattern,
        hint: CacheHint,
    ) -> Result<()> {
        self.session.run(self.hint_async(offset, length, pattern, hint))
    }

    /// Sends a hint as [`File::hint`] does, as a future. The request is sent immediately.
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

    /// Closes the file. Afterwards local processes on the server see all written data.
    ///
    /// # Errors
    /// Any error of the server, with the path; [`ClientError::DataLost`] if data was written and
    /// not committed before the server restarted.
    pub fn close(self) -> Result<()> {
        let session = self.session.clone();
        session.run(self.close_async())
    }

    /// Returns the state id of this open, for requests that the caller builds. A restarted server
    /// gives the open a new state id, but requests with an earlier state id are still accepted
    /// until the file is closed.
    #[must_use]
    pub fn state(&self) -> StateId {
        self.opened.state()
    }

    pub(crate) fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Returns the error for a status with which the server refused a request on this file.
    pub(crate) fn refused(&self, status: Status) -> ClientError {
        self.opened.refusal(&self.path, status)
    }

    /// Fails if a restart of the server has lost uncommitted data.
    pub(crate) fn lost_data(&self) -> Result<()> {
        match self.opened.take_lost_data() {
            true => Err(ClientError::DataLost { what: self.path.clone() }),
            false => Ok(()),
        }
    }

    /// Marks the file as closed. Returns true if the file was already marked as closed.
    pub(crate) fn note_closed(&self) -> bool {
        let was_closed = self.is_closed.replace(true);
        if !was_closed {
            self.let_go();
        }
        was_closed
    }

    /// Returns the delegation that the server granted with the open, even if it has been returned
    /// since.
    #[inline]
    pub(crate) fn delegation(&self) -> Option<StateId> {
        self.delegation.get()
    }

    pub(crate) fn note_delegation(&self, delegation: Option<StateId>) {
        self.delegation.set(delegation);
    }

    /// Returns a slice of up to `wanted` bytes of registered memory, and the buffer that contains
    /// the slice.
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
        // Errors of this CLOSE are ignored; callers that need them call `close` instead of dropping
        // the file.
        let request = Request::Close(Close { file: self.handle(), state: self.state() });
        let _ = self.session.shared.borrow_mut().send_ignoring_reply(self.session.key, &request);
    }
}

const LINKS_MAX: u32 = 40;

const STAGING_BYTES_MIN: usize = 64 << 10;

const STAGING_BYTES_MAX: usize = 4 << 20;
