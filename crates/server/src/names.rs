//! Names: LOOKUP, OPENATTR, CREATE, LINK, REMOVE, RENAME, READDIR, READLINK.
//!
//! Invariant: the store checks names and permissions; here only what other clients
//! hold open has a say.

use std::borrow::Cow;

use dafs_filer::{RemoveDecision, Touch};
use dafs_store::{Created, ExtraChanges, ListRequest, NewNode, StoreError};
use dafs_types::names::{from_wire, to_wire};
use dafs_types::{FileHandle, RemoveMode, Status, limits};
use dafs_wire::messages::{
    Create, CreateResult, DirectResult, DirectoryChanged, Link, LinkTextResult, Lookup,
    LookupResult, NewObject, OneHandle, ReadDirectory, ReadDirectoryDirect,
    ReadDirectoryDirectResult, ReadDirectoryResult, ReadLinkDirect, Remove, Rename, RenameResult,
};
use dafs_wire::{
    AttributeBitmap, ByteOrder, FileAttributeBlock, Path, ReaddirWriter, Response, encode_link_text,
};
use smallvec::SmallVec;

use crate::credentials::Asker;
use crate::object::{add_extras, extras_in, extras_of};
use crate::reactor::Reactor;
use crate::task::Answer;

/// One page of a directory, encoded.
struct Page {
    bytes: Vec<u8>,
    verifier: dafs_types::CookieVerifier,
    is_end: bool,
}

impl Reactor {
    pub(crate) fn root_handle(&mut self, answer: Answer) -> Result<(), Status> {
        let who = self.who(answer);
        let file = who.store().root(&who)?.handle;
        self.reply(answer, &Response::GetRootHandle(OneHandle { file }));
        Ok(())
    }

    pub(crate) fn lookup(&mut self, answer: Answer, request: &Lookup<'_>) -> Result<(), Status> {
        let who = self.who(answer);
        let names = components(&request.path)?;
        let found = self.walk(answer, &who, &request.directory, &names.list());
        let status = found.error.map_or(Status::Ok, Status::from);
        let component_count = u32::try_from(found.component_count).unwrap_or(u32::MAX);
        let result = LookupResult { file: found.handle, component_count };
        self.respond(answer, status, &Response::Lookup(result));
        Ok(())
    }

    pub(crate) fn lookup_parent(
        &mut self,
        answer: Answer,
        request: &OneHandle,
    ) -> Result<(), Status> {
        let who = self.who(answer);
        let file = who.store().lookup_parent(&who, &request.file)?.handle;
        self.reply(answer, &Response::LookupP(OneHandle { file }));
        Ok(())
    }

    pub(crate) fn create(&mut self, answer: Answer, request: &Create<'_>) -> Result<(), Status> {
        let who = self.who(answer);
        let node = match &request.object {
            NewObject::Directory => NewNode::Directory,
            NewObject::SymbolicLink(text) => NewNode::SymbolicLink(text),
            NewObject::Fifo => NewNode::Fifo,
            NewObject::Socket => NewNode::Socket,
            NewObject::BlockDevice(device) => NewNode::BlockDevice(*device),
            NewObject::CharacterDevice(device) => NewNode::CharacterDevice(*device),
        };
        let changes = changes_of(&request.attributes)?;
        let name = &*name_of(request.name)?;
        let created = who.store().create_node(&who, &request.directory, name, node, &changes)?;
        self.outfit(&who, &request.directory, name, &created, Some(&request.attributes))?;
        let result = CreateResult { file: created.object.handle, directory: created.change };
        self.reply(answer, &Response::Create(result));
        Ok(())
    }

    /// Sets what a new object was to have besides, or takes the object back. True if there
    /// was anything.
    pub(crate) fn outfit(
        &self,
        who: &Asker,
        directory: &FileHandle,
        name: &[u8],
        created: &Created,
        attributes: Option<&FileAttributeBlock<'_>>,
    ) -> Result<bool, Status> {
        let extras = attributes.map_or(Ok(ExtraChanges::default()), extras_of)?;
        if extras.is_empty() || !created.is_new {
            return Ok(false);
        }
        let handle = created.object.handle;
        if let Err(error) = who.store().set_extras(who, &handle, &extras) {
            // As if it had never been, if it still has the name; what else could fail here has
            // nobody to tell.
            let is_it = &mut |object: &FileHandle| *object == handle;
            let _ = who.store().remove_if(who, directory, name, is_it);
            return Err(error.into());
        }
        Ok(true)
    }

    pub(crate) fn open_attributes(
        &mut self,
        answer: Answer,
        request: &OneHandle,
    ) -> Result<(), Status> {
        let who = self.who(answer);
        let file = who.store().open_attributes(&who, &request.file)?.handle;
        self.reply(answer, &Response::OpenAttr(OneHandle { file }));
        Ok(())
    }

    pub(crate) fn link(&mut self, answer: Answer, request: &Link<'_>) -> Result<(), Status> {
        let who = self.who(answer);
        let name = &*name_of(request.name)?;
        self.touch(answer, &request.source, Touch::Link)?;
        let directory = who.store().link(&who, &request.source, &request.directory, name)?;
        self.named_again(&request.source);
        self.reply(answer, &Response::Link(DirectoryChanged { directory }));
        Ok(())
    }

    pub(crate) fn remove(&mut self, answer: Answer, request: &Remove<'_>) -> Result<(), Status> {
        let who = self.who(answer);
        self.may_take(answer)?;
        let name = &*name_of(request.name)?;
        let mut refused = Ok(());
        let removed = who.store().remove_if(&who, &request.directory, name, &mut |object| {
            refused = self.may_go(answer, object, request.mode);
            refused.is_ok()
        })?;
        let Some(removed) = removed else { return refused };
        if removed.was_last {
            self.afterwards.close_removed(removed.held);
            self.forget_object(&removed.handle);
        }
        let directory = removed.change;
        self.reply(answer, &Response::Remove(DirectoryChanged { directory }));
        Ok(())
    }

    pub(crate) fn rename(&mut self, answer: Answer, request: &Rename<'_>) -> Result<(), Status> {
        let who = self.who(answer);
        self.may_take(answer)?;
        let (old, new) = (&*name_of(request.old_name)?, &*name_of(request.new_name)?);
        match who.store().lookup(&who, &request.target, new) {
            Ok(object) => {
                self.pass_file(answer, &object.handle)?;
                self.may_remove(&object.handle, RemoveMode::Unchecked)?;
                self.touch(answer, &object.handle, Touch::Remove)?;
            }
            Err(StoreError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
        self.pass_name(answer, &who, &request.source, old)?;
        if !self.filer.has_no_delegations() {
            let object = who.store().lookup(&who, &request.source, old)?;
            self.touch(answer, &object.handle, Touch::Rename)?;
        }
        let renamed = who.store().rename(&who, &request.source, old, &request.target, new)?;
        if let Some(replaced) = renamed.replaced {
            self.forget_object(&replaced);
        }
        let result = RenameResult { source: renamed.source, target: renamed.target };
        self.reply(answer, &Response::Rename(result));
        Ok(())
    }

    /// Whether nobody may yet take back an open that keeps a name.
    pub(crate) fn may_take(&mut self, answer: Answer) -> Result<(), Status> {
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        self.filer.may_take(id)
    }

    /// Whether nobody stands in the way of an object's name being removed.
    fn may_go(
        &mut self,
        answer: Answer,
        object: &FileHandle,
        mode: RemoveMode,
    ) -> Result<(), Status> {
        self.pass_file(answer, object)?;
        self.may_remove(object, mode)?;
        self.touch(answer, object, Touch::Remove)
    }

    /// Whether those who have the object open let its name go.
    fn may_remove(&self, handle: &FileHandle, mode: RemoveMode) -> Result<(), Status> {
        let Some((file, _)) = self.open_files.get(handle) else { return Ok(()) };
        match self.filer.remove_check(dafs_filer::FileKey(file.key().0), mode)? {
            RemoveDecision::Now | RemoveDecision::KeepDataUntilLastClose => Ok(()),
        }
    }

    /// An object has a name, which it may not have had before.
    pub(crate) fn named_again(&mut self, handle: &FileHandle) {
        if let Some((file, _)) = self.open_files.get(handle) {
            self.filer.file_linked(dafs_filer::FileKey(file.key().0));
        }
        self.cache.remember(handle);
    }

    /// An object has lost its last name.
    pub(crate) fn forget_object(&mut self, handle: &FileHandle) {
        if let Some((file, _)) = self.open_files.get(handle) {
            self.filer.file_unlinked(dafs_filer::FileKey(file.key().0));
        } else {
            self.filer.fenced_file_removed(handle);
        }
        self.cache.forget(handle);
    }

    // ---- directories ----------------------------------------------------------------

    pub(crate) fn read_directory(
        &mut self,
        answer: Answer,
        request: &ReadDirectory,
    ) -> Result<(), Status> {
        let room = self.response_bytes_max(answer.endpoint).saturating_sub(LISTING_HEAD);
        let room = room.min(request.result_bytes_max as usize);
        let order = self.order_of(answer.endpoint).ok_or(Status::BadSession)?;
        let page = self.list(
            answer,
            order,
            &request.directory,
            (request.cookie, request.verifier),
            request.wanted,
            room,
        )?;
        let entries = dafs_wire::DirectoryEntries::parse(order, &page.bytes)
            .map_err(|_| Status::ServerFault)?;
        let result =
            ReadDirectoryResult { verifier: page.verifier, end_of_directory: page.is_end, entries };
        self.reply(answer, &Response::ReadDirInline(result));
        Ok(())
    }

    pub(crate) fn read_directory_direct(
        &mut self,
        answer: Answer,
        request: &ReadDirectoryDirect<'_>,
    ) -> Result<(), Status> {
        let room = usize::try_from(request.buffers.total_bytes()).unwrap_or(usize::MAX);
        let room = room.min(request.result_bytes_max as usize).min(LISTING_BYTES_MAX);
        let order = self.order_of(answer.endpoint).ok_or(Status::BadSession)?;
        let page = self.list(
            answer,
            order,
            &request.directory,
            (request.cookie, request.verifier),
            request.wanted,
            room,
        )?;
        let buffers: Vec<_> = request.buffers.iter().collect();
        let checksum = self.place_bytes(answer, &page.bytes, &buffers)?;
        let result = ReadDirectoryDirectResult {
            verifier: page.verifier,
            end_of_directory: page.is_end,
            checksum,
        };
        self.reply(answer, &Response::ReadDirDirect(result));
        Ok(())
    }

    fn list(
        &mut self,
        answer: Answer,
        order: ByteOrder,
        directory: &FileHandle,
        (cookie, verifier): (dafs_types::ReaddirCookie, dafs_types::CookieVerifier),
        wanted: AttributeBitmap,
        room: usize,
    ) -> Result<Page, Status> {
        let who = self.who(answer);
        // Objects cost system calls: no more are asked for than are likely to fit.
        let attribute_bytes = wanted.0.count_ones() as usize * ATTRIBUTE_BYTES_USUAL;
        let entry_bytes = ENTRY_BYTES_MIN + attribute_bytes;
        let request = ListRequest {
            cookie,
            verifier,
            entry_count_max: (room / entry_bytes).clamp(1, ENTRIES_PER_PAGE_MAX),
            name_bytes_max: room,
            want_objects: wanted != AttributeBitmap::NONE,
        };
        let listed = who.store().readdir(&who, directory, &request)?;
        let mut bytes = vec![0; room];
        let mut writer =
            ReaddirWriter::new(order, wanted, &mut bytes).map_err(|_| Status::TooSmall)?;
        let mut is_end = listed.is_end;
        let extras = extras_in(wanted);
        for entry in &listed.entries {
            let attributes = match &entry.object {
                Some(object) => {
                    let mut attributes = object.attributes;
                    if let Some(file) = self.cache.find(&object.handle) {
                        self.cache.overlay(file, &mut attributes);
                    }
                    let mut full = attributes.to_file_attributes(object.handle);
                    if extras.is_any() {
                        let found = who.store().extras(&who, &object.handle, extras);
                        add_extras(&mut full, found.unwrap_or_default());
                    }
                    full
                }
                None => dafs_types::FileAttributes {
                    file_id: Some(entry.file_id),
                    ..dafs_types::FileAttributes::default()
                },
            };
            match writer.push(entry.cookie, &to_wire(&entry.name), &attributes) {
                Ok(true) => {}
                Ok(false) => {
                    is_end = false;
                    break;
                }
                Err(error) => return Err(error.status()),
            }
        }
        if writer.is_empty() && !is_end {
            return Err(Status::ReaddirNoSpc);
        }
        let length = writer.finish().octets().len();
        bytes.truncate(length);
        Ok(Page { bytes, verifier: listed.verifier, is_end })
    }

    // ---- links ----------------------------------------------------------------------

    pub(crate) fn read_link(&mut self, answer: Answer, request: &OneHandle) -> Result<(), Status> {
        let who = self.who(answer);
        let text = who.store().readlink(&who, &request.file)?;
        self.reply(answer, &Response::ReadLinkInline(LinkTextResult { text: &text }));
        Ok(())
    }

    pub(crate) fn read_link_direct(
        &mut self,
        answer: Answer,
        request: &ReadLinkDirect,
    ) -> Result<(), Status> {
        let who = self.who(answer);
        let text = who.store().readlink(&who, &request.file)?;
        let order = self.order_of(answer.endpoint).ok_or(Status::BadSession)?;
        let mut bytes = vec![0; text.len() + 16];
        let length = encode_link_text(order, &text, &mut bytes).map_err(|error| error.status())?;
        let checksum = self.place_bytes(answer, &bytes[..length], &[request.buffer])?;
        self.reply(answer, &Response::ReadLinkDirect(DirectResult { checksum }));
        Ok(())
    }
}

/// The name that a string of a message stands for (`docs/spec/names.md`).
pub(crate) fn name_of(text: &str) -> Result<Cow<'_, [u8]>, Status> {
    from_wire(text).map_err(|_| Status::Inval)
}

/// The names of a path.
pub(crate) struct Components<'a>(SmallVec<[Cow<'a, [u8]>; 8]>);

impl Components<'_> {
    /// The names in order.
    pub fn list(&self) -> SmallVec<[&[u8]; 8]> {
        self.0.iter().map(|name| &**name).collect()
    }
}

/// The components of a path, within the limits.
pub(crate) fn components<'a>(path: &Path<'a>) -> Result<Components<'a>, Status> {
    let mut names = SmallVec::new();
    let mut bytes = 0;
    for text in path.iter() {
        let name = name_of(text)?;
        bytes += name.len() + 1;
        if names.len() == limits::PATH_COMPONENTS_MAX || bytes > limits::PATH_BYTES_MAX + 1 {
            return Err(Status::NameTooLong);
        }
        names.push(name);
    }
    Ok(Components(names))
}

/// Attributes to set, as the store takes them. Owners are decimal numbers here.
pub(crate) fn changes_of(
    attributes: &dafs_wire::FileAttributeBlock<'_>,
) -> Result<dafs_store::AttributeChanges, Status> {
    let wanted = attributes.set().map_err(|error| error.status())?;
    Ok(dafs_store::AttributeChanges::from_protocol(&wanted, |_| None, |_| None)?)
}

/// Header and fixed section of READDIR_INLINE's results, with the array's offset.
const LISTING_HEAD: usize = 64;
/// Most octets of one listing.
const LISTING_BYTES_MAX: usize = 1 << 20;
/// Octets an entry takes at least.
const ENTRY_BYTES_MIN: usize = 40;
/// Octets of one attribute in the mean.
const ATTRIBUTE_BYTES_USUAL: usize = 14;
const ENTRIES_PER_PAGE_MAX: usize = 4096;
