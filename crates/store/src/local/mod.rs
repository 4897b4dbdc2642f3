//! Serves directories of this machine in place.
//!
//! Invariant: every system call with a name takes a single component, relative to the descriptor of
//! a directory that was proved to be beneath an export. No system call follows a symbolic link.

mod acting;
mod attribute;
mod check;
mod create;
mod extras;
mod file;
mod list;
mod mounts;
mod node;
mod ops;
mod own_directories;
mod remove;
mod seal;
mod search;
mod sys;
mod table;
mod user_xattrs;
mod virtual_tree;
mod xattr;

use std::borrow::Cow;
use std::ffi::OsString;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dafs_memory::kernel_handle::KernelHandle;
use dafs_types::{Credentials, FileHandle, ObjectType, QuickMap};
use rustix::fs::{Mode, OFlags};

use crate::change::Clocks;
use crate::error::{Result, StoreError};
use crate::file::FileKey;
use crate::terms::ExportTerms;
use attribute::AttributeFile;
use file::LocalFile;
use mounts::{Beneath, Medium, MountPoint, mount_points};
use node::Node;
use own_directories::OwnDirectories;
use seal::{Parts, Sealer};
use search::Searches;
use table::{Hints, NodeTable};
use virtual_tree::VirtualTree;

/// One exported directory and its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The name in the virtual root: any bytes except NUL. A name with slashes, such as `srv/home`,
    /// is a path in a tree of virtual directories. The name is part of the export's handles, so
    /// renaming an export makes its handles stale.
    pub name: OsString,
    /// The path of the directory.
    pub path: PathBuf,
    /// True if the store refuses changes to the export.
    pub read_only: bool,
    /// Selects the identities that are replaced by [`Export::anonymous`].
    pub squash: Squash,
    /// The identity that replaces the identities that `squash` selects.
    pub anonymous: Credentials,
    /// True if clients may enter file systems that are mounted beneath the export and that this
    /// host's kernel keeps on a disk or in memory. Pseudo file systems, and file systems that
    /// depend on another host or on a process, are never entered, because a call that hangs there
    /// would stop all clients.
    pub cross_mounts: bool,
}

impl Export {
    /// Creates an export in which every client acts with its own identity and may make changes.
    #[must_use]
    pub fn new(name: impl Into<OsString>, path: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            path: path.into(),
            read_only: false,
            squash: Squash::Nobody,
            anonymous: Credentials::nobody(),
            cross_mounts: false,
        }
    }
}

/// Selects the identities that the anonymous identity of an export replaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Squash {
    /// No identity is replaced.
    #[default]
    Nobody,
    /// User 0 is replaced by the anonymous user id, and group 0 by the anonymous group id.
    Root,
    /// All identities are replaced.
    All,
}

impl Squash {
    /// Returns the identity to use in the export: `who`, in which the parts to squash are replaced
    /// by those of `anonymous`.
    #[must_use]
    pub fn apply<'w>(
        self,
        who: &'w Credentials,
        anonymous: &'w Credentials,
    ) -> Cow<'w, Credentials> {
        let has_root_group = who.in_group(0);
        match self {
            Self::Nobody => Cow::Borrowed(who),
            Self::Root if !who.is_superuser() && has_root_group => {
                Cow::Owned(who.with_group_of(0, anonymous))
            }
            Self::Root if !who.is_superuser() => Cow::Borrowed(who),
            Self::Root | Self::All => Cow::Borrowed(anonymous),
        }
    }
}

/// The configuration of a [`LocalStore`].
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// The exports. The root of a single export is the root of the name space, unless its name has
    /// a slash. Several exports are listed by virtual directories.
    pub exports: Vec<Export>,
    /// True if virtual directories list a single export, too.
    pub lists_single_export: bool,
    /// The directory that contains the key for signing handles; the key file has mode 0600. Handles
    /// stay valid as long as this directory exists. If the directory is beneath an export, no
    /// client can enter it, or move a directory that contains it.
    pub state_directory: PathBuf,
    /// The maximum number of descriptors kept open for recently used handles. The store lowers it
    /// to a quarter of the process's descriptor limit.
    pub descriptor_count_max: usize,
    /// True if the store uses the kernel's file handles, provided that this process has the
    /// privilege. Tests set it to false.
    pub kernel_handles: bool,
    /// True if each change of a name is made durable before the reply, by an fsync of the
    /// directory.
    pub durable_names: bool,
    /// The maximum number of directory entries that one search reads. A search is needed if there
    /// are no kernel handles and an object's handle was issued before a restart.
    pub search_entry_count_max: usize,
}

impl LocalConfig {
    /// Creates a configuration with one export and defaults for all other fields.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, state_directory: impl Into<PathBuf>) -> Self {
        Self {
            exports: vec![Export::new("export", path)],
            lists_single_export: false,
            state_directory: state_directory.into(),
            descriptor_count_max: DESCRIPTOR_COUNT_MAX,
            kernel_handles: true,
            durable_names: false,
            search_entry_count_max: SEARCH_ENTRY_COUNT_MAX,
        }
    }
}

/// The reason why a [`LocalStore`] could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is contradictory; the text says why.
    #[error("{0}")]
    Config(String),
    /// A directory could not be opened.
    #[error("cannot serve {path}")]
    Export {
        /// The exported directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The key that signs handles could not be read or created.
    #[error("cannot read or create the key of file handles in {path}")]
    State {
        /// The state directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// A store that serves directories of this machine to clients with the same terms of access. See
/// the [module](self).
pub struct LocalStore {
    shared: Arc<Shared>,
    /// The terms for each export, in the order of the exports.
    terms: Vec<ExportTerms>,
}

/// The state that all views of a local store share; each view has its own terms of access.
pub struct Shared {
    exports: Vec<ExportRoot>,
    export_ids: Vec<u64>,
    sealer: Sealer,
    /// The server's own directories, which clients may neither enter nor move.
    own_directories: OwnDirectories,
    virtual_tree: VirtualTree,
    nodes: Mutex<NodeTable>,
    hints: Mutex<Hints>,
    searches: Searches,
    /// The open files by handle, one for each object.
    files: Mutex<OpenFiles<LocalFile>>,
    /// The open named attributes by handle.
    attribute_files: Mutex<OpenFiles<AttributeFile>>,
    /// The file systems mounted beneath the exports.
    beneath: Beneath,
    /// An open directory in each file system seen so far, which `open_by_handle_at` needs.
    mounts: Mutex<QuickMap<(usize, u64), Arc<OwnedFd>>>,
    next_key: AtomicU64,
    uses_kernel_handles: bool,
    /// The user id that the server runs as. If it is 0, the server can give new files to the users
    /// that create them.
    effective_uid: u32,
    effective_gid: u32,
    durable_names: bool,
    lists_single_export: bool,
    search_entry_count_max: usize,
    /// The time of the start, in nanoseconds. It serves as the change attribute of the virtual
    /// root, because the list of exports does not change after the start.
    started: u64,
}

struct ExportRoot {
    name: OsString,
    id: u64,
    /// The export's number in handles of older versions, which did not contain the server's node
    /// number.
    old_id: u64,
    root: Arc<Node>,
    /// True if the export's root is the root of a mounted file system, so that all its objects are
    /// beneath the export.
    is_whole: bool,
    /// True if this host's kernel serves the export's file system without another host or process.
    is_local: bool,
    /// True if clients may enter file systems mounted beneath the export.
    crosses: bool,
}

impl Deref for LocalStore {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl LocalStore {
    /// Creates a store: opens the exports, and reads the key from the state directory or creates
    /// it.
    ///
    /// # Errors
    /// A [`StartError`] that says what failed.
    pub fn new(config: &LocalConfig) -> std::result::Result<Self, StartError> {
        check_names(&config.exports)?;
        let sealer = Sealer::load(&config.state_directory)
            .map_err(|source| StartError::State { path: config.state_directory.clone(), source })?;
        let export_ids: Vec<u64> =
            config.exports.iter().map(|export| sealer.export_id(export.name.as_bytes())).collect();
        let shared = Shared {
            exports: Vec::new(),
            virtual_tree: VirtualTree::default(),
            export_ids,
            sealer,
            own_directories: OwnDirectories::of(&config.state_directory),
            nodes: Mutex::new(NodeTable::new(descriptor_bound(config.descriptor_count_max))),
            hints: Mutex::default(),
            searches: Searches::default(),
            files: Mutex::default(),
            attribute_files: Mutex::default(),
            beneath: Beneath::new(),
            mounts: Mutex::default(),
            next_key: AtomicU64::new(1),
            uses_kernel_handles: config.kernel_handles,
            effective_uid: rustix::process::geteuid().as_raw(),
            effective_gid: rustix::process::getegid().as_raw(),
            durable_names: config.durable_names,
            lists_single_export: config.lists_single_export,
            search_entry_count_max: config.search_entry_count_max,
            started: Clocks::read().exact,
        };
        let mut store = Self { shared: Arc::new(shared), terms: Vec::new() };
        for (index, export) in config.exports.iter().enumerate() {
            store
                .add_export(index, export)
                .map_err(|source| StartError::Export { path: export.path.clone(), source })?;
        }
        if let Some(shared) = Arc::get_mut(&mut store.shared) {
            shared.virtual_tree = VirtualTree::new(&shared.sealer, &shared.exports);
        }
        Ok(store)
    }

    fn add_export(&mut self, index: usize, export: &Export) -> std::io::Result<()> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path_fd = rustix::fs::open(&export.path, flags | OFlags::PATH, Mode::empty())?;
        let mount_fd = rustix::fs::openat(&path_fd, c".", flags, Mode::empty())?;
        let fault = |_| std::io::Error::other("cannot read its attributes");
        let status = sys::status(path_fd.as_fd()).map_err(fault)?;
        // Only an attempt shows whether kernel handles work: the file system must support them, and
        // this process must have the privilege.
        let works = KernelHandle::of(path_fd.as_fd())
            .and_then(|handle| handle.open(mount_fd.as_fd()))
            .is_ok();
        let root = Arc::new(self.make(path_fd, index, 0, &status));
        lock(&self.mounts).insert((index, 0), Arc::new(mount_fd));
        let (name, id) = (export.name.clone(), self.export_ids[index]);
        let old_id = self.sealer.old_export_id(name.as_bytes());
        let mounts = mount_points();
        let is_whole = is_mount_of_whole(&mounts, status.mount_id, root.fd());
        let mount = mounts.iter().find(|mount| mount.id == status.mount_id);
        let medium = mount.map_or(Medium::Foreign, |mount| mount.medium);
        check_medium(medium, &export.path)?;
        let (is_local, crosses) = (medium == Medium::Local, export.cross_mounts);
        let shared = Arc::get_mut(&mut self.shared).expect("nobody else has it yet");
        shared.uses_kernel_handles &= works;
        shared.exports.push(ExportRoot { name, id, old_id, root, is_whole, is_local, crosses });
        self.terms.push(ExportTerms {
            is_visible: true,
            read_only: export.read_only,
            squash: export.squash,
            anonymous: export.anonymous.clone(),
        });
        Ok(())
    }

    fn has_virtual_root(&self) -> bool {
        let has_path = |export: &ExportRoot| export.name.as_bytes().contains(&b'/');
        self.exports.len() > 1 || self.lists_single_export || has_path(&self.exports[0])
    }

    /// Returns the entry of an object in the table of open files, if it has one.
    fn open_file(&self, handle: &FileHandle) -> Option<Arc<LocalFile>> {
        lock(&self.files).get(handle)
    }

    /// Returns the open file of an object. If there is none, creates it with `make`.
    fn file_for(
        &self,
        handle: FileHandle,
        make: impl FnOnce(FileKey) -> LocalFile,
    ) -> Arc<LocalFile> {
        lock(&self.files).get_or_insert(handle, || make(self.new_key()))
    }

    fn new_key(&self) -> FileKey {
        FileKey(self.next_key.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the terms of a handle's export; `None` for a handle that this server did not issue.
    fn terms_of(&self, handle: &FileHandle) -> Option<&ExportTerms> {
        let id = export_word(handle);
        let place =
            self.exports.iter().position(|export| export.id == id || export.old_id == id)?;
        self.terms.get(place)
    }

    fn is_visible(&self, handle: &FileHandle) -> bool {
        self.terms_of(handle).is_none_or(|terms| terms.is_visible)
    }

    /// Returns the identity with which a caller uses the export of a handle. For a handle that this
    /// server did not issue, returns `who`; such a handle is refused later.
    fn entering<'w>(&'w self, who: &'w Credentials, handle: &FileHandle) -> Cow<'w, Credentials> {
        match self.terms_of(handle) {
            Some(terms) => terms.squash.apply(who, &terms.anonymous),
            None => Cow::Borrowed(who),
        }
    }

    /// Converts a handle of an older version, which does not contain the server's node number, to
    /// the current form. Returns `None` for other handles.
    fn renew(&self, handle: &FileHandle) -> Option<FileHandle> {
        if handle.birth_node() == 0 {
            return None;
        }
        let word = export_word(handle);
        let export = self.exports.iter().find(|export| export.old_id == word)?;
        if handle.file_id() == [0; 48] {
            let mut renewed = *handle;
            renewed.0[..8].copy_from_slice(&export.id.to_le_bytes());
            return Some(renewed);
        }
        let parts = self.sealer.open(handle)?;
        Some(self.sealer.seal(&Parts { export: export.id, ..parts }))
    }

    /// Returns an open directory of a file system. The directory is needed to open objects by
    /// kernel handle.
    fn mount_of(&self, export: usize, file_system: u64) -> Result<Arc<OwnedFd>> {
        let known = |store: &Self| lock(&store.mounts).get(&(export, file_system)).cloned();
        if let Some(mount) = known(self) {
            return Ok(mount);
        }
        // No directory is open yet, as after a restart: walk to the mount points beneath the
        // export.
        let root = &self.exports[export];
        if root.crosses {
            let root = sys::present_path(root.root.fd())?;
            for way in self.beneath.local_beneath(&root, &self.exports) {
                // The walk opens a directory of the mount. A failure does not concern other mounts.
                let _ = self.walk(export, &way);
            }
        }
        known(self).ok_or(StoreError::Stale)
    }

    /// Returns the number of the file system of a mount beneath an export, and keeps one of its
    /// directories open for later opens by kernel handle.
    fn file_system_of(
        &self,
        export: usize,
        object: BorrowedFd<'_>,
        status: &sys::Status,
    ) -> Result<u64> {
        if self.exports.get(export).is_some_and(|export| export.root.device == status.device) {
            return Ok(0);
        }
        let number = rustix::fs::fstatvfs(object)?.f_fsid.max(1);
        if status.attributes.kind == ObjectType::Directory {
            let mut mounts = lock(&self.mounts);
            if mounts.len() < MOUNT_COUNT_MAX
                && let std::collections::hash_map::Entry::Vacant(slot) =
                    mounts.entry((export, number))
                && let Ok(directory) = sys::open_directory(object)
            {
                slot.insert(Arc::new(directory));
            }
        }
        Ok(number)
    }
}

/// The open objects by handle. The entries of objects that were closed meanwhile are removed
/// whenever the table has doubled in size.
struct OpenFiles<T> {
    by_handle: QuickMap<FileHandle, Weak<T>>,
    count_at_look: usize,
}

impl<T> Default for OpenFiles<T> {
    fn default() -> Self {
        Self { by_handle: QuickMap::default(), count_at_look: FILE_TABLE_MIN }
    }
}

impl<T> OpenFiles<T> {
    fn get(&self, handle: &FileHandle) -> Option<Arc<T>> {
        self.by_handle.get(handle).and_then(Weak::upgrade)
    }

    fn get_or_insert(&mut self, handle: FileHandle, make: impl FnOnce() -> T) -> Arc<T> {
        if let Some(file) = self.get(&handle) {
            return file;
        }
        let file = Arc::new(make());
        self.by_handle.insert(handle, Arc::downgrade(&file));
        if self.by_handle.len() > self.count_at_look {
            self.by_handle.retain(|_, file| file.strong_count() > 0);
            self.count_at_look = FILE_TABLE_MIN.max(self.by_handle.len() * 2);
        }
        file
    }
}

/// Checks that the names of the exports are valid and distinct.
fn check_names(exports: &[Export]) -> std::result::Result<(), StartError> {
    if exports.is_empty() || exports.len() > EXPORT_COUNT_MAX {
        let text = format!(
            "{} exports are configured; 1 to {EXPORT_COUNT_MAX} are possible",
            exports.len()
        );
        return Err(StartError::Config(text));
    }
    for (index, export) in exports.iter().enumerate() {
        let name = &export.name;
        let parts = name.as_bytes().split(|byte| *byte == b'/');
        let what = if parts.clone().any(|part| crate::name::check(part).is_err())
            || parts.count() > DEPTH_MAX
        {
            "is neither a file name nor a path without a slash at its ends"
        } else if exports[..index].iter().any(|other| other.name == *name) {
            "is used twice"
        } else {
            continue;
        };
        let path = export.path.display();
        return Err(StartError::Config(format!(
            "{path}: the name {name:?} {what}; choose another one with NAME={path}"
        )));
    }
    Ok(())
}

/// Returns the maximum number of descriptors that handles may use. The remaining descriptors of the
/// process are for open files, connections and the program itself.
fn descriptor_bound(wanted: usize) -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let quarter = limit.map_or(usize::MAX, |limit| limit as usize / 4);
    wanted.min(quarter).max(DESCRIPTOR_COUNT_MIN)
}

/// Returns true if a directory is the root of a mounted file system, so that every object of that
/// file system is beneath the directory.
fn is_mount_of_whole(mounts: &[MountPoint], mount_id: u64, root: BorrowedFd<'_>) -> bool {
    let Ok(path) = sys::present_path(root) else { return false };
    mounts.iter().any(|mount| mount.id == mount_id && mount.root == b"/" && mount.point == path)
}

/// Returns the first 8 bytes of a handle, which identify the export and the server (by its node
/// number).
fn export_word(handle: &FileHandle) -> u64 {
    handle.0.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

/// Returns an error if a directory on a file system of this kind cannot be served.
fn check_medium(medium: Medium, path: &Path) -> std::io::Result<()> {
    match medium {
        Medium::Local => Ok(()),
        Medium::Pseudo => Err(std::io::Error::other(
            "it shows the kernel's state, not files; choose a directory on a disk or in memory",
        )),
        Medium::Foreign => {
            let path = path.display();
            tracing::warn!(
                %path,
                "this directory's file system depends on another host or a process; while that \
                 does not answer, no client is served"
            );
            Ok(())
        }
    }
}

/// Locks a table, even after a panic of another thread: the tables are still consistent, because
/// each change to them is a single call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The default of [`LocalConfig::descriptor_count_max`].
pub const DESCRIPTOR_COUNT_MAX: usize = 16_384;
/// The default of [`LocalConfig::search_entry_count_max`].
pub const SEARCH_ENTRY_COUNT_MAX: usize = 1_000_000;
/// The maximum number of components in the name of an export.
const DEPTH_MAX: usize = 64;
/// The maximum number of exports of a server.
const EXPORT_COUNT_MAX: usize = 256;
/// The maximum number of file systems mounted beneath exports that the store supports.
const MOUNT_COUNT_MAX: usize = 4096;
/// The minimum number of descriptors that handles may use, even if the process's limit is low.
const DESCRIPTOR_COUNT_MIN: usize = 64;
/// The number of open files up to which the table is not scanned for closed files.
const FILE_TABLE_MIN: usize = 64;
