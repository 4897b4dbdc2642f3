//! Direct forms of attributes, listings and link texts: results or arguments that lie
//! in the client's memory.
//!
//! Invariant: staging memory is registered for one transfer and let go at its
//! completion.

use dafs_dat::{Domain, EndpointId, LocalSegment, RemoteSegment, Signal, Stag};
use dafs_memory::Memory;
use dafs_types::Status;
use dafs_wire::{Checksum, DirectBuffer};

use crate::data::Step;
use crate::reactor::Reactor;
use crate::reply_to::{ReplyTo, TaskId};
use crate::task::{FetchTask, Task, Wait, Work};
use crate::transfer::{Cookie, Loan, Staging};

impl Reactor {
    /// Memory of `length` octets that a transfer may use.
    pub(crate) fn stage(&mut self, bytes: Box<[u8]>) -> Result<Staging, Status> {
        let memory = Memory::from_heap(bytes);
        let region = self.interface.register_local(&memory, Domain(0)).ok_or(Status::Resource)?;
        Ok(Staging { memory, region })
    }

    /// Places bytes into the client's buffers before the answer. Returns their checksum
    /// for the answer.
    pub(crate) fn place_bytes(
        &mut self,
        answer: ReplyTo,
        bytes: &[u8],
        buffers: &[DirectBuffer],
    ) -> Result<Checksum, Status> {
        let room: u64 = buffers.iter().map(|buffer| u64::from(buffer.length)).sum();
        if (bytes.len() as u64) > room {
            return Err(Status::TooSmall);
        }
        let checksum =
            if self.has_checksums(answer.endpoint) { Checksum::of(bytes) } else { Checksum::NONE };
        if bytes.is_empty() {
            return Ok(checksum);
        }
        let staging = self.stage(bytes.into())?;
        let loan = Loan::Staging(staging.region.key);
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let cookie = self.loans.insert(answer.endpoint, loan, length);
        let mut done = 0;
        for buffer in buffers {
            let left = bytes.len() - done;
            let length = u32::try_from(left).unwrap_or(u32::MAX).min(buffer.length);
            if length == 0 {
                continue;
            }
            let local = [staging.region.local(done as u64, length)];
            let remote = remote_of(buffer, length);
            done += length as usize;
            let is_last = done == bytes.len();
            if !self.post_write(answer.endpoint, &local, remote, cookie, is_last) || is_last {
                break;
            }
        }
        Ok(checksum)
    }

    /// Posts one RDMA write out of what is lent under `cookie`, which comes back with the
    /// last. False if the connection is at its end, and the loan with it.
    pub(crate) fn post_write(
        &mut self,
        endpoint: EndpointId,
        local: &[LocalSegment],
        remote: RemoteSegment,
        cookie: Cookie,
        is_last: bool,
    ) -> bool {
        let (signal, word) = if is_last {
            (Signal::Always, cookie.pack())
        } else {
            (Signal::OnError, Cookie::Silent.pack())
        };
        let posted = self.interface.post_rdma_write(endpoint, word, local, remote, signal).is_ok();
        if !posted {
            self.give_up(endpoint);
            self.on_loan_done(cookie);
        }
        posted
    }

    /// Starts to fetch `length` octets of the client's memory for a task.
    pub(crate) fn fetch(
        &mut self,
        answer: ReplyTo,
        buffer: &DirectBuffer,
        length: u32,
        make: impl FnOnce(Staging) -> FetchTask,
    ) -> Result<(), Status> {
        let staging = self.stage(vec![0; length as usize].into())?;
        let local = [staging.region.local(0, length)];
        let key = staging.region.key;
        let id: TaskId = self.tasks.reserve();
        let word = Cookie::Task(id).pack();
        let remote = remote_of(buffer, length);
        let over = self.reads_over(answer.endpoint);
        if self.interface.post_rdma_read(over, word, &local, remote).is_err() {
            self.tasks.forget(id);
            self.interface.deregister(key);
            self.give_up(answer.endpoint);
            self.report_broken(answer);
            return Ok(());
        }
        self.park(id, Task::new(answer, Work::Fetch(make(staging))), Wait::Transfers);
        Ok(())
    }

    /// What was fetched is here.
    pub(crate) fn step_fetch(&mut self, answer: ReplyTo, task: &mut FetchTask) -> Step {
        self.interface.deregister(task.staging.region.key);
        let bytes = task.staging.memory.to_vec(0, task.length as usize);
        let intact = !self.has_checksums(answer.endpoint) || Checksum::of(&bytes) == task.checksum;
        if task.failed {
            return Step::Broken;
        }
        if !intact {
            return Step::failed(Status::Chksum);
        }
        self.set_fetched_attributes(answer, task, &bytes).unwrap_or_else(Step::failed)
    }
}

pub(crate) fn remote_of(buffer: &DirectBuffer, length: u32) -> RemoteSegment {
    RemoteSegment { stag: Stag(buffer.context.0), address: buffer.target.0, length }
}
