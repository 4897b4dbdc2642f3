//! Deletes, copies and renames objects.
//!
//! Invariant: only the holder of an object's lock removes its name.

use std::cell::Cell;
use std::rc::Rc;

use dafs_client::{ClientError, File, FileHandle, Metadata, OpenOptions, Status};
use object_store::PutPayload;

use crate::error::{Fault, about};
use crate::names::Place;
use crate::publishing::{Held, Mode, Source, keeps_name};
use crate::reading::read_all;
use crate::worker::{Patience, Site, Worker};
use crate::writing::{PIECE_BYTES, is_gone, write_all};

impl Worker {
    /// Deletes an object.
    pub(crate) async fn delete(self: Rc<Self>, place: Place) -> Result<(), Fault> {
        let site = self.site().await?;
        let existing = |error| Fault::of_existing(about(error, &place.shown));
        let directory = self.directory(&site, &place.parents, &place.shown).await;
        let directory = directory.map_err(existing)?;
        let mut patience = Patience::new();
        loop {
            let held = self.hold(&site, directory, &place, None).await.map_err(Fault::existing)?;
            let held = held.ok_or_else(|| missing(&place))?;
            let removed = site.session.remove_in_async(directory, &place.name, &place.shown).await;
            drop(held);
            match removed.map_err(existing) {
                Err(fault) if keeps_name(&fault) => patience.again(&self).await?,
                removed => break removed?,
            }
        }
        if self.settings.removes_directories {
            self.remove_directories(&site, &place).await;
        }
        Ok(())
    }

    /// Removes the directories that contain an object, starting with the innermost. Stops at the
    /// first directory that is not empty.
    pub(crate) async fn remove_directories(&self, site: &Site, place: &Place) {
        for depth in (0..place.parents.len()).rev() {
            let name = &place.parents[depth];
            let removed = async {
                let above = self.directory(site, &place.parents[..depth], name).await?;
                site.session.remove_in_async(above, name, name).await
            };
            if removed.await.is_err() {
                return;
            }
        }
    }

    /// Copies an object by giving its file another name. Both objects can share the file, because
    /// no operation of this store changes a file.
    pub(crate) async fn copy(
        self: Rc<Self>,
        from: Place,
        to: Place,
        mode: Mode,
    ) -> Result<(), Fault> {
        let mut patience = Patience::new();
        loop {
            let site = self.site().await?;
            let metadata = self.look_up(&site, &from).await?;
            let directory = self.made_directory(&site, &to.parents, &to.shown).await?;
            let source = Source { handle: metadata.handle, file: None, temporary: None };
            let linked = self.publish_in(&site, directory, &to, source, &mode).await;
            match linked {
                // The source or the directory was removed meanwhile.
                Err(fault) if is_gone(&fault) => {}
                Err(fault) if cannot_link(&fault) => {
                    return self.copy_bytes(&site, metadata.handle, &to, &mode).await;
                }
                linked => return linked,
            }
            patience.again(&self).await?;
        }
    }

    /// Copies the data of an object whose file cannot have a second name.
    async fn copy_bytes(
        &self,
        site: &Site,
        source: FileHandle,
        to: &Place,
        mode: &Mode,
    ) -> Result<(), Fault> {
        let mut made = self.make(site, to, &PutPayload::new()).await?;
        match self.fill_copy(site, source, &made.file, to).await {
            Ok(metadata) => made.metadata = metadata,
            Err(fault) => {
                if let Some(name) = &made.temporary {
                    self.remove_temporary(site, &made.file, made.directory, name).await;
                }
                return Err(fault);
            }
        }
        self.publish(site, to, &made, mode).await
    }

    /// Copies the bytes of a file to a new file. Returns the attributes of the new file.
    async fn fill_copy(
        &self,
        site: &Site,
        source: FileHandle,
        copy: &File,
        to: &Place,
    ) -> Result<Metadata, Fault> {
        let session = &site.session;
        let file = session.open_handle_async(source, &to.shown, &OpenOptions::read()).await?;
        let size = session.metadata_async(source, &to.shown).await?.size;
        let mut at = 0;
        while at < size {
            let length = usize::try_from(size - at).map_or(PIECE_BYTES, |n| n.min(PIECE_BYTES));
            let buffer = session.client().allocate(length)?;
            read_all(&file, at, &buffer, 0, length).await?;
            let bytes = buffer.memory().to_vec(0, length);
            write_all(copy, at, &PutPayload::from(bytes)).await?;
            at += length as u64;
        }
        Ok(session.metadata_async(copy.handle(), &to.shown).await?)
    }

    /// Renames an object. If `is_new` is false, an object with the new name is replaced, and the
    /// rename is atomic. If `is_new` is true, the new name must be free, and the object has both
    /// names for a moment.
    pub(crate) async fn rename(
        self: Rc<Self>,
        from: Place,
        to: Place,
        is_new: bool,
    ) -> Result<(), Fault> {
        let mut patience = Patience::new();
        let linked = Cell::new(None);
        loop {
            let site = self.site().await?;
            let renamed = match is_new {
                true => self.rename_to_new(&site, &from, &to, &linked).await,
                false => self.rename_once(&site, &from, &to).await,
            };
            let is_crossed =
                matches!(&renamed, Err(fault) if fault.status() == Some(Status::Deadlock));
            match renamed {
                Err(fault) if is_gone(&fault) || keeps_name(&fault) || is_crossed => {
                    patience.again(&self).await?;
                }
                renamed => return renamed,
            }
        }
    }

    /// Gives an object a name that is free, and removes its old one. `linked` is the file that an
    /// earlier attempt has given the new name.
    async fn rename_to_new(
        &self,
        site: &Site,
        from: &Place,
        to: &Place,
        linked: &Cell<Option<FileHandle>>,
    ) -> Result<(), Fault> {
        let session = &site.session;
        let existing = |error| Fault::of_existing(about(error, &from.shown));
        let (source, moved) = match self.find(site, from).await {
            // An earlier attempt has made the new name, and the old name was removed meanwhile.
            Err(Fault::Missing(_)) if linked.get().is_some() => return Ok(()),
            found => found?,
        };
        let target = self.made_directory(site, &to.parents, &to.shown).await?;
        let held = self.hold_expected(site, (source, from, moved)).await?;
        let new = Source { handle: held.metadata.handle, file: None, temporary: None };
        match self.publish_in(site, target, to, new, &Mode::Create).await {
            Err(Fault::Exists(error)) => {
                let found = self.look_in(session, target, &to.name).await?;
                let is_own = linked.get().is_some_and(|linked| {
                    linked == moved && found.is_some_and(|found| found.handle == linked)
                });
                if !is_own {
                    return Err(Fault::Exists(error));
                }
            }
            published => published?,
        }
        linked.set(Some(moved));
        // Keep the lock: no other client may move the object while it has both names.
        let mut patience = Patience::new();
        loop {
            let removed = session.remove_in_async(source, &from.name, &from.shown).await;
            match removed.map_err(existing) {
                Err(fault) if keeps_name(&fault) => patience.again(self).await?,
                Err(Fault::Missing(_)) => return Ok(()),
                removed => return removed,
            }
        }
    }

    /// Returns the directory of an object, and the object.
    async fn find(&self, site: &Site, place: &Place) -> Result<(FileHandle, FileHandle), Fault> {
        let existing = |error| Fault::of_existing(about(error, &place.shown));
        let directory = self.directory(site, &place.parents, &place.shown).await;
        let directory = directory.map_err(existing)?;
        let found = self.look_in(&site.session, directory, &place.name).await.map_err(existing)?;
        Ok((directory, found.ok_or_else(|| missing(place))?.handle))
    }

    async fn rename_once(&self, site: &Site, from: &Place, to: &Place) -> Result<(), Fault> {
        let session = &site.session;
        let existing = |error| Fault::of_existing(about(error, &from.shown));
        let (source, moved) = self.find(site, from).await?;
        let target = self.made_directory(site, &to.parents, &to.shown).await?;
        let from_here = (source, from, moved);
        if (source, &from.name) == (target, &to.name) {
            return Ok(());
        }
        let replaced = self.look_in(session, target, &to.name).await?.map(|found| found.handle);
        // All clients take the locks of two files in the order of their handles, to avoid a
        // deadlock.
        let (held, _replaced) = match replaced {
            None => (self.hold_expected(site, from_here).await?, None),
            Some(replaced) if replaced == moved => {
                // Both names lead to one file, in which case RENAME would change nothing.
                let _held = self.hold_expected(site, from_here).await?;
                return session
                    .remove_in_async(source, &from.name, &from.shown)
                    .await
                    .map_err(existing);
            }
            Some(replaced) if replaced.0 < moved.0 => {
                let other = self.hold_expected(site, (target, to, replaced)).await?;
                (self.hold_expected(site, from_here).await?, Some(other))
            }
            Some(replaced) => {
                let held = self.hold_expected(site, from_here).await?;
                (held, Some(self.hold_expected(site, (target, to, replaced)).await?))
            }
        };
        let (old, new) = ((source, &from.name), (target, &to.name));
        let renamed = session.rename_in_async(old, new, &to.shown).await;
        self.settle_rename(site, &held, renamed, &to.shown).await
    }

    /// Locks an object, which must still be the given file.
    ///
    /// # Errors
    /// NOENT or DEADLOCK if the name leads to another file by now. The caller then starts again.
    async fn hold_expected(
        &self,
        site: &Site,
        (directory, place, file): (FileHandle, &Place, FileHandle),
    ) -> Result<Held, Fault> {
        match self
            .hold_if(site, directory, place, None, Some(file))
            .await
            .map_err(Fault::existing)?
        {
            Some(held) if held.metadata.handle == file => Ok(held),
            _ => {
                let (what, status) = (place.shown.clone(), Status::NoEnt);
                Err(ClientError::Status { what, status }.into())
            }
        }
    }

    async fn settle_rename(
        &self,
        site: &Site,
        held: &Held,
        renamed: Result<(), ClientError>,
        shown: &str,
    ) -> Result<(), Fault> {
        renamed?;
        if self.settings.durability == crate::builder::Durability::Disk {
            let chain = site.session.chain().at(held.metadata.handle).commit();
            let committed = chain.run_async().await;
            committed.map_err(|failure| Fault::Visible(about(failure.error, shown)))?;
        }
        Ok(())
    }
}

fn missing(place: &Place) -> Fault {
    let (what, status) = (place.shown.clone(), Status::NoEnt);
    Fault::Missing(ClientError::Status { what, status })
}

/// True if a file cannot get another name there, so that its data must be copied.
fn cannot_link(fault: &Fault) -> bool {
    matches!(fault, Fault::Client(_))
        && matches!(
            fault.status(),
            Some(Status::Perm | Status::MLink | Status::XDev | Status::NotSupp)
        )
}
