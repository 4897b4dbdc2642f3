//! A file on a DAFS server, with one session for each transport and way of waiting.

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dafs_client::{Buffer, Client, ClientConfig, File, Group, OpenOptions, Session, Stability};
use dafs_dat::{Address, WaitPolicy};

use super::{BLOCK_BYTES_MAX, DEPTH_MAX, Kind, Label, Offsets, Peer, Tally, Times, nanos, repeat};
use crate::Options;

/// A session, an open file, and buffers for all blocks in flight.
pub(crate) struct Link {
    transport: &'static str,
    sleeps: bool,
    client: Client,
    session: Session,
    file: File,
    buffer: Buffer,
    group: Group,
}

impl Link {
    /// Connects and opens the file.
    ///
    /// # Errors
    /// If the server cannot be reached or denies access to the file.
    pub(crate) fn new(
        address: &Address,
        options: &Options,
        path: &str,
        sleeps: bool,
    ) -> Result<Rc<Self>> {
        let open = || -> Result<Self> {
            let wait = if sleeps { WaitPolicy { spin_max: Duration::ZERO } } else { options.wait };
            let client = Client::new(ClientConfig::default().wait(wait))?;
            let session = client.connect_to(address, &options.session)?;
            let file = session.open(path, &OpenOptions::write())?;
            let buffer = client.allocate(BLOCK_BYTES_MAX * DEPTH_MAX)?;
            let ones = vec![1; BLOCK_BYTES_MAX];
            (0..DEPTH_MAX).for_each(|slot| buffer.write(slot * BLOCK_BYTES_MAX, &ones));
            let group = client.group();
            let transport = name_of(address);
            Ok(Self { transport, sleeps, client, session, file, buffer, group })
        };
        Ok(Rc::new(open().with_context(|| format!("measuring over {address}"))?))
    }

    /// Removes the file.
    ///
    /// # Errors
    /// If the server refuses.
    pub(crate) fn remove(&self) -> Result<()> {
        Ok(self.session.remove(self.file.path())?)
    }

    /// Writes the file, which also fills the server's cache.
    ///
    /// # Errors
    /// If the server has no room for it.
    pub(crate) fn fill(&self, file_bytes: u64) -> Result<()> {
        let pieces = |move_one: &dyn Fn(u64, usize) -> Result<()>| -> Result<()> {
            for offset in (0..file_bytes).step_by(BLOCK_BYTES_MAX) {
                let length = (BLOCK_BYTES_MAX as u64).min(file_bytes - offset);
                move_one(offset, usize::try_from(length)?)?;
            }
            Ok(())
        };
        pieces(&|offset, length| {
            self.file.write_from(offset, self.buffer.slice(0, length)?)?;
            Ok(())
        })?;
        self.file.commit()?;
        pieces(&|offset, length| {
            self.file.read_into(offset, self.buffer.slice(0, length)?)?;
            Ok(())
        })
    }
}

/// Returns the name of a transport in tables.
pub(crate) fn name_of(address: &Address) -> &'static str {
    match address {
        Address::Shm(_) => "shm",
        Address::Tcp(_) => "tcp",
        Address::Verbs(_) => "verbs",
        Address::Sim { .. } => "sim",
    }
}

/// The operations of a [`Remote`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    /// The kind of operation: reads or writes.
    pub kind: Kind,
    /// The number of operations in flight, at most [`DEPTH_MAX`].
    pub depth: usize,
}

/// A competitor that reads or writes over a link.
pub(crate) struct Remote {
    link: Rc<Link>,
    task: Task,
    offsets: Offsets,
    /// The time at which each operation in flight was submitted, if operations are timed.
    submitted: [Option<Instant>; DEPTH_MAX],
    free: Vec<usize>,
}

impl Remote {
    /// Makes a competitor that uses the link's open file of `file_bytes`.
    #[must_use]
    pub(crate) fn new(link: &Rc<Link>, task: Task, file_bytes: u64) -> Self {
        Self {
            link: link.clone(),
            task,
            offsets: Offsets::new(file_bytes),
            submitted: [None; DEPTH_MAX],
            free: (0..task.depth).collect(),
        }
    }

    /// Runs one operation at a time, through the blocking calls.
    fn one_by_one(
        &mut self,
        block: usize,
        span: Duration,
        times: Option<&mut Times>,
    ) -> Result<Tally> {
        let (link, offsets) = (&self.link, &mut self.offsets);
        let writes = self.task.kind == Kind::Write;
        repeat(span, times, || {
            let offset = offsets.next(block);
            let slice = link.buffer.slice(0, block)?;
            let moved = if writes {
                link.file.write_from(offset, slice)?
            } else {
                link.file.read_into(offset, slice)?
            };
            Ok(moved.length as u64)
        })
    }

    fn submit(&mut self, block: usize, slot: usize, is_timed: bool) -> Result<()> {
        let Link { file, buffer, group, .. } = &*self.link;
        let offset = self.offsets.next(block);
        let slice = buffer.slice(slot * block, block)?;
        let (session, context) = (file.session(), slot as u64);
        if is_timed {
            self.submitted[slot] = Some(Instant::now());
        }
        if self.task.kind == Kind::Write {
            session.submit_write(file, offset, slice, Stability::Unstable, *group, context)?;
        } else {
            session.submit_read(file, offset, slice, *group, context)?;
        }
        Ok(())
    }

    fn collect(
        &mut self,
        count: usize,
        tally: &mut Tally,
        times: &mut Option<&mut Times>,
    ) -> Result<()> {
        let Link { client, group, .. } = &*self.link;
        client.wait(*group, count, None);
        while let Some(completion) = client.next(*group) {
            tally.sum = tally.sum.wrapping_add(completion.result?.length as u64);
            tally.count += 1;
            let slot = usize::try_from(completion.context)?;
            if let (Some(times), Some(start)) = (times.as_mut(), self.submitted[slot].take()) {
                times.saturating_record(nanos(start.elapsed()));
            }
            self.free.push(slot);
        }
        Ok(())
    }
}

impl Peer for Remote {
    fn label(&self) -> Label {
        let Task { kind, depth } = self.task;
        Label { peer: self.link.transport, kind, depth, sleeps: self.link.sleeps }
    }

    fn run(
        &mut self,
        block: usize,
        span: Duration,
        mut times: Option<&mut Times>,
    ) -> Result<Tally> {
        if self.task.depth == 1 && !self.link.sleeps {
            return self.one_by_one(block, span, times);
        }
        let depth = self.task.depth;
        let threshold = if self.link.sleeps { depth } else { 1 };
        let (start, mut tally) = (Instant::now(), Tally::default());
        while start.elapsed() < span {
            while let Some(slot) = self.free.pop() {
                self.submit(block, slot, times.is_some())?;
            }
            self.collect(threshold, &mut tally, &mut times)?;
        }
        while self.free.len() < depth {
            self.collect(depth - self.free.len(), &mut tally, &mut times)?;
        }
        Ok(tally)
    }
}
