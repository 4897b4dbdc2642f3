//! Names: looked up, made, moved, removed.
//!
//! Invariant: what is made belongs to whoever asked, if the mount's identity may say so, and to
//! the directory's group where its set-group-id bit says so.

use std::rc::Rc;

use dafs_client::{Chain, OpenOptions, Outcome, Session};
use dafs_types::attributes::DeviceNumber;
use dafs_types::{FileHandle, RemoveMode, SetAttributes, ShareAccess};
use dafs_wire::messages::{Create, Link, NewObject, Remove, Rename};
use dafs_wire::{Request, Response};

use crate::abi::Message;
use crate::attributes::last_metadata;
use crate::engine::{Answer, Answered, Caller, Engine};
use crate::files::OpenFile;
use crate::nodes::Node;

impl Engine {
    pub async fn lookup(self: Rc<Self>, directory: u64, name: String) -> Answered<Answer> {
        let directory = self.node(directory)?.handle;
        if name.len() > NAME_BYTES_MAX {
            return Err(ENAMETOOLONG);
        }
        let (session, _) = self.session();
        let brought = session.chain().at(directory).lookup(&name).getattr().run_async().await;
        match brought.map_err(|failure| self.failed(&failure.error)) {
            Ok(outcomes) => Ok(self.entry_answer(&last_metadata(outcomes)?)),
            Err(ENOENT) if !self.options.negative_timeout.is_zero() => {
                let life = self.options.negative_timeout;
                let mut message = Message::default();
                message.u64(0).u64(0).u64(life.as_secs()).u64(0).u32(life.subsec_nanos());
                message.0.resize(crate::reply::ENTRY_BYTES, 0);
                Ok(Answer::Body(message.0))
            }
            Err(errno) => Err(errno),
        }
    }

    /// Whom something that is made is to belong to.
    fn owner(&self, caller: Caller, directory: &Node) -> Option<SetAttributes> {
        if !self.names_owners {
            return None;
        }
        let is_inherited = directory.mode & SET_GROUP_ID != 0;
        Some(SetAttributes {
            owner: Some(caller.uid.to_string()),
            owner_group: (!is_inherited).then(|| caller.gid.to_string()),
            ..SetAttributes::default()
        })
    }

    /// Gives the present object of a chain to whoever asked, and asks for its attributes.
    async fn finish(
        self: &Rc<Self>,
        chain: Chain<'_>,
        owner: Option<SetAttributes>,
    ) -> Answered<Vec<Outcome>> {
        let chain = match owner {
            Some(owner) => chain.setattr(&owner),
            None => chain,
        };
        let brought = chain.getattr().run_async().await;
        brought.map_err(|failure| self.failed(&failure.error))
    }

    pub async fn mkdir(
        self: Rc<Self>,
        caller: Caller,
        directory: u64,
        name: String,
        mode: u32,
    ) -> Answered<Answer> {
        let directory = self.node(directory)?;
        let owner = self.owner(caller, &directory);
        let (session, _) = self.session();
        let chain = session.chain().at(directory.handle).create_dir(&name, mode & 0o7777);
        let outcomes = self.finish(chain, owner).await?;
        Ok(self.entry_answer(&last_metadata(outcomes)?))
    }

    pub async fn symlink(
        self: Rc<Self>,
        caller: Caller,
        directory: u64,
        name: String,
        text: Vec<u8>,
    ) -> Answered<Answer> {
        let directory = self.node(directory)?;
        let owner = self.owner(caller, &directory);
        let (session, _) = self.session();
        let chain = session.chain().at(directory.handle).symlink(&text, &name);
        let outcomes = self.finish(chain, owner).await?;
        Ok(self.entry_answer(&last_metadata(outcomes)?))
    }

    pub async fn mknod(
        self: Rc<Self>,
        caller: Caller,
        directory: u64,
        name: String,
        mode: u32,
        device: u32,
    ) -> Answered<Answer> {
        let parent = self.node(directory)?;
        let number = DeviceNumber {
            major: u64::from((device >> 8) & 0xfff),
            minor: u64::from((device & 0xff) | ((device >> 12) & 0xfff00)),
        };
        let object = match mode & 0o170_000 {
            0 | 0o100_000 => {
                let (_, metadata) = self.make_file(caller, &parent, &name, mode, O_RDWR).await?;
                return Ok(self.entry_answer(&metadata));
            }
            0o010_000 => NewObject::Fifo,
            0o140_000 => NewObject::Socket,
            0o020_000 => NewObject::CharacterDevice(number),
            0o060_000 => NewObject::BlockDevice(number),
            _ => return Err(EINVAL),
        };
        let owner = self.owner(caller, &parent);
        let (session, _) = self.session();
        let handle = self.create_object(&session, parent.handle, &name, object, mode).await?;
        let outcomes = self.finish(session.chain().at(handle), owner).await?;
        Ok(self.entry_answer(&last_metadata(outcomes)?))
    }

    async fn create_object(
        self: &Rc<Self>,
        session: &Session,
        directory: FileHandle,
        name: &str,
        object: NewObject<'_>,
        mode: u32,
    ) -> Answered<FileHandle> {
        let wanted = SetAttributes { mode: Some(mode & 0o7777), ..SetAttributes::default() };
        let mut buffer = [0; dafs_wire::limits::ATTRIBUTE_BYTES_MAX];
        let order = dafs_wire::ByteOrder::NATIVE;
        let attributes = dafs_wire::FileAttributeBlock::encode_set(order, &wanted, &mut buffer)
            .map_err(|_| EINVAL)?;
        let request = Request::Create(Create { directory, name, object, attributes });
        let made = self.ask(session, &request, |response| match response {
            Response::Create(created) => Some(created.file),
            _ => None,
        });
        made.await
    }

    /// Makes a file that is not there, and opens it.
    async fn make_file(
        self: &Rc<Self>,
        caller: Caller,
        directory: &Node,
        name: &str,
        mode: u32,
        flags: u32,
    ) -> Answered<(OpenFile, dafs_client::Metadata)> {
        let options = OpenOptions {
            create: true,
            create_new: true,
            mode: mode & 0o7777,
            access: ShareAccess::Both,
            ..OpenOptions::read()
        };
        let owner = self.owner(caller, directory);
        let (session, epoch) = self.session();
        let chain = session.chain().at(directory.handle).open(name, &options);
        let outcomes = self.finish(chain, owner).await?;
        let Some(&Outcome::Opened { file, state }) = outcomes.first() else { return Err(EIO) };
        let metadata = last_metadata(outcomes)?;
        let file = session.opened(file, state, name);
        Ok((OpenFile::new(file, epoch, flags), metadata))
    }

    pub async fn create(
        self: Rc<Self>,
        caller: Caller,
        directory: u64,
        name: String,
        mode: u32,
        flags: u32,
    ) -> Answered<Answer> {
        let parent = self.node(directory)?;
        let made = self.make_file(caller, &parent, &name, mode, flags).await;
        let (file, metadata) = match made {
            // Somebody else was faster. The kernel has not judged whether this one may have it:
            // told that its names are stale, it looks again, and opens what it finds.
            Err(EEXIST) if flags & O_EXCL == 0 => return Err(ESTALE),
            made => made?,
        };
        let node = self.nodes.borrow_mut().look_up(&metadata);
        let mut message = Message::default();
        let stat = self.shown(&metadata);
        message.entry(node, &stat, self.device_number(&metadata), self.lifetimes());
        let open_flags = self.open_flags(&file, node, &metadata);
        let handle = self.files.borrow_mut().insert(Rc::new(file));
        message.opened(handle, open_flags);
        Ok(Answer::Entries(message.0, vec![node]))
    }

    pub async fn link(
        self: Rc<Self>,
        source: u64,
        directory: u64,
        name: String,
    ) -> Answered<Answer> {
        let (source, directory) = (self.node(source)?.handle, self.node(directory)?.handle);
        let (session, _) = self.session();
        let request = Request::Link(Link { source, directory, name: &name });
        self.ask(&session, &request, |_| Some(())).await?;
        let metadata = self.metadata(source).await?;
        Ok(self.entry_answer(&metadata))
    }

    pub async fn remove(self: Rc<Self>, directory: u64, name: String) -> Answered<Answer> {
        let directory = self.node(directory)?.handle;
        let (session, _) = self.session();
        self.remove_name(&session, directory, &name).await?;
        Ok(Answer::Done)
    }

    async fn remove_name(
        self: &Rc<Self>,
        session: &Session,
        directory: FileHandle,
        name: &str,
    ) -> Answered<()> {
        let mode = RemoveMode::Unchecked;
        let request = Request::Remove(Remove { directory, name, mode });
        self.ask(session, &request, |_| Some(())).await
    }

    pub async fn rename(
        self: Rc<Self>,
        (from, old_name): (u64, String),
        (to, new_name): (u64, String),
        flags: u32,
    ) -> Answered<Answer> {
        let (source, target) = (self.node(from)?.handle, self.node(to)?.handle);
        let (session, _) = self.session();
        let request =
            Request::Rename(Rename { source, target, old_name: &old_name, new_name: &new_name });
        match flags {
            0 => {}
            RENAME_NOREPLACE => {
                let chain = session.chain().at(source).lookup(&old_name).getattr();
                let found = chain.run_async().await;
                let found = found.map_err(|failure| self.failed(&failure.error))?;
                let found = last_metadata(found)?;
                if found.kind != dafs_client::ObjectType::Directory {
                    // The new name is made, or is another's; then the old one goes.
                    let (source, directory, name) = (found.handle, target, &new_name[..]);
                    let link = Request::Link(Link { source, directory, name });
                    self.ask(&session, &link, |_| Some(())).await?;
                    let (from, _) = (self.node(from)?.handle, ());
                    self.remove_name(&session, from, &old_name).await?;
                    return Ok(Answer::Done);
                }
                // An empty directory takes the place, or another's is there; it is replaced.
                let place = NewObject::Directory;
                self.create_object(&session, target, &new_name, place, 0o700).await?;
                let renamed = self.ask(&session, &request, |_| Some(())).await;
                if renamed.is_err() {
                    let _ = self.remove_name(&session, target, &new_name).await;
                }
                return renamed.map(|()| Answer::Done);
            }
            // The protocol has no exchange of two names, as NFS has none.
            _ => return Err(EINVAL),
        }
        self.ask(&session, &request, |_| Some(())).await?;
        Ok(Answer::Done)
    }

    pub async fn readlink(self: Rc<Self>, node: u64) -> Answered<Answer> {
        let handle = self.node(node)?.handle;
        let (session, _) = self.session();
        let text = session.read_link_async(handle, "").await;
        Ok(Answer::Body(text.map_err(|error| self.failed(&error))?))
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
