//! Decides whether a request whose intent survived a crash was executed.
//!
//! Invariant: the decision only reads the store, except that an append without an outcome is
//! undone.

use dafs_files::ledger::plan::Precondition;
use dafs_ops::{
    AttributeSet, Changed, Claim, CreateNode, Created, Done, Link, Open, Opened, Operation,
    OwnedDone, Remove, Rename, Renamed, Set, SetAttributes, XattrChanged,
};
use dafs_store::{AttributeChanges, FileVersion, Object, Store, StoreError};
use dafs_types::{ChangeInfo, Credentials, FileHandle, ObjectType, ShareAccess, StateId};

use super::record::Intent;

/// Returns the results of a request if it was executed before the crash, or `None` if it was not.
/// The changes of an executed request are durable when this returns.
///
/// # Errors
/// The store's error if the store cannot be read.
pub(super) fn judge(store: &dyn Store, intent: &Intent) -> Result<Option<OwnedDone>, StoreError> {
    if let Precondition::Appends { file, offset, length } = &intent.precondition {
        undo_append(store, file, *offset, *length)?;
        return Ok(None);
    }
    let Some(operation) = Operation::decode(&intent.operation) else {
        // This is unreachable, because intents contain only operations that were encoded
        // successfully.
        return Ok(None);
    };
    let scene = Scene { store, precondition: &intent.precondition };
    let done = match &operation {
        Operation::CreateNode(asked) => scene.create(asked)?,
        Operation::Open(asked) => scene.open(asked)?,
        Operation::Link(asked) => scene.link(asked)?,
        Operation::Remove(asked) => scene.remove(asked)?,
        Operation::Rename(asked) => scene.rename(asked)?,
        Operation::SetAttributes(asked) => scene.set_attributes(asked)?,
        Operation::SetXattr(asked) => {
            scene.has_xattr(&asked.file, asked.name, Some(asked.value))?
        }
        Operation::RemoveXattr(asked) => scene.has_xattr(&asked.file, asked.name, None)?,
        // No other operation is journaled before it is executed.
        _ => None,
    };
    if let Some(done) = &done {
        for handle in scene.touched(&operation, done) {
            store.sync(&handle)?;
        }
    }
    Ok(done)
}

/// The store after the crash, and the facts about the file system that were recorded with the
/// intent.
struct Scene<'a> {
    store: &'a dyn Store,
    precondition: &'a Precondition,
}

type Judged = Result<Option<OwnedDone>, StoreError>;

impl Scene<'_> {
    /// Returns the object that has this name now. `None` if there is none, the directory no longer
    /// exists, or the name is invalid.
    fn lookup(&self, directory: &FileHandle, name: &[u8]) -> Result<Option<Object>, StoreError> {
        match self.store.lookup(&Credentials::superuser(), directory, name) {
            Ok(object) => Ok(Some(object)),
            Err(StoreError::NotFound | StoreError::Stale | StoreError::BadHandle) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the objects that must be on stable storage for the reported result to stay true.
    fn touched(&self, operation: &Operation<'_>, done: &OwnedDone) -> Vec<FileHandle> {
        match (operation, done) {
            (Operation::CreateNode(asked), _) => vec![asked.directory],
            (Operation::Link(asked), _) => vec![asked.directory, asked.source],
            (Operation::Remove(asked), _) => vec![asked.directory],
            (Operation::Rename(asked), _) => vec![asked.source, asked.target],
            (Operation::SetAttributes(asked), _) => vec![asked.file],
            (Operation::SetXattr(asked), _) => vec![asked.file],
            (Operation::RemoveXattr(asked), _) => vec![asked.file],
            (Operation::Open(asked), Done::Opened(opened)) => {
                let way = self.way_of(asked).map(|(directory, _)| directory);
                way.into_iter().chain([opened.file]).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the directory and the last component of the name of an open that names its file by
    /// path. `None` for other kinds of claims.
    fn way_of<'m>(&self, asked: &Open<'m>) -> Option<(FileHandle, &'m [u8])> {
        let Claim::Null { path } = &asked.claim else { return None };
        let names: Vec<&[u8]> = path.iter().collect();
        let (last, way) = names.split_last()?;
        let walked = self.store.lookup_path(&Credentials::superuser(), &asked.from, way);
        walked.error.is_none().then_some((walked.handle, *last))
    }

    /// Returns the change information of a directory. The value before the change is lost, so both
    /// values are the present one.
    fn change_of(&self, directory: &FileHandle) -> ChangeInfo {
        let attributes = self.store.attributes(&Credentials::superuser(), directory);
        let after = attributes.map_or(0, |attributes| attributes.change);
        ChangeInfo { before: 0, after, atomic: false }
    }

    fn create(&self, asked: &CreateNode<'_>) -> Judged {
        let wanted = asked.node.object_type();
        let found = self.lookup(&asked.directory, asked.name)?;
        let made = found.filter(|object| object.attributes.kind == wanted);
        Ok(made.map(|object| {
            let directory = self.change_of(&asked.directory);
            Done::Created(Created { file: object.handle, directory })
        }))
    }

    fn open(&self, asked: &Open<'_>) -> Judged {
        let (Claim::Null { path }, Some((directory, last))) = (&asked.claim, self.way_of(asked))
        else {
            return Ok(None);
        };
        let Some(object) = self.lookup(&directory, last)? else { return Ok(None) };
        let is_done = object.attributes.kind == ObjectType::Regular
            && (*self.precondition != Precondition::Truncates || object.attributes.size == 0);
        Ok(is_done.then(|| {
            Done::Opened(Opened {
                file: object.handle,
                // The open itself ended with the server; the client reclaims it.
                state: StateId::ANONYMOUS,
                directory: self.change_of(&directory),
                component_count: u32::try_from(path.len()).unwrap_or(u32::MAX),
                mandatory_locks: false,
                delegation: None,
            })
        }))
    }

    fn link(&self, asked: &Link<'_>) -> Judged {
        let found = self.lookup(&asked.directory, asked.name)?;
        let made = found.filter(|object| object.handle == asked.source);
        Ok(made.map(|_| Done::Changed(Changed { directory: self.change_of(&asked.directory) })))
    }

    fn remove(&self, asked: &Remove<'_>) -> Judged {
        let Precondition::Target(victim) = self.precondition else { return Ok(None) };
        let found = self.lookup(&asked.directory, asked.name)?;
        let is_gone = found.is_none_or(|object| object.handle != *victim);
        let changed = || Changed { directory: self.change_of(&asked.directory) };
        Ok(is_gone.then(|| Done::Changed(changed())))
    }

    fn rename(&self, asked: &Rename<'_>) -> Judged {
        let Precondition::Renames { object, replaced } = self.precondition else { return Ok(None) };
        let old = self.lookup(&asked.source, asked.old_name)?;
        let new = self.lookup(&asked.target, asked.new_name)?;
        let is_new = new.is_some_and(|found| found.handle == *object);
        let is_old = old.is_some_and(|found| found.handle == *object);
        // If both names are links to one object, the rename has no effect, so it counts as
        // executed.
        let is_done = is_new && (!is_old || *replaced == Some(*object));
        Ok(is_done.then(|| {
            let (source, target) = (self.change_of(&asked.source), self.change_of(&asked.target));
            Done::Renamed(Renamed { source, target })
        }))
    }

    fn set_attributes(&self, asked: &SetAttributes) -> Judged {
        let wanted = AttributeChanges::from_protocol(&asked.attributes, |_| None, |_| None);
        let Ok(wanted) = wanted else { return Ok(None) };
        let now = match self.store.attributes(&Credentials::superuser(), &asked.file) {
            Ok(now) => now,
            Err(StoreError::Stale | StoreError::NotFound | StoreError::BadHandle) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let is = |wanted: Option<u32>, now: u32| wanted.is_none_or(|wanted| wanted == now);
        let is_done = is(wanted.mode, now.mode)
            && is(wanted.uid, now.uid)
            && is(wanted.gid, now.gid)
            && wanted.size.is_none_or(|size| size == now.size)
            // An object's times do not reveal whether the request set them. Setting them again is
            // harmless, so such a request does not count as executed.
            && wanted.time_access.is_none()
            && wanted.time_modify.is_none();
        Ok(is_done.then(|| Done::Set(Set { set: AttributeSet::of(&asked.attributes) })))
    }

    /// Decides by the present value of an extended attribute, or by its absence, whether it was set
    /// or removed.
    fn has_xattr(&self, file: &FileHandle, name: &[u8], wanted: Option<&[u8]>) -> Judged {
        let is_done = match self.store.xattr(&Credentials::superuser(), file, name) {
            Ok(value) => wanted == Some(&value),
            Err(StoreError::NoXattr) => wanted.is_none(),
            Err(StoreError::Stale | StoreError::NotFound | StoreError::BadHandle) => false,
            // The request failed with the same error, so it had no effect.
            Err(StoreError::NotSupported | StoreError::Invalid | StoreError::NameTooLong) => false,
            Err(error) => return Err(error),
        };
        let changed = || XattrChanged { change: self.change_of(file) };
        Ok(is_done.then(|| Done::XattrChanged(changed())))
    }
}

/// Undoes an append whose outcome was never reported. The bytes that the append may have added are
/// cut off, or zeroed if other bytes were written after them.
fn undo_append(
    store: &dyn Store,
    file: &FileHandle,
    offset: u64,
    length: u32,
) -> Result<(), StoreError> {
    let who = Credentials::superuser();
    let file = match store.open(&who, file, ShareAccess::Both) {
        Ok(file) => file,
        Err(StoreError::Stale | StoreError::NotFound | StoreError::BadHandle) => return Ok(()),
        Err(error) => return Err(error),
    };
    let FileVersion { size, .. } = file.version()?;
    if size <= offset {
        return Ok(());
    }
    if size <= offset + u64::from(length) {
        file.set_size(offset)?;
    } else {
        let zeros = dafs_memory::Memory::from_heap(vec![0; length as usize].into());
        file.write_at(&zeros, 0, length as usize, offset)?;
    }
    file.sync(false)
}
