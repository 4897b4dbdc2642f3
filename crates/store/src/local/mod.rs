//! Directories of this machine, served in place.
//!
//! Invariant: every system call that takes a name takes one component, relative to
//! a descriptor of an object that was proved to lie beneath an export, and follows
//! no symbolic link.

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
use seal::{Facet, Identity, Parts, Sealer};
use search::Searches;
use table::{Hints, NodeTable};

/// One exported directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name in the virtual root, any bytes but a slash and NUL, and part of its file-system
    /// handle: a renamed export makes its handles stale.
    pub name: OsString,
    /// Where it is.
    pub path: PathBuf,
    /// Whether changes are refused.
    pub read_only: bool,
    /// Who counts as [`Export::anonymous`] here.
    pub squash: Squash,
    /// Who they are then.
    pub anonymous: Credentials,
    /// Whether clients get into what is mounted beneath it, if this host's kernel keeps it on a
    /// disk or in memory. What shows the kernel, or another host or a process answers for, is
    /// never entered: it could make everybody wait.
    pub cross_mounts: bool,
}

impl Export {
    /// An export that may be changed, by everybody as whom they are.
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

/// Whose identity does not count in an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Squash {
    /// Everybody's counts.
    #[default]
    Nobody,
    /// That of user 0; and group 0 counts as the anonymous group.
    Root,
    /// Nobody's counts.
    All,
}

impl Squash {
    /// The identity that counts: `who`, or `anonymous`.
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

/// How a [`LocalStore`] works.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// What is served. One: its root is the root. Several: a virtual directory lists
    /// them.
    pub exports: Vec<Export>,
    /// Where the key that seals handles is kept (made with mode 0600). Handles stay
    /// valid as long as this directory does. Where it lies beneath an export no client gets into
    /// it, or moves a directory that it lies in.
    pub state_directory: PathBuf,
    /// Most descriptors kept open for handles in recent use; lowered to a quarter of
    /// what the process may open.
    pub descriptor_count_max: usize,
    /// Use the kernel's handles where privilege allows. Off in tests of the other way.
    pub kernel_handles: bool,
    /// Make each change of a name durable before answering (fsync of the directory).
    pub durable_names: bool,
    /// Most directory entries looked at in search of an object whose handle came from
    /// before a restart, without kernel handles.
    pub search_entry_count_max: usize,
}

impl LocalConfig {
    /// One export with everything else as usual.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, state_directory: impl Into<PathBuf>) -> Self {
        Self {
            exports: vec![Export::new("export", path)],
            state_directory: state_directory.into(),
            descriptor_count_max: DESCRIPTOR_COUNT_MAX,
            kernel_handles: true,
            durable_names: false,
            search_entry_count_max: SEARCH_ENTRY_COUNT_MAX,
        }
    }
}

/// Why a [`LocalStore`] could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration contradicts itself.
    #[error("{0}")]
    Config(String),
    /// A directory could not be opened.
    #[error("cannot serve {path}")]
    Export {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The key that seals handles could not be read or made.
    #[error("cannot keep the key of file handles in {path}")]
    State {
        /// The directory it was to be in.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Exported directories of this machine, on the terms of some of their clients. See the
/// [module](self).
pub struct LocalStore {
    shared: Arc<Shared>,
    /// On which terms each export is entered.
    terms: Vec<ExportTerms>,
}

/// What all terms have in common.
pub struct Shared {
    exports: Vec<ExportRoot>,
    export_ids: Vec<u64>,
    sealer: Sealer,
    /// What clients neither enter nor move.
    own_directories: OwnDirectories,
    virtual_root: FileHandle,
    nodes: Mutex<NodeTable>,
    hints: Mutex<Hints>,
    searches: Searches,
    /// Open files by handle: one object, one file.
    files: Mutex<OpenFiles<LocalFile>>,
    /// Open named attributes.
    attribute_files: Mutex<OpenFiles<AttributeFile>>,
    /// What is mounted beneath the exports.
    beneath: Beneath,
    /// A directory of each file system met, opened for `open_by_handle_at`.
    mounts: Mutex<QuickMap<(usize, u64), Arc<OwnedFd>>>,
    next_key: AtomicU64,
    uses_kernel_handles: bool,
    /// The server's own user; 0 can give files to their creators.
    effective_uid: u32,
    effective_gid: u32,
    durable_names: bool,
    search_entry_count_max: usize,
    /// When this was: what the virtual root lists never changes afterwards.
    started: u64,
}

struct ExportRoot {
    name: OsString,
    id: u64,
    /// What stood for it in handles before the node had room there.
    old_id: u64,
    root: Arc<Node>,
    /// Whether everything on the root's file system lies beneath it.
    is_whole: bool,
    /// Whether this host's kernel answers for its file system by itself.
    is_local: bool,
    /// Whether clients get into mounts beneath it.
    crosses: bool,
}

impl Deref for LocalStore {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl LocalStore {
    /// Opens the exports, and reads the key from the state directory or makes it.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn new(config: &LocalConfig) -> std::result::Result<Self, StartError> {
        check_names(&config.exports)?;
        let sealer = Sealer::load(&config.state_directory)
            .map_err(|source| StartError::State { path: config.state_directory.clone(), source })?;
        let export_ids: Vec<u64> =
            config.exports.iter().map(|export| sealer.export_id(export.name.as_bytes())).collect();
        let (identity, facet) = (Identity::VirtualRoot, Facet::Object);
        let virtual_root = Parts { export: 0, file_system: 0, identity, facet };
        let shared = Shared {
            exports: Vec::new(),
            virtual_root: sealer.seal(&virtual_root),
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
            search_entry_count_max: config.search_entry_count_max,
            started: Clocks::read().exact,
        };
        let mut store = Self { shared: Arc::new(shared), terms: Vec::new() };
        for (index, export) in config.exports.iter().enumerate() {
            store
                .add_export(index, export)
                .map_err(|source| StartError::Export { path: export.path.clone(), source })?;
        }
        Ok(store)
    }

    fn add_export(&mut self, index: usize, export: &Export) -> std::io::Result<()> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path_fd = rustix::fs::open(&export.path, flags | OFlags::PATH, Mode::empty())?;
        let mount_fd = rustix::fs::openat(&path_fd, c".", flags, Mode::empty())?;
        let fault = |_| std::io::Error::other("cannot read its attributes");
        let status = sys::status(path_fd.as_fd()).map_err(fault)?;
        // Whether handles work is known only by trying: the file system must have them
        // and this process the privilege.
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
        self.exports.len() > 1
    }

    /// The open file of an object, if there is one.
    fn open_file(&self, handle: &FileHandle) -> Option<Arc<LocalFile>> {
        lock(&self.files).get(handle)
    }

    /// The open file of an object; made by `make` if there is none.
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

    /// On which terms the export of a handle is entered; `None` for what is no handle of ours.
    fn terms_of(&self, handle: &FileHandle) -> Option<&ExportTerms> {
        let id = export_word(handle);
        let place =
            self.exports.iter().position(|export| export.id == id || export.old_id == id)?;
        self.terms.get(place)
    }

    fn is_visible(&self, handle: &FileHandle) -> bool {
        self.terms_of(handle).is_none_or(|terms| terms.is_visible)
    }

    /// As whom somebody enters the export of a handle. What is no handle of ours is refused
    /// later.
    fn entering<'w>(&'w self, who: &'w Credentials, handle: &FileHandle) -> Cow<'w, Credentials> {
        match self.terms_of(handle) {
            Some(terms) => terms.squash.apply(who, &terms.anonymous),
            None => Cow::Borrowed(who),
        }
    }

    /// The handle of now, of one that was made before the node had room in it.
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

    /// A directory on a file system, for opening by handle.
    fn mount_of(&self, export: usize, file_system: u64) -> Result<Arc<OwnedFd>> {
        let known = |store: &Self| lock(&store.mounts).get(&(export, file_system)).cloned();
        if let Some(mount) = known(self) {
            return Ok(mount);
        }
        // After a restart: the mount points beneath the export, most of them met before.
        let root = &self.exports[export];
        if root.crosses {
            let root = sys::present_path(root.root.fd())?;
            for way in self.beneath.local_beneath(&root, &self.exports) {
                // To get there is to know it; and not to is no fault of the others'.
                let _ = self.walk(export, &way);
            }
        }
        known(self).ok_or(StoreError::Stale)
    }

    /// The number of a file system mounted beneath an export, which is remembered.
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

/// What is open, by handle. Dead entries go when it has doubled.
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

/// Names in the virtual root must be names.
fn check_names(exports: &[Export]) -> std::result::Result<(), StartError> {
    if exports.is_empty() || exports.len() > EXPORT_COUNT_MAX {
        let text = format!("{} exports; 1 to {EXPORT_COUNT_MAX} are possible", exports.len());
        return Err(StartError::Config(text));
    }
    for (index, export) in exports.iter().enumerate() {
        let name = &export.name;
        let what = if crate::name::check(name.as_bytes()).is_err() {
            "is no file name"
        } else if exports[..index].iter().any(|other| other.name == *name) {
            "is used twice"
        } else {
            continue;
        };
        let path = export.path.display();
        return Err(StartError::Config(format!(
            "{path}: the name {name:?} {what}; choose one by NAME={path}"
        )));
    }
    Ok(())
}

/// The rest of the descriptors is for open files, connections and the program itself.
fn descriptor_bound(wanted: usize) -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let quarter = limit.map_or(usize::MAX, |limit| limit as usize / 4);
    wanted.min(quarter).max(DESCRIPTOR_COUNT_MIN)
}

/// Whether a directory is where a file system is mounted with its own root: then every
/// object on it lies beneath.
fn is_mount_of_whole(mounts: &[MountPoint], mount_id: u64, root: BorrowedFd<'_>) -> bool {
    let Ok(path) = sys::present_path(root) else { return false };
    mounts.iter().any(|mount| mount.id == mount_id && mount.root == b"/" && mount.point == path)
}

/// What stands for the export in a handle, and for the node.
fn export_word(handle: &FileHandle) -> u64 {
    handle.0.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

/// Whether a directory on this medium can be served.
fn check_medium(medium: Medium, path: &Path) -> std::io::Result<()> {
    match medium {
        Medium::Local => Ok(()),
        Medium::Pseudo => Err(std::io::Error::other(
            "it shows the kernel, not files; choose a directory on a disk or in memory",
        )),
        Medium::Foreign => {
            let path = path.display();
            tracing::warn!(
                %path,
                "another host or a process answers for this directory's file system: while it does \
                 not, nobody is served"
            );
            Ok(())
        }
    }
}

/// A panic elsewhere leaves these tables whole: each change to them is one call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Usual value of [`LocalConfig::descriptor_count_max`].
pub const DESCRIPTOR_COUNT_MAX: usize = 16_384;
/// Usual value of [`LocalConfig::search_entry_count_max`].
pub const SEARCH_ENTRY_COUNT_MAX: usize = 1_000_000;
/// Most exports.
const EXPORT_COUNT_MAX: usize = 256;
/// Most file systems beneath the exports.
const MOUNT_COUNT_MAX: usize = 4096;
/// Descriptors for handles even where few are allowed.
const DESCRIPTOR_COUNT_MIN: usize = 64;
/// Open files before the first look for dead entries.
const FILE_TABLE_MIN: usize = 64;
