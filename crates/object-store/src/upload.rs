//! Multipart uploads: parts are written into a temporary file, which becomes the object when the
//! upload is completed.
//!
//! Invariants:
//! - A part that was written is on stable storage, so an upload survives a server restart.
//! - The server refuses to remove the temporary file while it is open. So
//!   `DafsStore::remove_leftovers` removes only files of dead clients.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use async_trait::async_trait;
use dafs_client::{File, FileHandle, Status};
use object_store::path::Path;
use object_store::{MultipartUpload, PutPayload, PutResult, UploadPart};

use crate::bell::Garbage;
use crate::driver::Driver;
use crate::error::{Fault, StoreError};
use crate::names::{Place, temporary};
use crate::objects::tag;
use crate::publishing::{Mode, Source};
use crate::worker::{Patience, Site, Worker};
use crate::writing::write_all;

/// The state of an upload on its driver thread.
pub(crate) struct OpenUpload {
    place: Place,
    site: Site,
    directory: FileHandle,
    temporary: String,
    file: File,
    written: Cell<u64>,
}

/// The state of an upload on the caller's side.
pub(crate) struct Upload {
    driver: Arc<Driver>,
    location: Path,
    /// The number of the upload; `None` once it is completed or aborted.
    number: Option<u64>,
    length: u64,
}

impl Upload {
    pub(crate) async fn begin(driver: Arc<Driver>, location: Path) -> object_store::Result<Self> {
        let begin = async {
            let place = Place::of(&location)?;
            let begun = driver.call(move |worker| worker.begin_upload(place)).await?;
            Ok::<_, Fault>(begun.take())
        };
        let number = begin.await.map_err(|fault| fault.at(&location))?;
        Ok(Self { driver, location, number: Some(number), length: 0 })
    }

    fn over(&self) -> object_store::Error {
        Fault::Refused(StoreError::UploadOver).at(&self.location)
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let offset = self.length;
        self.length += data.content_length() as u64;
        let (number, over) = (self.number, self.over());
        let (driver, location) = (self.driver.clone(), self.location.clone());
        Box::pin(async move {
            let number = number.ok_or(over)?;
            let written = driver.call(move |worker| worker.write_part(number, offset, data)).await;
            written.map_err(|fault| fault.at(&location))
        })
    }

    async fn complete(&mut self) -> object_store::Result<PutResult> {
        let number = self.number.ok_or_else(|| self.over())?;
        let length = self.length;
        let completed = self.driver.call(move |worker| worker.complete_upload(number, length));
        let e_tag = completed.await.map_err(|fault| fault.at(&self.location))?;
        self.number = None;
        Ok(PutResult { e_tag: Some(e_tag), version: None, extensions: Default::default() })
    }

    async fn abort(&mut self) -> object_store::Result<()> {
        let number = self.number.take().ok_or_else(|| self.over())?;
        let aborted = self.driver.call(move |worker| worker.abort_upload(number)).await;
        aborted.map_err(|fault| fault.at(&self.location))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(number) = self.number.take() {
            self.driver.bell().discard(Garbage::Upload(number));
        }
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload")
            .field("location", &self.location)
            .field("length", &self.length)
            .field("is_over", &self.number.is_none())
            .finish()
    }
}

/// The number of a new upload on its way to the caller. If the value is dropped before it arrives,
/// the upload is aborted.
pub(crate) struct Begun(Option<u64>, Arc<crate::bell::Bell>);

impl Begun {
    fn take(mut self) -> u64 {
        self.0.take().unwrap_or_default()
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(number) = self.0.take() {
            self.1.discard(Garbage::Upload(number));
        }
    }
}

impl Worker {
    pub(crate) async fn begin_upload(self: Rc<Self>, place: Place) -> Result<Begun, Fault> {
        let mut patience = Patience::new();
        loop {
            let site = self.site().await?;
            let directory = self.made_directory(&site, &place.parents, &place.shown).await?;
            let temporary = temporary();
            let options = self.new_file(true);
            let file =
                site.session.open_in_async(directory, &temporary, &place.shown, &options).await;
            let file = match file {
                // Another client has removed the empty directory, or the name is taken. Try again.
                Err(error)
                    if matches!(
                        error.status(),
                        Some(Status::NoEnt | Status::Stale | Status::Exist)
                    ) =>
                {
                    patience.again(&self).await?;
                    continue;
                }
                opened => opened?,
            };
            let number = self.next_number();
            let written = Cell::new(0);
            let upload = OpenUpload { place, site, directory, temporary, file, written };
            self.uploads.borrow_mut().insert(number, Rc::new(upload));
            return Ok(Begun(Some(number), self.bell.clone()));
        }
    }

    fn upload(&self, number: u64) -> Result<Rc<OpenUpload>, Fault> {
        let upload = self.uploads.borrow().get(&number).cloned();
        upload.ok_or(Fault::Refused(StoreError::UploadOver))
    }

    pub(crate) async fn write_part(
        self: Rc<Self>,
        number: u64,
        offset: u64,
        data: PutPayload,
    ) -> Result<(), Fault> {
        let upload = self.upload(number)?;
        write_all(&upload.file, offset, &data).await.map_err(Fault::of_open)?;
        upload.written.set(upload.written.get() + data.content_length() as u64);
        Ok(())
    }

    pub(crate) async fn complete_upload(
        self: Rc<Self>,
        number: u64,
        length: u64,
    ) -> Result<String, Fault> {
        let upload = self.upload(number)?;
        let missing = length.saturating_sub(upload.written.get());
        if missing > 0 {
            return Err(Fault::Refused(StoreError::PartsMissing { missing }));
        }
        let OpenUpload { place, site, directory, temporary, file, .. } = &*upload;
        let metadata = site.session.metadata_async(file.handle(), &place.shown).await;
        let metadata = metadata.map_err(|error| Fault::from(error).of_open())?;
        let source = Source { handle: file.handle(), file: Some(file), temporary: Some(temporary) };
        let published = self.publish_in(site, *directory, place, source, &Mode::Overwrite).await;
        published.map_err(Fault::of_open)?;
        self.uploads.borrow_mut().remove(&number);
        Ok(tag(&metadata))
    }

    /// Aborts an upload and removes its temporary file.
    pub(crate) async fn abort_upload(self: Rc<Self>, number: u64) -> Result<(), Fault> {
        let upload = self.uploads.borrow_mut().remove(&number);
        // The upload may have been lost with its session.
        let Some(upload) = upload else { return Ok(()) };
        // Parts that are still being written hold a reference to the upload.
        let upload = match Rc::try_unwrap(upload) {
            Ok(upload) => upload,
            Err(shared) => self.last_of(shared).await,
        };
        let OpenUpload { place, site, directory, temporary, file, .. } = upload;
        // Close the file first, because the server does not remove the name of an open file.
        let closed = file.close_async().await;
        let removed = site.session.remove_in_async(directory, &temporary, &place.shown).await;
        closed.and(removed).map_err(|error| Fault::from(error).of_open())?;
        if self.settings.removes_directories {
            self.remove_directories(&site, &place).await;
        }
        Ok(())
    }

    /// Waits until all writes of parts have ended and have released the upload.
    async fn last_of(&self, mut shared: Rc<OpenUpload>) -> OpenUpload {
        loop {
            match Rc::try_unwrap(shared) {
                Ok(upload) => return upload,
                Err(still) => shared = still,
            }
            self.timers.sleep(PARTS_PAUSE).await;
        }
    }
}

/// The pause between two checks whether the parts of an upload have ended.
const PARTS_PAUSE: std::time::Duration = std::time::Duration::from_millis(5);
