//! Gives files the names of objects, and replaces objects.
//!
//! Invariants, which hold for all users of this store, whatever sessions and root directories they
//! use:
//! - A free name is taken by LINK, which fails if another client took the name first. A rename
//!   that may replace an object is the exception: it takes a free name by RENAME, because it must
//!   be atomic.
//! - The name of an existing file is replaced or removed only by the holder of that file's lock: an
//!   exclusive lock on one byte far beyond any data, so that it does not affect readers.
//!
//! So the client that holds the lock knows which version it replaces. The server releases the lock
//! when the open that took it is closed, or when the client dies. Programs that use the files
//! without this store do not take the lock.

use std::time::{Duration, Instant};

use dafs_client::{
    ClientError, File, FileHandle, LockKind, LockOptions, LockType, Metadata, OpenOptions, Outcome,
    ShareAccess, Status,
};

use crate::builder::Durability;
use crate::error::{Fault, StoreError, about};
use crate::names::{Place, temporary};
use crate::objects::{regular, tag};
use crate::worker::{Patience, Site, Worker, is_lost_open, is_missing};
use crate::writing::Made;

/// The condition for giving a file the name of an object.
#[derive(Clone, Debug)]
pub(crate) enum Mode {
    /// An existing object is replaced.
    Overwrite,
    /// The object must not exist.
    Create,
    /// The object must have this e_tag.
    Update(String),
}

/// A file that gets the name of an object.
#[derive(Clone, Copy)]
pub(crate) struct Source<'f> {
    pub handle: FileHandle,
    /// The file, if it is open.
    pub file: Option<&'f File>,
    /// The file's temporary name in the directory of the object, which is removed when the file
    /// gets the object's name; `None` if the file has no name.
    pub temporary: Option<&'f str>,
}

/// A locked object: no other client replaces or removes it while this value exists.
pub(crate) struct Held {
    file: File,
    pub metadata: Metadata,
}

impl Made {
    pub(crate) fn source(&self) -> Source<'_> {
        Source {
            handle: self.file.handle(),
            file: Some(&self.file),
            temporary: self.temporary.as_deref(),
        }
    }
}

impl Worker {
    /// Gives a complete file the name of its object.
    pub(crate) async fn publish(
        &self,
        site: &Site,
        place: &Place,
        made: &Made,
        mode: &Mode,
    ) -> Result<(), Fault> {
        let published = self.publish_in(site, made.directory, place, made.source(), mode).await;
        if let (Err(_), Some(name)) = (&published, &made.temporary) {
            self.remove_temporary(site, &made.file, made.directory, name).await;
        }
        published
    }

    /// Closes a file that does not become an object, and removes its temporary name. The server
    /// refuses to remove the name while the file is open.
    pub(crate) async fn remove_temporary(
        &self,
        site: &Site,
        file: &File,
        directory: FileHandle,
        name: &str,
    ) {
        // Ignore an error: `DafsStore::remove_leftovers` removes the temporary file later.
        let chain = site.session.chain().of(file).close();
        let _ = chain.at(directory).remove(name).run_async().await;
    }

    pub(crate) async fn publish_in(
        &self,
        site: &Site,
        directory: FileHandle,
        place: &Place,
        source: Source<'_>,
        mode: &Mode,
    ) -> Result<(), Fault> {
        match mode {
            Mode::Create => self.link(site, directory, place, source).await,
            Mode::Update(wanted) => {
                match self.replace(site, directory, place, source, Some(wanted)).await? {
                    true => Ok(()),
                    false => Err(Fault::Precondition(StoreError::NothingToUpdate)),
                }
            }
            Mode::Overwrite => {
                let mut patience = Patience::new();
                loop {
                    match self.link(site, directory, place, source).await {
                        Err(Fault::Exists(_)) => {}
                        linked => return linked,
                    }
                    if self.replace(site, directory, place, source, None).await? {
                        return Ok(());
                    }
                    patience.again(self).await?;
                }
            }
        }
    }

    /// Gives a file a name that must be free.
    async fn link(
        &self,
        site: &Site,
        directory: FileHandle,
        place: &Place,
        source: Source<'_>,
    ) -> Result<(), Fault> {
        let mut chain = site.session.chain().at(directory).link(source.handle, &place.name);
        if self.settings.durability == Durability::Disk {
            chain = match source.file {
                Some(file) => chain.of(file).commit(),
                None => chain.at(source.handle).commit(),
            };
        }
        if let Some(name) = source.temporary {
            // Close the file first, because the server does not remove the name of an open file.
            if let Some(file) = source.file {
                chain = chain.of(file).close();
            }
            chain = chain.at(directory).remove(name);
        }
        match chain.run_async().await {
            Ok(_) => Ok(()),
            // The object exists. `DafsStore::remove_leftovers` removes the temporary name later.
            Err(failure) if failure.name == "REMOVE" => Ok(()),
            Err(failure) => {
                let is_linked = failure.member > 0;
                let error = about(failure.error, &place.shown);
                Err(match error.status() {
                    _ if is_linked => Fault::Visible(error),
                    Some(Status::Exist) => Fault::Exists(error),
                    _ => Fault::Client(error),
                })
            }
        }
    }

    /// Replaces an object by a file, if the object has the `wanted` version. Returns false if the
    /// object does not exist.
    async fn replace(
        &self,
        site: &Site,
        directory: FileHandle,
        place: &Place,
        source: Source<'_>,
        wanted: Option<&str>,
    ) -> Result<bool, Fault> {
        let mut patience = Patience::new();
        loop {
            let held = self.hold(site, directory, place, wanted).await?;
            let Some(held) = held else { return Ok(false) };
            if held.file.handle() == source.handle {
                // The file has this name already, in which case RENAME would do nothing.
                return Ok(true);
            }
            match self.rename_over(site, directory, place, source).await {
                // Another client has removed the temporary name (`remove_leftovers`), so try again.
                Err(Fault::Client(error)) if is_missing(&error) && source.temporary.is_none() => {}
                Err(fault) if keeps_name(&fault) => {}
                Err(fault) => return Err(fault),
                Ok(()) => return Ok(true),
            }
            drop(held);
            patience.again(self).await?;
        }
    }

    /// Replaces an object that this client has locked.
    async fn rename_over(
        &self,
        site: &Site,
        directory: FileHandle,
        place: &Place,
        source: Source<'_>,
    ) -> Result<(), Fault> {
        let own = temporary();
        let mut chain = site.session.chain().at(directory);
        if source.temporary.is_none() {
            chain = chain.link(source.handle, &own).at(directory);
        }
        let name = source.temporary.unwrap_or(&own);
        chain = chain.rename(directory, name, &place.name);
        if self.settings.durability == Durability::Disk {
            chain = match source.file {
                Some(file) => chain.of(file).commit(),
                None => chain.at(source.handle).commit(),
            };
        }
        let Err(failure) = chain.run_async().await else { return Ok(()) };
        if source.temporary.is_none() && failure.member == 1 {
            // Ignore an error: `DafsStore::remove_leftovers` removes the temporary file later.
            let _ = site.session.remove_in_async(directory, &own, &own).await;
        }
        let is_renamed = failure.name == "COMMIT";
        let error = about(failure.error, &place.shown);
        Err(if is_renamed { Fault::Visible(error) } else { Fault::Client(error) })
    }

    /// Locks an object, so that no other client replaces or removes it. Fails if the object does
    /// not have the `wanted` version. Returns `None` if the object does not exist.
    pub(crate) async fn hold(
        &self,
        site: &Site,
        directory: FileHandle,
        place: &Place,
        wanted: Option<&str>,
    ) -> Result<Option<Held>, Fault> {
        self.hold_if(site, directory, place, wanted, None).await
    }

    /// Locks an object like `hold`, if it is the `expected` file. Does not wait for the lock of
    /// another file.
    ///
    /// # Errors
    /// DEADLOCK if it would have to wait for the lock of another file.
    pub(crate) async fn hold_if(
        &self,
        site: &Site,
        directory: FileHandle,
        place: &Place,
        wanted: Option<&str>,
        expected: Option<FileHandle>,
    ) -> Result<Option<Held>, Fault> {
        let session = &site.session;
        let named = |error| Fault::Client(about(error, &place.shown));
        let mut patience = Patience::new();
        loop {
            let chain =
                session.chain().at(directory).open_in(&place.name, &place.shown, &for_locking());
            let chain = chain.lock(LockType::Write, LOCK_OFFSET, 1);
            let run = chain.at(directory).lookup(&place.name).getattr().run_async().await;
            let (done, failure) = match run {
                Ok(done) => (done, None),
                Err(failure) => (failure.done, Some(failure.error)),
            };
            let Some(Outcome::Opened { file, state }) = done.first() else {
                return match failure {
                    Some(error) if is_missing(&error) => Ok(None),
                    Some(error) => Err(named(error)),
                    None => Err(Fault::Refused(StoreError::NotAnObject)),
                };
            };
            // Dropping the file closes it, which releases the lock.
            let file = session.opened(*file, *state, &place.shown);
            let metadata = match failure {
                None => Some(regular(done.into_iter().next_back(), &place.shown).map_err(named)?),
                Some(error) if is_missing(&error) || is_lost_open(&error) => None,
                Some(error) if error.status() == Some(Status::Denied) => {
                    if expected.is_some_and(|expected| expected != file.handle()) {
                        let (what, status) = (place.shown.clone(), Status::Deadlock);
                        return Err(ClientError::Status { what, status }.into());
                    }
                    match self.wait_for_lock(&file).await {
                        Err(Fault::Client(error)) if is_lost_open(&error) => None,
                        waited => {
                            waited?;
                            let name = &place.name;
                            self.look_in(session, directory, name).await.map_err(named)?
                        }
                    }
                }
                Some(error) => return Err(named(error)),
            };
            if let Some(metadata) = metadata {
                check_version(&metadata, wanted)?;
                if metadata.handle == file.handle() {
                    return Ok(Some(Held { file, metadata }));
                }
            }
            // Another client has replaced or removed the object, so try again.
            drop(file);
            patience.again(self).await?;
        }
    }

    async fn wait_for_lock(&self, file: &File) -> Result<(), Fault> {
        let until = Instant::now() + LOCK_WAIT_MAX;
        let mut pause = LOCK_PAUSE_MIN;
        loop {
            let options = LockOptions::default();
            let lock = file.queue_lock_async(LockKind::Exclusive, LOCK_OFFSET, 1, options);
            if lock.await?.is_none() {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(ClientError::TimedOut.into());
            }
            self.timers.sleep(pause).await;
            pause = (pause * 2).min(dafs_client::LOCK_POLL_MAX);
        }
    }
}

/// Returns the options to open an object for locking. An exclusive lock needs write access.
fn for_locking() -> OpenOptions {
    OpenOptions::read().access(ShareAccess::Both)
}

fn check_version(metadata: &Metadata, wanted: Option<&str>) -> Result<(), Fault> {
    let found = tag(metadata);
    match wanted {
        Some(wanted) if wanted != found => {
            let wanted = wanted.to_owned();
            Err(Fault::Precondition(StoreError::Changed { wanted, found }))
        }
        _ => Ok(()),
    }
}

/// True if the operation failed because an open of the object protects its name. The open of a
/// recently completed upload protects the name for a moment.
pub(crate) fn keeps_name(fault: &Fault) -> bool {
    matches!(fault, Fault::Client(_)) && fault.status() == Some(Status::DenyDispConflict)
}

/// The offset of the byte to lock, beyond the end of any file.
const LOCK_OFFSET: u64 = 1 << 62;
/// The maximum time to wait for another client. A client that died keeps its locks until its lease
/// ends.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(120);
/// The shortest pause between two requests for a lock.
const LOCK_PAUSE_MIN: Duration = Duration::from_millis(1);
