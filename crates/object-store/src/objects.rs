//! Looks up objects and describes them.
//!
//! Invariant: symbolic links below the root of the store are not followed, neither by the server
//! nor by the chains here.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use dafs_client::{
    ClientError, FileHandle, Memory, Metadata, ObjectType, Outcome, Session, Status,
};
use object_store::ObjectMeta;
use object_store::path::Path;

use crate::bell::{Bell, Garbage};
use crate::error::{Fault, about};
use crate::names::{CHAIN_NAMES_MAX, Place, walk};
use crate::worker::{Site, Worker, is_missing};

/// A file that is open on a driver thread. Dropping the value closes the file.
pub(crate) struct RemoteFile {
    pub number: u64,
    bell: Arc<Bell>,
}

impl RemoteFile {
    pub(crate) fn new(number: u64, bell: Arc<Bell>) -> Self {
        Self { number, bell }
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        self.bell.discard(Garbage::File(self.number));
    }
}

/// Bytes that were read, in a registered buffer of the driver thread. The caller copies the bytes
/// on its own thread; dropping the value frees the buffer. If callers hold many buffers, the driver
/// thread copies the bytes instead, because registered memory is scarcer than other memory.
pub(crate) enum Landed {
    Lent { memory: Memory, lengths: Vec<usize>, number: u64, bell: Arc<Bell> },
    Copied(Vec<Bytes>),
}

impl Landed {
    pub(crate) fn new(worker: &Worker, buffer: dafs_client::Buffer, lengths: Vec<usize>) -> Self {
        if worker.lent_buffers() >= LENT_BUFFERS_MAX {
            return Self::Copied(pieces_of(buffer.memory(), &lengths));
        }
        let (number, memory) = worker.lend(buffer);
        Self::Lent { memory, lengths, number, bell: worker.bell.clone() }
    }

    /// Returns the pieces. They are copied if they are still in the buffer.
    pub(crate) fn pieces(mut self) -> Vec<Bytes> {
        match &mut self {
            Self::Lent { memory, lengths, .. } => pieces_of(memory, lengths),
            Self::Copied(pieces) => std::mem::take(pieces),
        }
    }
}

/// Copies pieces that are adjacent in a buffer.
fn pieces_of(memory: &Memory, lengths: &[usize]) -> Vec<Bytes> {
    let mut at = 0;
    let copy = |&length: &usize| {
        let piece = Bytes::from(memory.to_vec(at, length));
        at += length;
        piece
    };
    lengths.iter().map(copy).collect()
}

impl Drop for Landed {
    fn drop(&mut self) {
        if let Self::Lent { number, bell, .. } = self {
            bell.discard(Garbage::Buffer(*number));
        }
    }
}

impl Worker {
    /// Looks up the beginning of a path until the remaining names fit in one chain. Returns the
    /// directory reached, and the remaining names.
    pub(crate) async fn near<'n>(
        &self,
        site: &Site,
        names: &'n [String],
    ) -> Result<(FileHandle, &'n [String]), ClientError> {
        let (mut here, mut rest) = (site.root, names);
        while rest.len() > CHAIN_NAMES_MAX {
            let (now, later) = rest.split_at(CHAIN_NAMES_MAX);
            let (chain, _) = walk(&site.session, here, now);
            let outcomes = chain.run_async().await.map_err(ClientError::from)?;
            here = outcomes.last().and_then(Outcome::handle).unwrap_or(here);
            rest = later;
        }
        Ok((here, rest))
    }

    /// Returns the handle of the object at a path, which need not be a directory.
    pub(crate) async fn directory(
        &self,
        site: &Site,
        names: &[String],
        shown: &str,
    ) -> Result<FileHandle, ClientError> {
        let walked = async {
            let (here, rest) = self.near(site, names).await?;
            if rest.is_empty() {
                return Ok(here);
            }
            let (chain, _) = walk(&site.session, here, rest);
            let outcomes = chain.run_async().await.map_err(ClientError::from)?;
            Ok(outcomes.last().and_then(Outcome::handle).unwrap_or(here))
        };
        walked.await.map_err(|error| about(error, shown))
    }

    /// Returns the handle of the directory at a path. Creates missing directories.
    pub(crate) async fn made_directory(
        &self,
        site: &Site,
        names: &[String],
        shown: &str,
    ) -> Result<FileHandle, ClientError> {
        match self.directory(site, names, shown).await {
            Err(error) if is_missing(&error) => {}
            found => return found,
        }
        let mode = self.settings.directory_mode;
        let mut here = site.root;
        for name in names {
            here = match site.session.create_dir_in_async(here, name, shown, mode).await {
                Err(error) if error.status() == Some(Status::Exist) => {
                    site.session.lookup_in_async(here, name, shown).await?
                }
                made => made?,
            };
        }
        Ok(here)
    }

    /// Returns the attributes of an object, including its handle.
    pub(crate) async fn look_up(&self, site: &Site, place: &Place) -> Result<Metadata, Fault> {
        let found = async {
            let (here, rest) = self.near(site, &place.parents).await?;
            let (chain, _) = walk(&site.session, here, rest);
            let chain = chain.lookup(&place.name).getattr();
            let outcomes = chain.run_async().await.map_err(ClientError::from)?;
            regular(outcomes.into_iter().next_back(), &place.shown)
        };
        found.await.map_err(|error| Fault::of_existing(about(error, &place.shown)))
    }

    /// Returns the attributes of the file with this name in a directory; `None` if there is none.
    pub(crate) async fn look_in(
        &self,
        session: &Session,
        directory: FileHandle,
        name: &str,
    ) -> Result<Option<Metadata>, ClientError> {
        let chain = session.chain().at(directory).lookup(name).getattr();
        match chain.run_async().await {
            Ok(outcomes) => regular(outcomes.into_iter().next_back(), name).map(Some),
            Err(failure) if is_missing(&failure.error) => Ok(None),
            Err(failure) => Err(failure.error),
        }
    }
}

/// Returns the attributes from the outcome of a chain. Fails if they are not those of a regular
/// file.
pub(crate) fn regular(outcome: Option<Outcome>, shown: &str) -> Result<Metadata, ClientError> {
    match outcome {
        Some(Outcome::Metadata(metadata)) if metadata.kind == ObjectType::Regular => Ok(*metadata),
        _ => Err(ClientError::Status { what: shown.to_owned(), status: Status::BadType }),
    }
}

/// Returns the e_tag of an object, which distinguishes its versions. The e_tag is made of the
/// file's handle, which is unique, and the time of the file's last change. Each put makes a new
/// file, so the handle changes; other programs that write to a file change its time.
///
/// The change attribute is not part of the e_tag, because for a moment after a change it differs
/// each time it is read.
pub(crate) fn tag(metadata: &Metadata) -> String {
    let identity = metadata
        .handle
        .0
        .iter()
        .fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME));
    let time = metadata.time_modify;
    format!("{identity:016x}-{:x}.{:08x}-{:x}", time.seconds, time.nanoseconds, metadata.size)
}

pub(crate) fn object_meta(location: Path, metadata: &Metadata) -> ObjectMeta {
    let time = metadata.time_modify;
    ObjectMeta {
        location,
        last_modified: DateTime::<Utc>::from_timestamp(time.seconds, time.nanoseconds)
            .unwrap_or_default(),
        size: metadata.size,
        e_tag: Some(tag(metadata)),
        version: None,
    }
}

/// Returns the length of a range, limited to the largest `usize`.
pub(crate) fn length_of(range: &Range<u64>) -> usize {
    usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX)
}

/// The maximum number of registered buffers of one driver thread that callers may hold.
const LENT_BUFFERS_MAX: usize = 64;
/// The initial value of the hash function FNV-1a, which gives the same result in all processes.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
/// The multiplier of the hash function FNV-1a.
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
