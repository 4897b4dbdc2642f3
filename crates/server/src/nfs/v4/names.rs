//! The operations on names: CREATE, REMOVE, RENAME, LINK and READLINK.

use dafs_nfs_wire::nfs4::directory::{CreateArgs, CreateDone, CreateKind, RenameArgs, RenameDone};
use dafs_nfs_wire::nfs4::types::{DeviceNumber as Given, Name, check_name};
use dafs_nfs_wire::nfs4::{Answer, Reply, Status};
use dafs_nfs_wire::xdr::Opaque;
use dafs_store::NewNode;
use dafs_types::{DeviceNumber, FileHandle, ObjectType, RemoveMode};

use super::compound::Service;
use super::convert::{change, status_of};
use super::fault::{Result, failed, not_done};
use super::handles::NAME_BYTES_MAX;
use super::settings::settings_of;
use super::waiting::Did;

impl Service<'_, '_, '_> {
    pub(super) fn create(&mut self, asked: &CreateArgs<'_>) -> Result<Did> {
        let directory = self.plain_directory()?;
        let name = check_name(&asked.name, NAME_BYTES_MAX)?;
        let settings = settings_of(&asked.attributes, true)?;
        if settings.attributes.size.is_some() {
            return Err(Status::Inval);
        }
        let device = |given: &Given| DeviceNumber {
            major: u64::from(given.major),
            minor: u64::from(given.minor),
        };
        let node = match &asked.kind {
            CreateKind::Directory => NewNode::Directory,
            CreateKind::BlockDevice(given) => NewNode::BlockDevice(device(given)),
            CreateKind::CharacterDevice(given) => NewNode::CharacterDevice(device(given)),
            CreateKind::SymbolicLink(target) if target.0.is_empty() => return Err(Status::Inval),
            CreateKind::SymbolicLink(target) => NewNode::SymbolicLink(target.0),
            CreateKind::Socket => NewNode::Socket,
            CreateKind::Fifo => NewNode::Fifo,
            // A regular file is created by OPEN.
            CreateKind::Other(_) => return Err(Status::BadType),
        };
        let by = self.by()?;
        let mut files = self.reactor.files();
        let created = files.create_node(&by, (&directory, name), node, &settings.attributes);
        let created = match created {
            Ok(created) => created,
            Err(fault) => return Err(failed(self.reactor, &directory, fault)),
        };
        self.set_current(created.object.handle);
        let done = CreateDone { change: change(created.change), attributes: settings.mask };
        self.push(&Answer::Create(Reply::Ok(done)))
    }

    pub(super) fn remove(&mut self, name: &Name<'_>) -> Result<Did> {
        let directory = self.plain_directory()?;
        let name = check_name(name, NAME_BYTES_MAX)?;
        let by = self.by()?;
        let removed = self.reactor.files().remove(&by, (&directory, name), RemoveMode::Unchecked);
        let removed = match removed {
            Ok(removed) => removed,
            Err(why) => return Err(not_done(self.reactor, why)),
        };
        if let Some(held) = removed.held {
            self.reactor.shared.afterwards.close_removed(held);
        }
        self.push(&Answer::Remove(Reply::Ok(change(removed.directory))))
    }

    pub(super) fn rename(&mut self, asked: &RenameArgs<'_>) -> Result<Did> {
        let (source, target) = (self.saved()?, self.plain_directory()?);
        self.check_directory(&source)?;
        let old = check_name(&asked.old_name, NAME_BYTES_MAX)?;
        let new = check_name(&asked.new_name, NAME_BYTES_MAX)?;
        let by = self.by()?;
        match self.reactor.files().rename(&by, (&source, old), (&target, new)) {
            Ok(renamed) => {
                let done =
                    RenameDone { source: change(renamed.source), target: change(renamed.target) };
                self.push(&Answer::Rename(Reply::Ok(done)))
            }
            Err(why) => Err(not_done(self.reactor, why)),
        }
    }

    pub(super) fn link(&mut self, name: &Name<'_>) -> Result<Did> {
        let (file, directory) = (self.saved()?, self.plain_directory()?);
        if self.kind_of(&file)? == ObjectType::Directory {
            return Err(Status::IsDir);
        }
        let name = check_name(name, NAME_BYTES_MAX)?;
        let by = self.by()?;
        match self.reactor.files().link(&by, &file, (&directory, name)) {
            Ok(changed) => self.push(&Answer::Link(Reply::Ok(change(changed)))),
            Err(why) => Err(not_done(self.reactor, why)),
        }
    }

    pub(super) fn read_link(&mut self) -> Result<Did> {
        let handle = self.current()?;
        if self.kind_of(&handle)? != ObjectType::SymbolicLink {
            return Err(Status::WrongType);
        }
        let by = self.by()?;
        let text = by.store().readlink(&by, &handle).map_err(status_of)?;
        self.push(&Answer::ReadLink(Reply::Ok(Opaque(&text))))
    }

    /// Returns the current file handle. Fails with NOTDIR if its object is not a directory, even if
    /// it is a symbolic link.
    pub(super) fn plain_directory(&mut self) -> Result<FileHandle> {
        let directory = self.current()?;
        self.check_directory(&directory)?;
        Ok(directory)
    }

    fn check_directory(&mut self, handle: &FileHandle) -> Result<()> {
        match self.kind_of(handle)? {
            ObjectType::Directory | ObjectType::AttributeDirectory => Ok(()),
            _ => Err(Status::NotDir),
        }
    }
}
