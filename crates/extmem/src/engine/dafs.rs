//! Files of a DAFS server: one thread keeps several blocks in flight, each moved directly into or
//! out of registered memory.
//!
//! Invariant: transfers complete in any order and are returned in the order of their submission. If
//! a server has moved less than requested, the rest is requested again. If a restart of the server
//! loses written data, that is reported before the file gets its name.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::rc::Rc;
use std::time::{Duration, Instant};

use dafs_client::{
    ClientError, Completion, File, Group, ObjectType, OpenOptions, Session, SetAttributes,
    Stability, shown_path, split_last,
};

use super::{Block, BlockFile, Channel, Engine, Moved, Output};
use crate::error::{Error, Result};
use crate::stream::Watch;

/// The engine for files of a server, accessed through a session. Cheap to clone.
#[derive(Clone)]
pub struct DafsEngine {
    session: Session,
    watch: Watch,
}

struct DafsFile {
    name: String,
    file: File,
    watch: Watch,
}

struct DafsOutput {
    session: Session,
    file: Option<Rc<DafsFile>>,
    part: OsString,
    target: OsString,
}

struct DafsChannel {
    file: Rc<DafsFile>,
    group: Group,
    queue: VecDeque<UnderWay>,
    /// The number of the first transfer in the queue. Each later transfer has the next number.
    first: u64,
}

struct UnderWay {
    block: Block,
    offset: u64,
    length: usize,
    moved: usize,
    is_write: bool,
    is_done: bool,
}

impl DafsEngine {
    /// Creates the engine for the server of a session. `watch` can end waits for the server.
    #[must_use]
    pub fn new(session: Session, watch: Watch) -> Self {
        Self { session, watch }
    }

    fn file(&self, name: &str, file: File) -> Rc<DafsFile> {
        Rc::new(DafsFile { name: name.to_owned(), file, watch: self.watch.clone() })
    }

    /// Returns the path and mode of the file to replace. For a symbolic link, that is its target.
    fn target(&self, path: &OsStr) -> std::result::Result<(OsString, Option<u32>), ClientError> {
        let mut path = path.to_owned();
        for _ in 0..LINKS_MAX {
            let there = match self.session.symlink_metadata(&path) {
                Ok(there) => there,
                Err(error) if error.status() == Some(dafs_client::Status::NoEnt) => {
                    return Ok((path, None));
                }
                Err(error) => return Err(error),
            };
            if there.kind != ObjectType::SymbolicLink {
                let mode = (there.kind == ObjectType::Regular).then_some(there.mode & 0o7777);
                return match mode {
                    Some(_) => Ok((path, mode)),
                    None => {
                        let what = shown_path(&path).into_owned();
                        Err(ClientError::Status { what, status: not_a_file(there.kind) })
                    }
                };
            }
            let link = self.session.read_link(&path)?;
            path = match link.first() {
                Some(b'/') => OsString::from_vec(link),
                _ => beside(&path, &link),
            };
        }
        Err(ClientError::TooManyLinks(shown_path(&path).into_owned()))
    }
}

fn not_a_file(kind: ObjectType) -> dafs_client::Status {
    match kind {
        ObjectType::Directory => dafs_client::Status::IsDir,
        _ => dafs_client::Status::Inval,
    }
}

/// Returns the path of `name` in the directory that contains `path`.
fn beside(path: &OsStr, name: &[u8]) -> OsString {
    let (directory, _) = split_last(path);
    OsString::from_vec([directory.as_bytes(), name].join(&b'/'))
}

impl Engine for DafsEngine {
    fn open(&self, path: &OsStr) -> Result<Rc<dyn BlockFile>> {
        match self.session.open(path, &OpenOptions::read()) {
            Ok(file) => Ok(self.file(&shown_path(path), file)),
            Err(error) => Err(Error::engine(format!("opening {}", shown_path(path)), error)),
        }
    }

    fn temporary(&self, directory: &OsStr) -> Result<Rc<dyn BlockFile>> {
        let name = format!("a temporary file in {}", shown_path(directory));
        let options = OpenOptions::write().mode(0o600);
        match self.session.create_unlinked(directory, &options) {
            Ok(file) => Ok(self.file(&name, file)),
            Err(error) => Err(Error::engine(format!("making {name}"), error)),
        }
    }

    fn create(&self, path: &OsStr) -> Result<Box<dyn Output>> {
        let failed = |error| Error::engine(format!("making {}", shown_path(path)), error);
        let (target, mode) = self.target(path).map_err(failed)?;
        // A random name, because clients on other machines may create files in this directory.
        let number = RandomState::new().build_hasher().finish();
        let part = beside(&target, format!(".dafs-part-{number:016x}").as_bytes());
        // The new file gets the mode of the file that it replaces; until then it is private.
        let made = mode.map_or(0o666, |_| 0o600);
        let options = OpenOptions::write().create_new(true).mode(made);
        let file = self.session.open(&part, &options).map_err(failed)?;
        if mode.is_some() {
            let wanted = SetAttributes { mode, ..SetAttributes::default() };
            let set = self.session.set_attributes_by_handle(file.handle(), &wanted, &part);
            if set.is_err() {
                // The first error is more useful than one of this removal.
                let _ = self.session.remove(&part);
            }
            set.map_err(failed)?;
        }
        let file = Some(self.file(&shown_path(path), file));
        Ok(Box::new(DafsOutput { session: self.session.clone(), file, part, target }))
    }
}

impl Output for DafsOutput {
    fn file(&self) -> Rc<dyn BlockFile> {
        match &self.file {
            Some(file) => file.clone(),
            // Only `publish` takes it, and that consumes the output.
            None => unreachable!("the file is there until it is published"),
        }
    }

    fn publish(mut self: Box<Self>, is_durable: bool) -> Result<()> {
        let Some(file) = self.file.take() else { return Ok(()) };
        let name = file.name.clone();
        let failed = |doing: &str, error| Error::engine(format!("{doing} {name}"), error);
        let published = (|| {
            if is_durable {
                file.file.commit().map_err(|error| failed("syncing", error))?;
            }
            // Streams are dropped before their file is published, so there is no other owner.
            if let Ok(file) = Rc::try_unwrap(file) {
                file.file.close().map_err(|error| failed("closing", error))?;
            }
            let named = self.session.rename(&self.part, &self.target);
            named.map_err(|error| failed("naming", error))
        })();
        if published.is_err() {
            self.remove();
        }
        published
    }
}

impl DafsOutput {
    fn remove(&self) {
        // An earlier error is more useful than one of this removal.
        let _ = self.session.remove(&self.part);
    }
}

impl Drop for DafsOutput {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            self.remove();
        }
    }
}

impl BlockFile for DafsFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Result<u64> {
        match self.file.metadata() {
            Ok(metadata) => Ok(metadata.size),
            Err(error) => {
                Err(Error::engine(format!("asking for the size of {}", self.name), error))
            }
        }
    }

    fn channel(self: Rc<Self>) -> Box<dyn Channel> {
        let group = self.file.session().client().group();
        Box::new(DafsChannel { file: self, group, queue: VecDeque::new(), first: 0 })
    }
}

impl DafsChannel {
    fn push(&mut self, block: Block, offset: u64, length: usize, is_write: bool) -> Result<()> {
        let way = UnderWay { block, offset, length, moved: 0, is_write, is_done: false };
        self.queue.push_back(way);
        self.submit(self.queue.len() - 1)
    }

    /// Requests those bytes of a transfer that have not been moved yet.
    fn submit(&self, index: usize) -> Result<()> {
        let way = &self.queue[index];
        let submitted = || {
            let Some(buffer) = way.block.buffer() else {
                return Err(ClientError::Foreign { what: self.file.name.clone() });
            };
            let slice = buffer.slice(way.moved, way.length - way.moved)?;
            let (file, offset) = (&self.file.file, way.offset + way.moved as u64);
            let (session, context) = (file.session(), self.first + index as u64);
            if way.is_write {
                let unstable = Stability::Unstable;
                session.submit_write(file, offset, slice, unstable, self.group, context)
            } else {
                session.submit_read(file, offset, slice, self.group, context)
            }
        };
        submitted().map(drop).map_err(|error| self.failed(way.is_write, error))
    }

    fn failed(&self, is_write: bool, error: ClientError) -> Error {
        let doing = if is_write { "writing" } else { "reading" };
        Error::engine(format!("{doing} {}", self.file.name), error)
    }

    /// Waits until a transfer has completed. Checks from time to time if the watch asks to stop or
    /// the server has been silent for too long.
    fn turn(&self) -> Result<Completion> {
        let client = self.file.file.session().client();
        let begun = Instant::now();
        loop {
            if let Some(completion) = client.next(self.group) {
                return Ok(completion);
            }
            self.file.watch.check()?;
            client.wait(self.group, 1, Some(TICK));
            let silence = begun.elapsed();
            if client.min_answer_timeout().is_some_and(|patience| silence > patience) {
                client.end_silent_sessions(silence);
            }
        }
    }

    fn take(&mut self, completion: Completion) -> Result<()> {
        let index = (completion.context - self.first) as usize;
        let way = &mut self.queue[index];
        let is_write = way.is_write;
        let done = match completion.result {
            Ok(done) => done,
            Err(error) => return Err(self.failed(is_write, error)),
        };
        way.moved += done.length as usize;
        if is_write {
            let noted = self.file.file.note_unstable(done.verifier);
            noted.map_err(|error| Error::engine(format!("writing {}", self.file.name), error))?;
        }
        let is_end = done.end_of_file && !is_write;
        let way = &mut self.queue[index];
        way.is_done = is_end || way.moved >= way.length;
        match (way.is_done, done.length) {
            (true, _) => Ok(()),
            (false, 0) => {
                let what = format!("no bytes were moved of {}", self.file.name);
                let address = self.file.file.session().address().to_string();
                Err(self.failed(is_write, ClientError::Protocol { address, what }))
            }
            (false, _) => self.submit(index),
        }
    }
}

impl Channel for DafsChannel {
    fn allocate(&mut self, length: usize) -> Result<Block> {
        let buffer = self.file.file.session().client().allocate(length);
        Ok(Block::registered(buffer.map_err(|error| Error::engine("allocating a block", error))?))
    }

    fn submit_read(&mut self, block: Block, offset: u64, length: usize) -> Result<()> {
        self.push(block, offset, length, false)
    }

    fn submit_write(&mut self, block: Block, offset: u64, length: usize) -> Result<()> {
        self.push(block, offset, length, true)
    }

    fn wait(&mut self) -> Result<Option<Moved>> {
        while self.queue.front().is_some_and(|way| !way.is_done) {
            let completion = self.turn()?;
            self.take(completion)?;
        }
        let Some(way) = self.queue.pop_front() else { return Ok(None) };
        self.first += 1;
        Ok(Some(Moved { block: way.block, length: way.moved }))
    }

    fn under_way(&self) -> usize {
        self.queue.len()
    }
}

impl Drop for DafsChannel {
    fn drop(&mut self) {
        self.file.file.session().client().release_group(self.group);
    }
}

const LINKS_MAX: usize = 40;
/// The interval at which a wait checks if it should end.
const TICK: Duration = Duration::from_millis(200);
