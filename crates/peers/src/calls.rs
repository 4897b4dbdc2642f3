//! Safe wrappers of the calls of libnfs.
//!
//! Invariants:
//! - The memory that libnfs may still access (a request's buffer, its result) is on the heap and
//!   owned by the pending request. It stays until libnfs has called back, which happens once for
//!   each request that libnfs has accepted.
//! - A handle is passed to libnfs only while it is open.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_int, c_void};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::PeerError;
use crate::library::{Context, Handle, Library, Stat};
use crate::nfs::{Attributes, Completion, FileId, Range, Reply, Request, Ticket};

/// A libnfs context with a mounted export.
pub(crate) struct Mount {
    library: Arc<Library>,
    context: Context,
    files: Vec<Option<Handle>>,
    ended: Arc<Mutex<VecDeque<Ended>>>,
    next: u64,
    under_way: usize,
}

// SAFETY: libnfs keeps no thread-local data for a context, but two threads must not use it at the
// same time. All uses here are by `&mut self`, or read numbers that no call changes.
unsafe impl Send for Mount {}

/// A request that libnfs holds: its address is passed to libnfs and comes back in the callback.
struct Pending {
    library: Arc<Library>,
    ended: Arc<Mutex<VecDeque<Ended>>>,
    ticket: Ticket,
    kind: Kind,
}

/// The kind of a pending request, with the data from which its result is built.
enum Kind {
    Plain(&'static str),
    Open,
    Read(Vec<u8>),
    Write(Vec<u8>),
    ReadTo(Range),
    /// A write from this memory, which is kept here because libnfs has its address.
    WriteFrom(#[allow(dead_code)] Range),
    Stat,
}

/// The result that a callback has left.
struct Ended {
    ticket: Ticket,
    result: Result<Outcome, PeerError>,
}

enum Outcome {
    Reply(Reply),
    /// The handle of a file that was opened in the context that made the callback.
    Handle(Handle),
}

// SAFETY: a handle is an address that only its context's owner passes to libnfs (see `Mount`).
unsafe impl Send for Outcome {}

impl Mount {
    /// Connects to an NFSv3 server whose ports are known, and mounts one of its exports.
    pub(crate) fn new(
        server: &CStr,
        export: &str,
        nfs_port: u16,
        mount_port: u16,
    ) -> Result<Self, PeerError> {
        let library = Library::load()?;
        // SAFETY: the function takes no arguments, and returns a new context or null.
        let context = unsafe { (library.nfs_init_context)() };
        if context.is_null() {
            return Err(failure("making a context", libc::ENOMEM, "out of memory".into()));
        }
        let (files, ended) = (Vec::new(), Arc::default());
        let mount = Self { library, context, files, ended, next: 0, under_way: 0 };
        let host = server.to_string_lossy();
        let url = format!("nfs://{host}{export}?nfsport={nfs_port}&mountport={mount_port}");
        let (url, export) = (text(&url)?, text(export)?);
        let library = &mount.library;
        // SAFETY: the context is valid, and the texts end with a NUL and are copied. The URL, from
        // which the context has copied ports and version, is freed once and not used afterwards.
        let status = unsafe {
            let parsed = (library.nfs_parse_url_dir)(context, url.as_ptr());
            if parsed.is_null() {
                return Err(mount.failed("reading the server's URL", -libc::EINVAL));
            }
            (library.nfs_destroy_url)(parsed);
            (library.nfs_set_autoreconnect)(context, 0);
            (library.nfs_mount)(context, server.as_ptr(), export.as_ptr())
        };
        if status == 0 { Ok(mount) } else { Err(mount.failed("mounting", status)) }
    }

    pub(crate) fn read_bytes_max(&self) -> u64 {
        // SAFETY: the context is valid; the number does not change after the mount.
        unsafe { (self.library.nfs_get_readmax)(self.context) }
    }

    pub(crate) fn write_bytes_max(&self) -> u64 {
        // SAFETY: the context is valid; the number does not change after the mount.
        unsafe { (self.library.nfs_get_writemax)(self.context) }
    }

    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    pub(crate) fn submit(&mut self, request: Request<'_>) -> Result<Ticket, PeerError> {
        match request {
            Request::Open { path, flags, mode } => {
                let (path, mode) = (text(path)?, mode as c_int);
                self.send("opening", Kind::Open, |library, context, pending| {
                    // SAFETY: `send` passes a valid context and request; the path ends with a NUL
                    // and is copied.
                    unsafe {
                        let path = path.as_ptr();
                        (library.nfs_open2_async)(context, path, flags, mode, called, pending)
                    }
                })
            }
            Request::Close(file) => self.close(file),
            Request::Read { file, offset, buffer } => self.read(file, offset, buffer),
            Request::Write { file, offset, buffer } => self.write(file, offset, buffer),
            Request::ReadTo { file, offset, to } => self.read_to(file, offset, to),
            Request::WriteFrom { file, offset, from } => self.write_from(file, offset, from),
            Request::Sync(file) => {
                let handle = self.handle(file)?;
                self.send_plain("syncing", |library, context, pending| {
                    // SAFETY: `send` passes a valid context and request; the handle is open.
                    unsafe { (library.nfs_fsync_async)(context, handle, called, pending) }
                })
            }
            Request::SetLength(file, length) => {
                let handle = self.handle(file)?;
                self.send_plain("setting a length", |library, context, pending| {
                    // SAFETY: `send` passes a valid context and request; the handle is open.
                    unsafe {
                        (library.nfs_ftruncate_async)(context, handle, length, called, pending)
                    }
                })
            }
            other => self.by_name(other),
        }
    }

    /// Sends a request that names its file by path.
    fn by_name(&mut self, request: Request<'_>) -> Result<Ticket, PeerError> {
        let (first, second) = match &request {
            Request::Truncate { path, .. }
            | Request::Unlink(path)
            | Request::MakeDirectory(path, _)
            | Request::RemoveDirectory(path)
            | Request::Stat(path) => (text(path)?, None),
            Request::Rename(from, to) => (text(from)?, Some(text(to)?)),
            other => unreachable!("{other:?} uses an open file"),
        };
        let path = first.as_ptr();
        match request {
            Request::Truncate { length, .. } => {
                self.send_plain("truncating", |library, context, pending| {
                    // SAFETY: `send` passes a valid context and request; paths end with a NUL and
                    // are copied.
                    unsafe { (library.nfs_truncate_async)(context, path, length, called, pending) }
                })
            }
            Request::Unlink(_) => {
                self.send_plain("removing a file", |library, context, pending| {
                    // SAFETY: `send` passes a valid context and request; paths end with a NUL and
                    // are copied.
                    unsafe { (library.nfs_unlink_async)(context, path, called, pending) }
                })
            }
            Request::MakeDirectory(_, mode) => {
                self.send_plain("making a directory", |library, context, pending| {
                    // SAFETY: `send` passes a valid context and request; paths end with a NUL and
                    // are copied.
                    unsafe {
                        (library.nfs_mkdir2_async)(context, path, mode as c_int, called, pending)
                    }
                })
            }
            Request::RemoveDirectory(_) => {
                self.send_plain("removing a directory", |library, context, pending| {
                    // SAFETY: `send` passes a valid context and request; paths end with a NUL and
                    // are copied.
                    unsafe { (library.nfs_rmdir_async)(context, path, called, pending) }
                })
            }
            Request::Rename(..) => {
                let to = second.as_ref().map_or(path, |to| to.as_ptr());
                self.send_plain("renaming", |library, context, pending| {
                    // SAFETY: `send` passes a valid context and request; paths end with a NUL and
                    // are copied.
                    unsafe { (library.nfs_rename_async)(context, path, to, called, pending) }
                })
            }
            _ => self.send("reading attributes", Kind::Stat, |library, context, pending| {
                // SAFETY: `send` passes a valid context and request; the path ends with a NUL and
                // is copied.
                unsafe { (library.nfs_stat64_async)(context, path, called, pending) }
            }),
        }
    }

    fn close(&mut self, file: FileId) -> Result<Ticket, PeerError> {
        let handle = self.handle(file)?;
        // From here on libnfs frees the handle, however the request ends.
        self.files[file.0] = None;
        self.send_plain("closing", |library, context, pending| {
            // SAFETY: `send` passes a valid context and request; the handle is open, and no id
            // refers to it any more.
            unsafe { (library.nfs_close_async)(context, handle, called, pending) }
        })
    }

    fn read(&mut self, file: FileId, offset: u64, buffer: Vec<u8>) -> Result<Ticket, PeerError> {
        let (handle, length) = (self.handle(file)?, buffer.len() as u64);
        if buffer.is_empty() {
            return Ok(self.end_at_once(buffer));
        }
        self.send("reading", Kind::Read(buffer), |library, context, pending| {
            // SAFETY: `send` passes a valid context and request; the handle is open. libnfs reads
            // into its own memory.
            unsafe { (library.nfs_pread_async)(context, handle, offset, length, called, pending) }
        })
    }

    fn write(&mut self, file: FileId, offset: u64, buffer: Vec<u8>) -> Result<Ticket, PeerError> {
        let handle = self.handle(file)?;
        if buffer.is_empty() {
            return Ok(self.end_at_once(buffer));
        }
        let (bytes, length) = (buffer.as_ptr(), buffer.len() as u64);
        self.send("writing", Kind::Write(buffer), |library, context, pending| {
            // SAFETY: `send` passes a valid context and request; the handle is open. The bytes are
            // on the heap, in the buffer that the pending request owns, and are not accessed until
            // the request has ended.
            unsafe {
                let bytes = bytes.cast();
                let (call, pending) = (library.nfs_pwrite_async, pending);
                call(context, handle, offset, length, bytes, called, pending)
            }
        })
    }

    fn read_to(&mut self, file: FileId, offset: u64, to: Range) -> Result<Ticket, PeerError> {
        let (handle, length) = (self.handle(file)?, to.length as u64);
        if length == 0 {
            return Ok(self.end_at_once(Vec::new()));
        }
        self.send("reading", Kind::ReadTo(to), |library, context, pending| {
            // SAFETY: `send` passes a valid context and request; the handle is open. libnfs reads
            // into its own memory.
            unsafe { (library.nfs_pread_async)(context, handle, offset, length, called, pending) }
        })
    }

    fn write_from(&mut self, file: FileId, offset: u64, from: Range) -> Result<Ticket, PeerError> {
        let (handle, length) = (self.handle(file)?, from.length as u64);
        if length == 0 {
            return Ok(self.end_at_once(Vec::new()));
        }
        let bytes = from.memory.pointer(from.start, from.length).cast_const();
        self.send("writing", Kind::WriteFrom(from), |library, context, pending| {
            // SAFETY: `send` passes a valid context and request; the handle is open. The bytes are
            // in memory that the pending request keeps alive. Only the kernel reads them, so
            // concurrent writes are harmless.
            unsafe {
                let bytes = bytes.cast();
                let (call, pending) = (library.nfs_pwrite_async, pending);
                call(context, handle, offset, length, bytes, called, pending)
            }
        })
    }

    /// Completes an empty transfer locally. libnfs would request zero bytes from the server and
    /// report the reply as an error.
    fn end_at_once(&mut self, buffer: Vec<u8>) -> Ticket {
        let ticket = self.ticket();
        let result = Ok(Outcome::Reply(Reply::Moved { count: 0, buffer }));
        lock(&self.ended).push_back(Ended { ticket, result });
        ticket
    }

    fn send_plain(
        &mut self,
        what: &'static str,
        call: impl FnOnce(&Library, Context, *mut c_void) -> c_int,
    ) -> Result<Ticket, PeerError> {
        self.send(what, Kind::Plain(what), call)
    }

    /// Passes a request to libnfs. `call` gets the context, which is valid, and the address of the
    /// request, which `called` takes back. If `call` does not return 0, there is no callback.
    fn send(
        &mut self,
        what: &'static str,
        kind: Kind,
        call: impl FnOnce(&Library, Context, *mut c_void) -> c_int,
    ) -> Result<Ticket, PeerError> {
        let ticket = self.ticket();
        let (library, ended) = (Arc::clone(&self.library), Arc::clone(&self.ended));
        let pending = Box::into_raw(Box::new(Pending { library, ended, ticket, kind }));
        let status = call(&self.library, self.context, pending.cast());
        if status == 0 {
            return Ok(ticket);
        }
        self.under_way -= 1;
        // SAFETY: libnfs has not accepted the request and has kept no pointer to it.
        drop(unsafe { Box::from_raw(pending) });
        Err(self.failed(what, status))
    }

    fn ticket(&mut self) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.under_way += 1;
        ticket
    }

    pub(crate) fn wait(&mut self) -> Result<Completion, PeerError> {
        loop {
            if let Some(completion) = self.ended() {
                return Ok(completion);
            }
            if self.under_way == 0 {
                let message = "no request is in flight".to_owned();
                return Err(failure("waiting", libc::EINVAL, message));
            }
            self.serve(None)?;
        }
    }

    pub(crate) fn poll(&mut self) -> Result<Option<Completion>, PeerError> {
        if let Some(completion) = self.ended() {
            return Ok(Some(completion));
        }
        if self.under_way > 0 {
            self.serve(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        }
        Ok(self.ended())
    }

    fn ended(&mut self) -> Option<Completion> {
        let Ended { ticket, result } = lock(&self.ended).pop_front()?;
        self.under_way -= 1;
        let result = result.map(|done| match done {
            Outcome::Reply(answer) => answer,
            Outcome::Handle(handle) => {
                self.files.push(Some(handle));
                Reply::Opened(FileId(self.files.len() - 1))
            }
        });
        Some(Completion { ticket, result })
    }

    /// Waits for the socket, then lets libnfs send and receive what it can.
    fn serve(&mut self, timeout: Option<&Timespec>) -> Result<(), PeerError> {
        let library = &self.library;
        // SAFETY: the context is valid.
        let (number, wanted) = unsafe {
            ((library.nfs_get_fd)(self.context), (library.nfs_which_events)(self.context))
        };
        if number < 0 {
            return Err(self.failed("waiting", -libc::ENOTCONN));
        }
        // SAFETY: the socket belongs to the context, which does not close it before its next
        // service call.
        let socket = unsafe { BorrowedFd::borrow_raw(number) };
        let wanted = PollFlags::from_bits_truncate(wanted as u16);
        let mut sockets = [PollFd::new(&socket, wanted)];
        match poll(&mut sockets, timeout) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(PeerError::host("waiting for libnfs")(error.into())),
        }
        let events = c_int::from(sockets[0].revents().bits());
        // SAFETY: the context is valid; all callbacks are `called`.
        let status = unsafe { (library.nfs_service)(self.context, events) };
        if status < 0 { Err(self.failed("serving the connection", status)) } else { Ok(()) }
    }

    fn handle(&self, file: FileId) -> Result<Handle, PeerError> {
        self.files.get(file.0).copied().flatten().ok_or(PeerError::NotOpen)
    }

    fn failed(&self, what: &'static str, status: c_int) -> PeerError {
        // SAFETY: the context is valid.
        failure(what, status.saturating_abs(), unsafe { error_text(&self.library, self.context) })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // SAFETY: the context is valid and not used afterwards. libnfs calls back for pending
        // requests, which frees them; handles of open files are leaked.
        unsafe { (self.library.nfs_destroy_context)(self.context) }
    }
}

/// The callback of libnfs for every request.
///
/// # Safety
/// `request` is the address of a `Pending` that `send` has passed to libnfs, and is passed back
/// once. `data` is what `nfsc/libnfs.h` specifies for a request of its kind.
unsafe extern "C" fn called(
    status: c_int,
    context: Context,
    data: *mut c_void,
    request: *mut c_void,
) {
    // SAFETY: the caller passes the address of a `Pending`, once.
    let pending = unsafe { Box::from_raw(request.cast::<Pending>()) };
    let Pending { library, ended, ticket, kind } = *pending;
    let result = if status < 0 {
        let what = match kind {
            Kind::Plain(what) => what,
            Kind::Open => "opening",
            Kind::Read(_) | Kind::ReadTo(_) => "reading",
            Kind::Write(_) | Kind::WriteFrom(_) => "writing",
            Kind::Stat => "reading attributes",
        };
        // SAFETY: the context is the one that calls back.
        Err(failure(what, status.saturating_abs(), unsafe { error_text(&library, context) }))
    } else {
        // SAFETY: the caller passes the `data` of this kind of request, and the request has not
        // failed.
        Ok(unsafe { outcome_of(kind, status.unsigned_abs() as usize, data) })
    };
    lock(&ended).push_back(Ended { ticket, result });
}

/// Returns the result of a request that has not failed.
///
/// # Safety
/// The same as for `called`.
unsafe fn outcome_of(kind: Kind, count: usize, data: *mut c_void) -> Outcome {
    match kind {
        Kind::Plain(_) => Outcome::Reply(Reply::Done),
        Kind::Open => Outcome::Handle(data),
        Kind::Read(mut buffer) => {
            let count = count.min(buffer.len());
            if count > 0 {
                // SAFETY: libnfs passes `count` bytes at `data`, in its own memory.
                let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), count) };
                buffer[..count].copy_from_slice(bytes);
            }
            Outcome::Reply(Reply::Moved { count, buffer })
        }
        Kind::Write(buffer) => Outcome::Reply(Reply::Moved { count, buffer }),
        Kind::ReadTo(to) => {
            let count = count.min(to.length);
            if count > 0 {
                // SAFETY: libnfs passes `count` bytes at `data`, in its own memory.
                let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), count) };
                to.memory.write(to.start, bytes);
            }
            Outcome::Reply(Reply::Moved { count, buffer: Vec::new() })
        }
        Kind::WriteFrom(_) => Outcome::Reply(Reply::Moved { count, buffer: Vec::new() }),
        Kind::Stat => {
            // SAFETY: `data` points to a `struct nfs_stat_64` that is valid until the callback
            // returns.
            let stat = unsafe { data.cast::<Stat>().read_unaligned() };
            let mode = u32::try_from(stat.mode).unwrap_or(0);
            let (size, modified) = (stat.size, stat.modified);
            Outcome::Reply(Reply::Attributes(Attributes { size, mode, modified }))
        }
    }
}

/// Returns libnfs's description of its last error.
///
/// # Safety
/// The context must be valid.
unsafe fn error_text(library: &Library, context: Context) -> String {
    // SAFETY: the caller passes a valid context; the text belongs to it and is copied before it
    // changes.
    unsafe {
        let text = (library.nfs_get_error)(context);
        if text.is_null() {
            return "libnfs gives no reason".to_owned();
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

fn failure(what: &'static str, errno: i32, message: String) -> PeerError {
    PeerError::Request { what, message, errno }
}

fn text(path: &str) -> Result<CString, PeerError> {
    CString::new(path).map_err(|_| PeerError::Nul)
}

fn lock(ended: &Mutex<VecDeque<Ended>>) -> std::sync::MutexGuard<'_, VecDeque<Ended>> {
    ended.lock().unwrap_or_else(PoisonError::into_inner)
}
