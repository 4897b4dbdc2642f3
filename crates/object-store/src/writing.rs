//! Writes files that become objects. A file gets the object's name only when it is complete.
//!
//! Invariant: the file at an object's name is complete, and its time does not change any more.

use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;
use dafs_client::{
    Buffer, Chain, ClientError, DeleteDisposition, File, FileHandle, Metadata, OpenOptions,
    Outcome, SetAttributes, SetTime, ShareAccess, Status, Transferred, Verifier,
};
use object_store::PutPayload;

use crate::builder::Durability;
use crate::error::{Fault, StoreError, about};
use crate::names::{Place, temporary, walk};
use crate::objects::{regular, tag};
use crate::publishing::Mode;
use crate::worker::{Patience, Site, Worker, is_lost_open, is_missing};

/// A complete file that is open. Dropping the value closes the file.
pub(crate) struct Made {
    pub file: Rc<File>,
    pub metadata: Metadata,
    /// The directory that will contain the object.
    pub directory: FileHandle,
    /// The temporary name in that directory; `None`, the usual case, if the file has no name.
    pub temporary: Option<String>,
}

impl Worker {
    /// Puts an object. Returns its e_tag.
    pub(crate) async fn put(
        self: Rc<Self>,
        place: Place,
        payload: PutPayload,
        mode: Mode,
    ) -> Result<String, Fault> {
        let mut patience = Patience::new();
        loop {
            let site = self.site().await?;
            let put = async {
                let made = self.make(&site, &place, &payload).await?;
                self.publish(&site, &place, &made, &mode).await?;
                Ok::<_, Fault>(tag(&made.metadata))
            };
            match put.await {
                // The file was lost in a server restart, or the directory was removed. Try again.
                Err(fault) if is_gone(&fault) => patience.again(&self).await?,
                outcome => return outcome,
            }
        }
    }

    /// Creates a file with the data of a payload, in the directory of the object. Creates missing
    /// directories of the path.
    pub(crate) async fn make(
        &self,
        site: &Site,
        place: &Place,
        payload: &PutPayload,
    ) -> Result<Made, Fault> {
        let (here, rest) = match self.near(site, &place.parents).await {
            Err(error) if is_missing(&error) => {
                (self.made_directory(site, &place.parents, &place.shown).await?, &[][..])
            }
            near => near?,
        };
        match self.make_in(site, here, rest, place, payload).await {
            Err(Fault::Client(error)) if is_missing(&error) && !rest.is_empty() => {
                let here = self.made_directory(site, &place.parents, &place.shown).await?;
                self.make_in(site, here, &[], place, payload).await
            }
            made => made,
        }
    }

    async fn make_in(
        &self,
        site: &Site,
        here: FileHandle,
        rest: &[String],
        place: &Place,
        payload: &PutPayload,
    ) -> Result<Made, Fault> {
        let (chain, walked) = walk(&site.session, here, rest);
        let length = payload.content_length();
        let is_small = length <= SMALL_BYTES_MAX;
        let temporary = self.needs_names.get().then(temporary);
        let mut chain = self.create(chain, temporary.as_deref());
        if is_small {
            if length > 0 {
                let buffer = site.session.client().allocate(length)?;
                Cursor::new(payload).fill(&buffer, length);
                chain = chain.write_from(0, buffer.slice(0, length)?);
            }
            chain = match self.flushes(temporary.is_some()) {
                Flush::Commit => chain.commit(),
                Flush::Time => chain.setattr(&present_time()),
            };
            chain = chain.getattr();
        }
        let (done, failure) = match chain.run_async().await {
            Ok(done) => (done, None),
            Err(failure) => (failure.done, Some((failure.member, failure.error))),
        };
        let directory = match walked {
            0 => Some(here),
            count => done.get(count - 1).and_then(Outcome::handle),
        };
        let opened = match done.get(walked) {
            Some(Outcome::Opened { file, state }) => {
                Some(Rc::new(site.session.opened(*file, *state, &place.shown)))
            }
            _ => None,
        };
        let (Some(file), Some(directory)) = (opened, directory) else {
            let Some((member, error)) = failure else {
                return Err(Fault::Refused(StoreError::NotAnObject));
            };
            if member == walked && lacks_unlinked(&error) && temporary.is_none() {
                self.needs_names.set(true);
                return Box::pin(self.make_in(site, here, rest, place, payload)).await;
            }
            return Err(about(error, &place.shown).into());
        };
        let settled = match failure {
            Some((_, error)) => Err(about(error, &place.shown).into()),
            None if is_small && is_whole(&done[walked..], length) => {
                regular(done.into_iter().next_back(), &place.shown).map_err(Fault::from)
            }
            None => self.write_and_settle(&file, place, payload, temporary.is_some()).await,
        };
        match (settled, &temporary) {
            (Ok(metadata), _) => Ok(Made { file, metadata, directory, temporary }),
            (Err(fault), Some(name)) => {
                self.remove_temporary(site, &file, directory, name).await;
                Err(fault)
            }
            // A file without a name disappears when it is closed.
            (Err(fault), None) => Err(fault),
        }
    }

    /// Writes a payload to a new file and flushes it, so that the file's time stays unchanged.
    async fn write_and_settle(
        &self,
        file: &File,
        place: &Place,
        payload: &PutPayload,
        has_name: bool,
    ) -> Result<Metadata, Fault> {
        write_all(file, 0, payload).await?;
        if matches!(self.flushes(has_name), Flush::Time) {
            file.set_attributes_async(&present_time()).await?;
        }
        Ok(file.session().metadata_async(file.handle(), &place.shown).await?)
    }

    /// Adds the creation of an empty file to a chain. If the file system supports it, the file has
    /// no name, so that nothing is left of it if this process dies.
    fn create<'s>(&self, chain: Chain<'s>, temporary: Option<&str>) -> Chain<'s> {
        let options = self.new_file(temporary.is_some());
        match temporary {
            None => chain.create_unlinked(&options),
            Some(name) => chain.open_in(name, name, &options),
        }
    }

    /// Returns the options to create a file. While a file with a name is open, the server refuses
    /// to remove its name.
    pub(crate) fn new_file(&self, has_name: bool) -> OpenOptions {
        let options = OpenOptions::read().access(ShareAccess::Both).create_new(true);
        let options = options.mode(self.settings.file_mode);
        match has_name {
            true => options.delete_disposition(DeleteDisposition::Deny),
            false => options,
        }
    }

    fn flushes(&self, has_name: bool) -> Flush {
        match self.settings.durability {
            Durability::Server if !has_name => Flush::Time,
            Durability::Server | Durability::Disk => Flush::Commit,
        }
    }
}

/// The way to flush written data, so that the file's time does not change later.
enum Flush {
    /// A commit flushes the data to stable storage.
    Commit,
    /// Setting the time flushes the data to the file system, because the server flushes first.
    Time,
}

fn present_time() -> SetAttributes {
    SetAttributes { time_modify: Some(SetTime::Server), ..SetAttributes::default() }
}

/// True if a file system cannot make files without names.
fn lacks_unlinked(error: &ClientError) -> bool {
    matches!(error.status(), Some(Status::NotSupp | Status::Inval | Status::IsDir))
}

/// True if a file or directory that a put uses no longer exists, so that the put must start again.
pub(crate) fn is_gone(fault: &Fault) -> bool {
    match fault {
        Fault::Client(ClientError::DataLost { .. }) => true,
        Fault::Client(error) => is_missing(error) || is_lost_open(error),
        _ => false,
    }
}

/// True if a chain that makes a small file has written all of its data, and no data was lost.
fn is_whole(done: &[Outcome], length: usize) -> bool {
    let moved: Vec<Transferred> = done.iter().filter_map(Outcome::transferred).collect();
    match (length, &moved[..]) {
        (0, _) => true,
        (_, [written]) => written.length as usize == length,
        (_, [written, committed]) => {
            written.length as usize == length && written.verifier == committed.verifier
        }
        _ => false,
    }
}

/// Writes a payload to a file and flushes it to stable storage. Writes it again if the server has
/// restarted in between and lost data.
pub(crate) async fn write_all(file: &File, offset: u64, payload: &PutPayload) -> Result<(), Fault> {
    for _ in 0..ATTEMPTS_MAX {
        let written = write_once(file, offset, payload).await?;
        let committed = file.commit_async().await?;
        if written.is_safe(committed.verifier) {
            return Ok(());
        }
    }
    Err(Fault::Client(ClientError::DataLost { what: file.path().to_owned() }))
}

/// Writes a payload to a file once, without flushing it to stable storage.
async fn write_once(file: &File, offset: u64, payload: &PutPayload) -> Result<Written, Fault> {
    let length = payload.content_length();
    let client = file.session().client();
    let (mut cursor, mut next, mut written) = (Cursor::new(payload), 0, Written::default());
    let mut under_way: VecDeque<Piece<'_>> = VecDeque::with_capacity(PIECES_MAX);
    loop {
        while next < length && under_way.len() < PIECES_MAX {
            let count = PIECE_BYTES.min(length - next);
            let buffer = client.allocate(count)?;
            cursor.fill(&buffer, count);
            let slice = buffer.slice(0, count)?;
            let at = offset + next as u64;
            under_way.push_back(Piece {
                at,
                count,
                buffer,
                moving: Box::pin(file.write_async(at, slice)),
            });
            next += count;
        }
        let Some(piece) = under_way.pop_front() else { return Ok(written) };
        piece.finish(file, &mut written).await?;
    }
}

/// A piece of a payload that is being written.
struct Piece<'f> {
    at: u64,
    count: usize,
    buffer: Buffer,
    moving: Pin<Box<dyn Future<Output = Result<Transferred, ClientError>> + 'f>>,
}

impl Piece<'_> {
    async fn finish(self, file: &File, written: &mut Written) -> Result<(), Fault> {
        let mut moved = self.moving.await?;
        let mut done = 0;
        loop {
            written.note(moved.verifier);
            done += moved.length as usize;
            if done >= self.count {
                return Ok(());
            }
            if moved.length == 0 {
                let what = file.path().to_owned();
                return Err(ClientError::Status { what, status: Status::Io }.into());
            }
            let slice = self.buffer.slice(done, self.count - done)?;
            moved = file.write_async(self.at + done as u64, slice).await?;
        }
    }
}

/// The state of a payload's data, as the write verifiers of the replies show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Written {
    /// No data was written.
    #[default]
    Nothing,
    /// The server has all data, provided that a commit returns the same verifier.
    Under(Verifier),
    /// The server has restarted between the writes, so data may be lost.
    Torn,
}

impl Written {
    fn note(&mut self, verifier: Verifier) {
        *self = match *self {
            Self::Nothing => Self::Under(verifier),
            Self::Under(before) if before == verifier => Self::Under(verifier),
            Self::Under(_) | Self::Torn => Self::Torn,
        };
    }

    fn is_safe(self, committed: Verifier) -> bool {
        match self {
            Self::Nothing => true,
            Self::Under(verifier) => verifier == committed,
            Self::Torn => false,
        }
    }
}

/// A position in a payload, from which data is copied piece by piece.
struct Cursor<'p> {
    segments: std::slice::Iter<'p, Bytes>,
    rest: &'p [u8],
}

impl<'p> Cursor<'p> {
    fn new(payload: &'p PutPayload) -> Self {
        Self { segments: payload.as_ref().iter(), rest: &[] }
    }

    /// Copies the next `length` bytes. The payload must have that many.
    fn fill(&mut self, buffer: &Buffer, length: usize) {
        let mut at = 0;
        while at < length {
            if self.rest.is_empty() {
                let Some(segment) = self.segments.next() else { return };
                self.rest = segment;
                continue;
            }
            let (now, later) = self.rest.split_at(self.rest.len().min(length - at));
            buffer.write(at, now);
            (self.rest, at) = (later, at + now.len());
        }
    }
}

/// The maximum number of attempts to write a payload while the server loses it by restarts.
const ATTEMPTS_MAX: u32 = 8;
/// The maximum size in bytes of a payload that is written by the chain that makes its file.
const SMALL_BYTES_MAX: usize = 1 << 20;
/// The size in bytes of the pieces in which a larger payload is written.
pub(crate) const PIECE_BYTES: usize = 2 << 20;
/// The number of pieces of one payload that are written concurrently.
const PIECES_MAX: usize = 4;
