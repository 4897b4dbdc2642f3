//! The [`Store`] calls on the disk that can lose power.
//!
//! Invariant: all checks come before the first change, under one lock. A call that changes
//! something is one operation of the journal.

use std::sync::Arc;

use dafs_store::posix::{check_changes, check_link, check_new, check_open, common_fs_attributes};
use dafs_store::{
    Altered, AttributeChanges, Attributes, Created, Credentials, File, ListPage, ListRequest,
    NewNode, Object, Removed, Renamed, Result, Store, StoreError, name,
};
use dafs_types::attributes::DeviceNumber;
use dafs_types::limits::LINK_TEXT_BYTES_MAX;
use dafs_types::permission::{self, EXECUTE, READ, WRITE};
use dafs_types::{
    AccessMask, ChangeInfo, CookieVerifier, CreateMode, FileHandle, FileSystemAttributes,
    ObjectType, ShareAccess,
};

use super::CrashStore;
use super::edit::Edit;
use super::fault::FaultOn;
use super::file::CrashFile;
use super::journal::Disk;
use super::tree::{Content, Entries, Inode, Number, ROOT};

impl Disk {
    fn object(&self, number: Number) -> Result<Object> {
        let attributes = self.volatile.attributes(number)?;
        Ok(Object { handle: Self::handle(number), attributes })
    }

    /// Returns the number of a directory on which the caller has the wanted permissions.
    fn directory(&self, who: &Credentials, handle: &FileHandle, wanted: u32) -> Result<Number> {
        let number = self.resolve(handle)?;
        let found = self.volatile.attributes(number)?;
        if found.kind != ObjectType::Directory {
            return Err(StoreError::NotDirectory);
        }
        if !permission::allows(who, found.kind, found.uid, found.gid, found.mode, wanted) {
            return Err(StoreError::Access);
        }
        Ok(number)
    }

    /// Returns a directory whose entries the caller may change, and one of its entries.
    fn entry(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        name: &[u8],
    ) -> Result<(Number, Option<Number>)> {
        name::check(name)?;
        let parent = self.directory(who, handle, EXECUTE | WRITE)?;
        let found = self.volatile.entries(parent)?.get(name);
        if let Some(number) = found {
            let directory = self.volatile.attributes(parent)?;
            let entry = self.volatile.attributes(number)?;
            if permission::sticky_forbids(who, directory.mode, directory.uid, entry.uid) {
                return Err(StoreError::NotPermitted);
            }
        }
        Ok((parent, found))
    }

    fn change_of(&self, number: Number) -> Result<u64> {
        self.volatile.attributes(number).map(|found| found.change)
    }

    /// Returns the value of a directory's change attribute before and after a change.
    fn change_since(&self, directory: Number, before: u64) -> Result<ChangeInfo> {
        Ok(ChangeInfo { before, after: self.change_of(directory)?, atomic: true })
    }

    /// Creates an object that belongs to the caller and has no name.
    fn new_object(
        &mut self,
        who: &Credentials,
        parent: Number,
        (kind, content, device): Made,
        changes: &AttributeChanges,
    ) -> Result<(Edit, Number)> {
        check_new(who, changes)?;
        if self.volatile.inodes.len() >= self.limits.object_count_max {
            return Err(StoreError::NoSpace);
        }
        let directory = self.volatile.attributes(parent)?;
        let inherits = directory.mode & 0o2000 != 0;
        let gid = if inherits { directory.gid } else { who.gid() };
        let is_directory = kind == ObjectType::Directory;
        let default_mode = match kind {
            ObjectType::Directory => 0o700,
            ObjectType::SymbolicLink => 0o777,
            _ => 0o600,
        };
        let wanted = changes.mode.filter(|_| kind != ObjectType::SymbolicLink);
        let mut mode = wanted.unwrap_or(default_mode) & 0o7777;
        if is_directory && inherits {
            mode |= 0o2000;
        } else if !is_directory && !who.is_superuser() && !who.in_group(gid) {
            mode &= !0o2000;
        }
        let mut meta = self.new_meta(kind);
        let made = &mut meta.attributes;
        (made.mode, made.uid, made.gid, made.device) = (mode, who.uid(), gid, device);
        if let Content::Text(text) = &content {
            made.size = text.len() as u64;
        }
        meta.parent = parent;
        let number = meta.attributes.file_id;
        let mut edit = Edit::make(Inode { meta, content });
        let size = changes.size.filter(|_| kind == ObjectType::Regular);
        let rest = AttributeChanges { mode: None, uid: None, gid: None, size, ..*changes };
        edit.set(self, number, &rest)?;
        Ok((edit, number))
    }

    /// Returns true if `inner` is `outer` or is beneath it.
    fn is_beneath(&self, inner: Number, outer: Number) -> bool {
        let mut at = inner;
        loop {
            if at == outer {
                return true;
            }
            match self.volatile.get(at) {
                Ok(inode) if at != ROOT => at = inode.meta.parent,
                _ => return false,
            }
        }
    }

    /// Handles an OPEN that may create a file, for an object that already exists.
    fn take_existing(
        &mut self,
        who: &Credentials,
        number: Number,
        mode: CreateMode,
        changes: &AttributeChanges,
        access: ShareAccess,
    ) -> Result<()> {
        let meta = self.volatile.get(number)?.meta;
        match mode {
            CreateMode::Guarded => return Err(StoreError::Exists),
            CreateMode::Exclusive(verifier) if meta.verifier != Some(verifier) => {
                return Err(StoreError::Exists);
            }
            CreateMode::NoCreate | CreateMode::Unchecked | CreateMode::Exclusive(_) => {}
        }
        let found = meta.attributes;
        check_open(who, &found, access)?;
        if mode != CreateMode::Unchecked || changes.size != Some(0) {
            return Ok(());
        }
        if !permission::allows(who, found.kind, found.uid, found.gid, found.mode, WRITE) {
            return Err(StoreError::Access);
        }
        self.struck(FaultOn::Name, |disk| {
            let mut edit = Edit::default();
            let cut = AttributeChanges { size: Some(0), ..AttributeChanges::default() };
            edit.set(disk, number, &cut)?;
            disk.finish(edit);
            Ok(())
        })
    }

    /// Finds or creates a regular file. Returns its number, true if it is new, and the change
    /// information of the directory.
    fn find_or_make(
        &mut self,
        who: &Credentials,
        (directory, name): (&FileHandle, &[u8]),
        mode: CreateMode,
        changes: &AttributeChanges,
        access: ShareAccess,
    ) -> Result<(Number, bool, ChangeInfo)> {
        let parent = self.directory(who, directory, EXECUTE)?;
        let before = self.change_of(parent)?;
        if let Some(number) = self.volatile.entries(parent)?.get(name) {
            self.take_existing(who, number, mode, changes, access)?;
            return Ok((number, false, self.change_since(parent, before)?));
        }
        if mode == CreateMode::NoCreate {
            return Err(StoreError::NotFound);
        }
        self.directory(who, directory, EXECUTE | WRITE)?;
        let number = self.struck(FaultOn::Name, |disk| {
            let (mut edit, number) = disk.new_object(who, parent, regular(), changes)?;
            if let CreateMode::Exclusive(verifier) = mode {
                edit.meta(disk, number)?.verifier = Some(verifier);
            }
            edit.enter(disk, parent, name, number)?;
            disk.finish(edit);
            Ok(number)
        })?;
        Ok((number, true, self.change_since(parent, before)?))
    }

    /// Renames an entry. Returns both directories, and the object that has lost its last name, if
    /// any.
    fn rename_entry(
        &mut self,
        who: &Credentials,
        (source, old_name): (&FileHandle, &[u8]),
        (target, new_name): (&FileHandle, &[u8]),
    ) -> Result<(Number, Number, Option<Number>)> {
        let (from, moved) = self.entry(who, source, old_name)?;
        let moved = moved.ok_or(StoreError::NotFound)?;
        let (to, present) = self.entry(who, target, new_name)?;
        let mut edit = Edit::default();
        if present == Some(moved) {
            // Both names belong to one object: POSIX requires that nothing happens.
            edit.touch(self, from, true)?;
            edit.touch(self, to, true)?;
            self.finish(edit);
            return Ok((from, to, None));
        }
        let is_directory = self.volatile.attributes(moved)?.kind == ObjectType::Directory;
        if is_directory && self.is_beneath(to, moved) {
            return Err(StoreError::Invalid);
        }
        if is_directory && from != to {
            self.directory(who, &Self::handle(moved), WRITE)?;
        }
        if let Some(victim) = present {
            self.check_replaced(is_directory, victim)?;
        }
        edit.leave(self, from, old_name)?;
        edit.enter(self, to, new_name, moved)?;
        edit.touch(self, moved, false)?;
        if is_directory {
            edit.meta(self, from)?.attributes.link_count -= 1;
            edit.meta(self, to)?.attributes.link_count += 1;
            edit.meta(self, moved)?.parent = to;
        }
        let mut replaced = None;
        if let Some(victim) = present {
            if is_directory {
                edit.meta(self, to)?.attributes.link_count -= 1;
            }
            replaced = edit.unlink(self, victim)?.then_some(victim);
        }
        self.finish(edit);
        Ok((from, to, replaced))
    }

    /// Checks that a rename may replace this object.
    fn check_replaced(&self, by_directory: bool, victim: Number) -> Result<()> {
        let is_directory = self.volatile.attributes(victim)?.kind == ObjectType::Directory;
        match (by_directory, is_directory) {
            (true, false) => Err(StoreError::NotDirectory),
            (false, true) => Err(StoreError::IsDirectory),
            (true, true) if !self.volatile.entries(victim)?.is_empty() => Err(StoreError::NotEmpty),
            (true, true) | (false, false) => Ok(()),
        }
    }
}

impl Store for CrashStore {
    /// Makes the store require one search for every object except the root, for a server that
    /// starts on this disk.
    fn defer_searches(&self) -> bool {
        let mut disk = self.disk();
        disk.unplaced = disk.volatile.inodes.keys().copied().filter(|it| *it != ROOT).collect();
        true
    }

    fn must_search(&self, handle: &FileHandle) -> bool {
        let disk = self.disk();
        disk.resolve(handle).is_ok_and(|number| disk.unplaced.contains(&number))
    }

    fn search(&self, handles: &[FileHandle]) {
        let mut disk = self.disk();
        for handle in handles {
            if let Ok(number) = disk.resolve(handle) {
                disk.unplaced.remove(&number);
            }
        }
    }

    fn root(&self, _who: &Credentials) -> Result<Object> {
        self.disk().object(ROOT)
    }

    fn lookup(&self, who: &Credentials, directory: &FileHandle, name: &[u8]) -> Result<Object> {
        name::check(name)?;
        let disk = self.disk();
        let parent = disk.directory(who, directory, EXECUTE)?;
        disk.object(disk.volatile.entries(parent)?.get(name).ok_or(StoreError::NotFound)?)
    }

    fn lookup_parent(&self, who: &Credentials, directory: &FileHandle) -> Result<Object> {
        let disk = self.disk();
        match disk.directory(who, directory, EXECUTE)? {
            ROOT => Err(StoreError::NotFound),
            number => disk.object(disk.volatile.get(number)?.meta.parent),
        }
    }

    fn attributes(&self, _who: &Credentials, handle: &FileHandle) -> Result<Attributes> {
        let disk = self.disk();
        disk.volatile.attributes(disk.resolve(handle)?)
    }

    fn set_attributes(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        changes: &AttributeChanges,
    ) -> Result<Altered> {
        let mut disk = self.disk();
        let number = disk.resolve(handle)?;
        let before = disk.volatile.attributes(number)?;
        let allowed = check_changes(who, &before, changes)?;
        disk.struck(FaultOn::Name, |disk| {
            let mut edit = Edit::default();
            edit.set(disk, number, &allowed)?;
            disk.finish(edit);
            Ok(Altered { before, after: disk.volatile.attributes(number)? })
        })
    }

    fn fs_attributes(
        &self,
        _who: &Credentials,
        handle: &FileHandle,
    ) -> Result<FileSystemAttributes> {
        let disk = self.disk();
        disk.resolve(handle)?;
        let limits = disk.limits;
        let files_free = limits.object_count_max.saturating_sub(disk.volatile.inodes.len()) as u64;
        let space_free = limits.bytes_max - disk.volatile.bytes;
        Ok(FileSystemAttributes {
            files_available: Some(files_free),
            files_free: Some(files_free),
            files_total: Some(limits.object_count_max as u64),
            space_available: Some(space_free),
            space_free: Some(space_free),
            space_total: Some(limits.bytes_max),
            ..common_fs_attributes(handle)
        })
    }

    fn access(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        wanted: AccessMask,
    ) -> Result<AccessMask> {
        let found = self.attributes(who, handle)?;
        let given = permission::access_mask(who, found.kind, found.uid, found.gid, found.mode);
        Ok(given & wanted)
    }

    fn open(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        access: ShareAccess,
    ) -> Result<Arc<dyn File>> {
        let mut disk = self.disk();
        let number = disk.resolve(handle)?;
        check_open(who, &disk.volatile.attributes(number)?, access)?;
        Ok(CrashFile::new(&self.disk, &mut disk, number))
    }

    fn create_file(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
        mode: CreateMode,
        changes: &AttributeChanges,
        access: ShareAccess,
    ) -> Result<(Created, Arc<dyn File>)> {
        name::check(name)?;
        let mut disk = self.disk();
        let place = (directory, name);
        let (number, is_new, change) = disk.find_or_make(who, place, mode, changes, access)?;
        let created = Created { object: disk.object(number)?, is_new, change };
        Ok((created, CrashFile::new(&self.disk, &mut disk, number)))
    }

    fn create_unlinked(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        changes: &AttributeChanges,
    ) -> Result<(Object, Arc<dyn File>)> {
        let mut disk = self.disk();
        let parent = disk.directory(who, directory, EXECUTE | WRITE)?;
        // A test could not tell whether a failed call made the file, so a fault makes none.
        disk.struck(FaultOn::Name, |_| Ok(()))?;
        let (mut edit, number) = disk.new_object(who, parent, regular(), changes)?;
        edit.meta(&disk, number)?.attributes.link_count = 0;
        disk.finish(edit);
        let object = disk.object(number)?;
        Ok((object, CrashFile::new(&self.disk, &mut disk, number)))
    }

    fn create_node(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
        node: NewNode<'_>,
        changes: &AttributeChanges,
    ) -> Result<Created> {
        let mut disk = self.disk();
        let (parent, found) = disk.entry(who, directory, name)?;
        if found.is_some() {
            return Err(StoreError::Exists);
        }
        let made = describe(who, node)?;
        let before = disk.change_of(parent)?;
        let number = disk.struck(FaultOn::Name, |disk| {
            let (mut edit, number) = disk.new_object(who, parent, made, changes)?;
            edit.enter(disk, parent, name, number)?;
            if node == NewNode::Directory {
                edit.meta(disk, parent)?.attributes.link_count += 1;
            }
            disk.finish(edit);
            Ok(number)
        })?;
        let change = disk.change_since(parent, before)?;
        Ok(Created { object: disk.object(number)?, is_new: true, change })
    }

    fn link(
        &self,
        who: &Credentials,
        source: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> Result<ChangeInfo> {
        let mut disk = self.disk();
        let number = disk.resolve(source)?;
        check_link(who, &disk.volatile.attributes(number)?)?;
        let (parent, found) = disk.entry(who, directory, name)?;
        if found.is_some() {
            return Err(StoreError::Exists);
        }
        let before = disk.change_of(parent)?;
        disk.struck(FaultOn::Name, |disk| {
            let mut edit = Edit::default();
            edit.touch(disk, number, false)?.attributes.link_count += 1;
            edit.enter(disk, parent, name, number)?;
            disk.finish(edit);
            Ok(())
        })?;
        disk.change_since(parent, before)
    }

    fn remove(&self, who: &Credentials, directory: &FileHandle, name: &[u8]) -> Result<Removed> {
        let mut disk = self.disk();
        let (parent, found) = disk.entry(who, directory, name)?;
        let number = found.ok_or(StoreError::NotFound)?;
        let is_directory = disk.volatile.attributes(number)?.kind == ObjectType::Directory;
        if is_directory && !disk.volatile.entries(number)?.is_empty() {
            return Err(StoreError::NotEmpty);
        }
        let before = disk.change_of(parent)?;
        let was_last = disk.struck(FaultOn::Name, |disk| {
            let mut edit = Edit::default();
            edit.leave(disk, parent, name)?;
            if is_directory {
                edit.meta(disk, parent)?.attributes.link_count -= 1;
            }
            let was_last = edit.unlink(disk, number)?;
            disk.finish(edit);
            Ok(was_last)
        })?;
        let change = disk.change_since(parent, before)?;
        Ok(Removed { handle: Disk::handle(number), was_last, held: 0, change })
    }

    fn rename(
        &self,
        who: &Credentials,
        source: &FileHandle,
        old_name: &[u8],
        target: &FileHandle,
        new_name: &[u8],
    ) -> Result<Renamed> {
        let mut disk = self.disk();
        let change_of = |disk: &Disk, handle| disk.resolve(handle).and_then(|n| disk.change_of(n));
        let before = (change_of(&disk, source)?, change_of(&disk, target)?);
        let (from, to, replaced) = disk.struck(FaultOn::Name, |disk| {
            disk.rename_entry(who, (source, old_name), (target, new_name))
        })?;
        Ok(Renamed {
            source: disk.change_since(from, before.0)?,
            target: disk.change_since(to, before.1)?,
            replaced: replaced.map(Disk::handle),
        })
    }

    fn readdir(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        request: &ListRequest,
    ) -> Result<ListPage> {
        let disk = self.disk();
        let number = disk.directory(who, directory, READ)?;
        // A caller without the right to search a directory gets no results that require a search.
        let may_search = disk.directory(who, directory, EXECUTE).is_ok();
        let verifier = CookieVerifier(number.to_le_bytes());
        let entries = &disk.volatile.entries(number)?.by_cookie;
        request.page(
            verifier,
            |behind| {
                entries.range(behind).map(|(cookie, (name, number))| (*cookie, &**name, *number))
            },
            |number| if may_search { disk.object(number).ok() } else { None },
        )
    }

    fn sync(&self, handle: &FileHandle) -> Result<()> {
        let mut disk = self.disk();
        let number = disk.resolve(handle)?;
        disk.struck(FaultOn::Sync, |disk| {
            disk.sync_metadata(number, false);
            Ok(())
        })
    }

    fn readlink(&self, _who: &Credentials, handle: &FileHandle) -> Result<Vec<u8>> {
        let disk = self.disk();
        match &disk.volatile.get(disk.resolve(handle)?)?.content {
            Content::Text(text) => Ok(text.to_vec()),
            Content::Data(_) | Content::Directory(_) | Content::Nothing => Err(StoreError::Invalid),
        }
    }
}

/// The type, content and device number of a new object.
type Made = (ObjectType, Content, DeviceNumber);

fn regular() -> Made {
    (ObjectType::Regular, Content::Data(Default::default()), DeviceNumber::default())
}

/// Returns the type, content and device number of a new object that is not a file.
fn describe(who: &Credentials, node: NewNode<'_>) -> Result<Made> {
    let none = DeviceNumber::default();
    let device = |kind, device| match who.is_superuser() {
        true => Ok((kind, Content::Nothing, device)),
        false => Err(StoreError::NotPermitted),
    };
    match node {
        NewNode::Directory => {
            Ok((ObjectType::Directory, Content::Directory(Entries::default()), none))
        }
        NewNode::SymbolicLink(text) if text.is_empty() || text.contains(&0) => {
            Err(StoreError::Invalid)
        }
        NewNode::SymbolicLink(text) if text.len() > LINK_TEXT_BYTES_MAX => {
            Err(StoreError::NameTooLong)
        }
        NewNode::SymbolicLink(text) => {
            Ok((ObjectType::SymbolicLink, Content::Text(Arc::from(text)), none))
        }
        NewNode::Fifo => Ok((ObjectType::Fifo, Content::Nothing, none)),
        NewNode::Socket => Ok((ObjectType::Socket, Content::Nothing, none)),
        NewNode::BlockDevice(number) => device(ObjectType::BlockDevice, number),
        NewNode::CharacterDevice(number) => device(ObjectType::CharacterDevice, number),
    }
}
