//! Attributes and access: GETATTR, SETATTR, GET_FSATTR, ACCESS, VERIFY, NVERIFY.
//!
//! Invariant: attributes of a file that the cache holds are those of its cached
//! content, dirty data included.

use std::sync::Arc;

use dafs_filer::{IoKind, Touch};
use dafs_store::cache::{CachedFile, CommitStep, Progress, SizeStep};
use dafs_store::{
    AttributeChanges, Attributes, ExtraChanges, Extras, ExtrasWanted, FileVersion, StoreError,
};
use dafs_types::{
    AccessMask, FileAttributes, FileHandle, ShareAccess, Stability, StateId, Status, limits,
};
use dafs_wire::limits::{ATTRIBUTE_BYTES_MAX, PLAIN_ATTRIBUTE_BYTES_MAX};
use dafs_wire::messages::{
    Access, AccessResult, DirectResult, Empty, FileAttributesResult, FsAttributesResult,
    GetAttributes, GetAttributesDirect, SetAttributesDirect, SetAttributesInline,
    SetAttributesResult, Verify,
};
use dafs_wire::{AttributeBitmap, FileAttributeBlock, FsAttributeBlock, Response};

use crate::credentials::Asker;
use crate::data::Step;
use crate::jobs::Job;
use crate::names::changes_of;
use crate::reactor::Reactor;
use crate::task::{Answer, FetchTask, SizeReply, SizeTask, Task, TaskId, TimesTask, Wait};
use crate::undo::UndoGate;

impl Reactor {
    pub(crate) fn access(&mut self, answer: Answer, request: &Access) -> Result<(), Status> {
        let who = self.who(answer);
        let access = who.store().access(&who, &request.file, request.access)?;
        let supported = request.access & AccessMask::ALL;
        self.reply(answer, &Response::Access(AccessResult { supported, access }));
        Ok(())
    }

    /// Attributes as clients see them.
    pub(crate) fn attributes_of(
        &mut self,
        answer: Answer,
        handle: &FileHandle,
    ) -> Result<Attributes, Status> {
        let who = self.who(answer);
        let mut attributes = match self.open_files.get(handle) {
            // Its names may be gone; the open file is not.
            Some((file, _)) if who.store().shows(handle) => file.attributes()?,
            Some(_) | None => who.store().attributes(&who, handle)?,
        };
        if let Some(file) = self.cache.find(handle) {
            self.cache.revalidate(file, FileVersion::from(&attributes));
            self.cache.overlay(file, &mut attributes);
        }
        Ok(attributes)
    }

    /// The attributes asked for, in the protocol's form.
    fn full_attributes(
        &mut self,
        answer: Answer,
        handle: &FileHandle,
        wanted: AttributeBitmap,
    ) -> Result<FileAttributes, Status> {
        self.touch(answer, handle, Touch::GetAttributes { may_ask: true })?;
        let mut full = self.attributes_of(answer, handle)?.to_file_attributes(*handle);
        self.overlay_told(&mut full);
        let extras = extras_in(wanted);
        if extras.is_any() {
            let who = self.who(answer);
            add_extras(&mut full, who.store().extras(&who, handle, extras)?);
        }
        Ok(full)
    }

    pub(crate) fn get_attributes(
        &mut self,
        answer: Answer,
        request: &GetAttributes,
    ) -> Result<(), Status> {
        let full = self.full_attributes(answer, &request.file, request.wanted)?;
        let order = self.order_of(answer.endpoint).ok_or(Status::BadSession)?;
        let mut buffers = Buffers::default();
        let buffer = buffers.for_attributes(request.wanted);
        let attributes = FileAttributeBlock::encode_file(order, request.wanted, &full, buffer)
            .map_err(|error| error.status())?;
        self.reply(answer, &Response::GetAttrInline(FileAttributesResult { attributes }));
        Ok(())
    }

    pub(crate) fn get_attributes_direct(
        &mut self,
        answer: Answer,
        request: &GetAttributesDirect,
    ) -> Result<(), Status> {
        let full = self.full_attributes(answer, &request.file, request.wanted)?;
        let order = self.order_of(answer.endpoint).ok_or(Status::BadSession)?;
        let mut buffers = Buffers::default();
        let buffer = buffers.for_attributes(request.wanted);
        let block = FileAttributeBlock::encode_file(order, request.wanted, &full, buffer)
            .map_err(|error| error.status())?;
        let bytes = block.octets().to_vec();
        let checksum = self.place_bytes(answer, &bytes, &[request.buffer])?;
        self.reply(answer, &Response::GetAttrDirect(DirectResult { checksum }));
        Ok(())
    }

    pub(crate) fn get_fs_attributes(
        &mut self,
        answer: Answer,
        request: &GetAttributes,
    ) -> Result<(), Status> {
        let who = self.who(answer);
        let mut full = who.store().fs_attributes(&who, &request.file)?;
        let lease = self.filer.config().lease.as_secs();
        full.lease_time = Some(u32::try_from(lease).unwrap_or(u32::MAX));
        full.max_read = Some(u64::from(limits::TRANSFER_BYTES_MAX));
        full.max_write = Some(u64::from(limits::TRANSFER_BYTES_MAX));
        full.max_append = Some(u64::from(limits::APPEND_BYTES_MAX));
        full.preferred_io_size.get_or_insert(PREFERRED_IO_BYTES);
        full.supported_file_attributes = Some(SUPPORTED.0);
        full.supported_fs_attributes = Some(dafs_wire::attributes::file_system::bits::ALL.0);
        full.rd_attr_error = Some(0);
        let order = self.order_of(answer.endpoint).ok_or(Status::BadSession)?;
        let mut buffer = [0; PLAIN_ATTRIBUTE_BYTES_MAX];
        let attributes = FsAttributeBlock::encode_fs(order, request.wanted, &full, &mut buffer)
            .map_err(|error| error.status())?;
        self.reply(answer, &Response::GetFsAttr(FsAttributesResult { attributes }));
        Ok(())
    }

    // ---- setting --------------------------------------------------------------------

    pub(crate) fn set_attributes(
        &mut self,
        answer: Answer,
        request: &SetAttributesInline<'_>,
    ) -> Result<(), Status> {
        // Those of SETATTR_DIRECT have taken their time to come here.
        self.pass_file(answer, &request.file)?;
        let changes = (changes_of(&request.attributes)?, extras_of(&request.attributes)?);
        let truncate = changes.0.size == Some(0);
        self.touch(answer, &request.file, Touch::SetAttributes { truncate })?;
        let wanted = request.attributes.valid();
        self.change(answer, &request.file, request.state, changes, wanted)
    }

    pub(crate) fn set_attributes_direct(
        &mut self,
        answer: Answer,
        request: &SetAttributesDirect,
    ) -> Result<(), Status> {
        let length = request.buffer.length;
        if length as usize > ATTRIBUTE_BYTES_MAX {
            return Err(Status::Inval);
        }
        let (handle, state, checksum) = (request.file, request.state, request.checksum);
        self.fetch(answer, &request.buffer, length, |staging| FetchTask {
            staging,
            transfers_left: 1,
            failed: false,
            handle,
            state,
            checksum,
            length,
        })
    }

    pub(crate) fn set_fetched_attributes(
        &mut self,
        answer: Answer,
        task: &FetchTask,
        bytes: &[u8],
    ) -> Result<(), Status> {
        let order = self.order_of(answer.endpoint).ok_or(Status::BadSession)?;
        let block = FileAttributeBlock::parse(order, bytes).map_err(|error| error.status())?;
        let request =
            SetAttributesInline { file: task.handle, state: task.state, attributes: block };
        if self.is_gated_as_inline(answer, &request) {
            return Ok(());
        }
        match self.set_attributes(answer, &request) {
            Err(status) if self.is_parked() => {
                let message = self.as_inline(answer, &request).unwrap_or_default();
                self.refuse(answer, status, &message);
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn change(
        &mut self,
        answer: Answer,
        handle: &FileHandle,
        state: StateId,
        (mut changes, extras): (AttributeChanges, ExtraChanges),
        wanted: AttributeBitmap,
    ) -> Result<(), Status> {
        let who = self.who(answer);
        let Some(size) = changes.size else {
            let times = self.times_behind_data(handle, &mut changes);
            if !changes.is_empty() || extras.is_empty() && times.is_none() {
                who.store().set_attributes(&who, handle, &changes)?;
            }
            let added = who.store().set_extras(&who, handle, &extras);
            self.revalidate(handle);
            match (added, times) {
                (Ok(()), Some((file, times))) => {
                    self.set_times(answer, who, (*handle, file), times, wanted);
                }
                (Ok(()), None) => self.reply_set(answer, Status::Ok, wanted),
                (Err(error), _) => self.reply_set(answer, error.into(), wanted.without(EXTRAS)),
            }
            return Ok(());
        };
        if size > limits::FILE_OFFSET_MAX {
            return Err(Status::FBig);
        }
        self.check_locks(state, handle, (size, limits::FILE_OFFSET_MAX - size), IoKind::Write)?;
        if state == StateId::ANONYMOUS {
            let granted = who.store().access(&who, handle, AccessMask::MODIFY)?;
            if granted != AccessMask::MODIFY {
                return Err(Status::Access);
            }
        } else {
            self.io_file(answer, state, handle, IoKind::Write)?;
        }
        if !extras.is_empty() {
            // A list goes behind a change of mode, and both before the size, since a write
            // takes set-id bits away; times go last.
            let (mode, uid, gid) = (changes.mode.take(), changes.uid.take(), changes.gid.take());
            let first = AttributeChanges { mode, uid, gid, ..AttributeChanges::default() };
            if !first.is_empty() {
                who.store().set_attributes(&who, handle, &first)?;
            }
            who.store().set_extras(&who, handle, &extras)?;
        }
        let Some(file) = self.cache.find(handle) else {
            // Nobody caches it: the store does it all.
            who.store().set_attributes(&who, handle, &changes)?;
            self.reply_set(answer, Status::Ok, wanted);
            return Ok(());
        };
        changes.size = None;
        let rest = changes;
        let undo_seen = self.undo_seen();
        // A file that is cached and that nobody has open has no descriptor to set a size by.
        let opened = match state {
            StateId::ANONYMOUS => Some(self.borrow_file(&who, handle, ShareAccess::Write)?),
            _ => None,
        };
        self.start(Task::Size(
            answer,
            SizeTask {
                who,
                file,
                handle: *handle,
                size,
                undo_seen,
                started: false,
                rest,
                set: wanted.0,
                reply: SizeReply::SetAttributes,
            },
        ));
        // While it is parked the task holds the file itself.
        if let Some(io) = opened {
            self.give_back(io.file, io.borrowed);
        }
        Ok(())
    }

    /// Takes the times, and a mode with set-id bits, out of what is to be set if the file's data is
    /// still on its way, which would change them: they are set when it is there.
    fn times_behind_data(
        &self,
        handle: &FileHandle,
        changes: &mut AttributeChanges,
    ) -> Option<(CachedFile, AttributeChanges)> {
        let sets_id = changes.mode.is_some_and(|mode| mode & SET_ID_BITS != 0);
        if changes.time_modify.is_none() && !sets_id {
            return None;
        }
        let file = self.cache.find(handle).filter(|file| !self.cache.is_written(*file))?;
        let mode = if sets_id { changes.mode.take() } else { None };
        let (time_access, time_modify) = (changes.time_access.take(), changes.time_modify.take());
        let behind =
            AttributeChanges { mode, time_access, time_modify, ..AttributeChanges::default() };
        Some((file, behind))
    }

    fn set_times(
        &mut self,
        answer: Answer,
        who: Arc<Asker>,
        (handle, file): (FileHandle, CachedFile),
        times: AttributeChanges,
        wanted: AttributeBitmap,
    ) {
        let ticket = self.cache.commit_begin(file, 0, 0, Stability::Unstable);
        let set = wanted.0;
        self.start(Task::Times(answer, TimesTask { who, file, handle, ticket, times, set }));
    }

    pub(crate) fn step_times(&mut self, answer: Answer, task: &mut TimesTask) -> Step {
        loop {
            match self.cache.commit_step(&mut task.ticket) {
                CommitStep::Flush(job) => {
                    if !self.run_or_submit(Job::Flush(job)) {
                        return Step::Wait(Wait::File(task.file));
                    }
                }
                // It asks for none.
                CommitStep::Sync(_) | CommitStep::Wait => {
                    return Step::Wait(Wait::File(task.file));
                }
                CommitStep::Done(Ok(())) => break,
                CommitStep::Done(Err(error)) => {
                    // For who asks about the data.
                    self.cache.tell_again(task.file, error);
                    break;
                }
            }
        }
        let (who, wanted) = (&task.who, AttributeBitmap(task.set));
        let set = match self.is_barred(answer, task.file) {
            true => Err(StoreError::Access),
            false => who.store().set_attributes(who, &task.handle, &task.times).map(|_| ()),
        };
        self.revalidate(&task.handle);
        match set {
            Ok(()) => self.reply_set(answer, Status::Ok, wanted),
            Err(error) => self.reply_set(answer, error.into(), wanted.without(BEHIND_DATA)),
        }
        Step::Done
    }

    /// Our own change of attributes must not be taken for somebody else's.
    fn revalidate(&mut self, handle: &FileHandle) {
        if let (Some(file), Some((open, _))) =
            (self.cache.find(handle), self.open_files.get(handle))
            && let Ok(version) = open.version()
        {
            self.cache.revalidate(file, version);
        }
    }

    pub(crate) fn step_size(&mut self, id: TaskId, answer: Answer, task: &mut SizeTask) -> Step {
        if task.started {
            let done = std::mem::replace(task, placeholder(task));
            self.finish_size(answer, done, Ok(()));
            return Step::Done;
        }
        if self.is_barred(answer, task.file) {
            let refused = std::mem::replace(task, placeholder(task));
            self.finish_size(answer, refused, Err(StoreError::Access));
            return Step::Done;
        }
        match self.undo_gate(id, task.file, (task.size, u64::MAX), task.undo_seen) {
            UndoGate::Open => {}
            UndoGate::Shut(wait) => return Step::Wait(wait),
            UndoGate::Refused(status) => {
                let refused = std::mem::replace(task, placeholder(task));
                let error =
                    if status == Status::NoSpc { StoreError::NoSpace } else { StoreError::Io };
                self.finish_size(answer, refused, Err(error));
                return Step::Done;
            }
        }
        match self.cache.set_size(task.file, task.size) {
            SizeStep::Wait => Step::Wait(Wait::File(task.file)),
            SizeStep::Job(job) => {
                // Truncation touches metadata only; it is done here, in order.
                let crate::jobs::Done::Sized(done) = self.pool.run_here(Job::Size(job)) else {
                    return Step::Done;
                };
                let progress = self.cache.on_sized(done);
                let result = progress.error.map_or(Ok(()), Err);
                let finished = std::mem::replace(task, placeholder(task));
                self.finish_size(answer, finished, result);
                self.on_progress(Progress { error: None, ..progress });
                Step::Done
            }
        }
    }

    /// The size is set, or could not be; what else was asked for follows.
    pub(crate) fn finish_size(
        &mut self,
        answer: Answer,
        task: SizeTask,
        result: Result<(), StoreError>,
    ) {
        match (task.reply, result) {
            (SizeReply::Open(open), result) => self.finish_open(answer, &open, result),
            (SizeReply::SetAttributes, Err(error)) => {
                self.reply_set(answer, error.into(), AttributeBitmap::NONE);
            }
            (SizeReply::SetAttributes, Ok(())) => {
                let mut rest = task.rest;
                let times = self.times_behind_data(&task.handle, &mut rest);
                let rest = match rest.is_empty() {
                    true => Ok(()),
                    false => {
                        task.who.store().set_attributes(&task.who, &task.handle, &rest).map(|_| ())
                    }
                };
                self.revalidate(&task.handle);
                let wanted = AttributeBitmap(task.set);
                match (rest, times) {
                    (Ok(()), Some((file, times))) => {
                        self.set_times(answer, task.who, (task.handle, file), times, wanted);
                    }
                    (Ok(()), None) => self.reply_set(answer, Status::Ok, wanted),
                    (Err(error), _) => {
                        let size = dafs_wire::attributes::file::bits::OBJECT_SIZE;
                        self.reply_set(answer, error.into(), size);
                    }
                }
            }
        }
    }

    fn reply_set(&mut self, answer: Answer, status: Status, set: AttributeBitmap) {
        let response = Response::SetAttrInline(SetAttributesResult { set });
        self.respond(answer, status, &response);
    }

    // ---- comparing ------------------------------------------------------------------

    pub(crate) fn verify(
        &mut self,
        answer: Answer,
        request: &Verify<'_>,
        wants_same: bool,
    ) -> Result<(), Status> {
        let valid = request.attributes.valid();
        let full = self.full_attributes(answer, &request.file, valid)?;
        let order = self.order_of(answer.endpoint).ok_or(Status::BadSession)?;
        let mut buffers = Buffers::default();
        let buffer = buffers.for_attributes(valid);
        let ours = FileAttributeBlock::encode_file(order, valid, &full, buffer)
            .map_err(|error| error.status())?;
        if ours.valid() != valid {
            return Err(Status::NotSupp);
        }
        let same = ours.file() == request.attributes.file();
        match (same, wants_same) {
            (true, true) => self.reply(answer, &Response::Verify(Empty)),
            (false, false) => self.reply(answer, &Response::NVerify(Empty)),
            (false, true) => return Err(Status::NotSame),
            (true, false) => return Err(Status::Same),
        }
        Ok(())
    }
}

/// Stands for a task whose content has been moved out.
fn placeholder(task: &SizeTask) -> SizeTask {
    SizeTask {
        who: task.who.clone(),
        file: task.file,
        handle: task.handle,
        size: task.size,
        undo_seen: task.undo_seen,
        started: true,
        rest: AttributeChanges::default(),
        set: 0,
        reply: SizeReply::SetAttributes,
    }
}

/// Room for attributes: most fit on the stack, lists do not.
struct Buffers {
    small: [u8; PLAIN_ATTRIBUTE_BYTES_MAX],
    large: Vec<u8>,
}

impl Default for Buffers {
    fn default() -> Self {
        Self { small: [0; PLAIN_ATTRIBUTE_BYTES_MAX], large: Vec::new() }
    }
}

impl Buffers {
    fn for_attributes(&mut self, wanted: AttributeBitmap) -> &mut [u8] {
        if wanted.and(EXTRAS) == AttributeBitmap::NONE {
            return &mut self.small;
        }
        self.large.resize(ATTRIBUTE_BYTES_MAX, 0);
        &mut self.large
    }
}

/// Which of the attributes that cost the store calls of their own are wanted.
pub(crate) fn extras_in(wanted: AttributeBitmap) -> ExtrasWanted {
    use dafs_wire::attributes::file::bits;
    ExtrasWanted {
        named_attributes: wanted.contains(bits::NAMED_ATTR),
        acl: wanted.contains(bits::ACL),
        mime_type: wanted.contains(bits::MIME_TYPE),
    }
}

/// Puts them beside the others.
pub(crate) fn add_extras(full: &mut FileAttributes, extras: Extras) {
    full.named_attributes = extras.named_attributes;
    full.acl = extras.acl;
    full.mime_type = extras.mime_type;
}

/// Those of them that are to be set.
pub(crate) fn extras_of(attributes: &FileAttributeBlock<'_>) -> Result<ExtraChanges, Status> {
    if attributes.valid().and(EXTRAS) == AttributeBitmap::NONE {
        return Ok(ExtraChanges::default());
    }
    let wanted = attributes.set().map_err(|error| error.status())?;
    Ok(ExtraChanges { acl: wanted.acl, mime_type: wanted.mime_type })
}

/// Attributes that are set by a call of their own.
const EXTRAS: AttributeBitmap =
    dafs_wire::attributes::file::bits::ACL.with(dafs_wire::attributes::file::bits::MIME_TYPE);
/// Attributes that may be set when data has gone its way.
const BEHIND_DATA: AttributeBitmap = {
    use dafs_wire::attributes::file::bits as b;
    b::TIME_ACCESS_SET.with(b::TIME_MODIFY_SET).with(b::MODE)
};
/// Set-user-id and set-group-id.
const SET_ID_BITS: u32 = 0o6000;
/// Attributes a local file system can tell.
const SUPPORTED: AttributeBitmap = {
    use dafs_wire::attributes::file::bits as b;
    b::NAMED_ATTR
        .with(b::OBJECT_TYPE)
        .with(b::MODE)
        .with(b::NUM_LINKS)
        .with(b::CHANGE)
        .with(b::OBJECT_SIZE)
        .with(b::FILE_ID)
        .with(b::SPACE_USED)
        .with(b::TIME_ACCESS)
        .with(b::TIME_ACCESS_SET)
        .with(b::TIME_CREATE)
        .with(b::TIME_DELTA)
        .with(b::TIME_METADATA)
        .with(b::TIME_MODIFY)
        .with(b::TIME_MODIFY_SET)
        .with(b::RAW_DEV)
        .with(b::FILEHANDLE)
        .with(b::ACL)
        .with(b::MIME_TYPE)
        .with(b::OWNER)
        .with(b::OWNER_GROUP)
};
const PREFERRED_IO_BYTES: u32 = 1 << 20;
