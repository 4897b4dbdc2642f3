//! A mixed load whose results are all known in advance: each lane does one operation after the
//! other with its own names, and many lanes run concurrently.
//!
//! A request that is executed twice is detected: a name created twice exists already, a name
//! removed twice does not exist any more, a record appended twice is found twice.

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::pin::Pin;
use std::task::{Context, Poll};

use dafs_client::{
    Buffer, ClientError, File, OpenOptions, Outcome, Session, SetAttributes, Stability, Status,
    block_on,
};
use dafs_types::{CacheHint, FileHandle, Random};
use dafs_wire::messages::{AppendDirect, AppendInline, InlineData, Placement, Rename};
use dafs_wire::{Checksum, Request, Response};

/// The amount of work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub lanes: usize,
    pub steps: usize,
    pub seed: u64,
}

impl Load {
    /// Runs the load, and continues until enough has happened, and then checks the directory. With
    /// `may_skip`, a record that was undone may have left zeros between others.
    pub(super) fn run(
        self,
        session: &Session,
        export: &FilePath,
        may_skip: bool,
        is_enough: &dyn Fn() -> bool,
    ) {
        let client = session.client();
        let records = session.open("/records", &OpenOptions::write()).unwrap();
        let mut random = Random::new(self.seed);
        let mut lanes = Vec::new();
        for number in 0..self.lanes {
            session.create_dir(format!("/{number}"), 0o755).unwrap();
            let directory = session.metadata(format!("/{number}")).unwrap().handle;
            let buffer = client.allocate(SLOT_BYTES).unwrap();
            lanes.push(Lane {
                load: self,
                is_enough,
                number,
                session,
                directory,
                names: BTreeMap::new(),
                records: &records,
                appended: Vec::new(),
                slots: session.open(format!("/slots-{number}"), &OpenOptions::write()).unwrap(),
                slot: Vec::new(),
                buffer,
                random: random.fork(),
            });
        }
        let running =
            lanes.iter_mut().map(|lane| Box::pin(lane.run()) as Pin<Box<dyn Future<Output = ()>>>);
        block_on(&client, All(running.map(Some).collect()));
        let appended: Vec<_> = lanes.iter().flat_map(|lane| lane.appended.clone()).collect();
        lanes.iter().for_each(|lane| lane.check_names(export));
        lanes.into_iter().for_each(|lane| lane.slots.close().unwrap());
        records.close().unwrap();
        self.check_records(&std::fs::read(export.join("records")).unwrap(), &appended, may_skip);
    }

    fn check_records(self, bytes: &[u8], appended: &[(u64, Record)], may_skip: bool) {
        assert_eq!(bytes.len() % RECORD_BYTES, 0, "a torn record; {self:?}");
        let mut found = BTreeMap::new();
        for (place, bytes) in bytes.chunks(RECORD_BYTES).enumerate() {
            let offset = (place * RECORD_BYTES) as u64;
            if bytes.iter().all(|byte| *byte == 0) {
                assert!(may_skip, "a hole at {offset}; {self:?}");
                continue;
            }
            let before = found.insert(bytes.to_vec(), offset);
            assert_eq!(before, None, "the record at {offset} is there twice; {self:?}");
        }
        for (offset, record) in appended {
            assert_eq!(found.remove(record.as_slice()), Some(*offset), "{self:?}");
        }
        assert!(found.is_empty(), "records that nobody was told of; {self:?}");
    }
}

type Record = [u8; RECORD_BYTES];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Directory,
    File,
}

struct Lane<'l> {
    load: Load,
    is_enough: &'l dyn Fn() -> bool,
    number: usize,
    session: &'l Session,
    directory: FileHandle,
    /// The names that must exist.
    names: BTreeMap<String, Kind>,
    records: &'l File,
    /// The offset of each record.
    appended: Vec<(u64, Record)>,
    slots: File,
    /// The expected contents of the lane's part of the slots.
    slot: Vec<u8>,
    buffer: Buffer,
    random: Random,
}

impl Lane<'_> {
    async fn run(&mut self) {
        for step in 0.. {
            if step >= self.load.steps && (self.is_enough)() {
                return;
            }
            match self.random.below(12) {
                0 => self.make_directory().await,
                1 | 2 => self.make_file().await,
                3 => self.remove().await,
                4 => self.rename().await,
                5 => self.append(step).await,
                6 => self.write().await,
                7 | 8 => self.chain(step).await,
                9 | 10 => self.look().await,
                _ => self.read().await,
            }
        }
    }

    fn name(&mut self) -> String {
        format!("n{}", self.random.below(6))
    }

    /// Compares the result of a request with the expected one.
    fn expect<T>(&self, what: &str, outcome: Result<T, ClientError>, wanted: Status) -> Option<T> {
        let status = match &outcome {
            Ok(_) => Status::Ok,
            Err(error) => error.status().unwrap_or_else(|| panic!("{what}: {error}; {self:?}")),
        };
        assert_eq!(status, wanted, "{what}; {self:?}");
        outcome.ok()
    }

    async fn make_directory(&mut self) {
        let name = self.name();
        let wanted = if self.names.contains_key(&name) { Status::Exist } else { Status::Ok };
        let made = self.session.create_dir_in_async(self.directory, &name, &name, 0o755).await;
        self.expect(&format!("making directory {name}"), made, wanted);
        self.names.entry(name).or_insert(Kind::Directory);
    }

    async fn make_file(&mut self) {
        let name = self.name();
        let wanted = if self.names.contains_key(&name) { Status::Exist } else { Status::Ok };
        let options = OpenOptions::write().create_new(true);
        let opening = self.session.open_in_async(self.directory, &name, &name, &options);
        let opened = self.expect(&format!("making file {name}"), opening.await, wanted);
        if let Some(file) = opened {
            // It uses the state id, which changes when a server has restarted.
            let closing = if self.random.percent(50) {
                let size = SetAttributes { size: Some(0), ..SetAttributes::default() };
                let set = self.session.set_attributes_async(file.handle(), &size, &name).await;
                self.expect(&format!("cutting {name}"), set, Status::Ok);
                file.close_async().await
            } else {
                file.close_async().await
            };
            self.expect(&format!("closing {name}"), closing, Status::Ok);
            self.names.insert(name, Kind::File);
        }
    }

    async fn remove(&mut self) {
        let name = self.name();
        let wanted = if self.names.remove(&name).is_some() { Status::Ok } else { Status::NoEnt };
        let removed = self.session.remove_in_async(self.directory, &name, &name).await;
        self.expect(&format!("removing {name}"), removed, wanted);
    }

    async fn rename(&mut self) {
        let (old, new) = (self.name(), self.name());
        let kinds = (self.names.get(&old).copied(), self.names.get(&new).copied());
        let wanted = match kinds {
            _ if old == new => return,
            (None, _) => Status::NoEnt,
            (Some(kind), Some(other)) if kind != other => return,
            (Some(_), _) => Status::Ok,
        };
        let request = Request::Rename(Rename {
            source: self.directory,
            target: self.directory,
            old_name: &old,
            new_name: &new,
        });
        let outcome = self.ask(&request, |_| ()).await;
        self.expect(&format!("renaming {old} to {new}"), outcome, wanted);
        if let (Status::Ok, Some(kind)) = (wanted, self.names.remove(&old)) {
            self.names.insert(new, kind);
        }
    }

    /// Sends a request of any kind.
    async fn ask<T>(
        &self,
        request: &Request<'_>,
        read: impl FnOnce(&Response<'_>) -> T,
    ) -> Result<T, ClientError> {
        let reply = self.session.start(request)?.await?;
        match reply.read()? {
            (Status::Ok, response) => Ok(read(&response)),
            (status, _) => Err(ClientError::Status { what: String::new(), status }),
        }
    }

    fn record(&self, step: usize) -> Record {
        let mut record = [b'.'; RECORD_BYTES];
        let text = format!("lane {} step {step} ", self.number);
        record[..text.len()].copy_from_slice(text.as_bytes());
        record
    }

    /// Sends several requests that must be executed once, and some queries, as one chain.
    async fn chain(&mut self, step: usize) {
        let (directory, file) = (self.name(), self.name());
        let record = self.record(step);
        let options = OpenOptions::write().create_new(true);
        let slice = self.buffer.slice(0, SLOT_BYTES).unwrap();
        let chain = self.session.chain().at(self.directory).create_dir(&directory, 0o755);
        let chain = chain.of(self.records).append(&record);
        let chain = chain.at(self.directory).open(&file, &options);
        let chain = chain.write_inline(0, &record).commit().read_into(0, slice).getattr().close();
        let (done, failure) = match chain.run_async().await {
            Ok(done) => (done, None),
            Err(failure) => (failure.done, Some((failure.member, failure.error))),
        };
        let is_there = |names: &BTreeMap<String, Kind>, name| names.contains_key(name);
        let wanted = if is_there(&self.names, &directory) {
            Some(0)
        } else if directory == file || is_there(&self.names, &file) {
            Some(2)
        } else {
            None
        };
        let failed = failure.as_ref().map(|(member, error)| (*member, error.status()));
        let what = format!("a chain that makes {directory} and {file}: {failure:?}");
        assert_eq!(failed, wanted.map(|member| (member, Some(Status::Exist))), "{what}; {self:?}");
        if done.is_empty() {
            return;
        }
        self.names.insert(directory, Kind::Directory);
        let Outcome::Appended { offset, .. } = done[1] else { panic!("{done:?}") };
        self.appended.push((offset, record));
        if wanted.is_none() {
            self.names.insert(file, Kind::File);
            let mut bytes = [0; RECORD_BYTES];
            self.buffer.read(0, &mut bytes);
            let length = done[5].transferred().map(|read| read.length as usize);
            assert_eq!((length, bytes), (Some(RECORD_BYTES), record), "{self:?}");
        }
    }

    async fn append(&mut self, step: usize) {
        let record = self.record(step);
        let (file, state) = (self.records.handle(), self.records.state());
        let (stability, hint) = (Stability::DataSync, CacheHint::default());
        let is_direct = self.random.percent(50);
        let slice = self.buffer.slice(0, RECORD_BYTES).unwrap();
        if is_direct {
            self.buffer.write(0, &record);
        }
        let request = if is_direct {
            let (buffer, length) = (slice.direct(), RECORD_BYTES as u32);
            let checksum = Checksum::NONE;
            Request::AppendDirect(AppendDirect {
                file,
                state,
                stability,
                length,
                hint,
                checksum,
                buffer,
            })
        } else {
            let (placement, data) = (Placement::Packed, InlineData::Here(&record));
            Request::AppendInline(AppendInline { file, state, stability, hint, placement, data })
        };
        let outcome = self.ask(&request, |response| match response {
            Response::AppendInline(result) | Response::AppendDirect(result) => result.offset,
            other => panic!("{other:?}"),
        });
        let outcome = outcome.await;
        let offset = self.expect("appending", outcome, Status::Ok);
        self.appended.extend(offset.map(|offset| (offset, record)));
    }

    /// Writes and commits. Data that a restart has lost is written again, as every application must
    /// do that writes from its own memory.
    async fn write(&mut self) {
        let length = 1 + self.random.below(SLOT_BYTES);
        self.slot = self.random.bytes(length);
        self.buffer.write(0, &self.slot);
        let at = (self.number * SLOT_BYTES) as u64;
        loop {
            let slice = self.buffer.slice(0, length).unwrap();
            let written = self.slots.write_async(at, slice).await;
            let written = self.expect("writing", written, Status::Ok).unwrap();
            assert_eq!(written.length as usize, length, "{self:?}");
            let committed = self.slots.commit_async().await;
            let committed = self.expect("committing", committed, Status::Ok).unwrap();
            if committed.verifier == written.verifier {
                return;
            }
        }
    }

    async fn read(&mut self) {
        let length = self.slot.len();
        self.buffer.write(0, &vec![0xee; SLOT_BYTES]);
        let at = (self.number * SLOT_BYTES) as u64;
        let read = self.slots.read_async(at, self.buffer.slice(0, length).unwrap()).await;
        let read = self.expect("reading", read, Status::Ok).unwrap();
        let mut bytes = vec![0; length];
        self.buffer.read(0, &mut bytes);
        assert!(read.length as usize == length && bytes == self.slot, "read other bytes; {self:?}");
    }

    /// Opens, reads and closes with one chain.
    async fn look(&mut self) {
        self.buffer.write(0, &vec![0xee; SLOT_BYTES]);
        let at = (self.number * SLOT_BYTES) as u64;
        let length = self.slot.len();
        let path = format!("/slots-{}", self.number);
        let chain = self.session.chain().open(&path, &OpenOptions::read());
        let slice = self.buffer.slice(0, length.max(1)).unwrap();
        let done = chain.read_into(at, slice).getattr().close().run_async().await;
        let done = done.unwrap_or_else(|failure| panic!("{failure:?}; {self:?}"));
        let mut bytes = vec![0; length];
        self.buffer.read(0, &mut bytes);
        let read = done[1].transferred().unwrap().length as usize;
        assert!(read == length && bytes == self.slot, "a chain has read other bytes; {self:?}");
    }

    /// Checks the names that local processes see.
    fn check_names(&self, export: &FilePath) {
        let mut found = BTreeMap::new();
        for entry in std::fs::read_dir(export.join(self.number.to_string())).unwrap() {
            let entry = entry.unwrap();
            let is_directory = entry.file_type().unwrap().is_dir();
            let kind = if is_directory { Kind::Directory } else { Kind::File };
            found.insert(entry.file_name().into_string().unwrap(), kind);
        }
        assert_eq!(found, self.names, "{self:?}");
    }
}

impl std::fmt::Debug for Lane<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "lane {} of {:?}; again with DAFS_RECONNECT_SEED={}",
            self.number, self.load, self.load.seed
        )
    }
}

/// A future that completes when all of its parts have.
struct All<'f>(Vec<Option<Pin<Box<dyn Future<Output = ()> + 'f>>>>);

impl Future for All<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        for place in &mut self.0 {
            if let Some(future) = place
                && future.as_mut().poll(context).is_ready()
            {
                *place = None;
            }
        }
        if self.0.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    }
}

const SLOT_BYTES: usize = 12 << 10;
const RECORD_BYTES: usize = 64;
