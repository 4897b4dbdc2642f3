//! The store, which implements the traits of `object_store` with driver threads.
//!
//! Invariant: nothing here blocks the caller's thread for the network. Each operation is sent to a
//! driver thread, and a future waits for the reply.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::stream::{BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyMode, CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, RenameOptions, RenameTargetMode, Result, TagSet,
};

use crate::driver::Driver;
use crate::error::{Fault, StoreError};
use crate::listing::{self, Entry};
use crate::names::Place;
use crate::objects::RemoteFile;
use crate::publishing::Mode;
use crate::reading::{Got, Plan, Ranged};
use crate::upload::Upload;
use crate::writing::PIECE_BYTES;

/// An object store in a directory of a DAFS server. Cloning is cheap; clones share the connections.
///
/// [`DafsStoreBuilder`](crate::DafsStoreBuilder) makes a store. A store works with any executor.
#[derive(Clone)]
pub struct DafsStore(Arc<Inner>);

struct Inner {
    drivers: Vec<Arc<Driver>>,
    next: AtomicUsize,
    shown: String,
}

impl DafsStore {
    pub(crate) fn over(drivers: Vec<Arc<Driver>>, shown: String) -> Self {
        Self(Arc::new(Inner { drivers, next: AtomicUsize::new(0), shown }))
    }

    /// Connects now instead of with the first operation. Returns when every connection is
    /// authenticated and the root directory was found.
    ///
    /// # Errors
    /// If the server cannot be reached, refuses the client, or has no such directory.
    pub async fn connect(&self) -> Result<()> {
        let root = Path::ROOT;
        let connect = |driver: &Arc<Driver>| {
            let driver = driver.clone();
            async move { driver.call(async |worker| worker.connect().await).await }
        };
        for driver in &self.0.drivers {
            connect(driver).await.map_err(|fault| fault.at(&root))?;
        }
        Ok(())
    }

    /// Removes the temporary files that uploads of dead clients have left below a prefix. Files
    /// that are being written stay, because the server does not remove the names of open files.
    /// Returns the number of files removed.
    ///
    /// # Errors
    /// The errors of a delete of an object below the prefix.
    pub async fn remove_leftovers(&self, prefix: Option<&Path>) -> Result<u64> {
        let prefix = prefix.cloned().unwrap_or_default();
        let driver = self.driver();
        let (mut waiting, mut removed) = (vec![None], 0);
        while let Some(directory) = waiting.pop() {
            let path = prefix.clone();
            let swept = driver.call(move |worker| worker.sweep_directory(directory, path)).await;
            let swept = swept.map_err(|fault| fault.at(&prefix))?;
            removed += swept.removed;
            waiting.extend(swept.directories.into_iter().map(Some));
        }
        Ok(removed)
    }

    /// Returns the driver of the next connection (round robin).
    fn driver(&self) -> Arc<Driver> {
        let next = self.0.next.fetch_add(1, Ordering::Relaxed);
        self.0.drivers[next % self.0.drivers.len()].clone()
    }

    fn unsupported(&self, tags: &TagSet, attributes: &Attributes) -> Result<()> {
        let what = match (tags.is_empty(), attributes.is_empty()) {
            (true, true) => return Ok(()),
            (false, _) => "tags of objects",
            (_, false) => "attributes of objects",
        };
        Err(Error::NotImplemented { operation: what.into(), implementer: self.to_string() })
    }

    async fn get(&self, location: &Path, options: GetOptions) -> Result<GetResult, Fault> {
        if options.version.is_some() {
            let source = Box::new(StoreError::NoVersions);
            return Err(Error::NotSupported { source }.into());
        }
        let (place, path, driver) = (Place::of(location)?, location.clone(), self.driver());
        let got = driver.call(move |worker| worker.get(place, path, options)).await?;
        let Got { meta, range, first, file } = got;
        let first = first.map_or_else(Vec::new, |landed| landed.pieces());
        let read: u64 = first.iter().map(|piece| piece.len() as u64).sum();
        let rest = match file {
            Some(file) => rest_of(driver, file, range.start + read..range.end, location.clone()),
            None => futures_util::stream::empty().boxed(),
        };
        let stream = futures_util::stream::iter(first.into_iter().map(Ok)).chain(rest);
        Ok(GetResult {
            payload: GetResultPayload::Stream(stream.boxed()),
            meta,
            range,
            attributes: Attributes::default(),
            extensions: Default::default(),
        })
    }

    async fn ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, Fault> {
        if ranges.is_empty() {
            return Ok(Vec::new());
        }
        let (place, path, driver) = (Place::of(location)?, location.clone(), self.driver());
        let ranges = ranges.to_vec();
        let opened = driver.call(move |worker| worker.get_ranges(place, path, ranges)).await?;
        let Ranged { file, plan, first } = opened;
        let mut segments = first.map_or_else(Vec::new, |landed| landed.pieces());
        let number = file.number;
        let read = |batch: &Range<usize>| {
            let (driver, wanted) = (driver.clone(), plan.segments[batch.clone()].to_vec());
            async move {
                let landed = driver.call(move |worker| worker.read_batch(number, wanted)).await?;
                Ok::<_, Fault>(landed.pieces())
            }
        };
        let later: Vec<_> = plan.batches.iter().skip(1).map(read).collect();
        let mut later = futures_util::stream::iter(later).buffered(BATCHES_MAX);
        while let Some(pieces) = later.next().await {
            segments.extend(pieces?);
        }
        drop(later);
        drop(file);
        Ok(plan.ranges.iter().map(|range| cut_out(&plan, &segments, range)).collect())
    }

    async fn put_object(
        &self,
        location: &Path,
        payload: PutPayload,
        mode: PutMode,
    ) -> Result<String, Fault> {
        let place = Place::of(location)?;
        let mode = match mode {
            PutMode::Overwrite => Mode::Overwrite,
            PutMode::Create => Mode::Create,
            PutMode::Update(version) => {
                if version.version.is_some() {
                    return Err(Fault::Precondition(StoreError::NoVersions));
                }
                Mode::Update(version.e_tag.ok_or(Fault::Refused(StoreError::NoTag))?)
            }
        };
        self.driver().call(move |worker| worker.put(place, payload, mode)).await
    }
}

/// Returns a stream of the remaining pieces of a range. Some pieces are read ahead of the consumer.
fn rest_of(
    driver: Arc<Driver>,
    file: RemoteFile,
    range: Range<u64>,
    location: Path,
) -> BoxStream<'static, Result<Bytes>> {
    let starts = range.clone().step_by(PIECE_BYTES);
    let file = Arc::new(file);
    let read = move |start: u64| {
        let (driver, file, location) = (driver.clone(), file.clone(), location.clone());
        let length = usize::try_from(range.end - start).map_or(PIECE_BYTES, |n| n.min(PIECE_BYTES));
        async move {
            let number = file.number;
            let read = driver.call(move |worker| worker.read_piece(number, start, length)).await;
            let landed = read.map_err(|fault| fault.at(&location))?;
            Ok::<_, Error>(landed.pieces())
        }
    };
    futures_util::stream::iter(starts)
        .map(read)
        .buffered(PIECES_AHEAD)
        .map_ok(|pieces| futures_util::stream::iter(pieces.into_iter().map(Ok)))
        .try_flatten()
        .boxed()
}

/// Returns the bytes of a range from the segments that were read.
fn cut_out(plan: &Plan, segments: &[Bytes], range: &Range<u64>) -> Bytes {
    let first = plan.segments.partition_point(|segment| segment.end <= range.start);
    let pieces = plan.segments[first..].iter().zip(&segments[first..]);
    let mut pieces =
        pieces.take_while(|(segment, _)| segment.start < range.end).map(|(segment, bytes)| {
            let start = range.start.saturating_sub(segment.start);
            let end = range.end.min(segment.end) - segment.start;
            bytes.slice(start as usize..end as usize)
        });
    let one = pieces.next().unwrap_or_default();
    match pieces.next() {
        None => one,
        Some(two) => {
            let mut all = BytesMut::with_capacity((range.end - range.start) as usize);
            all.extend_from_slice(&one);
            all.extend_from_slice(&two);
            pieces.for_each(|piece| all.extend_from_slice(&piece));
            all.freeze()
        }
    }
}

/// Converts the failure of an operation that has a source and a target.
fn between(fault: Fault, from: &Path, to: &Path) -> Error {
    match fault {
        Fault::Missing(_) => fault.at(from),
        _ => fault.at(to),
    }
}

#[async_trait]
impl ObjectStore for DafsStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        self.unsupported(&opts.tags, &opts.attributes)?;
        let put = self.put_object(location, payload, opts.mode).await;
        let e_tag = Some(put.map_err(|fault| fault.at(location))?);
        Ok(PutResult { e_tag, version: None, extensions: Default::default() })
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.unsupported(&opts.tags, &opts.attributes)?;
        Ok(Box::new(Upload::begin(self.driver(), location.clone()).await?))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.get(location, options).await.map_err(|fault| fault.at(location))
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.ranges(location, ranges).await.map_err(|fault| fault.at(location))
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let delete = move |location: Result<Path>| {
            let driver = store.driver();
            async move {
                let location = location?;
                let deleted = async {
                    let place = Place::of(&location)?;
                    driver.call(move |worker| worker.delete(place)).await
                };
                match deleted.await {
                    Ok(()) => Ok(location),
                    Err(fault) => Err(fault.at(&location)),
                }
            }
        };
        locations.map(delete).buffered(DELETES_MAX).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        listing::list(self.driver(), prefix.cloned().unwrap_or_default(), None)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let offset = Some(offset.clone());
        listing::list(self.driver(), prefix.cloned().unwrap_or_default(), offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let prefix = prefix.cloned().unwrap_or_default();
        let asked = prefix.clone();
        let listed = self.driver().call(move |worker| worker.list_prefix(asked, None)).await;
        let (mut common_prefixes, mut objects) = (Vec::new(), Vec::new());
        for entry in listed.map_err(|fault| fault.at(&prefix))? {
            match entry {
                Entry::Object(meta) => objects.push(meta),
                Entry::Directory(path, _) => common_prefixes.push(path),
            }
        }
        Ok(ListResult { common_prefixes, objects, extensions: Default::default() })
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let mode = match options.mode {
            CopyMode::Overwrite => Mode::Overwrite,
            CopyMode::Create => Mode::Create,
        };
        let copied = async {
            let (source, target) = (Place::of(from)?, Place::of(to)?);
            self.driver().call(move |worker| worker.copy(source, target, mode)).await
        };
        copied.await.map_err(|fault| between(fault, from, to))
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let is_new = match options.target_mode {
            RenameTargetMode::Overwrite => false,
            RenameTargetMode::Create => true,
        };
        let renamed = async {
            let (source, target) = (Place::of(from)?, Place::of(to)?);
            self.driver().call(move |worker| worker.rename(source, target, is_new)).await
        };
        renamed.await.map_err(|fault| between(fault, from, to))
    }
}

impl fmt::Display for DafsStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DafsStore({})", self.0.shown)
    }
}

impl fmt::Debug for DafsStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DafsStore")
            .field("location", &self.0.shown)
            .field("connections", &self.0.drivers.len())
            .finish()
    }
}

/// The number of pieces that are read ahead of the consumer of a stream.
const PIECES_AHEAD: usize = 4;
/// The number of batches of one call that are read concurrently.
const BATCHES_MAX: usize = 2;
/// The number of objects of one stream that are deleted concurrently.
const DELETES_MAX: usize = 16;
