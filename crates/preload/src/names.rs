//! Creates, removes, renames and links names, and queries and sets attributes by name.
//!
//! Invariant: a call that the kernel would refuse because of the object's type (`rmdir` of a file,
//! `unlink` of a directory) is refused without asking the server.

use dafs_client::{AccessMask, Metadata, NewObject, ObjectType, SetAttributes};

use crate::errors::{Outcome, fail};
use crate::opening::{must_have, new_mode, read_link};
use crate::route::Place;
use crate::shared::SharedObject;
use crate::sockets;
use crate::state::State;
use crate::waiting::wait_result;
use crate::walk::{Object, Slot};

impl State {
    /// Creates a directory with a mode.
    pub(crate) fn make_directory(&mut self, place: &Place, mode: u32) -> Outcome<i32> {
        let slot = self.named_slot(place, libc::EEXIST)?;
        slot.must_have_name(libc::EEXIST)?;
        // As in Linux, only chmod sets the other mode bits of a directory.
        let mode = new_mode(mode & 0o1777);
        let chain = slot.session.chain().at(slot.directory).create_dir(&slot.name, mode);
        wait_result(&slot.session.client(), chain.run_async())?;
        Ok(0)
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&mut self, place: &Place) -> Outcome<i32> {
        let is_parent = place.names.last().is_some_and(|name| name == "..");
        let dots = if is_parent { libc::ENOTEMPTY } else { libc::EINVAL };
        let slot = self.named_slot(place, dots)?;
        slot.must_have_name(libc::EBUSY)?;
        match slot.look()?.map(|metadata| metadata.kind) {
            None => fail(libc::ENOENT),
            Some(ObjectType::Directory) => remove(&slot),
            Some(_) => fail(libc::ENOTDIR),
        }
    }

    /// Removes an object that is not a directory.
    pub(crate) fn unlink(&mut self, place: &Place) -> Outcome<i32> {
        let slot = self.named_slot(place, libc::EISDIR)?;
        slot.must_have_name(libc::EISDIR)?;
        let found = slot.look()?;
        match found.as_ref().map(|metadata| metadata.kind) {
            None => fail(libc::ENOENT),
            Some(ObjectType::Directory) => fail(libc::EISDIR),
            Some(_) if slot.is_directory => fail(libc::ENOTDIR),
            Some(_) => {
                remove(&slot)?;
                let is_last = |it: &Metadata| it.kind == ObjectType::Fifo && it.link_count < 2;
                if let Some(pipe) = found.filter(is_last) {
                    sockets::forget_pipe(slot.mount, &pipe);
                }
                Ok(0)
            }
        }
    }

    /// Removes an object of any kind.
    pub(crate) fn remove(&mut self, place: &Place) -> Outcome<i32> {
        let slot = self.named_slot(place, libc::EBUSY)?;
        slot.must_have_name(libc::EBUSY)?;
        remove(&slot)
    }

    /// Renames an object on the server.
    pub(crate) fn rename(&mut self, from: &Place, to: &Place, flags: u32) -> Outcome<i32> {
        if flags & !libc::RENAME_NOREPLACE != 0 {
            // A file system that supports none of these flags returns this error.
            return fail(libc::EINVAL);
        }
        if from.mount != to.mount {
            return fail(libc::EXDEV);
        }
        let (from, to) = (self.named_slot(from, libc::EBUSY)?, self.named_slot(to, libc::EBUSY)?);
        from.must_have_name(libc::EBUSY)?;
        to.must_have_name(libc::EBUSY)?;
        if from.is_directory || to.is_directory {
            match from.look()? {
                None => return fail(libc::ENOENT),
                Some(metadata) if metadata.kind != ObjectType::Directory => {
                    return fail(libc::ENOTDIR);
                }
                Some(_) => {}
            }
        }
        if flags == libc::RENAME_NOREPLACE {
            let (old, new) = ((from.directory, &*from.name), (to.directory, &*to.name));
            let renaming = to.session.rename_new_in_async(old, new, &to.path);
            wait_result(&to.session.client(), renaming)?;
            return Ok(0);
        }
        let chain = to.session.chain().at(to.directory);
        let renaming = chain.rename(from.directory, &from.name, &to.name).run_async();
        wait_result(&to.session.client(), renaming)?;
        Ok(0)
    }

    /// Makes a hard link.
    pub(crate) fn link(&mut self, from: &Place, to: &Place, follow: bool) -> Outcome<i32> {
        if from.mount != to.mount {
            return fail(libc::EXDEV);
        }
        let object = self.object(from, follow)?;
        let slot = self.named_slot(to, libc::EEXIST)?;
        slot.must_have_name(libc::EEXIST)?;
        let is_directory = object.metadata.kind == ObjectType::Directory;
        if is_directory || slot.is_directory {
            return fail(match slot.look()? {
                Some(_) => libc::EEXIST,
                None if slot.is_directory => libc::ENOENT,
                None => libc::EPERM,
            });
        }
        let chain = slot.session.chain().at(slot.directory);
        let linking = chain.link(object.metadata.handle, &slot.name).run_async();
        wait_result(&slot.session.client(), linking)?;
        Ok(0)
    }

    /// Makes a symbolic link.
    pub(crate) fn symlink(&mut self, text: &[u8], place: &Place) -> Outcome<i32> {
        if text.is_empty() {
            return fail(libc::ENOENT);
        }
        let slot = self.named_slot(place, libc::EEXIST)?;
        slot.must_have_name(libc::EEXIST)?;
        slot.must_not_be_directory()?;
        let chain = slot.session.chain().at(slot.directory).symlink(text, &slot.name);
        wait_result(&slot.session.client(), chain.run_async())?;
        Ok(0)
    }

    /// Returns the text of a symbolic link.
    pub(crate) fn link_text(&mut self, place: &Place) -> Outcome<Vec<u8>> {
        let slot = self.slot(place)?;
        slot.must_have_name(libc::EINVAL)?;
        if slot.is_directory {
            // With a trailing slash, the path names the target of the link, which is not a link.
            self.object(place, true)?;
            return fail(libc::EINVAL);
        }
        match slot.look()?.map(|metadata| metadata.kind) {
            None => fail(libc::ENOENT),
            Some(ObjectType::SymbolicLink) => read_link(&slot),
            Some(_) => fail(libc::EINVAL),
        }
    }

    /// Makes a named pipe, a device or a socket. The server only stores the name; data passes
    /// through the kernel of the client's host.
    pub(crate) fn make_special(
        &mut self,
        place: &Place,
        object: NewObject<'_>,
        mode: u32,
    ) -> Outcome<i32> {
        let slot = self.named_slot(place, libc::EEXIST)?;
        slot.must_have_name(libc::EEXIST)?;
        slot.must_not_be_directory()?;
        let wanted = SetAttributes { mode: Some(new_mode(mode)), ..SetAttributes::default() };
        let (name, path) = (&*slot.name, &*slot.path);
        let making = slot.session.create_in_async(slot.directory, name, path, object, &wanted);
        wait_result(&slot.session.client(), making)?;
        Ok(0)
    }

    /// Sets attributes of an object.
    pub(crate) fn set(
        &mut self,
        place: &Place,
        follow: bool,
        wanted: &SetAttributes,
    ) -> Outcome<i32> {
        if let Some(number) = place.descriptor {
            let of = self.get(number)?;
            return self.set_attributes(&of, wanted);
        }
        let object = self.object(place, follow)?;
        set(&object, wanted)?;
        Ok(0)
    }

    /// Sets a mode. Fails for symbolic links, which have no mode of their own.
    pub(crate) fn set_mode(&mut self, place: &Place, follow: bool, mode: u32) -> Outcome<i32> {
        let object = self.object(place, follow)?;
        if object.metadata.kind == ObjectType::SymbolicLink {
            return fail(libc::EOPNOTSUPP);
        }
        let wanted = SetAttributes { mode: Some(mode & 0o7777), ..SetAttributes::default() };
        set(&object, &wanted)?;
        Ok(0)
    }

    /// Truncates or extends a file.
    pub(crate) fn truncate(&mut self, place: &Place, length: i64) -> Outcome<i32> {
        if length < 0 {
            return fail(libc::EINVAL);
        }
        let object = self.object(place, true)?;
        match object.metadata.kind {
            ObjectType::Directory => return fail(libc::EISDIR),
            ObjectType::Regular => {}
            _ => return fail(libc::EINVAL),
        }
        let wanted = SetAttributes { size: Some(length as u64), ..SetAttributes::default() };
        set(&object, &wanted)?;
        SharedObject::note_length(object.mount, &object.metadata.handle, length as u64);
        Ok(0)
    }

    /// Checks permissions, as `access` does.
    pub(crate) fn access(&mut self, place: &Place, mode: i32, follow: bool) -> Outcome<i32> {
        if mode & !(libc::R_OK | libc::W_OK | libc::X_OK) != 0 {
            return fail(libc::EINVAL);
        }
        let object = self.object(place, follow)?;
        if mode == libc::F_OK {
            return Ok(0);
        }
        let is_directory = object.metadata.kind == ObjectType::Directory;
        let mut rights = AccessMask(0);
        if mode & libc::R_OK != 0 {
            rights = rights | AccessMask::READ;
        }
        if mode & libc::W_OK != 0 {
            rights = rights | AccessMask::MODIFY | AccessMask::EXTEND;
        }
        if mode & libc::X_OK != 0 {
            rights = rights | if is_directory { AccessMask::LOOKUP } else { AccessMask::EXECUTE };
        }
        must_have(&object.session, object.metadata.handle, rights)?;
        Ok(0)
    }
}

fn set(object: &Object, wanted: &SetAttributes) -> Outcome<()> {
    let session = &object.session;
    let setting = session.set_attributes_async(object.metadata.handle, wanted, &object.path);
    wait_result(&session.client(), setting)
}

fn remove(slot: &Slot) -> Outcome<i32> {
    let chain = slot.session.chain().at(slot.directory).remove(&slot.name);
    wait_result(&slot.session.client(), chain.run_async())?;
    Ok(0)
}
