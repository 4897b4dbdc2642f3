//! Calls by path for names and attributes. They resolve paths to handles and then run the requests
//! of `by_handle.rs`.
//!
//! Invariant: every error names the path of the call.

use std::ffi::OsStr;

use dafs_types::{AccessMask, FileHandle, FileSystemAttributes, SetAttributes};
use dafs_wire::messages::NewObject;

use crate::error::Result;
use crate::metadata::{DirectoryEntry, Metadata};
use crate::path::label;
use crate::session::Session;

impl Session {
    /// Returns the attributes of the object at a path, following a symbolic link at its end.
    ///
    /// # Errors
    /// Any error of the server, with the path.
    pub fn metadata(&self, path: impl AsRef<OsStr>) -> Result<Metadata> {
        let path = path.as_ref();
        let handle = self.resolve(path, true)?;
        self.run(self.metadata_async(handle, path))
    }

    /// Returns the attributes of the object at a path, without following a symbolic link at its
    /// end.
    ///
    /// # Errors
    /// The errors of [`Session::metadata`].
    pub fn symlink_metadata(&self, path: impl AsRef<OsStr>) -> Result<Metadata> {
        let path = path.as_ref();
        let handle = self.resolve(path, false)?;
        self.run(self.metadata_async(handle, path))
    }

    /// Sets attributes of the object at a path, without following a symbolic link at its end.
    ///
    /// # Errors
    /// The errors of [`Session::metadata`].
    pub fn set_attributes(&self, path: impl AsRef<OsStr>, wanted: &SetAttributes) -> Result<()> {
        let path = path.as_ref();
        let handle = self.resolve(path, false)?;
        self.set_attributes_by_handle(handle, wanted, path)
    }

    /// Sets attributes of the object with the given handle. `path` is used in error messages only.
    ///
    /// # Errors
    /// The errors of [`Session::metadata`].
    pub fn set_attributes_by_handle(
        &self,
        handle: FileHandle,
        wanted: &SetAttributes,
        path: impl AsRef<OsStr>,
    ) -> Result<()> {
        let path = path.as_ref();
        self.run(self.set_attributes_async(handle, wanted, path))
    }

    /// Returns which of the access rights in `access` this session has to the object at a path.
    ///
    /// # Errors
    /// The errors of [`Session::metadata`].
    pub fn access(&self, path: impl AsRef<OsStr>, access: AccessMask) -> Result<AccessMask> {
        let path = path.as_ref();
        let file = self.resolve(path, true)?;
        self.run(self.access_async(file, access, path))
    }

    /// Returns the attributes of the file system that contains a path.
    ///
    /// # Errors
    /// The errors of [`Session::metadata`].
    pub fn file_system(&self, path: impl AsRef<OsStr>) -> Result<FileSystemAttributes> {
        let path = path.as_ref();
        let file = self.resolve(path, true)?;
        self.run(self.file_system_async(file, path))
    }

    // ---- directories ----------------------------------------------------------------

    /// Returns all entries of a directory with their attributes, in the server's order.
    ///
    /// # Errors
    /// The errors of [`Session::metadata`].
    pub fn read_dir(&self, path: impl AsRef<OsStr>) -> Result<Vec<DirectoryEntry>> {
        let path = path.as_ref();
        let directory = self.resolve(path, true)?;
        self.run(self.list_async(directory, path))
    }

    /// Creates a directory with the given mode bits.
    ///
    /// # Errors
    /// The errors of [`Session::metadata`].
    pub fn create_dir(&self, path: impl AsRef<OsStr>, mode: u32) -> Result<()> {
        let path = path.as_ref();
        let parent = self.resolve_parent(path)?;
        self.run(self.create_dir_in_async(parent.directory, &parent.name, path, mode)).map(drop)
    }

    /// Creates a symbolic link at `path` with the target `text`.
    ///
    /// # Errors
    /// The errors of [`Session::metadata`].
    pub fn symlink(&self, text: impl AsRef<[u8]>, path: impl AsRef<OsStr>) -> Result<()> {
        let path = path.as_ref();
        let (parent, text) = (self.resolve_parent(path)?, text.as_ref());
        self.run(self.symlink_in_async(parent.directory, &parent.name, path, text)).map(drop)
    }

    /// Creates a named pipe with the given mode bits.
    ///
    /// # Errors
    /// The errors of [`Session::metadata`].
    pub fn create_fifo(&self, path: impl AsRef<OsStr>, mode: u32) -> Result<()> {
        let path = path.as_ref();
        let parent = self.resolve_parent(path)?;
        let wanted = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        let fifo = NewObject::Fifo;
        let made = self.create_in_async(parent.directory, &parent.name, path, fifo, &wanted);
        self.run(made).map(drop)
    }

    /// Returns the target of a symbolic link, which may contain any bytes except NUL.
    ///
    /// # Errors
    /// The errors of [`Session::metadata`].
    pub fn read_link(&self, path: impl AsRef<OsStr>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let handle = self.resolve(path, false)?;
        self.run(self.read_link_async(handle, path))
    }

    /// Creates a hard link at `new_path` to the object at `path`.
    ///
    /// # Errors
    /// The errors of [`Session::metadata`].
    pub fn hard_link(&self, path: impl AsRef<OsStr>, new_path: impl AsRef<OsStr>) -> Result<()> {
        let (path, new_path) = (path.as_ref(), new_path.as_ref());
        let source = self.resolve(path, false)?;
        let parent = self.resolve_parent(new_path)?;
        let what = format!("{} -> {}", label(path), label(new_path));
        self.run(self.link_in_async(source, parent.directory, &parent.name, &what))
    }

    /// Removes a file, a symbolic link or an empty directory.
    ///
    /// # Errors
    /// The errors of [`Session::metadata`].
    pub fn remove(&self, path: impl AsRef<OsStr>) -> Result<()> {
        let path = path.as_ref();
        let parent = self.resolve_parent(path)?;
        self.run(self.remove_in_async(parent.directory, &parent.name, path))
    }

    /// Renames an object; an existing object at `new_path` is replaced.
    ///
    /// # Errors
    /// The errors of [`Session::metadata`].
    pub fn rename(&self, path: impl AsRef<OsStr>, new_path: impl AsRef<OsStr>) -> Result<()> {
        let (path, new_path) = (path.as_ref(), new_path.as_ref());
        let from = self.resolve_parent(path)?;
        let to = self.resolve_parent(new_path)?;
        let (source, target) = ((from.directory, &*from.name), (to.directory, &*to.name));
        let what = format!("{} -> {}", label(path), label(new_path));
        self.run(self.rename_in_async(source, target, &what))
    }
}
