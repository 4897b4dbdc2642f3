//! Making objects.
//!
//! Invariant: a new object has mode 0 until it belongs to the asker, so nobody else
//! can use the moment between; one that is made as the asker's has its mode at once.
//! Owner, mode, size and times go only to a descriptor of the object that was made. For a
//! regular file the kernel gives that descriptor. Everything else is opened by its name, which
//! whoever owns the directory may have given to another object by then: see [`Making`].

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use dafs_types::limits::LINK_TEXT_BYTES_MAX;
use dafs_types::permission::{EXECUTE, WRITE};
use dafs_types::{
    ChangeInfo, CreateMode, Credentials, FileHandle, ObjectType, SetTime, ShareAccess, Timestamp,
    Verifier,
};
use rustix::fs::{FileType, Mode, OFlags};

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
            // Most names that are to be made are new: the attempt is the look for one.
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

    /// Opens a file that is there. Its entry tells all there is to know of it: the directory
    /// is looked at only for the sake of those whom it may keep out.
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

    /// The same for who needs no more than the file and its version, which is what most opens are.
    /// `now` is by [`sys::millis`], a moment ago.
    pub(super) fn open_known(
        &self,
        who: &Credentials,
        (parent, now): (&Node, u64),
        name: &[u8],
        access: ShareAccess,
    ) -> Result<(Arc<dyn File>, FileVersion)> {
        name::check(name)?;
        self.check_way(who, parent)?;
        // To look at the way may have taken a while.
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

    /// Whether the asker gets through a directory.
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

    /// Whether the asker may make names in a directory that is as `found` says.
    fn may_make(&self, who: &Credentials, directory: &Node, found: &Attributes) -> Result<()> {
        self.check_writable(directory)?;
        let may = self.allows(who, directory, found, EXECUTE | WRITE)?;
        if may { Ok(()) } else { Err(StoreError::Access) }
    }

    /// Makes a file that is not there. The descriptor that the kernel gives for the new
    /// object is kept: what the name leads to a moment later may be another's.
    fn make_new_file(
        &self,
        who: &Credentials,
        (parent, before, begun): (&Arc<Node>, &Attributes, Clocks),
        name: &[u8],
        mode: CreateMode,
        changes: &AttributeChanges,
    ) -> Result<(Created, Arc<dyn File>)> {
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let early = self.early_mode(who, before, changes, FILE_MODE);
        let writer = rustix::fs::openat(parent.fd(), name, flags, early)?;
        let mut changes = *changes;
        if let CreateMode::Exclusive(verifier) = mode {
            let (access, modify) = verifier_times(verifier);
            changes.time_access = Some(SetTime::Client(access));
            changes.time_modify = Some(SetTime::Client(modify));
        }
        // A node outlives the open, and must not keep the file busy for whoever would
        // execute it.
        let (node, made) = self.adopt_new(&writer, parent, name)?;
        self.remember(&node, parent, name);
        let set = self.wanted(who, made.attributes, (parent, before), &changes, FILE_MODE)?;
        let created = self.finish((&node, made), (parent, before, begun), &set)?;
        if matches!(mode, CreateMode::Exclusive(_)) {
            rustix::fs::fsync(&writer)?;
        }
        let file = self.file_for(node.handle, |key| LocalFile::new(key, node));
        file.allow_with(writer, !who.is_superuser());
        Ok((created, file))
    }

    /// The node of what was just made. Where a filter keeps the kernel from saying what a
    /// descriptor stands for, it is found by its name, which takes a third of the way through
    /// `/proc`, unless the name leads to something else already.
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

    /// Truncates a file that is as `found` says.
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
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(parent.fd(), c".", flags, Mode::empty())?;
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
            // Somebody put another object there: the name exists, and is not ours.
            return Err(StoreError::Exists);
        }
        self.finish((&node, made), (&parent, &before, begun), &set)
    }

    /// Whether what was found under the name is what was made under it a moment ago. Whoever may
    /// write the directory can put there only what is there already, and no such object passes:
    /// it is another's, or older, or has a mode, other names or entries.
    fn is_as_made(&self, making: &Making<'_>, node: &Node, found: &Status) -> Result<bool> {
        let Attributes { kind, uid, mode, link_count, time_create, .. } = found.attributes;
        let is_directory = kind == ObjectType::Directory;
        // What a directory passes on to those in it.
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

    /// Gives what was just made what it is to have, and describes it.
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

    /// The mode an object may be made with: the wanted one if the kernel gives it to the
    /// asker by itself, since the server is that user.
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

    /// What a new object, which is as `made` says, lacks to be the asker's with what else is
    /// wanted.
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
            // What cannot be given to the asker stays the server's own user's, and would run as
            // that user with whatever the asker writes into it.
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
            // The kernel gave the object the list, and the mode is what it lets through.
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

/// Sets what a new object is to have.
fn give(node: &Node, set: &AttributeChanges) -> Result<()> {
    // Without privilege even the owner needs the mode before the size.
    if let Some(size) = set.size {
        let early = AttributeChanges { mode: Some(0o600), ..AttributeChanges::default() };
        sys::apply(node.fd(), &early)?;
        let size = AttributeChanges { size: Some(size), ..AttributeChanges::default() };
        sys::apply(node.fd(), &size)?;
    }
    sys::apply(node.fd(), &AttributeChanges { size: None, ..*set })
}

/// What was asked of the kernel for an object that it gives no descriptor of.
///
/// It is opened by the name it was made under. Whoever owns the directory can give that name to
/// another object first, and must not have the server give that one away. So nothing is set on
/// what does not look as this was made, and just now.
struct Making<'a> {
    kind: ObjectType,
    /// Mode it was made with.
    mode: u32,
    /// Where a symbolic link leads.
    text: Option<&'a [u8]>,
    /// The clock that file systems take times of birth from, just before.
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

/// A time as coarse as those that a file system keeps of which one has so many nanoseconds: some
/// keep whole seconds alone.
fn coarse(time: Timestamp, kept: u32) -> Timestamp {
    let grain = if kept == 0 { 1_000_000_000 } else { BIRTH_GRAIN_NANOSECONDS };
    Timestamp { nanoseconds: time.nanoseconds - time.nanoseconds % grain, ..time }
}

/// What OPEN with creation says to an object that is there.
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

/// The verifier of an exclusive creation, kept where every file system keeps something
/// for a file: in its times. The client sets real ones next. Two bits are lost to the
/// range of the oldest time formats.
fn verifier_times(verifier: Verifier) -> (Timestamp, Timestamp) {
    let half = |bytes: &[u8]| {
        let number = bytes.iter().fold(0u32, |sum, byte| sum << 8 | u32::from(*byte));
        Timestamp { seconds: i64::from(number & 0x7fff_ffff), nanoseconds: 0 }
    };
    (half(&verifier.0[..4]), half(&verifier.0[4..]))
}

/// Programs that run as their file's user, or with its group.
const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
/// Modes where none is asked for.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// No local file system that keeps parts of seconds keeps times of birth more coarsely.
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
