//! Attributes of objects and of the file system.
//!
//! Invariant: the kernel checks permissions before it sends a request (`default_permissions`). The
//! server checks them again, for the identity of the mount.

use std::rc::Rc;

use dafs_client::{Metadata, Outcome, Session};
use dafs_types::{FileHandle, SetAttributes, SetTime, Timestamp};
use dafs_wire::{Request, Response};

use crate::abi::{Fields, Message, ROOT, set};
use crate::engine::{Engine, ErrnoResult, Reply};

/// The attributes that a SETATTR sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetAttributesRequest {
    valid: u32,
    file: u64,
    size: u64,
    accessed: Timestamp,
    modified: Timestamp,
    mode: u32,
    uid: u32,
    gid: u32,
}

impl SetAttributesRequest {
    /// Reads a `struct fuse_setattr_in`.
    pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let (valid, _) = (fields.u32()?, fields.u32()?);
        let (file, size, _lock_owner) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let seconds = [fields.u64()?, fields.u64()?, fields.u64()?];
        let nanoseconds = [fields.u32()?, fields.u32()?, fields.u32()?];
        let (mode, _, uid, gid) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
        let time = |index: usize| Timestamp {
            seconds: seconds[index].cast_signed(),
            nanoseconds: nanoseconds[index],
        };
        let (accessed, modified) = (time(0), time(1));
        Some(Self { valid, file, size, accessed, modified, mode, uid, gid })
    }

    fn has(&self, bit: u32) -> bool {
        self.valid & bit != 0
    }

    fn time(&self, bit: u32, now: u32, time: Timestamp) -> Option<SetTime> {
        let set = if self.has(now) { SetTime::Server } else { SetTime::Client(time) };
        self.has(bit).then_some(set)
    }

    fn attributes(&self) -> SetAttributes {
        SetAttributes {
            mode: self.has(set::MODE).then_some(self.mode & 0o7777),
            size: self.has(set::SIZE).then_some(self.size),
            time_access: self.time(set::ATIME, set::ATIME_NOW, self.accessed),
            time_modify: self.time(set::MTIME, set::MTIME_NOW, self.modified),
            owner: self.has(set::UID).then(|| self.uid.to_string()),
            owner_group: self.has(set::GID).then(|| self.gid.to_string()),
            ..SetAttributes::default()
        }
    }
}

impl Engine {
    pub(crate) async fn getattr(self: Rc<Self>, node: u64) -> ErrnoResult<Reply> {
        let known = self.node(node)?;
        match (self.metadata(known.handle).await, known.removed_directory()) {
            (Ok(metadata), _) => Ok(self.attributes_reply(node, &metadata)),
            // A process whose working directory was removed can still query it. The process learns
            // that the directory is gone when it creates something there.
            (Err(ESTALE), Some(stat)) => {
                let mut message = Message::default();
                message.attributes_out(&stat, 0, self.lifetimes());
                Ok(Reply::Body(message.0))
            }
            (Err(errno), _) => Err(errno),
        }
    }

    pub(crate) async fn metadata(self: &Rc<Self>, handle: FileHandle) -> ErrnoResult<Metadata> {
        let (session, _) = self.session();
        session.metadata_async(handle, "").await.map_err(|error| self.failed(&error))
    }

    /// Returns a reply with the attributes of an object that the kernel knows.
    fn attributes_reply(&self, node: u64, metadata: &Metadata) -> Reply {
        let stat = self.stat(metadata);
        if let Some(node) = self.nodes.borrow_mut().get_mut(node) {
            node.seen(&stat);
        }
        let mut message = Message::default();
        message.attributes_out(&stat, device_number(metadata), self.lifetimes());
        Reply::Body(message.0)
    }

    /// Returns a reply that introduces an object to the kernel.
    pub(crate) fn entry_reply(&self, metadata: &Metadata) -> Reply {
        let stat = self.stat(metadata);
        let node = self.nodes.borrow_mut().look_up(metadata, &stat);
        let mut message = Message::default();
        message.entry(node, &stat, device_number(metadata), self.lifetimes());
        Reply::Entries(message.0, vec![node])
    }

    pub(crate) async fn setattr(
        self: Rc<Self>,
        node: u64,
        wish: SetAttributesRequest,
    ) -> ErrnoResult<Reply> {
        let handle = self.node(node)?.handle;
        let wanted = wish.attributes();
        let open = match wish.has(set::FH) && wish.has(set::SIZE) {
            // A process that has the file open for writing may truncate it, even if the file's mode
            // no longer allows writing.
            true => self.file(wish.file).ok(),
            false => None,
        };
        let file = match &open {
            Some(open) => Some(self.current(open).await?),
            None => None,
        };
        let (session, _) = self.session();
        let chain = match &file {
            Some(file) => session.chain().of(file),
            None => session.chain().at(handle),
        };
        let brought = chain.setattr(&wanted).getattr().run_async().await;
        let outcomes = brought.map_err(|failure| self.failed(&failure.error))?;
        let metadata = last_metadata(outcomes)?;
        if wish.has(set::SIZE) {
            self.unstable_of(handle).cut(wish.size);
        }
        Ok(self.attributes_reply(node, &metadata))
    }

    pub(crate) async fn statfs(self: Rc<Self>, node: u64) -> ErrnoResult<Reply> {
        let file = self.node(node).or_else(|_| self.node(ROOT))?.handle;
        let (session, _) = self.session();
        let found = session.file_system_async(file, "").await;
        let found = found.map_err(|error| self.failed(&error))?;
        let blocks = |bytes: Option<u64>| bytes.unwrap_or(0) / u64::from(FRAGMENT_BYTES);
        let mut message = Message::default();
        message.u64(blocks(found.space_total)).u64(blocks(found.space_free));
        message.u64(blocks(found.space_available)).u64(found.files_total.unwrap_or(0));
        message.u64(found.files_free.unwrap_or(0));
        message.u32(BLOCK_BYTES).u32(found.max_name.unwrap_or(255)).u32(FRAGMENT_BYTES).u32(0);
        message.bytes(&[0; 24]);
        Ok(Reply::Body(message.0))
    }

    /// Sends a chain to the server. If it succeeds, converts its results with `parse`.
    pub(crate) async fn ask<T>(
        self: &Rc<Self>,
        session: &Session,
        request: &Request<'_>,
        read: impl FnOnce(&Response<'_>) -> Option<T>,
    ) -> ErrnoResult<T> {
        let call = session.start(request).map_err(|error| self.failed(&error))?;
        let reply = call.await.map_err(|error| self.failed(&error))?;
        let (status, response) = reply.read().map_err(|error| self.failed(&error))?;
        if status != dafs_types::Status::Ok {
            return Err(dafs_posix::errno::of_status(status));
        }
        read(&response).ok_or(EIO)
    }
}

/// Returns the number of a device node in the kernel's encoding.
pub(crate) fn device_number(metadata: &Metadata) -> u32 {
    let part = |number: u64| u32::try_from(number).unwrap_or(0);
    let (major, minor) = (part(metadata.device.major), part(metadata.device.minor));
    minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

/// Returns the attributes from the last reply of a chain.
pub(crate) fn last_metadata(outcomes: Vec<Outcome>) -> ErrnoResult<Metadata> {
    let found = outcomes.into_iter().rev().find_map(|outcome| match outcome {
        Outcome::Metadata(metadata) => Some(*metadata),
        _ => None,
    });
    found.ok_or(EIO)
}

/// The preferred transfer size in bytes.
const BLOCK_BYTES: u32 = 1 << 20;
/// The unit in which block counts are reported, in bytes.
const FRAGMENT_BYTES: u32 = 4096;
const EIO: i32 = 5;
const ESTALE: i32 = 116;
