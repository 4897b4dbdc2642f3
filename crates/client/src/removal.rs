//! Removes a directory with its whole content.
//!
//! Invariant: the tree is walked by directory handles, and entries are removed by their names in
//! those directories. So no symbolic link is followed, even if a link replaces a directory during
//! the removal. Objects that cannot be removed are reported. Objects that another client removes
//! during the removal count as removed.

use std::cell::{Cell, RefCell};
use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::os::unix::ffi::OsStrExt;
use std::pin::Pin;
use std::task::Poll;

use dafs_types::{FileHandle, FsHandle, ObjectType, Status};

use crate::error::{ClientError, Result};
use crate::metadata::DirectoryEntry;
use crate::path::label;
use crate::refusal::name_of;
use crate::session::Session;

impl Session {
    /// Removes a name from a directory and, if the object is a directory, its whole content. At
    /// most `depth_max` levels of directories are entered, including the first; deeper directories
    /// are removed only if they are empty. `path` is used in error messages only.
    ///
    /// Errors about single objects are passed to `tell`, and the removal continues.
    ///
    /// # Errors
    /// If the name does not exist, or the session has ended. [`ClientError::CannotRemove`] for the
    /// root of the server, of an export or of a mounted file system; in this case no object was
    /// removed.
    pub async fn remove_tree_in_async<N, P>(
        &self,
        directory: FileHandle,
        name: &N,
        path: &P,
        depth_max: Option<usize>,
        tell: &mut dyn FnMut(ClientError),
    ) -> Result<()>
    where
        N: AsRef<OsStr> + ?Sized,
        P: AsRef<OsStr> + ?Sized,
    {
        let (name, path) = (name.as_ref(), path.as_ref());
        name_of(name, path)?;
        let top = self.lookup_in_async(directory, name, path).await?;
        let found = match self.metadata_async(top, path).await {
            // The object was removed after its name was looked up, so the name no longer exists.
            Err(ClientError::Status { what, status: Status::Stale }) => {
                return Err(ClientError::Status { what, status: Status::NoEnt });
            }
            found => found?,
        };
        if found.kind != ObjectType::Directory {
            return self.remove_in_async(directory, name, path).await;
        }
        // The name of a file system's root cannot be removed, so its content is not removed either.
        if top == self.root || file_system_of(top) != file_system_of(directory) {
            return Err(ClientError::CannotRemove { path: label(path).into_owned() });
        }
        let mut removal = Removal {
            session: self,
            directory,
            depth_max: depth_max.unwrap_or(DEPTH_MAX).min(DEPTH_MAX),
            path: path.as_bytes().to_vec(),
            way: Vec::new(),
            tell: RefCell::new(tell),
        };
        if removal.depth_max == 0 {
            return self.remove_in_async(directory, name, path).await;
        }
        removal.enter(top, name.to_owned()).await?;
        while let Some(level) = removal.way.last_mut() {
            match level.left.next() {
                Some(name) => removal.go_down(name).await?,
                None => removal.go_up().await?,
            }
        }
        Ok(())
    }
}

/// The state of the removal of one directory tree.
struct Removal<'s, 't> {
    session: &'s Session,
    /// The directory that contains the name of the tree to remove.
    directory: FileHandle,
    depth_max: usize,
    /// The path of the current directory, for error messages.
    path: Vec<u8>,
    /// The directories from the top to the current one.
    way: Vec<Level>,
    tell: RefCell<&'t mut dyn FnMut(ClientError)>,
}

/// One directory on the path from the top of the tree to the current directory.
struct Level {
    handle: FileHandle,
    name: OsString,
    /// The length in bytes of the parent directory's path.
    path_length: usize,
    /// The subdirectories that are still to be removed.
    left: std::vec::IntoIter<OsString>,
    /// The reason why the directory could not be listed; `None` if it was listed. The directory may
    /// be empty and removable nevertheless.
    unlisted: Option<ClientError>,
    /// True if an object in the directory could not be removed; the error was already reported.
    stays: bool,
}

impl Removal<'_, '_> {
    /// Enters the directory at `self.path` and removes everything in it except directories.
    async fn enter(&mut self, handle: FileHandle, name: OsString) -> Result<()> {
        let path_length = self.path.len().saturating_sub(name.len() + 1);
        let (left, stays) = (Vec::new().into_iter(), false);
        let mut level = Level { handle, name, path_length, left, unlisted: None, stays };
        match self.session.list_async(handle, OsStr::from_bytes(&self.path)).await {
            Ok(entries) => {
                // Directories beyond the depth limit are not entered; they are removed like files.
                let is_entered = self.way.len() + 1 < self.depth_max;
                let is_directory = |entry: &DirectoryEntry| {
                    let kind = entry.metadata.as_ref().map(|found| found.kind);
                    is_entered && kind == Some(ObjectType::Directory)
                };
                let (directories, others): (Vec<_>, Vec<_>) =
                    entries.into_iter().partition(is_directory);
                level.stays = self.remove_all(handle, &others).await?;
                let names = directories.into_iter().map(|entry| entry.name);
                level.left = names.collect::<Vec<_>>().into_iter();
            }
            Err(error) if is_of_one(&error) => level.unlisted = Some(error),
            Err(error) => return Err(error),
        }
        self.way.push(level);
        Ok(())
    }

    /// Enters a subdirectory of the current directory.
    async fn go_down(&mut self, name: OsString) -> Result<()> {
        let Some(here) = self.way.last().map(|level| level.handle) else { return Ok(()) };
        let path = self.below(&name);
        let found = self.session.lookup_in_async(here, &name, OsStr::from_bytes(&path)).await;
        match found {
            Ok(handle) => {
                self.path = path;
                self.enter(handle, name).await
            }
            Err(error) => {
                let stays = self.note(Err(error))?;
                self.keep(stays);
                Ok(())
            }
        }
    }

    /// Removes the current directory if every object in it was removed, and continues in its
    /// parent.
    async fn go_up(&mut self) -> Result<()> {
        let Some(level) = self.way.pop() else { return Ok(()) };
        let above = self.way.last().map_or(self.directory, |above| above.handle);
        let mut stays = level.stays;
        if !stays {
            let path = OsStr::from_bytes(&self.path);
            let removed = self.session.remove_in_async(above, &level.name, path).await;
            let removed = match (removed, level.unlisted) {
                // The reason why the directory could not be listed is more useful than "not empty".
                (Err(error), Some(unlisted)) if is_of_one(&error) && !is_gone(&error) => {
                    Err(unlisted)
                }
                (removed, _) => removed,
            };
            stays = self.note(removed)?;
        }
        self.keep(stays);
        self.path.truncate(level.path_length);
        Ok(())
    }

    /// If `stays` is true, records that an object in the current directory was not removed.
    fn keep(&mut self, stays: bool) {
        if let Some(level) = self.way.last_mut() {
            level.stays |= stays;
        }
    }

    /// Removes names from a directory. Returns true if one of the objects could not be removed.
    async fn remove_all(&self, directory: FileHandle, entries: &[DirectoryEntry]) -> Result<bool> {
        let (stays, end) = (Cell::new(false), RefCell::new(Ok(())));
        let entries = entries.iter().take_while(|_| end.borrow().is_ok());
        let removals = entries.map(|entry| self.remove_one(directory, &entry.name, &stays, &end));
        several_at_a_time(removals).await;
        end.into_inner()?;
        Ok(stays.get())
    }

    async fn remove_one(
        &self,
        directory: FileHandle,
        name: &OsStr,
        stays: &Cell<bool>,
        end: &RefCell<Result<()>>,
    ) {
        let path = self.below(name);
        let path = OsStr::from_bytes(&path);
        let removed = self.session.remove_in_async(directory, name, path).await;
        match self.note(removed) {
            Ok(one_stays) => stays.set(stays.get() || one_stays),
            Err(error) => *end.borrow_mut() = Err(error),
        }
    }

    /// Returns true if an object could not be removed, and reports the error. Returns an error that
    /// is not about a single object, which ends the removal.
    fn note(&self, removed: Result<()>) -> Result<bool> {
        match removed {
            Ok(()) => Ok(false),
            Err(error) if is_gone(&error) => Ok(false),
            Err(error) if is_of_one(&error) => {
                let mut tell = self.tell.borrow_mut();
                tell(error);
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    fn below(&self, name: &OsStr) -> Vec<u8> {
        [&self.path, name.as_bytes()].join(&b'/')
    }
}

/// Returns the handle of an object's file system without the node number, which differs between the
/// nodes of a federation.
fn file_system_of(handle: FileHandle) -> FsHandle {
    let mut system = handle.fs();
    system.0[6..8].fill(0);
    system
}

/// Returns true if the object, or the directory it was in, was removed by another client.
fn is_gone(error: &ClientError) -> bool {
    matches!(error.status(), Some(Status::NoEnt | Status::Stale))
}

/// Returns true if an error is about one object, so that the removal of others can continue.
fn is_of_one(error: &ClientError) -> bool {
    matches!(error, ClientError::Status { .. } | ClientError::OutcomeUnknown { .. })
}

/// Runs futures to completion, at most [`WIDTH`] of them at a time.
async fn several_at_a_time<F: Future<Output = ()>>(mut futures: impl Iterator<Item = F>) {
    let mut running: Vec<Pin<Box<F>>> = Vec::new();
    std::future::poll_fn(|context| {
        loop {
            running.extend(futures.by_ref().take(WIDTH - running.len()).map(Box::pin));
            let count = running.len();
            running.retain_mut(|future| future.as_mut().poll(context).is_pending());
            match running.len() {
                0 if count == 0 => return Poll::Ready(()),
                left if left == count => return Poll::Pending,
                _ => {}
            }
        }
    })
    .await;
}

/// The maximum number of REMOVE requests in flight.
const WIDTH: usize = 32;
/// The limit for nested directories: above what real programs create, but low enough that a
/// malicious server that invents directories cannot exhaust this client's memory.
const DEPTH_MAX: usize = 1 << 16;
