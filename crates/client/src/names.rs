//! Names and attributes: everything of a file system but the data. What is asked for by
//! handle is put together in `typed.rs`; here are the paths that lead there.
//!
//! Invariant: every error names the path that was asked for.

use std::ffi::OsStr;

use dafs_types::{AccessMask, FileHandle, FileSystemAttributes, SetAttributes};
use dafs_wire::messages::NewObject;

use crate::error::Result;
use crate::metadata::{DirectoryEntry, Metadata};
use crate::path::label;
use crate::session::Session;

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

    /// The text of a symbolic link, which is any bytes.
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
