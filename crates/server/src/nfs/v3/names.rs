//! The procedures LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME and LINK.

use dafs_files::outcome::Now;
use dafs_nfs_wire::nfs3::{
    CreateArgs, CreateHow, CreateOk, CreateResult, DirectoryOp, LinkArgs, LinkOk, LinkResult,
    LookupOk, LookupResult, MkDirArgs, MkNodArgs, MkNodData, RenameArgs, RenameOk, RenameResult,
    SetAttributes as Asked, Status, SymLinkArgs, WccData, WccResult,
};
use dafs_nfs_wire::xdr::Opaque;
use dafs_ops::SetAttributes;
use dafs_store::{NewNode, StoreError};
use dafs_types::{
    CreateMode, DeviceNumber, FileHandle, ObjectType, RemoveMode, SetAttributes as Settings,
    StateId, Verifier,
};

use super::{Before, Result, Service, Suspended, convert, status_of};
use crate::nfs::calls::Progress;

impl Service<'_, '_, '_> {
    pub(super) fn look_up(&mut self, asked: &DirectoryOp<'_>) {
        let found = self.found(asked);
        let directory = self.attributes_of_object(asked.directory);
        let attributes = found.as_ref().ok().and_then(|handle| self.attributes(handle));
        self.answer(&match &found {
            Ok(handle) => {
                LookupResult::Ok(LookupOk { file: Opaque(&handle.0), attributes, directory })
            }
            Err(status) => LookupResult::Fail(*status, directory),
        });
    }

    fn found(&mut self, asked: &DirectoryOp<'_>) -> Result<FileHandle> {
        let directory = self.object(asked.directory)?;
        let by = self.by.clone();
        let found = match asked.name.0 {
            b"." => self.itself(&directory),
            b".." => match by.store().lookup_parent(&by, &directory) {
                // The root of the exports is its own parent.
                Err(StoreError::NotFound) => Ok(directory),
                found => found.map(|object| object.handle),
            },
            name => by.store().lookup(&by, &directory, name).map(|object| object.handle),
        };
        let handle = found.map_err(|error| self.failed(&directory, error))?;
        self.reactor.files().check_fence(&by, &handle).map_err(status_of)?;
        Ok(handle)
    }

    /// Returns the handle `directory` if its object is a directory, for a lookup of `.`.
    fn itself(&mut self, directory: &FileHandle) -> std::result::Result<FileHandle, StoreError> {
        let by = self.by.clone();
        let found = by.store().attributes(&by, directory)?;
        match found.kind {
            ObjectType::Directory | ObjectType::AttributeDirectory => Ok(*directory),
            _ => Err(StoreError::NotDirectory),
        }
    }

    // ---- creation ---------------------------------------------------------------------

    pub(super) fn create(&mut self, asked: &CreateArgs<'_>) -> Progress {
        let (directory, before) = match self.directory(asked.at.directory) {
            Ok(found) => found,
            Err(status) => return self.refuse_create(status),
        };
        let made = self.make(&directory, asked);
        let (handle, truncates) = match made {
            Ok(made) => made,
            Err(status) => {
                self.finish_create(&directory, before, Err(status));
                return Progress::Done;
            }
        };
        if !truncates {
            self.finish_create(&directory, before, Ok(handle));
            return Progress::Done;
        }
        let attributes = Settings { size: Some(0), ..Settings::default() };
        let ask = SetAttributes { file: handle, state: StateId::ANONYMOUS, attributes };
        let by = self.by.clone();
        match self.reactor.files().set_attributes(&by, &ask) {
            Ok(Now::Done(outcome)) => {
                let created = match outcome.result {
                    Ok(_) => Ok(handle),
                    Err(_) => Err(convert::failure_of(&outcome)),
                };
                self.finish_create(&directory, before, created);
            }
            Ok(Now::Later(left)) => {
                return self.follow(*left, Suspended::Create(handle, directory, before));
            }
            Err(why) => {
                let status = self.not_done(why);
                self.finish_create(&directory, before, Err(status));
            }
        }
        Progress::Done
    }

    /// Creates or finds the file of a CREATE. Returns its handle, and true if the file existed and
    /// must be truncated.
    fn make(
        &mut self,
        directory: &FileHandle,
        asked: &CreateArgs<'_>,
    ) -> Result<(FileHandle, bool)> {
        let name = new_name(asked.at.name.0)?;
        let (mode, settings) = match &asked.how {
            CreateHow::Unchecked(wanted) => (CreateMode::Unchecked, convert::settings(wanted)?),
            CreateHow::Guarded(wanted) => (CreateMode::Guarded, convert::settings(wanted)?),
            CreateHow::Exclusive(verifier) => {
                (CreateMode::Exclusive(Verifier(*verifier)), Settings::default())
            }
        };
        let truncates = mode == CreateMode::Unchecked && settings.size == Some(0);
        let by = self.by.clone();
        let created = self.reactor.files().create_file(&by, (directory, name), mode, &settings);
        let created = created.map_err(|fault| self.failed(directory, fault))?;
        Ok((created.object.handle, truncates && !created.is_new))
    }

    pub(super) fn make_directory(&mut self, asked: &MkDirArgs<'_>) {
        self.make_other(&asked.at, NewNode::Directory, &asked.attributes);
    }

    pub(super) fn make_link(&mut self, asked: &SymLinkArgs<'_>) {
        let node = NewNode::SymbolicLink(asked.link.target.0);
        self.make_other(&asked.at, node, &asked.link.attributes);
    }

    pub(super) fn make_node(&mut self, asked: &MkNodArgs<'_>) {
        let device = |device: &dafs_nfs_wire::nfs3::DeviceNumber| DeviceNumber {
            major: u64::from(device.major),
            minor: u64::from(device.minor),
        };
        match &asked.what {
            MkNodData::Character(node) => {
                let made = NewNode::CharacterDevice(device(&node.device));
                self.make_other(&asked.at, made, &node.attributes);
            }
            MkNodData::Block(node) => {
                let made = NewNode::BlockDevice(device(&node.device));
                self.make_other(&asked.at, made, &node.attributes);
            }
            MkNodData::Socket(attributes) => {
                self.make_other(&asked.at, NewNode::Socket, attributes);
            }
            MkNodData::Fifo(attributes) => self.make_other(&asked.at, NewNode::Fifo, attributes),
            MkNodData::Other(_) => {
                self.refuse_create(Status::BadType);
            }
        }
    }

    fn make_other(&mut self, at: &DirectoryOp<'_>, node: NewNode<'_>, wanted: &Asked) {
        let (directory, before) = match self.directory(at.directory) {
            Ok(found) => found,
            Err(status) => {
                self.refuse_create(status);
                return;
            }
        };
        let made = new_name(at.name.0).and_then(|name| {
            let settings = convert::settings(wanted)?;
            let by = self.by.clone();
            let made = self.reactor.files().create_node(&by, (&directory, name), node, &settings);
            made.map_err(|fault| self.failed(&directory, fault))
        });
        self.finish_create(&directory, before, made.map(|made| made.object.handle));
    }

    pub(super) fn finish_create(
        &mut self,
        directory: &FileHandle,
        before: Before,
        created: Result<FileHandle>,
    ) {
        let changes = self.changes(directory, before);
        let attributes = created.as_ref().ok().and_then(|handle| self.attributes(handle));
        self.answer(&match &created {
            Ok(handle) => CreateResult::Ok(CreateOk {
                file: Some(Opaque(&handle.0)),
                attributes,
                directory: changes,
            }),
            Err(status) => CreateResult::Fail(*status, changes),
        });
    }

    /// Writes the reply to a failed CREATE or similar procedure, without attributes of the
    /// directory.
    fn refuse_create(&mut self, status: Status) -> Progress {
        self.answer(&CreateResult::Fail(status, WccData::default()));
        Progress::Done
    }

    /// Returns the handle of a directory that is to be changed, and its attributes before the
    /// change.
    fn directory(
        &mut self,
        given: dafs_nfs_wire::nfs3::Handle<'_>,
    ) -> Result<(FileHandle, Before)> {
        let directory = self.object(given)?;
        let by = self.by.clone();
        match self.reactor.files().attributes_of(&by, &directory) {
            Ok(found) => match found.kind {
                ObjectType::Directory | ObjectType::AttributeDirectory => {
                    Ok((directory, Some(convert::before(&found))))
                }
                _ => Err(Status::NotDir),
            },
            Err(error) => Err(self.failed(&directory, error)),
        }
    }

    // ---- removal ----------------------------------------------------------------------

    pub(super) fn remove(&mut self, asked: &DirectoryOp<'_>, is_directory: bool) {
        let (directory, before) = match self.directory(asked.directory) {
            Ok(found) => found,
            Err(status) => return self.answer(&WccResult::Fail(status, WccData::default())),
        };
        let removed = self.remove_name(&directory, asked.name.0, is_directory);
        let changes = self.changes(&directory, before);
        self.answer(&match removed {
            Ok(()) => WccResult::Ok(changes),
            Err(status) => WccResult::Fail(status, changes),
        });
    }

    fn remove_name(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        is_directory: bool,
    ) -> Result<()> {
        match name {
            b"." => return Err(Status::Inval),
            b".." => return Err(if is_directory { Status::NotEmpty } else { Status::Inval }),
            _ => {}
        }
        let by = self.by.clone();
        let found = by.store().lookup(&by, directory, name);
        let found = found.map_err(|error| self.failed(directory, error))?;
        match (found.attributes.kind == ObjectType::Directory, is_directory) {
            (true, false) => return Err(Status::IsDir),
            (false, true) => return Err(Status::NotDir),
            _ => {}
        }
        let removed = self.reactor.files().remove(&by, (directory, name), RemoveMode::Unchecked);
        match removed {
            Ok(removed) => {
                if let Some(held) = removed.held {
                    self.reactor.shared.afterwards.close_removed(held);
                }
                Ok(())
            }
            Err(why) => Err(self.not_done(why)),
        }
    }

    pub(super) fn rename(&mut self, asked: &RenameArgs<'_>) {
        let none = RenameOk { from: WccData::default(), to: WccData::default() };
        let both = self.directory(asked.from.directory).and_then(|from| {
            let to = self.directory(asked.to.directory)?;
            Ok((from, to))
        });
        let ((from, from_before), (to, to_before)) = match both {
            Ok(both) => both,
            Err(status) => return self.answer(&RenameResult::Fail(status, none)),
        };
        let renamed = old_name(asked.from.name.0).and_then(|old| {
            let new = old_name(asked.to.name.0)?;
            let by = self.by.clone();
            let renamed = self.reactor.files().rename(&by, (&from, old), (&to, new));
            renamed.map_err(|why| self.not_done(why))
        });
        let changes =
            RenameOk { from: self.changes(&from, from_before), to: self.changes(&to, to_before) };
        self.answer(&match renamed {
            Ok(_) => RenameResult::Ok(changes),
            Err(status) => RenameResult::Fail(status, changes),
        });
    }

    pub(super) fn link(&mut self, asked: &LinkArgs<'_>) {
        let none = LinkOk { attributes: None, directory: WccData::default() };
        let both = self.object(asked.file).and_then(|file| {
            let directory = self.directory(asked.at.directory)?;
            Ok((file, directory))
        });
        let (file, (directory, before)) = match both {
            Ok(both) => both,
            Err(status) => return self.answer(&LinkResult::Fail(status, none)),
        };
        let linked = new_name(asked.at.name.0).and_then(|name| {
            let by = self.by.clone();
            let linked = self.reactor.files().link(&by, &file, (&directory, name));
            linked.map_err(|why| self.not_done(why))
        });
        let changes = LinkOk {
            attributes: self.attributes(&file),
            directory: self.changes(&directory, before),
        };
        self.answer(&match linked {
            Ok(_) => LinkResult::Ok(changes),
            Err(status) => LinkResult::Fail(status, changes),
        });
    }
}

/// Checks a name that is to be created. The names `.` and `..` are refused, because they exist in
/// every directory.
fn new_name(name: &[u8]) -> Result<&[u8]> {
    match name {
        b"." | b".." => Err(Status::Exist),
        name => Ok(name),
    }
}

/// Checks a name that is to be renamed, removed or replaced.
fn old_name(name: &[u8]) -> Result<&[u8]> {
    match name {
        b"." | b".." => Err(Status::Inval),
        name => Ok(name),
    }
}
