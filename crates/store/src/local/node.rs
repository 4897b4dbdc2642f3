//! Converts handles to descriptors, and descriptors to handles.
//!
//! Invariant: when a [`Node`] is created, its object was proved to be beneath the export. If that
//! proof is older than [`PROOF_AGE`], it is repeated before the node is used.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use dafs_memory::kernel_handle::KernelHandle;
use dafs_types::limits::NAME_BYTES_MAX;
use dafs_types::{FileHandle, ObjectType, Timestamp};
use rustix::io::Errno;

use super::mounts::Medium;
use super::seal::{Facet, Identity, Parts};
use super::sys::{self, Look, Place, Status};
use super::{LocalStore, lock};
use crate::error::{Result, StoreError};

/// An object with an open `O_PATH` descriptor.
pub(super) struct Node {
    fd: OwnedFd,
    pub handle: FileHandle,
    /// The index of the object's export.
    pub export: usize,
    /// The number of the object's file system beneath the export; 0 for the file system of the
    /// export's root.
    pub file_system: u64,
    pub device: (u32, u32),
    pub kind: ObjectType,
    pub inode: Inode,
    mount_id: u64,
    /// The time of the most recent proof that the object is beneath its export, by [`sys::millis`].
    proved_at: AtomicU64,
    /// An upper limit of the length in bytes of the object's path, from the export's root.
    reach: AtomicU32,
}

impl Inode {
    fn of(export: usize, file_system: u64, place: &Place) -> Self {
        let Place { number, birth, .. } = *place;
        Self { export, file_system, number, birth }
    }
}

impl Node {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Records an upper limit of the length in bytes of the object's path, from the export's root.
    pub(super) fn note_reach(&self, reach: usize) {
        self.reach.store(u32::try_from(reach).unwrap_or(u32::MAX), Ordering::Relaxed);
    }
}

/// Identifies an object among all objects that exist at the same time: its inode number, its file
/// system, and its export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Inode {
    export: usize,
    file_system: u64,
    number: u64,
    /// The time of the object's creation. It distinguishes objects on file systems that reuse an
    /// inode number while a descriptor of the removed object is open.
    birth: Option<Timestamp>,
}

/// The object that a handle names.
pub(super) enum Target {
    /// A virtual directory, by its index in the tree.
    Virtual(usize),
    Node(Arc<Node>),
    /// The directory of the named attributes of this object.
    Attributes(Arc<Node>),
    /// A named attribute of this object. The integer is the hash of the attribute's name.
    Attribute(Arc<Node>, u64),
}

impl LocalStore {
    /// Returns the object that a handle names.
    pub(super) fn resolve(&self, handle: &FileHandle) -> Result<Target> {
        let renewed = self.renew(handle);
        let handle = renewed.as_ref().unwrap_or(handle);
        if let Some(node) = self.resolve_known(handle, sys::millis())? {
            return Ok(Target::Node(node));
        }
        let parts = self.sealer.open(handle).ok_or(StoreError::BadHandle)?;
        if let Identity::Virtual(_) = parts.identity {
            let found = self.virtual_tree.with_handle(handle).filter(|_| self.has_virtual_root());
            return found.map(Target::Virtual).ok_or(StoreError::Stale);
        }
        if parts.facet != Facet::Object {
            let object = self.sealer.seal(&Parts { facet: Facet::Object, ..parts });
            let Target::Node(node) = self.resolve(&object)? else { return Err(StoreError::Stale) };
            return Ok(match parts.facet {
                Facet::Attribute(number) => Target::Attribute(node, number),
                Facet::AttributeDirectory | Facet::Object => Target::Attributes(node),
            });
        }
        if let Some(file) = self.open_file(handle) {
            return Ok(Target::Node(file.node.clone()));
        }
        let export = self
            .exports
            .iter()
            .position(|export| export.id == parts.export)
            .ok_or(StoreError::Stale)?;
        let root = &self.exports[export].root;
        if root.handle == *handle {
            lock(&self.nodes).insert(root.clone());
            return Ok(Target::Node(root.clone()));
        }
        if self.searches.absent().is_removed(handle) {
            return Err(StoreError::Stale);
        }
        let node = match parts.identity {
            Identity::Kernel(kernel) => self.open_kernel(export, &parts, &kernel, handle)?,
            Identity::Inode { .. } => self.find(export, handle)?,
            Identity::Virtual(_) => return Err(StoreError::Stale),
        };
        lock(&self.nodes).insert(node.clone());
        Ok(Target::Node(node))
    }

    /// Returns the object of a handle if a descriptor of the object is already open, which is the
    /// usual case, else `None`. `now` is a recent result of [`sys::millis`].
    #[inline]
    pub(super) fn resolve_known(&self, handle: &FileHandle, now: u64) -> Result<Option<Arc<Node>>> {
        if !self.is_visible(handle) {
            return Err(StoreError::Access);
        }
        // This is a separate statement, so that the table is unlocked before the proof, which locks
        // the table too.
        let known = lock(&self.nodes).get(handle);
        let Some(node) = known else { return Ok(None) };
        self.prove_again(&node, now)?;
        Ok(Some(node))
    }

    /// Returns the object that a handle names. Fails if the handle names the virtual root.
    pub(super) fn resolve_node(&self, handle: &FileHandle) -> Result<Arc<Node>> {
        match self.resolve(handle)? {
            Target::Node(node) => Ok(node),
            Target::Virtual(_) => Err(StoreError::ReadOnly),
            Target::Attributes(_) | Target::Attribute(..) => Err(StoreError::NotSupported),
        }
    }

    /// Returns the status of an object. Fails with `Stale` if it has neither a name nor an open.
    pub(super) fn live_status(&self, node: &Node) -> Result<Status> {
        let status = sys::status(node.fd())?;
        self.check_alive(node, status.attributes.link_count)?;
        Ok(status)
    }

    /// Checks an object like `live_status`, but returns only the status fields that an open needs.
    pub(super) fn live_look(&self, node: &Node) -> Result<Look> {
        let look = sys::look(node.fd())?;
        self.check_alive(node, look.link_count)?;
        Ok(look)
    }

    fn check_alive(&self, node: &Node, link_count: u32) -> Result<()> {
        if link_count == 0 && self.open_file(&node.handle).is_none() {
            lock(&self.nodes).remove(&node.handle);
            return Err(StoreError::Stale);
        }
        Ok(())
    }

    /// Releases nodes of objects that local processes have removed, because an open descriptor
    /// keeps the storage of a removed object in use. Returns the handles of these objects. Closing
    /// a descriptor can take as long as a removal, so [`Store::close_removed`] closes the
    /// descriptors later.
    ///
    /// [`Store::close_removed`]: crate::store::Store::close_removed
    pub(super) fn release_removed_nodes(&self, elapsed: Duration) -> Vec<FileHandle> {
        let mut looked_at = lock(&self.nodes).next_part(elapsed);
        looked_at.retain(|node| matches!(self.live_look(node), Err(StoreError::Stale)));
        let handles = looked_at.iter().map(|node| node.handle).collect();
        let mut nodes = lock(&self.nodes);
        looked_at.into_iter().for_each(|node| nodes.retire(node));
        handles
    }

    /// Opens an entry of a directory.
    pub(super) fn child(&self, directory: &Node, name: &[u8]) -> Result<(Arc<Node>, Status)> {
        Ok(self.known_or_new(directory, name)?.0)
    }

    /// Opens an entry of a directory. The flag is true if a descriptor of the entry's object was
    /// already open.
    fn known_or_new(&self, directory: &Node, name: &[u8]) -> Result<((Arc<Node>, Status), bool)> {
        let now = sys::millis();
        if !self.beneath.may_be_at(name, &self.exports, now) {
            let is_local = self.exports[directory.export].is_local;
            match sys::entry_status(directory.fd(), name, is_local) {
                Ok(status) => {
                    if let Some(known) = self.known_child(directory, &status.place(), now) {
                        return Ok(((known, status), true));
                    }
                }
                // Opening the entry would give the same error.
                Err(StoreError::NotFound) => return Err(StoreError::NotFound),
                Err(_) => {}
            }
        }
        self.child_anew_told(directory, name)
    }

    /// Opens an entry of a directory, without looking for a descriptor that is already open.
    pub(super) fn child_anew(&self, directory: &Node, name: &[u8]) -> Result<(Arc<Node>, Status)> {
        Ok(self.child_anew_told(directory, name)?.0)
    }

    /// Opens an entry like `child_anew`. The flag is true if a descriptor of the entry's object was
    /// already open.
    fn child_anew_told(
        &self,
        directory: &Node,
        name: &[u8],
    ) -> Result<((Arc<Node>, Status), bool)> {
        let fd = match sys::open_component(directory.fd(), name) {
            Err(StoreError::CrossDevice) => self.open_mount(directory, name)?,
            opened => opened?,
        };
        let status = sys::status(fd.as_fd())?;
        let (node, is_known) = self.adopt_told(fd, directory, &status)?;
        self.remember(&node, directory, name);
        Ok(((node, status), is_known))
    }

    /// Opens an entry of a directory that is being listed. Usually descriptors of all entries are
    /// already open, or of none. So after one entry without a descriptor, further entries are
    /// opened without looking for their descriptors.
    pub(super) fn listed_child(
        &self,
        directory: &Node,
        name: &[u8],
        are_known: &mut bool,
    ) -> Result<(Arc<Node>, Status)> {
        let (found, is_known) = match *are_known {
            true => self.known_or_new(directory, name)?,
            false => self.child_anew_told(directory, name)?,
        };
        *are_known = is_known;
        Ok(found)
    }

    /// Queries an entry of a directory. Returns `None` if a file system may be mounted there. `now`
    /// is as for [`Beneath::may_be_at`].
    ///
    /// [`Beneath::may_be_at`]: super::mounts::Beneath::may_be_at
    #[inline]
    pub(super) fn entry_look(&self, directory: &Node, name: &[u8], now: u64) -> Option<Look> {
        if self.beneath.may_be_at(name, &self.exports, now) {
            return None;
        }
        sys::entry_look(directory.fd(), name, self.exports[directory.export].is_local).ok()
    }

    /// Opens the root of the file system mounted at an entry, if the export lets clients enter it.
    fn open_mount(&self, directory: &Node, name: &[u8]) -> Result<OwnedFd> {
        let mut path = sys::present_path(directory.fd())?;
        if path != b"/" {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let found = self.beneath.at(&path, &self.exports);
        let crosses = self.exports[directory.export].crosses;
        match found {
            Some((mount, Medium::Local)) if crosses => sys::open_mount(directory.fd(), name, mount),
            Some((mount, medium)) if self.beneath.is_news(mount) => {
                let path = String::from_utf8_lossy(&path).escape_debug().to_string();
                let why = match medium {
                    Medium::Local => "the export does not have cross-mounts",
                    Medium::Pseudo => "it shows the kernel's state, not files",
                    Medium::Foreign => "it depends on another host or a process",
                };
                tracing::warn!(path, why, "clients cannot enter this mount");
                Err(StoreError::CrossDevice)
            }
            Some(_) | None => Err(StoreError::CrossDevice),
        }
    }

    /// Returns the object at a path, which starts at an export's root and follows no symbolic link.
    pub(super) fn walk(&self, export: usize, path: &[u8]) -> Result<Arc<Node>> {
        let mut at = self.exports[export].root.clone();
        for name in path.split(|byte| *byte == b'/') {
            at = self.child(&at, name)?.0;
        }
        Ok(at)
    }

    /// Returns the node of an entry if a descriptor of the object is open. This takes one system
    /// call instead of four. While a descriptor of an inode is open, no other object gets the same
    /// inode number. On file systems that reuse numbers nevertheless, the creation time
    /// distinguishes the objects; without creation times, returns `None`. `now` is a result of
    /// [`sys::millis`] from before the query that found the entry's object.
    pub(super) fn known_child(
        &self,
        directory: &Node,
        place: &Place,
        now: u64,
    ) -> Option<Arc<Node>> {
        if place.device != directory.device {
            return None;
        }
        place.birth?;
        let inode = Inode::of(directory.export, directory.file_system, place);
        let node = lock(&self.nodes).of_inode(&inode)?;
        if node.mount_id != place.mount_id {
            return None;
        }
        // The object was reached by name after `now`, which proves that it is beneath the export.
        node.proved_at.store(now, Ordering::Relaxed);
        Some(node)
    }

    /// Remembers the directory and name where an object was seen. Needed only if the kernel has no
    /// handle for the object, or may not be able to report the object's path.
    pub(super) fn remember(&self, node: &Node, directory: &Node, name: &[u8]) {
        let is_far = directory.reach.load(Ordering::Relaxed) > REACH_MAX && !self.lies_in(node);
        let has_no_handle = || {
            let identity = self.sealer.open(&node.handle).map(|parts| parts.identity);
            matches!(identity, Some(Identity::Inode { .. }))
        };
        if is_far || has_no_handle() {
            lock(&self.hints).insert(node.handle, directory.handle, name);
        }
    }

    /// Creates the node of a descriptor that was opened relative to the object of `near`.
    pub(super) fn adopt(&self, fd: OwnedFd, near: &Node) -> Result<(Arc<Node>, Status)> {
        let status = sys::status(fd.as_fd())?;
        self.adopt_as(fd, near, status)
    }

    /// Creates a node like `adopt`, for an object whose status was just read.
    pub(super) fn adopt_as(
        &self,
        fd: OwnedFd,
        near: &Node,
        status: Status,
    ) -> Result<(Arc<Node>, Status)> {
        Ok((self.adopt_told(fd, near, &status)?.0, status))
    }

    /// Creates a node like `adopt_as`. The flag is true if the object already had a node.
    fn adopt_told(&self, fd: OwnedFd, near: &Node, status: &Status) -> Result<(Arc<Node>, bool)> {
        if self.own_directories.is_private(status.device, status.attributes.file_id) {
            return Err(StoreError::Access);
        }
        let file_system = if status.device == near.device {
            near.file_system
        } else {
            self.file_system_of(near.export, fd.as_fd(), status)?
        };
        let node = Arc::new(self.make(fd, near.export, file_system, status));
        node.note_reach(near.reach.load(Ordering::Relaxed) as usize + NAME_BYTES_MAX + 1);
        let mut nodes = lock(&self.nodes);
        if let Some(known) = nodes.get(&node.handle) {
            // The object was reached by name just now, which proves that it is beneath the export.
            known.proved_at.store(sys::millis(), Ordering::Relaxed);
            return Ok((known, true));
        }
        nodes.insert(node.clone());
        drop(nodes);
        self.searches.absent().note_present(&node.handle);
        Ok((node, false))
    }

    pub(super) fn make(
        &self,
        fd: OwnedFd,
        export: usize,
        file_system: u64,
        status: &Status,
    ) -> Node {
        let identity = self.identity_of(fd.as_fd(), status);
        let facet = Facet::Object;
        let parts = Parts { export: self.export_ids[export], file_system, identity, facet };
        self.node(fd, self.sealer.seal(&parts), export, file_system, status)
    }

    fn node(
        &self,
        fd: OwnedFd,
        handle: FileHandle,
        export: usize,
        file_system: u64,
        status: &Status,
    ) -> Node {
        Node {
            fd,
            handle,
            export,
            file_system,
            device: status.device,
            kind: status.attributes.kind,
            inode: Inode::of(export, file_system, &status.place()),
            mount_id: status.mount_id,
            proved_at: AtomicU64::new(sys::millis()),
            reach: AtomicU32::new(0),
        }
    }

    fn identity_of(&self, fd: BorrowedFd<'_>, status: &Status) -> Identity {
        if self.uses_kernel_handles
            && let Ok(handle) = KernelHandle::of(fd)
        {
            return Identity::Kernel(handle);
        }
        Identity::Inode {
            number: status.attributes.file_id,
            birth: status.attributes.time_create.unwrap_or_default(),
        }
    }

    fn open_kernel(
        &self,
        export: usize,
        parts: &Parts,
        kernel: &KernelHandle,
        handle: &FileHandle,
    ) -> Result<Arc<Node>> {
        let mount = self.mount_of(export, parts.file_system)?;
        let fd = open_settled(kernel, mount.as_fd())?;
        let status = sys::status(fd.as_fd())?;
        // The seal proves that this server issued the handle, and the kernel's part of the handle
        // proves that it belongs to this object.
        let node = Arc::new(self.node(fd, *handle, export, parts.file_system, &status));
        let is_directory = node.kind == ObjectType::Directory;
        match self.is_beneath(&node) {
            Ok(true) => Ok(node),
            // The kernel may know no name of a file that was just opened by handle, or the path may
            // be too long. So the name must be searched for.
            Ok(false) | Err(StoreError::NameTooLong) if !is_directory => self.find(export, handle),
            Ok(false) => Err(StoreError::Stale),
            Err(error) => Err(error),
        }
    }

    /// Repeats the proof that an object is beneath its export if the last proof is older than
    /// [`PROOF_AGE`]. `now` is a result of [`sys::millis`].
    pub(super) fn prove_again(&self, node: &Arc<Node>, now: u64) -> Result<()> {
        let age = now.saturating_sub(node.proved_at.load(Ordering::Relaxed));
        if age < PROOF_AGE.as_millis() as u64 {
            return Ok(());
        }
        match self.is_beneath(node) {
            Ok(true) => {}
            Ok(false) | Err(StoreError::NameTooLong) if self.open_file(&node.handle).is_some() => {}
            Ok(false) => {
                lock(&self.nodes).remove(&node.handle);
                return Err(StoreError::Stale);
            }
            // If the object still has the name under which it was last seen, it is beneath the
            // export.
            Err(StoreError::NameTooLong) if node.kind != ObjectType::Directory => {
                self.find(node.export, &node.handle)?;
            }
            Err(error) => return Err(error),
        }
        node.proved_at.store(now, Ordering::Relaxed);
        Ok(())
    }

    /// Returns true if every object on the object's file system is beneath the export.
    fn lies_in(&self, node: &Node) -> bool {
        self.exports[node.export].is_whole && node.file_system == 0
    }

    /// Returns true if the object is beneath its export now.
    ///
    /// # Errors
    /// [`StoreError::NameTooLong`] for an object other than a directory whose path is too long for
    /// the kernel to report.
    pub(super) fn is_beneath(&self, node: &Node) -> Result<bool> {
        if self.lies_in(node) {
            return Ok(true);
        }
        let root = &self.exports[node.export].root;
        let paths = sys::present_path(root.fd()).and_then(|root| {
            let path = sys::present_path(node.fd())?;
            Ok((root, path))
        });
        let (root, path) = match paths {
            Ok(paths) => paths,
            Err(StoreError::NameTooLong) if node.kind == ObjectType::Directory => {
                node.note_reach(usize::MAX);
                return has_above(node, root);
            }
            Err(error) => return Err(error),
        };
        let rest = path.strip_prefix(root.as_slice());
        let is_beneath = |rest: &[u8]| rest.is_empty() || root == b"/" || rest[0] == b'/';
        Ok(rest.is_some_and(is_beneath))
    }
}

/// Walks up the parents of a directory. Returns true if `wanted` is one of these parents.
fn has_above(directory: &Node, wanted: &Node) -> Result<bool> {
    let place = |status: &Status| (status.mount_id, status.device, status.attributes.file_id);
    let wanted = place(&sys::status(wanted.fd())?);
    let mut at = place(&sys::status(directory.fd())?);
    let mut above = sys::open_parent(directory.fd())?;
    for _ in 0..STEPS_MAX {
        let next = place(&sys::status(above.as_fd())?);
        // The root of the name space is its own parent.
        if at == wanted || at == next {
            return Ok(at == wanted);
        }
        (at, above) = (next, sys::open_parent(above.as_fd())?);
    }
    Err(StoreError::NameTooLong)
}

/// Opens an object by its kernel handle.
pub(super) fn open_settled(kernel: &KernelHandle, mount: BorrowedFd<'_>) -> Result<OwnedFd> {
    settled(|| kernel.open(mount))
}

/// Calls `open` again while the inode is being created. At the moment in which a new file gets its
/// inode number, `iget_locked` finds the unfinished inode, and ext4 returns ENOMEM instead of
/// ESTALE. The reactor must not wait until the inode is finished, so after a few attempts the
/// caller gets `Busy` and must try again later.
fn settled<T>(mut open: impl FnMut() -> io::Result<T>) -> Result<T> {
    let is_unsettled =
        |error: &io::Error| error.raw_os_error() == Some(Errno::NOMEM.raw_os_error());
    let mut opened = open();
    for _ in 1..OPEN_TRIES {
        if !opened.as_ref().is_err_and(is_unsettled) {
            break;
        }
        opened = open();
    }
    match opened {
        Ok(object) => Ok(object),
        Err(error) if is_unsettled(&error) => Err(StoreError::Busy),
        // The seal is valid, so the object existed and was removed, whatever error the file system
        // returns.
        Err(error) => match StoreError::from(error) {
            StoreError::Resource => Err(StoreError::Resource),
            StoreError::Io => Err(StoreError::Io),
            _ => Err(StoreError::Stale),
        },
    }
}

/// The time for which the proof that an object is beneath its export is valid.
const PROOF_AGE: Duration = Duration::from_secs(1);
/// The maximum number of attempts, without a pause, to open an inode that is being created.
const OPEN_TRIES: u32 = 4;
/// The maximum number of parents that a walk up from a directory visits.
const STEPS_MAX: usize = 4096;
/// The path length in bytes up to which the kernel is certain to be able to report the path of an
/// object. The kernel reports up to 4,095 bytes, which include the path of the export.
const REACH_MAX: u32 = 3072;

#[cfg(test)]
mod tests {
    use dafs_types::Credentials;
    use rustix::fs::{Mode, OFlags};
    use tempfile::TempDir;

    use super::super::LocalConfig;
    use super::*;
    use crate::store::Store;

    /// Nested directories that are too many for one path, a file in the innermost directory, and
    /// the handles of all of them.
    struct Deep {
        place: TempDir,
        store: LocalStore,
        handles: Vec<FileHandle>,
    }

    const DEPTH: usize = 40;

    impl Deep {
        fn new(kernel_handles: bool) -> Self {
            let place = tempfile::tempdir().unwrap();
            let export = place.path().join("export");
            std::fs::create_dir(&export).unwrap();
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            let mut here = rustix::fs::open(&export, flags, Mode::empty()).unwrap();
            let name = "n".repeat(200);
            for _ in 0..DEPTH {
                rustix::fs::mkdirat(&here, &name, Mode::RWXU).unwrap();
                here = rustix::fs::openat(&here, &name, flags, Mode::empty()).unwrap();
            }
            let flags = OFlags::CREATE | OFlags::WRONLY;
            rustix::fs::openat(&here, "file", flags, Mode::RWXU).unwrap();
            let mut config = LocalConfig::new(export, place.path().join("state"));
            config.kernel_handles = kernel_handles;
            let store = LocalStore::new(&config).unwrap();
            let who = Credentials::superuser();
            let mut handles = vec![store.root(&who).unwrap().handle];
            for name in std::iter::repeat_n(&*name, DEPTH).chain(["file"]) {
                let directory = handles.last().unwrap();
                let found = store.lookup(&who, directory, name.as_bytes()).unwrap();
                handles.push(found.handle);
            }
            Self { place, store, handles }
        }

        /// Makes all proofs old, so that they must be repeated.
        fn grow_old(&self) {
            for handle in &self.handles {
                if let Some(node) = lock(&self.store.nodes).get(handle) {
                    node.proved_at.store(0, Ordering::Relaxed);
                }
            }
        }

        fn forget(&self) {
            self.handles.iter().for_each(|handle| lock(&self.store.nodes).remove(handle));
        }

        fn resolve_all(&self) -> Vec<Option<StoreError>> {
            let resolve = |handle| self.store.resolve(handle).err();
            self.handles[1..].iter().map(resolve).collect()
        }
    }

    #[test]
    fn objects_deeper_than_one_path_is_long_are_proved_anew_and_found_again() {
        for kernel_handles in [true, false] {
            let deep = Deep::new(kernel_handles);
            assert!(sys::present_path(deep.store.exports[0].root.fd()).is_ok());
            for _ in 0..2 {
                deep.grow_old();
                assert_eq!(deep.resolve_all(), vec![None; DEPTH + 1], "{kernel_handles}");
            }
            for _ in 0..2 {
                deep.forget();
                assert_eq!(deep.resolve_all(), vec![None; DEPTH + 1], "{kernel_handles}");
            }
            // Make the store forget the names under which the objects were seen.
            deep.forget();
            *lock(&deep.store.hints) = super::super::Hints::default();
            assert_eq!(deep.resolve_all(), vec![None; DEPTH + 1], "{kernel_handles}");
        }
    }

    #[test]
    fn objects_deeper_than_one_path_is_long_are_stale_outside_of_the_export() {
        for kernel_handles in [true, false] {
            let deep = Deep::new(kernel_handles);
            let name = "n".repeat(200);
            let (from, to) = (deep.place.path().join("export"), deep.place.path().join("outside"));
            std::fs::rename(from.join(name), to).unwrap();
            deep.grow_old();
            let all = vec![Some(StoreError::Stale); DEPTH + 1];
            assert_eq!(deep.resolve_all(), all, "{kernel_handles}");
            deep.forget();
            assert_eq!(deep.resolve_all(), all, "{kernel_handles}");
        }
    }

    /// The number of times that this thread was suspended in order to wait.
    fn rests() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse().unwrap()
    }

    #[test]
    fn an_inode_that_is_being_made_is_looked_at_a_few_times_without_a_rest() {
        let round = || {
            let (mut looks, before) = (0, rests());
            let opened = settled::<()>(|| {
                looks += 1;
                Err(Errno::NOMEM.into())
            });
            let rested = rests() - before;
            assert_eq!(opened, Err(StoreError::Busy), "whoever asks asks again");
            assert!(looks <= OPEN_TRIES, "{looks} looks");
            rested
        };
        // The first rounds may wait for the disk of this program.
        let least = (0..20).map(|_| round()).min();
        assert_eq!(least, Some(0), "the thread that serves everybody sleeps");
    }

    #[test]
    fn what_an_inode_has_become_by_the_next_look_counts() {
        for (then, expected) in [(None, Ok(2)), (Some(Errno::STALE), Err(StoreError::Stale))] {
            let mut looks = 0;
            let opened = settled(|| {
                looks += 1;
                match (looks, then) {
                    (1, _) => Err(Errno::NOMEM.into()),
                    (_, None) => Ok(looks),
                    (_, Some(error)) => Err(error.into()),
                }
            });
            assert_eq!((opened, looks), (expected, 2));
        }
    }
}
