//! Batches with checksums: fetched, looked at, submitted in order.

use std::sync::Arc;

use dafs_filer::{Holder, IoKind};
use dafs_store::cache::{Span, Spans};
use dafs_types::{SessionId, Status};

use super::super::{Batch, Batches};
use super::{BATCH_BYTES_MAX, HELD_BYTES_MAX, SealedBatch};
use crate::data::Step;
use crate::reactor::Reactor;
use crate::reply_to::{ReplyTo, TaskId};
use crate::sealed::{is_plenty, is_share};
use crate::sums::{SumJob, Summed};
use crate::task::{Task, Wait, Work};
use crate::transfer::Cut;

impl Reactor {
    /// Batches of one session are accepted in the order they came in. Each that waits has a
    /// credit.
    pub(in crate::batch) fn submit_in_order(
        &mut self,
        session: SessionId,
        answer: ReplyTo,
        batch: Batch,
    ) -> Result<(), Status> {
        let entry = self.batches.sessions.get_mut(&session).ok_or(Status::BadSession)?;
        if entry.is_fetching {
            entry.behind.push_back((answer, batch));
            return Ok(());
        }
        self.submit_sealed(session, answer, batch)
    }

    /// Submits what came behind a batch that is accepted or refused.
    fn submit_behind(&mut self, session: SessionId) {
        while let Some(entry) = self.batches.sessions.get_mut(&session)
            && !entry.is_fetching
            && let Some((answer, batch)) = entry.behind.pop_front()
        {
            if let Err(status) = self.submit_sealed(session, answer, batch) {
                self.fail(answer, status);
            }
        }
    }

    /// Fetches what a batch writes, and submits it then.
    fn submit_sealed(
        &mut self,
        session: SessionId,
        answer: ReplyTo,
        batch: Batch,
    ) -> Result<(), Status> {
        let mut bytes = 0;
        for wanted in batch.requests.iter().filter(|wanted| wanted.kind == IoKind::Write) {
            // What differs is refused by the scheduler, with nothing fetched.
            let in_file: u64 = wanted.chunks.iter().map(|chunk| u64::from(chunk.length)).sum();
            let in_memory: u64 = wanted.buffers.iter().map(|b| u64::from(b.length)).sum();
            if in_file != in_memory {
                return Err(Status::Inval);
            }
            bytes += usize::try_from(in_memory).unwrap_or(usize::MAX).min(BATCH_BYTES_MAX + 1);
        }
        if bytes == 0 {
            return self.submit_batch(answer, &batch);
        }
        if bytes > BATCH_BYTES_MAX {
            return Err(Status::Resource);
        }
        if !self.has_room_for_batch(answer, bytes) {
            return Err(Status::Delay);
        }
        let staging = self.stage(vec![0; bytes].into())?;
        let id = self.tasks.reserve();
        let mut sealed = SealedBatch {
            session,
            batch,
            staging,
            bytes,
            transfers_left: 0,
            transfer_failed: false,
            summed: None,
        };
        if let Some(entry) = self.batches.sessions.get_mut(&session) {
            entry.is_fetching = true;
        }
        self.batches.fetching_bytes += bytes;
        let mut start = 0;
        for wanted in sealed.batch.requests.iter().filter(|wanted| wanted.kind == IoKind::Write) {
            let length: u32 = wanted.buffers.iter().map(|buffer| buffer.length).sum();
            let spans = Spans::from_iter([Span { offset: start, length }]);
            start += u64::from(length);
            let cut = Cut::new(&spans, &wanted.buffers, 0, length);
            let (left, failed) = self.fetch_all(id, answer.endpoint, cut, sealed.staging.region);
            sealed.transfers_left += left;
            sealed.transfer_failed |= failed;
        }
        let waits = sealed.transfers_left > 0;
        let task = Task::new(answer, Work::SealedBatch(Box::new(sealed)));
        if waits {
            self.park(id, task, Wait::Transfers);
        } else {
            self.drive(id, task);
        }
        Ok(())
    }

    /// What a batch writes is here, or is summed as well.
    pub(crate) fn step_sealed_batch(
        &mut self,
        id: TaskId,
        answer: ReplyTo,
        sealed: &mut SealedBatch,
    ) -> Step {
        if sealed.summed.is_none() {
            self.interface.deregister(sealed.staging.region.key);
        }
        let has_ended = sealed.transfer_failed || self.channels.get(answer.endpoint).is_none();
        let step = match sealed.summed.take() {
            _ if has_ended => Step::Broken,
            Some(Ok(summed)) => self.submit_unsealed(answer, &mut sealed.batch, summed),
            Some(Err(status)) => Step::failed(status),
            None => {
                let memory = sealed.staging.memory.clone();
                let stretches = sealed.stretches();
                self.submit_sum(SumJob { task: id, memory, stretches, keeps: true });
                return Step::Wait(Wait::Sum);
            }
        };
        self.batches.fetching_bytes -= sealed.bytes;
        if let Some(entry) = self.batches.sessions.get_mut(&sealed.session) {
            entry.is_fetching = false;
        }
        self.submit_behind(sealed.session);
        step
    }

    /// Compares what was fetched with what was promised, and submits the batch.
    fn submit_unsealed(&mut self, answer: ReplyTo, batch: &mut Batch, summed: Vec<Summed>) -> Step {
        let writes = batch.requests.iter_mut().filter(|wanted| wanted.kind == IoKind::Write);
        for (wanted, Summed { sum, octets }) in writes.zip(summed) {
            let Some(octets) = octets else { continue };
            if !octets.is_empty() && sum != wanted.checksum {
                wanted.refused = Some(Status::Chksum);
                continue;
            }
            self.batches.held.push((Arc::downgrade(&octets), octets.len()));
            wanted.octets = Some(octets);
        }
        match self.submit_batch(answer, batch) {
            Ok(()) => Step::Silent,
            Err(status) => Step::failed(status),
        }
    }

    fn has_room_for_batch(&mut self, answer: ReplyTo, bytes: usize) -> bool {
        let batches = &mut self.batches;
        batches.held.retain(|(octets, _)| octets.strong_count() > 0);
        let held: usize = batches.held.iter().map(|(_, length)| length).sum();
        let held = held + batches.fetching_bytes;
        if held != 0 && held + bytes > HELD_BYTES_MAX {
            return false;
        }
        is_plenty(held + bytes, HELD_BYTES_MAX) || {
            let own = self.fetched_for(self.channels.holder_of(answer.endpoint));
            own == 0 || is_share(own + bytes, held + bytes, HELD_BYTES_MAX)
        }
    }

    /// Octets that are being fetched for batches of a holder.
    fn fetched_for(&self, holder: Holder) -> usize {
        let is_its = |task: &Task| self.channels.holder_of(task.reply_to.endpoint) == holder;
        let octets = self.tasks.with_transfers().filter_map(|(_, task)| match &task.work {
            Work::SealedBatch(sealed) if is_its(task) => Some(sealed.bytes),
            _ => None,
        });
        octets.sum()
    }
}

impl Batches {
    /// Whether so much is being fetched for batches that others may be told to come again. They
    /// do not wait here; so whoever has batches fetched must get on.
    pub(crate) fn is_crowded(&self) -> bool {
        !is_plenty(self.fetching_bytes, HELD_BYTES_MAX)
    }
}
