//! Looks up, creates, renames and removes names.
//!
//! Invariant: a new object belongs to the calling user if the mount's identity may set the owner.
//! The object belongs to the directory's group if the directory has the set-group-id bit.

use std::ffi::{OsStr, OsString};
use std::rc::Rc;

use dafs_client::{DeviceNumber, NewObject, OpenOptions, Outcome, SetAttributes, ShareAccess};

use crate::abi::Message;
use crate::attributes::{device_number, last_metadata};
use crate::engine::{Caller, Engine, ErrnoResult, Reply};
use crate::files::OpenFile;
use crate::nodes::Node;

impl Engine {
    pub(crate) async fn lookup(
        self: Rc<Self>,
        directory: u64,
        name: OsString,
    ) -> ErrnoResult<Reply> {
        let directory = self.node(directory)?.handle;
        if name.len() > NAME_BYTES_MAX {
            return Err(ENAMETOOLONG);
        }
        let (session, _) = self.session();
        let brought = session.chain().at(directory).lookup(&name).getattr().run_async().await;
        match brought.map_err(|failure| self.failed(&failure.error)) {
            Ok(outcomes) => Ok(self.entry_reply(&last_metadata(outcomes)?)),
            Err(ENOENT) if !self.options.negative_timeout.is_zero() => {
                let life = self.options.negative_timeout;
                let mut message = Message::default();
                message.u64(0).u64(0).u64(life.as_secs()).u64(0).u32(life.subsec_nanos());
                message.0.resize(crate::reply::ENTRY_BYTES, 0);
                Ok(Reply::Body(message.0))
            }
            Err(errno) => Err(errno),
        }
    }

    /// Returns the owner and group to set on a new object; `None` if they need not be set.
    fn owner(&self, caller: Caller, directory: &Node) -> Option<(u32, u32)> {
        let inherits = directory.mode & SET_GROUP_ID != 0;
        let gid = if inherits { directory.gid } else { caller.gid };
        self.names_owners.then_some((caller.uid, gid))
    }

    /// Creates any object other than a regular file.
    async fn make(
        self: &Rc<Self>,
        caller: Caller,
        directory: u64,
        name: &OsStr,
        object: NewObject<'_>,
        mode: Option<u32>,
    ) -> ErrnoResult<Reply> {
        let directory = self.node(directory)?;
        let owner = self.owner(caller, &directory);
        let wanted = SetAttributes {
            mode: mode.map(|mode| mode & 0o7777),
            owner: owner.map(|(uid, _)| uid.to_string()),
            owner_group: owner.map(|(_, gid)| gid.to_string()),
            ..SetAttributes::default()
        };
        let (session, _) = self.session();
        let made = session.create_in_async(directory.handle, name, name, object, &wanted).await;
        let metadata = self.metadata(made.map_err(|error| self.failed(&error))?).await?;
        Ok(self.entry_reply(&metadata))
    }

    pub(crate) async fn mkdir(
        self: Rc<Self>,
        caller: Caller,
        directory: u64,
        name: OsString,
        mode: u32,
    ) -> ErrnoResult<Reply> {
        self.make(caller, directory, &name, NewObject::Directory, Some(mode)).await
    }

    pub(crate) async fn symlink(
        self: Rc<Self>,
        caller: Caller,
        directory: u64,
        name: OsString,
        text: Vec<u8>,
    ) -> ErrnoResult<Reply> {
        self.make(caller, directory, &name, NewObject::SymbolicLink(&text), None).await
    }

    pub(crate) async fn mknod(
        self: Rc<Self>,
        caller: Caller,
        directory: u64,
        name: OsString,
        mode: u32,
        device: u32,
    ) -> ErrnoResult<Reply> {
        let parent = self.node(directory)?;
        let number = DeviceNumber {
            major: u64::from((device >> 8) & 0xfff),
            minor: u64::from((device & 0xff) | ((device >> 12) & 0xfff00)),
        };
        let object = match mode & 0o170_000 {
            0 | 0o100_000 => {
                let (_, metadata) = self.make_file(caller, &parent, &name, mode, O_RDWR).await?;
                return Ok(self.entry_reply(&metadata));
            }
            0o010_000 => NewObject::Fifo,
            0o140_000 => NewObject::Socket,
            0o020_000 => NewObject::CharacterDevice(number),
            0o060_000 => NewObject::BlockDevice(number),
            _ => return Err(EINVAL),
        };
        self.make(caller, directory, &name, object, Some(mode)).await
    }

    /// Creates a new file and opens it.
    async fn make_file(
        self: &Rc<Self>,
        caller: Caller,
        directory: &Node,
        name: &OsStr,
        mode: u32,
        flags: u32,
    ) -> ErrnoResult<(OpenFile, dafs_client::Metadata)> {
        let options = OpenOptions::read()
            .create(true)
            .create_new(true)
            .mode(mode & 0o7777)
            .access(ShareAccess::Both)
            .owner(self.owner(caller, directory));
        let (session, epoch) = self.session();
        let chain = session.chain().at(directory.handle).open(name, &options).getattr();
        let outcomes = chain.run_async().await.map_err(|failure| self.failed(&failure.error))?;
        let Some(&Outcome::Opened { file, state }) = outcomes.first() else { return Err(EIO) };
        let metadata = last_metadata(outcomes)?;
        let unstable = self.unstable_of(file);
        let file = session.opened(file, state, name);
        Ok((OpenFile::new(file, epoch, flags, unstable), metadata))
    }

    pub(crate) async fn create(
        self: Rc<Self>,
        caller: Caller,
        directory: u64,
        name: OsString,
        mode: u32,
        flags: u32,
    ) -> ErrnoResult<Reply> {
        let parent = self.node(directory)?;
        let made = self.make_file(caller, &parent, &name, mode, self.widened(flags)).await;
        let (file, metadata) = match made {
            // Another client created the file first, so the kernel has not checked this user's
            // permission on it. After ESTALE the kernel looks up the name again and opens that
            // file.
            Err(EEXIST) if flags & O_EXCL == 0 => return Err(ESTALE),
            made => made?,
        };
        let stat = self.stat(&metadata);
        let node = self.nodes.borrow_mut().look_up(&metadata, &stat);
        let mut message = Message::default();
        message.entry(node, &stat, device_number(&metadata), self.lifetimes());
        let open_flags = self.open_flags(&file, node, &metadata);
        let handle = self.files.borrow_mut().insert(Rc::new(file)).to_bits();
        message.opened(handle, open_flags);
        Ok(Reply::Entries(message.0, vec![node]))
    }

    pub(crate) async fn link(
        self: Rc<Self>,
        source: u64,
        directory: u64,
        name: OsString,
    ) -> ErrnoResult<Reply> {
        let (source, directory) = (self.node(source)?.handle, self.node(directory)?.handle);
        let (session, _) = self.session();
        let linked = session.link_in_async(source, directory, &name, "").await;
        linked.map_err(|error| self.failed(&error))?;
        let metadata = self.metadata(source).await?;
        Ok(self.entry_reply(&metadata))
    }

    pub(crate) async fn remove(
        self: Rc<Self>,
        directory: u64,
        name: OsString,
    ) -> ErrnoResult<Reply> {
        let directory = self.node(directory)?.handle;
        let (session, _) = self.session();
        let removed = session.remove_in_async(directory, &name, "").await;
        removed.map(|()| Reply::Done).map_err(|error| self.failed(&error))
    }

    pub(crate) async fn rename(
        self: Rc<Self>,
        (from, old_name): (u64, OsString),
        (to, new_name): (u64, OsString),
        flags: u32,
    ) -> ErrnoResult<Reply> {
        let from = (self.node(from)?.handle, &*old_name);
        let to = (self.node(to)?.handle, &*new_name);
        let (session, _) = self.session();
        let renamed = match flags {
            0 => session.rename_in_async(from, to, "").await,
            RENAME_NOREPLACE => session.rename_new_in_async(from, to, "").await,
            // The protocol has no request to exchange two names, as with NFS.
            _ => return Err(EINVAL),
        };
        renamed.map(|()| Reply::Done).map_err(|error| self.failed(&error))
    }

    pub(crate) async fn readlink(self: Rc<Self>, node: u64) -> ErrnoResult<Reply> {
        let handle = self.node(node)?.handle;
        let (session, _) = self.session();
        let text = session.read_link_async(handle, "").await;
        Ok(Reply::Body(text.map_err(|error| self.failed(&error))?))
    }
}

const NAME_BYTES_MAX: usize = dafs_types::limits::NAME_BYTES_MAX;
const SET_GROUP_ID: u32 = 0o2000;
const RENAME_NOREPLACE: u32 = 1;
const O_RDWR: u32 = 2;
const O_EXCL: u32 = 0o200;
const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;
const ENAMETOOLONG: i32 = 36;
const ESTALE: i32 = 116;
