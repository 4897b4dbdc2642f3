//! Verdicts: whether a request whose intent has survived was carried out.
//!
//! Invariant: a verdict looks at the store and changes nothing there, but that an append
//! without an outcome is undone.

use dafs_store::{FileVersion, Store, StoreError};
use dafs_types::names::from_wire;
use dafs_types::{ChangeInfo, Credentials, FileHandle, ObjectType, ShareAccess, StateId, Status};
use dafs_wire::messages::{
    Create, CreateResult, Delegation, DirectoryChanged, Link, NewObject, Open, OpenFlags,
    OpenResult, OpenTarget, Remove, Rename, RenameResult, SetAttributesInline, SetAttributesResult,
};
use dafs_wire::{HEADER_BYTES, Request, RequestHeader, Response, ResponseHeader, encode_response};

use super::{Facts, Intent};
use crate::decode::{changes_of, components};
use crate::handles;
use crate::respond::blank_header;

/// The results of a request that was carried out, as octets behind a header; `None` if it
/// was not. What it touched is durable then.
///
/// # Errors
/// What the store says if it cannot tell.
pub(super) fn judge(store: &dyn Store, intent: &Intent) -> Result<Option<Vec<u8>>, StoreError> {
    if let Facts::Appends { file, offset, length } = &intent.facts {
        undo_append(store, file, *offset, *length)?;
        return Ok(None);
    }
    let message = &intent.message;
    let decoded = RequestHeader::decode(intent.order, message)
        .and_then(|header| handles::decode(store, intent.order, &header, message));
    let Ok(request) = decoded else {
        // It was decoded before it was written down.
        return Ok(None);
    };
    let scene = Scene { store, facts: &intent.facts };
    let response = match &request {
        Request::Create(r) => scene.create(r)?,
        Request::Open(r) => scene.open(r)?,
        Request::Link(r) => scene.link(r)?,
        Request::Remove(r) => scene.remove(r)?,
        Request::Rename(r) => scene.rename(r)?,
        Request::SetAttrInline(r) => scene.set_attributes(r)?,
        _ => None,
    };
    let Some(response) = response else { return Ok(None) };
    for handle in scene.touched(&request, &response) {
        store.sync(&handle)?;
    }
    Ok(octets_of(intent, &response))
}

fn octets_of(intent: &Intent, response: &Response<'_>) -> Option<Vec<u8>> {
    let header: ResponseHeader = blank_header(intent.key.request.stream, Status::Ok);
    let mut message = vec![0; dafs_types::limits::RESPONSE_BYTES_MAX];
    let length = encode_response(intent.order, &header, response, &mut message).ok()?;
    Some(message[HEADER_BYTES..length].to_vec())
}

/// The files as the crash has left them.
struct Scene<'a> {
    store: &'a dyn Store,
    facts: &'a Facts,
}

type Judged = Result<Option<Response<'static>>, StoreError>;

impl Scene<'_> {
    /// The object that a name of a message has now. A directory that is gone has none.
    fn lookup_wire(
        &self,
        directory: &FileHandle,
        name: &str,
    ) -> Result<Option<dafs_store::Object>, StoreError> {
        // What is no name was refused before anything was intended.
        from_wire(name).map_or(Ok(None), |name| self.lookup(directory, &name))
    }

    /// The object a name has now. A directory that is gone has none.
    fn lookup(
        &self,
        directory: &FileHandle,
        name: &[u8],
    ) -> Result<Option<dafs_store::Object>, StoreError> {
        match self.store.lookup(&Credentials::superuser(), directory, name) {
            Ok(object) => Ok(Some(object)),
            Err(StoreError::NotFound | StoreError::Stale | StoreError::BadHandle) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The objects that must be durable for a response to be true for good.
    fn touched(&self, request: &Request<'_>, response: &Response<'_>) -> Vec<FileHandle> {
        match (request, response) {
            (Request::Create(r), _) => vec![r.directory],
            (Request::Link(r), _) => vec![r.directory, r.source],
            (Request::Remove(r), _) => vec![r.directory],
            (Request::Rename(r), _) => vec![r.source, r.target],
            (Request::SetAttrInline(r), _) => vec![r.file],
            (Request::Open(r), Response::Open(opened)) => {
                let parent = self.parent_of(r);
                parent.into_iter().chain([opened.file]).collect()
            }
            _ => Vec::new(),
        }
    }

    fn parent_of(&self, request: &Open<'_>) -> Option<FileHandle> {
        let OpenTarget::Null { directory, path } = &request.target else { return None };
        let names = components(path).ok()?;
        let names = names.list();
        let (_, way) = names.split_last()?;
        let walked = self.store.lookup_path(&Credentials::superuser(), directory, way);
        walked.error.is_none().then_some(walked.handle)
    }

    /// What is known of a directory's change: what it is now.
    fn change_of(&self, directory: &FileHandle) -> ChangeInfo {
        let attributes = self.store.attributes(&Credentials::superuser(), directory);
        let after = attributes.map_or(0, |attributes| attributes.change);
        ChangeInfo { before: 0, after, atomic: false }
    }

    fn create(&self, request: &Create<'_>) -> Judged {
        let wanted = match request.object {
            NewObject::Directory => ObjectType::Directory,
            NewObject::SymbolicLink(_) => ObjectType::SymbolicLink,
            NewObject::Fifo => ObjectType::Fifo,
            NewObject::Socket => ObjectType::Socket,
            NewObject::BlockDevice(_) => ObjectType::BlockDevice,
            NewObject::CharacterDevice(_) => ObjectType::CharacterDevice,
        };
        let found = self.lookup_wire(&request.directory, request.name)?;
        let made = found.filter(|object| object.attributes.kind == wanted);
        Ok(made.map(|object| {
            let directory = self.change_of(&request.directory);
            Response::Create(CreateResult { file: object.handle, directory })
        }))
    }

    fn open(&self, request: &Open<'_>) -> Judged {
        let OpenTarget::Null { directory, path } = &request.target else { return Ok(None) };
        let Ok(names) = components(path) else { return Ok(None) };
        let names = names.list();
        let Some((last, way)) = names.split_last() else { return Ok(None) };
        let walked = self.store.lookup_path(&Credentials::superuser(), directory, way);
        if walked.error.is_some() {
            return Ok(None);
        }
        let Some(object) = self.lookup(&walked.handle, last)? else { return Ok(None) };
        let is_done = object.attributes.kind == ObjectType::Regular
            && (*self.facts != Facts::Truncates || object.attributes.size == 0);
        Ok(is_done.then(|| {
            Response::Open(OpenResult {
                file: object.handle,
                // The open itself went with the server; its client reclaims it.
                state: StateId::ANONYMOUS,
                directory: self.change_of(&walked.handle),
                component_count: u32::try_from(names.len()).unwrap_or(u32::MAX),
                flags: OpenFlags::default(),
                delegation: Delegation::None,
            })
        }))
    }

    fn link(&self, request: &Link<'_>) -> Judged {
        let found = self.lookup_wire(&request.directory, request.name)?;
        let made = found.filter(|object| object.handle == request.source);
        Ok(made.map(|_| {
            let directory = self.change_of(&request.directory);
            Response::Link(DirectoryChanged { directory })
        }))
    }

    fn remove(&self, request: &Remove<'_>) -> Judged {
        let Facts::Victim(victim) = self.facts else { return Ok(None) };
        let found = self.lookup_wire(&request.directory, request.name)?;
        let is_gone = found.is_none_or(|object| object.handle != *victim);
        Ok(is_gone.then(|| {
            let directory = self.change_of(&request.directory);
            Response::Remove(DirectoryChanged { directory })
        }))
    }

    fn rename(&self, request: &Rename<'_>) -> Judged {
        let Facts::Renames { object, replaced } = self.facts else { return Ok(None) };
        let old = self.lookup_wire(&request.source, request.old_name)?;
        let new = self.lookup_wire(&request.target, request.new_name)?;
        let is_new = new.is_some_and(|found| found.handle == *object);
        let is_old = old.is_some_and(|found| found.handle == *object);
        // Two names of one object: a rename between them does nothing, and always did.
        let is_done = is_new && (!is_old || *replaced == Some(*object));
        Ok(is_done.then(|| {
            let (source, target) =
                (self.change_of(&request.source), self.change_of(&request.target));
            Response::Rename(RenameResult { source, target })
        }))
    }

    fn set_attributes(&self, request: &SetAttributesInline<'_>) -> Judged {
        let Ok(wanted) = changes_of(&request.attributes) else { return Ok(None) };
        let now = match self.store.attributes(&Credentials::superuser(), &request.file) {
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
            // Times tell nothing apart, and setting them again harms nobody.
            && wanted.time_access.is_none()
            && wanted.time_modify.is_none();
        Ok(is_done.then(|| {
            let set = request.attributes.valid();
            Response::SetAttrInline(SetAttributesResult { set })
        }))
    }
}

/// Makes an append undone whose outcome nobody was told: what it may have brought to the
/// file is cut off, or zeroed if somebody wrote behind it.
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
