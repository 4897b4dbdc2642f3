//! Transfers data between the server and the kernel through one buffer, without further copies.
//!
//! Invariant: a buffer belongs to its transfer from the submission to the reply. Its data begins at
//! [`DATA_AT`], after the space for the kernel's header.

use std::rc::Rc;

use dafs_base::{Key, Slab};
use dafs_client::{Buffer, File, Outcome, Stability, Transferred};
use dafs_types::SetAttributes;
use dafs_types::limits::APPEND_BYTES_MAX;

use crate::abi::{Fields, Header, Message, WRITE_HEADER_BYTES};
use crate::attributes::last_metadata;
use crate::engine::{DATA_AT, Engine, ErrnoResult, Reply};
use crate::files::{OpenFile, data_errno};
use crate::requests::Write;
use crate::tasks::Requester;

/// The transfers in flight, by the number they were submitted with.
#[derive(Default)]
pub(crate) struct Transfers(Slab<Transfer>);

pub(crate) struct Transfer {
    /// The process that waits for the reply; `None` if the request was cancelled.
    requester: Option<Requester>,
    is_read: bool,
    open: Rc<OpenFile>,
    file: Rc<File>,
    buffer: Buffer,
    offset: u64,
    wanted: usize,
    done: usize,
    /// True if the buffer is kept after the write, so that the data can be written again.
    is_held: bool,
}

impl Transfers {
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Cancels the reply to a request. Returns false if the request is not in this list.
    pub(crate) fn give_up(&mut self, unique: u64) -> bool {
        self.0.values_mut().any(|transfer| transfer.give_up(unique))
    }

    /// Returns the process that waits for the reply to a request.
    pub(crate) fn requester(&mut self, unique: u64) -> Option<Requester> {
        self.0.values_mut().find_map(|transfer| transfer.requester_of(unique))
    }
}

impl Transfer {
    /// Returns the waiting process if this transfer belongs to the given request.
    pub(crate) fn requester_of(&self, unique: u64) -> Option<Requester> {
        self.requester.filter(|requester| requester.unique == unique)
    }

    /// Cancels the reply. Returns false if this transfer belongs to another request.
    pub(crate) fn give_up(&mut self, unique: u64) -> bool {
        let is_it = self.requester_of(unique).is_some();
        if is_it {
            self.requester = None;
        }
        is_it
    }
}

impl Engine {
    pub(crate) fn read(self: &Rc<Self>, requester: Requester, number: u64, offset: u64, size: u32) {
        let unique = requester.unique;
        let Ok(open) = self.file(number) else { return self.device.fail(unique, EBADF) };
        let wanted = size as usize;
        let Ok(buffer) = self.client.allocate(DATA_AT + wanted) else {
            return self.device.fail(unique, ENOMEM);
        };
        self.begin(NewTransfer { requester, is_read: true, open, buffer, offset, wanted });
    }

    /// Serves a WRITE. The data stays in the buffer in which the request was received.
    pub(crate) fn write(
        self: &Rc<Self>,
        header: Header,
        mut fields: Fields<'_>,
        buffer: Buffer,
        there: usize,
    ) {
        let (requester, unique) = (header.requester(), header.unique);
        let Some(Write { file, offset, size, flags }) = Write::read(&mut fields, there) else {
            return self.device.fail(unique, EIO);
        };
        let Ok(open) = self.file(file) else { return self.device.fail(unique, EBADF) };
        let wanted = size as usize;
        let begin = NewTransfer { requester, is_read: false, open, buffer, offset, wanted };
        let is_cached = flags & WRITE_CACHE != 0;
        let appends = begin.open.appends() && !is_cached && !self.options.local_append;
        if let (false, Some(mode)) = (is_cached, self.mode_behind_write(header)) {
            let engine = self.clone();
            self.tasks.spawn(requester, async move {
                match engine.take_set_ids(header.node, mode).await {
                    Ok(()) => engine.write_now(begin, appends),
                    Err(errno) => engine.device.fail(unique, errno),
                }
            });
            return;
        }
        self.write_now(begin, appends);
    }

    fn write_now(self: &Rc<Self>, begin: NewTransfer, appends: bool) {
        if appends {
            let engine = self.clone();
            return self.reply(begin.requester, async move { engine.append(begin).await });
        }
        self.begin(begin);
    }

    /// Returns the mode that a file gets when a user other than the superuser writes to it: the
    /// set-id bits are cleared. Returns `None` if the mode stays the same. The kernel clears the
    /// bits itself, in advance, for writes through its page cache, but not for direct writes.
    fn mode_behind_write(&self, header: Header) -> Option<u32> {
        let mode = self.node(header.node).ok()?.mode;
        let group = if mode & GROUP_EXECUTE != 0 { SET_GROUP_ID } else { 0 };
        let behind = mode & !(SET_USER_ID | group);
        (header.uid != 0 && behind != mode).then_some(behind)
    }

    async fn take_set_ids(self: &Rc<Self>, node: u64, mode: u32) -> ErrnoResult<()> {
        let handle = self.node(node)?.handle;
        let wanted = SetAttributes { mode: Some(mode & 0o7777), ..SetAttributes::default() };
        let (session, _) = self.session();
        let brought = session.chain().at(handle).setattr(&wanted).getattr().run_async().await;
        let outcomes = brought.map_err(|failure| self.failed(&failure.error))?;
        let stat = self.stat(&last_metadata(outcomes)?);
        if let Some(node) = self.nodes.borrow_mut().get_mut(node) {
            node.seen(&stat);
        }
        Ok(())
    }

    fn begin(self: &Rc<Self>, begin: NewTransfer) {
        let (_, epoch) = self.session();
        if let Some(file) = begin.open.in_session(epoch) {
            return self.submit(begin.with(file));
        }
        let engine = self.clone();
        self.tasks.spawn(begin.requester, async move {
            match engine.current(&begin.open).await {
                Ok(file) => engine.submit(begin.with(file)),
                Err(errno) => engine.device.fail(begin.requester.unique, errno),
            }
        });
    }

    /// Sends a delayed write in the current session.
    pub(crate) fn resubmit(self: &Rc<Self>, transfer: Transfer) {
        let engine = self.clone();
        self.tasks.spawn(Requester::NONE, async move {
            match engine.current(&transfer.open).await {
                Ok(file) => engine.submit(Transfer { file, ..transfer }),
                Err(errno) => engine.refuse(&transfer, errno),
            }
        });
    }

    /// Submits the part of a transfer that is not done yet.
    fn submit(self: &Rc<Self>, transfer: Transfer) {
        let Transfer { ref file, ref buffer, offset, wanted, done, is_read, .. } = transfer;
        let (file, at) = (file.clone(), offset + done as u64);
        let slice = match buffer.slice(DATA_AT + done, wanted - done) {
            Ok(slice) => slice,
            Err(error) => return self.fail_transfer(transfer, &error),
        };
        if wanted == done {
            return self.end(transfer);
        }
        let unstable = transfer.open.unstable.clone();
        let admitted =
            if is_read { unstable.delay_read(transfer) } else { unstable.admit(transfer) };
        let Some(transfer) = admitted else { return };
        let mut all = self.transfers.borrow_mut();
        let key = all.0.insert(transfer);
        drop(all);
        let number = key.to_bits();
        let (session, group) = (file.session(), self.group);
        let submitted = if is_read {
            session.submit_read(&file, at, slice, group, number)
        } else {
            session.submit_write(&file, at, slice, Stability::Unstable, group, number)
        };
        if let Err(error) = submitted {
            let transfer = self.transfers.borrow_mut().0.remove(key);
            if let Some(transfer) = transfer {
                self.fail_sent(transfer, &error);
            }
        }
    }

    /// Handles the failure of a transfer. If the kernel has already sent another part of the same
    /// write, the kernel drops the error, so the error is not only returned but also recorded.
    fn fail_sent(self: &Rc<Self>, transfer: Transfer, error: &dafs_client::ClientError) {
        if !transfer.is_read {
            transfer.open.unstable.ended();
            transfer.open.note_failure(error);
        }
        self.fail_transfer(transfer, error);
    }

    fn fail_transfer(self: &Rc<Self>, transfer: Transfer, error: &dafs_client::ClientError) {
        let errno = data_errno(self.failed(error));
        self.refuse(&transfer, errno);
    }

    fn refuse(&self, transfer: &Transfer, errno: i32) {
        if let Some(requester) = transfer.requester {
            self.device.fail(requester.unique, errno);
        }
    }

    /// Completes finished transfers. Returns true if there were any.
    pub(crate) fn complete_transfers(self: &Rc<Self>) -> bool {
        let mut has_worked = false;
        while let Some(completion) = self.client.next(self.group) {
            has_worked = true;
            let transfer = self.transfers.borrow_mut().0.remove(Key::from_bits(completion.context));
            let Some(transfer) = transfer else { continue };
            match completion.result {
                Ok(moved) => self.moved(transfer, moved),
                Err(error) => self.fail_sent(transfer, &error),
            }
        }
        has_worked
    }

    fn moved(self: &Rc<Self>, mut transfer: Transfer, moved: Transferred) {
        if transfer.is_read {
            // A restarted server may return data older than the written data, so delay the reply
            // until the data was written again.
            let unstable = transfer.open.unstable.clone();
            let Some(fresh) = unstable.delay_read(transfer) else { return };
            transfer = fresh;
        }
        let (before, length) = (transfer.done, moved.length as usize);
        transfer.done += length;
        if !transfer.is_read {
            transfer.open.is_dirty.set(true);
            let unstable = transfer.open.unstable.clone();
            unstable.ended();
            let (offset, at) = (transfer.offset + before as u64, DATA_AT + before);
            transfer.is_held |= unstable.hold(offset, &transfer.buffer, at, length);
            if !unstable.note(moved.verifier) {
                self.rewrite(&unstable);
            }
        }
        let is_over = transfer.done >= transfer.wanted || moved.end_of_file || moved.length == 0;
        if is_over { self.end(transfer) } else { self.submit(transfer) }
    }

    fn end(self: &Rc<Self>, transfer: Transfer) {
        let Some(Requester { unique, .. }) = transfer.requester else { return };
        if transfer.is_read {
            self.device.data(unique, &transfer.buffer, DATA_AT, transfer.done);
        } else {
            let mut message = Message::default();
            message.u32(u32::try_from(transfer.done).unwrap_or(u32::MAX)).u32(0);
            self.device.body(unique, &message.0);
            if !transfer.is_held {
                self.keep_receiver(transfer.buffer);
            }
        }
    }

    /// Writes to the end of the file as the server sees it.
    async fn append(self: Rc<Self>, begin: NewTransfer) -> ErrnoResult<Reply> {
        let file = self.current(&begin.open).await?;
        let session = file.session().clone();
        let mut done = 0;
        while done < begin.wanted {
            let length = (begin.wanted - done).min(APPEND_BYTES_MAX as usize);
            let slice = begin.buffer.slice(DATA_AT + done, length);
            let slice = slice.map_err(|error| self.failed(&error))?;
            let brought = session.chain().of(&file).append_from(slice).run_async().await;
            match brought {
                Ok(outcomes) if matches!(outcomes[..], [Outcome::Appended { .. }]) => {
                    done += length;
                }
                Ok(_) => return Err(EIO),
                Err(failure) => {
                    begin.open.note_failure(&failure.error);
                    let errno = data_errno(self.failed(&failure.error));
                    // Report the short count. The kernel then writes the remaining bytes, and that
                    // write reports the error.
                    if done > 0 {
                        break;
                    }
                    return Err(errno);
                }
            }
        }
        let mut message = Message::default();
        message.u32(u32::try_from(done).unwrap_or(u32::MAX)).u32(0);
        Ok(Reply::Body(message.0))
    }
}

/// A transfer that has not been submitted yet.
struct NewTransfer {
    requester: Requester,
    is_read: bool,
    open: Rc<OpenFile>,
    buffer: Buffer,
    offset: u64,
    wanted: usize,
}

impl NewTransfer {
    fn with(&self, file: Rc<File>) -> Transfer {
        Transfer {
            requester: Some(self.requester),
            is_read: self.is_read,
            open: self.open.clone(),
            file,
            buffer: self.buffer.clone(),
            offset: self.offset,
            wanted: self.wanted,
            done: 0,
            is_held: false,
        }
    }
}

const _: () = assert!(WRITE_HEADER_BYTES < DATA_AT);
/// The flag of a write that comes from the page cache.
const WRITE_CACHE: u32 = 1;
const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;
const EIO: i32 = 5;
const EBADF: i32 = 9;
const ENOMEM: i32 = 12;
