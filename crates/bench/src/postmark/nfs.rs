//! The Postmark workload through libnfs.
//!
//! Invariant: each lane has at most one request in flight. The requests of all lanes are in flight
//! together on one connection, served by one thread.

use std::collections::HashMap;

use anyhow::{Context, Result, bail};
use dafs_peers::{FileId, Nfs, Reply, Request, Ticket, flag};

use super::Store;
use super::lane::{Lane, Step, Target, directory_name};

/// A mounted export for the workload.
pub struct Mounted {
    nfs: Nfs,
    stable: bool,
}

/// The progress of the step that a lane has in flight.
enum State {
    Opening,
    Moving(FileId),
    Syncing(FileId),
    Closing,
    Removing,
}

impl Mounted {
    /// Creates a store that works in the root of an export.
    ///
    /// libnfs commits written data when the file is closed. With `stable`, the data is committed
    /// before the close.
    #[must_use]
    pub fn new(nfs: Nfs, stable: bool) -> Self {
        Self { nfs, stable }
    }

    /// Begins a step.
    fn begin(&mut self, step: Step) -> Result<(Ticket, State)> {
        Ok(match step {
            Step::Read(target) => {
                let (path, flags) = (path(target), flag::READ);
                let request = Request::Open { path: &path, flags, mode: 0 };
                (self.nfs.submit(request)?, State::Opening)
            }
            Step::Create(target) => {
                let flags = flag::WRITE | flag::CREATE | flag::EXCLUSIVE;
                let path = path(target);
                let request = Request::Open { path: &path, flags, mode: 0o644 };
                (self.nfs.submit(request)?, State::Opening)
            }
            Step::Remove(target) => {
                (self.nfs.submit(Request::Unlink(&path(target)))?, State::Removing)
            }
        })
    }

    /// Continues a step after a reply. Returns `None` if the step is done.
    fn go_on(
        &mut self,
        lane: &Lane,
        step: Step,
        state: State,
        answer: Reply,
        read: &mut Vec<u8>,
    ) -> Result<Option<(Ticket, State)>> {
        let (request, next) = match (state, answer, step) {
            (State::Opening, Reply::Opened(file), Step::Create(target)) => {
                let buffer = lane.content(target).to_vec();
                (Request::Write { file, offset: 0, buffer }, State::Moving(file))
            }
            (State::Opening, Reply::Opened(file), Step::Read(target)) => {
                let buffer = vec![0; target.size + 1];
                (Request::Read { file, offset: 0, buffer }, State::Moving(file))
            }
            (State::Moving(file), Reply::Moved { count, mut buffer }, Step::Read(_)) => {
                buffer.truncate(count);
                *read = buffer;
                (Request::Close(file), State::Closing)
            }
            (State::Moving(file), Reply::Moved { count, buffer }, _) => {
                if count != buffer.len() {
                    bail!("NFS wrote {count} of {} bytes", buffer.len());
                }
                if self.stable {
                    (Request::Sync(file), State::Syncing(file))
                } else {
                    (Request::Close(file), State::Closing)
                }
            }
            (State::Syncing(file), _, _) => (Request::Close(file), State::Closing),
            (State::Closing | State::Removing, Reply::Done, _) => return Ok(None),
            (_, answer, _) => bail!("NFS answered {answer:?}"),
        };
        Ok(Some((self.nfs.submit(request)?, next)))
    }
}

impl Store for Mounted {
    fn make_directories(&mut self, count: usize) -> Result<()> {
        for index in 0..count {
            self.nfs.mkdir(&format!("/{}", directory_name(index)), 0o755)?;
        }
        Ok(())
    }

    fn run(&mut self, lanes: &mut [Lane]) -> Result<()> {
        let mut under_way: HashMap<Ticket, (usize, Step, State)> = HashMap::new();
        let mut read: Vec<Vec<u8>> = vec![Vec::new(); lanes.len()];
        for (index, lane) in lanes.iter_mut().enumerate() {
            if let Some(step) = lane.next_step() {
                let (ticket, state) = self.begin(step)?;
                under_way.insert(ticket, (index, step, state));
            }
        }
        while !under_way.is_empty() {
            let completion = self.nfs.wait()?;
            let Some((index, step, state)) = under_way.remove(&completion.ticket) else {
                bail!("the NFS server sent an unexpected reply");
            };
            let answer = completion.result.with_context(|| format!("{step:?}"))?;
            let lane = &mut lanes[index];
            let next = match self.go_on(lane, step, state, answer, &mut read[index])? {
                Some((ticket, state)) => Some((ticket, step, state)),
                None => {
                    lane.done(step, &std::mem::take(&mut read[index]))?;
                    match lane.next_step() {
                        Some(step) => {
                            let (ticket, state) = self.begin(step)?;
                            Some((ticket, step, state))
                        }
                        None => None,
                    }
                }
            };
            if let Some((ticket, step, state)) = next {
                under_way.insert(ticket, (index, step, state));
            }
        }
        Ok(())
    }

    fn remove_directories(&mut self, count: usize) -> Result<()> {
        for index in 0..count {
            self.nfs.rmdir(&format!("/{}", directory_name(index)))?;
        }
        Ok(())
    }
}

fn path(target: Target) -> String {
    format!("/{}/{}", directory_name(target.directory), target.name())
}
