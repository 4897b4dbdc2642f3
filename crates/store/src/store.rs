//! The name space: handles, names and attributes.
//!
//! Invariant: every call checks the caller's permission itself, and no result leads outside the
//! exports.

use std::ffi::OsString;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use dafs_ops::XattrMode;
use dafs_types::attributes::DeviceNumber;
use dafs_types::{
    AccessMask, Ace, ChangeInfo, CookieVerifier, CreateMode, Credentials, FileHandle,
    FileSystemAttributes, ObjectType, ReaddirCookie, ShareAccess,
};

use crate::attributes::{Altered, AttributeChanges, Attributes};
use crate::error::{Result, StoreError};
use crate::file::{File, FileVersion};
use crate::terms::ExportTerms;
use crate::xattrs::{XattrListRequest, XattrPage};

/// An object: its handle, and its attributes when they were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// The handle, which names the object as long as it exists.
    pub handle: FileHandle,
    /// The attributes of the object.
    pub attributes: Attributes,
}

/// Selects the additional attributes to return. They are optional because they need separate system
/// calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtrasWanted {
    /// True to return whether the object has named attributes.
    pub named_attributes: bool,
    /// True to return the access control list.
    pub acl: bool,
    /// True to return the MIME type.
    pub mime_type: bool,
}

impl ExtrasWanted {
    /// Returns true if any additional attribute is requested.
    #[must_use]
    pub fn is_any(self) -> bool {
        self.named_attributes || self.acl || self.mime_type
    }
}

/// Additional attributes; `None` for an attribute that was not requested or does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// True if the object has named attributes.
    pub named_attributes: Option<bool>,
    /// The access control list; see `docs/spec/acl.md`.
    pub acl: Option<Vec<Ace>>,
    /// The MIME type, reported only to callers that may read the object.
    pub mime_type: Option<String>,
}

/// Additional attributes to set; `None` leaves an attribute unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraChanges {
    /// The complete new access control list.
    pub acl: Option<Vec<Ace>>,
    /// The new MIME type; an empty string removes it.
    pub mime_type: Option<String>,
}

impl ExtraChanges {
    /// Returns true if no attribute is to be set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The result of looking up a path, component by component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathLookup {
    /// The last object found, or the starting directory if no component was found.
    pub handle: FileHandle,
    /// The number of components found.
    pub component_count: usize,
    /// The attributes of the last object found; `None` if no component was found.
    pub attributes: Option<Attributes>,
    /// The error for the first component that was not found; `None` if all were found. A symbolic
    /// link in the middle of the path gives `IsSymlink`, with the link as the last object found.
    pub error: Option<StoreError>,
}

impl PathLookup {
    /// Creates the result of a lookup that has found no component yet.
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
    /// The object that was created, or that already had the name.
    pub object: Object,
    /// True if the object was created by this call.
    pub is_new: bool,
    /// The change information of the directory; zeros if the directory did not change.
    pub change: ChangeInfo,
}

/// The result of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The handle of the object whose name was removed.
    pub handle: FileHandle,
    /// True if the removed name was the last name of the object. The object's cached blocks are
    /// then useful only to clients that have the object open.
    pub was_last: bool,
    /// The number of bytes of storage that the system frees when the last descriptor of the object
    /// is closed ([`Store::close_removed`]); 0 if the object has other names.
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
    /// The handle of the object that had the new name before. `None` unless the rename removed the
    /// last name of such an object.
    pub replaced: Option<FileHandle>,
}

/// The type of a new object that is not a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewNode<'a> {
    /// A directory.
    Directory,
    /// A symbolic link with this text.
    SymbolicLink(&'a [u8]),
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A block device; only the superuser may create one.
    BlockDevice(DeviceNumber),
    /// A character device; only the superuser may create one.
    CharacterDevice(DeviceNumber),
}

/// Selects the entries of a directory for one page of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListRequest {
    /// The cookie after which the page starts; 0 starts at the beginning.
    pub cookie: ReaddirCookie,
    /// The verifier that came with the cookie. Ignored if the cookie is 0.
    pub verifier: CookieVerifier,
    /// The maximum number of entries in the page; a store may return fewer.
    pub entry_count_max: usize,
    /// The maximum total number of bytes of the names in the page.
    pub name_bytes_max: usize,
    /// True to return handles and attributes, which cost system calls for each entry.
    pub want_objects: bool,
}

impl ListRequest {
    /// Builds a page of a directory whose entries are sorted by their cookies, for stores that keep
    /// directories in memory. `entries` returns the entries after a cookie, each as its cookie,
    /// name and file number.
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

/// The first cookie that a store may use. The protocol reserves 0 to 2.
pub const FIRST_COOKIE: u64 = 3;

/// One entry of a directory listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEntry {
    /// The cookie with which a listing continues after this entry. It is never 0, 1 or 2.
    pub cookie: ReaddirCookie,
    /// The name of the entry.
    pub name: Vec<u8>,
    /// The inode number of the object, as in [`Attributes::file_id`].
    pub file_id: u64,
    /// The object of the entry. `None` if it was not requested, was removed meanwhile, or cannot be
    /// read.
    pub object: Option<Object>,
}

/// A page of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPage {
    /// The entries, without `.` and `..`.
    pub entries: Vec<ListEntry>,
    /// The verifier for every cookie of this page.
    pub verifier: CookieVerifier,
    /// True if no entries follow this page.
    pub is_end: bool,
}

/// A name space of objects. All calls may block.
///
/// Errors common to all calls: `BadHandle` for a handle that this server did not issue, `Stale` for
/// an object that was removed or has left the export, `Access` and `NotPermitted` if the caller may
/// not perform the operation, `Io` and `Resource`. Calls with a name also fail if
/// [`crate::name::check`] refuses the name.
pub trait Store: Send + Sync {
    /// Returns a view of this store for some of its clients, with other terms of access. `terms` is
    /// in the order of [`Store::export_names`]. All views share handles and open files. Returns
    /// `None` for a store that has a single export and does not support terms.
    fn on_terms(&self, _terms: &[ExportTerms]) -> Option<Arc<dyn Store>> {
        None
    }

    /// Returns the names of the exports, in the order in which [`Store::on_terms`] expects their
    /// terms.
    fn export_names(&self) -> Vec<OsString> {
        vec!["export".into()]
    }

    /// Returns the paths of the exports in the name space, in the order of
    /// [`Store::export_names`]: `/` if the export is the root of the name space.
    fn export_paths(&self) -> Vec<OsString> {
        vec!["/".into()]
    }

    /// Returns false if the terms of this view hide the export that the handle belongs to.
    fn shows(&self, _handle: &FileHandle) -> bool {
        true
    }

    /// Returns true if a process of this host with these credentials may get a descriptor for
    /// reading the file. The descriptor must not permit anything that the server refuses. So the
    /// process must be allowed to read the file. If the process owns the file or may write it, the
    /// export must also allow changes, because such a process could use the descriptor for changes.
    ///
    /// # Errors
    /// See [`Store::access`].
    fn may_read_directly(&self, _who: &Credentials, _handle: &FileHandle) -> Result<bool> {
        Ok(false)
    }

    /// Converts a handle that an earlier version of this store issued to its current form. Returns
    /// `None` if the handle has the current form, or does not belong to this store. Both forms name
    /// the same object, but code that compares handles or uses them as keys must use the current
    /// form. A handle that names only a file system (zeros after its first 16 bytes) becomes the
    /// current handle of that file system.
    fn renewed(&self, _handle: &FileHandle) -> Option<FileHandle> {
        None
    }

    /// Makes calls fail with `Busy` if they would have to search directories for the object of a
    /// handle. [`Store::search`] must then be called on another thread. Returns false if no call
    /// ever has to search.
    fn defer_searches(&self) -> bool {
        false
    }

    /// Returns true if calls with this handle fail with `Busy` until [`Store::search`] was called.
    fn must_search(&self, _handle: &FileHandle) -> bool {
        false
    }

    /// Searches for all of these objects together. Blocks as long as it takes to read every
    /// directory. For some time afterwards, calls with these handles need no search. If an object
    /// was not found, calls with its handle fail with `Stale`, or with `Unseen` if some directories
    /// could not be read.
    fn search(&self, _handles: &[FileHandle]) {}

    /// Closes the descriptors of removed objects. The system frees an object's storage when its
    /// last descriptor is closed, which takes time, so this is called after the replies are sent.
    fn close_removed(&self) {}

    /// Releases the descriptors of objects that other processes of this host have removed, because
    /// an open descriptor keeps a removed object's storage in use. Returns the handles of these
    /// objects. The caller must call this regularly, with the time since the last call, so that
    /// every object is checked within some seconds. The storage is freed by the next
    /// [`Store::close_removed`].
    fn release_removed(&self, _elapsed: Duration) -> Vec<FileHandle> {
        Vec::new()
    }

    /// Returns the root of the name space.
    fn root(&self, who: &Credentials) -> Result<Object>;

    /// Returns the object with this name. A symbolic link is not followed.
    fn lookup(&self, who: &Credentials, directory: &FileHandle, name: &[u8]) -> Result<Object>;

    /// Looks up several components, one after the other. Stops at the first component that is not
    /// found.
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

    /// Returns the parent of a directory. Fails with `NotFound` at the root of the name space.
    fn lookup_parent(&self, who: &Credentials, directory: &FileHandle) -> Result<Object>;

    /// Returns the current attributes of an object. The caller needs no permission.
    fn attributes(&self, who: &Credentials, handle: &FileHandle) -> Result<Attributes>;

    /// Sets attributes. Returns all attributes from before and after the change. All permissions
    /// are checked before the first change. If a cache holds the file, a change of size must go
    /// through [`crate::cache::Cache`] instead.
    fn set_attributes(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        changes: &AttributeChanges,
    ) -> Result<Altered>;

    /// Returns additional attributes of an object. The caller needs no permission, but the MIME
    /// type is `None` if the caller may not read the object.
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

    /// Sets additional attributes. Only the owner may set the access control list; the MIME type
    /// needs write permission. Fails with `NotSupported` if the file system cannot store the
    /// attributes, or cannot store the list with its exact meaning, and with `Invalid` if an entry
    /// of the list has no meaning.
    fn set_extras(
        &self,
        _who: &Credentials,
        _handle: &FileHandle,
        changes: &ExtraChanges,
    ) -> Result<()> {
        if changes.is_empty() { Ok(()) } else { Err(StoreError::NotSupported) }
    }

    /// Returns the directory of an object's named attributes. In that directory, [`Store::lookup`],
    /// [`Store::create_file`], [`Store::remove`], [`Store::rename`] and [`Store::readdir`] work,
    /// and an attribute is opened like a file. The object's permissions apply: a caller that may
    /// read the object may read its attributes, and a caller that may write the object may change
    /// them. Fails with `NotSupported` for objects without named attributes: attributes themselves,
    /// objects other than files and directories, and file systems without extended attributes.
    fn open_attributes(&self, _who: &Credentials, _handle: &FileHandle) -> Result<Object> {
        Err(StoreError::NotSupported)
    }

    /// Returns the value of an extended attribute of a file or directory. Names have no prefix. The
    /// caller needs read permission for the object.
    ///
    /// Errors of the four calls for extended attributes: `NoXattr` if the attribute does not exist,
    /// `XattrTooBig` if the value is too long, `Invalid` for an empty name or one with NUL,
    /// `NameTooLong`, and `NotSupported` for objects of other types and for file systems without
    /// extended attributes.
    fn xattr(&self, _who: &Credentials, _handle: &FileHandle, _name: &[u8]) -> Result<Vec<u8>> {
        Err(StoreError::NotSupported)
    }

    /// Sets an extended attribute. Returns the attributes of the object from before and after the
    /// change. The caller needs write permission for the object. Fails with `Exists` or `NoXattr`
    /// if `mode` forbids the call.
    fn set_xattr(
        &self,
        _who: &Credentials,
        _handle: &FileHandle,
        _name: &[u8],
        _value: &[u8],
        _mode: XattrMode,
    ) -> Result<Altered> {
        Err(StoreError::NotSupported)
    }

    /// Removes an extended attribute. Returns the attributes of the object from before and after
    /// the change. The caller needs write permission for the object.
    fn remove_xattr(
        &self,
        _who: &Credentials,
        _handle: &FileHandle,
        _name: &[u8],
    ) -> Result<Altered> {
        Err(StoreError::NotSupported)
    }

    /// Lists the names of an object's extended attributes. A list may continue at a cookie after
    /// attributes were added or removed. The caller needs read permission for the object. Fails
    /// with `TooSmall` if not even one name fits.
    fn xattrs(
        &self,
        _who: &Credentials,
        _handle: &FileHandle,
        _request: &XattrListRequest,
    ) -> Result<XattrPage> {
        Err(StoreError::NotSupported)
    }

    /// Returns the attributes of the file system that contains an object.
    fn fs_attributes(&self, who: &Credentials, handle: &FileHandle)
    -> Result<FileSystemAttributes>;

    /// Returns the access rights that the caller has, among the `wanted` rights.
    fn access(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        wanted: AccessMask,
    ) -> Result<AccessMask>;

    /// Opens a regular file. Fails with `IsDirectory`, `IsSymlink` or `BadType` for other objects.
    fn open(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        access: ShareAccess,
    ) -> Result<Arc<dyn File>>;

    /// Opens a regular file. Returns the file and its version at the time of the open.
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

    /// Opens a regular file like [`Store::open_with_version`], for a client whose protocol has no
    /// opens, such as NFS version 3. Such a client checks the mode itself when a program opens the
    /// file, and the mode may change while the program has the file open. So the owner may read and
    /// write whatever the mode is, and a caller who may execute the file may read it (RFC 1813
    /// section 4.4).
    fn open_stateless(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        access: ShareAccess,
    ) -> Result<(Arc<dyn File>, FileVersion)> {
        self.open_with_version(who, handle, access)
    }

    /// Opens a regular file by its name, like [`Store::create_file`] in mode `NoCreate`. Returns
    /// the file and its version at the time of the open.
    fn open_entry(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
        access: ShareAccess,
    ) -> Result<(Arc<dyn File>, FileVersion)> {
        open_by_creating(self, who, directory, name, access)
    }

    /// Finds or creates a regular file, depending on `mode`, and opens the file. If `changes` has
    /// no mode, a new file gets mode 0600. A new file is opened for the requested access whatever
    /// its mode is, because POSIX lets the process that creates a read-only file write to it
    /// through the same open. An existing file is opened as by [`Store::open`]. `changes` are the
    /// attributes of a new file. For an existing file (mode `Unchecked`), everything in `changes`
    /// is ignored except a `size` of 0, which truncates the file if the caller may write.
    fn create_file(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
        mode: CreateMode,
        changes: &AttributeChanges,
        access: ShareAccess,
    ) -> Result<(Created, Arc<dyn File>)>;

    /// Creates a regular file without a name, in the file system of `directory`. The file exists as
    /// long as the returned [`File`], unless [`Store::link`] gives it a name. Fails with
    /// `NotSupported` if the file system cannot create such files.
    fn create_unlinked(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        changes: &AttributeChanges,
    ) -> Result<(Object, Arc<dyn File>)>;

    /// Creates an object other than a regular file. If no mode is given, a directory gets mode 0700
    /// and other objects 0600.
    fn create_node(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
        node: NewNode<'_>,
        changes: &AttributeChanges,
    ) -> Result<Created>;

    /// Gives an object another name, or a first name if it has none. Fails for a directory.
    fn link(
        &self,
        who: &Credentials,
        source: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> Result<ChangeInfo>;

    /// Removes the name of an object. A directory is removed only if it is empty.
    fn remove(&self, who: &Credentials, directory: &FileHandle, name: &[u8]) -> Result<Removed>;

    /// Removes a name if the closure `may` accepts the object that has the name; otherwise returns
    /// `None`. A store that can check and remove with a single lookup overrides this method.
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

    /// Renames an object. If another object already has the new name, it is replaced, provided that
    /// both objects are directories and the replaced directory is empty, or that neither object is
    /// a directory.
    fn rename(
        &self,
        who: &Credentials,
        source: &FileHandle,
        old_name: &[u8],
        target: &FileHandle,
        new_name: &[u8],
    ) -> Result<Renamed>;

    /// Returns a page of a directory listing. Cookies stay valid while entries are added and
    /// removed. Fails with `TooSmall` if not even one entry fits, and with `BadCookie` for a cookie
    /// of another directory.
    fn readdir(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        request: &ListRequest,
    ) -> Result<ListPage>;

    /// Makes an object's metadata stable; for a directory, also its entries. The caller needs no
    /// permission, because nothing visible changes.
    fn sync(&self, handle: &FileHandle) -> Result<()>;

    /// Returns the text of a symbolic link. Fails with `Invalid` for other objects.
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
