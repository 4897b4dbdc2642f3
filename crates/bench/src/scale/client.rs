//! One client process of `dafs bench scale`.
//!
//! Invariant: the client sleeps while it waits, so that its CPU time is the cost of its requests.
//! Each block that it reads is checked: the block must belong to the right file.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dafs_client::{
    Buffer, Client, ClientConfig, File, FileHandle, Group, OpenOptions, Session, SessionOptions,
    ShareAccess,
};
use dafs_dat::{Address, WaitPolicy};
use dafs_types::Random;
use serde::{Deserialize, Serialize};

use super::{Files, HOT, HOT_BYTES, LANES, MANY_BYTES, SHARED, Work, directory_of, many, mark};
use crate::measure::own_cpu;
use crate::postmark::all;

/// The parameters that a client gets at its start.
#[derive(Clone, Debug)]
pub struct ClientPlan {
    /// The number of this client, which selects its directories.
    pub number: usize,
    /// The number of small files.
    pub files: usize,
    /// The servers, one for each transport and number of reactors.
    pub servers: Vec<Address>,
    /// The options of sessions with the servers.
    pub session: SessionOptions,
}

/// The result of a client in one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// The number of operations.
    pub operations: u64,
    /// The seconds from the start of the first operation to the end of the last one.
    pub seconds: f64,
    /// The processor time of the client's process, in seconds.
    pub cpu_seconds: f64,
}

/// A client with a session for each server.
pub struct ScaleClient {
    links: Vec<Link>,
}

/// A session and its open files.
struct Link {
    client: Client,
    session: Session,
    group: Group,
    buffer: Buffer,
    hot: File,
    many: Vec<File>,
    /// The directory that all clients use. `own` has the directories of this client's lanes.
    shared: FileHandle,
    own: Vec<FileHandle>,
    random: Random,
    number: usize,
    /// The number of names made so far, so that every name is new.
    made: u64,
}

impl ScaleClient {
    /// Connects to every server, and opens the files.
    ///
    /// # Errors
    /// If a server cannot be reached or lacks the files.
    pub fn new(plan: &ClientPlan) -> Result<Self> {
        let links = plan.servers.iter().map(|address| Link::new(plan, address));
        Ok(Self { links: links.collect::<Result<_>>()? })
    }

    /// Runs one kind of work on one of the servers for a span of time.
    ///
    /// # Errors
    /// If an operation fails or reads unexpected data.
    pub fn run(&mut self, server: usize, work: Work, span: Duration) -> Result<Tally> {
        let link = self.links.get_mut(server).context("no server with this number")?;
        let (start, cpu) = (Instant::now(), own_cpu());
        let operations = match work.files() {
            Files::One | Files::Many => link.read(work, start + span)?,
            Files::OneDirectory | Files::ManyDirectories => link.name(work, start + span)?,
        };
        let (seconds, cpu) = (start.elapsed(), own_cpu().saturating_sub(cpu));
        let (seconds, cpu_seconds) = (seconds.as_secs_f64(), cpu.as_secs_f64());
        Ok(Tally { operations, seconds, cpu_seconds })
    }
}

impl Link {
    fn new(plan: &ClientPlan, address: &Address) -> Result<Self> {
        let open = || -> Result<Self> {
            let wait = WaitPolicy { spin_max: Duration::ZERO };
            let client = Client::new(ClientConfig::default().wait(wait))?;
            let session = client.connect_to(address, &plan.session)?;
            let open = |path: String| session.open(path, &OpenOptions::read());
            let handle = |path: String| Ok::<_, anyhow::Error>(session.metadata(path)?.handle);
            let own =
                (0..LANES).map(|lane| handle(format!("/{}", directory_of(plan.number, lane))));
            let bytes_max = Work::ALL.iter().map(|work| work.bytes() * work.depth()).max();
            Ok(Self {
                hot: open(format!("/{HOT}"))?,
                many: (0..plan.files)
                    .map(|index| open(format!("/{}", many(index))))
                    .collect::<dafs_client::Result<_>>()?,
                shared: handle(format!("/{SHARED}"))?,
                own: own.collect::<Result<_>>()?,
                group: client.group(),
                buffer: client.allocate(bytes_max.unwrap_or(1))?,
                random: Random::new(plan.number as u64 + 1),
                number: plan.number,
                made: 0,
                client,
                session,
            })
        };
        open().with_context(|| format!("measuring over {address}"))
    }

    /// Reads blocks with several reads in flight until `end`, at least one read in each slot.
    /// Returns the number of reads.
    fn read(&mut self, work: Work, end: Instant) -> Result<u64> {
        let (bytes, depth) = (work.bytes(), work.depth());
        let mut free: Vec<usize> = (0..depth).collect();
        let mut expected = vec![0; depth];
        let (mut operations, mut submitted) = (0, 0);
        loop {
            // Even a client that wakes up after `end` does one read in each slot.
            let goes_on = submitted == 0 || Instant::now() < end;
            while goes_on && let Some(slot) = free.pop() {
                let (file, index, length) = match work.files() {
                    Files::One => (&self.hot, None, HOT_BYTES),
                    _ => {
                        let index = self.random.below(self.many.len());
                        (&self.many[index], Some(index), MANY_BYTES)
                    }
                };
                let offset = (self.random.below(length / bytes) * bytes) as u64;
                expected[slot] = mark(index, offset);
                let slice = self.buffer.slice(slot * bytes, bytes)?;
                self.session.submit_read(file, offset, slice, self.group, slot as u64)?;
                submitted += 1;
            }
            let under_way = depth - free.len();
            if under_way == 0 {
                return Ok(operations);
            }
            // Sleep until half of the reads are complete.
            self.client.wait(self.group, under_way.div_ceil(2), None);
            while let Some(done) = self.client.next(self.group) {
                let slot = usize::try_from(done.context)?;
                let mut first = [0; 8];
                self.buffer.read(slot * bytes, &mut first);
                if done.result?.length as usize != bytes
                    || u64::from_le_bytes(first) != expected[slot]
                {
                    bail!("a block has wrong contents; this is a bug in DAFS");
                }
                free.push(slot);
                operations += 1;
            }
        }
    }

    /// Makes and removes files until `end`. Returns the number of operations.
    fn name(&mut self, work: Work, end: Instant) -> Result<u64> {
        let mut done = [0; LANES];
        let first = self.made;
        let link = &*self;
        let lanes = done.iter_mut().enumerate().map(|(lane, done)| async move {
            let directory = match work.files() {
                Files::ManyDirectories => link.own[lane],
                _ => link.shared,
            };
            loop {
                let name = format!("f-{}-{lane}-{}", link.number, first + *done);
                link.make(directory, &name).await?;
                link.session.remove_in_async(directory, &name, &name).await?;
                *done += 1;
                if Instant::now() >= end {
                    return Ok(());
                }
            }
        });
        all(lanes, || link.client.wait_for_events(LANES / 2))?;
        self.made += done.iter().max().copied().unwrap_or(0);
        Ok(done.iter().sum::<u64>() * OPERATIONS_OF_A_NAME)
    }

    async fn make(&self, directory: FileHandle, name: &str) -> Result<()> {
        let options = OpenOptions::write().access(ShareAccess::Write).create_new(true);
        let chain = self.session.chain().at(directory).open(name, &options).close();
        chain.run_async().await.with_context(|| format!("creating file {name}"))?;
        Ok(())
    }
}

/// The number of operations per name: one makes the file and one removes it.
const OPERATIONS_OF_A_NAME: u64 = 2;
