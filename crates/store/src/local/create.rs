//! Creates objects.
//!
//! Invariants:
//! - A new object has mode 0 until it belongs to the caller, so that no other user can use it in
//!   between. An object that belongs to the caller from the start is created with its final mode.
//! - Owner, mode, size and times are set only through a descriptor of the created object. For a
//!   regular file the kernel returns that descriptor. Any other object must be opened by its name;
//!   meanwhile the owner of the directory may have given the name to another object (see
//!   [`Making`]).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use dafs_types::limits::LINK_TEXT_BYTES_MAX;
use dafs_types::permission::{EXECUTE, WRITE};
use dafs_types::{
    ChangeInfo, CreateMode, Credentials, FileHandle, ObjectType, SetTime, ShareAccess, Timestamp,
    Verifier,
};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::file::LocalFile;
use super::node::Node;
use super::sys::Status;
use super::{LocalStore, extras, sys};
use crate::attributes::{AttributeChanges, Attributes};
use crate::change::Clocks;
use crate::error::{Result, StoreError};
use crate::file::{File, FileVersion};
use crate::name;
use crate::rules::check_new;
use crate::store::{Created, NewNode, Object};

impl LocalStore {
    pub(super) fn make_file(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
        mode: CreateMode,
        changes: &AttributeChanges,
        access: ShareAccess,
    ) -> Result<(Created, Arc<dyn File>)> {
        name::check(name)?;
        let parent = self.resolve_node(directory)?;
        if mode == CreateMode::NoCreate {
            return self.open_child(who, &parent, name, access);
        }
        check_new(who, changes)?;
        let (before, begun) = self.before_change(who, &parent, EXECUTE)?;
        let may_make = self.may_make(who, &parent, &before);
        if may_make.is_ok() {
            // Most names to be created are new, so the creation is tried without a lookup.
            match self.make_new_file(who, (&parent, &before, begun), name, mode, changes) {
                Err(StoreError::Exists) if mode != CreateMode::Guarded => {}
                made => return made,
            }
        }
        let (node, status) = match self.child(&parent, name) {
            Err(StoreError::NotFound) => {
                return Err(may_make.err().unwrap_or(StoreError::NotFound));
            }
            other => other?,
        };
        let mut attributes = status.attributes;
        check_existing(&attributes, mode)?;
        let file = self.open_found(who, &node, &attributes, access)?;
        if mode == CreateMode::Unchecked && changes.size == Some(0) {
            self.cut(who, &node, &attributes)?;
            attributes = sys::status(node.fd())?.attributes;
        }
        let object = Object { handle: node.handle, attributes };
        Ok((Created { object, is_new: false, change: same(&before) }, file))
    }

    /// Opens an existing file by its directory entry. The caller needs only search permission on
    /// the directory.
    fn open_child(
        &self,
        who: &Credentials,
        parent: &Node,
        name: &[u8],
        access: ShareAccess,
    ) -> Result<(Created, Arc<dyn File>)> {
        self.check_way(who, parent)?;
        let (node, status) = self.child(parent, name)?;
        let attributes = status.attributes;
        check_existing(&attributes, CreateMode::NoCreate)?;
        let file = self.open_found(who, &node, &attributes, access)?;
        let object = Object { handle: node.handle, attributes };
        Ok((Created { object, is_new: false, change: ChangeInfo::default() }, file))
    }

    /// Opens an existing file like `open_child`, and returns only the file and its version, which
    /// is all that most opens need. `now` is a recent result of [`sys::millis`].
    pub(super) fn open_known(
        &self,
        who: &Credentials,
        (parent, now): (&Node, u64),
        name: &[u8],
        access: ShareAccess,
    ) -> Result<(Arc<dyn File>, FileVersion)> {
        name::check(name)?;
        self.check_way(who, parent)?;
        // Checking the directory may have taken some time, so read the clock again.
        let now = if who.is_superuser() { now } else { sys::millis() };
        if let Some(look) = &self.entry_look(parent, name, now)
            && let Some(node) = self.known_child(parent, &look.place, now)
        {
            return Ok((self.open_found(who, &node, look.bits, access)?, look.version));
        }
        let (node, status) = self.child_anew(parent, name)?;
        let found = &status.attributes;
        Ok((self.open_found(who, &node, found, access)?, FileVersion::from(found)))
    }

    /// Checks that the caller may search a directory.
    fn check_way(&self, who: &Credentials, directory: &Node) -> Result<()> {
        if directory.kind != ObjectType::Directory {
            return Err(StoreError::NotDirectory);
        }
        if !who.is_superuser() {
            let found = self.live_look(directory)?.bits;
            if !self.allows(who, directory, found, EXECUTE)? {
                return Err(StoreError::Access);
            }
        }
        Ok(())
    }

    /// Checks that the caller may create names in a directory with these attributes.
    fn may_make(&self, who: &Credentials, directory: &Node, found: &Attributes) -> Result<()> {
        self.check_writable(directory)?;
        let may = self.allows(who, directory, found, EXECUTE | WRITE)?;
        if may { Ok(()) } else { Err(StoreError::Access) }
    }

    /// Creates a file that does not exist. Uses the descriptor that the kernel returns for the new
    /// file, because the name may lead to another object a moment later.
    fn make_new_file(
        &self,
        who: &Credentials,
        (parent, before, begun): (&Arc<Node>, &Attributes, Clocks),
        name: &[u8],
        mode: CreateMode,
        changes: &AttributeChanges,
    ) -> Result<(Created, Arc<dyn File>)> {
        let early = self.early_mode(who, before, changes, FILE_MODE);
        let mut changes = *changes;
        let mut nameless = None;
        if let CreateMode::Exclusive(verifier) = mode {
            let (access, modify) = verifier_times(verifier);
            changes.time_access = Some(SetTime::Client(access));
            changes.time_modify = Some(SetTime::Client(modify));
            nameless = open_nameless(parent, early)?;
        }
        let is_nameless = nameless.is_some();
        let writer = match nameless {
            Some(writer) => writer,
            None => {
                let flags = OFlags::CREATE
                    | OFlags::EXCL
                    | OFlags::RDWR
                    | OFlags::NOFOLLOW
                    | OFlags::CLOEXEC;
                rustix::fs::openat(parent.fd(), name, flags, early)?
            }
        };
        // A node lives longer than the open. If the node had a writable descriptor, no process
        // could execute the file (ETXTBSY), so the node gets an `O_PATH` descriptor.
        let (node, mut made) = self.adopt_new(&writer, parent, name)?;
        let mut set = self.wanted(who, made.attributes, (parent, before), &changes, FILE_MODE)?;
        if is_nameless {
            // The file gets its name with the verifier. If the server is killed before that, there
            // is no file, and the repeated request creates it.
            give(&node, &std::mem::take(&mut set))?;
            sys::link(node.fd(), parent.fd(), name)?;
            made = sys::status(node.fd())?;
        }
        self.remember(&node, parent, name);
        let created = self.finish((&node, made), (parent, before, begun), &set)?;
        if matches!(mode, CreateMode::Exclusive(_)) {
            rustix::fs::fsync(&writer)?;
        }
        let file = self.file_for(node.handle, |key| LocalFile::new(key, node));
        file.allow_with(writer, !who.is_superuser());
        Ok((created, file))
    }

    /// Returns the node of an object that was just created. If a system call filter forbids getting
    /// an `O_PATH` descriptor of the object from the kernel, the object is opened by its name,
    /// because that takes a third of the time of a call through `/proc`. If the name already leads
    /// to another object, `/proc` is used.
    fn adopt_new(&self, made: &OwnedFd, parent: &Node, name: &[u8]) -> Result<(Arc<Node>, Status)> {
        if let Some(path) = sys::path_of(made.as_fd()) {
            return self.adopt(path, parent);
        }
        if let Ok(path) = sys::open_component(parent.fd(), name) {
            let status = sys::status(path.as_fd())?;
            if sys::is_same(made.as_fd(), &status)? {
                return self.adopt_as(path, parent, status);
            }
        }
        self.adopt(sys::reopen_path(made.as_fd())?, parent)
    }

    /// Truncates a file whose attributes the caller has just read.
    fn cut(&self, who: &Credentials, node: &Node, found: &Attributes) -> Result<()> {
        self.check_writable(node)?;
        if !self.allows(who, node, found, WRITE)? {
            return Err(StoreError::Access);
        }
        let cut = AttributeChanges { size: Some(0), ..AttributeChanges::default() };
        sys::apply(node.fd(), &cut)?;
        if who.is_superuser() { Ok(()) } else { sys::take_set_ids(node.fd()) }
    }

    pub(super) fn make_unlinked(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        changes: &AttributeChanges,
    ) -> Result<(Object, Arc<dyn File>)> {
        check_new(who, changes)?;
        let parent = self.resolve_node(directory)?;
        self.check_writable(&parent)?;
        let before = self.check_directory(who, &parent, EXECUTE | WRITE)?;
        let fd = open_nameless(&parent, Mode::empty())?.ok_or(StoreError::NotSupported)?;
        let status = sys::status(fd.as_fd())?;
        let own = fd.try_clone().map_err(StoreError::from)?;
        let node = Arc::new(self.make(own, parent.export, parent.file_system, &status));
        let file = self.file_for(node.handle, |key| LocalFile::new(key, node));
        file.allow_with(fd, !who.is_superuser());
        let made = status.attributes;
        give(&file.node, &self.wanted(who, made, (&parent, &before), changes, FILE_MODE)?)?;
        let object = Object { handle: file.node.handle, attributes: file.attributes()? };
        Ok((object, file))
    }

    pub(super) fn make_node(
        &self,
        who: &Credentials,
        directory: &FileHandle,
        name: &[u8],
        node: NewNode<'_>,
        changes: &AttributeChanges,
    ) -> Result<Created> {
        name::check(name)?;
        check_new(who, changes)?;
        let parent = self.resolve_node(directory)?;
        self.check_writable(&parent)?;
        let (before, begun) = self.before_change(who, &parent, EXECUTE | WRITE)?;
        let (at, kind) = (parent.fd(), kind_of(&node));
        let special = |kind, device| rustix::fs::mknodat(at, name, kind, Mode::empty(), device);
        let mut making = Making { kind, mode: 0, text: None, begun: sys::coarse_now() };
        let mut default_mode = FILE_MODE;
        match node {
            NewNode::Directory => {
                default_mode = DIRECTORY_MODE;
                let early = self.early_mode(who, &before, changes, default_mode);
                making.mode = early.as_raw_mode();
                rustix::fs::mkdirat(at, name, early)?;
            }
            NewNode::SymbolicLink(text) => {
                making.text = Some(text);
                if text.is_empty() || text.contains(&0) {
                    return Err(StoreError::Invalid);
                }
                if text.len() > LINK_TEXT_BYTES_MAX {
                    return Err(StoreError::NameTooLong);
                }
                rustix::fs::symlinkat(text, at, name)?;
            }
            NewNode::Fifo => special(FileType::Fifo, 0)?,
            NewNode::Socket => special(FileType::Socket, 0)?,
            NewNode::BlockDevice(device) | NewNode::CharacterDevice(device) => {
                if !who.is_superuser() {
                    return Err(StoreError::NotPermitted);
                }
                let part = |n: u64| u32::try_from(n).map_err(|_| StoreError::Invalid);
                let number = rustix::fs::makedev(part(device.major)?, part(device.minor)?);
                let is_block = matches!(node, NewNode::BlockDevice(_));
                let kind = if is_block { FileType::BlockDevice } else { FileType::CharacterDevice };
                special(kind, number)?;
            }
        }
        let (node, made) = self.child_anew(&parent, name)?;
        let set = self.wanted(who, made.attributes, (&parent, &before), changes, default_mode)?;
        if !set.is_empty() && !self.is_as_made(&making, &node, &made)? {
            // Another process has put an object there, so the name exists, but not for this object.
            return Err(StoreError::Exists);
        }
        self.finish((&node, made), (&parent, &before, begun), &set)
    }

    /// Returns true if the object found under the name is the object just created under it. Another
    /// process with write permission on the directory can only put an existing object there. No
    /// such object passes this check: its owner, age, mode, number of names or content differs.
    fn is_as_made(&self, making: &Making<'_>, node: &Node, found: &Status) -> Result<bool> {
        let Attributes { kind, uid, mode, link_count, time_create, .. } = found.attributes;
        let is_directory = kind == ObjectType::Directory;
        // A directory passes its set-group-id bit on to directories in it.
        let inherited = if is_directory { 0o2000 } else { 0 };
        let has_mode = match making.text {
            Some(text) => {
                let room = Vec::with_capacity(LINK_TEXT_BYTES_MAX);
                kind == making.kind
                    && rustix::fs::readlinkat(node.fd(), c"", room)?.as_bytes() == text
            }
            None => mode & !(making.mode | inherited) == 0,
        };
        let clock_is_ours = self.exports[node.export].is_local;
        let is_young = time_create
            .is_none_or(|birth| !clock_is_ours || birth >= coarse(making.begun, birth.nanoseconds));
        let link_count_max = if is_directory { 2 } else { 1 };
        Ok(kind == making.kind
            && uid == self.effective_uid
            && has_mode
            && link_count <= link_count_max
            && is_young)
    }

    /// Sets the attributes of an object that was just created. Returns the object.
    fn finish(
        &self,
        (node, made): (&Node, Status),
        (parent, before, begun): (&Node, &Attributes, Clocks),
        set: &AttributeChanges,
    ) -> Result<Created> {
        let mut attributes = made.attributes;
        if !set.is_empty() {
            give(node, set)?;
            attributes = sys::status(node.fd())?.attributes;
        }
        let change = self.after_change(parent, before, Some(begun))?;
        let object = Object { handle: node.handle, attributes };
        Ok(Created { object, is_new: true, change })
    }

    /// Returns the mode to create an object with. This is the wanted mode if the new object belongs
    /// to the caller from the start, because the server runs as that user; otherwise it is 0.
    fn early_mode(
        &self,
        who: &Credentials,
        parent: &Attributes,
        changes: &AttributeChanges,
        default_mode: u32,
    ) -> Mode {
        let mode = changes.mode.unwrap_or(default_mode);
        let is_own = changes.uid.unwrap_or(who.uid()) == self.effective_uid
            && changes.gid.unwrap_or(who.gid()) == self.effective_gid
            && parent.mode & 0o2000 == 0;
        if is_own { Mode::from_raw_mode(mode & 0o777) } else { Mode::empty() }
    }

    /// Returns the attributes that must still be set on a new object: the ownership of the caller,
    /// and all requested attributes that the object does not have. `made` contains the attributes
    /// with which the object was created.
    fn wanted(
        &self,
        who: &Credentials,
        made: Attributes,
        (directory, parent): (&Node, &Attributes),
        changes: &AttributeChanges,
        default_mode: u32,
    ) -> Result<AttributeChanges> {
        let inherits = parent.mode & 0o2000 != 0;
        let uid = changes.uid.unwrap_or(who.uid());
        let gid = changes.gid.unwrap_or(if inherits { parent.gid } else { who.gid() });
        let mut mode = changes.mode.unwrap_or(default_mode) & 0o7777;
        let is_directory = made.kind == ObjectType::Directory;
        if is_directory {
            mode |= if inherits { 0o2000 } else { 0 };
        } else if !who.is_superuser() && !who.in_group(gid) {
            mode &= !0o2000;
        }
        let may_give = self.effective_uid == 0;
        if !may_give && !is_directory {
            // An object that cannot be given to the caller belongs to the server's user. With a
            // set-id bit, whatever the caller writes into it would run as that user.
            mode &= if made.uid == uid { !0 } else { !SET_USER };
            mode &= if made.gid == gid { !0 } else { !SET_GROUP };
        }
        let is_link = made.kind == ObjectType::SymbolicLink;
        let is_given = !may_give || made.uid == uid && made.gid == gid;
        let is_as_made = is_given && changes.mode.is_some() && made.mode == mode;
        if !is_link
            && !is_as_made
            && let Some(list) = extras::default_list(directory.fd())?
        {
            // The kernel gave the object an access control list, which limits the mode.
            let any = if is_directory { 0o777 } else { 0o666 };
            let wanted = changes.mode.unwrap_or(any);
            mode = mode & 0o7000 | list.inherited(wanted).mode();
        }
        let size = changes.size.filter(|_| made.kind == ObjectType::Regular);
        let has_size = changes.size.is_some();
        Ok(AttributeChanges {
            mode: (!is_link && (has_size || !is_given || made.mode != mode)).then_some(mode),
            uid: (!is_given).then_some(uid),
            gid: (!is_given).then_some(gid),
            size,
            time_access: changes.time_access,
            time_modify: changes.time_modify,
        })
    }
}

/// Sets the attributes of a new object.
fn give(node: &Node, set: &AttributeChanges) -> Result<()> {
    // Without privilege, even the owner needs write permission to set the size, so set a mode
    // first.
    if let Some(size) = set.size {
        let early = AttributeChanges { mode: Some(0o600), ..AttributeChanges::default() };
        sys::apply(node.fd(), &early)?;
        let size = AttributeChanges { size: Some(size), ..AttributeChanges::default() };
        sys::apply(node.fd(), &size)?;
    }
    sys::apply(node.fd(), &AttributeChanges { size: None, ..*set })
}

/// The expected properties of an object that was just created, if the kernel returns no descriptor
/// of it.
///
/// The object is opened by the name under which it was created. The owner of the directory may have
/// given that name to another object meanwhile, and must not be able to make the server give that
/// object to another user. Therefore attributes are set only on an object that looks exactly like
/// the object just created.
struct Making<'a> {
    kind: ObjectType,
    /// The mode with which the object was created.
    mode: u32,
    /// The text of the symbolic link to create. `None` for other objects.
    text: Option<&'a [u8]>,
    /// The time just before the creation, by the clock that file systems use for creation times.
    begun: Timestamp,
}

fn kind_of(node: &NewNode<'_>) -> ObjectType {
    match node {
        NewNode::Directory => ObjectType::Directory,
        NewNode::SymbolicLink(_) => ObjectType::SymbolicLink,
        NewNode::Fifo => ObjectType::Fifo,
        NewNode::Socket => ObjectType::Socket,
        NewNode::BlockDevice(_) => ObjectType::BlockDevice,
        NewNode::CharacterDevice(_) => ObjectType::CharacterDevice,
    }
}

/// Creates a file without a name in the file system of a directory. `None` if the file system
/// cannot do that.
fn open_nameless(directory: &Node, mode: Mode) -> Result<Option<OwnedFd>> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::openat(directory.fd(), c".", flags, mode) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Rounds a time down to the resolution of a file system's times. `kept` is the nanosecond part of
/// a time that the file system has stored. If it is 0, the file system is assumed to keep only
/// whole seconds.
fn coarse(time: Timestamp, kept: u32) -> Timestamp {
    let grain = if kept == 0 { 1_000_000_000 } else { BIRTH_GRAIN_NANOSECONDS };
    Timestamp { nanoseconds: time.nanoseconds - time.nanoseconds % grain, ..time }
}

/// Returns an error if an OPEN with this creation mode must fail because the object exists.
fn check_existing(found: &Attributes, mode: CreateMode) -> Result<()> {
    match mode {
        CreateMode::NoCreate | CreateMode::Unchecked => Ok(()),
        CreateMode::Guarded => Err(StoreError::Exists),
        CreateMode::Exclusive(verifier) => {
            let (access, modify) = verifier_times(verifier);
            let is_ours = found.kind == ObjectType::Regular
                && found.time_access == access
                && found.time_modify == modify;
            if is_ours { Ok(()) } else { Err(StoreError::Exists) }
        }
    }
}

/// Encodes the verifier of an exclusive creation as the times of the file, because every file
/// system keeps times. The client sets the real times afterwards. Two bits of the verifier are
/// lost, because the oldest time formats have a limited range.
fn verifier_times(verifier: Verifier) -> (Timestamp, Timestamp) {
    let half = |bytes: &[u8]| {
        let number = bytes.iter().fold(0u32, |sum, byte| sum << 8 | u32::from(*byte));
        Timestamp { seconds: i64::from(number & 0x7fff_ffff), nanoseconds: 0 }
    };
    (half(&verifier.0[..4]), half(&verifier.0[4..]))
}

/// The set-user-id bit, which makes a program run as the owner of its file.
const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
/// The modes of new objects if the request contains no mode.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// The coarsest resolution of creation times among local file systems that keep fractions of
/// seconds.
const BIRTH_GRAIN_NANOSECONDS: u32 = 10_000_000;

fn same(directory: &Attributes) -> ChangeInfo {
    ChangeInfo { before: directory.change, after: directory.change, atomic: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_birth_in_whole_seconds_is_young_in_the_second_that_has_begun() {
        let time = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        let begun = time(7, 512_345_678);
        assert!(time(7, 0) >= coarse(begun, 0) && time(6, 0) < coarse(begun, 0));
        assert!(time(7, 510_000_000) >= coarse(begun, 510_000_000));
        assert!(time(7, 509_999_999) < coarse(begun, 509_999_999));
    }
}
