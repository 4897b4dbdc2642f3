//! The name-space plane: handles, names and attributes.
//!
//! Invariant: every call checks the asker's permission itself, and an answer never
//! leads outside what is exported.

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

/// An object: its handle and its attributes at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Names it for as long as it exists.
    pub handle: FileHandle,
    /// Its attributes.
    pub attributes: Attributes,
}

/// Which of the attributes are wanted that cost a store calls of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtrasWanted {
    /// Whether it has named attributes.
    pub named_attributes: bool,
    /// Its access control list.
    pub acl: bool,
    /// Its MIME type.
    pub mime_type: bool,
}

impl ExtrasWanted {
    /// Whether any is.
    #[must_use]
    pub fn is_any(self) -> bool {
        self.named_attributes || self.acl || self.mime_type
    }
}

/// Attributes that cost calls of their own; `None` for one not wanted or not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// Whether it has named attributes.
    pub named_attributes: Option<bool>,
    /// Its access control list; `docs/spec/acl.md`.
    pub acl: Option<Vec<Ace>>,
    /// Its MIME type, told to whoever may read it.
    pub mime_type: Option<String>,
}

/// Such attributes to be set; `None` leaves one as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraChanges {
    /// A whole list.
    pub acl: Option<Vec<Ace>>,
    /// A MIME type; an empty one takes it away.
    pub mime_type: Option<String>,
}

impl ExtraChanges {
    /// Whether nothing is to be set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How far a lookup of several components got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathLookup {
    /// The last object found; the directory of departure if `component_count` is 0.
    pub handle: FileHandle,
    /// Components resolved.
    pub component_count: usize,
    /// Attributes of the last object found; `None` if no component was resolved.
    pub attributes: Option<Attributes>,
    /// Why the next component was not; `None` when all were. A symbolic link in the
    /// middle of the path gives `IsSymlink` with the link as the last object.
    pub error: Option<StoreError>,
}

impl PathLookup {
    /// One that has not begun.
    #[must_use]
    pub fn starting_at(directory: FileHandle) -> Self {
        Self { handle: directory, component_count: 0, attributes: None, error: None }
    }

    /// Takes what looking the next component up has come to. Whether to go on.
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

/// What a creation did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created {
    /// The object, new or found.
    pub object: Object,
    /// Whether it is new.
    pub is_new: bool,
    /// The directory before and after; nothing is said if nothing was to be made.
    pub change: ChangeInfo,
}

/// What a removal did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The object whose name is gone.
    pub handle: FileHandle,
    /// Whether that was its last name: its blocks in a cache serve nobody then but
    /// those who have it open.
    pub was_last: bool,
    /// Bytes on the medium that the system frees when the last descriptor is closed
    /// ([`Store::close_removed`]), if that was the last name.
    pub held: u64,
    /// The directory before and after.
    pub change: ChangeInfo,
}

/// What a rename did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// The directory left.
    pub source: ChangeInfo,
    /// The directory entered.
    pub target: ChangeInfo,
    /// The object that had the new name before and lost its last name by this.
    pub replaced: Option<FileHandle>,
}

/// An object that is not a regular file, to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewNode<'a> {
    /// A directory.
    Directory,
    /// A symbolic link with this text.
    SymbolicLink(&'a [u8]),
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
    /// A block device; superuser only.
    BlockDevice(DeviceNumber),
    /// A character device; superuser only.
    CharacterDevice(DeviceNumber),
}

/// Which part of a directory is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListRequest {
    /// Entries after this cookie; 0 starts.
    pub cookie: ReaddirCookie,
    /// The verifier that came with the cookie; ignored with cookie 0.
    pub verifier: CookieVerifier,
    /// Most entries in the page; a store may give fewer, never more.
    pub entry_count_max: usize,
    /// Most bytes of names in the page.
    pub name_bytes_max: usize,
    /// Whether handles and attributes are wanted: each costs system calls.
    pub want_objects: bool,
}

impl ListRequest {
    /// The page that a directory answers with whose entries stand in the order of their cookies:
    /// each is its cookie, name and number, and `entries` gives those behind a cookie. For stores
    /// that keep directories in memory.
    ///
    /// # Errors
    /// `BadCookie` for a cookie that is not of this directory, `TooSmall` if not even one entry
    /// fits.
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

/// First cookie that the protocol leaves to a store.
pub const FIRST_COOKIE: u64 = 3;

/// One directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEntry {
    /// Where to go on after it. Never 0, 1 or 2.
    pub cookie: ReaddirCookie,
    /// Its name.
    pub name: Vec<u8>,
    /// Its number, as in [`Attributes::file_id`].
    pub file_id: u64,
    /// The object; `None` if not wanted, or gone since it was listed, or unreadable.
    pub object: Option<Object>,
}

/// Part of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPage {
    /// The entries, without `.` and `..`.
    pub entries: Vec<ListEntry>,
    /// Goes with every cookie of this page.
    pub verifier: CookieVerifier,
    /// Whether nothing follows.
    pub is_end: bool,
}

/// A tree of objects. All calls may block.
///
/// Errors common to all calls: `BadHandle` for a handle never issued, `Stale` for an
/// object that is gone or left the export, `Access` and `NotPermitted` for what the
/// asker may not, `Io`, `Resource`. Names are refused as [`crate::name::check`] says.
pub trait Store: Send + Sync {
    /// The same store on other terms, for some of its clients; they are in the order of
    /// [`Store::export_names`]. Handles, open files and what they hold are common to all.
    /// `None` for a store that is a single export and knows no terms.
    fn on_terms(&self, _terms: &[ExportTerms]) -> Option<Arc<dyn Store>> {
        None
    }

    /// The names of its exports, for who sets terms.
    fn export_names(&self) -> Vec<OsString> {
        vec!["export".into()]
    }

    /// Whether a handle is not of an export that these terms hide.
    fn shows(&self, _handle: &FileHandle) -> bool {
        true
    }

    /// Whether a process of this host with these credentials gains nothing but speed by a
    /// descriptor for reading of a file: it may read the file, and may do here whatever else such
    /// a descriptor opens to it, as its owner or by the file's mode.
    ///
    /// # Errors
    /// As [`Store::access`].
    fn may_have(&self, _who: &Credentials, _handle: &FileHandle) -> Result<bool> {
        Ok(false)
    }

    /// The handle that this store gives an object now, of one that an earlier version of it gave;
    /// `None` if that is what it is, or none of ours. Both lead to the object; whoever compares
    /// handles, or keeps what belongs to one, goes by the present one. Of a handle that names a
    /// file system alone (zeros behind its 16 bytes), that of the file system.
    fn renewed(&self, _handle: &FileHandle) -> Option<FileHandle> {
        None
    }

    /// From now on no call looks through directories for the object of a handle: it fails with
    /// `Busy` where it had to, and [`Store::search`] is called elsewhere. False if no call ever
    /// has to.
    fn defer_searches(&self) -> bool {
        false
    }

    /// Whether calls with this handle fail until it has been searched for.
    fn must_search(&self, _handle: &FileHandle) -> bool {
        false
    }

    /// Looks for the objects of these handles, all at once. Blocks for as long as it takes to read
    /// every directory there is. Calls with these handles need no search then, for a time:
    /// either their objects are found, or they are `Stale`, or they are `Unseen` because not
    /// everything could be looked through.
    fn search(&self, _handles: &[FileHandle]) {}

    /// Closes what removals have left open, so that nobody waited for it: the system frees what an
    /// object held with its last descriptor. To be called when the answers are out.
    fn close_removed(&self) {}

    /// Lets go of objects that processes beside the server have removed, whose space would not be
    /// free before; their handles. To be called now and then, with the time since the last call;
    /// in some seconds of it every object is looked at. What they held is free after the next
    /// [`Store::close_removed`].
    fn let_go_of_removed(&self, _elapsed: Duration) -> Vec<FileHandle> {
        Vec::new()
    }

    /// The root of everything.
    fn root(&self, who: &Credentials) -> Result<Object>;

    /// The object with this name. A symbolic link is not followed.
    fn lookup(&self, who: &Credentials, directory: &FileHandle, name: &[u8]) -> Result<Object>;

    /// Looks several components up and tells how far it got.
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

    /// The directory a directory is in; `NotFound` at the root.
    fn lookup_parent(&self, who: &Credentials, directory: &FileHandle) -> Result<Object>;

    /// Present attributes. Needs no permission.
    fn attributes(&self, who: &Credentials, handle: &FileHandle) -> Result<Attributes>;

    /// Sets attributes and returns all of them as they were before and as they are after. All
    /// permissions are checked before the first change. A change of size goes through
    /// [`crate::cache::Cache`] first where a cache holds the file.
    fn set_attributes(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        changes: &AttributeChanges,
    ) -> Result<Altered>;

    /// Attributes that cost calls of their own. Needs no permission, but that a MIME type
    /// is `None` to whoever may not read the object.
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

    /// Sets such attributes: the list for the owner, the MIME type for whoever may write.
    /// `NotSupported` where they cannot be kept, or for a list that cannot be kept as it is
    /// meant; `Invalid` for one without a meaning.
    fn set_extras(
        &self,
        _who: &Credentials,
        _handle: &FileHandle,
        changes: &ExtraChanges,
    ) -> Result<()> {
        if changes.is_empty() { Ok(()) } else { Err(StoreError::NotSupported) }
    }

    /// The directory of an object's named attributes. In it, [`Store::lookup`],
    /// [`Store::create_file`], [`Store::remove`], [`Store::rename`] and [`Store::readdir`]
    /// work; an attribute is opened as a file is. Permission is that of the object: who may
    /// read it may read them, who may write it may change them. `NotSupported` for what has
    /// none: attributes themselves, objects other than files and directories, file systems
    /// without extended attributes.
    fn open_attributes(&self, _who: &Credentials, _handle: &FileHandle) -> Result<Object> {
        Err(StoreError::NotSupported)
    }

    /// Attributes of the file system an object is in.
    fn fs_attributes(&self, who: &Credentials, handle: &FileHandle)
    -> Result<FileSystemAttributes>;

    /// Which of the wanted rights the asker has.
    fn access(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        wanted: AccessMask,
    ) -> Result<AccessMask>;

    /// Opens a regular file. `IsDirectory`, `IsSymlink` and `BadType` for other things.
    fn open(
        &self,
        who: &Credentials,
        handle: &FileHandle,
        access: ShareAccess,
    ) -> Result<Arc<dyn File>>;

    /// The same, and tells the version the file had then.
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

    /// Opens a regular file by its entry, as [`Store::create_file`] in mode `NoCreate` does, and
    /// tells the version it had then.
    fn open_entry(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
        access: ShareAccess,
    ) -> Result<(Arc<dyn File>, FileVersion)> {
        open_by_creating(self, who, directory, name, access)
    }

    /// Finds or makes a regular file, as `mode` says, and opens it. Without a mode in
    /// `changes` a new file gets 0600, and is open whatever its mode says: POSIX lets the
    /// creator of a read-only file write it through that open. One found is opened as by
    /// [`Store::open`]. `changes` applies to a new file; to one found (`Unchecked`) only
    /// `size` does, if it is 0 and the asker may write.
    fn create_file(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
        mode: CreateMode,
        changes: &AttributeChanges,
        access: ShareAccess,
    ) -> Result<(Created, Arc<dyn File>)>;

    /// Makes a regular file without a name, in the file system of `directory`. It lives
    /// while the returned [`File`] does, or until [`Store::link`] names it.
    /// `NotSupported` where the file system cannot.
    fn create_unlinked(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        changes: &AttributeChanges,
    ) -> Result<(Object, Arc<dyn File>)>;

    /// Makes something other than a regular file. Without a mode: 0700 for a
    /// directory, 0600 otherwise.
    fn create_node(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
        node: NewNode<'_>,
        changes: &AttributeChanges,
    ) -> Result<Created>;

    /// Gives an object that is not a directory another name, or a first one.
    fn link(
        &self,
        who: &Credentials,
        source: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> Result<ChangeInfo>;

    /// Removes a name: of any object but a directory, or of an empty directory.
    fn remove(&self, who: &Credentials, directory: &FileHandle, name: &[u8]) -> Result<Removed>;

    /// The same if `may` agrees to the object that has the name; `None` if it does not. A store
    /// that can look once for both does so.
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

    /// Renames, replacing what has the new name if it is of the same sort (and empty).
    fn rename(
        &self,
        who: &Credentials,
        source: &FileHandle,
        old_name: &[u8],
        target: &FileHandle,
        new_name: &[u8],
    ) -> Result<Renamed>;

    /// Lists part of a directory. Cookies stay valid while entries come and go.
    /// `TooSmall` if the budget does not hold one entry, `BadCookie` for a cookie of
    /// another directory.
    fn readdir(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        request: &ListRequest,
    ) -> Result<ListPage>;

    /// Brings an object's own metadata to stable storage; of a directory, its entries.
    /// Needs no permission: it changes nothing that anybody can see.
    fn sync(&self, handle: &FileHandle) -> Result<()>;

    /// The text of a symbolic link; `Invalid` for anything else.
    fn readlink(&self, who: &Credentials, handle: &FileHandle) -> Result<Vec<u8>>;
}

/// What [`Store::open_entry`] is short for.
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
