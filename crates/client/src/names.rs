//! Names and attributes: everything of a file system but the data. What is asked for by
//! handle is put together in `typed.rs`; here are the paths that lead there.
//!
//! Invariant: every error names the path that was asked for.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use dafs_types::{
    AccessMask, DeviceNumber, FileAttributes, FileHandle, FileSystemAttributes, ObjectType,
    SetAttributes, Status, Timestamp,
};
use dafs_wire::AttributeBitmap;
use dafs_wire::attributes::file::bits;
use dafs_wire::messages::NewObject;

use crate::error::Result;
use crate::path::{label, wire};
use crate::session::Session;
use crate::typed::failed;

/// Attributes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// What it is.
    pub kind: ObjectType,
    /// The 12 low bits of the POSIX mode.
    pub mode: u32,
    /// Hard links.
    pub link_count: u32,
    /// Octets.
    pub size: u64,
    /// Unique in its file system.
    pub file_id: u64,
    /// Octets of storage.
    pub space_used: u64,
    /// Last read.
    pub time_access: Timestamp,
    /// Last change of data.
    pub time_modify: Timestamp,
    /// Last change of anything.
    pub time_metadata: Timestamp,
    /// Owner, a decimal number or a name.
    pub owner: String,
    /// Group, a decimal number or a name.
    pub owner_group: String,
    /// Differs after every change.
    pub change: u64,
    /// Its handle.
    pub handle: FileHandle,
    /// Numbers of a device; zeros for what is none.
    pub device: DeviceNumber,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Its name, which is any bytes but a slash and NUL.
    pub name: OsString,
    /// Its attributes; `None` if it was gone when the server looked.
    pub metadata: Option<Metadata>,
}

impl Session {
    /// Attributes; a symbolic link at the end of the path is followed.
    ///
    /// # Errors
    /// As the server says, with the path.
    pub fn metadata(&self, path: impl AsRef<OsStr>) -> Result<Metadata> {
        let path = path.as_ref();
        let handle = self.resolve(path, true)?;
        self.run(self.metadata_async(handle, path))
    }

    /// Attributes of the object itself, be it a symbolic link.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn symlink_metadata(&self, path: impl AsRef<OsStr>) -> Result<Metadata> {
        let path = path.as_ref();
        let handle = self.resolve(path, false)?;
        self.run(self.metadata_async(handle, path))
    }

    /// Sets attributes; a symbolic link at the end of the path is not followed.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn set_attributes(&self, path: impl AsRef<OsStr>, wanted: &SetAttributes) -> Result<()> {
        let path = path.as_ref();
        let handle = self.resolve(path, false)?;
        self.set_attributes_by_handle(handle, wanted, path)
    }

    /// Sets attributes of an object known by its handle. `path` is for messages.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn set_attributes_by_handle(
        &self,
        handle: FileHandle,
        wanted: &SetAttributes,
        path: impl AsRef<OsStr>,
    ) -> Result<()> {
        let path = path.as_ref();
        self.run(self.set_attributes_async(handle, wanted, path))
    }

    /// Which of these rights this session has.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn access(&self, path: impl AsRef<OsStr>, access: AccessMask) -> Result<AccessMask> {
        let path = path.as_ref();
        let file = self.resolve(path, true)?;
        self.run(self.access_async(file, access, path))
    }

    /// Attributes of the file system a path is in.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn file_system(&self, path: impl AsRef<OsStr>) -> Result<FileSystemAttributes> {
        let path = path.as_ref();
        let file = self.resolve(path, true)?;
        self.run(self.file_system_async(file, path))
    }

    // ---- directories ----------------------------------------------------------------

    /// Every entry of a directory, with attributes, in the server's order.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn read_dir(&self, path: impl AsRef<OsStr>) -> Result<Vec<DirectoryEntry>> {
        let path = path.as_ref();
        let directory = self.resolve(path, true)?;
        self.run(self.list_async(directory, path))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn create_dir(&self, path: impl AsRef<OsStr>, mode: u32) -> Result<()> {
        let path = path.as_ref();
        let parent = self.resolve_parent(path)?;
        self.run(self.create_dir_in_async(parent.directory, &parent.name, path, mode)).map(drop)
    }

    /// Makes a symbolic link at `path` that says `text`.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn symlink(&self, text: impl AsRef<[u8]>, path: impl AsRef<OsStr>) -> Result<()> {
        let path = path.as_ref();
        let (parent, text) = (self.resolve_parent(path)?, text.as_ref());
        self.run(self.symlink_in_async(parent.directory, &parent.name, path, text)).map(drop)
    }

    /// Makes a named pipe.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn create_fifo(&self, path: impl AsRef<OsStr>, mode: u32) -> Result<()> {
        let path = path.as_ref();
        let parent = self.resolve_parent(path)?;
        let wanted = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        let fifo = NewObject::Fifo;
        let made = self.create_in_async(parent.directory, &parent.name, path, fifo, &wanted);
        self.run(made).map(drop)
    }

    /// The text of a symbolic link, which is any octets.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn read_link(&self, path: impl AsRef<OsStr>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let handle = self.resolve(path, false)?;
        self.run(self.read_link_async(handle, path))
    }

    /// Gives the object at `path` another name.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn hard_link(&self, path: impl AsRef<OsStr>, new_path: impl AsRef<OsStr>) -> Result<()> {
        let (path, new_path) = (path.as_ref(), new_path.as_ref());
        let source = self.resolve(path, false)?;
        let parent = self.resolve_parent(new_path)?;
        let what = format!("{} -> {}", label(path), label(new_path));
        self.run(self.link_in_async(source, parent.directory, &parent.name, &what))
    }

    /// Removes a file, a link or an empty directory.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn remove(&self, path: impl AsRef<OsStr>) -> Result<()> {
        let path = path.as_ref();
        let parent = self.resolve_parent(path)?;
        self.run(self.remove_in_async(parent.directory, &parent.name, path))
    }

    /// Renames, replacing what is there.
    ///
    /// # Errors
    /// As [`Session::metadata`].
    pub fn rename(&self, path: impl AsRef<OsStr>, new_path: impl AsRef<OsStr>) -> Result<()> {
        let (path, new_path) = (path.as_ref(), new_path.as_ref());
        let from = self.resolve_parent(path)?;
        let to = self.resolve_parent(new_path)?;
        let (source, target) = ((from.directory, &*from.name), (to.directory, &*to.name));
        let what = format!("{} -> {}", label(path), label(new_path));
        self.run(self.rename_in_async(source, target, &what))
    }
}

/// The last name of a path as it goes on the wire. The root does not have one.
pub(crate) fn name_of<'n>(name: &'n OsStr, path: &OsStr) -> Result<Cow<'n, str>> {
    match name.as_bytes() {
        b"" | b"." | b".." => Err(failed(path, Status::Inval)),
        _ => Ok(wire(name)),
    }
}

pub(crate) fn to_metadata(attributes: FileAttributes, handle: FileHandle) -> Option<Metadata> {
    Some(Metadata {
        kind: attributes.object_type?,
        mode: attributes.mode.unwrap_or(0),
        link_count: attributes.link_count.unwrap_or(1),
        size: attributes.size?,
        file_id: attributes.file_id?,
        space_used: attributes.space_used.unwrap_or(0),
        time_access: attributes.time_access.unwrap_or_default(),
        time_modify: attributes.time_modify.unwrap_or_default(),
        time_metadata: attributes.time_metadata.unwrap_or_default(),
        owner: attributes.owner.unwrap_or_default(),
        owner_group: attributes.owner_group.unwrap_or_default(),
        change: attributes.change.unwrap_or(0),
        handle,
        device: attributes.raw_device.unwrap_or_default(),
    })
}

/// What [`Metadata`] needs.
pub(crate) const METADATA: AttributeBitmap = bits::OBJECT_TYPE
    .with(bits::MODE)
    .with(bits::NUM_LINKS)
    .with(bits::CHANGE)
    .with(bits::OBJECT_SIZE)
    .with(bits::FILE_ID)
    .with(bits::SPACE_USED)
    .with(bits::TIME_ACCESS)
    .with(bits::TIME_METADATA)
    .with(bits::TIME_MODIFY)
    .with(bits::FILEHANDLE)
    .with(bits::RAW_DEV)
    .with(bits::OWNER)
    .with(bits::OWNER_GROUP);
