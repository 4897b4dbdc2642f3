//! The name space: handles, names and attributes.
//!
//! Invariant: every call checks the caller's permission itself, and no result leads outside the
//! exports.

use std::ffi::OsString;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use dafs_types::attributes::DeviceNumber;
use dafs_types::{
    AccessMask, Ace, ChangeInfo, CookieVerifier, CreateMode, Credentials, FileHandle,
    FileSystemAttributes, ObjectType, ReaddirCookie, ShareAccess,
};

use crate::attributes::{Altered, AttributeChanges, Attributes};
use crate::error::{Result, StoreError};
use crate::file::{File, FileVersion};
use crate::terms::ExportTerms;

/// An object: its handle, and its attributes at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// The handle, which names the object as long as it exists.
    pub handle: FileHandle,
    /// The attributes of the object.
    pub attributes: Attributes,
}

/// Selects attributes that need separate calls of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtrasWanted {
    /// True to learn whether the object has named attributes.
    pub named_attributes: bool,
    /// True for the access control list.
    pub acl: bool,
    /// True for the MIME type.
    pub mime_type: bool,
}

impl ExtrasWanted {
    /// Returns true if any attribute is wanted.
    #[must_use]
    pub fn is_any(self) -> bool {
        self.named_attributes || self.acl || self.mime_type
    }
}

/// Attributes that need separate calls; `None` for one that is not wanted or does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// True if the object has named attributes.
    pub named_attributes: Option<bool>,
    /// The access control list; see `docs/spec/acl.md`.
    pub acl: Option<Vec<Ace>>,
    /// The MIME type, reported only to callers that may read the object.
    pub mime_type: Option<String>,
}

/// Changes of such attributes; `None` leaves an attribute unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraChanges {
    /// A whole access control list.
    pub acl: Option<Vec<Ace>>,
    /// A MIME type; an empty one removes it.
    pub mime_type: Option<String>,
}

impl ExtraChanges {
    /// Returns true if nothing is to be set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How far the lookup of a path got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathLookup {
    /// The last object found; the starting directory if `component_count` is 0.
    pub handle: FileHandle,
    /// The number of components found.
    pub component_count: usize,
    /// The attributes of the last object found; `None` if no component was found.
    pub attributes: Option<Attributes>,
    /// Why the next component was not found; `None` if all were. A symbolic link in the middle of
    /// the path gives `IsSymlink`, with the link as the last object.
    pub error: Option<StoreError>,
}

impl PathLookup {
    /// Creates a lookup that has not started.
    #[must_use]
    pub fn starting_at(directory: FileHandle) -> Self {
        Self { handle: directory, component_count: 0, attributes: None, error: None }
    }

    /// Adds the result of looking up the next component. Returns true if the lookup can continue.
    #[inline]
    pub fn advance(&mut self, found: Result<Object>) -> bool {
        match found {
            Ok(object) => {
                self.handle = object.handle;
                self.attributes = Some(object.attributes);
                self.component_count += 1;
            }
            Err(StoreError::NotDirectory) if self.is_at_link() => {
                self.error = Some(StoreError::IsSymlink);
            }
            Err(error) => self.error = Some(error),
        }
        self.error.is_none()
    }

    fn is_at_link(&self) -> bool {
        self.attributes.is_some_and(|found| found.kind == ObjectType::SymbolicLink)
    }
}

/// The result of a creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created {
    /// The object, new or found.
    pub object: Object,
    /// True if the object is new.
    pub is_new: bool,
    /// The change information of the directory; zeros if nothing had to be created.
    pub change: ChangeInfo,
}

/// The result of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The object that has lost the name.
    pub handle: FileHandle,
    /// True if that was the object's last name. Its cached blocks are then useful only to clients
    /// that have it open.
    pub was_last: bool,
    /// If that was the last name: the bytes on the medium that the system frees when the last
    /// descriptor is closed ([`Store::close_removed`]).
    pub held: u64,
    /// The change information of the directory.
    pub change: ChangeInfo,
}

/// The result of a rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// The change information of the old directory.
    pub source: ChangeInfo,
    /// The change information of the new directory.
    pub target: ChangeInfo,
    /// The object that had the new name before, if that was its last name.
    pub replaced: Option<FileHandle>,
}

/// A new object that is not a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewNode<'a> {
    /// A directory.
    Directory,
    /// A symbolic link with this text.
    SymbolicLink(&'a [u8]),
    /// A named pipe.
    Fifo,
    /// A socket's name in the file system.
    Socket,
    /// A block device; superuser only.
    BlockDevice(DeviceNumber),
    /// A character device; superuser only.
    CharacterDevice(DeviceNumber),
}

/// Selects part of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListRequest {
    /// Entries after this cookie are listed; 0 starts at the beginning.
    pub cookie: ReaddirCookie,
    /// The verifier that came with the cookie; ignored with cookie 0.
    pub verifier: CookieVerifier,
    /// The most entries in the page; a store may return fewer.
    pub entry_count_max: usize,
    /// The most bytes of names in the page.
    pub name_bytes_max: usize,
    /// True if handles and attributes are wanted, each of which costs system calls.
    pub want_objects: bool,
}

impl ListRequest {
    /// Builds the page of a directory whose entries are sorted by their cookies. `entries` returns
    /// the entries after a cookie, each with its cookie, name and number. For stores that keep
    /// directories in memory.
    ///
    /// # Errors
    /// `BadCookie` for a cookie of another directory, `TooSmall` if not even one entry fits.
    pub fn page<'e, E: Iterator<Item = (u64, &'e [u8], u64)>>(
        &self,
        verifier: CookieVerifier,
        entries: impl FnOnce((Bound<u64>, Bound<u64>)) -> E,
        object: impl Fn(u64) -> Option<Object>,
    ) -> Result<ListPage> {
        let cookie = self.cookie.0;
        if cookie != 0 && (self.verifier != verifier || cookie < FIRST_COOKIE) {
            return Err(StoreError::BadCookie);
        }
        let mut page = ListPage { entries: Vec::new(), verifier, is_end: true };
        let mut room = self.name_bytes_max;
        for (cookie, name, number) in entries((Bound::Excluded(cookie), Bound::Unbounded)) {
            if page.entries.len() >= self.entry_count_max || name.len() > room {
                page.is_end = false;
                break;
            }
            room -= name.len();
            page.entries.push(ListEntry {
                cookie: ReaddirCookie(cookie),
                name: name.to_vec(),
                file_id: number,
                object: if self.want_objects { object(number) } else { None },
            });
        }
        if page.entries.is_empty() && !page.is_end {
            return Err(StoreError::TooSmall);
        }
        Ok(page)
    }
}

/// The first cookie that the protocol leaves to a store.
pub const FIRST_COOKIE: u64 = 3;

/// One entry of a directory listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEntry {
    /// The cookie that continues after it. Never 0, 1 or 2.
    pub cookie: ReaddirCookie,
    /// The name of the entry.
    pub name: Vec<u8>,
    /// The number of the object, as in [`Attributes::file_id`].
    pub file_id: u64,
    /// The object; `None` if it is not wanted, was removed since, or cannot be read.
    pub object: Option<Object>,
}

/// A page of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPage {
    /// The entries, without `.` and `..`.
    pub entries: Vec<ListEntry>,
    /// The verifier for every cookie of this page.
    pub verifier: CookieVerifier,
    /// True if no entries follow.
    pub is_end: bool,
}

/// A tree of objects. All calls may block.
///
/// Errors common to all calls: `BadHandle` for a handle that was never issued, `Stale` for an
/// object that was removed or has left the export, `Access` and `NotPermitted` for what the caller
/// may not do, `Io`, `Resource`. [`crate::name::check`] says which names are refused.
pub trait Store: Send + Sync {
    /// Returns the same store with other terms, for some of its clients. The terms are in the order
    /// of [`Store::export_names`]. Handles and open files are common to all of these views. `None`
    /// for a store with a single export and no terms.
    fn on_terms(&self, _terms: &[ExportTerms]) -> Option<Arc<dyn Store>> {
        None
    }

    /// Returns the names of the exports, for setting terms.
    fn export_names(&self) -> Vec<OsString> {
        vec!["export".into()]
    }

    /// Returns false if the handle belongs to an export that these terms hide.
    fn shows(&self, _handle: &FileHandle) -> bool {
        true
    }

    /// Returns true if a process of this host with these credentials gains only speed from a
    /// descriptor for reading the file. It must be allowed to read the file, and allowed through
    /// the server to do everything else that such a descriptor permits to the owner or by the
    /// file's mode.
    ///
    /// # Errors
    /// See [`Store::access`].
    fn may_read_directly(&self, _who: &Credentials, _handle: &FileHandle) -> Result<bool> {
        Ok(false)
    }

    /// Converts a handle that an earlier version of this store issued to its present form. `None`
    /// if it has that form, or is not of this store. Both forms lead to the object, but code that
    /// compares handles or uses them as keys must use the present form. A handle that names only a
    /// file system (zeros after its first 16 bytes) becomes the present one of the file system.
    fn renewed(&self, _handle: &FileHandle) -> Option<FileHandle> {
        None
    }

    /// From now on no call searches directories for the object of a handle. A call that would have
    /// to search fails with `Busy`, and [`Store::search`] must be called on another thread. Returns
    /// false if no call ever has to search.
    fn defer_searches(&self) -> bool {
        false
    }

    /// Returns true if calls with this handle fail until a search for it was done.
    fn must_search(&self, _handle: &FileHandle) -> bool {
        false
    }

    /// Searches for the objects of these handles, all at once. Blocks as long as it takes to read
    /// every directory. After that, calls with these handles need no search for some time: the
    /// objects are found, or are `Stale`, or are `Unseen` because some directories could not be
    /// read.
    fn search(&self, _handles: &[FileHandle]) {}

    /// Closes the objects that removals have left open. The system frees their storage with the
    /// last descriptor, which takes time, so this is called after the replies are sent.
    fn close_removed(&self) {}

    /// Releases objects that other processes of this host have removed and whose storage would
    /// stay in use otherwise. Returns their handles. To be called regularly, with the time since
    /// the last call; within some seconds every object is looked at. The storage is free after the
    /// next [`Store::close_removed`].
    fn release_removed(&self, _elapsed: Duration) -> Vec<FileHandle> {
        Vec::new()
    }

    /// Returns the root of the name space.
    fn root(&self, who: &Credentials) -> Result<Object>;

    /// Returns the object with this name. A symbolic link is not followed.
    fn lookup(&self, who: &Credentials, directory: &FileHandle, name: &[u8]) -> Result<Object>;

    /// Looks several components up, and returns how far that got.
    fn lookup_path(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        names: &[&[u8]],
    ) -> PathLookup {
        let mut reached = PathLookup::starting_at(*directory);
        for name in names {
            let found = self.lookup(who, &reached.handle, name);
            if !reached.advance(found) {
                break;
            }
        }
        reached
    }

    /// Returns the parent of a directory; `NotFound` at the root.
    fn lookup_parent(&self, who: &Credentials, directory: &FileHandle) -> Result<Object>;

    /// Returns the present attributes. Needs no permission.
    fn attributes(&self, who: &Credentials, handle: &FileHandle) -> Result<Attributes>;

    /// Sets attributes, and returns all attributes before and after. All permissions are checked
    /// before the first change. If a cache holds the file, a change of size must go through
    /// [`crate::cache::Cache`] instead.
    fn set_attributes(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        changes: &AttributeChanges,
    ) -> Result<Altered>;

    /// Returns attributes that need separate calls. Needs no permission, but the MIME type is
    /// `None` for a caller that may not read the object.
    fn extras(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        wanted: ExtrasWanted,
    ) -> Result<Extras> {
        self.attributes(who, handle)?;
        let named_attributes = wanted.named_attributes.then_some(false);
        Ok(Extras { named_attributes, ..Extras::default() })
    }

    /// Sets such attributes. The list needs the owner, the MIME type the right to write.
    /// `NotSupported` if the file system cannot keep them, or if the list cannot be kept with its
    /// exact meaning; `Invalid` for a list without a meaning.
    fn set_extras(
        &self,
        _who: &Credentials,
        _handle: &FileHandle,
        changes: &ExtraChanges,
    ) -> Result<()> {
        if changes.is_empty() { Ok(()) } else { Err(StoreError::NotSupported) }
    }

    /// Returns the directory of an object's named attributes. In it, [`Store::lookup`],
    /// [`Store::create_file`], [`Store::remove`], [`Store::rename`] and [`Store::readdir`] work; an
    /// attribute is opened like a file. The permissions are those of the object: a caller that may
    /// read it may read its attributes, and one that may write it may change them. `NotSupported`
    /// for objects without named attributes: attributes themselves, objects other than files and
    /// directories, and file systems without extended attributes.
    fn open_attributes(&self, _who: &Credentials, _handle: &FileHandle) -> Result<Object> {
        Err(StoreError::NotSupported)
    }

    /// Returns the attributes of the file system that an object is in.
    fn fs_attributes(&self, who: &Credentials, handle: &FileHandle)
    -> Result<FileSystemAttributes>;

    /// Returns which of the wanted rights the caller has.
    fn access(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        wanted: AccessMask,
    ) -> Result<AccessMask>;

    /// Opens a regular file. `IsDirectory`, `IsSymlink` and `BadType` for other objects.
    fn open(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        access: ShareAccess,
    ) -> Result<Arc<dyn File>>;

    /// Opens a regular file, and returns its version at that time.
    fn open_with_version(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        access: ShareAccess,
    ) -> Result<(Arc<dyn File>, FileVersion)> {
        let file = self.open(who, handle, access)?;
        let version = file.version()?;
        Ok((file, version))
    }

    /// Opens a regular file by its name, like [`Store::create_file`] in mode `NoCreate`, and
    /// returns its version at that time.
    fn open_entry(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
        access: ShareAccess,
    ) -> Result<(Arc<dyn File>, FileVersion)> {
        open_by_creating(self, who, directory, name, access)
    }

    /// Finds or creates a regular file, as `mode` says, and opens it. Without a mode in `changes`,
    /// a new file gets 0600. A new file is open whatever its mode says: POSIX lets the creator of a
    /// read-only file write it through that open. An existing file is opened as by [`Store::open`].
    /// `changes` applies to a new file. For an existing one (`Unchecked`) only `size` applies, if
    /// it is 0 and the caller may write.
    fn create_file(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
        mode: CreateMode,
        changes: &AttributeChanges,
        access: ShareAccess,
    ) -> Result<(Created, Arc<dyn File>)>;

    /// Creates a regular file without a name, in the file system of `directory`. It exists as long
    /// as the returned [`File`], or until [`Store::link`] gives it a name. `NotSupported` if the
    /// file system cannot do this.
    fn create_unlinked(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        changes: &AttributeChanges,
    ) -> Result<(Object, Arc<dyn File>)>;

    /// Creates an object other than a regular file. Without a mode: 0700 for a directory, 0600
    /// otherwise.
    fn create_node(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
        node: NewNode<'_>,
        changes: &AttributeChanges,
    ) -> Result<Created>;

    /// Gives an object other than a directory another name, or its first one.
    fn link(
        &self,
        who: &Credentials,
        source: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> Result<ChangeInfo>;

    /// Removes a name of any object but a directory, or of an empty directory.
    fn remove(&self, who: &Credentials, directory: &FileHandle, name: &[u8]) -> Result<Removed>;

    /// Removes a name if `may` accepts the object that has it; otherwise returns `None`. Stores
    /// that can do both with one lookup override this.
    fn remove_if(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
        may: &mut dyn FnMut(&FileHandle) -> bool,
    ) -> Result<Option<Removed>> {
        let object = self.lookup(who, directory, name)?;
        if may(&object.handle) { self.remove(who, directory, name).map(Some) } else { Ok(None) }
    }

    /// Renames an object. Replaces an object with the new name if it is of the same type (and
    /// empty).
    fn rename(
        &self,
        who: &Credentials,
        source: &FileHandle,
        old_name: &[u8],
        target: &FileHandle,
        new_name: &[u8],
    ) -> Result<Renamed>;

    /// Lists part of a directory. Cookies stay valid while entries are added and removed.
    /// `TooSmall` if not even one entry fits, `BadCookie` for a cookie of another directory.
    fn readdir(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        request: &ListRequest,
    ) -> Result<ListPage>;

    /// Makes an object's own metadata stable; for a directory, its entries. Needs no permission,
    /// because nothing visible changes.
    fn sync(&self, handle: &FileHandle) -> Result<()>;

    /// Returns the text of a symbolic link; `Invalid` for other objects.
    fn readlink(&self, who: &Credentials, handle: &FileHandle) -> Result<Vec<u8>>;
}

/// The default implementation of [`Store::open_entry`].
pub(crate) fn open_by_creating<S: Store + ?Sized>(
    store: &S,
    who: &Credentials,
    directory: &FileHandle,
    name: &[u8],
    access: ShareAccess,
) -> Result<(Arc<dyn File>, FileVersion)> {
    let (mode, none) = (CreateMode::NoCreate, AttributeChanges::default());
    let (found, file) = store.create_file(who, directory, name, mode, &none, access)?;
    Ok((file, FileVersion::from(&found.object.attributes)))
}
