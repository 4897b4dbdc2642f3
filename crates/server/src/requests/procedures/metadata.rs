//! Serves requests about attributes, listings and link texts (inline, or with buffers in the
//! client's memory), and attribute comparisons.
//!
//! Invariant: staging memory is registered for one transfer and deregistered at the transfer's
//! completion.

use dafs_files::delegations::Told;
use dafs_files::outcome::NotDone;
use dafs_ops::{Operation, SetAttributes};
use dafs_types::{AccessMask, FileHandle, Status, limits};
use dafs_wire::limits::{ATTRIBUTE_BYTES_MAX, PLAIN_ATTRIBUTE_BYTES_MAX};
use dafs_wire::messages::{
    Access, AccessResult, DirectResult, Empty, FileAttributesResult, FsAttributesResult,
    GetAttributes, GetAttributesDirect, LinkTextResult, OneHandle, ReadDirectory,
    ReadDirectoryDirect, ReadDirectoryDirectResult, ReadDirectoryResult, ReadLinkDirect,
    SetAttributesDirect, Verify,
};
use dafs_wire::{
    AttributeBitmap, Checksum, DirectBuffer, DirectoryEntries, FileAttributeBlock,
    FsAttributeBlock, Response, encode_link_text,
};

use super::attributes::{PREFERRED_IO_BYTES, Room, SUPPORTED, extras_in};
use super::listings::{LISTING_BYTES_MAX, LISTING_HEAD, page};
use crate::data::Step;
use crate::moving::transfer::{Cookie, Staging, remote_of};
use crate::reactor::Reactor;
use crate::reply_to::{ReplyTo, TaskId};
use crate::requests::decode::settings_of;
use crate::requests::set_aside::Asked;
use crate::task::{FetchTask, Task, Wait, Work};

impl Reactor<'_> {
    // ---- attributes -------------------------------------------------------------------

    pub(super) fn serve_access(&mut self, to: ReplyTo, request: &Access) -> Result<(), NotDone> {
        let by = self.caller(to)?;
        let access = by.store().access(&by, &request.file, request.access)?;
        let supported = request.access & AccessMask::ALL;
        self.answer(to, &Response::Access(AccessResult { supported, access }))
    }

    pub(super) fn serve_attributes(
        &mut self,
        to: ReplyTo,
        request: &GetAttributes,
        told: Option<Told>,
    ) -> Result<(), NotDone> {
        let mut room = Room::default();
        let attributes =
            self.encoded_attributes(to, &request.file, request.wanted, told, &mut room)?;
        self.answer(to, &Response::GetAttrInline(FileAttributesResult { attributes }))
    }

    pub(super) fn serve_attributes_direct(
        &mut self,
        to: ReplyTo,
        request: &GetAttributesDirect,
        told: Option<Told>,
    ) -> Result<(), NotDone> {
        let mut room = Room::default();
        let block = self.encoded_attributes(to, &request.file, request.wanted, told, &mut room)?;
        let checksum = self.place_bytes(to, block.bytes(), &[request.buffer])?;
        self.answer(to, &Response::GetAttrDirect(DirectResult { checksum }))
    }

    /// Returns the requested attributes of an object, encoded in the byte order of the client's
    /// session.
    fn encoded_attributes<'r>(
        &mut self,
        to: ReplyTo,
        file: &FileHandle,
        wanted: AttributeBitmap,
        told: Option<Told>,
        room: &'r mut Room,
    ) -> Result<FileAttributeBlock<'r>, NotDone> {
        let by = self.caller(to)?;
        let full = self.files().attributes(&by, file, extras_in(wanted), told)?;
        let order = self.order_of(to.endpoint).ok_or(Status::BadSession)?;
        Ok(room.encode(order, wanted, &full)?)
    }

    pub(super) fn serve_fs_attributes(
        &mut self,
        to: ReplyTo,
        request: &GetAttributes,
    ) -> Result<(), NotDone> {
        let by = self.caller(to)?;
        let mut full = by.store().fs_attributes(&by, &request.file)?;
        let lease = self.shared.filer.config().lease.as_secs();
        full.lease_time = Some(u32::try_from(lease).unwrap_or(u32::MAX));
        full.max_read = Some(u64::from(limits::TRANSFER_BYTES_MAX));
        full.max_write = Some(u64::from(limits::TRANSFER_BYTES_MAX));
        full.max_append = Some(u64::from(limits::APPEND_BYTES_MAX));
        full.preferred_io_size.get_or_insert(PREFERRED_IO_BYTES);
        full.supported_file_attributes = Some(SUPPORTED.0);
        full.supported_fs_attributes = Some(dafs_wire::attributes::file_system::bits::ALL.0);
        full.rd_attr_error = Some(0);
        let order = self.order_of(to.endpoint).ok_or(Status::BadSession)?;
        let mut buffer = [0; PLAIN_ATTRIBUTE_BYTES_MAX];
        let attributes = FsAttributeBlock::encode_fs(order, request.wanted, &full, &mut buffer)
            .map_err(|error| error.status())?;
        self.answer(to, &Response::GetFsAttr(FsAttributesResult { attributes }))
    }

    /// Fetches from the client's memory the attributes that a request sets.
    pub(super) fn fetch_attributes(
        &mut self,
        to: ReplyTo,
        request: &SetAttributesDirect,
    ) -> Result<(), NotDone> {
        let length = request.buffer.length;
        if length as usize > ATTRIBUTE_BYTES_MAX {
            return Err(Status::Inval.into());
        }
        let (handle, state, checksum) = (request.file, request.state, request.checksum);
        self.fetch(to, &request.buffer, length, |staging| FetchTask {
            staging,
            transfers_left: 1,
            failed: false,
            handle,
            state,
            checksum,
            length,
        })?;
        Ok(())
    }

    pub(super) fn compare_attributes(
        &mut self,
        to: ReplyTo,
        request: &Verify<'_>,
        wants_same: bool,
        told: Option<Told>,
    ) -> Result<(), NotDone> {
        let valid = request.attributes.valid();
        let by = self.caller(to)?;
        let full = self.files().attributes(&by, &request.file, extras_in(valid), told)?;
        let order = self.order_of(to.endpoint).ok_or(Status::BadSession)?;
        let mut room = Room::default();
        let ours = room.encode(order, valid, &full)?;
        if ours.valid() != valid {
            return Err(Status::NotSupp.into());
        }
        let same = ours.file() == request.attributes.file();
        match (same, wants_same) {
            (true, true) => self.answer(to, &Response::Verify(Empty)),
            (false, false) => self.answer(to, &Response::NVerify(Empty)),
            (false, true) => Err(Status::NotSame.into()),
            (true, false) => Err(Status::Same.into()),
        }
    }

    /// Sets the attributes that were fetched from the client's memory, as if they had arrived
    /// inline.
    pub(crate) fn set_fetched_attributes(
        &mut self,
        to: ReplyTo,
        task: &FetchTask,
        bytes: &[u8],
    ) -> Result<Step, Status> {
        let order = self.order_of(to.endpoint).ok_or(Status::BadSession)?;
        let block = FileAttributeBlock::parse(order, bytes).map_err(|error| error.status())?;
        let (file, state, attributes) = (task.handle, task.state, settings_of(&block)?);
        let asked = SetAttributes { file, state, attributes };
        let operation = Operation::SetAttributes(asked.clone());
        if !to.logged && self.journal_if_needed(to, &operation) {
            return Ok(Step::Silent);
        }
        match self.set_attributes(to, &asked) {
            Ok(now) => Ok(now.into()),
            Err(NotDone::Failed(fault)) => Err(fault.into()),
            Err(why) => {
                self.refuse(to, why, Asked::Operation(&operation));
                Ok(Step::Silent)
            }
        }
    }

    /// Starts to fetch `length` bytes from the client's memory for a task.
    fn fetch(
        &mut self,
        answer: ReplyTo,
        buffer: &DirectBuffer,
        length: u32,
        make: impl FnOnce(Staging) -> FetchTask,
    ) -> Result<(), Status> {
        let staging = Staging::of(&mut self.own.interface, vec![0; length as usize].into())?;
        let local = [staging.region.local(0, length)];
        let key = staging.region.key;
        let id: TaskId = self.shared.tasks.reserve();
        let word = Cookie::Task(id).pack();
        let remote = remote_of(buffer, length);
        let over = self.reads_over(answer.endpoint);
        if self.own.interface.post_rdma_read(over, word, &local, remote).is_err() {
            self.shared.tasks.forget(id);
            self.own.interface.deregister(key);
            self.give_up(answer.endpoint);
            self.report_broken(answer);
            return Ok(());
        }
        self.park(id, Task::new(answer, Work::Fetch(make(staging))), Wait::Transfers);
        Ok(())
    }

    /// Continues a task whose bytes have been fetched.
    pub(crate) fn step_fetch(&mut self, answer: ReplyTo, task: &mut FetchTask) -> Step {
        self.own.interface.deregister(task.staging.region.key);
        let bytes = task.staging.memory.to_vec(0, task.length as usize);
        let intact = !self.has_checksums(answer.endpoint) || Checksum::of(&bytes) == task.checksum;
        if task.failed {
            return Step::Broken;
        }
        if !intact {
            return Step::failed(Status::Chksum);
        }
        self.set_fetched_attributes(answer, task, &bytes).unwrap_or_else(Step::failed)
    }

    // ---- listings and link texts ------------------------------------------------------

    pub(super) fn list(&mut self, to: ReplyTo, request: &ReadDirectory) -> Result<(), NotDone> {
        let room = self.response_bytes_max(to.endpoint).saturating_sub(LISTING_HEAD);
        let room = room.min(request.result_bytes_max as usize);
        let order = self.order_of(to.endpoint).ok_or(Status::BadSession)?;
        let place = (&request.directory, request.cookie, request.verifier);
        let by = self.caller(to)?;
        let page = page(&mut self.files(), &by, order, place, request.wanted, room)?;
        let entries =
            DirectoryEntries::parse(order, &page.bytes).map_err(|_| Status::ServerFault)?;
        let result =
            ReadDirectoryResult { verifier: page.verifier, end_of_directory: page.is_end, entries };
        self.answer(to, &Response::ReadDirInline(result))
    }

    pub(super) fn list_direct(
        &mut self,
        to: ReplyTo,
        request: &ReadDirectoryDirect<'_>,
    ) -> Result<(), NotDone> {
        let room = usize::try_from(request.buffers.total_bytes()).unwrap_or(usize::MAX);
        let room = room.min(request.result_bytes_max as usize).min(LISTING_BYTES_MAX);
        let order = self.order_of(to.endpoint).ok_or(Status::BadSession)?;
        let place = (&request.directory, request.cookie, request.verifier);
        let by = self.caller(to)?;
        let page = page(&mut self.files(), &by, order, place, request.wanted, room)?;
        let buffers: Vec<_> = request.buffers.iter().collect();
        let checksum = self.place_bytes(to, &page.bytes, &buffers)?;
        let result = ReadDirectoryDirectResult {
            verifier: page.verifier,
            end_of_directory: page.is_end,
            checksum,
        };
        self.answer(to, &Response::ReadDirDirect(result))
    }

    pub(super) fn read_link(&mut self, to: ReplyTo, request: &OneHandle) -> Result<(), NotDone> {
        let by = self.caller(to)?;
        let text = by.store().readlink(&by, &request.file)?;
        self.answer(to, &Response::ReadLinkInline(LinkTextResult { text: &text }))
    }

    pub(super) fn read_link_direct(
        &mut self,
        to: ReplyTo,
        request: &ReadLinkDirect,
    ) -> Result<(), NotDone> {
        let by = self.caller(to)?;
        let text = by.store().readlink(&by, &request.file)?;
        let order = self.order_of(to.endpoint).ok_or(Status::BadSession)?;
        let mut bytes = vec![0; text.len() + 16];
        let length = encode_link_text(order, &text, &mut bytes).map_err(|error| error.status())?;
        let checksum = self.place_bytes(to, &bytes[..length], &[request.buffer])?;
        self.answer(to, &Response::ReadLinkDirect(DirectResult { checksum }))
    }
}
