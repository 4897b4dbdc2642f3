//! Writes with a checksum.
//!
//! The bytes are fetched into separate memory and verified there, so that no byte damaged in
//! transit reaches the file. The worker pool computes the checksums of large writes.
//!
//! Invariant: the memory for such writes is limited for each client and in total. If no memory is
//! left, a write waits until other writes release theirs.

use dafs_memory::Memory;
use dafs_store::cache::{Progress, Span, Spans};
use dafs_types::Status;

use crate::data::Step;
use crate::moving::shares::{is_plenty, is_share};
use crate::moving::sums::{IN_PLACE_BYTES_MAX, SumJob, sum_of};
use crate::moving::transfer::{Cut, Staging};
use crate::reactor::Reactor;
use crate::reply_to::{ReplyTo, TaskId};
use crate::task::{Wait, WriteSource, WriteTask};

impl Reactor<'_> {
    /// Fetches and verifies the bytes of a checksummed write. Returns a step if the write must wait
    /// or has ended, `None` if the bytes are verified.
    pub(crate) fn unseal(
        &mut self,
        id: TaskId,
        answer: ReplyTo,
        task: &mut WriteTask,
    ) -> Option<Step> {
        match &mut task.source {
            WriteSource::Bytes(_) | WriteSource::Direct(_) | WriteSource::Good(_) => None,
            WriteSource::Sealed { staging, .. } => match staging.clone() {
                Some(staging) => self.open_seal(id, answer, task, staging),
                None => self.fetch_sealed(id, answer, task),
            },
            WriteSource::Fetched { memory, expected, sum } => {
                let (memory, expected) = (memory.clone(), *expected);
                match sum.take() {
                    None => Some(Step::Wait(Wait::Sum)),
                    Some(Err(status)) => Some(self.refuse_write(answer, task, status)),
                    Some(Ok(sum)) => self.judge_sum(answer, task, memory, sum == expected),
                }
            }
        }
    }

    fn fetch_sealed(&mut self, id: TaskId, answer: ReplyTo, task: &mut WriteTask) -> Option<Step> {
        if !self.has_room_for_sealed(answer, task.writing.length as usize) {
            return Some(Step::Wait(Wait::Room));
        }
        let staging = match Staging::of(
            &mut self.own.interface,
            vec![0; task.writing.length as usize].into(),
        ) {
            Ok(staging) => staging,
            Err(status) => return Some(self.refuse_write(answer, task, status)),
        };
        self.hold_sealed(answer, task);
        let WriteSource::Sealed { buffers, staging: place, .. } = &mut task.source else {
            return None;
        };
        *place = Some(staging.clone());
        let spans = Spans::from_iter([Span { offset: 0, length: task.writing.length }]);
        let cut = Cut::new(&spans, buffers.as_slice(), 0, task.writing.length);
        (task.transfers_left, task.transfer_failed) =
            self.fetch_all(id, answer.endpoint, cut, staging.region);
        if task.transfers_left > 0 {
            return Some(Step::Wait(Wait::Transfers));
        }
        self.open_seal(id, answer, task, staging)
    }

    /// Verifies the fetched bytes, or submits the computation of their checksum to the worker pool.
    fn open_seal(
        &mut self,
        id: TaskId,
        answer: ReplyTo,
        task: &mut WriteTask,
        staging: Staging,
    ) -> Option<Step> {
        let Staging { memory, region } = staging;
        self.own.interface.deregister(region.key);
        if task.transfer_failed {
            return Some(self.refuse_broken(answer, task));
        }
        let WriteSource::Sealed { expected, .. } = &task.source else { return None };
        let (expected, length) = (*expected, task.writing.length as usize);
        if length <= IN_PLACE_BYTES_MAX {
            let is_good = sum_of(&memory, 0..length, || ()) == expected;
            return self.judge_sum(answer, task, memory, is_good);
        }
        let stretches = std::iter::once(0..length).collect();
        self.submit_sum(SumJob { task: id, memory: memory.clone(), stretches, keeps: false });
        task.source = WriteSource::Fetched { memory, expected, sum: None };
        Some(Step::Wait(Wait::Sum))
    }

    fn judge_sum(
        &mut self,
        answer: ReplyTo,
        task: &mut WriteTask,
        memory: Memory,
        is_good: bool,
    ) -> Option<Step> {
        if !is_good {
            return Some(self.refuse_write(answer, task, Status::Chksum));
        }
        task.source = WriteSource::Good(memory);
        None
    }

    /// Returns true if the limits allow another checksummed write of `length` bytes.
    fn has_room_for_sealed(&self, answer: ReplyTo, length: usize) -> bool {
        let own =
            self.shared.channels.get(answer.endpoint).map_or(0, |channel| channel.sealed_bytes);
        let fits = |held: usize, limit: usize| held == 0 || held + length <= limit;
        let all = self.shared.channels.sealed_bytes();
        if !fits(own, CHANNEL_BYTES_MAX) || !fits(all, SEALED_BYTES_MAX) {
            return false;
        }
        is_plenty(all + length, SEALED_BYTES_MAX) || {
            let holder = self.shared.channels.holder_of(answer.endpoint);
            let same =
                self.shared.channels.iter().filter(|channel| channel.peer.holder() == holder);
            let own: usize = same.map(|channel| channel.sealed_bytes).sum();
            own == 0 || is_share(own + length, all + length, SEALED_BYTES_MAX)
        }
    }

    fn hold_sealed(&mut self, answer: ReplyTo, task: &mut WriteTask) {
        task.sealed_bytes = task.writing.length;
        self.shared.channels.hold_sealed(answer.endpoint, task.sealed_bytes);
    }

    /// Releases the memory of a checksummed write that ends.
    pub(crate) fn release_sealed(&mut self, answer: ReplyTo, task: &WriteTask) {
        if task.sealed_bytes > 0 {
            self.shared.channels.release_sealed(answer.endpoint, task.sealed_bytes);
            self.on_progress(Progress { file: task.writing.file, error: None });
        }
    }
}

/// The limit on the number of bytes held for all checksummed writes, in total.
const SEALED_BYTES_MAX: usize = 256 << 20;
/// The maximum number of bytes that the checksummed writes of one connection hold. Without this
/// limit, a client that does not let its memory be read could delay other clients.
const CHANNEL_BYTES_MAX: usize = 32 << 20;
