//! The Postmark workload on a DAFS server.
//!
//! Invariant: a step is one chain (open, read or write, close), so it takes one round trip. Each
//! lane has a future, which is polled again when a reply that the future waits for has arrived.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll, Wake, Waker};

use anyhow::{Context, Result, bail};
use dafs_client::{Buffer, FileHandle, OpenOptions, Outcome, Session, ShareAccess};

use super::lane::{Lane, Step, Target, directory_name};
use super::{SIZE_MAX, Store};

/// A directory on a server for the workload.
pub struct Served {
    session: Session,
    top: String,
    stable: bool,
    directories: Vec<FileHandle>,
    buffers: Vec<Buffer>,
}

impl Served {
    /// Creates a store that works beneath `top`, a path on the session's server.
    #[must_use]
    pub fn new(session: &Session, top: &str, stable: bool) -> Self {
        let top = top.trim_end_matches('/').to_owned();
        let (directories, buffers) = (Vec::new(), Vec::new());
        Self { session: session.clone(), top, stable, directories, buffers }
    }

    async fn lane(&self, lane: &mut Lane, buffer: &Buffer) -> Result<()> {
        let mut bytes = vec![0; SIZE_MAX + 1];
        while let Some(step) = lane.next_step() {
            match step {
                Step::Read(target) => {
                    let count = self.read(target, buffer).await?;
                    buffer.read(0, &mut bytes[..count]);
                    lane.done(step, &bytes[..count])?;
                }
                Step::Create(target) => {
                    self.create(target, lane.content(target), buffer).await?;
                    lane.done(step, &[])?;
                }
                Step::Remove(target) => {
                    let directory = self.directories[target.directory];
                    let name = target.name();
                    self.session.remove_in_async(directory, &name, &name).await?;
                    lane.done(step, &[])?;
                }
            }
        }
        Ok(())
    }

    /// Opens a file, reads one byte more than the file should have, and closes it.
    async fn read(&self, target: Target, buffer: &Buffer) -> Result<usize> {
        let slice = buffer.slice(0, target.size + 1)?;
        let chain = self.session.chain().at(self.directories[target.directory]);
        let chain = chain.open(target.name(), &OpenOptions::read());
        let done = chain.read_into(0, slice).close().run_async().await;
        let done = done.with_context(|| format!("reading file {}", target.name()))?;
        let moved =
            done.iter().find_map(Outcome::transferred).context("the chain has no read result")?;
        Ok(moved.length as usize)
    }

    /// Opens a file with creation, writes it, and closes it.
    async fn create(&self, target: Target, bytes: &[u8], buffer: &Buffer) -> Result<()> {
        let options = OpenOptions::write().access(ShareAccess::Write).create_new(true);
        let chain = self.session.chain().at(self.directories[target.directory]);
        let chain = chain.open(target.name(), &options);
        let chain = if bytes.len() <= chain.inline_bytes_max() {
            chain.write_inline(0, bytes)
        } else {
            buffer.write(0, bytes);
            chain.write_from(0, buffer.slice(0, bytes.len())?)
        };
        let chain = if self.stable { chain.commit() } else { chain };
        let done = chain.close().run_async().await;
        let done = done.with_context(|| format!("creating file {}", target.name()))?;
        let moved =
            done.iter().find_map(Outcome::transferred).context("the chain has no write result")?;
        if moved.length as usize != bytes.len() {
            bail!("the server wrote {} of {} bytes", moved.length, bytes.len());
        }
        Ok(())
    }
}

impl Store for Served {
    fn make_directories(&mut self, count: usize) -> Result<()> {
        for index in 0..count {
            let path = format!("{}/{}", self.top, directory_name(index));
            self.session.create_dir(&path, 0o755)?;
            self.directories.push(self.session.metadata(&path)?.handle);
        }
        Ok(())
    }

    fn run(&mut self, lanes: &mut [Lane]) -> Result<()> {
        let client = self.session.client();
        while self.buffers.len() < lanes.len() {
            self.buffers.push(client.allocate(SIZE_MAX + 1)?);
        }
        let store = &*self;
        let futures = lanes.iter_mut().zip(&store.buffers);
        let futures = futures.map(|(lane, buffer)| store.lane(lane, buffer));
        all(futures, || client.wait_for_events(1))
    }

    fn remove_directories(&mut self, count: usize) -> Result<()> {
        self.directories.clear();
        for index in 0..count {
            self.session.remove(format!("{}/{}", self.top, directory_name(index)))?;
        }
        Ok(())
    }
}

/// Runs futures concurrently until all have ended, or until the first error. `turn` waits for an
/// event, and returns false if no more events can arrive.
pub(crate) fn all<F: Future<Output = Result<()>>>(
    futures: impl Iterator<Item = F>,
    mut turn: impl FnMut() -> bool,
) -> Result<()> {
    let mut running: Vec<Option<Pin<Box<F>>>> = futures.map(|one| Some(Box::pin(one))).collect();
    let ready: Arc<Mutex<Vec<usize>>> = Arc::new(Mutex::new((0..running.len()).collect()));
    let wakers: Vec<Waker> = (0..running.len())
        .map(|index| Waker::from(Arc::new(Wakeup { index, ready: Arc::clone(&ready) })))
        .collect();
    let mut left = running.len();
    let mut now = Vec::new();
    while left > 0 {
        std::mem::swap(&mut now, &mut *ready.lock().unwrap_or_else(PoisonError::into_inner));
        if now.is_empty() && !turn() {
            bail!("requests were lost; this is a bug in the client library");
        }
        for index in now.drain(..) {
            let Some(future) = &mut running[index] else { continue };
            let mut context = TaskContext::from_waker(&wakers[index]);
            if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
                running[index] = None;
                left -= 1;
                result?;
            }
        }
    }
    Ok(())
}

struct Wakeup {
    index: usize,
    ready: Arc<Mutex<Vec<usize>>>,
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).push(self.index);
    }
}
